//! A step under way, under the guard: load, finish what was cut off, look, act, save.
//!
//! ```text
//!   begin     load the state; a step that was cut off: did it happen?  finish it, or drop it
//!   look      the place and the state together; what somebody ended without asking is recorded
//!   act       prepare `next`; write down what is about to happen (`pending`); touch the place
//!   complete  the events; the state without `pending`
//! ```

use std::path::Path;
use std::time::Duration;

use tenure_core::decide::{ClaimTicket, View};
use tenure_core::{
    Claim, EventKind, Evidence, Holder, Lease, LivenessId, Moment, Reason, StoreError, Token,
};
use tenure_host::LivenessLock;

use crate::history::{self, Attempt, EventRecord, Retention};
use crate::state::{Ending, LeaseRecord, Loaded, Pending, State, TicketRecord, never};
use crate::store::FileStore;
use crate::view::{See as _, Seen, Standing};
use tenure_host::files::atomic::Put;
use tenure_host::files::fault::{explain, unsettled};
use tenure_host::files::places::{Desk, Places};
use tenure_host::files::protocol::LockProtocol;
use tenure_host::files::reader::Reader;
use tenure_host::files::takeover::{self, Taken};

/// More than can be lost with the state when the ceiling is not known.
const JUMP: u64 = 1 << 20;

/// A step under way.
pub(crate) struct Step<'a, S> {
    pub(crate) store: &'a FileStore<S>,
    pub(crate) now: Moment,
    pub(crate) state: State,
    /// Whether the state has to be saved yet.
    pub(crate) dirty: bool,
    pub(crate) seen: Seen,
    /// Whom to wake once it is over.
    pub(crate) rings: Vec<LivenessId>,
}

impl<S: LockProtocol> Places for Step<'_, S> {
    fn now(&self) -> &Moment {
        &self.now
    }

    fn reader(&self) -> Reader<'_> {
        Reader {
            folder: &self.store.folder,
            now: &self.now,
            us: self.store.lock_cell.get().map(LivenessLock::id),
            removal: self.store.protocol.removal(),
        }
    }

    fn tickets(&self) -> &[TicketRecord] {
        &self.state.tickets
    }

    fn desk(&mut self) -> Desk<'_> {
        self.dirty = true;
        Desk {
            tickets: &mut self.state.tickets,
            last_ticket: &mut self.state.last_ticket,
        }
    }

    fn grace(&self) -> Duration {
        self.store.options.queue_grace
    }

    fn ring(&mut self, holder: &Holder) {
        if let Some(life) = holder.liveness_lock() {
            self.rings.push(life.clone());
        }
    }
}

impl<'a, S: LockProtocol> Step<'a, S> {
    pub(crate) fn new(store: &'a FileStore<S>, now: Moment) -> Self {
        Self {
            store,
            now,
            state: State::default(),
            dirty: false,
            seen: Seen::default(),
            rings: Vec::new(),
        }
    }

    /// Where the lock is.
    pub(crate) fn path(&self) -> &Path {
        self.store.protocol.path()
    }

    fn keep(&self) -> Retention {
        Retention {
            age: self.store.options.history_age,
            events: self.store.options.history_events,
        }
    }

    /// Loads the state, finishes what was cut off, and looks.
    pub(crate) fn begin(&mut self) -> Result<(), StoreError> {
        let state_file = &self.store.state_file;
        match state_file.load()? {
            Loaded::Known(state) => self.state = state,
            Loaded::Lost(state, why) => {
                self.state = state;
                self.go_on_without_state(&why)?;
            }
        }
        if let Some(boot) = &self.state.boot
            && boot.differs(&self.now.epoch)
        {
            // A power cut may have brought back an older state.
            let newest = Token(self.state.newest);
            let ceiling = state_file.ceiling();
            let jump = || Token(newest.0.saturating_add(JUMP));
            self.state.newest = ceiling.unwrap_or_else(jump).max(newest).0;
            self.state.boot = Some(self.now.epoch.clone());
            self.dirty = true;
        }
        if let Some(pending) = self.state.pending.clone() {
            self.finish(pending)?;
        }
        self.look()
    }

