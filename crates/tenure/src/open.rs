//! Opening a store by its address: [`StoreUrl`], [`Tenure`].

#[cfg(feature = "file")]
mod file;
#[cfg(feature = "ledger")]
mod ledger;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_core::{Clock, ErrorKind, Key, Store, StoreError, TaskStore};
use tenure_host::{HostClock, LocalStore};

use crate::Error;
use crate::ask::Ask;
use crate::config::Config;
use crate::memory::MemoryStore;
use crate::tasks::AnyTask;

/// Where a store is.
///
/// ```
/// use tenure::StoreUrl;
/// assert!(StoreUrl::parse("sqlite:.tenure/tenure.db").is_ok());
/// assert!(StoreUrl::parse("steroids:.steroids/steroids.db").is_ok());
/// assert!(StoreUrl::parse("exclusive:.beads").is_ok());
/// assert!(StoreUrl::parse("mkdir:.bilu/storage/lock").is_ok());
/// assert!(StoreUrl::parse("ledger:proof").is_ok());
/// assert!(StoreUrl::parse("redis://localhost").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A database file.
    Sqlite(PathBuf),
    /// A live database of another program, whose two lock tables are shared.
    Steroids(PathBuf),
    /// The exclusive lock of a database's folder.
    Exclusive(PathBuf),
    /// The mkdir lock of a board: the lock folder itself.
    Mkdir(PathBuf),
    /// Claims on the nodes of an event ledger: the folder that holds `ledger/`.
    Ledger(PathBuf),
    /// A store of this process alone, gone with it.
    Memory,
}

/// Why a text is no address of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadUrl {
    /// Not a kind of store that is known.
    #[error(
        "{0:?} is not a store that this tenure knows: write sqlite:PATH, for example sqlite:.tenure/tenure.db, \
         steroids:PATH, for example steroids:.steroids/steroids.db, exclusive:DIR, for example exclusive:.beads, \
         mkdir:DIR, for example mkdir:.bilu/storage/lock, or ledger:DIR, for example ledger:proof"
    )]
    Unknown(String),
    /// The kind is known, the place is missing.
    #[error(
        "{0:?} names no file: write sqlite:PATH, for example sqlite:.tenure/tenure.db, \
         or steroids:PATH, for example steroids:.steroids/steroids.db"
    )]
    NoPlace(String),
    /// The same where the place is a folder.
    #[error(
        "{0:?} names no folder: write exclusive:DIR, for example exclusive:.beads, \
         mkdir:DIR, for example mkdir:.bilu/storage/lock, or ledger:DIR, for example ledger:proof"
    )]
    NoFolder(String),
}

impl StoreUrl {
    /// Takes a text as the address of a store, if it is one.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        match text.split_once(':') {
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite" | "steroids", "")) => Err(BadUrl::NoPlace(text.to_owned())),
            Some(("sqlite", path)) => Ok(Self::Sqlite(PathBuf::from(path))),
            Some(("steroids", path)) => Ok(Self::Steroids(PathBuf::from(path))),
            Some(("exclusive" | "mkdir" | "ledger", "")) => Err(BadUrl::NoFolder(text.to_owned())),
            Some(("exclusive", dir)) => Ok(Self::Exclusive(PathBuf::from(dir))),
            Some(("mkdir", dir)) => Ok(Self::Mkdir(PathBuf::from(dir))),
            Some(("ledger", dir)) => Ok(Self::Ledger(PathBuf::from(dir))),
            _ => Err(BadUrl::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Steroids(path) => write!(f, "steroids:{}", path.display()),
            Self::Exclusive(dir) => write!(f, "exclusive:{}", dir.display()),
            Self::Mkdir(dir) => write!(f, "mkdir:{}", dir.display()),
            Self::Ledger(dir) => write!(f, "ledger:{}", dir.display()),
            Self::Memory => f.write_str("memory:"),
        }
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
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    identity: String,
}

impl Tenure {
    /// Opens a store.
    pub fn open(url: &StoreUrl, config: Config) -> Result<Self, StoreError> {
        match url {
            #[cfg(feature = "sqlite")]
            StoreUrl::Sqlite(path) => Self::open_sqlite(path, config),
            #[cfg(feature = "sqlite")]
            StoreUrl::Steroids(path) => Self::open_steroids(path, config),
            #[cfg(not(feature = "sqlite"))]
            StoreUrl::Sqlite(_) | StoreUrl::Steroids(_) => Err(not_built_in(url, "sqlite")),
            #[cfg(feature = "file")]
            StoreUrl::Exclusive(dir) => Self::open_exclusive(dir, None, config),
            #[cfg(feature = "file")]
            StoreUrl::Mkdir(dir) => Self::open_mkdir(dir, config),
            #[cfg(not(feature = "file"))]
            StoreUrl::Exclusive(_) | StoreUrl::Mkdir(_) => Err(not_built_in(url, "file")),
            #[cfg(feature = "ledger")]
            StoreUrl::Ledger(dir) => Self::open_ledger(dir, None, config),
            #[cfg(not(feature = "ledger"))]
            StoreUrl::Ledger(_) => Err(not_built_in(url, "ledger")),
            StoreUrl::Memory => Ok(Self::with_store(Arc::new(MemoryStore::default()), config)),
        }
    }

    #[cfg(any(feature = "file", feature = "ledger", feature = "sqlite"))]
    fn local(
        store: Arc<dyn LocalStore>,
        clock: Arc<dyn Clock>,
        config: Config,
        identity: String,
    ) -> Self {
        Self {
            store: Arc::<dyn LocalStore>::clone(&store),
            local: Some(store),
            tasks: None,
            clock,
            config,
            identity,
        }
    }

    /// A store that the caller opened or wrote itself.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tenure::{Acquired, Config, MemoryStore, Tenure};
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
            clock: Arc::new(HostClock::new()),
            config,
            identity: String::new(),
        }
    }

    /// What a command must inherit so that a lease lasts until the command has exited too.
    pub fn inherited_fd(&self) -> Option<BorrowedFd<'_>> {
        self.local.as_ref()?.inherited_fd()
    }

    /// The store itself, for every verb that is not about asking.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The tasks and sections of the store.
    pub fn tasks(&self) -> Result<&Arc<dyn TaskStore>, StoreError> {
        self.tasks.as_ref().ok_or_else(|| {
            let what = "this store holds locks only, no tasks";
            StoreError::new(ErrorKind::Unsupported, what)
                .fix("name a store that has them: sqlite:PATH, or the project's own")
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
        Ok(Ask::new(self, Key::parse(key)?))
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

/// The store is known, but this program was built without it.
#[cfg(not(all(feature = "file", feature = "ledger", feature = "sqlite")))]
fn not_built_in(url: &StoreUrl, feature: &str) -> StoreError {
    let what = format!("{url} cannot be opened: this program was built without that kind of store");
    let fix = format!("enable the feature `{feature}` of the crate `tenure`");
    StoreError::new(ErrorKind::Unsupported, what).fix(fix)
}

#[cfg(all(
    test,
    not(all(feature = "file", feature = "ledger", feature = "sqlite"))
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
        ] {
            if built_in {
                continue;
            }
            let url = StoreUrl::parse(url).unwrap();
            let error = Tenure::open(&url, Config::default()).err().unwrap();
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
