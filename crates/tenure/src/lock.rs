//! Holding a key in one line: every outcome but a grant is an error, or nothing.

use tenure_core::{Acquired, Key};

use crate::ask::Ask;
use crate::error::Error;
use crate::guard::Guard;
use crate::open::Tenure;

impl Tenure {
    /// Holds a key: waits for it at most as long as the setting `locking.waitTimeout` says. The guard releases it when it is
    /// dropped.
    ///
    /// Each call is a holder of its own, so that threads exclude one another, too: a thread that locks what it holds
    /// already waits in vain.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    /// use tenure::{Error, Tenure};
    ///
    /// let tenure = Tenure::open("memory:")?;
    /// let inside = AtomicUsize::new(0);
    /// std::thread::scope(|threads| {
    ///     for _ in 0..4 {
    ///         threads.spawn(|| {
    ///             let guard = tenure.lock("build")?;
    ///             assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
    ///             inside.fetch_sub(1, Ordering::SeqCst);
    ///             drop(guard);
    ///             Ok::<(), Error>(())
    ///         });
    ///     }
    /// });
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`] names the holder that still has the key at the end of the wait.
    pub fn lock(&self, key: &str) -> Result<Guard, Error> {
        let limit = self.config.locking.wait_timeout;
        self.usual(key)?.wait(limit).lock()
    }

    /// Holds a key if it is free; `None` if another holder has it.
    pub fn try_lock(&self, key: &str) -> Result<Option<Guard>, Error> {
        match self.usual(key)?.lock() {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::Busy(_) | Error::Deadlock(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A request of a program that may itself run under a lease.
    fn usual(&self, key: &str) -> Result<Ask<'_>, Error> {
        Ok(self.ask(key)?.within(self.parent_leases()))
    }
}

impl Ask<'_, Key> {
    /// Makes the request as [`acquire`](Self::acquire) does, for a caller to which every outcome but a grant is an error.
    pub fn lock(self) -> Result<Guard, Error> {
        match self.acquire()? {
            Acquired::Granted(guard) => Ok(guard),
            Acquired::Busy(busy) => Err(Error::Busy(busy)),
            Acquired::Deadlock(cycle) => Err(Error::Deadlock(cycle)),
            Acquired::Cancelled => Err(Error::Cancelled),
        }
    }
}
