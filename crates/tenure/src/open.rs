//! Opening a store by its address: [`StoreUrl`], [`Tenure`].

#[cfg(feature = "etcd")]
mod etcd;
mod etcd_url;
#[cfg(feature = "file")]
mod file;
#[cfg(feature = "ledger")]
mod ledger;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_core::{Clock, ErrorKind, Key, Store, StoreError};
use tenure_host::files::Access;
use tenure_host::{HostClock, LocalStore};
use tenure_tasks::TaskStore;

use crate::Error;
#[cfg(any(feature = "etcd", feature = "sqlite"))]
use crate::acquire::call_deadline;
use crate::ask::Ask;
use crate::config::Config;
use crate::memory::MemoryStore;
use crate::tasks::AnyTask;
use crate::wire::StoreRepairJson;

pub use etcd_url::EtcdUrl;
pub(crate) use etcd_url::without_login;

/// The address of a store.
///
/// ```
/// use tenure::StoreUrl;
/// assert!(StoreUrl::parse("sqlite:.tenure/tenure.db").is_ok());
/// assert!(StoreUrl::parse("steroids:.steroids/steroids.db").is_ok());
/// assert!(StoreUrl::parse("exclusive:.beads").is_ok());
/// assert!(StoreUrl::parse("mkdir:.bilu/storage/lock").is_ok());
/// assert!(StoreUrl::parse("ledger:proof").is_ok());
/// assert!(StoreUrl::parse("etcd://10.0.0.1:2379,10.0.0.2:2379/team").is_ok());
/// assert!(StoreUrl::parse("redis://localhost").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A database file.
    Sqlite(PathBuf),
    /// A live database of another program, which shares its two lock tables.
    Steroids(PathBuf),
    /// The exclusive lock of a database's folder.
    Exclusive(PathBuf),
    /// The mkdir lock of a board: the lock folder itself.
    Mkdir(PathBuf),
    /// Claims on the nodes of an event ledger: the folder that holds `ledger/`.
    Ledger(PathBuf),
    /// An etcd cluster.
    Etcd(EtcdUrl),
    /// A store in the memory of this process.
    Memory,
}

/// Why a text is not the address of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadUrl {
    /// Not a known kind of store.
    #[error("{0:?} is not a store that this tenure knows. {FILES}{FOLDERS}")]
    Unknown(String),
    /// The path is missing.
    #[error("{0:?} names no file. {FILES}")]
    NoPlace(String),
    /// The folder is missing.
    #[error("{0:?} names no folder. Write, for example:{FOLDERS}")]
    NoFolder(String),
    /// The store of one process, where other processes have to see its locks.
    #[error(
        "memory: is a store of one process: another command would not see its locks. Name a store on disk, or use memory: from Rust"
    )]
    OneProcess,
    /// Not the address of an etcd cluster.
    #[error("{0}")]
    Etcd(String),
}

/// Examples of stores that are files.
const FILES: &str = "Write, for example:
  sqlite:.tenure/tenure.db          a database of tenure
  steroids:.steroids/steroids.db    the database of steroids";

/// Examples of stores that are folders.
const FOLDERS: &str = "
  exclusive:.beads                  the exclusive lock of bd
  mkdir:.bilu/storage/lock          the lock folder of bilu or a shell script
  ledger:proof                      the claims of an af ledger
  etcd://10.0.0.1:2379/team         an etcd cluster, for many machines";

impl StoreUrl {
    /// Parses the address of a store. Its path need not be UTF-8.
    pub fn parse(text: &(impl AsRef<OsStr> + ?Sized)) -> Result<Self, BadUrl> {
        let text = text.as_ref();
        let shown = || etcd_url::without_login(&text.to_string_lossy());
        let bytes = text.as_bytes();
        let colon = bytes.iter().position(|byte| *byte == b':');
        let Some((scheme, rest)) = colon.map(|at| bytes.split_at(at)) else {
            return Err(BadUrl::Unknown(shown()));
        };
        let path = PathBuf::from(OsStr::from_bytes(rest.strip_prefix(b":").unwrap_or(rest)));
        let is_empty = path.as_os_str().is_empty();
        match scheme {
            b"etcd" => EtcdUrl::parse(text).map(Self::Etcd),
            b"memory" if is_empty => Ok(Self::Memory),
            b"sqlite" | b"steroids" if is_empty => Err(BadUrl::NoPlace(shown())),
            b"sqlite" => Ok(Self::Sqlite(path)),
            b"steroids" => Ok(Self::Steroids(path)),
            b"exclusive" | b"mkdir" | b"ledger" if is_empty => Err(BadUrl::NoFolder(shown())),
            b"exclusive" => Ok(Self::Exclusive(path)),
            b"mkdir" => Ok(Self::Mkdir(path)),
            b"ledger" => Ok(Self::Ledger(path)),
            _ => Err(BadUrl::Unknown(shown())),
        }
    }

