//! Identifies a process across pid reuse, reboots and containers: pid, start time, boot, namespace and host.
//!
//! A pid alone identifies nothing: the kernel reuses it.

use std::fs;
use std::io;
use std::sync::OnceLock;

use tenure_core::{Epoch, Process};

use crate::clock::boot_offset;

/// The current boot. Unknown where the kernel does not report it.
pub fn boot() -> &'static Epoch {
    static BOOT: OnceLock<Epoch> = OnceLock::new();
    BOOT.get_or_init(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| Epoch::unknown(), |text| Epoch(text.trim().to_owned()))
    })
}

/// The name of this machine or container.
pub fn host() -> &'static str {
    static HOST: OnceLock<String> = OnceLock::new();
    HOST.get_or_init(|| {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    })
}

/// This process's pid namespace; empty where the kernel does not report it.
pub fn namespace() -> &'static str {
    static NAMESPACE: OnceLock<String> = OnceLock::new();
    NAMESPACE.get_or_init(|| {
        fs::read_link("/proc/self/ns/pid")
            .map(|link| link.to_string_lossy().into_owned())
            .unwrap_or_default()
    })
}

/// This process.
pub fn this_process() -> Process {
    static SELF: OnceLock<Process> = OnceLock::new();
    let pid = std::process::id();
    let describe_self = || describe(pid, start_time(pid).ok().flatten().unwrap_or(0));
    let cached = SELF.get_or_init(describe_self);
    // A fork has a copy of its parent's memory, but is another process.
    if cached.pid == pid {
        cached.clone()
    } else {
        describe_self()
    }
}

/// The process that has this pid now; `None` if there is none.
pub fn process(pid: u32) -> io::Result<Option<Process>> {
    Ok(start_time(pid)?.map(|started| describe(pid, started)))
}

fn describe(pid: u32, started: u64) -> Process {
    Process {
        pid,
        started,
        boot: boot().clone(),
        namespace: namespace().to_owned(),
        host: host().to_owned(),
    }
}

/// Whether a process of this machine is proven to have ended.
pub fn has_ended(process: &Process) -> bool {
    process.boot.same(boot())
        && process.namespace == namespace()
        && start_time(process.pid).is_ok_and(|started| started != Some(process.started))
}

/// When the process with this pid started, in ticks since boot; `None` if there is no such
/// process. A zombie counts as gone once it is the last thread of its process: it holds nothing and never
/// runs again. A process whose main thread has exited shows as a zombie, too, while its other threads work.
pub fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let fields = match fields(pid) {
        Ok(fields) => fields,
        // ESRCH: it ended between open and read.
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                || error.raw_os_error() == Some(libc::ESRCH) =>
        {
            return confirm_gone(pid);
        }
        Err(error) => return Err(error),
    };
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next().unwrap_or_default();
    // The kernel counts under the same lock as it reports the state; a listing of /proc/PID/task can miss a thread.
    let threads = fields.nth(16).and_then(|field| field.parse::<u64>().ok());
    let started = fields.nth(1).and_then(|field| field.parse().ok());
    let (Some(threads), Some(started)) = (threads, started) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "no start time in the process state",
        ));
    };
    if matches!(state, "Z" | "X" | "x") && threads <= 1 {
        return Ok(None);
    }
    Ok(Some(in_machine_time(started)))
}

/// The fields of `/proc/PID/stat` behind the program's name, which is in brackets, may hold any byte, and may end within
/// a letter: the kernel cuts it off.
pub(crate) fn fields(pid: u32) -> io::Result<String> {
    let mut bytes = fs::read(format!("/proc/{pid}/stat"))?;
    let name = bytes.iter().rposition(|byte| *byte == b')');
    let rest = bytes.split_off(name.map_or(bytes.len(), |at| at + 1));
    String::from_utf8(rest).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// A start time as the machine's own time namespace shows it.
fn in_machine_time(started: u64) -> u64 {
    /// What `/proc` counts start times in, for each second.
    const TICKS: i64 = 100;
    started.saturating_add_signed(boot_offset().saturating_mul(-TICKS))
}

/// A missing `/proc/PID` proves nothing if `/proc` is not mounted or hides other users' processes
/// (`hidepid`). So this asks the kernel too, and only "no such process" proves an exit.
fn confirm_gone(pid: u32) -> io::Result<Option<u64>> {
    let raw = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    let Some(raw) = raw else { return Ok(None) };
    match rustix::process::test_kill_process(raw) {
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Ok(()) | Err(_) => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the process exists but its state can't be read",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_whatever_bytes_its_name_has() {
        let dir = tempfile::tempdir().unwrap();
        // The kernel keeps 15 bytes, the last of which is half a letter.
        let program = dir.path().join("prüfen-äääää");
        std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
        let mut child = std::process::Command::new(program)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let found = process(child.id());
        let above = crate::ancestors::parent(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(found.unwrap().unwrap().pid, child.id());
        assert_eq!(above, Some(std::process::id()));
    }

    #[test]
    fn this_process_is_found_by_its_pid() {
        let us = this_process();
        assert_eq!(process(us.pid).unwrap(), Some(us));
    }

    #[test]
    fn a_process_that_has_exited_is_gone_even_before_it_is_waited_for() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while start_time(pid).unwrap().is_some() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(start_time(pid).unwrap(), None);
    }

    #[test]
    fn a_process_whose_main_thread_has_exited_is_alive_until_its_last_thread_exits() {
        use std::io::{Read, Write};
        use std::process::Stdio;

        const PROGRAM: &str = "#include <pthread.h>\n#include <unistd.h>\n\
            static void *work(void *a) { char c; write(1, \"w\", 1); read(0, &c, 1); _exit(0); return a; }\n\
            int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); pthread_exit(0); }\n";
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("leader.c"), dir.path().join("leader"));
        fs::write(&source, PROGRAM).unwrap();
        let built = std::process::Command::new("cc")
            .args(["-pthread", "-w", "-o"])
            .args([&program, &source])
            .status();
        assert!(built.unwrap().success());
        let mut child = std::process::Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        let mut works = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut works)
            .unwrap();
        let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !state().contains(") Z ") {
            std::thread::yield_now();
        }
        let process = process(pid).unwrap().expect("its other thread works");
        assert!(!has_ended(&process));
        assert!(crate::pidfd::open_pidfd(&process).unwrap().is_some());
        child.stdin.take().unwrap().write_all(b"x").unwrap();
        while !has_ended(&process) {
            std::thread::yield_now();
        }
        assert!(state().contains(") Z "), "nobody waited for it");
        child.wait().unwrap();
    }

    #[test]
    fn a_program_name_with_brackets_and_spaces_is_parsed() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a) b (c");
        fs::copy("/bin/sleep", &odd).unwrap();
        let mut child = std::process::Command::new(&odd).arg("30").spawn().unwrap();
        let found = start_time(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.unwrap().unwrap() > 0);
    }
}
