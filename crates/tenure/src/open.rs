//! Opening a store by its address: [`StoreUrl`], [`Tenure`].

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_core::{Clock, ErrorKind, Key, Store, StoreError};
use tenure_host::HostClock;
use tenure_sqlite::{Options, SqliteStore};

use crate::Error;
use crate::ask::Ask;
use crate::config::Config;
use crate::tasks::AnyTask;

/// Where a store is.
///
/// ```
/// use tenure::StoreUrl;
/// assert!(StoreUrl::parse("sqlite:.tenure/tenure.db").is_ok());
/// assert!(StoreUrl::parse("steroids:.steroids/steroids.db").is_ok());
/// assert!(StoreUrl::parse("redis://localhost").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A database file.
    Sqlite(PathBuf),
    /// A live database of another program, whose two lock tables are shared.
    Steroids(PathBuf),
}

/// Why a text is no address of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    /// Not a kind of store that is known.
    #[error(
        "{0:?} is not a store that this tenure knows: write sqlite:PATH, for example sqlite:.tenure/tenure.db, \
         or steroids:PATH, for example steroids:.steroids/steroids.db"
    )]
    Unknown(String),
    /// The kind is known, the place is missing.
    #[error(
        "{0:?} names no file: write sqlite:PATH, for example sqlite:.tenure/tenure.db, \
         or steroids:PATH, for example steroids:.steroids/steroids.db"
    )]
    NoPlace(String),
}

impl StoreUrl {
    /// Takes a text as the address of a store, if it is one.
    pub fn parse(text: &str) -> Result<Self, BadUrl> {
        match text.split_once(':') {
            Some(("sqlite" | "steroids", "")) => Err(BadUrl::NoPlace(text.to_owned())),
            Some(("sqlite", path)) => Ok(Self::Sqlite(PathBuf::from(path))),
            Some(("steroids", path)) => Ok(Self::Steroids(PathBuf::from(path))),
            _ => Err(BadUrl::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Steroids(path) => write!(f, "steroids:{}", path.display()),
        }
    }
}

/// An open store with its settings.
#[derive(Clone)]
pub struct Tenure {
    pub(crate) store: Arc<dyn Store>,
    /// The same, if it holds tasks too.
    pub(crate) tasks: Option<Arc<SqliteStore>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) config: Config,
    identity: String,
}

impl Tenure {
    /// Opens a store.
    pub fn open(url: &StoreUrl, config: Config) -> Result<Self, StoreError> {
        let clock: Arc<dyn Clock> = Arc::new(HostClock::new());
        let options = Options {
            clock: Arc::clone(&clock),
            history_age: config.history.max_age,
            history_events: config.history.max_events,
            queue_grace: config.locking.queue_grace,
        };
        let store = match url {
            StoreUrl::Sqlite(path) => Arc::new(SqliteStore::open(path, options)?),
            StoreUrl::Steroids(path) => Arc::new(SqliteStore::open_foreign(path, options)?),
        };
        let identity = match url {
            StoreUrl::Sqlite(path) | StoreUrl::Steroids(path) => match path.metadata() {
                Ok(file) => format!("{:x}.{:x}", file.dev(), file.ino()),
                Err(_) => String::new(),
            },
        };
        Ok(Self {
            store: Arc::<SqliteStore>::clone(&store),
            // Those of another program are its own business.
            tasks: matches!(url, StoreUrl::Sqlite(_)).then_some(store),
            clock,
            config,
            identity,
        })
    }

    /// The store itself, for every verb that is not about asking.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The tasks and sections of the store.
    pub fn tasks(&self) -> Result<&Arc<SqliteStore>, StoreError> {
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
