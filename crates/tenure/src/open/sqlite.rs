//! Opens SQLite databases: tenure's own, and one that another program shares.

use std::path::Path;
use std::sync::Arc;

use tenure_core::{Clock, Key, StoreError};
use tenure_host::HostClock;
use tenure_sqlite::{Purpose, SqliteOptions, SqliteStore};
use tenure_tasks::TaskStore;

use super::{Tenure, identity};
use crate::config::Config;

impl Tenure {
    pub(super) fn open_sqlite(path: &Path, config: Config) -> Result<Self, StoreError> {
        Self::open_database(path, config, Purpose::Tasks, SqliteStore::open)
    }

    pub(super) fn open_sqlite_for_locks(path: &Path, config: Config) -> Result<Self, StoreError> {
        Self::open_database(path, config, Purpose::Locks, SqliteStore::open)
    }

    pub(super) fn open_sqlite_read_only(path: &Path, config: Config) -> Result<Self, StoreError> {
        Self::open_database(path, config, Purpose::Tasks, SqliteStore::open_read_only)
    }

    pub(super) fn open_sqlite_to_look(path: &Path, config: Config) -> Result<Self, StoreError> {
        Self::open_database(path, config, Purpose::Locks, SqliteStore::open_to_look)
    }

    /// The tasks in the database belong to the other program: only its locks are shared.
    pub(super) fn open_steroids(path: &Path, config: Config) -> Result<Self, StoreError> {
        Self::open_database(path, config, Purpose::Locks, SqliteStore::open_foreign)
    }

    pub(super) fn open_steroids_read_only(path: &Path, config: Config) -> Result<Self, StoreError> {
        let open = SqliteStore::open_foreign_read_only;
        Self::open_database(path, config, Purpose::Locks, open)
    }

    /// What another program calls a key of its database (`steroids:`): the title of the task or the name of the
    /// section, or the id if that database does not tell. `None` for any other store.
    pub fn foreign_name(&self, key: &Key) -> Option<String> {
        let store = self.sqlite.as_ref().filter(|store| store.is_foreign())?;
        let name = store.foreign_name(key).ok().flatten();
        let name = name.filter(|name| !name.trim().is_empty());
        Some(name.unwrap_or_else(|| key.id().to_owned()))
    }

    fn open_database(
        path: &Path,
        config: Config,
        purpose: Purpose,
        open: fn(&Path, SqliteOptions) -> Result<SqliteStore, StoreError>,
    ) -> Result<Self, StoreError> {
        let clock: Arc<dyn Clock> = Arc::new(HostClock::new());
        let options = SqliteOptions {
            clock: Arc::clone(&clock),
            history_age: config.history.max_age,
            history_events: config.history.max_events,
            queue_grace: config.locking.queue_grace,
            purpose,
        };
        let store = Arc::new(open(path, options)?);
        let tasks: Arc<dyn TaskStore> = Arc::<SqliteStore>::clone(&store);
        let local = Arc::<SqliteStore>::clone(&store);
        Ok(Self {
            tasks: (!store.is_foreign()).then_some(tasks),
            sqlite: Some(store),
            ..Self::local(local, clock, config, identity(path))
        })
    }
}
