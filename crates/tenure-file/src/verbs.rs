//! The verbs of the store, each one step under the guard: read, decide, write. Hops three and five
//! of an acquisition.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tenure_core::cycle::Step as CycleStep;
use tenure_core::decide::{self, ClaimTicket, Decision, View};
use tenure_core::{
    Acquired, Binding, Capabilities, Claim, ClockOwner, Cycle, ErrorKind, Event, Evidence, Fenced,
    Forced, Grant, HistoryQuery, HolderId, Key, LivenessId, Patience, Place, Reap, Reaped, Reason,
    Released, Renewed, Revision, Snapshot, Store, StoreError, Ticket, Token, Waited, Wakeup,
    Watched,
};
use tenure_host::{LivenessLock, bell, identity};

use crate::history;
use crate::state::{Ending, LeaseRecord, State};
use crate::step::Step;
use crate::store::{FileStore, Listening};
use crate::view::{See as _, Seen, Standing};
use tenure_host::files::places::Places;
use tenure_host::files::protocol::LockProtocol;
use tenure_host::files::reader::Reader;

/// How often to look again when other programs change the lock under our hands.
const TRIES: usize = 64;

impl<S: LockProtocol> Store for FileStore<S> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            any_key: false,
            leases: false,
            fencing: true,
            queue: true,
            history: true,
            shared: false,
            clock: ClockOwner::Host,
            wakeup: Wakeup::Push,
        }
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        Ok(Binding::LivenessLock {
            lock: self.liveness_lock()?.id().clone(),
            process: identity::this_process(),
        })
    }

    fn inherited_fd(&self) -> Option<BorrowedFd<'_>> {
        self.lock_cell.get().map(LivenessLock::as_fd)
    }

    fn acquire(&self, claim: &Claim) -> Result<Acquired, StoreError> {
        self.check_key(&claim.key)?;
        if claim.holder.process().is_none() {
            let what = format!(
                "a lease in {} can't be tied to nothing: the lock names a process",
                self.protocol.path().display()
            );
            return Err(StoreError::new(ErrorKind::Unsupported, what)
                .fix("tie it to the process that goes on: acquire --pid PID, or use run"));
        }
        let (mut answer, revision) = self.write(|step| {
            step.persevere(|step| {
                let view = step.view(Some(claim));
                let decision = adopt(&view, decide::acquire(&step.now, &view, claim));
                step.carry_out(claim, &view, decision)
            })
        })?;
        if let Acquired::Busy(busy) = &mut answer {
            busy.revision = revision;
        }
        Ok(answer)
    }

    fn renew(&self, grant: &Grant, _ttl: Duration) -> Result<Renewed, StoreError> {
        self.check_key(&grant.key)?;
        let (answer, _) = self.write(|step| {
            step.persevere(|step| {
                let view = step.view(None);
                let may = decide::renew(&view, grant);
                if may && step.is_missing() && !step.put_back()? {
                    return Ok(None);
                }
                Ok(Some(match view.lease {
                    Some((lease, _)) if may => Renewed::Extended(lease),
                    other => Renewed::Lost(other.map(|(lease, _)| lease)),
                }))
            })
        })?;
        Ok(answer)
    }

    fn release(&self, grant: &Grant) -> Result<Released, StoreError> {
        self.check_key(&grant.key)?;
        let (answer, _) = self.write(|step| {
            step.persevere(|step| {
                let view = step.view(None);
                let may = decide::release(&view, grant);
                match view.lease {
                    Some((lease, _)) if may => {
                        if !step.end(Ending::Released)? {
                            return Ok(None);
                        }
                        step.ring_next(&view.queue);
                        Ok(Some(Released::Freed(lease)))
                    }
                    other => Ok(Some(Released::AlreadyGone(other.map(|(lease, _)| lease)))),
                }
            })
        })?;
        Ok(answer)
    }

    fn leave(&self, key: &Key, ticket: Ticket) -> Result<(), StoreError> {
        self.check_key(key)?;
        self.write(|step| {
            step.withdraw(ticket, |step| step.drop_ticket(Some(ticket)));
            Ok(())
        })?;
        Ok(())
    }

    fn park(&self, key: &Key, ticket: Ticket) -> Result<(), StoreError> {
        self.check_key(key)?;
        self.write(|step| {
            step.withdraw(ticket, |step| step.park_ticket(ticket));
            Ok(())
        })?;
        Ok(())
    }

    fn force(&self, key: &Key, by: &HolderId, reason: Option<&str>) -> Result<Forced, StoreError> {
        self.check_key(key)?;
        let place = self.protocol.path();
        if !self.protocol.may_discard(place) {
            let what = format!(
                "{} is not what a lock is, and may be somebody's work",
                place.display()
            );
            return Err(StoreError::new(ErrorKind::NotAStore, what)
                .fix("look what it is, and move it away by hand"));
        }
        let (answer, _) = self.write(|step| {
            step.persevere(|step| {
                let view = step.view(None);
                let Some((lease, _)) = view.lease else {
                    return Ok(Some(Forced::NotHeld));
                };
                let evidence = Evidence::Forced {
                    by: by.clone(),
                    reason: reason.map(str::to_owned),
                };
                if !step.end(Ending::Proven(evidence))? {
                    return Ok(None);
                }
                step.ring_next(&view.queue);
                Ok(Some(Forced::Freed(lease)))
            })
        })?;
        Ok(answer)
    }

    fn fence(&self, key: &Key, token: Token) -> Result<Fenced, StoreError> {
        self.check_key(key)?;
        let look = |reader: &Reader<'_>, state: &State, seen: &Seen| {
            let view = seen.view(state, Vec::new());
            let current = decide::fence(reader.now, &view, token);
            match view.lease {
                Some((lease, _)) if current => Fenced::Current(lease),
                other => Fenced::Stale(other.map(|lease| reader.verdict(lease))),
            }
        };
        Ok(self.read(look)?.0)
    }

    fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        self.check_key(key)?;
        let (mut snapshot, revision) = self.read(|reader, state, seen| Snapshot {
            key: key.clone(),
            lease: reader.judged(seen),
            queue: reader.queue(&state.tickets, None),
            revision: Revision(0),
        })?;
        snapshot.revision = revision;
        Ok(snapshot)
    }

    fn list(&self) -> Result<Vec<Snapshot>, StoreError> {
        let one = self.inspect(self.key())?;
        let is_of_interest = one.lease.is_some() || !one.queue.is_empty();
        Ok(is_of_interest.then_some(one).into_iter().collect())
    }

    fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
        if reap == Reap::DryRun {
            let over = self.read(|reader, _, seen| {
                let (lease, verdict) = reader.judged(seen)?;
                let evidence = verdict.over()?.clone();
                Some(Reaped { lease, evidence })
            })?;
            return Ok(over.0.into_iter().collect());
        }
        let ((reaped, needed), _) = self.write(|step| {
            let reaped = step.persevere(|step| {
                let view = step.view(None);
                let proof = decide::reap(&step.now, &view);
                let (Some((lease, _)), Some(evidence)) = (view.lease, proof) else {
                    return Ok(Some(None));
                };
                if !step.end(Ending::Proven(evidence.clone()))? {
                    return Ok(None);
                }
                step.ring_next(&view.queue);
                Ok(Some(Some(Reaped { lease, evidence })))
            })?;
            let queue = step.reader().queue(&step.state.tickets, None);
            step.drop_forgotten(&queue);
            Ok((reaped, step.needed_lives()))
        })?;
        // Nobody can come to need a life that is over: it is only told of while it beats.
        let _ = self.folder.sweep(|life| needed.contains(life));
        Ok(reaped.into_iter().collect())
    }

    fn history(&self, query: &HistoryQuery) -> Result<Vec<Event>, StoreError> {
        let (events, _) = self.read(|_, _, _| history::query(self.sidecar(), query))?;
        events
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        let life = self.liveness_lock()?;
        // Only whoever holds the key has nobody ahead.
        self.listen(
            life,
            if watched.ahead.is_empty() {
                Listening::Holder
            } else {
                Listening::Waiter
            },
        );
        // In this order: whatever happens after `seen` either changes the revision or rings.
        let generation = self.bell.generation();
        if self.revision(self.state_file.revision()) != watched.seen {
            return Ok(Waited::Changed);
        }
        for ahead in &watched.ahead {
            let (folder, lock) = (self.folder.clone(), life.id().clone());
            self.watches.add(&self.folder, &ahead.binding, move || {
                bell::ring(&folder, &lock);
            });
        }
        match self.bell.wait(life.as_fd(), generation, timeout) {
            Ok(true) => Ok(Waited::Changed),
            Ok(false) => Ok(Waited::TimedOut),
            Err(error) => {
                Err(StoreError::new(ErrorKind::Io, "waiting to be woken failed").because(error))
            }
        }
    }

    fn wake(&self) {
        self.bell.stir();
        if let Some(life) = self.lock_cell.get() {
            life.ring();
        }
    }
}

