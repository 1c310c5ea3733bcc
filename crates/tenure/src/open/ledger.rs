//! Opens the claims of an event ledger.

use std::path::Path;
use std::sync::Arc;

use tenure_core::{Clock, StoreError};
use tenure_host::HostClock;
use tenure_ledger::{Access, Ledger, LedgerStore};

use super::{Tenure, identity};
use crate::config::Config;

impl Tenure {
    /// Opens the claims of the ledger in a folder, which must be there. `agent` is who writes, as the
    /// ledger lock names it. A claim lasts as long as `meta.json` says, unless the caller sets a time to live.
    pub fn open_ledger(
        dir: &Path,
        agent: Option<&str>,
        config: Config,
    ) -> Result<Self, StoreError> {
        Self::ledger(dir, agent, Access::ReadWrite, config)
    }

    pub(super) fn ledger(
        dir: &Path,
        agent: Option<&str>,
        access: Access,
        mut config: Config,
    ) -> Result<Self, StoreError> {
        let clock: Arc<dyn Clock> = Arc::new(HostClock::new());
        let options = tenure_ledger::Options {
            clock: Arc::clone(&clock),
            access,
            queue_grace: config.locking.queue_grace,
            ..tenure_ledger::Options::default()
        };
        let ledger = Ledger::open(dir, options)?.written_by(agent.unwrap_or("tenure"));
        let timeout = ledger.claim_timeout()?;
        config.locking.task_timeout = timeout;
        config.locking.run_timeout = timeout;
        let store = Arc::new(LedgerStore::of(ledger));
        Ok(Self::local(store, clock, config, identity(dir)))
    }
}