    /// Parses the address of a store that other processes use too, with its path seen from `folder`.
    pub fn seen_from(folder: &Path, text: &(impl AsRef<OsStr> + ?Sized)) -> Result<Self, BadUrl> {
        Ok(match Self::parse(text)? {
            Self::Sqlite(path) => Self::Sqlite(folder.join(path)),
            Self::Steroids(path) => Self::Steroids(folder.join(path)),
            Self::Exclusive(dir) => Self::Exclusive(folder.join(dir)),
            Self::Mkdir(dir) => Self::Mkdir(folder.join(dir)),
            Self::Ledger(dir) => Self::Ledger(folder.join(dir)),
            Self::Etcd(url) => Self::Etcd(url),
            Self::Memory => return Err(BadUrl::OneProcess),
        })
    }

    /// The store that the environment variable `TENURE_STORE` names.
    pub fn in_environment() -> Option<OsString> {
        std::env::var_os("TENURE_STORE").filter(|store| !store.is_empty())
    }

    /// The address, with every byte of its path; [`fmt::Display`] replaces bytes that are not UTF-8. An etcd cluster is
    /// named without user and password.
    pub fn to_os_string(&self) -> OsString {
        let (scheme, path) = match self {
            Self::Sqlite(path) => ("sqlite:", path.as_path()),
            Self::Steroids(path) => ("steroids:", path.as_path()),
            Self::Exclusive(dir) => ("exclusive:", dir.as_path()),
            Self::Mkdir(dir) => ("mkdir:", dir.as_path()),
            Self::Ledger(dir) => ("ledger:", dir.as_path()),
            Self::Etcd(url) => return url.to_string().into(),
            Self::Memory => ("memory:", Path::new("")),
        };
        let mut text = OsString::from(scheme);
        text.push(path);
        text
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_os_string().display().fmt(f)
    }
}

/// An open store with its settings.
#[derive(Clone)]
pub struct Tenure {
    pub(crate) store: Arc<dyn Store>,
    /// The same, if it is a store of this machine.
    local: Option<Arc<dyn LocalStore>>,
    /// The same, if it holds tasks too.
    pub(crate) tasks: Option<Arc<dyn TaskStore>>,
    /// The same, if it is a database.
    #[cfg(feature = "sqlite")]
    sqlite: Option<Arc<tenure_sqlite::SqliteStore>>,
    /// The same, if it is an etcd cluster.
    #[cfg(feature = "etcd")]
    etcd: Option<Arc<tenure_etcd::EtcdStore>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    identity: String,
}

impl Tenure {
    /// Opens a store for locks above all: a project's database that is made so is opened faster, as long as it has no
    /// tasks.
    pub fn open_for_locks(url: &StoreUrl, config: Config) -> Result<Self, StoreError> {
        match url {
            #[cfg(feature = "sqlite")]
            StoreUrl::Sqlite(path) => Self::open_sqlite_for_locks(path, config),
            _ => Self::open_with(url, config),
        }
    }

    /// Opens the store with this address, with the built-in settings: [`open_with`](Self::open_with) takes others.
    pub fn open(url: impl AsRef<OsStr>) -> Result<Self, Error> {
        Ok(Self::open_with(&StoreUrl::parse(&url)?, Config::default())?)
    }

    /// Opens a store with these settings.
    pub fn open_with(url: &StoreUrl, config: Config) -> Result<Self, StoreError> {
        Self::open_as(url, Access::ReadWrite, config)
    }

