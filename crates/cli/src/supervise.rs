//! A command while it runs: its signals, its terminal, its end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, waitid, waitpid};
use signal_hook::consts::{SIGCHLD, SIGTSTP};
use tenure::text::duration;
use tenure_host::{Tied, bell};

use crate::answer::remark;
use crate::args::Global;
use crate::signals::{Signals, stop_here};
use crate::terminal::Terminal;

/// How long a command runs before tenure sets up what only longer ones need.
const SHORT_RUN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Whether tenure ended it because the lease was lost.
    pub(crate) lost: bool,
    /// Whether it had the terminal, so that Ctrl+C reached the command but not tenure.
    pub(crate) had_terminal: bool,
    /// The signal that told tenure to stop, if one did. It was forwarded to the command.
    pub(crate) stop_signal: Option<i32>,
}

/// How a command is being ended.
#[derive(Debug, Default)]
struct Ending {
    /// When KILL follows TERM.
    kill: Option<OwnedFd>,
    /// Until when a second Ctrl+C counts as one: later, it is a new first one. Programs that read commands
    /// use Ctrl+C for themselves.
    second_until: Option<OwnedFd>,
    /// Whether a person insisted.
    insisted: bool,
}

impl Ending {
    /// TERM to the process group now, KILL after `grace`.
    fn begin(&mut self, tied: &Tied, grace: Duration) -> io::Result<()> {
        end(tied, Signal::TERM);
        if self.kill.is_none() {
            self.kill = Some(bell::alarm(grace)?);
        }
        Ok(())
    }

    /// A SIGINT: the first is forwarded, the second ends the command, the third kills it.
    fn interrupt(&mut self, global: &Global, tied: &Tied, grace: Duration) -> io::Result<()> {
        if self.insisted {
            tied.signal(Signal::KILL);
        } else if self.second_until.is_some() {
            self.insisted = true;
            self.begin(tied, grace)?;
            let grace = duration::format(grace);
            let words = format!(
                "ending the command (SIGTERM); SIGKILL follows after {grace}, or with the next Ctrl+C"
            );
            remark(global, &words);
        } else {
            end(tied, Signal::INT);
            self.second_until = Some(bell::alarm(grace)?);
        }
        Ok(())
    }
}

/// A command to supervise.
pub(crate) struct Supervised<'a> {
    pub(crate) tied: &'a Tied,
    pub(crate) terminal: Option<Terminal>,
    /// Readable once the lease is lost.
    pub(crate) lost: &'a OwnedFd,
    /// Readable once the last process of the command has exited; `None` if only the first one counts.
    pub(crate) rest: Option<&'a OwnedFd>,
    /// How long after TERM it is killed.
    pub(crate) grace: Duration,
}

/// Waits until a command ends. Forwards signals to it, stops when it is stopped, and ends it when the
/// lease is lost, or at the second Ctrl+C: TERM to its process group, KILL after the grace period. Calls
/// `settled` once, when the command has run for [`SHORT_RUN`].
pub(crate) fn supervise(
    global: &Global,
    signals: &mut Signals,
    command: &Supervised<'_>,
    settled: impl FnOnce(),
) -> io::Result<Ended> {
    let Supervised { tied, grace, .. } = *command;
    let group = tied.group().ok_or(io::ErrorKind::InvalidInput)?;
    let mut was_lost = false;
    let mut stop_signal = None;
    let mut ending = Ending::default();
    let mut settled = Some(settled);
    let mut rounds = 0_u64;
    let mut rest = command.rest;
    // Once the first process has exited: whether it had the terminal.
    let mut exited = None;
    loop {
        if exited.is_none() && has_exited(group, command.terminal, signals)? {
            let terminal = command.terminal;
            exited = Some(terminal.is_some_and(|terminal| terminal.take_back(group)));
        }
        let by_force = was_lost || ending.insisted;
        if let Some(had_terminal) = exited
            && (rest.is_none() || by_force && ending.kill.is_none())
        {
            // Ends the rest of its group, too.
            if by_force {
                tied.signal(Signal::KILL);
            }
            return Ok(Ended {
                status: reap(group)?,
                lost: was_lost,
                had_terminal,
                stop_signal,
            });
        }
        // Not in the first round: the command has only just been started.
        if rounds > 0
            && let Some(settled) = settled.take()
        {
            settled();
        }
        rounds += 1;
        let watched = [
            (!was_lost).then_some(command.lost),
            ending.kill.as_ref(),
            ending.second_until.as_ref(),
            rest,
        ];
        let timeout = settled.is_some().then_some(&SHORT_RUN);
        let [lost, kill, no_second, last_exited] = wait_for(signals, watched, timeout)?;
        if lost {
            was_lost = true;
            ending.begin(tied, grace)?;
        }
        if kill {
            tied.signal(Signal::KILL);
            ending.kill = None;
        }
        if no_second {
            ending.second_until = None;
        }
        if last_exited {
            rest = None;
        }
        for signal in signals.pending() {
            match Signal::from_named_raw(signal) {
                Some(Signal::TSTP) => stop_together(tied),
                Some(Signal::INT) => {
                    stop_signal = Some(signal);
                    ending.interrupt(global, tied, grace)?;
                }
                Some(named @ (Signal::TERM | Signal::HUP | Signal::QUIT)) => {
                    stop_signal = Some(signal);
                    end(tied, named);
                }
                Some(named) if named != Signal::CHILD => tied.signal(named),
                _ => {}
            }
        }
    }
}

