//! Whether a daemon runs, asked from outside: [`look`].

use std::io;
use std::path::Path;
use std::time::Duration;

use tenure::host::identity;

use crate::lock::is_held;
use crate::state::State;

/// Between two looks at a daemon that is just beginning.
const PAUSE: Duration = Duration::from_millis(10);

/// How many looks it is given: a second.
const LOOKS: usize = 100;

/// What is known of a project's daemon.
#[derive(Debug, Clone)]
pub enum Standing {
    /// It runs.
    Running(Box<State>),
    /// Somebody has the lock, and nothing on record says who.
    Nameless,
    /// None runs. The last one, if there was one.
    NotRunning(Option<Box<State>>),
}

/// Looks whether a daemon runs for the project whose `.tenure` folder this is.
pub fn look(folder: &Path) -> io::Result<Standing> {
    for _ in 0..LOOKS {
        if !is_held(folder)? {
            // What can't be read is nothing to tell of.
            let last = State::read(folder).ok().flatten();
            return Ok(Standing::NotRunning(last.map(Box::new)));
        }
        if let Some(state) = of_the_living(folder)? {
            return Ok(Standing::Running(Box::new(state)));
        }
        // It has the lock and has not yet said who it is.
        std::thread::sleep(PAUSE);
    }
    Ok(Standing::Nameless)
}

/// What is on record, unless it is of a daemon that has ended.
pub(crate) fn of_the_living(folder: &Path) -> io::Result<Option<State>> {
    let state = match State::read(folder) {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => None,
        read => read?,
    };
    Ok(state.filter(|state| state.ended.is_none() && !identity::has_ended(&state.process)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Lock;

    fn state(process: tenure::core::Process) -> State {
        State {
            process,
            version: "1".into(),
            started_at: jiff::Timestamp::UNIX_EPOCH,
            interval_ms: 1,
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
    fn only_the_lock_tells_that_one_runs() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            look(dir.path()).unwrap(),
            Standing::NotRunning(None)
        ));
        // A state that says it lives, and even does: without the lock it is no daemon.
        state(identity::this_process()).write(dir.path()).unwrap();
        assert!(matches!(
            look(dir.path()).unwrap(),
            Standing::NotRunning(Some(_))
        ));
        let _lock = Lock::take(dir.path()).unwrap().unwrap();
        assert!(matches!(look(dir.path()).unwrap(), Standing::Running(_)));
    }

    #[test]
    fn what_a_dead_one_wrote_is_not_believed_of_the_one_that_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let mut dead = identity::this_process();
        dead.started -= 1;
        state(dead).write(dir.path()).unwrap();
        let _lock = Lock::take(dir.path()).unwrap().unwrap();
        assert!(matches!(look(dir.path()).unwrap(), Standing::Nameless));
        std::fs::write(dir.path().join(crate::state::FILE), "{ torn").unwrap();
        assert!(matches!(look(dir.path()).unwrap(), Standing::Nameless));
    }
}
