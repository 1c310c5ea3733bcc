//! The processes of this machine, and what they have open or locked: [`Processes`].
//!
//! A process of another user can't be examined without privileges. That is on record for each process, so that
//! "no process has it open" is said only where it is known.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure::wire::{Connection, ForeignProcessJson};
use tenure_core::{Clock, Moment};
use tenure_host::{HostClock, identity};

/// The pid namespace that every machine starts with. Only from there all processes can be seen.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// How many characters of a command are kept.
const MOST_COMMAND: usize = 200;

/// How long a list of locks certainly comes from the kernel at once.
const SHORT_LIST: usize = 2_000;

/// How much later than its file a process may have started: the clock of files is coarse.
const SLACK: SignedDuration = SignedDuration::from_secs(2);

/// A file, by its device and inode.
pub type FileId = (u64, u64);

/// A process of this machine.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its pid.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its command line.
    pub command: String,
    /// The name of its program.
    pub program: String,
    /// When it started.
    pub started: Option<Timestamp>,
    /// Its current folder, if that can be read.
    pub folder: Option<PathBuf>,
    /// Whether its open files can be listed.
    pub readable: bool,
}

impl Seen {
    /// This process, as one that is connected with a lock of another tool.
    pub(crate) fn connected(&self, how: Connection) -> ForeignProcessJson {
        ForeignProcessJson {
            pid: self.pid,
            command: Some(self.command.clone()),
            how,
        }
    }

    /// Whether it may have made a file that was last changed then.
    pub fn may_have_made(&self, changed: Timestamp) -> bool {
        self.started.is_none_or(|at| at <= changed + SLACK)
    }
}

/// The processes of this machine, as far as this user may see them.
#[derive(Debug)]
pub struct Processes {
    /// All of them.
    pub all: Vec<Seen>,
    locks: io::Result<Vec<(u32, FileId)>>,
}

impl Processes {
    /// Reads `/proc`.
    pub fn read() -> Self {
        let now = HostClock::new().now();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let all = pids.filter_map(|pid| see(pid, &now)).collect();
        Self {
            all,
            locks: held_locks(),
        }
    }

    /// Why it is not known which process has a kernel lock, if it is not.
    pub fn locks_error(&self) -> Option<&io::Error> {
        self.locks.as_ref().err()
    }

    /// The processes that have this file open.
    pub fn having_open(&self, path: &Path, file: FileId) -> Vec<&Seen> {
        let readable = self.all.iter().filter(|process| process.readable);
        readable
            .filter(|process| has_open(process.pid, path, file))
            .collect()
    }

    /// The processes that have a kernel lock on this file.
    pub fn having_locked(&self, path: &Path, file: FileId) -> Vec<&Seen> {
        let holders = self.locks.iter().flatten();
        let holders = holders.filter(|(_, locked)| locked.1 == file.1);
        let mut found: Vec<&Seen> = Vec::new();
        for (pid, locked) in holders {
            // Some file systems show another device in the list of locks than a file's own.
            let is_it = locked.0 == file.0 || has_open(*pid, path, file);
            let process = self.all.iter().find(|process| process.pid == *pid);
            if let Some(process) = process.filter(|_| is_it)
                && !found.iter().any(|other| other.pid == *pid)
            {
                found.push(process);
            }
        }
        found
    }

    /// Whether they are all processes of this machine. In a container, and where `/proc` hides the processes of other
    /// users, they are not.
    pub fn are_all(&self) -> bool {
        identity::namespace() == FIRST_NAMESPACE && self.with_pid(1).is_some()
    }

    /// The process with this pid.
    pub fn with_pid(&self, pid: u32) -> Option<&Seen> {
        self.all.iter().find(|process| process.pid == pid)
    }
}

fn see(pid: u32, now: &Moment) -> Option<Seen> {
    let started = match identity::start_time(pid) {
        // A process that has exited and was not waited for has nothing open.
        Ok(None) => return None,
        Ok(started) => started,
        // It can't be examined, but it is there.
        Err(_) => None,
    };
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let uid = fs::metadata(&folder).ok()?.uid();
    let words = fs::read(folder.join("cmdline")).unwrap_or_default();
    let program = fs::read_to_string(folder.join("comm")).unwrap_or_default();
    let program = program.trim_end().to_owned();
    let words = String::from_utf8_lossy(&words).replace('\0', " ");
    let command: String = words.trim_end().chars().take(MOST_COMMAND).collect();
    Some(Seen {
        pid,
        uid,
        command: if command.is_empty() {
            format!("[{program}]")
        } else {
            command
        },
        program,
        started: started.and_then(|started| began(now, started)),
        folder: fs::read_link(folder.join("cwd")).ok(),
        readable: fs::read_dir(folder.join("fd")).is_ok(),
    })
}

