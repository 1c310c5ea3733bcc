//! [`SqliteStore`]: its parts and its transactions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use tenure_core::{Clock, ErrorKind, Key, Revision, StoreError};
use tenure_host::{HostClock, LivenessFolder, LocalPresence};
use tenure_tasks::TaskError;

use crate::call_deadline::{self, CallDeadline};
use crate::connection::{self, OpenFile};
use crate::fault::{explain, explain_commit};
use crate::lock_tables::{LockTables, OwnTables};
use crate::read_only;
use crate::schema::{self, Purpose};
use crate::view::{Damage, ReadTransaction};
use crate::write::{Needed, TokenReserve, TransactionError, WriteTransaction};

/// How a store is set up.
#[derive(Clone)]
pub struct SqliteOptions {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// How long events are kept.
    pub history_age: Duration,
    /// How many events are kept.
    pub history_events: u64,
    /// How long the ticket of a waiter that was interrupted is kept.
    pub queue_grace: Duration,
    /// What the database is opened for.
    pub purpose: Purpose,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(HostClock::new()),
            history_age: Duration::from_secs(90 * 24 * 3600),
            history_events: 200_000,
            queue_grace: Duration::from_secs(600),
            purpose: Purpose::Tasks,
        }
    }
}

/// Leases, queue, tokens and history in one SQLite database.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// use tenure_core::{Key, Store};
/// use tenure_sqlite::{SqliteOptions, SqliteStore};
///
/// let dir = tempfile::tempdir().unwrap();
/// let store = SqliteStore::open(&dir.path().join("tenure.db"), SqliteOptions::default()).unwrap();
/// let by = Instant::now() + Duration::from_secs(10);
/// let known = store.inspect(&Key::parse("build").unwrap(), by).unwrap();
/// assert!(known.is_idle());
/// ```
pub struct SqliteStore {
    db: Mutex<Database>,
    /// The path as the caller gave it, for messages.
    path: PathBuf,
    /// The real path, with links resolved: the log and the liveness folder are beside it.
    real: PathBuf,
    file: OpenFile,
    pub(crate) tables: Box<dyn LockTables>,
    pub(crate) presence: LocalPresence,
    pub(crate) options: SqliteOptions,
    access: Access,
}

/// What this object may do with the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    ReadWrite,
    ReadOnly,
    /// The same, and every verb checks that the database can be read.
    LookOnly,
}

/// The part of a [`Revision`] that changes with every wake-up of this process, and that with its commits.
const PART: u64 = u16::MAX as u64;

struct Database {
    connection: Connection,
    /// Commits of this object that changed something: SQLite counts only those of other connections.
    commits: u32,
    /// The token counter was raised by this object.
    has_raised_tokens: bool,
}

impl SqliteStore {
    /// Opens the database at this path, making it if it is not there. Liveness locks are kept beside it.
    pub fn open(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let boot = options.clock.now().epoch;
        let (connection, real) =
            connection::open(path, &boot, OpenFlags::empty(), options.purpose)?;
        let file = OpenFile::at(path)?;
        let maybe = options.purpose == Purpose::Locks;
        let tables = Box::new(OwnTables { maybe });
        let access = Access::ReadWrite;
        Ok(Self::assemble(
            connection, path, &real, file, tables, access, options,
        ))
    }

    /// Opens the database at this path to look at it. Verbs that only look answer as those of every
    /// other store object; every other verb fails with [`ErrorKind::ReadOnly`].
    ///
    /// Nothing is created, upgraded, recovered, checkpointed or written: neither the database, nor its
    /// `-wal` and `-shm`, nor the liveness folder. So it works for a user who may only read, also in a
    /// folder that can't be written. SQLite takes shared locks while a verb reads, and needs to write
    /// nothing: if `-wal` and `-shm` are there it maps `-shm` read-only, and if there is no log, a copy
    /// of the file in memory is read.
    ///
    /// Fails with [`ErrorKind::NotFound`] if there is no database, and with [`ErrorKind::ReadOnly`] if
    /// it has an older schema or a log that must be recovered: opening it once for writing does both.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// use tenure_core::{ErrorKind, Records, Store};
    /// use tenure_sqlite::{SqliteOptions, SqliteStore};
    ///
    /// let dir = tempfile::tempdir().unwrap();
    /// let path = dir.path().join("tenure.db");
    /// let missing = SqliteStore::open_read_only(&path, SqliteOptions::default()).err().unwrap();
    /// assert_eq!(missing.kind, ErrorKind::NotFound);
    ///
    /// SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    /// let store = SqliteStore::open_read_only(&path, SqliteOptions::default()).unwrap();
    /// let by = Instant::now() + Duration::from_secs(10);
    /// assert!(store.list(by).unwrap().is_empty());
    /// assert_eq!(store.this_process().unwrap_err().kind, ErrorKind::ReadOnly);
    /// ```
    pub fn open_read_only(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        Self::assemble_read_only(path, &read_only::find(path)?, Access::ReadOnly, options)
    }