    /// Opens a store to look at it, without creating or writing anything.
    ///
    /// [`inspect`](Store::inspect), [`list`](Store::list), [`history`](tenure_core::Records::history),
    /// [`fence`](Store::fence), a dry run of [`reap`](Store::reap) and the verbs of
    /// [`tasks`](Self::tasks) that only look answer as they do in a store that was opened with
    /// [`open`](Self::open_with). Every other verb, and with it every [`Ask`], fails with
    /// [`ErrorKind::ReadOnly`] and changes nothing.
    /// [`wait`](tenure_core::Records::wait) fails too, because a process that can be woken has a liveness lock: look
    /// again after a while instead.
    ///
    /// Nothing is created, upgraded, repaired, checkpointed or removed: neither the store's own files
    /// nor a sidecar, log or liveness folder. Permission to read is enough, also in a folder that
    /// can't be written. The holders and waiters beside it see no difference.
    ///
    /// | store | what is different |
    /// |---|---|
    /// | `sqlite:` | An older schema and a log that must be recovered are refused with [`ErrorKind::ReadOnly`]: open the database once for writing. While a verb reads, SQLite holds shared locks. It writes to no file: `-shm` is mapped read-only, and if there is no log, a copy of the file in memory is read. |
    /// | `steroids:` | The same, for both databases, which are copied into memory. If they change each time, [`ErrorKind::Contended`]. Without tenure's database beside it, every lock is the other program's. |
    /// | `exclusive:`, `mkdir:` | Without a sidecar, what the lock itself says is shown. A step that a killed process left unfinished is shown as it is. |
    /// | `ledger:` | The same; and the ledger lock of a killed process stays. |
    /// | `etcd:` | Permission to read the prefix is enough. A prefix without keys is an empty store, not a missing one. |
    /// | `memory:` | [`ErrorKind::Unsupported`]: it is always new, and empty. |
    ///
    /// A store that does not exist is [`ErrorKind::NotFound`]. (The lock of `exclusive:` and `mkdir:`
    /// exists only while it is held: there it is the folder that has to be there.)
    ///
    /// ```
    /// use tenure::{Config, StoreUrl, Tenure};
    /// use tenure::store::ErrorKind;
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let url = format!("sqlite:{}", dir.path().join("tenure.db").display());
    /// let url = StoreUrl::parse(&url)?;
    /// let missing = Tenure::open_read_only(&url, Config::default()).err().unwrap();
    /// assert_eq!(missing.kind, ErrorKind::NotFound);
    ///
    /// Tenure::open_with(&url, Config::default())?;
    /// let tenure = Tenure::open_read_only(&url, Config::default())?;
    /// assert!(tenure.store().list(tenure::store::call_deadline())?.is_empty());
    /// let refused = tenure.ask("build")?.acquire().err().unwrap();
    /// assert!(refused.to_string().contains("was opened read-only: nothing was changed"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open_read_only(url: &StoreUrl, config: Config) -> Result<Self, StoreError> {
        Self::open_as(url, Access::ReadOnly, config)
    }

    fn open_as(url: &StoreUrl, access: Access, config: Config) -> Result<Self, StoreError> {
        match (url, access) {
            #[cfg(feature = "sqlite")]
            (StoreUrl::Sqlite(path), Access::ReadWrite) => Self::open_sqlite(path, config),
            #[cfg(feature = "sqlite")]
            (StoreUrl::Sqlite(path), Access::ReadOnly) => Self::open_sqlite_read_only(path, config),
            #[cfg(feature = "sqlite")]
            (StoreUrl::Steroids(path), Access::ReadWrite) => Self::open_steroids(path, config),
            #[cfg(feature = "sqlite")]
            (StoreUrl::Steroids(path), Access::ReadOnly) => {
                Self::open_steroids_read_only(path, config)
            }
            #[cfg(not(feature = "sqlite"))]
            (StoreUrl::Sqlite(_) | StoreUrl::Steroids(_), _) => Err(not_built_in(url, "sqlite")),
            #[cfg(feature = "file")]
            (StoreUrl::Exclusive(dir), _) => Self::exclusive(dir, None, access, config),
            #[cfg(feature = "file")]
            (StoreUrl::Mkdir(dir), _) => Self::mkdir(dir, access, config),
            #[cfg(not(feature = "file"))]
            (StoreUrl::Exclusive(_) | StoreUrl::Mkdir(_), _) => Err(not_built_in(url, "file")),
            #[cfg(feature = "ledger")]
            (StoreUrl::Ledger(dir), _) => Self::ledger(dir, None, access, config),
            #[cfg(not(feature = "ledger"))]
            (StoreUrl::Ledger(_), _) => Err(not_built_in(url, "ledger")),
            #[cfg(feature = "etcd")]
            (StoreUrl::Etcd(address), _) => Self::open_etcd(address, access, config),
            #[cfg(not(feature = "etcd"))]
            (StoreUrl::Etcd(_), _) => Err(not_built_in(url, "etcd")),
            (StoreUrl::Memory, Access::ReadWrite) => {
                Ok(Self::with_store(Arc::new(MemoryStore::default()), config))
            }
            (StoreUrl::Memory, Access::ReadOnly) => {
                let what = "memory: can't be opened read-only: it is a new store, and empty";
                Err(StoreError::new(ErrorKind::Unsupported, what)
                    .fix("name the store of another process, for example sqlite:PATH"))
            }
        }
    }

    /// The same for a caller that looks once: a SQLite database is opened by the first verb, which then fails where
    /// [`Tenure::open_read_only`] would.
    pub fn open_to_look(url: &StoreUrl, config: Config) -> Result<Self, StoreError> {
        match url {
            #[cfg(feature = "sqlite")]
            StoreUrl::Sqlite(path) => Self::open_sqlite_to_look(path, config),
            _ => Self::open_read_only(url, config),
        }
    }

    #[cfg(any(
        feature = "etcd",
        feature = "file",
        feature = "ledger",
        feature = "sqlite"
    ))]
    fn local(
        store: Arc<dyn LocalStore>,
        clock: Arc<dyn Clock>,
        config: Config,
        identity: String,
    ) -> Self {
        Self {
            local: Some(Arc::clone(&store)),
            clock,
            identity,
            ..Self::with_store(store, config)
        }
    }

    /// A store that the caller opened or wrote itself.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tenure::{Acquired, Config, Tenure};
    /// use tenure::store::MemoryStore;
    ///
    /// let tenure = Tenure::with_store(Arc::new(MemoryStore::default()), Config::default());
    /// assert!(matches!(tenure.ask("build")?.acquire()?, Acquired::Granted(_)));
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn with_store(store: Arc<dyn Store>, config: Config) -> Self {
        Self {
            store,
            local: None,
            tasks: None,
            #[cfg(feature = "sqlite")]
            sqlite: None,
            #[cfg(feature = "etcd")]
            etcd: None,
            clock: Arc::new(HostClock::new()),
            config,
            identity: String::new(),
        }
    }

    /// Asks each member of an etcd cluster for its state.
    #[cfg(not(feature = "etcd"))]
    pub fn check_etcd(
        url: &EtcdUrl,
        _found: &mut crate::wire::StoreCheckJson,
    ) -> Result<(), StoreError> {
        Err(not_built_in(&StoreUrl::Etcd(url.clone()), "etcd"))
    }

    /// Whether the store was restored from a backup, so that it grants nothing until it is repaired.
    #[cfg(not(feature = "etcd"))]
    pub fn was_restored(&self) -> Result<Option<StoreError>, StoreError> {
        Ok(None)
    }

    /// Repairs one key of a store, or all of it; `None` if there is nothing that could be damaged in this way. `restored`: the
    /// caller knows that the store was restored from a backup, which only an etcd cluster can't tell by itself.
    pub fn repair(
        &self,
        key: Option<&Key>,
        restored: bool,
    ) -> Result<Option<StoreRepairJson>, StoreError> {
        #[cfg(feature = "sqlite")]
        if let Some(sqlite) = self.sqlite.as_ref().filter(|_| !restored) {
            let path = sqlite.path().to_owned();
            let url = if self.is_foreign() {
                StoreUrl::Steroids(path)
            } else {
                StoreUrl::Sqlite(path)
            };
            let repaired = sqlite.repair(key, call_deadline())?;
            return Ok(Some(StoreRepairJson::new(url.to_string(), repaired)));
        }
        #[cfg(feature = "etcd")]
        if let Some(etcd) = self.etcd() {
            let what = match key {
                Some(key) => tenure_etcd::Repair::Key(key),
                None => tenure_etcd::Repair::All { restored },
            };
            let repaired = etcd.repair(what, call_deadline())?;
            let store = etcd.address().to_string();
            return Ok(Some(StoreRepairJson::new(store, repaired)));
        }
        let _ = (key, restored);
        Ok(None)
    }

    /// What a command must inherit so that a lease lasts until the command has exited too.
    pub fn inherited_fd(&self) -> Option<BorrowedFd<'_>> {
        self.local.as_ref()?.presence().inherited_fd()
    }

    /// Where a command finds what its holder is asked, if the store is on this machine; `None` before the first lease.
    pub fn asked_file(&self) -> Option<PathBuf> {
        self.local.as_ref()?.presence().asked_file()
    }

    /// The store itself, for every verb that is not about asking.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Whether the store is another program's database, which shares only its locks (`steroids:`).
    pub fn is_foreign(&self) -> bool {
        #[cfg(feature = "sqlite")]
        return self.sqlite.as_ref().is_some_and(|it| it.is_foreign());
        #[cfg(not(feature = "sqlite"))]
        false
    }

    /// The tasks and sections of the store.
    pub fn tasks(&self) -> Result<&Arc<dyn TaskStore>, StoreError> {
        self.tasks.as_ref().ok_or_else(|| {
            if self.is_foreign() {
                let what = "the tasks in this database belong to the other program: tenure shares its locks, and neither lists nor changes its tasks";
                return StoreError::new(ErrorKind::Unsupported, what).fix(
                    "list and change them with that program; work on one under its lock with tenure run task:ID",
                );
            }
            let what = "this store holds locks only, no tasks";
            StoreError::new(ErrorKind::Unsupported, what)
                .fix("name a store that has them: sqlite:PATH, etcd://HOST/PREFIX, or the project's own")
        })
    }

    /// Begins to ask for a task to work on.
    pub fn ask_for_task(&self) -> Result<Ask<'_, AnyTask>, StoreError> {
        let tasks = Arc::clone(self.tasks()?);
        Ok(Ask::new(self, AnyTask::of(tasks)))
    }

    /// A short name that is the same for all who have this very store open on this machine.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Where time comes from.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Begins to ask for a key.
    pub fn ask(&self, key: &str) -> Result<Ask<'_>, Error> {
        Ok(Ask::new(self, Key::parse_new(key)?))
    }
}

