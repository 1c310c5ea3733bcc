//! What the kernel says of processes, asked without any code of tenure's.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Sends a signal to a process that a test started. That it is gone is no error.
pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let _ = kill_process(pid, signal);
}

/// Whether a process runs. One that has ended and was not waited for does not.
pub fn alive(pid: u32) -> bool {
    state(pid).is_some_and(|(state, _)| !matches!(state.as_str(), "Z" | "X"))
}

/// The process group of a process.
pub fn group_of(pid: u32) -> Option<u32> {
    state(pid).map(|(_, group)| group)
}

/// Every process of a group that runs.
pub fn members(group: u32) -> Vec<u32> {
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
