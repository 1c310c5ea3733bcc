//! The background cycle: stand aside for exclusive locks, free what nobody holds any more, sync.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@run`] | the daemon's life: begin, one cycle after another, end |
//! | `cycle` | one cycle: check the exclusive locks, free what is over, sync |
//! | `reap` | freeing what is over in every store of the project |
//! | `rest` | between two cycles: sleep until the time, a lock or a signal says so |
//! | `places` | the places of the exclusive locks, watched |
//! | `signals` | signals as a flag to ask and something to poll |
//! | [`lock`] | one daemon for a project: a kernel lock |
//! | [`state`] | what the daemon tells of itself: `daemon.json` |
//! | [`standing`] | whether it runs, asked from outside |
//! | [`stop`] | ending exactly that process |
//! | [`log`] | the log: a line each, rotated |
//! | [`tail`] | the end of the log, and what is added to it |
//! | `process` | a process held fast, whatever becomes of its pid |
//! | [`sync`] | the project's tasks, shared through git |
//!
//! # Invariants
//!
//! 1. Whoever works or writes the state or the log holds the [`lock`]. The kernel gives it back when
//!    the process ends, however it ends; there is nothing to clean up after.
//! 2. What a dead daemon wrote of itself is never believed: only the lock tells that one runs.
//! 3. Nothing is done to a project while somebody holds one of its exclusive locks, or may. A lock that
//!    appears during a cycle lets that cycle finish.
//! 4. Nothing that fails ends the daemon: not the store, the sync, the settings, the state or the log. It
//!    says so and tries again in the next cycle.
//! 5. Between two cycles no database is open.
//!
//! # Lock order
//!
//! The daemon's lock is taken first and kept. Everything else is taken and given back inside a cycle.

mod cycle;
pub mod lock;
pub mod log;
mod places;
mod process;
mod reap;
mod rest;
pub mod run;
mod signals;
pub mod standing;
pub mod state;
pub mod stop;
pub mod tail;

pub use cycle::{Done, once};
pub use run::{Begun, Ended, NotRun, Options, run};
pub use standing::{Standing, look};
pub use state::State;
