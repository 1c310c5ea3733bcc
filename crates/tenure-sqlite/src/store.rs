//! [`SqliteStore`]: what it is made of, and its transactions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use tenure_core::{Clock, ErrorKind, Revision, StoreError, TaskError};
use tenure_host::watch::Watches;
use tenure_host::{Bell, HostClock, LivenessFolder, LivenessLock, bell};

use crate::connection;
use crate::fault::{explain, explain_commit};
use crate::foreign::{self, Foreign};
use crate::history::Keep;
use crate::lock_tables::LockTables;
use crate::schema;
use crate::view::Reader;
use crate::write::{Failure, Write};

/// How often a crowd of writers is waited for, each time for as long as a single one.
const CROWDED: usize = 6;

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
    /// As it was named, for people.
    path: PathBuf,
    /// Where it is, whatever link leads there: its log and its lives are beside it.
    real: PathBuf,
    /// Which file it is: device and inode.
    file: (u64, u64),
    /// The other program's database, if the seed's tables are in one.
    pub(crate) foreign: Option<Foreign>,
    pub(crate) folder: LivenessFolder,
    /// Ours. Begun when a lease or a ticket first needs it.
    pub(crate) lock_cell: OnceLock<LivenessLock>,
    beginning: Mutex<()>,
    pub(crate) watches: Watches,
    pub(crate) bell: Bell,
    pub(crate) options: Options,
}

struct Database {
    connection: Connection,
    /// Commits of this object that changed something: SQLite tells us only of those of others.
    commits: u32,
}

impl SqliteStore {
    /// Opens the database at this path, making it if it is not there. Lives are kept beside it.
    pub fn open(path: &Path, options: Options) -> Result<Self, StoreError> {
        let boot = options.clock.now().epoch;
        let (connection, real) = connection::open(path, &boot, OpenFlags::empty())?;
        Self::assemble(connection, path, &real, None, options)
    }

