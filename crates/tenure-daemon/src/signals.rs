//! Signals as a flag to ask and something to poll: [`Signals`].

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use tenure::host::signal::is_ignored;

/// What a hang-up means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HangUp {
    /// The terminal is gone: stop.
    Stops,
    /// There is no terminal: somebody wants the log to be opened anew.
    Reopens,
}

/// The signals that came in. From its making on, none of them ends this process.
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
            // What our starter told us to ignore (nohup; a shell, of what it puts in the background)
            // stays ignored. Not TERM, by which we are stopped, and not what means something else.
            let meant = match signal {
                SIGTERM => true,
                SIGHUP if hang_up == HangUp::Reopens => true,
                _ => !is_ignored(signal),
            };
            if !meant {
                continue;
            }
            let id = if signal == SIGHUP && hang_up == HangUp::Reopens {
                flag::register(signal, Arc::clone(&signals.reopen))?
            } else {
                let number = usize::try_from(signal).unwrap_or_default();
                flag::register_usize(signal, Arc::clone(&signals.stop), number)?
            };
            // The flag first: whoever is woken must find it set.
            signals.ids.push(id);
            let id = low_level::pipe::register(signal, write.try_clone()?)?;
            signals.ids.push(id);
        }
        Ok(signals)
    }

    /// Whether to stop.
    pub(crate) fn stop(&self) -> bool {
        self.stop.load(Ordering::SeqCst) != 0
    }

    /// The signal that said so.
    pub(crate) fn stopped_by(&self) -> &'static str {
        match i32::try_from(self.stop.load(Ordering::SeqCst)) {
            Ok(SIGINT) => "SIGINT",
            Ok(SIGHUP) => "SIGHUP",
            _ => "SIGTERM",
        }
    }

    /// Whether to open the log anew; asked once for each time.
    pub(crate) fn take_reopen(&self) -> bool {
        self.reopen.swap(false, Ordering::SeqCst)
    }

    /// Forgets that there was something to look at.
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