/// A lock that the very same holder wrote without tenure is taken over as its own, under a token.
fn adopt(view: &View, decision: Decision) -> Decision {
    match decision {
        Decision::Extend {
            token,
            claim_ticket,
        } if token == Token::NONE => Decision::Grant {
            token: view.newest.next(),
            reason: Reason::AcquiredNew,
            ended: None,
            claim_ticket,
        },
        other => other,
    }
}

impl<S: LockProtocol> Step<'_, S> {
    /// Tries until it is settled: each time that another program changed the lock between the look
    /// and the deed, it looks anew.
    fn persevere<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<Option<T>, StoreError>,
    ) -> Result<T, StoreError> {
        for _ in 0..TRIES {
            if let Some(answer) = attempt(self)? {
                return Ok(answer);
            }
            self.look()?;
        }
        let what = format!(
            "{} is changed by another program all the time",
            self.path().display()
        );
        Err(StoreError::new(ErrorKind::Contended, what)
            .fix("see which one it is, and try again; nothing was changed"))
    }

    /// Whether the lock of the lease that counts is not at its place.
    fn is_missing(&self) -> bool {
        let current = self.seen.current.as_ref();
        current.is_some_and(|current| current.standing == Standing::Missing)
    }

    /// The lives of those who hold and wait.
    fn needed_lives(&self) -> HashSet<LivenessId> {
        let current = self.seen.current.as_ref();
        let holder = current.map(|current| &current.lease.holder);
        let waiting = self.state.tickets.iter().map(|place| &place.holder);
        let all = holder.into_iter().chain(waiting);
        all.filter_map(|holder| holder.liveness_lock().cloned())
            .collect()
    }

    /// Does what a decision says; `None` if something else stands there by now.
    fn carry_out(
        &mut self,
        claim: &Claim,
        view: &View,
        decision: Decision,
    ) -> Result<Option<Acquired>, StoreError> {
        Ok(Some(match decision {
            Decision::Grant {
                token,
                reason,
                ended,
                claim_ticket,
            } => {
                let Some(lease) = self.grant(claim, token, reason, ended, claim_ticket)? else {
                    return Ok(None);
                };
                Acquired::Granted { lease, reason }
            }
            Decision::Extend { claim_ticket, .. } => {
                let Some((lease, _)) = &view.lease else {
                    return Ok(None);
                };
                self.drop_ticket(claim_ticket.ticket());
                let renewed = LeaseRecord {
                    holder: claim.holder.clone(),
                    heartbeat_at: self.now.wall,
                    ttl: claim.ttl,
                    ..LeaseRecord::from(lease)
                };
                let lease = renewed.lease(&claim.key);
                self.renew(renewed)?;
                let reason = Reason::AlreadyOwned;
                Acquired::Granted { lease, reason }
            }
            Decision::Wait {
                claim_ticket,
                ahead,
            } => self.refuse(claim, view, claim_ticket, ahead),
            Decision::WaitForSelf if claim.patience == Patience::Queue => {
                Acquired::Deadlock(Cycle(vec![CycleStep {
                    waiter: claim.holder.id.clone(),
                    key: claim.key.clone(),
                    holder: claim.holder.id.clone(),
                }]))
            }
            Decision::WaitForSelf => Acquired::Busy(Box::new(self.busy(view, None, None))),
        }))
    }

    /// Takes a place, or says who stands in the way. Among waits for one key there is no cycle.
    fn refuse(
        &mut self,
        claim: &Claim,
        view: &View,
        claim_ticket: ClaimTicket,
        ahead: usize,
    ) -> Acquired {
        if decide::reap(&self.now, view).is_some() || view.lease.is_none() {
            // Somebody else is first, and may have missed its call.
            self.ring_next(&view.queue);
        }
        if claim.patience == Patience::Try {
            return Acquired::Busy(Box::new(self.busy(view, None, None)));
        }
        let (ticket, rank) = self.queue_up(claim, view, claim_ticket);
        let place = Place {
            ticket,
            ahead,
            resumed: matches!(claim_ticket, ClaimTicket::Resumed(_)),
        };
        Acquired::Busy(Box::new(self.busy(view, Some(place), Some(rank))))
    }
}
