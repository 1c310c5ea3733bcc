//! The terminal: [`confirm`] asks the person at it, and `tenure run` lends it to the command as a shell does:
//! [`Terminal`].
//!
//! The command leads its own process group, so that tenure can signal all of it. A terminal has one
//! foreground process group. If that is ours, tenure makes the command's group the foreground group,
//! and takes the terminal back when the command stops or ends. Ctrl+C and Ctrl+Z then reach the
//! command directly, and tenure passes them on to its own group, where the calling shell expects them.
//!
//! In a pipeline (`git log | tenure run build -- tee log | less`) other processes of our group may
//! need the terminal, too. There tenure lends it only when the command asks for it; until then
//! Ctrl+C reaches tenure, which forwards it to the command.

use std::io::{IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use tenure::text::visible;
use tenure_host::signal::without_stopping;

use crate::args::Global;

/// Asks the person at the terminal; `None` if there is nobody to ask.
pub(crate) fn confirm(global: &Global, question: &str) -> std::io::Result<Option<bool>> {
    if global.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }
    let mut err = anstream::stderr();
    write!(err, "{} [y/N] ", visible(question))?;
    err.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    let answer = answer.trim().to_lowercase();
    Ok(Some(["y", "yes"].contains(&answer.as_str())))
}

/// The terminal that tenure was started on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal(BorrowedFd<'static>);

impl Terminal {
    /// The terminal of standard input or standard error, if one of them is a terminal.
    pub(crate) fn find() -> Option<Self> {
        if std::io::stdin().is_terminal() {
            Some(Self(rustix::stdio::stdin()))
        } else if std::io::stderr().is_terminal() {
            Some(Self(rustix::stdio::stderr()))
        } else {
            None
        }
    }

    /// Whether our process group is its foreground group.
    pub(crate) fn is_ours(self) -> bool {
        tcgetpgrp(self.0).is_ok_and(|group| group == getpgrp())
    }

    /// Whether to lend it from the start: our group is in the foreground and not part of a pipeline.
    pub(crate) fn is_ours_alone(self) -> bool {
        std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && self.is_ours()
    }

    /// Lends it to a group, unless another group has it.
    pub(crate) fn lend(self, group: Pid) {
        if self.is_ours() {
            let _ = tcsetpgrp(self.0, group);
        }
    }

    /// Takes it back from a group. Returns `false` if that group did not have it.
    pub(crate) fn take_back(self, group: Pid) -> bool {
        let lent = tcgetpgrp(self.0).is_ok_and(|current| current == group);
        if lent {
            without_stopping(|| {
                let _ = tcsetpgrp(self.0, getpgrp());
            });
        }
        lent
    }

    /// Sends our own group the signal that the terminal sent to the command's.
    pub(crate) fn pass_on(signal: Signal) {
        let _ = kill_current_process_group(signal);
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0
    }
}
