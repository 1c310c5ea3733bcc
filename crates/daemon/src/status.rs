//! Whether a daemon runs, as seen by another process: [`DaemonStatus::read`].

use std::io;
use std::path::Path;
use std::time::Duration;

use tenure_host::identity;
use tenure_host::pidfd::{is_being_killed, open_pidfd};

use crate::lock::is_held;
use crate::state::DaemonState;
use crate::stop::await_end;

/// The pause between two looks at a daemon that is starting.
const PAUSE: Duration = Duration::from_millis(10);

/// How many looks a starting daemon gets to record its process: one second in all.
const LOOKS: usize = 100;

/// What is known about a project's daemon.
#[derive(Debug, Clone)]
pub enum DaemonStatus {
    /// It runs.
    Running(Box<DaemonState>),
    /// The lock is held, but no live process is on record: the daemon is starting or stopping.
    Unidentified,
    /// None runs. The state of the last one, if there was one.
    NotRunning(Option<Box<DaemonState>>),
}

impl DaemonStatus {
    /// The status of the daemon for the project with this `.tenure` folder.
    pub fn read(folder: &Path) -> io::Result<Self> {
        for _ in 0..LOOKS {
            if !is_held(folder)? {
                // A damaged file of a daemon that is gone is of no use to anyone.
                let last = DaemonState::read(folder).ok().flatten();
                return Ok(Self::NotRunning(last.map(Box::new)));
            }
            if let Some(state) = live_state(folder)? {
                return Ok(Self::Running(Box::new(state)));
            }
            // The daemon has its lock and has not recorded its process yet.
            std::thread::sleep(PAUSE);
        }
        Ok(Self::Unidentified)
    }
}

/// How long a daemon that was killed may take to end.
const DYING: Duration = Duration::from_secs(10);

/// The recorded state, unless it belongs to a daemon that has ended. Waits for one that was killed a moment ago: until
/// its process has ended, it has the lock.
pub(crate) fn live_state(folder: &Path) -> io::Result<Option<DaemonState>> {
    let state = match DaemonState::read(folder) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
        read => read?,
    };
    let Some(state) = state.filter(|state| state.ended.is_none()) else {
        return Ok(None);
    };
    if is_being_killed(&state.process)
        && let Ok(Some(dying)) = open_pidfd(&state.process)
    {
        await_end(&dying, DYING)?;
    }
    Ok((!identity::has_ended(&state.process)).then_some(state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock;

    fn state(process: tenure_core::Process) -> DaemonState {
        DaemonState {
            process,
            version: "1".into(),
            started_at: jiff::Timestamp::UNIX_EPOCH,
            interval_ms: 1,
            log_bytes: None,
            log: String::new(),
            log_error: None,
            cycle_since: None,
            last_cycle: None,
            next_at: None,
            skipped: None,
            ended: None,
        }
    }

    #[test]
    fn only_the_lock_proves_that_a_daemon_runs() {
        let dir = tempfile::tempdir().unwrap();
        let read = || DaemonStatus::read(dir.path()).unwrap();
        assert!(matches!(read(), DaemonStatus::NotRunning(None)));
        // The recorded process is alive, but without the lock it is no daemon.
        state(identity::this_process()).write(dir.path()).unwrap();
        assert!(matches!(read(), DaemonStatus::NotRunning(Some(_))));
        let _lock = lock::try_lock(dir.path()).unwrap();
        assert!(matches!(read(), DaemonStatus::Running(_)));
    }

    #[test]
    fn the_state_of_a_dead_daemon_does_not_describe_the_one_that_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let read = || DaemonStatus::read(dir.path()).unwrap();
        let mut dead = identity::this_process();
        dead.started -= 1;
        state(dead).write(dir.path()).unwrap();
        let _lock = lock::try_lock(dir.path()).unwrap();
        assert!(matches!(read(), DaemonStatus::Unidentified));
        std::fs::write(dir.path().join(crate::state::FILE), "{ torn").unwrap();
        assert!(matches!(read(), DaemonStatus::Unidentified));
    }
}
