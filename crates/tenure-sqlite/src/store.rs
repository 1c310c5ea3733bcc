//! The verbs of [`SqliteStore`], each one transaction: read, decide, write.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};
use tenure_core::cycle::Step;
use tenure_core::decide::{self, Decision, Seat, View};
use tenure_core::{
    Acquired, Binding, Capabilities, Claim, Clock, ClockOwner, Cycle, ErrorKind, Event, Evidence,
    Fenced, Forced, Grant, HistoryQuery, HolderId, Key, Patience, Place, Presence, Reap, Reaped,
    Reason, Released, Renewed, Revision, Snapshot, Store, StoreError, Ticket, Token, Waited,
    Wakeup, Watched,
};
use tenure_host::watch::Watches;
use tenure_host::{Bell, HostClock, Life, LifeFolder, bell, identity};

use crate::connection;
use crate::fault::{explain, explain_commit};
use crate::history::{self, Keep};
use crate::schema;
use crate::write::{Failure, Write};

use crate::view::Reader;

/// How a store is set up.
#[derive(Clone)]
pub struct Options {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// How long events are kept.
    pub history_age: Duration,
    /// How many events are kept.
    pub history_events: u64,
    /// How long the place of a waiter that was cut off is kept.
    pub queue_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(HostClock::new()),
            history_age: Duration::from_secs(90 * 24 * 3600),
            history_events: 200_000,
            queue_grace: Duration::from_secs(600),
        }
    }
}

/// Leases, queue, tokens and history in one SQLite database.
///
/// ```
/// use tenure_core::{Key, Store};
/// use tenure_sqlite::{Options, SqliteStore};
///
/// let dir = tempfile::tempdir().unwrap();
/// let store = SqliteStore::open(&dir.path().join("tenure.db"), Options::default()).unwrap();
/// let nothing = store.inspect(&Key::parse("build").unwrap()).unwrap();
/// assert!(nothing.lease.is_none());
/// ```
pub struct SqliteStore {
    db: Mutex<Database>,
    path: PathBuf,
    /// Which file it is: device and inode.
    file: (u64, u64),
    lives: LifeFolder,
    /// Ours. Begun when a lease or a ticket first needs it.
    life: OnceLock<Life>,
    beginning: Mutex<()>,
    watches: Watches,
    bell: Bell,
    options: Options,
}

struct Database {
    connection: Connection,
    /// Commits of this object that changed something: SQLite tells us only of those of others.
    commits: u32,
}

