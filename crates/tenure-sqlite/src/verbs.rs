//! The verbs of the store, each one transaction: read, decide, write. Hops three and five of an
//! acquisition.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tenure_core::decide::{self, ClaimTicket, Decision, View};
use tenure_core::{
    Acquired, Binding, Capabilities, Claim, ClockOwner, ErrorKind, Event, Evidence, Fenced, Forced,
    Grant, HistoryQuery, HolderId, Key, KeyKind, Presence, Reap, Reaped, Released, Renewed,
    Revision, Snapshot, Store, StoreError, Ticket, Token, Waited, Wakeup, Watched,
};
use tenure_host::{LivenessLock, bell, identity};

use crate::claims::Room;
use crate::history;
use crate::store::SqliteStore;
use crate::tasks;

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            any_key: self.foreign.is_none(),
            leases: true,
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
        self.admit(&claim.key)?;
        self.with_room(|room| self.try_acquire(claim, room))
    }

    fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Renewed, StoreError> {
        self.admit(&grant.key)?;
        let (answer, _) = self.write(|write| {
            let view = write.read(&grant.key, None)?;
            let may = decide::renew(&view, grant);
            match view.lease {
                Some((lease, _)) if may => {
                    let lease = write.extend(&lease, &lease.holder, ttl)?;
                    write.renew_section(&lease)?;
                    Ok(Renewed::Extended(lease))
                }
                other => Ok(Renewed::Lost(other.map(|(lease, _)| lease))),
            }
        })?;
        Ok(answer)
    }

    fn release(&self, grant: &Grant) -> Result<Released, StoreError> {
        self.admit(&grant.key)?;
        let (answer, _) = self.write(|write| {
            let view = write.read(&grant.key, None)?;
            let may = decide::release(&view, grant);
            match view.lease {
                Some((lease, _)) if may => {
                    write.remove(&lease.key)?;
                    history::released(write.reader.db, write.now().wall, &lease, write.keep)?;
                    write.ring_next(&view.queue);
                    Ok(Released::Freed(lease))
                }
                other => Ok(Released::AlreadyGone(other.map(|(lease, _)| lease))),
            }
        })?;
        Ok(answer)
    }

    fn leave(&self, key: &Key, ticket: Ticket) -> Result<(), StoreError> {
        self.write(|write| {
            write.withdraw(key, ticket, |write| {
                write.drop_ticket(ClaimTicket::Own(ticket))
            })
        })?;
        Ok(())
    }

    fn park(&self, key: &Key, ticket: Ticket) -> Result<(), StoreError> {
        self.write(|write| write.withdraw(key, ticket, |write| write.park_ticket(ticket)))?;
        Ok(())
    }

    fn force(&self, key: &Key, by: &HolderId, reason: Option<&str>) -> Result<Forced, StoreError> {
        self.admit(key)?;
        let (answer, _) = self.write(|write| {
            let view = write.read(key, None)?;
            let Some((lease, _)) = view.lease else {
                return Ok(Forced::NotHeld);
            };
            if let KeyKind::Task(id) = key.kind() {
                tasks::superseded(write.reader.db, id, &lease.holder.id)?;
            }
            write.end(
                &lease,
                &Evidence::Forced {
                    by: by.clone(),
                    reason: reason.map(str::to_owned),
                },
            )?;
            write.ring_next(&view.queue);
            Ok(Forced::Freed(lease))
        })?;
        Ok(answer)
    }

    fn fence(&self, key: &Key, token: Token) -> Result<Fenced, StoreError> {
        self.admit(key)?;
        let (answer, _) = self.read(|reader| {
            let (lease, _) = reader.lease(key)?;
            let view = View {
                lease,
                queue: Vec::new(),
                newest: token,
            };
            let current = decide::fence(reader.now, &view, token);
            Ok(match view.lease {
                Some((lease, _)) if current => Fenced::Current(lease),
                other => Fenced::Stale(other.map(|lease| reader.verdict(lease))),
            })
        })?;
        Ok(answer)
    }

    fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        self.admit(key)?;
        let (mut snapshot, revision) = self.read(|reader| {
            let (lease, _) = reader.lease(key)?;
            let lease = lease.map(|lease| reader.verdict(lease));
            Ok(Snapshot {
                key: key.clone(),
                lease,
                queue: reader.queue(key, None)?,
                revision: Revision(0),
            })
        })?;
        snapshot.revision = revision;
        Ok(snapshot)
    }

    fn list(&self) -> Result<Vec<Snapshot>, StoreError> {
        let (mut snapshots, revision) = self.read(|reader| reader.all())?;
        for snapshot in &mut snapshots {
            snapshot.revision = revision;
        }
        Ok(snapshots)
    }

    fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
        if reap == Reap::DryRun {
            let (snapshots, _) = self.read(|reader| reader.all())?;
            let over = |snapshot: Snapshot| {
                let (lease, verdict) = snapshot.lease?;
                let evidence = verdict.over()?.clone();
                Some(Reaped { lease, evidence })
            };
            return Ok(snapshots.into_iter().filter_map(over).collect());
        }
        let (reaped, _) = self.write(|write| write.reap())?;
        self.tidy()?;
        Ok(reaped)
    }

    fn history(&self, query: &HistoryQuery) -> Result<Vec<Event>, StoreError> {
        let (events, _) = self.read(|reader| history::tell(reader.db, query))?;
        Ok(events)
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        let life = self.liveness_lock()?;
        // In this order: whatever happens after `seen` either changes the revision or rings.
        let generation = self.bell.generation();
        let lookout = self.lookout(watched.key)?;
        if self.revision_now()? != watched.seen {
            return Ok(Waited::Changed);
        }
        for ahead in &watched.ahead {
            let (folder, lock) = (self.folder.clone(), life.id().clone());
            self.watches.add(&self.folder, &ahead.binding, move || {
                bell::ring(&folder, &lock);
            });
        }
        Ok(if self.listen(life, generation, lookout, timeout)? {
            Waited::Changed
        } else {
            Waited::TimedOut
        })
    }

    fn wake(&self) {
        self.bell.stir();
        if let Some(life) = self.lock_cell.get() {
            life.ring();
        }
    }
}

