//! A process's presence at a store of this machine: [`LocalPresence`].
//!
//! Every local store has one: the liveness lock that proves its holders and waiters, the doorbell that
//! wakes them, also at the exit of a process that they wait for. The lock is taken when a lease or a ticket
//! first needs it, so a command that only reads creates no file.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tenure_core::engine::Sweep;
use tenure_core::{
    Binding, Clock, Doubt, ErrorKind, Evidence, Holder, Lease, Liveness, LivenessId, Moment, Store,
    StoreError, Waited, Waiter, Watched,
};

use crate::bell::{self, Bell, Exits};
use crate::liveness_lock::{LivenessFolder, LivenessLock};
use crate::{identity, liveness, lock};

/// How many liveness locks a process tests that sweeps in passing.
const MOST_IN_PASSING: usize = 256;

/// A store of this machine.
pub trait LocalStore: Store {
    /// The presence of this process.
    fn presence(&self) -> &LocalPresence;
}

/// A process's liveness lock and doorbell at one store.
pub struct LocalPresence {
    folder: LivenessFolder,
    lock: OnceLock<LivenessLock>,
    /// Only one thread takes the lock.
    taking: Mutex<()>,
    bell: Bell,
    clock: Arc<dyn Clock>,
    /// Whether it has looked for what killed processes left.
    has_swept: AtomicBool,
}

impl LocalPresence {
    /// The presence at a store that keeps its liveness locks in this folder. Nothing is written yet.
    pub fn new(folder: LivenessFolder, clock: Arc<dyn Clock>) -> Self {
        Self {
            folder,
            lock: OnceLock::new(),
            taking: Mutex::new(()),
            bell: Bell::default(),
            clock,
            has_swept: AtomicBool::new(false),
        }
    }

    /// The folder of the liveness locks.
    pub fn folder(&self) -> &LivenessFolder {
        &self.folder
    }

    /// The liveness lock of this process. Takes it if this is the first call.
    pub fn lock(&self) -> io::Result<&LivenessLock> {
        if let Some(lock) = self.lock.get() {
            return Ok(lock);
        }
        let _one_at_a_time = lock(&self.taking);
        if let Some(lock) = self.lock.get() {
            return Ok(lock);
        }
        let lock = LivenessLock::take(&self.folder)?;
        Ok(self.lock.get_or_init(|| lock))
    }

    /// What ties a lease or a ticket to this process.
    pub fn binding(&self) -> io::Result<Binding> {
        Ok(Binding::LivenessLock {
            lock: self.lock()?.id().clone(),
            process: identity::this_process(),
        })
    }

