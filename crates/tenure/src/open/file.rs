//! Opens lock files and lock folders that other programs share.

use std::path::Path;
use std::sync::Arc;

use tenure_core::{Clock, StoreError};
use tenure_host::HostClock;
use tenure_host::files::LockAtPath as _;
use tenure_lockfile::{Access, ExclusiveStore, MkdirStore};

use super::{Tenure, identity, no_folder};
use crate::config::Config;

impl Tenure {
    /// Opens the exclusive lock of a folder, which must be there. `version` is that of the holder, as
    /// the lock file names it.
    pub fn open_exclusive(
        dir: &Path,
        version: Option<&str>,
        config: Config,
    ) -> Result<Self, StoreError> {
        Self::exclusive(dir, version, Access::ReadWrite, config)
    }

    pub(super) fn exclusive(
        dir: &Path,
        version: Option<&str>,
        access: Access,
        config: Config,
    ) -> Result<Self, StoreError> {
        if access == Access::ReadOnly && matches!(dir.try_exists(), Ok(false)) {
            return Err(no_folder(&format!("exclusive:{}", dir.display()), dir));
        }
        let clock: Arc<dyn Clock> = Arc::new(HostClock::new());
        let options = tenure_lockfile::Options {
            version: version.map(str::to_owned),
            ..file_options(&clock, access, &config)
        };
        let store = Arc::new(ExclusiveStore::open(dir, options)?);
        Ok(Self::local(store, clock, config, identity(dir)))
    }

    pub(super) fn mkdir(place: &Path, access: Access, config: Config) -> Result<Self, StoreError> {
        let clock: Arc<dyn Clock> = Arc::new(HostClock::new());
        let store = MkdirStore::open(place, file_options(&clock, access, &config))?;
        let parent = place.parent().filter(|dir| !dir.as_os_str().is_empty());
        if let Some(parent) = parent.filter(|_| access == Access::ReadOnly)
            && matches!(parent.try_exists(), Ok(false))
        {
            return Err(no_folder(&format!("mkdir:{}", place.display()), parent));
        }
        // The lock is there only while it is held: what stays the same is its path.
        let path = store.protocol().path().as_os_str().as_encoded_bytes();
        let identity = format!("{:x}", tenure_host::files::digest(path));
        Ok(Self::local(Arc::new(store), clock, config, identity))
    }
}

/// How a lock that is a file is set up.
fn file_options(
    clock: &Arc<dyn Clock>,
    access: Access,
    config: &Config,
) -> tenure_lockfile::Options {
    tenure_lockfile::Options {
        access,
        clock: Arc::clone(clock),
        history_age: config.history.max_age,
        history_events: config.history.max_events,
        queue_grace: config.locking.queue_grace,
        ..tenure_lockfile::Options::default()
    }
}
