//! A step under way, in our turn: look, decide, write down, append.
//!
//! ```text
//!   begin     take in what is new in the ledger; what is known of the node; files
//!   act       what is known is saved first, and names the event that is about to be
//!             append the events, if the newest one is still the one that was looked at
//!   changed   somebody else wrote: look anew, after a pause
//! ```

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tenure_core::decide::{ClaimTicket, View};
use tenure_core::{
    Claim, ErrorKind, Evidence, Holder, Lease, LivenessId, Moment, StoreError, Token, Verdict,
    Waiter,
};

use super::claim_event::{ClaimEvent, file_reaped};
use super::look::{Counts, Sight, Source};
use super::node_state::{GrantNote, NodeState};
use super::{LedgerStore, resolve};
use crate::append::{self, Writer};
use crate::claim_files::{FileClaim, FileReaped};
use crate::node::NodeId;
use crate::replay::{NodeClaim, Replay};
use crate::{Appended, Dialect};
use tenure_host::files::places::{Desk, Places};
use tenure_host::files::protocol::digest;
use tenure_host::files::reader::Reader;
use tenure_host::files::sidecar::TicketRecord;

/// How often to look again when other programs write to the ledger meanwhile.
const TRIES: u32 = 64;

/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// A step under way, for one node.
pub(super) struct Step<'a> {
    pub(super) store: &'a LedgerStore,
    pub(super) writing: &'a Writer<'a>,
    pub(super) replay: &'a mut Replay,
    pub(super) node: NodeId,
    pub(super) now: Moment,
    pub(super) keyed: NodeState,
    pub(super) files: Vec<FileClaim>,
    /// Whether what is known has to be saved yet.
    pub(super) dirty: bool,
    /// Whether something was appended, and has to be synced yet.
    pub(super) appended: bool,
    /// Whom to wake once it is over.
    pub(super) rings: Vec<LivenessId>,
}

impl Places for Step<'_> {
    fn now(&self) -> &Moment {
        &self.now
    }

    fn reader(&self) -> Reader<'_> {
        self.store.reader(&self.now)
    }

    fn tickets(&self) -> &[TicketRecord] {
        &self.keyed.tickets
    }

    fn desk(&mut self) -> Desk<'_> {
        self.dirty = true;
        Desk {
            tickets: &mut self.keyed.tickets,
            last_ticket: &mut self.keyed.last_ticket,
        }
    }

    fn grace(&self) -> Duration {
        self.store.ledger.options.queue_grace
    }

    fn ring(&mut self, holder: &Holder) {
        if let Some(life) = holder.liveness_lock() {
            self.rings.push(life.clone());
        }
    }
}

