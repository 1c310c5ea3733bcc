//! Locks that are files: the exclusive lock, the mkdir lock, the event ledger and its claims, and the
//! ground that every such lock stands on.
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | [`exclusive`] | the exclusive lock `.exclusive-lock`: its format, and the seed's library calls |
//! | [`mkdir`] | the mkdir lock: a folder that other programs make and remove |
//! | [`ledger`] | the event ledger: append, read, follow, verify; claims on its nodes as a store |
//! | [`store`] | [`FileStore`]: one lock at one place as a [`tenure_core::Store`] |
//! | `verbs` | its verbs, each one step under the guard |
//! | `step` | such a step under way: load, finish what was cut off, look, act, save |
//! | `places` | places in the queue, inside a step |
//! | `view` | what the lock and the side folder say together |
//! | [`slot`] | [`LockProtocol`]: what a protocol has to tell of its lock |
//! | `outsider` | holders that another program wrote down |
//! | [`takeover`] | how a stale lock is taken over or removed, and a live one never |
//! | [`side`] | the folder beside the lock: what tenure knows beyond the protocol |
//! | `halves` | what is changed often, in two halves that are written in turn |
//! | `history` | events: append, prune, tell |
//! | [`guard`] | the kernel lock that serialises tenure's own processes |
//! | [`atomic`] | files that are there whole or not at all |
//! | [`watch`] | be told when the lock appears, changes or goes |
//! | `rfc3339` | times as the protocols write them |
//! | `fault` | the system's errors in words |
//!
//! # Invariants
//!
//! 1. Every verb that may change something runs under the [`guard`]: tenure's own processes go one
//!    after the other (G1, G5). Programs that know nothing of the guard are left to [`takeover`].
//! 2. A lock appears at its place whole, and only where none is; a stale one is swapped for its
//!    successor, so that the place never stands free (G5).
//! 3. What was swapped out or taken aside is compared with what was judged. Anything else is given
//!    back (G4).
//! 4. Before the lock is touched, what is about to happen is on record (`pending`), so that
//!    whoever comes after a crash can tell whether it happened, and finishes it or drops it (G10).
//! 5. No token is given that is not below the `ceiling`, which is on disk before (G2).
//! 6. Bells are rung after the guard is given back, never under it.
//!
//! # Lock order
//!
//! The store object's own mutex, then the guard. Nothing else is taken inside; life locks are only
//! ever *tried*.
//!
//! # Limitations
//!
//! One machine, Linux, and a file system that can swap two names (`RENAME_EXCHANGE`: ext4, xfs,
//! btrfs, tmpfs and most others). A program that writes or removes the lock without asking breaks
//! any promise; it is noticed and recorded, not prevented. The kernel can't remove a name on
//! condition: a live lock that another program puts in the place of a stale one in the very
//! microseconds in which that is removed is out of its place until it is given back.
//! Whoever deletes the side folder deletes the queue, the history and the token counter with it.

pub mod exclusive;
mod history;
pub mod mkdir;
mod outsider;
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
pub use tenure_host::files::{Disk, Options};