    /// What a command must inherit so that a lease lasts until the command has exited too; `None`
    /// before the first lease or ticket.
    pub fn inherited_fd(&self) -> Option<BorrowedFd<'_>> {
        self.lock.get().map(LivenessLock::as_fd)
    }

    /// Where a command finds what its holder is asked: a file beside the store that only this process
    /// can make; `None` before the first lease or ticket.
    pub fn asked_file(&self) -> Option<PathBuf> {
        Some(self.folder.asked_file(self.lock.get()?.id()))
    }

    /// Whether this process is the holder.
    pub fn is_us(&self, holder: &Holder) -> bool {
        self.is_ours(&holder.binding)
    }

    /// Whether this is the binding of this process.
    pub fn is_ours(&self, binding: &Binding) -> bool {
        let us = self.lock.get().map(LivenessLock::id);
        us.is_some() && binding.liveness_lock() == us
    }

    /// Leaves the pipe of this process's liveness lock in its folder; see [`LivenessLock::leave_pipe`].
    pub fn leave_pipe(&self) {
        if let Some(lock) = self.lock.get() {
            lock.leave_pipe();
        }
    }

    /// Tests the process of a holder or waiter. This process itself needs no test.
    pub fn probe(&self, holder: &Holder) -> Liveness {
        if self.is_us(holder) {
            Liveness::Running
        } else {
            liveness::probe(&self.folder, &holder.binding)
        }
    }

    /// Tests the holder of a lease. A restart of this machine ends only what was held before it: a lease that is younger
    /// belongs to another machine with the same name, which can't be examined from here (G4).
    pub fn probe_lease(&self, lease: &Lease) -> Liveness {
        match self.probe(&lease.holder) {
            Liveness::Gone(Evidence::Rebooted { .. })
                if liveness::is_younger_than_boot(&self.clock.now(), lease) =>
            {
                Liveness::Unverifiable(Doubt::OtherHost)
            }
            probed => probed,
        }
    }

    /// Wakes these processes.
    pub fn ring(&self, locks: impl IntoIterator<Item = LivenessId>) {
        for lock in locks {
            bell::ring(&self.folder, &lock);
        }
    }

    /// A function that wakes this process, from any thread.
    pub fn ringer(&self) -> io::Result<impl Fn() + Clone + Send + Sync + 'static> {
        let (folder, lock) = (self.folder.clone(), self.lock()?.id().clone());
        Ok(move || bell::ring(&folder, &lock))
    }

    /// Changes with every wake-up that was received.
    pub fn generation(&self) -> u32 {
        self.bell.generation()
    }

    /// Watches for the exit of the processes of these holders: each ends a [`Self::wait`]. A process that can't be
    /// watched is left out, so the caller must also poll.
    pub fn watch<'a>(&self, holders: impl IntoIterator<Item = &'a Holder>) -> Exits {
        let bindings = holders.into_iter().map(|holder| &holder.binding);
        let others = bindings.filter(|binding| !self.is_ours(binding));
        self.bell.watch(&self.folder, others)
    }

    /// Waits for a wake-up after `generation`, or for one of these exits; `false` if none came in time. While
    /// it waits, this process is heard.
    pub fn wait(&self, generation: u32, exits: &Exits, timeout: Duration) -> io::Result<bool> {
        let lock = self.lock()?;
        self.bell
            .wait(lock.as_fd(), generation, exits, timeout, || self.beat())
    }

    /// [`Records::wait`](tenure_core::Records::wait), for a store that tells whether something may have changed since the
    /// waiter looked. It is asked before this process sleeps: a change after that wakes it.
    pub fn wait_unless_changed(
        &self,
        watched: &Watched<'_>,
        timeout: Duration,
        has_changed: impl FnOnce() -> Result<bool, StoreError>,
    ) -> Result<Waited, StoreError> {
        let generation = self.generation();
        if has_changed()? {
            return Ok(Waited::Changed);
        }
        let exits = self.watch(watched.ahead.iter().copied());
        Ok(match self.wait(generation, &exits, timeout) {
            Ok(true) => Waited::Changed,
            Ok(false) => Waited::TimedOut,
            Err(error) => return Err(wait_failed(error)),
        })
    }

    /// Says that this process was heard now.
    pub fn beat(&self) {
        if let Some(lock) = self.lock.get() {
            lock.beat(self.clock.now().ticks);
        }
    }

    /// When a waiter was last heard, in ticks: when it last asked, or later.
    pub fn heard(&self, waiter: &Waiter, now: &Moment) -> Duration {
        let lock = waiter.holder.liveness_lock();
        let heard = lock.and_then(|lock| self.folder.heard(lock, now));
        heard.unwrap_or_default().max(waiter.seen)
    }

    /// Makes every wait of this object return.
    pub fn wake(&self) {
        self.bell.wake_threads();
        if let Some(lock) = self.lock.get() {
            lock.ring();
        }
    }

    /// The liveness locks that are left of processes that have exited; see
    /// [`EngineStore::dead_locks`](tenure_core::engine::EngineStore::dead_locks).
    pub fn dead_locks(&self, sweep: Sweep) -> Vec<LivenessId> {
        let limit = match sweep {
            Sweep::Whole => usize::MAX,
            Sweep::InPassing if self.is_sweeper() => MOST_IN_PASSING,
            Sweep::InPassing => return Vec::new(),
        };
        // Best effort: a later sweep finds the rest.
        self.folder.dead(limit).unwrap_or_default()
    }

    /// Whether this process sweeps in passing: one of sixteen that hold or wait does, once. So a lone
    /// command rarely reads the folder, and it stays short however many processes are killed.
    fn is_sweeper(&self) -> bool {
        // The id is random.
        let chosen = self.lock.get().map(LivenessLock::id);
        chosen.is_some_and(|lock| lock.0.starts_with('0'))
            && !self.has_swept.swap(true, Ordering::Relaxed)
    }

    /// Removes liveness locks of processes that have exited, except those that are needed.
    pub fn remove_locks(&self, dead: &[LivenessId], needed: &HashSet<LivenessId>) {
        for lock in dead.iter().filter(|lock| !needed.contains(lock)) {
            self.folder.remove_dead(lock);
        }
    }
}

/// The error of a process that can't wait to be woken.
pub fn wait_failed(error: io::Error) -> StoreError {
    StoreError::new(ErrorKind::Io, "waiting for a wake-up failed").because(error)
}

impl std::fmt::Debug for LocalPresence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalPresence")
            .field("folder", &self.folder)
            .finish_non_exhaustive()
    }
}
