//! The command of `tenure run` while it runs: its signals, its terminal, its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT};
use tenure::host::{Tied, bell};

use crate::signals::Signals;
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
    let group = tied.leader().ok_or(io::ErrorKind::InvalidInput)?;
    let mut was_lost = false;
    let mut kill_timer: Option<OwnedFd> = None;
    let mut settled = Some(settled);
    let mut rounds = 0_u64;
    loop {
        if let Some(status) = reap(group, terminal)? {
            if let Some(terminal) = terminal {
                terminal.take_back(group);
            }
            // What is left of a group that had to be ended is ended too.
            if was_lost {
                tied.signal(Signal::KILL);
            }
            return Ok(Ended {
                status,
                lost: was_lost,
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
            // In one group with us, the command has heard by itself what was typed.
            let typed = matches!(signal, SIGINT | SIGQUIT) && !tied.leads_a_group();
            if signal != SIGCHLD
                && !typed
                && let Some(signal) = Signal::from_named_raw(signal)
            {
                tied.signal(signal);
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
fn reap(group: Pid, terminal: Option<Terminal>) -> io::Result<Option<ExitStatus>> {
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
            Terminal::pass_on(Signal::TSTP);
            // Here again: somebody continued us.
        }
        terminal.lend(group);
        let _ = rustix::process::kill_process_group(group, Signal::CONT);
    }
}