impl SqliteStore {
    /// Opens the database at this path, making it if it is not there. Lives are kept beside it.
    pub fn open(path: &Path, options: Options) -> Result<Self, StoreError> {
        let connection = connection::open(path)?;
        // Whoever comes by a link must meet the others at the same place.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Ok(Self {
            db: Mutex::new(Database {
                connection,
                commits: 0,
            }),
            file: connection::which_file(path)?,
            path: path.to_owned(),
            lives: LifeFolder::new(schema::lives_of(&real)),
            life: OnceLock::new(),
            beginning: Mutex::new(()),
            watches: Watches::default(),
            bell: Bell::default(),
            options,
        })
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn life(&self) -> Result<&Life, StoreError> {
        if let Some(life) = self.life.get() {
            return Ok(life);
        }
        let _one_at_a_time = self
            .beginning
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(life) = self.life.get() {
            return Ok(life);
        }
        let life = Life::begin(&self.lives).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::StorageFull => ErrorKind::Full,
                std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
                    ErrorKind::ReadOnly
                }
                _ => ErrorKind::Io,
            };
            StoreError::new(
                kind,
                format!(
                    "the life lock of this process can't be made in {}",
                    self.lives.path().display()
                ),
            )
            .because(error)
            .fix("check that the folder may be written and has space")
        })?;
        Ok(self.life.get_or_init(|| life))
    }

    /// Changes whenever anybody has changed anything, or the bell was rung.
    fn revision(&self, others: u32, ours: u32) -> Revision {
        let here = ours.wrapping_add(self.bell.generation());
        Revision(u64::from(others) << 32 | u64::from(here))
    }

    fn lock(&self) -> MutexGuard<'_, Database> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn explain(&self, failure: Failure) -> StoreError {
        match failure {
            Failure::Sql(error) => explain(&self.path, error),
            Failure::Store(error) => error,
        }
    }

    /// One write transaction. All or nothing; bells are rung after the commit.
    fn write<T>(
        &self,
        verb: impl FnOnce(&mut Write<'_>) -> Result<T, Failure>,
    ) -> Result<(T, Revision), StoreError> {
        // Whoever comes now would lock in another file, beside us.
        if connection::which_file(&self.path)? != self.file {
            return Err(connection::replaced(&self.path));
        }
        let mut db = self.lock();
        let db = &mut *db;
        let before = db.connection.total_changes();
        let tx = db
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| explain(&self.path, error))?;
        // After the transaction has begun: time spent waiting for it must not count against anyone.
        let now = self.options.clock.now();
        let reader = Reader {
            db: &tx,
            lives: &self.lives,
            now: &now,
            us: self.life.get().map(Life::id),
        };
        let keep = Keep {
            age: self.options.history_age,
            events: self.options.history_events,
        };
        let mut write = Write {
            reader,
            keep,
            rings: Vec::new(),
            durable: false,
        };
        let answer = verb(&mut write).map_err(|failure| self.explain(failure))?;
        let rings = std::mem::take(&mut write.rings);
        let durable = write.durable;
        let seen = data_version(&tx).map_err(|error| explain(&self.path, error))?;
        tx.commit()
            .map_err(|error| explain_commit(&self.path, error))?;
        if durable {
            schema::sync(&db.connection).map_err(|error| explain_commit(&self.path, error))?;
        }
        if db.connection.total_changes() != before {
            db.commits = db.commits.wrapping_add(1);
        }
        for life in rings {
            bell::ring(&self.lives, &life);
        }
        Ok((answer, self.revision(seen, db.commits)))
    }

    /// One read transaction: a consistent picture, without holding anybody up.
    fn read<T>(
        &self,
        verb: impl FnOnce(&Reader<'_>) -> rusqlite::Result<T>,
    ) -> Result<(T, Revision), StoreError> {
        let mut db = self.lock();
        let commits = db.commits;
        let look = || {
            let tx = db.connection.transaction()?;
            let now = self.options.clock.now();
            let reader = Reader {
                db: &tx,
                lives: &self.lives,
                now: &now,
                us: self.life.get().map(Life::id),
            };
            let answer = verb(&reader)?;
            Ok((answer, self.revision(data_version(&tx)?, commits)))
        };
        look().map_err(|error| explain(&self.path, error))
    }
}