    /// The store of a database that is open: `named` for people, `real` where it is.
    pub(crate) fn assemble(
        connection: Connection,
        named: &Path,
        real: &Path,
        foreign: Option<Foreign>,
        options: Options,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            db: Mutex::new(Database {
                connection,
                commits: 0,
            }),
            file: connection::which_file(if foreign.is_some() { real } else { named })?,
            path: named.to_owned(),
            foreign,
            folder: LivenessFolder::new(schema::liveness_folder_of(real)),
            real: real.to_owned(),
            lock_cell: OnceLock::new(),
            beginning: Mutex::new(()),
            watches: Watches::default(),
            bell: Bell::default(),
            options,
        })
    }

    /// Where the database is: the other program's, if it is shared with one.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn liveness_lock(&self) -> Result<&LivenessLock, StoreError> {
        if let Some(life) = self.lock_cell.get() {
            return Ok(life);
        }
        let _one_at_a_time = self
            .beginning
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(life) = self.lock_cell.get() {
            return Ok(life);
        }
        let life = LivenessLock::begin(&self.folder).map_err(|error| {
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
                    self.folder.path().display()
                ),
            )
            .because(error)
            .fix("check that the folder may be written and has space")
        })?;
        Ok(self.lock_cell.get_or_init(|| life))
    }

    /// Changes whenever anybody has changed anything, or the bell was rung.
    fn revision(&self, others: u32, ours: u32) -> Revision {
        let here = ours.wrapping_add(self.bell.generation());
        Revision(u64::from(others) << 32 | u64::from(here))
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
        Ok(match self.foreign {
            None => ours,
            Some(_) => ours.wrapping_add(foreign::version(db)?),
        })
    }

    /// Where the seed's tables are.
    fn tables(&self) -> LockTables {
        match self.foreign {
            None => LockTables::Own,
            Some(_) => LockTables::Attached,
        }
    }

    /// Lends the connection for a look that needs no transaction.
    pub(crate) fn with_connection<T>(&self, look: impl FnOnce(&Connection) -> T) -> T {
        look(&self.lock().connection)
    }

    /// Whoever came by the same name to another file would lock there, beside us.
    fn still_there(&self) -> Result<(), StoreError> {
        let file = match &self.foreign {
            None => &self.path,
            Some(foreign) => {
                foreign.still_there()?;
                &self.real
            }
        };
        if connection::which_file(file)? == self.file {
            return Ok(());
        }
        Err(connection::replaced(file))
    }

    fn lock(&self) -> MutexGuard<'_, Database> {
        self.db.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn explain(&self, failure: Failure) -> TaskError {
        match failure {
            Failure::Sql(error) => explain(&self.path, error).into(),
            Failure::Store(error) => error.into(),
            Failure::Task(error) => *error,
        }
    }

    /// One write transaction about locks. All or nothing.
    pub(crate) fn write<T>(
        &self,
        verb: impl FnOnce(&mut Write<'_>) -> Result<T, Failure>,
    ) -> Result<(T, Revision), StoreError> {
        self.transact(verb).map_err(|error| match error {
            TaskError::Store(error) => error,
            other => StoreError::new(ErrorKind::Io, other.to_string()),
        })
    }

    /// One write transaction. All or nothing; bells are rung after the commit.
    pub(crate) fn transact<T>(
        &self,
        verb: impl FnOnce(&mut Write<'_>) -> Result<T, Failure>,
    ) -> Result<(T, Revision), TaskError> {
        self.still_there()?;
        let tables = self.tables();
        let mut db = self.lock();
        let db = &mut *db;
        let before = db.connection.total_changes();
        let tx = self
            .begin(&db.connection)
            .map_err(|error| explain(&self.path, error))?;
        // After the transaction has begun: time spent waiting for it must not count against anyone.
        let now = self.options.clock.now();
        let reader = Reader {
            db: &tx,
            folder: &self.folder,
            now: &now,
            us: self.lock_cell.get().map(LivenessLock::id),
            tables,
        };
        if tables == LockTables::Attached {
            foreign::settle(&tx).map_err(|error| explain(&self.path, error))?;
        }
        let keep = Keep {
            age: self.options.history_age,
            events: self.options.history_events,
        };
        let mut write = Write {
            reader,
            keep,
            rings: Vec::new(),
        };
        let answer = verb(&mut write).map_err(|failure| self.explain(failure))?;
        let rings = std::mem::take(&mut write.rings);
        let seen = self
            .others(&tx)
            .map_err(|error| explain(&self.path, error))?;
        tx.commit()
            .map_err(|error| explain_commit(&self.path, tables, error))?;
        if db.connection.total_changes() != before {
            db.commits = db.commits.wrapping_add(1);
        }
        for lock in rings {
            bell::ring(&self.folder, &lock);
        }
        Ok((answer, self.revision(seen, db.commits)))
    }

    /// Begins to write. In a large crowd on a busy machine somebody may be out of luck for longer
    /// than one is patient with a single writer; as long as others get on, so shall we.
    fn begin<'a>(&self, db: &'a Connection) -> rusqlite::Result<Transaction<'a>> {
        let mut seen = self.others(db)?;
        let mut tries = 1;
        loop {
            match Transaction::new_unchecked(db, TransactionBehavior::Immediate) {
                Err(rusqlite::Error::SqliteFailure(failure, words))
                    if failure.code == ErrorCode::DatabaseBusy =>
                {
                    let now = self.others(db)?;
                    if now == seen || tries == CROWDED {
                        return Err(rusqlite::Error::SqliteFailure(failure, words));
                    }
                    seen = now;
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// Makes room for the tokens of a new boot, on disk, before the first of them is given.
    ///
    /// A power cut may undo the last commits. So the counter is raised by more than those could
    /// have used, from a value that no power cut can undo: it is synced first, and only then does
    /// the first grant record the boot. Killed in between, the next one raises it again.
    pub(crate) fn begin_boot(&self) -> Result<(), StoreError> {
        self.write(|write| write.raise_tokens())?;
        schema::sync(&self.real, &self.lock().connection)?;
        Ok(())
    }

    /// One read transaction: a consistent picture, without holding anybody up. Of two files there
    /// is such a picture only while nobody commits, so that takes the write locks for a moment.
    pub(crate) fn read<T>(
        &self,
        verb: impl FnOnce(&Reader<'_>) -> rusqlite::Result<T>,
    ) -> Result<(T, Revision), StoreError> {
        let tables = self.tables();
        let mut db = self.lock();
        let commits = db.commits;
        let look = || {
            let tx = db.connection.transaction_with_behavior(match tables {
                LockTables::Own => TransactionBehavior::Deferred,
                LockTables::Attached => TransactionBehavior::Immediate,
            })?;
            let now = self.options.clock.now();
            let reader = Reader {
                db: &tx,
                folder: &self.folder,
                now: &now,
                us: self.lock_cell.get().map(LivenessLock::id),
                tables,
            };
            let answer = verb(&reader)?;
            Ok((answer, self.revision(self.others(&tx)?, commits)))
        };
        look().map_err(|error| explain(&self.path, error))
    }
}