/// Which file or folder it is: its device and inode.
#[cfg(any(feature = "file", feature = "ledger", feature = "sqlite"))]
fn identity(path: &std::path::Path) -> String {
    use std::os::unix::fs::MetadataExt;

    match path.metadata() {
        Ok(file) => format!("{:x}.{:x}", file.dev(), file.ino()),
        Err(_) => String::new(),
    }
}

/// The store can't be looked at: its folder does not exist.
#[cfg(feature = "file")]
fn no_folder(url: &str, dir: &std::path::Path) -> StoreError {
    let what = format!(
        "there is no store at {url}: {} does not exist",
        dir.display()
    );
    StoreError::new(ErrorKind::NotFound, what).fix("name a folder that exists; nothing was created")
}

/// The store is known, but this program was built without it.
#[cfg(not(all(
    feature = "etcd",
    feature = "file",
    feature = "ledger",
    feature = "sqlite"
)))]
fn not_built_in(url: &StoreUrl, feature: &str) -> StoreError {
    let what = format!("{url} cannot be opened: this program was built without that kind of store");
    let fix = format!("enable the feature `{feature}` of the crate `tenure`");
    StoreError::new(ErrorKind::Unsupported, what).fix(fix)
}

#[cfg(all(
    test,
    not(all(
        feature = "etcd",
        feature = "file",
        feature = "ledger",
        feature = "sqlite"
    ))
))]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_built_in_is_refused_with_the_feature_that_is_missing() {
        for (url, feature, built_in) in [
            ("sqlite:a.db", "sqlite", cfg!(feature = "sqlite")),
            ("steroids:a.db", "sqlite", cfg!(feature = "sqlite")),
            ("exclusive:a", "file", cfg!(feature = "file")),
            ("mkdir:a", "file", cfg!(feature = "file")),
            ("ledger:a", "ledger", cfg!(feature = "ledger")),
            ("etcd://a:2379/tenure", "etcd", cfg!(feature = "etcd")),
        ] {
            if built_in {
                continue;
            }
            let url = StoreUrl::parse(url).unwrap();
            let error = Tenure::open_with(&url, Config::default()).err().unwrap();
            assert_eq!(error.kind, ErrorKind::Unsupported);
            assert_eq!(
                error.to_string(),
                format!(
                    "{url} cannot be opened: this program was built without that kind of store: \
                     enable the feature `{feature}` of the crate `tenure`"
                )
            );
        }
    }
}
