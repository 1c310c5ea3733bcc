//! Opens lock files and lock folders that other programs share.

use std::path::Path;
use std::sync::Arc;

use tenure_core::{Clock, StoreError};
use tenure_file::{ExclusiveStore, MkdirStore};
use tenure_host::HostClock;
use tenure_host::files::LockProtocol as _;

use super::{Tenure, identity};
use crate::config::Config;

impl Tenure {
    /// Opens the exclusive lock of a folder, which must be there. `version` is that of the holder, as
    /// the lock file names it.
    pub fn open_exclusive(
        dir: &Path,
        version: Option<&str>,
        config: Config,
    ) -> Result<Self, StoreError> {
        let clock: Arc<dyn Clock> = Arc::new(HostClock::new());
        let options = tenure_file::Options {
            version: version.map(str::to_owned),
            ..file_options(&clock, &config)
        };
        let store = Arc::new(ExclusiveStore::open(dir, options)?);
        Ok(Self::local(store, clock, config, identity(dir)))
    }

    pub(super) fn open_mkdir(place: &Path, config: Config) -> Result<Self, StoreError> {
        let clock: Arc<dyn Clock> = Arc::new(HostClock::new());
        let store = MkdirStore::open(place, file_options(&clock, &config))?;
        // The lock is there only while it is held: what stays the same is its path.
        let path = store.protocol().path().as_os_str().as_encoded_bytes();
        let identity = format!("{:x}", tenure_host::files::digest(path));
        Ok(Self::local(Arc::new(store), clock, config, identity))
    }
}

/// How a lock that is a file is set up.
fn file_options(clock: &Arc<dyn Clock>, config: &Config) -> tenure_file::Options {
    tenure_file::Options {
        clock: Arc::clone(clock),
        history_age: config.history.max_age,
        history_events: config.history.max_events,
        queue_grace: config.locking.queue_grace,
        ..tenure_file::Options::default()
    }
}
