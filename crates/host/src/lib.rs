//! What a store on one machine needs from its host: clocks, process identity, liveness locks and wake-ups.
//!
//! Every local store is built on this crate.
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | [`caller`] | the process that called this one, if it still runs |
//! | [`clock`] | [`HostClock`]: wall and boot clock |
//! | [`exit_watch`] | [`exit_watch::ExitWatch`]: a descriptor that is ready when a process has exited |
//! | [`exit_helper`] | [`exit_helper::ExitHelper`]: a process that acts after another one has exited |
//! | [`flock`] | [`flock::FileLock`]: a kernel lock on a named file |
//! | [`files`] | files that survive a crash: two-slot files, sidecars, step locks |
//! | [`identity`] | identifies a process: pid, start time, boot, namespace, host |
//! | [`inherit`] | closes inherited descriptors |
//! | [`inotify`] | watches folders for changes by other programs |
//! | [`interrupt`] | [`interrupt::Interrupt`]: ends a call of a store that waits for its turn |
//! | [`liveness_lock`] | [`LivenessLock`]: a kernel lock that a process and its children hold until they exit |
//! | [`liveness`] | tests whether the process behind a lease has exited |
//! | [`pidfd`] | a descriptor for one exact process |
//! | [`mutex`] | [`lock`]: a mutex, also after a thread that had it panicked |
//! | [`ancestors`] | the processes above this one |
//! | [`bell`] | [`Bell`]: wakes one process, or waits to be woken |
//! | [`presence`] | [`LocalPresence`]: a process at a local store: its liveness lock and doorbell |
//! | [`random`] | random ids, from the kernel directly |
//! | [`record_lock`] | tries whether the record locks that SQLite uses hold on a file system |
//! | [`signal`] | blocks signals for one call, tests for ignored ones, turns limits into errors |
//! | [`time_limit`] | [`TimeLimit`](time_limit::TimeLimit): a deadline for one wait |
//! | [`tied`] | [`Tied`]: a command that does not outlive this process |
//! | [`vfork`] | [`vfork::Exec`]: starts a program without copying this process |
//!
//! # Limitations
//!
//! Linux only: `/proc`, `flock`, named pipes, `pidfd`, the parent-death signal. A liveness lock proves
//! nothing on a file system whose `flock` does not reach every machine that mounts it (some network and
//! virtual-machine file systems), so the boot id must match too.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "tenure runs on Linux only: it needs /proc, flock on named pipes, pidfds and the \
     parent-death signal"
);

pub mod ancestors;
pub mod bell;
pub mod caller;
pub mod clock;
pub mod exit_helper;
pub mod exit_watch;
pub mod files;
pub mod flock;
pub mod identity;
pub mod inherit;
pub mod inotify;
pub mod interrupt;
pub mod liveness;
pub mod liveness_lock;
pub mod mutex;
pub mod pidfd;
pub mod presence;
pub mod random;
pub mod record_lock;
pub mod signal;
pub mod tied;
pub mod time_limit;
pub mod vfork;

pub use bell::Bell;
pub use clock::HostClock;
pub use liveness_lock::{LivenessFolder, LivenessLock};
pub use mutex::lock;
pub use presence::{LocalPresence, LocalStore};
pub use random::random_uuid;
pub use tied::{Tied, TiedChild};
