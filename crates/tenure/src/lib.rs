//! Decide who may work on what, right now, and prove it afterwards.
//!
//! ```no_run
//! let guard = tenure::lock("build")?;
//! println!("building, with token {}", guard.token());
//! # Ok::<(), tenure::Error>(())
//! ```
//!
//! That is the everyday call: the key `build` of the current folder's project, held until the guard is dropped. It waits as
//! the project's settings say, and its error names the holder. [`try_lock`] does not wait. A program that locks often
//! opens the store once:
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Acquired, Tenure};
//!
//! let tenure = Tenure::open("memory:")?; // or Tenure::here()?, or "sqlite:locks.db"
//! let guard = tenure.lock("build")?;
//! guard.on_lost(|| eprintln!("the lease is lost: stop writing"));
//! assert!(tenure.try_lock("build")?.is_none());
//!
//! // For those who need every case.
//! match tenure.ask("deploy")?.named("agent-1")?.wait(Duration::from_secs(60)).acquire()? {
//!     Acquired::Granted(guard) => assert!(guard.is_trusted()),
//!     Acquired::Busy(busy) => println!("busy: {:?}", busy.leases),
//!     Acquired::Deadlock(cycle) => println!("would never end: {cycle}"),
//!     Acquired::Cancelled => {}
//! }
//! # Ok::<(), tenure::Error>(())
//! ```
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | [`ask`] | [`Ask`]: what is wanted, in the caller's words; how a wait is watched and cancelled |
//! | [`guard`] | [`Guard`]: a lease that is renewed until it is dropped |
//! | [`store`] | what a store tells: leases, holders, verdicts, history; [`MemoryStore`](store::MemoryStore) |
//! | [`tasks`] | working on tasks: [`Ask::start`], [`Ask::next`], [`TaskGuard`](tasks::TaskGuard) |
//! | [`files`] | who writes or reads which files: reservations, patterns of paths |
//! | [`project`] | finding and making the `.tenure` folder |
//! | [`config`] | settings and where each came from |
//! | [`who`] | which holder a process acts for |
//! | [`wire`] | what programs read: the types behind `--json` |
//! | [`protocols`] | the formats of other programs: ledgers, boards, exclusive locks |
//! | [`text`] | `90s`, `2 tasks`, and text from others made fit to be shown |
//!
//! # Limitations
//!
//! A lease is a promise among programs that ask. What it protects must either be reached only through
//! holders, or check the fencing token itself (see [`Guard::check`]).

mod acquire;
pub mod ask;
pub mod config;
mod error;
pub mod guard;
#[cfg(feature = "config")]
mod here;
mod lock;
mod memory;
mod open;
pub mod project;
mod reservations;
pub mod tasks;
pub mod text;
pub mod who;
pub mod wire;

pub use ask::Ask;
pub use config::Config;
pub use error::Error;
pub use guard::Guard;
#[cfg(feature = "config")]
pub use here::{lock, try_lock};
pub use open::{StoreUrl, Tenure};
pub use project::Project;
pub use tenure_core::{Acquired, Busy, Mode};

/// What a store is asked and what it tells: leases, holders, verdicts, history.
pub mod store {
    pub use tenure_core::{
        BadMode, BadName, Binding, Capabilities, Claim, Clock, Cycle, Deadline, Doubt, Epoch,
        ErrorKind, Event, EventKind, Evidence, Fenced, Forced, Grant, Granted, HistoryQuery,
        Holder, HolderId, Key, KeyKind, Lease, Liveness, Moment, Patience, Presence, Priority,
        Process, QueuePosition, Reap, Reaped, Reason, Records, Released, Renewed, Snapshot, Store,
        StoreError, Ticket, Token, Verdict, Waited, Waiter, Watched, Withdrawal, requests,
    };
    #[cfg(feature = "etcd")]
    pub use tenure_etcd::{Comparison, EtcdStore, Relation};

    pub use crate::acquire::{CALL_LIMIT, LEAVE_LIMIT, call_deadline};
    pub use crate::memory::MemoryStore;
    pub use crate::open::{BadUrl, EtcdUrl};
}

/// Who writes or reads which files of a repository: reservations, and patterns of paths.
pub mod files {
    pub use tenure_core::{BadPathSet, BadPattern, PathPattern, PathSet};

    pub use crate::project::{BadPath, Target, WorkTree};
    pub use crate::reservations::Reservations;
}

/// The formats of other programs, with their own words.
pub mod protocols {
    pub use tenure_board as board;
    #[cfg(feature = "ledger")]
    pub use tenure_ledger as ledger;
    #[cfg(feature = "file")]
    pub use tenure_lockfile::exclusive;
}

/// The examples of the guide are tests.
#[cfg(all(doctest, feature = "config", feature = "ledger", feature = "sqlite"))]
#[doc = include_str!("../../../docs/guide/rust.md")]
mod guide {}