/// Waits for a signal, or for one of these. Returns which of these are ready.
fn wait_for(
    signals: &Signals,
    watched: [Option<&OwnedFd>; 4],
    timeout: Option<&Timespec>,
) -> io::Result<[bool; 4]> {
    let mut fds = vec![PollFd::new(signals, PollFlags::IN)];
    fds.extend(
        watched
            .iter()
            .flatten()
            .map(|fd| PollFd::new(*fd, PollFlags::IN)),
    );
    match poll(&mut fds, timeout) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = fds.iter().skip(1).map(|fd| !fd.revents().is_empty());
    Ok(watched.map(|fd| fd.is_some() && ready.next() == Some(true)))
}

/// Sends the command a signal that is meant to end it. A stopped command would not react before it is
/// continued.
fn end(tied: &Tied, signal: Signal) {
    tied.signal(signal);
    tied.signal(Signal::CONT);
}

/// The status of the first process, which has exited.
fn reap(group: Pid) -> io::Result<ExitStatus> {
    let status = retry_on_intr(|| waitpid(Some(group), WaitOptions::empty()))?;
    let (_, status) = status.ok_or(io::ErrorKind::NotFound)?;
    Ok(ExitStatus::from_raw(status.as_raw()))
}

/// Whether the first process has exited. It stays a zombie until [`reap`]: no other process gets its number,
/// which is also that of the group. If the terminal stopped it, tenure stops too, and continues it when
/// tenure is continued.
fn has_exited(group: Pid, terminal: Option<Terminal>, signals: &mut Signals) -> io::Result<bool> {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let (stops, at_once) = (WaitIdOptions::STOPPED, WaitIdOptions::NOHANG);
    let wait = |options| retry_on_intr(|| waitid(WaitId::Pid(group), options | at_once));
    while let Some(status) = wait(peek | stops)? {
        if !status.stopped() {
            return Ok(true);
        }
        // The same stop is not reported again. An error means that the process has exited meanwhile.
        let _ = wait(stops);
        // Only stops by the terminal are mirrored; a SIGSTOP was meant for the command alone.
        let by_terminal = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];
        let stopped_by = status
            .stopping_signal()
            .filter(|signal| by_terminal.contains(signal));
        let (Some(terminal), Some(stopped_by)) = (terminal, stopped_by) else {
            continue;
        };
        // If the command asked for the terminal and tenure has it by now (`fg`), it is lent below.
        if stopped_by == libc::SIGTSTP || !terminal.is_ours() {
            terminal.take_back(group);
            // Stops our own process group, as Ctrl+Z would have.
            Terminal::pass_on(Signal::TSTP);
            stop_here();
            // Continued. Our own TSTP was delivered to us, too: forward only the other signals.
            let pending = signals.pending();
            let others = pending
                .into_iter()
                .filter(|signal| !matches!(*signal, SIGTSTP | SIGCHLD));
            for signal in others.filter_map(Signal::from_named_raw) {
                let _ = rustix::process::kill_process_group(group, signal);
            }
        }
        terminal.lend(group);
        let _ = rustix::process::kill_process_group(group, Signal::CONT);
    }
    Ok(false)
}

/// Ctrl+Z while tenure has the terminal: stops the command and tenure, and continues the command when
/// tenure is continued.
fn stop_together(tied: &Tied) {
    tied.signal(Signal::TSTP);
    stop_here();
    tied.signal(Signal::CONT);
}
