//! Decide who may work on what, right now, and prove it afterwards.
//!
//! This is the library behind the `tenure` command: open a store, ask for a key, wait for it,
//! keep it alive, give it back.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Config, Outcome, StoreUrl, Tenure};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let url = format!("sqlite:{}", dir.path().join("tenure.db").display());
//! let tenure = Tenure::open(&StoreUrl::parse(&url)?, Config::default())?;
//! match tenure.ask("build")?.named("agent-1")?.wait(Duration::from_secs(60)).acquire()? {
//!     Outcome::Granted(held) => {
//!         println!("building, with token {}", held.token());
//!         assert!(held.is_trusted());
//!         held.release()?;
//!     }
//!     Outcome::Busy(busy) => println!("busy: {:?}", busy.lease),
//!     Outcome::Deadlock(cycle) => println!("would never end: {cycle}"),
//!     Outcome::Cancelled => {}
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | [`ask`] | [`Ask`]: what is wanted, in the caller's words |
//! | [`acquire`] | try, queue, wait, deadline |
//! | [`held`] | [`Held`]: a lease that is kept alive until it is dropped |
//! | [`tasks`] | working on tasks: [`Ask::start`], [`Ask::next`], [`TaskGuard`] |
//! | [`open`] | [`StoreUrl`] and [`Tenure`] |
//! | [`project`] | finding and making the `.tenure` folder |
//! | [`config`] | settings and where each came from |
//! | [`duration`] | `90s`, `1h30m` |
//! | [`plural`] | `1 task`, `2 tasks` |
//! | [`wire`] | what programs read: the types behind `--json` |
//!
//! # Limitations
//!
//! A lease is a promise among those who ask. What it protects must either be reached only through
//! holders, or check the fencing token itself (see [`Held::check`]).

pub mod acquire;
pub mod ask;
pub mod config;
pub mod duration;
pub mod held;
pub mod open;
pub mod plural;
pub mod project;
pub mod tasks;
pub mod wire;

pub use acquire::{Cancel, Obstacle, Progress};
pub use ask::{Ask, Outcome, Tie};
pub use config::Config;
#[cfg(feature = "config")]
pub use config::ConfigError;
pub use held::{Held, Loss};
pub use open::{BadUrl, StoreUrl, Tenure};
pub use project::Project;
pub use tasks::{AnyTask, TaskGuard, TaskOutcome};
pub use tenure_core as core;
pub use tenure_file as file;
pub use tenure_host as host;
pub use tenure_ledger as ledger;
pub use tenure_sqlite::{Imported, Merged, SqliteStore};

use tenure_core::{BadName, StoreError, TaskError};

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something about a task could not be done.
    #[error(transparent)]
    Task(TaskError),
    /// A key or holder can't be called that.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A time to live that makes no sense.
    #[error("a lease of {given} can't be kept: give a time to live between {min} and {max}")]
    Ttl {
        /// What was asked for.
        given: String,
        /// The shortest.
        min: String,
        /// The longest.
        max: String,
    },
    /// The process a lease should be tied to is not there.
    #[error("there is no process {0} to tie the lease to: give the pid of a process that runs")]
    NoProcess(u32),
    /// The process a lease should be tied to can't be looked at.
    #[error("process {pid} can't be looked at ({error}): give the pid of a process of yours")]
    HiddenProcess {
        /// The pid.
        pid: u32,
        /// Why.
        error: std::io::Error,
    },
}

impl From<TaskError> for Error {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Store(error) => Self::Store(error),
            other => Self::Task(other),
        }
    }
}
