//! The rules of tenure: who may hold a key, and why. Pure: no I/O, no threads, no clock of its own.
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | [`key`] | [`Key`]: what is held |
//! | [`holder`] | [`Holder`], [`HolderId`], [`Binding`]: who holds it, and what its lease is tied to |
//! | [`lease`] | [`Lease`], [`Token`], [`Grant`]: one holding |
//! | [`claim`] | [`Claim`], [`Priority`]: what is asked for |
//! | [`queue`] | [`Waiter`], the order of waiting and its overtaking bound |
//! | [`verdict`] | [`Verdict`], [`Evidence`]: what is known of a holder, and the proof |
//! | [`time`] | [`Clock`], [`Moment`], [`Deadline`]: the wall clock and a clock domain, kept apart |
//! | [`decide`] | from (now, what the store holds, what is asked) to what happens |
//! | [`engine`] | every verb of a store, once, over one atomic step of it |
//! | [`cycle`] | a wait that would never end |
//! | [`graph`] | [`graph::Graph`]: cycles of dependencies |
//! | [`event`] | [`Event`]: one line of a key's story |
//! | [`task`] | [`Task`], [`Section`]: what there is to do, and the rules for working on it |
//! | [`store`] | the [`Store`] trait that every store implements |
//! | [`error`] | [`StoreError`]: what is wrong, where, and the way out |
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
//! The rules trust what a store tells them about liveness. A store that calls a running process
//! dead breaks guarantee 4, and nothing here can notice.

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
pub mod queue;
pub mod store;
pub mod task;
pub mod time;
pub mod verdict;

pub use claim::{Claim, Patience, Priority};
pub use cycle::Cycle;
pub use error::{ErrorKind, StoreError};
pub use event::{Event, EventKind};
pub use holder::{Binding, Holder, HolderId, LivenessId, Process, SessionId};
pub use key::{BadName, Key, KeyKind};
pub use lease::{Grant, Lease, Token};
pub use queue::{Presence, Ticket, Waiter};
pub use store::{
    Acquired, Busy, Capabilities, Fenced, Forced, Granted, HistoryQuery, QueuePosition, Reap,
    Reaped, Reason, Released, Renewed, Revision, Snapshot, Store, Waited, Watched,
};
pub use task::{Section, Status, Task, TaskError, TaskStore};
pub use time::{Clock, Deadline, Epoch, Moment};
pub use verdict::{Doubt, Evidence, Liveness, Verdict};