impl Step<'_> {
    /// Looks at everything anew.
    pub(super) fn look(&mut self) -> Result<(), StoreError> {
        let ledger = &self.store.ledger;
        ledger.catch_up(self.replay)?;
        // After the events: a claim must not look older than it is.
        self.now = ledger.options.clock.now();
        self.files = ledger.file_claims()?;
        self.keyed = NodeState::load(&self.store.keys, &self.node, &self.now)?;
        self.dirty = resolve(ledger, self.replay, &self.node, &mut self.keyed)?;
        Ok(())
    }

    pub(super) fn claimed(&self) -> Option<NodeClaim> {
        self.replay.claims.get(&self.node).cloned()
    }

    /// The claim that counts.
    pub(super) fn counts(&self) -> Option<Counts> {
        self.sight(self.claimed().as_ref(), |sight| sight.counts())
    }

    fn sight<T>(&self, claim: Option<&NodeClaim>, look: impl FnOnce(&Sight<'_>) -> T) -> T {
        look(&Sight {
            reader: self.reader(),
            node: &self.node,
            claim,
            keyed: &self.keyed,
            files: &self.files,
        })
    }

    pub(super) fn queue(&self, claim: Option<&Claim>) -> Vec<Waiter> {
        let asker = claim.map(|claim| &claim.holder.id);
        self.reader().queue(&self.keyed.tickets, asker)
    }

    /// All that a claim is decided on.
    pub(super) fn view(&self, claim: Option<&Claim>) -> View {
        View {
            lease: self.counts().map(|counts| (counts.lease, counts.liveness)),
            queue: self.queue(claim),
            newest: Token(self.replay.seq),
        }
    }

    /// Saves what is known, if there is something to save.
    pub(super) fn flush(&mut self) -> Result<(), StoreError> {
        if self.dirty {
            self.keyed.save(&self.store.keys, &self.node)?;
            self.dirty = false;
        }
        Ok(())
    }

    /// Tries until it is settled: each time that somebody else wrote to the ledger between the look
    /// and the append, it looks anew.
    pub(super) fn persevere<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<T>, StoreError>,
    ) -> Result<T, StoreError> {
        for tried in 0..TRIES {
            if let Some(answer) = attempt(self)? {
                return Ok(answer);
            }
            pause(tried);
            self.look()?;
        }
        let what = format!(
            "{} is written by other programs all the time",
            self.store.ledger.path.display()
        );
        Err(StoreError::new(ErrorKind::Contended, what)
            .fix("see which ones, and try again; nothing was changed"))
    }

    /// Appends these, one after the other; `false` if somebody else wrote meanwhile.
    fn append(&mut self, events: &[Vec<u8>]) -> Result<bool, StoreError> {
        let expected = self.replay.seq;
        match self.writing.append(Some(expected), events)? {
            Appended::Done { .. } => {
                self.appended = true;
                let ledger = &self.store.ledger;
                ledger.catch_up(self.replay)?;
                Ok(true)
            }
            Appended::Mismatch { .. } => Ok(false),
            Appended::Locked(by) => Err(append::blocked(&by)),
        }
    }

    fn bytes(&self, deed: &ClaimEvent<'_>) -> Result<Vec<u8>, StoreError> {
        deed.bytes(self.store.ledger.dialect, &self.node, self.now.wall)
    }

    /// The event that takes a claim away, and a note of the proof where the event can't carry it.
    fn taking_away(&self, claim: &NodeClaim, evidence: &Evidence) -> Result<Vec<u8>, StoreError> {
        let bytes = self.bytes(&ClaimEvent::Reap(claim, evidence))?;
        if self.store.ledger.dialect == Dialect::Af {
            let seq = self.replay.seq.saturating_add(1);
            let ledger = &self.store.ledger;
            ledger.note_ending(seq, digest(&bytes), evidence)?;
        }
        Ok(bytes)
    }

    /// Grants the node; `None` if somebody else wrote meanwhile.
    pub(super) fn grant(
        &mut self,
        claim: &Claim,
        claim_ticket: ClaimTicket,
    ) -> Result<Option<Lease>, StoreError> {
        let deadline = self.now.deadline(claim.ttl);
        let mut events = Vec::new();
        let mut over = None;
        if let Some(old) = self.claimed() {
            let Counts {
                lease, liveness, ..
            } = self.sight(Some(&old), |sight| sight.in_ledger(&old));
            let verdict = Verdict::on(&self.now, &lease, &liveness);
            let Some(evidence) = verdict.over() else {
                return Ok(None);
            };
            events.push(self.taking_away(&old, evidence)?);
            over = Some(lease.holder);
        }
        let bytes = self.bytes(&ClaimEvent::Begin {
            owner: claim.holder.id.as_str(),
            expires: deadline.wall,
        })?;
        let before = u64::try_from(events.len()).unwrap_or(0);
        let token = self.replay.seq.saturating_add(before).saturating_add(1);
        self.keyed.grant = Some(GrantNote {
            token,
            digest: digest(&bytes),
            holder: claim.holder.clone(),
            ttl: claim.ttl,
            ends: vec![(&deadline).into()],
            ticket: claim_ticket.ticket(),
        });
        self.keyed.save(&self.store.keys, &self.node)?;
        events.push(bytes);
        if !self.append(&events)? {
            return Ok(None);
        }
        if let Some(over) = over {
            self.ring(&over);
        }
        // Saved with the next change: the note says that it is used up.
        let ticket = claim_ticket.ticket();
        self.keyed
            .tickets
            .retain(|place| Some(place.ticket) != ticket);
        self.dirty = false;
        Ok(Some(Lease {
            key: claim.key.clone(),
            holder: claim.holder.clone(),
            token: Token(token),
            acquired_at: self.now.wall,
            expires: deadline,
            heartbeat_at: self.now.wall,
            ttl: claim.ttl,
        }))
    }

    /// Moves the end of the claim in the ledger; `None` if somebody else wrote meanwhile, or there
    /// is none. `holder` is what it is tied to from now on.
    pub(super) fn refresh(
        &mut self,
        holder: Option<&Holder>,
        ttl: Duration,
    ) -> Result<Option<Lease>, StoreError> {
        let Some(claim) = self.claimed() else {
            return Ok(None);
        };
        let deadline = self.now.deadline(ttl);
        let current = claim.expires;
        let known = self.keyed.grant.take().filter(|note| note.is_about(&claim));
        let new = || {
            holder.map(|holder| GrantNote {
                token: claim.token,
                digest: claim.digest,
                holder: holder.clone(),
                ttl,
                ends: Vec::new(),
                ticket: None,
            })
        };
        self.keyed.grant = known.or_else(new).map(|mut note| {
            note.ttl = ttl;
            note.holder = holder.unwrap_or(&note.holder).clone();
            note.ends_at(current, &deadline);
            note
        });
        self.keyed.save(&self.store.keys, &self.node)?;
        let bytes = self.bytes(&ClaimEvent::Renew {
            claim: &claim,
            expires: deadline.wall,
        })?;
        if !self.append(&[bytes])? {
            return Ok(None);
        }
        self.dirty = false;
        let now = self.claimed();
        Ok(now.map(|claim| {
            self.sight(Some(&claim), |sight| sight.in_ledger(&claim))
                .lease
        }))
    }

    /// Ends the claim that counts; `false` if somebody else wrote meanwhile. Without evidence it is
    /// given back.
    pub(super) fn end(
        &mut self,
        counts: &Counts,
        evidence: Option<&Evidence>,
    ) -> Result<bool, StoreError> {
        let done = match (&counts.source, self.claimed()) {
            (Source::File(file), _) => self.end_file(&file.clone())?,
            (Source::Ledger, Some(claim)) => {
                let bytes = match evidence {
                    None => self.bytes(&ClaimEvent::Release(&claim))?,
                    Some(evidence) => self.taking_away(&claim, evidence)?,
                };
                self.append(&[bytes])?
            }
            (Source::Ledger, None) => false,
        };
        if !done {
            return Ok(false);
        }
        self.keyed.grant = None;
        self.dirty = true;
        if evidence.is_some() {
            self.ring(&counts.lease.holder);
        }
        Ok(true)
    }

    /// Removes a claim that is a file, in the seed's order. Not while the ledger has a claim on the
    /// same node: whoever replays it by the seed's rule would take the event for that one's end.
    fn end_file(&mut self, file: &FileClaim) -> Result<bool, StoreError> {
        if let Some(old) = self.claimed() {
            // It does not count, so it is over: that is told first.
            let counts = self.sight(Some(&old), |sight| sight.in_ledger(&old));
            let verdict = Verdict::on(&self.now, &counts.lease, &counts.liveness);
            let Some(evidence) = verdict.over() else {
                return Ok(false);
            };
            if !self.end(&counts, Some(evidence))? {
                return Ok(false);
            }
        }
        let owner = match &file.content {
            Ok(content) => content.owner.clone(),
            Err(_) => "?".into(),
        };
        let dialect = self.store.ledger.dialect;
        let event = file_reaped(dialect, &self.node, &owner, self.now.wall)?;
        let expected = self.replay.seq;
        match self.writing.reap_file(file, expected, event.as_deref())? {
            FileReaped::Done => {
                self.appended |= event.is_some();
                self.look()?;
                Ok(true)
            }
            FileReaped::Changed => Ok(false),
        }
    }
}

/// Waits a little, longer each time, and never in step with anybody else.
fn pause(tried: u32) {
    let most = Duration::from_micros(200)
        .saturating_mul(1 << tried.min(10))
        .min(LONGEST_PAUSE);
    let chance = RandomState::new().hash_one(tried) % 1000;
    let share = u32::try_from(chance).unwrap_or(500);
    std::thread::sleep(most * share / 1000);
}
