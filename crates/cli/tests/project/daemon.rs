//! Daemons that a test starts, their log, and lock files as other tools write them.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use super::{Project, process, until};

/// A pid that no process has: above the largest that a kernel gives.
pub(crate) const NOBODY: u32 = (1 << 22) + 1;

/// A daemon in the background. Dropping it kills that process, never another one with the same pid.
#[must_use]
pub(crate) struct Detached {
    pub(crate) pid: u32,
    process: OwnedFd,
}

impl Detached {
    pub(crate) fn of(pid: u32) -> Self {
        let raw = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        Self {
            pid,
            process: pidfd_open(raw, PidfdFlags::empty()).unwrap(),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.process, signal);
    }

    pub(crate) fn runs(&self) -> bool {
        process::alive(self.pid)
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Project {
    /// Starts a daemon in the background, with these arguments.
    #[track_caller]
    pub(crate) fn daemon(&self, words: &str) -> Detached {
        let said = self
            .tenure(&format!("daemon start --json {words}"))
            .exits(0);
        let pid = said.json()["data"]["pid"].as_u64().unwrap();
        Detached::of(u32::try_from(pid).unwrap())
    }

    /// The status that the daemon reports.
    #[track_caller]
    pub(crate) fn daemon_status(&self) -> Value {
        let said = self.tenure("daemon status --json");
        let status = said.json()["data"].clone();
        said.exits(if status["running"] == true { 0 } else { 3 });
        status
    }

    /// The lines of all log files, oldest first, without their times.
    pub(crate) fn logged(&self) -> Vec<String> {
        let names = ["daemon.log.3", "daemon.log.2", "daemon.log.1", "daemon.log"];
        let text: String = names
            .iter()
            .map(|name| fs::read_to_string(self.state().join(name)).unwrap_or_default())
            .collect();
        let line = |line: &str| line.split_once(' ').unwrap_or(("", line)).1.to_owned();
        text.lines().map(line).collect()
    }

    /// Waits until a line with this text is in the log after the first `after` lines; returns its position.
    #[track_caller]
    pub(crate) fn until_logged(&self, words: &str, after: usize) -> usize {
        let mut found = None;
        until(&format!("{words:?} is in the log"), || {
            let lines = self.logged();
            let mut fresh = lines.iter().enumerate().skip(after);
            found = fresh
                .find(|(_, line)| line.contains(words))
                .map(|(at, _)| at);
            found.is_some()
        });
        found.unwrap()
    }

    /// A lock file in a folder of the project.
    pub(crate) fn lock_file(&self, folder: &str) -> PathBuf {
        self.path(folder).join(".exclusive-lock")
    }
}

/// A lock file as another tool writes it.
pub(crate) fn lock_text(holder: &str, pid: u32) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_str().unwrap();
    format!(
        "{{\n  \"holder\": \"{holder}\",\n  \"pid\": {pid},\n  \"hostname\": \"{host}\",\n  \"started_at\": \"2025-10-25T12:00:00Z\",\n  \"version\": \"1.0.0\"\n}}"
    )
}

/// Writes a lock file as a careful tool would: atomically, in place of any that is there.
pub(crate) fn put(place: &Path, text: impl AsRef<[u8]>) {
    let temp = place.with_file_name("tool.tmp");
    fs::write(&temp, text).unwrap();
    fs::rename(&temp, place).unwrap();
}
