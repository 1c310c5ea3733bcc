//! The background process of a project: it checks the exclusive locks, ends expired and dead leases, and
//! syncs the tasks.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@run`] | the daemon: start, one cycle after another, stop |
//! | [`cycle`] | one cycle: check the exclusive locks, end leases, sync |
//! | [`reap`] | ending expired and dead leases in every store of the project |
//! | `sleep` | between two cycles: wait for the interval, a change of a lock, or a signal |
//! | `ledger_lock` | the ledger lock of a killed tenure, removed as soon as it dies |
//! | `board_locks` | the locks of boards, and the exit of their holders |
//! | `lock_locations` | where exclusive locks may appear, watched with inotify |
//! | `signals` | the signals that the daemon reacts to |
//! | [`lock`] | one daemon per project: a kernel lock on `daemon.lock` |
//! | [`state`] | what the daemon records about itself: `daemon.json` |
//! | [`status`] | whether a daemon runs, as seen by another process |
//! | [`stop`] | stopping a daemon from another process |
//! | [`log`] | writing and rotating the log |
//! | [`tail`] | reading and following the log |
//!
//! # Invariants
//!
//! 1. Only the holder of the daemon's [`lock`] runs cycles and writes the state and the log. The kernel
//!    releases the lock when the process ends, however it ends, so there is nothing to clean up.
//! 2. The state of a dead daemon is never believed: only the lock proves that a daemon runs.
//! 3. A cycle does nothing while one of the project's exclusive locks is held, or can't be checked. A lock
//!    that appears during a cycle lets that cycle finish.
//! 4. No failure ends the daemon, be it of the store, the sync, the settings, the state or the log. The
//!    daemon logs it and tries again in the next cycle.
//! 5. No database is open between two cycles.
//!
//! # Lock order
//!
//! The daemon takes its own lock first and keeps it. Everything else is taken and released inside a cycle.

mod board_locks;
pub mod cycle;
mod ledger_lock;
pub mod lock;
mod lock_locations;
pub mod log;
pub mod reap;
pub mod run;
mod signals;
mod sleep;
pub mod state;
pub mod status;
pub mod stop;
pub mod tail;

pub use cycle::{CycleEvent, CycleResult, run_once};
pub use run::{DaemonOptions, StartError, StopReason, run};
pub use state::{CycleOutcome, DaemonState};
pub use status::DaemonStatus;