    /// The same for a caller that runs one verb: only the verb opens the database, and fails where
    /// [`Self::open_read_only`] would.
    pub fn open_to_look(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let real = read_only::find_file(path)?;
        Self::assemble_read_only(path, &real, Access::LookOnly, options)
    }

    fn assemble_read_only(
        path: &Path,
        real: &Path,
        access: Access,
        options: SqliteOptions,
    ) -> Result<Self, StoreError> {
        connection::refuse_planted(path, real)?;
        // Each verb opens the database anew.
        let unused = Connection::open_in_memory().map_err(|error| explain(path, error))?;
        let file = OpenFile::at(path)?;
        let tables = Box::new(OwnTables { maybe: true });
        Ok(Self::assemble(
            unused, path, real, file, tables, access, options,
        ))
    }

    /// The store of an open database: `named` is the path for messages, `real` the real one.
    pub(crate) fn assemble(
        connection: Connection,
        named: &Path,
        real: &Path,
        file: OpenFile,
        tables: Box<dyn LockTables>,
        access: Access,
        options: SqliteOptions,
    ) -> Self {
        Self {
            db: Mutex::new(Database {
                connection,
                commits: 0,
                has_raised_tokens: false,
            }),
            file,
            path: named.to_owned(),
            tables,
            presence: LocalPresence::new(
                LivenessFolder::new(schema::liveness_folder_of(real)),
                Arc::clone(&options.clock),
            ),
            real: real.to_owned(),
            options,
            access,
        }
    }