/// The time of a start that is counted in hundredths of a second since boot.
fn began(now: &Moment, ticks: u64) -> Option<Timestamp> {
    let since = now.ticks.checked_sub(Duration::from_millis(ticks * 10))?;
    now.wall
        .checked_sub(SignedDuration::try_from(since).ok()?)
        .ok()
}

fn has_open(pid: u32, path: &Path, file: FileId) -> bool {
    let mut open = entries(format!("/proc/{pid}/fd"));
    if open.is_empty() {
        // The main thread has nothing open once it has exited, although other threads of the process work.
        let mut threads = entries(format!("/proc/{pid}/task")).into_iter();
        let of_thread = |thread: fs::DirEntry| entries(thread.path().join("fd"));
        open = threads
            .find_map(|thread| Some(of_thread(thread)).filter(|open| !open.is_empty()))
            .unwrap_or_default();
    }
    open.into_iter().any(|entry| {
        let fd = entry.path();
        // The name first: asking for the state of a file on a server that does not answer would block.
        let named = fs::read_link(&fd).is_ok_and(|to| to.file_name() == path.file_name());
        named && fs::metadata(&fd).is_ok_and(|open| (open.dev(), open.ino()) == file)
    })
}

fn entries(folder: impl AsRef<Path>) -> Vec<fs::DirEntry> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .collect()
}

/// Every kernel lock that is held. The kernel prints a long list page by page, and leaves out a lock if an earlier one
/// is released between two pages. So a long list is read twice: a lock that both readings leave out is unlikely.
fn held_locks() -> io::Result<Vec<(u32, FileId)>> {
    let read = || fs::read_to_string("/proc/locks");
    let mut table = read()?;
    if table.len() > SHORT_LIST {
        table += &read()?;
    }
    Ok(table.lines().filter_map(held_lock).collect())
}

/// A line of `/proc/locks`, if the lock is held: `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`.
fn held_lock(line: &str) -> Option<(u32, FileId)> {
    let mut words = line.split_ascii_whitespace();
    words.next()?;
    // A waiter's line has `->` here.
    if words.next()? == "->" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok()?;
    let mut file = words.next()?.split(':');
    let mut number = || u32::from_str_radix(file.next()?, 16).ok();
    let device = rustix::fs::makedev(number()?, number()?);
    let inode = file.next()?.parse().ok()?;
    Some((pid, (device, inode)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_lock_table_is_read_and_a_waiter_is_skipped() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 08:11:5678 0 EOF";
        let device = rustix::fs::makedev(8, 17);
        assert_eq!(held_lock(line), Some((4711, (device, 5678))));
        assert_eq!(
            held_lock("3: -> FLOCK  ADVISORY  WRITE 4711 08:11:5678 0 EOF"),
            None
        );
        assert_eq!(held_lock("nonsense"), None);
    }

    #[test]
    fn where_the_first_process_is_hidden_not_all_are_seen() {
        let mut processes = Processes::read();
        assert_eq!(
            processes.are_all(),
            identity::namespace() == FIRST_NAMESPACE && processes.with_pid(1).is_some()
        );
        processes.all.retain(|process| process.pid != 1);
        assert!(!processes.are_all());
    }

    #[test]
    fn the_process_that_has_a_file_open_and_locked_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.lock");
        let file = fs::File::create(&path).unwrap();
        file.lock().unwrap();
        let at = fs::metadata(&path).unwrap();
        let id = (at.dev(), at.ino());
        let processes = Processes::read();
        let us = std::process::id();
        let pids = |seen: Vec<&Seen>| seen.iter().map(|seen| seen.pid).collect::<Vec<_>>();
        assert!(pids(processes.having_open(&path, id)).contains(&us));
        assert!(pids(processes.having_locked(&path, id)).contains(&us));
        drop(file);
        assert!(Processes::read().having_locked(&path, id).is_empty());
        let process = processes.with_pid(us).unwrap();
        assert!(process.may_have_made(HostClock::new().now().wall));
    }
}
