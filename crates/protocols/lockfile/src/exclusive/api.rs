//! The protocol's library calls, and the check that a daemon makes at the start of every cycle.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use tenure_core::{HolderId, Liveness, Reap, Store, StoreError, Verdict};

use super::{ExclusiveStore, liveness_by_protocol};
use tenure_host::files::Options;

/// How often to check again while other programs replace the lock each time.
const ATTEMPTS: usize = 16;

/// How long one call of the store may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What a daemon does with a database, and why.
///
/// It displays as the protocol's log line, which is empty for [`Check::Free`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Check {
    /// Proceed: the lock is free.
    Free,
    /// Skip: the lock is held, or may be.
    Skip {
        /// The holder.
        holder: HolderId,
    },
    /// Proceed: the holder was proven dead, and the lock was removed.
    RemovedStale {
        /// The dead holder.
        holder: HolderId,
    },
    /// Skip: the lock can't be checked.
    CheckFailed {
        /// Why.
        reason: String,
    },
}

impl Check {
    /// Whether the daemon must skip the database.
    pub fn skips(&self) -> bool {
        match self {
            Self::Free | Self::RemovedStale { .. } => false,
            Self::Skip { .. } | Self::CheckFailed { .. } => true,
        }
    }

    /// The holder of the lock, if it is known.
    pub fn holder(&self) -> Option<&HolderId> {
        match self {
            Self::Skip { holder } | Self::RemovedStale { holder } => Some(holder),
            Self::Free | Self::CheckFailed { .. } => None,
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => Ok(()),
            Self::Skip { holder } => write!(f, "Skipping database (locked by {holder})"),
            Self::RemovedStale { holder } => {
                write!(f, "Removed stale lock ({holder}), proceeding with sync")
            }
            Self::CheckFailed { reason } => {
                write!(f, "Skipping database (lock check failed: {reason})")
            }
        }
    }
}

/// Checks whether a daemon must skip the database in this folder. Removes a lock whose holder is
/// proven dead, and never a lock that has replaced it meanwhile.
///
/// ```
/// use tenure_lockfile::{Check, ExclusiveLock, should_skip_database};
///
/// let dir = tempfile::tempdir().unwrap();
/// assert_eq!(should_skip_database(dir.path()), Check::Free);
///
/// let lock = ExclusiveLock::for_this_process("my-tool", None).unwrap();
/// std::fs::write(dir.path().join(".exclusive-lock"), lock.to_json()).unwrap();
/// let check = should_skip_database(dir.path());
/// assert!(check.skips());
/// assert_eq!(check.to_string(), "Skipping database (locked by my-tool)");
/// ```
pub fn should_skip_database(dir: &Path) -> Check {
    // Without the folder there is no lock. The daemon reports a missing folder itself.
    if matches!(dir.try_exists(), Ok(false)) {
        return Check::Free;
    }
    match ExclusiveStore::open(dir, Options::default()) {
        Ok(store) => check(&store),
        Err(error) => failed(&error),
    }
}

/// Like [`should_skip_database`], for a store that is open.
pub fn check(store: &ExclusiveStore) -> Check {
    let attempt = || -> Result<Check, StoreError> {
        let mut last = Check::Free;
        for _ in 0..ATTEMPTS {
            let snapshot = store.inspect(store.key(), deadline())?;
            let Some((lease, verdict)) = snapshot.lease().cloned() else {
                return Ok(Check::Free);
            };
            let holder = lease.holder.id;
            let flaw = || store.found().and_then(|found| found.flaw);
            if verdict == Verdict::Malformed
                && let Some(reason) = flaw()
            {
                return Ok(Check::CheckFailed { reason });
            }
            last = Check::Skip { holder };
            if verdict.ended().is_none() {
                break;
            }
            if let Some(reaped) = store.reap(Reap::Free, deadline())?.pop() {
                let holder = reaped.lease.holder.id;
                return Ok(Check::RemovedStale { holder });
            }
        }
        // It is held, or a different lock every time: another program is using it.
        Ok(last)
    };
    attempt().unwrap_or_else(|error| failed(&error))
}

/// The deadline of a call that begins now.
#[expect(
    clippy::disallowed_methods,
    reason = "the deadline of a call is an Instant"
)]
fn deadline() -> Instant {
    Instant::now() + LIMIT
}

fn failed(error: &StoreError) -> Check {
    Check::CheckFailed {
        reason: error.to_string(),
    }
}

/// Whether a process is alive, by the protocol's rule: a process on another machine counts as alive,
/// and so does one that may not be signalled.
///
/// ```
/// use tenure_lockfile::is_process_alive;
///
/// assert!(is_process_alive(std::process::id(), "some-other-host"));
/// let here = tenure_host::identity::host();
/// assert!(is_process_alive(std::process::id(), &here.to_uppercase()));
/// assert!(!is_process_alive(i32::MAX as u32, here));
/// ```
pub fn is_process_alive(pid: u32, hostname: &str) -> bool {
    pid > 0
        && !matches!(
            liveness_by_protocol(i64::from(pid), hostname),
            Liveness::Gone(_)
        )
}