    /// The state is lost: tokens go on above the ceiling, the queue begins anew, and whoever stands
    /// at the place is judged by what is written there.
    fn go_on_without_state(&mut self, why: &str) -> Result<(), StoreError> {
        let state_file = &self.store.state_file;
        let (token, event) = history::newest(state_file.sidecar());
        let there = self.store.found().map(|found| found.lease.token);
        let known = token.max(there.unwrap_or(Token::NONE));
        let beyond = || Token(known.0.saturating_add(JUMP));
        self.state.newest = state_file.ceiling().unwrap_or_else(beyond).max(known).0;
        self.state.last_event = event;
        let words = format!("the state could not be read ({why}): the queue begins anew");
        state_file.sidecar().note(self.now.wall, &words)?;
        self.state.boot = Some(self.now.epoch.clone());
        self.dirty = true;
        // A lock that was on its way out may be a live one.
        let aside = state_file.sidecar().aside();
        if self.store.protocol.read(&aside).is_some() {
            let (Put::Done | Put::Occupied) = self.act(&aside, |protocol| protocol.put(&aside))?;
            self.act(&aside, |protocol| protocol.discard(&aside))?;
        }
        self.flush()
    }

    fn act<T>(
        &self,
        path: &Path,
        act: impl FnOnce(&S) -> std::io::Result<T>,
    ) -> Result<T, StoreError> {
        act(&self.store.protocol).map_err(|error| explain("changed", path, error))
    }

    /// Brings to an end what somebody else began.
    fn finish(&mut self, pending: Pending) -> Result<(), StoreError> {
        let (next, aside) = (self.store.sidecar().next(), self.store.sidecar().aside());
        let judged = pending.replaced.as_ref();
        let happened = match (&pending.granted, judged) {
            (None, None) => true,
            (None, Some(judged)) => self.act(&aside, |protocol| {
                takeover::removal_happened(protocol, &aside, judged)
            })?,
            (Some((kept, _)), judged) => {
                let lease = kept.lease(self.store.key());
                self.act(&next, |protocol| {
                    takeover::grant_happened(protocol, &next, &lease, judged)
                })?
            }
        };
        if happened {
            self.complete(pending, Attempt::Repeated)
        } else {
            self.state.pending = None;
            self.save()
        }
    }

    /// Looks at the place, and records what somebody ended without asking. A lock of our own that
    /// somebody removed is put back.
    pub(crate) fn look(&mut self) -> Result<(), StoreError> {
        self.seen = self
            .reader()
            .see(self.store.key(), &self.state, self.store.found());
        if let Some((kept, ending)) = self.seen.over.take() {
            self.ring(&kept.holder);
            let pending = Pending {
                ended: Some((kept, ending)),
                ..Pending::default()
            };
            self.announce(&pending)?;
            self.complete(pending, Attempt::First)?;
            let queue = self.reader().queue(&self.state.tickets, None);
            self.ring_next(&queue);
        }
        if self.seen.needs_mending(&self.reader()) && !self.put_back()? {
            return self.look();
        }
        Ok(())
    }

    fn save(&mut self) -> Result<(), StoreError> {
        self.store.state_file.save(&mut self.state)?;
        self.dirty = false;
        Ok(())
    }

