//! The signals that the daemon reacts to, as flags and a descriptor to poll: [`Signals`].

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use tenure_host::signal::is_ignored;

/// What SIGHUP means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HangUp {
    /// The terminal was closed: stop.
    Stops,
    /// There is no terminal: an administrator moved the log and wants a new one.
    Reopens,
}

/// The signals received so far. While this exists, none of them ends the process.
#[derive(Debug)]
pub(crate) struct Signals {
    stop: Arc<AtomicUsize>,
    reopen: Arc<AtomicBool>,
    ready: UnixStream,
    ids: Vec<SigId>,
}

impl Signals {
    pub(crate) fn catch(hang_up: HangUp) -> io::Result<Self> {
        let (ready, write) = UnixStream::pair()?;
        ready.set_nonblocking(true)?;
        let mut signals = Self {
            stop: Arc::default(),
            reopen: Arc::default(),
            ready,
            ids: Vec::new(),
        };
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            let reopens = signal == SIGHUP && hang_up == HangUp::Reopens;
            // A signal that was ignored when this process started stays ignored: nohup ignores SIGHUP,
            // and a shell ignores SIGINT for what it runs in the background. SIGTERM always stops the
            // daemon, and SIGHUP that reopens the log has nothing to do with a terminal.
            if signal != SIGTERM && !reopens && is_ignored(signal) {
                continue;
            }
            let id = if reopens {
                flag::register(signal, Arc::clone(&signals.reopen))?
            } else {
                let number = usize::try_from(signal).unwrap_or_default();
                flag::register_usize(signal, Arc::clone(&signals.stop), number)?
            };
            // The flag is registered first, so that it is set when the poll returns.
            signals.ids.push(id);
            let id = low_level::pipe::register(signal, write.try_clone()?)?;
            signals.ids.push(id);
        }
        Ok(signals)
    }

    /// Whether a signal asked the daemon to stop.
    pub(crate) fn stop(&self) -> bool {
        self.stop.load(Ordering::SeqCst) != 0
    }

    /// The name of that signal.
    pub(crate) fn stopped_by(&self) -> &'static str {
        match i32::try_from(self.stop.load(Ordering::SeqCst)) {
            Ok(SIGINT) => "SIGINT",
            Ok(SIGHUP) => "SIGHUP",
            _ => "SIGTERM",
        }
    }

    /// Whether SIGHUP asked for a new log since the last call.
    pub(crate) fn take_reopen(&self) -> bool {
        self.reopen.swap(false, Ordering::SeqCst)
    }

    /// Makes the descriptor unreadable until the next signal.
    pub(crate) fn drain(&mut self) -> io::Result<()> {
        let mut bytes = [0; 64];
        loop {
            match self.ready.read(&mut bytes) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            low_level::unregister(id);
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
