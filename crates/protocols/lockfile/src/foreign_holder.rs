//! Holders that another program recorded, in a protocol that knows little more than a pid.
//!
//! A holder is dead, as the protocols define it, if no process has its pid (`ESRCH`). A process that
//! may not be signalled (`EPERM`) is alive.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rustix::process::{Pid, test_kill_process};
use tenure_core::{
    Binding, Doubt, Epoch, Evidence, Holder, HolderId, Key, Lease, Liveness, LivenessId, Mode,
    Process, Token,
};
use tenure_host::identity;

/// Whether a process of this machine has this pid.
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

/// The binding of a lease that another program recorded. It only serves to watch the process that has
/// the pid now; [`liveness`] decides whether the holder is dead.
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

/// A holder id from any text: control characters are replaced, and a long text is cut.
pub(crate) fn holder_id(text: &str) -> HolderId {
    let mut visible: String = text
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    while visible.len() > tenure_core::key::MAX_NAME {
        visible.pop();
    }
    HolderId::parse(visible.trim()).unwrap_or_else(|_| HolderId::unreadable())
}

/// A lease of one holder. It has no end: the protocols have no room for one.
pub(crate) fn lease(key: &Key, holder: Holder, token: Token, acquired_at: Timestamp) -> Lease {
    Lease {
        mode: Mode::Exclusive,
        slot: None,
        key: key.clone(),
        holder,
        token,
        acquired_at,
        expires: None,
        heartbeat_at: acquired_at,
        ttl: Duration::ZERO,
    }
}

/// What ties a lease to the process that tenure recorded.
pub(crate) fn recorded_binding(process: Process, liveness_lock: Option<LivenessId>) -> Binding {
    match liveness_lock {
        Some(lock) => Binding::LivenessLock { lock, process },
        None => Binding::Process { process },
    }
}

/// Device and inode of a lock that exists but can't be read, and when it was last modified; `None` if there is nothing.
pub(crate) fn seen(path: &Path) -> Option<((u64, u64), Timestamp)> {
    match path.symlink_metadata() {
        Ok(known) => Some(((known.dev(), known.ino()), modified(&known))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) => Some(((0, 0), Timestamp::UNIX_EPOCH)),
    }
}

/// When a file or folder was last modified.
pub(crate) fn modified(file: &std::fs::Metadata) -> Timestamp {
    file.modified()
        .ok()
        .and_then(|at| Timestamp::try_from(at).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH)
}
