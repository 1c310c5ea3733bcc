//! What this machine knows of a process: its clock, its identity, proof of its life, and a bell.
//!
//! Every store that lives on one machine stands on this crate.
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`] | [`HostClock`]: wall and boot clock |
//! | [`flock`] | [`flock::FileLock`]: a kernel lock on a named file |
//! | [`identity`] | which process is meant by a pid: start time, boot, namespace, host |
//! | [`inherit`] | what was inherited from the one that started us |
//! | [`inotify`] | watch folders for what other programs change |
//! | [`life`] | [`LivenessLock`]: a kernel lock that a process and its children keep for as long as they live |
//! | [`liveness`] | what can be proven about the process behind a lease |
//! | [`bell`] | [`Bell`]: wake one process, or wait to be woken |
//! | [`watch`] | be told when another process ends |
//! | [`presence`] | [`LocalPresence`]: a process at a local store: its liveness lock, doorbell and watches |
//! | [`signal`] | signals that were ignored, or must not stop us |
//! | [`time_limit`] | [`TimeLimit`](time_limit::TimeLimit): a deadline for one wait |
//! | [`tied`] | [`Tied`]: a command that does not outlive us |
//!
//! # Limitations
//!
//! Linux only: `/proc`, `flock`, named pipes, `pidfd`, the parent-death signal. A life lock proves
//! nothing on a file system whose `flock` is not shared by all who see it (some network and
//! virtual-machine file systems); that is why the boot id must match too.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "tenure runs on Linux only: it needs /proc, flock on named pipes, pidfds and the \
     parent-death signal"
);

pub mod bell;
pub mod clock;
pub mod files;
pub mod flock;
pub mod identity;
pub mod inherit;
pub mod inotify;
pub mod liveness;
pub mod liveness_lock;
pub mod presence;
pub mod signal;
pub mod tied;
pub mod time_limit;
pub mod watch;

pub use bell::Bell;
pub use clock::HostClock;
pub use liveness_lock::{LivenessFolder, LivenessLock};
pub use presence::{LocalPresence, LocalStore};
pub use tied::Tied;