impl SqliteStore {
    /// Does something that may grant a key, and first makes room for the tokens of this boot if
    /// `attempt` says so by answering nothing.
    pub(crate) fn with_room<T, E: From<StoreError>>(
        &self,
        attempt: impl Fn(Room) -> Result<Option<T>, E>,
    ) -> Result<T, E> {
        if let Some(answer) = attempt(Room::AsItIs)? {
            return Ok(answer);
        }
        self.begin_boot()?;
        attempt(Room::Made)?.ok_or_else(|| {
            StoreError::new(ErrorKind::Damaged, "there is no room for new tokens").into()
        })
    }

    /// One attempt; `None` if room for the tokens of this boot has to be made first.
    fn try_acquire(&self, claim: &Claim, room: Room) -> Result<Option<Acquired>, StoreError> {
        let grace = self.options.queue_grace;
        let (mut answer, revision) = self.write(|write| {
            let view = write.read(&claim.key, Some(&claim.holder.id))?;
            let decision = decide::acquire(write.now(), &view, claim);
            if matches!(decision, Decision::Grant { .. }) && write.lacks_room(room)? {
                return Ok(None);
            }
            match write.give(claim, &view, &decision)? {
                Some((lease, reason)) => Ok(Some(Acquired::Granted { lease, reason })),
                None => write.refuse(claim, &view, &decision, grace).map(Some),
            }
        })?;
        if let Some(Acquired::Busy(busy)) = &mut answer {
            busy.revision = revision;
        }
        Ok(answer)
    }

    /// Removes places that were kept long enough and lives that nobody lives.
    fn tidy(&self) -> Result<(), StoreError> {
        let grace = self.options.queue_grace;
        let (needed, _) = self.write(|write| {
            let mut needed = std::collections::HashSet::new();
            for Snapshot { lease, queue, .. } in write.reader.all()? {
                needed.extend(lease.and_then(|(lease, _)| lease.holder.liveness_lock().cloned()));
                for waiter in queue {
                    if waiter.presence == Presence::Away && waiter.forgotten(write.now(), grace) {
                        write.drop_ticket(ClaimTicket::Own(waiter.ticket))?;
                    } else {
                        needed.extend(waiter.holder.liveness_lock().cloned());
                    }
                }
            }
            Ok(needed)
        })?;
        // Nobody can come to need a life that is over: it is only told of while it beats.
        let _ = self.folder.sweep(|life| needed.contains(life));
        Ok(())
    }
}
