//! A real process, to be killed, stopped and continued: [`Process`].
//!
//! It is this very test binary, started again for one test of it. What it is to do comes in an
//! environment variable, what it has to say goes out in marked lines among those that the test
//! harness prints.
//!
//! What is said here of a pid is read from `/proc` by this file alone: the witness must not stand
//! on the code that it is to judge.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};

use crate::default_signals;
use crate::limit::{LIMIT, within_limit};

/// The variable that holds the job.
const JOB: &str = "TENURE_BATTERY_JOB";

/// The variable that holds the pid of whoever gave it.
const EMPLOYER: &str = "TENURE_BATTERY_EMPLOYER";

/// What a line that is a report begins with; the harness may have begun the line itself.
const MARK: &str = "#report ";

/// A process that was started here. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    orders: Option<ChildStdin>,
    reports: Receiver<String>,
}

impl Process {
    /// Starts this test binary again, for the test of this name, with this job. Call it from a
    /// thread that lives as long as the process should.
    pub fn start(test: &str, job: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(JOB, job)
            .env(EMPLOYER, std::process::id().to_string());
        Self::spawn(&mut command)
    }

    /// Starts this test binary again by way of another command, which gets all that the binary
    /// needs as its last arguments: `unshare`, `setpriv` and their like.
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

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells it a line.
    pub fn tell(&mut self, line: &str) {
        let orders = self.orders.as_mut().expect("it was told the last before");
        writeln!(orders, "{line}").expect("the process takes no more orders");
    }

    /// Tells it that there is nothing more to be told.
    pub fn tell_no_more(&mut self) {
        self.orders = None;
    }

    /// What it reports next. Fails if it ends first, or takes for ever.
    pub fn report(&self) -> String {
        match self.reports.recv_timeout(LIMIT) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => panic!("pid {}: no report in {LIMIT:?}", self.pid()),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("pid {} ended without the report", self.pid())
            }
        }
    }

    /// What it has reported by now, if anything.
    pub fn try_report(&self) -> Option<String> {
        self.reports.try_recv().ok()
    }

    /// Sends SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGKILL and leaves the rest of it, a zombie, where it is.
    pub fn kill_and_leave(&mut self) {
        self.child.kill().unwrap();
    }

    /// Stops it (SIGSTOP), and returns once it stands still.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        within_limit("the process to stop", || {
            !matches!(state(self.pid()), Some(State::Running))
        });
    }

    /// Lets it go on (SIGCONT).
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Whether it has ended. Fails if it ended badly.
    pub fn has_ended(&mut self) -> bool {
        match self.child.try_wait().unwrap() {
            None => false,
            Some(status) if status.success() => true,
            Some(status) => panic!("pid {} failed: {status}", self.pid()),
        }
    }

    /// Waits until it has ended well.
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

/// In a process that was started here: its job. It ends with whoever started it.
pub fn job() -> Option<String> {
    let job = std::env::var(JOB).ok()?;
    if let Ok(employer) = std::env::var(EMPLOYER) {
        set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
        let parent = getppid().map(|pid| pid.as_raw_nonzero().to_string());
        assert_eq!(
            parent,
            Some(employer),
            "whoever gave the job is gone already"
        );
    }
    Some(job)
}

/// In a process that was started here: reports a line.
pub fn report(line: &str) {
    println!("{MARK}{line}");
}

/// What can be seen of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It may run at any moment.
    Running,
    /// It stands still until it is continued.
    Stopped,
}

/// Bit of the flags in `/proc/PID/stat`: the process is past its last own instruction.
const EXITING: u64 = 0x4;

/// The state of a process that can still do something; `None` once it never will again.
pub fn state(pid: u32) -> Option<State> {
    look(pid).map(|(state, _)| state)
}

/// When the process started, in ticks since boot; `None` once it never will do anything again.
pub fn started(pid: u32) -> Option<u64> {
    look(pid).map(|(_, started)| started)
}

fn look(pid: u32) -> Option<(State, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The first field after the name is the third of all.
    let field = |number: usize| fields[number - 3];
    // A killed process gives its locks up before it becomes a zombie. It runs no code of its own
    // any more then, so it is nobody's fellow holder.
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
