//! The rules of tenure: who may hold a key, and why. This crate does no I/O, starts no threads and reads no
//! clock.
//!
//! # Contents
//!
//! | module | contents |
//! |---|---|
//! | [`key`] | [`Key`]: what is held |
//! | [`holder`] | [`Holder`], [`HolderId`], [`Binding`]: who holds it, and what its lease is tied to |
//! | [`lease`] | [`Lease`], [`Token`], [`Grant`]: one lease, its fencing token and its proof |
//! | [`claim`] | [`Claim`], [`Priority`]: a request for a key |
//! | [`queue`] | [`Waiter`]: the order of the queue, and how far a claim can be overtaken |
//! | [`verdict`] | [`Verdict`], [`Evidence`]: whether a holder is alive, and the proof |
//! | [`time`] | [`Clock`], [`Moment`], [`Deadline`]: the wall clock and the ticks of a clock domain |
//! | [`decide`] | the decision on a claim, from the time, the store's records and the claim |
//! | [`several`] | the rules for a claim on several keys |
//! | [`engine`] | every verb of a store, written once over one atomic step |
//! | [`mode`] | [`Mode`]: alone, together with others, in one of some slots, or some paths each |
//! | [`path_pattern`] | [`PathPattern`]: patterns of paths, and whether two have a path in common |
//! | [`path_set`] | [`PathSet`]: the paths of one reservation |
//! | [`places`] | [`Places`]: where reservations of paths can meet |
//! | [`waits`] | [`waits::Wanted`]: what a waiter waits for |
//! | [`cycle`] | [`Cycle`]: a deadlock between waiters |
//! | [`graph`] | [`graph::Graph`]: cycles of dependencies between tasks |
//! | [`event`] | [`Event`]: one line of a key's history |
//! | [`text`] | text from others, made fit to be shown |
//! | [`repaired`] | [`Repaired`]: what a store has put right of itself |
//! | [`store`] | the [`Store`] trait that every store implements |
//! | [`error`] | [`StoreError`]: what is wrong, where, and how to fix it |
//!
//! # The guarantees
//!
//! The numbers are those of `docs/guarantees.md`; comments here cite them as "G1" to "G11".
//!
//! | | | | |
//! |---|---|---|---|
//! | G1 one holder | G2 tokens only grow | G3 four ways to end, with evidence | G4 unknown is never taken over |
//! | G5 taking over is race-free | G6 only the holder releases | G7 a late writer is refused | G8 waiting is fair |
//! | G9 waiters are woken | G10 a crash is survivable | G11 contention is an outcome, failure an error | |
//!
//! # Limitations
//!
//! The rules trust what a store reports about liveness. A store that reports a running process as dead
//! violates G4, and nothing in this crate can detect that.

pub mod claim;
pub mod cycle;
pub mod decide;
pub mod engine;
pub mod error;
pub mod event;
pub mod graph;
pub mod holder;
pub mod key;
pub mod lease;
pub mod mode;
pub mod path_pattern;
pub mod path_set;
pub mod places;
pub mod queue;
pub mod repaired;
pub mod several;
pub mod store;
pub mod text;
pub mod time;
pub mod verdict;
pub mod waits;

pub use claim::{Claim, Patience, Priority};
pub use cycle::Cycle;
pub use error::{ErrorKind, StoreError};
pub use event::{Event, EventKind};
pub use holder::{Binding, Holder, HolderId, LivenessId, Process, SessionId};
pub use key::{BadName, Key, KeyKind};
pub use lease::{Grant, Lease, Token};
pub use mode::{BadMode, Mode};
pub use path_pattern::{BadPattern, PathPattern};
pub use path_set::{BadPathSet, PathSet};
pub use places::Places;
pub use queue::{Presence, Ticket, Waiter};
pub use repaired::Repaired;
pub use store::{
    Acquired, Busy, Capabilities, Fenced, Forced, Granted, HistoryQuery, QueuePosition, Reap,
    Reaped, Reason, Records, Released, Renewed, Revision, Snapshot, Store, Waited, Watched,
    Withdrawal, requests,
};
pub use time::{Clock, Deadline, Epoch, Moment};
pub use verdict::{Doubt, Evidence, Liveness, Verdict};