    /// Saves the state if there is something to save.
    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        if self.dirty { self.save() } else { Ok(()) }
    }

    /// Writes down what is about to happen.
    fn announce(&mut self, pending: &Pending) -> Result<(), StoreError> {
        self.state.pending = Some(pending.clone());
        self.save()
    }

    /// It did not happen.
    fn call_off(&mut self) -> Result<(), StoreError> {
        self.state.pending = None;
        self.save()
    }

    /// It happened: the events, and the state as it is now.
    fn complete(&mut self, pending: Pending, attempt: Attempt) -> Result<(), StoreError> {
        let key = self.store.key();
        let line = |kept: &LeaseRecord, kind| {
            EventRecord::new(self.now.wall, key, kind, kept.token, &kept.holder.id)
        };
        let ended = pending.ended.as_ref().map(|(kept, ending)| match ending {
            Ending::Released => line(kept, EventKind::Released),
            Ending::Proven(evidence) => EventRecord {
                evidence: Some(evidence.clone()),
                ..line(kept, EventKind::of(evidence))
            },
        });
        let granted = pending.granted.as_ref().map(|(kept, reason)| EventRecord {
            reason: Some(reason.word().into()),
            ..line(kept, EventKind::Granted)
        });
        let renewed = pending.renewed.as_ref();
        let renewed = renewed.map(|kept| line(kept, EventKind::Renewed));
        let lines = ended.into_iter().chain(granted).chain(renewed).collect();
        let keep = self.keep();
        history::append(self.store.sidecar(), &mut self.state, lines, attempt, keep)?;
        self.state.grant = pending.granted.map(|(kept, _)| kept).or(pending.renewed);
        self.drop_ticket(pending.ticket);
        self.state.pending = None;
        self.save()
    }

    /// All that a claim is decided on.
    pub(crate) fn view(&self, claim: Option<&Claim>) -> View {
        let asker = claim.map(|claim| &claim.holder.id);
        let queue = self.reader().queue(&self.state.tickets, asker);
        self.seen.view(&self.state, queue)
    }

    /// Grants the key; `None` if something else stands there by now.
    pub(crate) fn grant(
        &mut self,
        claim: &Claim,
        token: Token,
        reason: Reason,
        ended: Option<(Lease, Evidence)>,
        claim_ticket: ClaimTicket,
    ) -> Result<Option<Lease>, StoreError> {
        let lease = Lease {
            key: claim.key.clone(),
            holder: claim.holder.clone(),
            token,
            acquired_at: self.now.wall,
            expires: never(),
            heartbeat_at: self.now.wall,
            ttl: claim.ttl,
        };
        self.store.state_file.raise_ceiling(token)?;
        let next = self.store.sidecar().next();
        self.act(&next, |protocol| protocol.prepare(&lease, &next))?;
        let standing = self.seen.current.as_ref().map(|current| &current.standing);
        let judged = match standing {
            Some(Standing::Lock(fingerprint)) => Some(fingerprint.clone()),
            None | Some(Standing::Missing | Standing::Hidden(_)) => None,
        };
        let over = ended.as_ref().map(|(lease, _)| lease.holder.clone());
        let pending = Pending {
            ended: ended.map(|(lease, proof)| (LeaseRecord::from(&lease), Ending::Proven(proof))),
            granted: Some((LeaseRecord::from(&lease), reason)),
            replaced: judged,
            ticket: claim_ticket.ticket(),
            ..Pending::default()
        };
        self.state.newest = token.0;
        self.state.boot = Some(self.now.epoch.clone());
        self.announce(&pending)?;
        let taken = self
            .act(self.store.protocol.path(), |protocol| {
                match &pending.replaced {
                    Some(judged) => takeover::swap(protocol, &next, judged),
                    None => protocol.put(&next).map(|put| match put {
                        Put::Done => Taken::Done,
                        Put::Occupied => Taken::Different,
                    }),
                }
            })
            .map_err(unsettled)?;
        if taken != Taken::Done {
            self.act(&next, |protocol| protocol.discard(&next))?;
            self.call_off()?;
            return Ok(None);
        }
        self.complete(pending, Attempt::First).map_err(unsettled)?;
        // What is left of it is cleared by the next one to come.
        let _ = self.store.protocol.discard(&next);
        if let Some(over) = over {
            self.ring(&over);
        }
        Ok(Some(lease))
    }

    /// Puts the lock of the grant on record back in its place; `false` if that is taken.
    pub(crate) fn put_back(&mut self) -> Result<bool, StoreError> {
        let Some(kept) = self.state.grant.clone() else {
            return Ok(false);
        };
        let next = self.store.sidecar().next();
        let lease = kept.lease(self.store.key());
        self.act(&next, |protocol| protocol.prepare(&lease, &next))?;
        let put = self.act(&next, |protocol| protocol.put(&next))?;
        let _ = self.store.protocol.discard(&next);
        if put == Put::Occupied {
            return Ok(false);
        }
        self.renew(LeaseRecord {
            heartbeat_at: self.now.wall,
            ..kept
        })?;
        self.look()?;
        Ok(true)
    }

    /// Records that a lease goes on.
    pub(crate) fn renew(&mut self, renewed: LeaseRecord) -> Result<(), StoreError> {
        let pending = Pending {
            renewed: Some(renewed),
            ..Pending::default()
        };
        self.announce(&pending)?;
        self.complete(pending, Attempt::First)
    }

    /// Ends the lease that counts; `false` if something else stands there by now.
    pub(crate) fn end(&mut self, ending: Ending) -> Result<bool, StoreError> {
        let Some(current) = self.seen.current.clone() else {
            return Ok(false);
        };
        let forced = matches!(ending, Ending::Proven(Evidence::Forced { .. }));
        let judged = match current.standing {
            Standing::Lock(fingerprint) => Some(fingerprint),
            // Whoever uses force means whatever is there.
            Standing::Hidden(fingerprint) if forced => Some(fingerprint),
            Standing::Missing | Standing::Hidden(_) => None,
        };
        let released = ending == Ending::Released;
        let pending = Pending {
            ended: Some((LeaseRecord::from(&current.lease), ending)),
            replaced: judged,
            ..Pending::default()
        };
        self.announce(&pending)?;
        if let Some(judged) = &pending.replaced {
            let aside = self.store.sidecar().aside();
            let taken = self
                .act(self.store.protocol.path(), |protocol| {
                    takeover::remove(protocol, &aside, judged)
                })
                .map_err(unsettled)?;
            if taken == Taken::Different {
                self.call_off()?;
                return Ok(false);
            }
        }
        self.complete(pending, Attempt::First).map_err(unsettled)?;
        self.seen.current = None;
        if !released {
            self.ring(&current.lease.holder);
        }
        Ok(true)
    }
}
