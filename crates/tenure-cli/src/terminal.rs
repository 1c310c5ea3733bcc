//! The terminal of `tenure run`: lent to the command, as a shell does.
//!
//! The command leads a process group of its own, so that all of it can be signalled. A terminal
//! listens to one group only; so if it listens to ours, it is lent to the command's group, and
//! taken back when the command stops or ends. What is typed (Ctrl+C, Ctrl+Z) then reaches the
//! command directly, and we pass on to our own group what the shell around us would have seen.
//!
//! In a pipeline (`git log | tenure run build -- tee log | less`) others of our group may need the
//! terminal too. There it is lent only once the command asks for it, and what is typed reaches us
//! first: we pass it on to the command.

use std::io::IsTerminal;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::process::{Pid, Signal, getpgrp, kill_current_process_group};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use tenure::host::signal::without_stopping;

/// The terminal that we were started on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal(BorrowedFd<'static>);

impl Terminal {
    /// Ours, if there is one.
    pub(crate) fn find() -> Option<Self> {
        if std::io::stdin().is_terminal() {
            Some(Self(rustix::stdio::stdin()))
        } else if std::io::stderr().is_terminal() {
            Some(Self(rustix::stdio::stderr()))
        } else {
            None
        }
    }

    /// Whether it listens to us.
    pub(crate) fn is_ours(self) -> bool {
        tcgetpgrp(self.0).is_ok_and(|group| group == getpgrp())
    }

    /// Whether it is for the command from the start: it listens to us, and we are alone with it.
    pub(crate) fn is_for_us_alone(self) -> bool {
        std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && self.is_ours()
    }

    /// Lends it to a group, unless somebody else has it.
    pub(crate) fn lend(self, group: Pid) {
        if self.is_ours() {
            let _ = tcsetpgrp(self.0, group);
        }
    }

    /// Takes it back from a group; `false` if that did not have it.
    pub(crate) fn take_back(self, group: Pid) -> bool {
        let lent = tcgetpgrp(self.0).is_ok_and(|current| current == group);
        if lent {
            without_stopping(|| {
                let _ = tcsetpgrp(self.0, getpgrp());
            });
        }
        lent
    }

    /// Does to our own group what the key on the terminal did to the command's.
    pub(crate) fn pass_on(signal: Signal) {
        let _ = kill_current_process_group(signal);
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0
    }
}
