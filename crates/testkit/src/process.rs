//! A real process that a test can kill, stop and continue: [`Process`].
//!
//! It is the same test binary, started again for one of its tests. Its job comes in an environment
//! variable; its reports are marked lines among those that the test harness prints.
//!
//! 1. It starts with default signals, however the test itself was started.
//! 2. It does not outlive the test process, even if that is killed.
//! 3. The state of a pid is read from `/proc` by this file alone: a witness must not depend on the code
//!    that it judges.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use crate::default_signals;
use crate::limit::{LIMIT, within_limit};

/// The variable that holds the job.
const JOB: &str = "TENURE_BATTERY_JOB";

/// The variable that holds the pid of the test process.
const PARENT: &str = "TENURE_BATTERY_PARENT";

/// What precedes a report on its line; the harness may have written something before it.
const MARK: &str = "#report ";

/// A process that this test started. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    reports: Receiver<String>,
}

impl Process {
    /// Starts this test binary again for the named test, with a job. The calling thread must live as
    /// long as the process should: the parent-death signal comes when that thread ends.
    pub fn start(test: &str, job: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(JOB, job)
            .env(PARENT, std::process::id().to_string());
        Self::spawn(&mut command)
    }

    /// The same through a command that runs its last arguments, such as `unshare` or `setpriv`.
    pub fn start_through(through: &mut Command, test: &str, job: &str) -> Self {
        through
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(JOB, job);
        Self::spawn(through)
    }

    fn spawn(command: &mut Command) -> Self {
        let mut child = default_signals(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, reports) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, report)) = line.split_once(MARK)
                    && tell.send(report.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        Self {
            orders: child.stdin.take(),
            child,
            reports,
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes a line to its input.
    pub fn tell(&mut self, line: &str) {
        let orders = self.orders.as_mut().expect("the input is closed");
        writeln!(orders, "{line}").expect("the process does not read its input");
    }

    /// Closes its input.
    pub fn tell_no_more(&mut self) {
        self.orders = None;
    }

    /// Waits for its next report. Fails if the process ends first, or after [`LIMIT`].
    pub fn report(&self) -> String {
        match self.reports.recv_timeout(LIMIT) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => panic!("pid {}: no report in {LIMIT:?}", self.pid()),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("pid {} ended without the report", self.pid())
            }
        }
    }

    /// The next report, if there is one already.
    pub fn try_report(&self) -> Option<String> {
        self.reports.try_recv().ok()
    }

    /// Sends SIGKILL and reaps the process.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGKILL and leaves a zombie.
    pub fn kill_and_leave(&mut self) {
        self.child.kill().unwrap();
    }

    /// Sends SIGSTOP and waits until the process is stopped.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        within_limit("the process to stop", || {
            !matches!(state(self.pid()), Some(State::Running))
        });
    }

    /// Sends SIGCONT.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Whether it has ended. Fails if it did not end with success.
    pub fn has_ended(&mut self) -> bool {
        match self.child.try_wait().unwrap() {
            None => false,
            Some(status) if status.success() => true,
            Some(status) => panic!("pid {} failed: {status}", self.pid()),
        }
    }

    /// Waits until it has ended with success.
    pub fn wait_for_end(&mut self) {
        within_limit("the process to end", || self.has_ended());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a process that a test started: its job. From here on it ends when the test process ends.
pub fn job() -> Option<String> {
    let job = std::env::var(JOB).ok()?;
    if let Ok(test) = std::env::var(PARENT) {
        set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
        let parent = getppid().map(|pid| pid.as_raw_nonzero().to_string());
        assert_eq!(parent, Some(test), "the test process has ended already");
    }
    Some(job)
}

/// In a process that a test started: reports a line.
pub fn report(line: &str) {
    println!("{MARK}{line}");
}

/// The state of a process that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs, or can run at any moment.
    Running,
    /// It is stopped until SIGCONT.
    Stopped,
}

/// A bit of the flags in `/proc/PID/stat`: the process has executed its last instruction.
const EXITING: u64 = 0x4;

/// The state of a process; `None` once it will never run again.
pub fn state(pid: u32) -> Option<State> {
    look(pid).map(|(state, _)| state)
}

/// When the process started, in ticks since boot; `None` once it will never run again.
pub fn started(pid: u32) -> Option<u64> {
    look(pid).map(|(_, started)| started)
}

fn look(pid: u32) -> Option<(State, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first field after the name is the third of all.
    let field = |number: usize| fields[number - 3];
    // A killed process releases its locks before it becomes a zombie. It executes no more code then,
    // so it does not count as a second holder.
    let exiting = field(9).parse::<u64>().unwrap() & EXITING != 0;
    if exiting || matches!(field(3), "Z" | "X" | "x") {
        return None;
    }
    let state = match field(3) {
        "T" => State::Stopped,
        _ => State::Running,
    };
    Some((state, field(22).parse().unwrap()))
}

/// A command that runs another one as a user who is not root; `None` if that can't be done here.
pub fn as_another_user() -> Option<Command> {
    through_setpriv(|| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command
    })
}

/// The same as this user, with a group of its own and this one.
pub fn as_user(user: u32, group: u32) -> Option<Command> {
    through_setpriv(|| {
        let mut command = Command::new("setpriv");
        command
            .args([format!("--reuid={user}"), format!("--regid={user}")])
            .arg(format!("--groups={group}"));
        command
    })
}

fn through_setpriv(setpriv: impl Fn() -> Command) -> Option<Command> {
    let can = setpriv()
        .arg("test")
        .arg("-x")
        .arg(std::env::current_exe().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    can.then(setpriv)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_running_stopped_and_gone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert_eq!(state(pid), Some(State::Running));
        let born = started(pid);
        let raw = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(raw, Signal::STOP).unwrap();
        within_limit("a stop", || state(pid) == Some(State::Stopped));
        assert_eq!(started(pid), born);
        child.kill().unwrap();
        within_limit("an end", || state(pid).is_none());
        child.wait().unwrap();
        assert_eq!(started(pid), None);
    }
}
