//! Runs asynchronous work for callers that block: [`Driver`].
//!
//! A call runs on its caller's thread: no other thread has to be woken up for the request, and none for the answer.
//! Between calls, nothing has to be done for a process that does not wait. For one that does, a thread keeps its
//! session alive and watches its tickets. It steps aside as soon as a call begins, and comes back when a waiter sleeps, or
//! when there was no call for a while.
//!
//! # Invariants
//!
//! 1. While a job is under way, a thread drives it: its caller, another caller, or the thread of the driver.
//! 2. A caller that is itself part of an asynchronous program is not blocked on this runtime, which would panic: the
//!    thread of the driver runs its job.

use std::future::Future;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tenure_host::interrupt::is_interrupted;
use tenure_host::lock;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

/// How long the thread waits for the next call of a process that makes one after another.
const QUIET: Duration = Duration::from_millis(50);

/// Runs asynchronous work.
pub(crate) struct Driver {
    shared: Arc<SharedRuntime>,
    /// Started when it is needed first.
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct SharedRuntime {
    /// Present until the end.
    runtime: Option<Runtime>,
    handle: Handle,
    state: Mutex<DriverState>,
    changed: Condvar,
    /// Asks the thread to step aside.
    aside: Notify,
}

#[derive(Default)]
struct DriverState {
    /// Calls under way, each on the thread of its caller.
    calls: usize,
    /// Whether there was one since the thread looked.
    called: bool,
    /// Callers that need the thread.
    sleepers: usize,
    stopped: bool,
}

impl Driver {
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self {
            shared: Arc::new(SharedRuntime {
                handle: runtime.handle().clone(),
                runtime: Some(runtime),
                state: Mutex::default(),
                changed: Condvar::new(),
                aside: Notify::new(),
            }),
            thread: Mutex::new(None),
        })
    }

    /// Runs a job to its end, or for as long as `limit`; `None` if that was not enough, or if the caller was interrupted.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        job: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<Option<T>> {
        let job = async move { tokio::time::timeout(limit, job).await.ok() };
        match &self.shared.runtime {
            Some(runtime) if Handle::try_current().is_err() => {
                let _call = self.shared.begin_call();
                Ok(runtime.block_on(async {
                    tokio::select! {
                        biased;
                        done = job => done,
                        () = interrupted() => None,
                    }
                }))
            }
            _ => {
                let _driven = self.driven()?;
                let (tell, told) = mpsc::sync_channel(1);
                self.shared.handle.spawn(async move {
                    let _ = tell.send(job.await);
                });
                Ok(told.recv().ok().flatten())
            }
        }
    }

    /// Starts work that goes on while no call is under way.
    pub(crate) fn spawn(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<tokio::task::JoinHandle<()>> {
        self.start_thread()?;
        Ok(self.shared.handle.spawn(work))
    }

    /// Lets the thread drive at once, until the answer is dropped: its caller sleeps.
    pub(crate) fn driven(&self) -> io::Result<Driven<'_>> {
        self.start_thread()?;
        self.shared.state().sleepers += 1;
        self.shared.changed.notify_one();
        Ok(Driven(&self.shared))
    }

    fn start_thread(&self) -> io::Result<()> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            let named = std::thread::Builder::new().name("etcd".into());
            *thread = Some(named.spawn(move || shared.drive())?);
        }
        Ok(())
    }
}

/// Returns when the call of this thread should give up. It looks for the first time when the call is a slow one.
async fn interrupted() {
    loop {
        tokio::time::sleep(QUIET).await;
        if is_interrupted() {
            return;
        }
    }
}

/// [`Driver::driven`].
#[must_use = "the thread drives until this is dropped"]
pub(crate) struct Driven<'a>(&'a SharedRuntime);

impl Drop for Driven<'_> {
    fn drop(&mut self) {
        self.0.state().sleepers -= 1;
    }
}

/// A call under way.
struct Call<'a>(&'a SharedRuntime);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.calls -= 1;
        if state.calls == 0 && state.sleepers > 0 {
            self.0.changed.notify_one();
        }
    }
}

impl SharedRuntime {
    fn state(&self) -> MutexGuard<'_, DriverState> {
        lock(&self.state)
    }

    fn begin_call(&self) -> Call<'_> {
        let mut state = self.state();
        state.calls += 1;
        state.called = true;
        drop(state);
        // Without effect if the thread does not drive.
        self.aside.notify_one();
        Call(self)
    }

    /// The thread.
    fn drive(&self) {
        let Some(runtime) = &self.runtime else { return };
        loop {
            let mut state = self.state();
            while !state.stopped && (state.calls > 0 || state.called && state.sleepers == 0) {
                state.called = false;
                let waited = self.changed.wait_timeout(state, QUIET);
                (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
            if state.stopped {
                return;
            }
            drop(state);
            runtime.block_on(self.aside.notified());
        }
    }
}

impl Drop for SharedRuntime {
    fn drop(&mut self) {
        // It may be dropped in an asynchronous program, which must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.state().stopped = true;
        self.shared.changed.notify_one();
        self.shared.aside.notify_one();
        // The thread itself may drop the last reference.
        if let Some(thread) = lock(&self.thread).take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
