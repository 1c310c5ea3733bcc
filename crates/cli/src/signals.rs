//! Signals as a file descriptor to poll: [`Signals`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;
use tenure_host::signal::is_ignored;

/// The signals that tenure forwards to the command it runs.
pub(crate) const FORWARDED: [i32; 6] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

type Delivery = SignalDelivery<UnixStream, SignalOnly>;

/// The signals that arrived. While it exists, none of them ends this process.
pub(crate) struct Signals {
    delivery: Arc<Mutex<Delivery>>,
    ready: Arc<UnixStream>,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let ready = read.try_clone()?;
        // A signal that tenure was started to ignore (`nohup`) stays ignored, here and in the command.
        let caught = FORWARDED
            .into_iter()
            .chain([SIGTSTP])
            .filter(|signal| !is_ignored(*signal));
        let all = caught.chain([SIGCHLD]);
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, all)?;
        Ok(Self {
            delivery: Arc::new(Mutex::new(delivery)),
            ready: Arc::new(ready),
        })
    }

    /// The same signals for another thread. Each signal is delivered to one of the two.
    pub(crate) fn share(&self) -> Self {
        Self {
            delivery: Arc::clone(&self.delivery),
            ready: Arc::clone(&self.ready),
        }
    }

    /// The signals since the last call.
    pub(crate) fn pending(&mut self) -> Vec<i32> {
        self.delivery
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pending()
            .collect()
    }
}

/// Stops this process, as SIGTSTP does when it is not caught. Returns when the process is continued.
pub(crate) fn stop_here() {
    let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