    /// The path of the database; the other program's, if it is shared with one.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses to write if this object was opened read-only.
    pub(crate) fn check_access(&self) -> Result<(), StoreError> {
        match self.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly | Access::LookOnly => {
                Err(StoreError::opened_read_only(self.path.display()))
            }
        }
    }

    /// Changes with every commit of any process, and with every wake-up.
    fn revision(&self, others: u32, ours: u32) -> Revision {
        let (ours, woken) = (
            u64::from(ours) & PART,
            u64::from(self.presence.generation()),
        );
        Revision(u64::from(others) << 32 | ours << 16 | woken & PART)
    }

    /// Whether this process was woken after this revision.
    pub(crate) fn was_woken(&self, since: Revision) -> bool {
        since.0 & PART != u64::from(self.presence.generation()) & PART
    }

    /// The revision at this moment.
    pub(crate) fn revision_now(&self) -> Result<Revision, StoreError> {
        let db = self.lock();
        let others = self.others(&db.connection);
        let others = others.map_err(|error| explain(&self.path, error))?;
        Ok(self.revision(others, db.commits))
    }

    /// Changes whenever another connection has committed something.
    fn others(&self, db: &Connection) -> rusqlite::Result<u32> {
        let ours = db
            .prepare_cached("PRAGMA main.data_version")?
            .query_row([], |row| row.get::<_, u32>(0))?;
        Ok(ours.wrapping_add(self.tables.version(db)?))
    }

    /// A read that needs no transaction.
    pub(crate) fn look_once<T>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        look(&self.lock().connection).map_err(|error| explain(&self.path, error))
    }

    /// Whether it is another program's database.
    pub fn is_foreign(&self) -> bool {
        !self.tables.are_own()
    }

    /// What the other program calls a task or a section: its title, or its name. `None` if its database does not tell,
    /// or if this is a database of tenure's own.
    pub fn foreign_name(&self, key: &Key) -> Result<Option<String>, StoreError> {
        self.look_once(|db| self.tables.name_of(db, key))
    }

    /// Fails if the path leads to another file by now: other processes would lock that one.
    pub(crate) fn still_there(&self) -> Result<(), StoreError> {
        self.tables.still_there()?;
        self.file.still_there()
    }

    fn lock(&self) -> MutexGuard<'_, Database> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn explain(&self, failure: TransactionError) -> TaskError {
        match failure {
            TransactionError::Sql(error) => explain(&self.path, error).into(),
            TransactionError::Refused(error) => *error,
            TransactionError::NoTokenReserve(_) => {
                StoreError::new(ErrorKind::Damaged, "the token counter could not be raised").into()
            }
        }
    }

    /// One write transaction about locks. All or nothing.
    pub(crate) fn write<T>(
        &self,
        by: Instant,
        verb: impl FnMut(&mut WriteTransaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<(T, Revision), StoreError> {
        self.transact(by, verb).map_err(|error| match error {
            TaskError::Store(error) => error,
            other => StoreError::new(ErrorKind::Io, other.to_string()),
        })
    }

    /// One write transaction about tasks.
    pub(crate) fn run<T>(
        &self,
        by: Instant,
        verb: impl FnMut(&mut WriteTransaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<(T, Revision), TaskError> {
        self.check_access()?;
        if self.options.purpose == Purpose::Locks {
            let _patience = CallDeadline::until(by);
            let added = schema::add_tasks(&mut self.lock().connection);
            added.map_err(|error| explain(&self.path, error))?;
        }
        self.transact(by, verb)
    }

    /// One write transaction. The first one that needs a token of a new epoch raises the counter, the first one that
    /// needs a token of a new block syncs the ones before, and runs again.
    fn transact<T>(
        &self,
        by: Instant,
        mut verb: impl FnMut(&mut WriteTransaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<(T, Revision), TaskError> {
        self.check_access()?;
        let _patience = CallDeadline::until(by);
        let mut reserve = TokenReserve::default();
        loop {
            let needed = match self.attempt(reserve, &mut verb) {
                Err(TransactionError::NoTokenReserve(needed)) => needed,
                other => return other.map_err(|failure| self.explain(failure)),
            };
            match needed {
                Needed::Raise => {
                    self.begin_boot().map_err(|failure| self.explain(failure))?;
                    reserve.raised = true;
                }
                Needed::Sync(block) => {
                    schema::sync(&self.real, &self.lock().connection)?;
                    reserve.synced = Some(block);
                }
            }
        }
    }

    /// One attempt of a write transaction. Wake-ups are delivered after the commit.
    fn attempt<T>(
        &self,
        mut reserve: TokenReserve,
        verb: &mut dyn FnMut(&mut WriteTransaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<(T, Revision), TransactionError> {
        self.still_there()?;
        let mut db = self.lock();
        let db = &mut *db;
        let before = db.connection.total_changes();
        let damage = Damage::default();
        let tx = self.begin(&db.connection)?;
        // After the transaction has begun: time spent waiting for it must not expire a lease.
        let now = self.options.clock.now();
        reserve.raised |= !now.epoch.is_known() && db.has_raised_tokens;
        let reader = ReadTransaction {
            db: &tx,
            presence: &self.presence,
            now: &now,
            grace: self.options.queue_grace,
            tables: &*self.tables,
            damage: &damage,
        };
        self.tables.begin(&tx)?;
        let mut write = WriteTransaction {
            reader,
            options: &self.options,
            reserve,
            rings: Vec::new(),
        };
        let answer = verb(&mut write)?;
        let rings = std::mem::take(&mut write.rings);
        let seen = self.others(&tx)?;
        tx.commit()
            .map_err(|error| explain_commit(&self.path, &*self.tables, error))?;
        if db.connection.total_changes() != before {
            db.commits = db.commits.wrapping_add(1);
        }
        self.presence.ring(rings);
        Ok((answer, self.revision(seen, db.commits)))
    }

    /// Begins to write, at the latest by the deadline of the call. SQLite's busy handler gives up after a while; as
    /// long as other writers commit, this goes on waiting.
    fn begin<'a>(&self, db: &'a Connection) -> rusqlite::Result<Transaction<'a>> {
        let mut seen = self.others(db)?;
        loop {
            match Transaction::new_unchecked(db, TransactionBehavior::Immediate) {
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                    let now = self.others(db)?;
                    if now == seen || call_deadline::is_over() {
                        return Err(error);
                    }
                    seen = now;
                }
                begun => return begun,
            }
        }
    }

    /// Raises the token counter, on disk, before the first grant of a new boot.
    ///
    /// A power cut may undo the last commits. So the counter is raised by more tokens than those
    /// commits could have granted, and synced; only then does the first grant record the boot. If this
    /// process is killed in between, the next one raises the counter again.
    fn begin_boot(&self) -> Result<(), TransactionError> {
        self.attempt(TokenReserve::default(), &mut |write| write.raise_tokens())?;
        schema::sync(&self.real, &self.lock().connection)?;
        self.lock().has_raised_tokens = true;
        Ok(())
    }

    /// One read transaction: a consistent picture that blocks no writer. Two files are consistent only
    /// while no process commits, so reading them takes the write locks for a moment.
    pub(crate) fn read<T>(
        &self,
        by: Instant,
        verb: impl FnOnce(ReadTransaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<(T, Revision), StoreError> {
        let _patience = CallDeadline::until(by);
        let explained = |error| explain(&self.path, error);
        if self.access == Access::ReadWrite {
            let db = self.lock();
            let look = |tx: &Transaction<'_>| self.look_at(tx, db.commits, verb);
            let looked = if self.tables.are_own() {
                let tx = db.connection.unchecked_transaction();
                tx.and_then(|tx| look(&tx))
            } else {
                self.begin(&db.connection).and_then(|tx| look(&tx))
            };
            return looked.map_err(explained);
        }
        let _nothing_is_opened = connection::keep_others_from_opening();
        let mut db = self.tables.connect(&self.path, &self.real)?;
        let tx = db.transaction().map_err(explained)?;
        read_only::begin(&tx).map_err(explained)?;
        if self.access == Access::LookOnly {
            read_only::check(&self.path, &self.real, &tx)?;
        }
        self.look_at(&tx, 0, verb).map_err(explained)
    }

    fn look_at<T>(
        &self,
        tx: &Transaction<'_>,
        commits: u32,
        verb: impl FnOnce(ReadTransaction<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<(T, Revision)> {
        let now = self.options.clock.now();
        let answer = verb(ReadTransaction {
            db: tx,
            presence: &self.presence,
            now: &now,
            grace: self.options.queue_grace,
            tables: &*self.tables,
            damage: &Damage::default(),
        })?;
        Ok((answer, self.revision(self.others(tx)?, commits)))
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::engine::Step;
    use tenure_core::{Key, Token};
    use tenure_testkit::soon;

    use super::*;
    use crate::write::BLOCK;

    #[test]
    fn the_grants_of_a_block_of_tokens_are_synced_before_the_next_block() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenure.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        // A reader that keeps every checkpoint from its work.
        let reader = Connection::open(&path).unwrap();
        let read = "BEGIN; SELECT newest FROM tokens";
        reader.execute_batch(read).unwrap();
        let raise = "UPDATE tokens SET newest = ?1";
        let newest = i64::try_from(2 * BLOCK - 2).unwrap();
        store.look_once(|db| db.execute(raise, [newest])).unwrap();
        let key = Key::parse("build").unwrap();
        let mut mint = |write: &mut WriteTransaction<'_>| write.mint(&key);
        let known = |synced| TokenReserve {
            raised: false,
            synced,
        };
        let (last, _) = store.attempt(known(None), &mut mint).unwrap();
        assert_eq!(last, Token(2 * BLOCK - 1));
        for synced in [None, Some(1)] {
            let refused = store.attempt(known(synced), &mut mint);
            let needed = matches!(
                refused,
                Err(TransactionError::NoTokenReserve(Needed::Sync(2)))
            );
            assert!(needed, "{refused:?}");
        }
        let (first, _) = store.write(soon(), |write| write.mint(&key)).unwrap();
        assert_eq!(first, Token(2 * BLOCK));
    }
}
