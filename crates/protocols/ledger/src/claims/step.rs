//! One atomic step on the claim of one node: [`LedgerStep`].
//!
//! ```text
//!   look      replay the new events; read the node's state and the claim files
//!   verb      the engine decides; what it wants to change is collected
//!   commit    save the state: beside what is known now, it names the event that is about to be appended;
//!             append the events, if the newest event is still the one that was seen
//!   conflict  another program appended meanwhile: take the ledger lock, look again, run the verb again
//! ```
//!
//! # Invariants
//!
//! 1. Nothing is written before the commit, so a verb can be dropped and run again.
//! 2. The end of a claim and the grant that takes it over are one batch: no program sees the node free
//!    in between (G5).
//! 3. A grant is tied to its process from its event on (G10): see `node_state`.
//! 4. The first attempt syncs its events before it takes the ledger lock. A later attempt holds the
//!    ledger lock from the look to the append, so programs that respect the lock can't make it fail.

use std::time::Duration;

use tenure_core::engine::{Ended, Look, Step, Then, Written};
use tenure_core::{
    ErrorKind, Evidence, Holder, HolderId, Key, Lease, Liveness, LivenessId, Moment, Revision,
    StoreError, Ticket, Token, Waiter,
};
use tenure_host::files::protocol::{Committed, digest};
use tenure_host::time_limit::TimeLimit;

use super::LedgerStore;
use super::claim_event::{ClaimEvent, file_reaped};
use super::history::EventNote;
use super::node_state::NodeState;
use super::view::ClaimsView;
use crate::af::Unclaimable;
use crate::append::{self, Writer};
use crate::claim_files::FileClaim;
use crate::lock::LedgerLockGuard;
use crate::node::NodeId;
use crate::replay::{ClaimForm, NodeClaim, Replay};
use crate::{Appended, Dialect};

/// How often a verb is run again. Only programs that ignore the ledger lock need more than two.
const ATTEMPTS: usize = 16;

/// A step that has begun.
pub struct LedgerStep<'a> {
    view: ClaimsView<'a>,
    writer: &'a Writer<'a>,
    node: NodeId,
    changes: NodeChanges,
    /// The numbers and digests of events that were appended, and have to be synced.
    pub(super) appended: Vec<(u64, u64)>,
    /// The processes to wake after the step.
    pub(super) wakes: Vec<LivenessId>,
}

/// What the engine wants to change.
#[derive(Default)]
struct NodeChanges {
    /// How the claim in the ledger ends.
    ended: Option<Ended>,
    /// The claims in files that end.
    ended_files: Vec<FileClaim>,
    put: Option<(Lease, Written)>,
    /// All tickets as they will be; `None` if they stay.
    tickets: Option<Vec<Waiter>>,
    /// The last ticket that was removed.
    removed_ticket: Option<Ticket>,
    wakes: Vec<LivenessId>,
}

impl Look for LedgerStep<'_> {
    type Error = StoreError;

    fn now(&self) -> &Moment {
        self.view.now()
    }

    fn leases(&mut self, key: &Key) -> Result<Vec<(Lease, Liveness)>, StoreError> {
        self.view.leases(key)
    }

    fn tickets(&mut self, key: &Key) -> Result<Vec<Waiter>, StoreError> {
        match &self.changes.tickets {
            Some(tickets) if key == self.node.key() => Ok(tickets.clone()),
            _ => self.view.tickets(key),
        }
    }

    fn probe(&mut self, waiter: &Holder) -> Liveness {
        self.view.probe(waiter)
    }

    fn heard(&mut self, waiter: &Waiter) -> Duration {
        self.view.heard(waiter)
    }

    fn grace(&self) -> Duration {
        self.view.grace()
    }
}

