//! The command of `tenure run` while it runs: its signals, its terminal, its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use signal_hook::consts::{SIGCHLD, SIGTSTP};
use tenure::host::{Tied, bell};

use crate::signals::{Signals, stop_here};
use crate::terminal::Terminal;

/// How long a command runs before anything is set up that only longer ones need.
const MOMENT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Whether we ended it because the lease was lost.
    pub(crate) lost: bool,
    /// Whether it had the terminal then, so that what was typed reached it alone.
    pub(crate) had_terminal: bool,
    /// The signal that told us to stop, if one did; the command was sent it too.
    pub(crate) told: Option<i32>,
}

/// Stays with a command until it ends: forwards signals to it, stops when it is stopped, and ends
/// it when `lost` becomes readable: TERM to its whole group, KILL after `grace`. `settled` is called
/// once it has run for a moment.
pub(crate) fn supervise(
    tied: &Tied,
    signals: &mut Signals,
    terminal: Option<Terminal>,
    lost: &OwnedFd,
    grace: Duration,
    settled: impl FnOnce(),
) -> io::Result<Ended> {
    let group = tied.group().ok_or(io::ErrorKind::InvalidInput)?;
    let mut was_lost = false;
    let mut told = None;
    let mut kill_timer: Option<OwnedFd> = None;
    let mut settled = Some(settled);
    let mut rounds = 0_u64;
    loop {
        if let Some(status) = reap(group, terminal, signals)? {
            let had_terminal = terminal.is_some_and(|terminal| terminal.take_back(group));
            // What is left of a group that had to be ended is ended too.
            if was_lost {
                tied.signal(Signal::KILL);
            }
            return Ok(Ended {
                status,
                lost: was_lost,
                had_terminal,
                told,
            });
        }
        // Not in the first round: whatever ended that one, a moment or a signal, it still runs.
        if rounds > 0
            && let Some(settled) = settled.take()
        {
            settled();
        }
        rounds += 1;
        let mut fds = vec![PollFd::new(&*signals, PollFlags::IN)];
        if let Some(timer) = &kill_timer {
            fds.push(PollFd::new(timer, PollFlags::IN));
        } else if !was_lost {
            fds.push(PollFd::new(lost, PollFlags::IN));
        }
        let timeout = settled.is_some().then_some(&MOMENT);
        match poll(&mut fds, timeout) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let second = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        drop(fds);
        for signal in signals.pending() {
            match Signal::from_named_raw(signal) {
                Some(Signal::TSTP) => stop_together(tied),
                Some(named) if named != Signal::CHILD => {
                    if matches!(
                        named,
                        Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT
                    ) {
                        told = Some(signal);
                    }
                    tied.signal(named);
                }
                _ => {}
            }
        }
        if second && was_lost {
            tied.signal(Signal::KILL);
            kill_timer = None;
        } else if second {
            was_lost = true;
            tied.signal(Signal::TERM);
            // One that is stopped would never hear it.
            tied.signal(Signal::CONT);
            kill_timer = Some(bell::alarm(grace)?);
        }
    }
}

/// Looks whether the command has ended. If it was stopped from the terminal, we stop too, and go
/// on when we are continued.
fn reap(
    group: Pid,
    terminal: Option<Terminal>,
    signals: &mut Signals,
) -> io::Result<Option<ExitStatus>> {
    loop {
        let status = match waitpid(Some(group), WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((_, status))) => status,
            Ok(None) => return Ok(None),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        if !status.stopped() {
            return Ok(Some(ExitStatus::from_raw(status.as_raw())));
        }
        // Only what the terminal did concerns us; a SIGSTOP is between the command and its sender.
        let by_terminal = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        let stopped_by = status
            .stopping_signal()
            .filter(|signal| by_terminal.contains(signal));
        let (Some(terminal), Some(stopped_by)) = (terminal, stopped_by) else {
            continue;
        };
        // It wants the terminal, and we have it (brought to the front meanwhile): it may.
        if stopped_by == libc::SIGTSTP || !terminal.is_ours() {
            terminal.take_back(group);
            // All of our own group stop, as if it had been typed for them, and so do we.
            Terminal::pass_on(Signal::TSTP);
            stop_here();
            // Here again: somebody continued us. What we told our group, we told ourselves too.
            let heard = signals.pending();
            let others = heard
                .into_iter()
                .filter(|signal| !matches!(*signal, SIGTSTP | SIGCHLD));
            for signal in others.filter_map(Signal::from_named_raw) {
                let _ = rustix::process::kill_process_group(group, signal);
            }
        }
        terminal.lend(group);
        let _ = rustix::process::kill_process_group(group, Signal::CONT);
    }
}

/// Ctrl+Z was typed while the terminal listened to us: the command stops, we stop, and both go on
/// when we are continued.
fn stop_together(tied: &Tied) {
    tied.signal(Signal::TSTP);
    stop_here();
    tied.signal(Signal::CONT);
}
