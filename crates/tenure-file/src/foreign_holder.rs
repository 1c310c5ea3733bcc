//! Holders that another program wrote down, in a protocol that knows pids and little else.
//!
//! Death is what the protocols call it: no process has the pid (`ESRCH`). Whoever may not be
//! signalled (`EPERM`) is there.

use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Pid, test_kill_process};
use tenure_core::{Binding, Doubt, Epoch, Evidence, HolderId, Liveness, Process};
use tenure_host::identity;

/// How long a lease of somebody else lasts: for as long as it stands there.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// What can be said of the process of this machine that has this pid.
pub(crate) fn liveness(pid: i64) -> Liveness {
    let raw = i32::try_from(pid).ok().filter(|pid| *pid > 0);
    let (Some(raw), Ok(shown)) = (raw.and_then(Pid::from_raw), u32::try_from(pid)) else {
        return Liveness::Unverifiable(Doubt::Unreadable);
    };
    match test_kill_process(raw) {
        Err(rustix::io::Errno::SRCH) => Liveness::Gone(Evidence::ProcessGone { pid: shown }),
        Ok(()) | Err(_) => Liveness::Running,
    }
}

/// What to watch for the end of such a process: the one that has the pid now. Nobody judges by it.
pub(crate) fn binding(pid: i64, host: &str, is_here: bool) -> Binding {
    let pid = u32::try_from(pid).unwrap_or(0);
    let here = is_here
        .then(|| identity::process(pid).ok().flatten())
        .flatten();
    let process = here.unwrap_or_else(|| Process {
        pid,
        started: 0,
        boot: Epoch::unknown(),
        namespace: String::new(),
        host: host.to_owned(),
    });
    Binding::Process { process }
}

/// A name that can be shown on one line.
pub(crate) fn name(text: &str) -> HolderId {
    let mut visible: String = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    while visible.len() > tenure_core::key::MAX_NAME {
        visible.pop();
    }
    HolderId::parse(visible.trim()).unwrap_or_else(|_| HolderId::unreadable())
}

/// When a file or folder was last written.
pub(crate) fn written(file: &std::fs::Metadata) -> Timestamp {
    file.modified()
        .ok()
        .and_then(|at| Timestamp::try_from(at).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH)
}