impl Step for LedgerStep<'_> {
    /// The number that the event of the grant will get.
    fn mint(&mut self, _key: &Key) -> Result<Token, StoreError> {
        self.check_node_exists()?;
        let file_events = match self.view.store.ledger.dialect {
            Dialect::Documented => self.changes.ended_files.len(),
            Dialect::Af => 0,
        };
        let before = file_events + usize::from(self.changes.ended.is_some());
        let before = u64::try_from(before).unwrap_or(u64::MAX);
        Token(self.view.replay.seq).raised(before.saturating_add(1))
    }

    fn write_lease(&mut self, lease: &Lease, put: Written) -> Result<(), StoreError> {
        self.view.store.check_ttl(lease.ttl)?;
        self.changes.put = Some((lease.clone(), put));
        Ok(())
    }

    fn erase_lease(&mut self, lease: &Lease, how: &Ended, _then: Then) -> Result<(), StoreError> {
        if lease.token != Token::NONE {
            self.changes.ended = Some(how.clone());
            return Ok(());
        }
        let end = |lease: &Lease| lease.expires.as_ref().map(|end| end.wall);
        let files = self.view.claims_on(&self.node)?.into_iter();
        let files = files.filter(|found| {
            found.lease.holder.id == lease.holder.id
                && found.lease.acquired_at == lease.acquired_at
                && end(&found.lease) == end(lease)
        });
        for file in files.filter_map(|found| found.file) {
            let ended = &mut self.changes.ended_files;
            if !ended.iter().any(|other| other.path == file.path) {
                ended.push(file);
            }
        }
        Ok(())
    }

    fn add_ticket(&mut self, _key: &Key, waiter: &Waiter) -> Result<Ticket, StoreError> {
        self.check_node_exists()?;
        let last = &mut self.state()?.last_ticket;
        *last = last.saturating_add(1);
        let ticket = Ticket(*last);
        self.tickets_to_change()?.push(Waiter {
            ticket,
            ..waiter.clone()
        });
        Ok(ticket)
    }

    fn write_ticket(&mut self, _key: &Key, waiter: &Waiter) -> Result<(), StoreError> {
        let mut tickets = self.tickets_to_change()?.iter_mut();
        if let Some(found) = tickets.find(|found| found.ticket == waiter.ticket) {
            found.clone_from(waiter);
        }
        Ok(())
    }

    fn erase_ticket(&mut self, _key: &Key, ticket: Ticket) -> Result<(), StoreError> {
        self.tickets_to_change()?
            .retain(|waiter| waiter.ticket != ticket);
        self.changes.removed_ticket = Some(ticket);
        Ok(())
    }

    fn waits_of(&mut self, holder: &HolderId, token: Token) -> Result<Vec<Key>, StoreError> {
        let mut keys = Vec::new();
        for node in NodeState::nodes(&self.view.store.states)? {
            let tickets = self.tickets(node.key())?;
            let waits =
                |waiter: &Waiter| waiter.holder.id == *holder || waiter.within.contains(&token);
            if tickets.iter().any(waits) {
                keys.push(node.key().clone());
            }
        }
        Ok(keys)
    }

    fn wake(&mut self, holder: &Holder) {
        self.changes.wakes.extend(holder.liveness_lock().cloned());
    }

    fn hear(&mut self, _key: &Key, _waiter: &Waiter) -> Result<(), StoreError> {
        self.view.store.presence.beat();
        Ok(())
    }
}

