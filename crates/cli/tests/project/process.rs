//! What the kernel says of processes, read without any code of tenure's.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::until;

/// Sends a signal to a process that a test started. It is no error if the process has ended.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}

/// Whether a process runs. A zombie does not.
pub(crate) fn alive(pid: u32) -> bool {
    state(pid).is_some_and(|(state, _)| !matches!(state.as_str(), "Z" | "X"))
}

/// The process group of a process.
pub(crate) fn group_of(pid: u32) -> Option<u32> {
    state(pid).map(|(_, group)| group)
}

/// Whether a process is stopped, as by SIGSTOP or Ctrl+Z.
pub(crate) fn is_stopped(pid: u32) -> bool {
    state(pid).is_some_and(|(state, _)| state == "T")
}

/// Whether a process may go on by itself. One that is stopped can't, nor can a zombie whose parent is
/// stopped, nor a shell that waits (`D`) until the child that shares its memory executes another program.
pub(crate) fn may_go_on(pid: u32) -> bool {
    state(pid).is_some_and(|(state, _)| !matches!(state.as_str(), "T" | "Z" | "X" | "D"))
}

/// Waits until all threads of a process, more than one, are asleep and stay so: all that it sets up
/// by itself is set up.
#[track_caller]
pub(crate) fn until_idle(pid: u32) {
    let (mut before, mut same) = (Vec::new(), 0);
    until("the process is idle", || {
        let now = threads(pid);
        let idle = now.len() > 1 && now == before && now.iter().all(|(state, _)| state == "S");
        same = if idle { same + 1 } else { 0 };
        before = now;
        same == 8
    });
}

/// The state of each thread of a process, and how often it went to sleep.
fn threads(pid: u32) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let status = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("status")).ok();
    entries
        .filter_map(|entry| status(entry.ok()?))
        .map(|status| {
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|line| line.split_whitespace().next())
                    .unwrap_or_default()
                    .to_owned()
            };
            (field("State:"), field("voluntary_ctxt_switches:"))
        })
        .collect()
}

/// Whether a process has a thread of this name.
pub(crate) fn has_thread(pid: u32, name: &str) -> bool {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let mut names = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("comm")).ok());
    names.any(|found| found.trim_end() == name)
}

/// Every process of a group that runs.
pub(crate) fn members(group: u32) -> Vec<u32> {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| group_of(*pid) == Some(group) && alive(*pid))
        .collect()
}

fn state(pid: u32) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.to_owned();
    let group = fields.nth(1)?.parse().ok()?;
    Some((state, group))
}
