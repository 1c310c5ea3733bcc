//! Decide who may work on what, right now, and prove it afterwards.
//!
//! This is the library behind the `tenure` command: open a store, ask for a key, wait for it,
//! have it renewed, give it back.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Acquired, Config, StoreUrl, Tenure};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let url = format!("sqlite:{}", dir.path().join("tenure.db").display());
//! let tenure = Tenure::open(&StoreUrl::parse(&url)?, Config::default())?;
//! match tenure.ask("build")?.named("agent-1")?.wait(Duration::from_secs(60)).acquire()? {
//!     Acquired::Granted(guard) => {
//!         // The guard renews its lease by itself, and gives the key back when it is dropped.
//!         guard.on_lost(|| eprintln!("the lease is lost: stop writing"));
//!         println!("building, with token {}", guard.token());
//!         assert!(guard.is_trusted());
//!         guard.release()?;
//!     }
//!     Acquired::Busy(busy) => println!("busy: {:?}", busy.leases),
//!     Acquired::Deadlock(cycle) => println!("would never end: {cycle}"),
//!     Acquired::Cancelled => {}
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
//! | [`guard`] | [`Guard`]: a lease that is renewed until it is dropped |
//! | [`memory`] | [`MemoryStore`]: a store for the threads of one process |
//! | [`tasks`] | working on tasks: [`Ask::start`], [`Ask::next`], [`TaskGuard`] |
//! | [`open`] | [`StoreUrl`] and [`Tenure`] |
//! | [`project`] | finding and making the `.tenure` folder; [`WorkTree`]: what a file is called in reservations |
//! | [`reservations`] | [`Reservations`]: who writes or reads which files |
//! | [`config`] | settings and where each came from |
//! | [`duration`] | `90s`, `1h30m` |
//! | [`plural`] | `1 task`, `2 tasks` |
//! | [`who`] | [`Who`]: which holder a process acts for |
//! | [`wire`] | what programs read: the types behind `--json` |
//!
//! # Limitations
//!
//! A lease is a promise among programs that ask. What it protects must either be reached only through
//! holders, or check the fencing token itself (see [`Guard::check`]).

pub mod acquire;
pub mod ask;
pub mod config;
pub mod duration;
pub mod guard;
pub mod memory;
pub mod open;
pub mod plural;
pub mod project;
pub mod reservations;
pub mod tasks;
pub mod who;
pub mod wire;

pub use acquire::{CALL_LIMIT, Cancel, LEAVE_LIMIT, Progress, call_deadline};
pub use ask::{Ask, Tie};
pub use config::Config;
#[cfg(feature = "config")]
pub use config::ConfigError;
pub use guard::{Guard, Loss};
pub use memory::MemoryStore;
pub use open::{BadUrl, EtcdUrl, StoreUrl, Tenure};
pub use project::{BadPath, Project, ProjectStore, StoreRole, Target, WorkTree};
pub use reservations::Reservations;
pub use tasks::{AnyTask, TaskGuard};
pub use tenure_core::{
    Acquired, BadName, BadPathSet, BadPattern, Binding, Busy, Capabilities, Claim, Clock, Cycle,
    Deadline, Doubt, ErrorKind, Event, EventKind, Evidence, Fenced, Forced, Granted, HistoryQuery,
    Holder, HolderId, Key, Lease, Liveness, Mode, Moment, PathPattern, PathSet, Patience, Presence,
    Priority, Process, QueuePosition, Reaped, Reason, Records, Released, Renewed, Snapshot, Store,
    StoreError, Ticket, Token, Verdict, Waiter,
};
#[cfg(feature = "etcd")]
pub use tenure_etcd::{Comparison, EtcdStore, Relation};
pub use tenure_tasks::{Section, Status, Task, TaskError, TaskStore};
pub use who::{Sessions, Who};

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
    /// A time to live, in a store whose leases do not expire.
    #[error(
        "a lock of this store does not expire, so it takes no time to live: it ends when it is released or when its process ends. Leave the time to live out"
    )]
    NoExpiry,
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