impl<'a> LedgerStep<'a> {
    /// Looks at the claims, as the only tenure process that writes.
    pub(super) fn begin(
        store: &'a LedgerStore,
        writer: &'a Writer<'a>,
        replay: &'a mut Replay,
        node: NodeId,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            view: ClaimsView::new(store, replay)?,
            writer,
            node,
            changes: NodeChanges::default(),
            appended: Vec::new(),
            wakes: Vec::new(),
        })
    }

    /// Runs a verb and commits it, again each time another program was faster.
    pub(super) fn run<T>(
        &mut self,
        limit: TimeLimit,
        mut verb: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = verb(self)?;
        if self.commit(limit, None)? == Committed::Yes {
            return Ok(answer);
        }
        for _ in 1..ATTEMPTS {
            if limit.has_passed() {
                break;
            }
            // Invariant 4.
            let lock = self.writer.lock_ledger(limit)?;
            self.view.refresh()?;
            let answer = verb(self)?;
            if self.commit(limit, Some(&lock))? == Committed::Yes {
                return Ok(answer);
            }
        }
        let path = self.view.store.ledger.path.display();
        let what = format!("other programs keep writing to {path}");
        Err(StoreError::new(ErrorKind::Contended, what)
            .fix("find those programs, and try again; nothing was changed"))
    }

    pub(super) fn revision(&mut self) -> Result<Revision, StoreError> {
        self.view.revision(&self.node)
    }

    fn state(&mut self) -> Result<&mut NodeState, StoreError> {
        self.view.state(&self.node)
    }

    fn tickets_to_change(&mut self) -> Result<&mut Vec<Waiter>, StoreError> {
        let stored = match &self.changes.tickets {
            Some(_) => Vec::new(),
            None => self.state()?.tickets.clone(),
        };
        Ok(self.changes.tickets.get_or_insert(stored))
    }

    /// The `af` tool can't read a ledger with a claim on a node that does not exist or is not available.
    fn check_node_exists(&self) -> Result<(), StoreError> {
        let ledger = &self.view.store.ledger;
        let replay = &self.view.replay;
        let (node, root) = (&self.node, ledger.root().display());
        match replay.check_claimable(ledger.dialect(), node) {
            Ok(()) => Ok(()),
            Err(Unclaimable::NotThere) => {
                let what = format!("there is no node {node} in {root}");
                Err(StoreError::new(ErrorKind::NotFound, what).fix(format!(
                    "list the nodes with {}; nothing was changed",
                    crate::command(ledger.root(), "log --type node_created")
                )))
            }
            Err(Unclaimable::State(state)) => {
                let what = format!(
                    "node {node} in {root} can't be claimed: its workflow_state is {state:?}, not \"available\""
                );
                Err(StoreError::new(ErrorKind::Unsupported, what)
                    .fix("make it available with the af tool; nothing was changed"))
            }
        }
    }

    /// Writes what the engine wants to change.
    fn commit(
        &mut self,
        limit: TimeLimit,
        lock: Option<&LedgerLockGuard<'_>>,
    ) -> Result<Committed, StoreError> {
        let changes = std::mem::take(&mut self.changes);
        let claim = self.view.in_ledger(&self.node).cloned();
        let mut events = Vec::new();
        if let Some(how) = &changes.ended {
            let Some(claim) = &claim else {
                return Ok(Committed::Conflict);
            };
            events.push(self.ending(claim, how)?);
        }
        // Not before the end of the claim in the ledger: by the documented rule, the event about a
        // file would end that claim.
        if !changes.ended_files.is_empty() {
            if self.append(&mut events, limit, lock)? == Committed::Conflict {
                return Ok(Committed::Conflict);
            }
            for file in &changes.ended_files {
                if self.reap_file(file, limit, lock)? == Committed::Conflict {
                    return Ok(Committed::Conflict);
                }
            }
        }
        match changes.put {
            None => {
                if self.append(&mut events, limit, lock)? == Committed::Conflict {
                    return Ok(Committed::Conflict);
                }
                if changes.ended.is_some() {
                    self.state()?.end_grant();
                }
                if let Some(tickets) = changes.tickets {
                    self.state()?.set_tickets(tickets);
                }
                self.save()?;
            }
            Some((lease, put)) => {
                let expires = end_of(&lease);
                let event = if let Written::Granted { waited, .. } = put {
                    let dialect = self.view.store.ledger.dialect;
                    let event = self.event(&ClaimEvent::Begin {
                        form: self.view.replay.form(dialect),
                        owner: lease.holder.id.as_str(),
                        expires,
                    })?;
                    let (seq, digest) = (lease.token.0, digest(&event));
                    if waited.is_some() {
                        self.view.store.ledger.note(&EventNote {
                            seq,
                            digest,
                            waited,
                            ..EventNote::default()
                        })?;
                    }
                    // The tickets stay as they are until the event is there.
                    let used = changes.removed_ticket;
                    self.state()?.begin(seq, digest, &lease, None, used);
                    event
                } else {
                    let Some(claim) = &claim else {
                        return Ok(Committed::Conflict);
                    };
                    let event = self.event(&ClaimEvent::Renew { claim, expires })?;
                    let before = u64::try_from(events.len()).unwrap_or(u64::MAX);
                    let seq = self.view.replay.seq.saturating_add(before);
                    let (seq, digest) = (seq.saturating_add(1), digest(&event));
                    self.state()?.begin(seq, digest, &lease, Some(claim), None);
                    if let Some(tickets) = changes.tickets {
                        self.state()?.set_tickets(tickets);
                    }
                    event
                };
                self.save()?;
                events.push(event);
                if self.append(&mut events, limit, lock)? == Committed::Conflict {
                    return Ok(Committed::Conflict);
                }
                self.state()?.advance();
            }
        }
        self.wakes.extend(changes.wakes);
        Ok(Committed::Yes)
    }

    fn event(&self, event: &ClaimEvent<'_>) -> Result<Vec<u8>, StoreError> {
        event.bytes(&self.node, self.view.now.wall)
    }

    /// The event that ends the claim in the ledger. Where it can't carry the evidence, that is noted
    /// beside the ledger first.
    fn ending(&self, claim: &NodeClaim, how: &Ended) -> Result<Vec<u8>, StoreError> {
        let evidence: &Evidence = match how {
            Ended::Released => return self.event(&ClaimEvent::Release(claim)),
            Ended::Proven(evidence) => evidence,
        };
        let event = self.event(&ClaimEvent::Reap(claim, evidence))?;
        let ledger = &self.view.store.ledger;
        if claim.form == ClaimForm::Nodes {
            let seq = self.view.replay.seq.saturating_add(1);
            ledger.note(&EventNote {
                seq,
                digest: digest(&event),
                evidence: Some(evidence.clone()),
                ..EventNote::default()
            })?;
        }
        Ok(event)
    }

    /// Appends these events, if the newest event is the one that was seen.
    fn append(
        &mut self,
        events: &mut Vec<Vec<u8>>,
        limit: TimeLimit,
        lock: Option<&LedgerLockGuard<'_>>,
    ) -> Result<Committed, StoreError> {
        let events = std::mem::take(events);
        if events.is_empty() {
            return Ok(Committed::Yes);
        }
        let expected = self.view.replay.seq;
        match self.writer.append(expected, &events, limit, lock)? {
            Appended::Done { first, .. } => {
                let digests = events.iter().map(|event| digest(event));
                self.appended.extend((first..).zip(digests));
                self.view.store.ledger.catch_up(self.view.replay)?;
                Ok(Committed::Yes)
            }
            Appended::Mismatch { .. } => Ok(Committed::Conflict),
            Appended::Locked(by) => Err(append::blocked(by)),
        }
    }

    /// Removes a claim file and appends the event about it, unless the file changed or another program appended an event.
    fn reap_file(
        &mut self,
        file: &FileClaim,
        limit: TimeLimit,
        lock: Option<&LedgerLockGuard<'_>>,
    ) -> Result<Committed, StoreError> {
        let ledger = &self.view.store.ledger;
        let event = file_reaped(ledger.dialect, &self.node, file.owner(), self.view.now.wall)?;
        let expected = self.view.replay.seq;
        let writer = self.writer;
        let reaped = writer.reap_file(file, expected, event.as_deref(), limit, lock)?;
        if reaped == Committed::Yes {
            let event = event.iter().map(|event| digest(event));
            self.appended
                .extend((expected.saturating_add(1)..).zip(event));
            ledger.catch_up(self.view.replay)?;
        }
        Ok(reaped)
    }

    /// Saves the state of the node, if it changed.
    fn save(&mut self) -> Result<(), StoreError> {
        let (states, node) = (&self.view.store.states, self.node.clone());
        self.state()?.save(states, &node)
    }
}

/// When the claim of a lease expires, by the wall clock.
fn end_of(lease: &Lease) -> jiff::Timestamp {
    let end = lease.expires.as_ref();
    end.map_or(jiff::Timestamp::MAX, |end| end.wall)
}
