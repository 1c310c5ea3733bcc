//! The library calls of the seed, and the check that a daemon makes at the start of every cycle.

use std::fmt;
use std::path::Path;

use tenure_core::{HolderId, Key, Liveness, Reap, Store, StoreError, Verdict};

use super::{ExclusiveStore, seed_rules};
use tenure_host::files::Options;

/// How often to look again when something else stands there each time.
const TRIES: usize = 16;

/// What a daemon does with a database, and why.
///
/// Its text is the seed's log line; nothing for [`Check::Free`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Check {
    /// Proceed: nobody holds it.
    Free,
    /// Skip it: somebody holds it, or may.
    Skip {
        /// Who.
        holder: HolderId,
    },
    /// Proceed: its holder was proven dead, and the lock has been removed.
    RemovedStale {
        /// Who it was.
        holder: HolderId,
    },
    /// Skip it: nobody knows who holds it.
    CheckFailed {
        /// Why.
        reason: String,
    },
}

impl Check {
    /// Whether the database is to be left alone.
    pub fn skips(&self) -> bool {
        match self {
            Self::Free | Self::RemovedStale { .. } => false,
            Self::Skip { .. } | Self::CheckFailed { .. } => true,
        }
    }

    /// Whose lock it is or was, if that is known.
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

/// Whether a daemon has to leave the database in this folder alone. A lock whose holder is proven
/// dead is removed, and never one that replaced it meanwhile.
///
/// ```
/// use tenure_file::{Check, ExclusiveLock, should_skip_database};
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
    // No folder, no lock: the daemon itself will tell what else is wrong.
    if matches!(dir.try_exists(), Ok(false)) {
        return Check::Free;
    }
    match ExclusiveStore::open(dir, Options::default()) {
        Ok(store) => check(&store),
        Err(error) => failed(&error),
    }
}

/// The same for a store that is open: the check at the start of a cycle.
pub fn check(store: &ExclusiveStore) -> Check {
    let attempt = || -> Result<Check, StoreError> {
        let key = store.key().clone();
        let mut last = Check::Free;
        for _ in 0..TRIES {
            last = match judge(store, &key)? {
                Judged::Settled(check) => return Ok(check),
                Judged::Stale(holder) => Check::Skip { holder },
            };
            if let Some(reaped) = store.reap(Reap::Free)?.pop() {
                let holder = reaped.lease.holder.id;
                return Ok(Check::RemovedStale { holder });
            }
        }
        // Something else every time: somebody is at work there.
        Ok(last)
    };
    attempt().unwrap_or_else(|error| failed(&error))
}

enum Judged {
    Settled(Check),
    Stale(HolderId),
}

fn judge(store: &ExclusiveStore, key: &Key) -> Result<Judged, StoreError> {
    let Some((lease, verdict)) = store.inspect(key)?.lease else {
        return Ok(Judged::Settled(Check::Free));
    };
    let holder = lease.holder.id;
    Ok(match verdict {
        Verdict::Dead(_) | Verdict::Expired(_) => Judged::Stale(holder),
        Verdict::Alive | Verdict::Unknown(_) => Judged::Settled(Check::Skip { holder }),
        Verdict::Malformed => Judged::Settled(match store.found().and_then(|found| found.flaw) {
            Some(reason) => Check::CheckFailed { reason },
            None => Check::Skip { holder },
        }),
    })
}

fn failed(error: &StoreError) -> Check {
    Check::CheckFailed {
        reason: error.to_string(),
    }
}

/// Whether a process runs, as far as the protocol can tell: one on another machine counts as running,
/// and so does one that may not be signalled.
///
/// ```
/// use tenure_file::is_process_alive;
///
/// assert!(is_process_alive(std::process::id(), "some-other-host"));
/// let here = tenure_host::identity::host();
/// assert!(is_process_alive(std::process::id(), &here.to_uppercase()));
/// assert!(!is_process_alive(i32::MAX as u32, here));
/// ```
pub fn is_process_alive(pid: u32, hostname: &str) -> bool {
    pid > 0 && !matches!(seed_rules(i64::from(pid), hostname), Liveness::Gone(_))
}
