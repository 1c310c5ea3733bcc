//! Locks that are files and are shared with other programs: the exclusive lock and the mkdir lock.
//!
//! # Contents
//!
//! | module | contents |
//! |---|---|
//! | [`exclusive`] | the exclusive lock `.exclusive-lock`: its format, and the protocol's library calls |
//! | [`mkdir`] | the mkdir lock: a folder that other programs create and remove |
//! | [`store`] | [`FileStore`]: one lock as a [`tenure_core::Store`] |
//! | `verbs` | the store on the engine |
//! | `step` | one atomic step: begin, collect what the engine changes, commit |
//! | `recovery` | what a step does first after a crash |
//! | `view` | which lease counts, from the lock and the state together |
//! | `state` | what tenure records beside the lock |
//! | `history` | the events |
//! | `foreign_holder` | holders that another program recorded |
//!
//! The parts that the ledger needs as well (atomic files, takeover, sidecar, step lock) are in
//! [`tenure_host::files`].
//!
//! # Invariants
//!
//! 1. Every verb that may change something holds the step lock
//!    ([`tenure_host::files::step_lock`]): tenure's own processes act one after another (G1, G5).
//!    [`tenure_host::files::takeover`] deals with programs that do not use tenure.
//! 2. A lock appears at its path complete, and only if the path is free. A stale lock is swapped for
//!    its successor, so the path is never free in between (G5).
//! 3. A lock that was swapped out or moved away is compared with the one that was found stale. Any
//!    other lock goes back (G4).
//! 4. Before a step touches the lock, it records what it is about to do (`pending`). After a crash the
//!    next step can tell whether it happened, and finishes or drops it (G10).
//! 5. No token above the `ceiling` is granted, and the ceiling is on disk first (G2).
//! 6. Waiters are woken after the step lock is released, never under it.
//!
//! # Lock order
//!
//! The store object's own mutex, then the step lock. Nothing else is taken inside; liveness locks are
//! only *tried*.
//!
//! # Limitations
//!
//! One machine, Linux, and a file system that can swap two names (`RENAME_EXCHANGE`: ext4, xfs,
//! btrfs, tmpfs and most others). Tenure notices and records when another program writes or removes
//! the lock without asking, but can't prevent it. The kernel can't remove a name conditionally: a live
//! lock that another program puts in place of a stale one within the microseconds of its removal is
//! missing from its path until it is put back. Deleting the sidecar deletes the queue, the history and
//! the token counter.

pub mod exclusive;
mod foreign_holder;
mod history;
pub mod mkdir;
mod recovery;
mod state;
mod step;
pub mod store;
mod verbs;
mod view;

pub use exclusive::{
    Check, ExclusiveLock, ExclusiveStore, LockError, LockFlaw, check, is_process_alive,
    should_skip_database,
};
pub use mkdir::MkdirStore;

pub use store::FileStore;
pub use tenure_host::files::{Access, Durability, Options};
