//! The terminal of `tenure run`: lent to the command, as a shell does.
//!
//! The command leads a process group of its own, so that all of it can be signalled. A terminal
//! listens to one group only; so if it listens to ours, it is lent to the command's group, and
//! taken back when the command stops or ends. What is typed (Ctrl+C, Ctrl+Z) then reaches the
//! command directly, and we pass on to our own group what the shell around us would have seen.
//!
//! In the middle of a pipeline (`tenure run build -- git log | less`) the others of our group need
//! the terminal too. There the command stays in our group, and only its first process is signalled.

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

    /// Whether others that run together with us may need it as well.
    pub(crate) fn is_shared(self) -> bool {
        self.is_ours() && !std::io::stdout().is_terminal()
    }

    /// Lends it to a group, unless somebody else has it.
    pub(crate) fn lend(self, group: Pid) {
        if self.is_ours() {
            let _ = tcsetpgrp(self.0, group);
        }
    }

    /// Takes it back from a group. If somebody else has it by now, it stays there.
    pub(crate) fn take_back(self, group: Pid) {
        if tcgetpgrp(self.0).is_ok_and(|current| current == group) {
            without_stopping(|| {
                let _ = tcsetpgrp(self.0, getpgrp());
            });
        }
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
