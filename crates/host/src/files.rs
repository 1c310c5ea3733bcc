//! The parts of every store whose lock files or lock folders other programs share.
//!
//! | module | contents |
//! |---|---|
//! | [`beneath`] | opens what others may have put there: no links, no pipes, no surprises of size |
//! | [`look`] | whether something is at a path, or an error |
//! | [`atomic`] | files that appear complete or not at all |
//! | [`permissions`] | new files and folders get the permissions of their folder |
//! | [`two_slot`] | a small record that survives a writer that is killed halfway |
//! | [`step_lock`] | the kernel lock that serialises tenure's own processes |
//! | [`protocol`] | [`LockProtocol`]: how one lock is written, read and removed |
//! | [`takeover`] | takes over or removes a stale lock, and never a live one |
//! | [`sidecar`] | the folder beside the lock |
//! | [`lock_watch`] | reports when a lock appears, changes or is removed |
//! | [`options`] | the settings of such a store |
//! | [`go_time`] | times as the other programs read them |
//! | [`go_json`] | JSON as the other programs read it |
//! | [`fault`] | I/O errors as store errors |

pub mod atomic;
pub mod beneath;
pub mod fault;
pub mod go_json;
pub mod go_time;
pub mod lock_watch;
pub mod look;
pub mod options;
pub mod permissions;
pub mod protocol;
pub mod sidecar;
pub mod step_lock;
pub mod takeover;
pub mod two_slot;

pub use atomic::Durability;
pub use options::{Access, Options};
pub use protocol::{Fingerprint, LockAtPath, LockProtocol, digest};
pub use sidecar::Sidecar;
