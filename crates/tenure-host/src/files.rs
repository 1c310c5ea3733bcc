//! Lock files and lock folders that other programs share: the ground of every such store.
//!
//! | module | what it holds |
//! |---|---|
//! | [`atomic`] | files that are there whole or not at all |
//! | [`two_slot`] | small state that survives a writer that is killed halfway |
//! | [`step_lock`] | the kernel lock that serialises tenure's own processes |
//! | [`protocol`] | [`LockProtocol`]: what a protocol says of its lock |
//! | [`takeover`] | how a stale lock is taken over or removed, and a live one never |
//! | [`sidecar`] | the folder beside the lock |
//! | [`lock_watch`] | tells when a lock appears, changes or goes |
//! | [`rfc3339`] | times as the protocols write them |
//! | [`fault`] | the system's errors in words |

pub mod atomic;
pub mod fault;
pub mod lock_watch;
pub mod options;
pub mod protocol;
pub mod rfc3339;
pub mod sidecar;
pub mod step_lock;
pub mod takeover;
pub mod two_slot;

pub use options::{Access, Disk, Options};
pub use protocol::{Fingerprint, LockProtocol, digest};
pub use sidecar::Sidecar;