/// Changes whenever another connection has committed something.
fn data_version(db: &Connection) -> rusqlite::Result<u32> {
    db.prepare_cached("PRAGMA data_version")?
        .query_row([], |row| row.get(0))
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            any_key: true,
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
        Ok(Binding::Life {
            life: self.life()?.id().clone(),
            process: identity::this_process(),
        })
    }

    fn heirloom(&self) -> Option<BorrowedFd<'_>> {
        self.life.get().map(Life::as_fd)
    }

    fn acquire(&self, claim: &Claim) -> Result<Acquired, StoreError> {
        let grace = self.options.queue_grace;
        let (mut answer, revision) = self.write(|write| {
            let view = write.read(&claim.key, Some(&claim.holder.id))?;
            match decide::acquire(write.now(), &view, claim) {
                Decision::Grant {
                    token,
                    reason,
                    ended,
                    seat,
                } => {
                    if let Some((lease, proof)) = &ended {
                        write.record_end(lease, proof)?;
                    }
                    write.drop_ticket(seat)?;
                    Ok(Acquired::Granted {
                        lease: write.grant(claim, token, reason)?,
                        reason,
                    })
                }
                Decision::Extend { seat, .. } => {
                    write.drop_ticket(seat)?;
                    let Some((lease, _)) = &view.lease else {
                        return Err(StoreError::new(
                            ErrorKind::Damaged,
                            "a lease to extend is not there",
                        )
                        .into());
                    };
                    let lease = write.extend(lease, &claim.holder, claim.ttl)?;
                    Ok(Acquired::Granted {
                        lease,
                        reason: Reason::AlreadyOwned,
                    })
                }
                Decision::WaitForSelf if claim.patience == Patience::Queue => {
                    let step = Step {
                        waiter: claim.holder.id.clone(),
                        key: claim.key.clone(),
                        holder: claim.holder.id.clone(),
                    };
                    Ok(Acquired::Deadlock(Cycle(vec![step])))
                }
                Decision::WaitForSelf => {
                    Ok(Acquired::Busy(Box::new(write.busy(&view, None, None))))
                }
                Decision::Wait { seat, ahead } => {
                    if decide::reap(write.now(), &view).is_some() || view.lease.is_none() {
                        // Somebody else is first, and may have missed its call.
                        write.ring_next(&view.queue);
                    }
                    if claim.patience == Patience::Try {
                        return Ok(Acquired::Busy(Box::new(write.busy(&view, None, None))));
                    }
                    if !matches!(seat, Seat::Own(_))
                        && let Some(cycle) = write.cycle(claim, &view)?
                    {
                        return Ok(Acquired::Deadlock(cycle));
                    }
                    let (ticket, rank) = write.sit_down(claim, &view, seat, grace)?;
                    let place = Place {
                        ticket,
                        ahead,
                        resumed: matches!(seat, Seat::Resumed(_)),
                    };
                    Ok(Acquired::Busy(Box::new(write.busy(
                        &view,
                        Some(place),
                        Some(rank),
                    ))))
                }
            }
        })?;
        if let Acquired::Busy(busy) = &mut answer {
            busy.revision = revision;
        }
        Ok(answer)
    }

    fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Renewed, StoreError> {
        let (answer, _) = self.write(|write| {
            let view = write.read(&grant.key, None)?;
            let may = decide::renew(&view, grant);
            match view.lease {
                Some((lease, _)) if may => Ok(Renewed::Extended(write.extend(
                    &lease,
                    &lease.holder,
                    ttl,
                )?)),
                other => Ok(Renewed::Lost(other.map(|(lease, _)| lease))),
            }
        })?;
        Ok(answer)
    }

    fn release(&self, grant: &Grant) -> Result<Released, StoreError> {
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
            write.step_aside(key, ticket, |write| write.drop_ticket(Seat::Own(ticket)))
        })?;
        Ok(())
    }

    fn park(&self, key: &Key, ticket: Ticket) -> Result<(), StoreError> {
        self.write(|write| write.step_aside(key, ticket, |write| write.park_ticket(ticket)))?;
        Ok(())
    }

    fn force(&self, key: &Key, by: &HolderId, reason: Option<&str>) -> Result<Forced, StoreError> {
        let (answer, _) = self.write(|write| {
            let view = write.read(key, None)?;
            let Some((lease, _)) = view.lease else {
                return Ok(Forced::NotHeld);
            };
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
        let life = self.life()?;
        // In this order: whatever happens after `seen` either changes the revision or rings.
        let generation = self.bell.generation();
        let ((), revision) = self.read(|_| Ok(()))?;
        if revision != watched.seen {
            return Ok(Waited::Changed);
        }
        if let Some(ahead) = watched.ahead {
            let (lives, life) = (self.lives.clone(), life.id().clone());
            self.watches.add(&self.lives, &ahead.binding, move || {
                bell::ring(&lives, &life);
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
        if let Some(life) = self.life.get() {
            bell::ring(&self.lives, life.id());
        }
    }
}

impl SqliteStore {
    /// Removes places that were kept long enough and lives that nobody lives.
    fn tidy(&self) -> Result<(), StoreError> {
        let grace = self.options.queue_grace;
        let (needed, _) = self.write(|write| {
            let mut needed = std::collections::HashSet::new();
            for Snapshot { lease, queue, .. } in write.reader.all()? {
                needed.extend(lease.and_then(|(lease, _)| lease.holder.life().cloned()));
                for waiter in queue {
                    if waiter.presence == Presence::Away && waiter.forgotten(write.now(), grace) {
                        write.drop_ticket(Seat::Own(waiter.ticket))?;
                    } else {
                        needed.extend(waiter.holder.life().cloned());
                    }
                }
            }
            Ok(needed)
        })?;
        // Nobody can come to need a life that is over: it is only told of while it beats.
        let _ = self.lives.sweep(|life| needed.contains(life));
        Ok(())
    }
}
