//! The embedded store: leases, queue, tokens and history in one SQLite database.
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | [`store`] | [`SqliteStore`]: its parts and its transactions |
//! | `verbs` | the verbs of [`tenure_core::Store`], each one transaction |
//! | `tasks` | tasks and sections, worked on under two leases |
//! | `write` | the writes of the verbs, inside a transaction |
//! | `view` | reading one key inside a transaction |
//! | `rows` | rows to types and back |
//! | `lock_tables` | `task_locks` and `section_locks`, which other programs read and write too |
//! | `steroids` | the same two tables in a live database of another program |
//! | `query` | SQL in one call |
//! | `history` | events: append, count, prune, list |
//! | `schema` | tables, versions, upgrades |
//! | `connection` | opening, pragmas, waiting for other writers |
//! | `log` | the write-ahead log, kept short |
//! | `moving` | moving a database to another folder |
//! | `read_only` | opening a database that is only read |
//! | `repair` | putting right what was damaged by hand |
//! | `integrity` | whether a database is damaged |
//! | `fault` | SQLite's errors as messages |
//!
//! # Invariants
//!
//! 1. Every verb that may change something is one `BEGIN IMMEDIATE` transaction: read, decide,
//!    write (G1, G5, G10). A verb that only reads is one read transaction.
//! 2. The token counter is never lowered and is kept when leases end (G2). A power cut may undo the
//!    last commits (WAL without a sync for each), so before the first grant of a new boot the
//!    counter is raised, and synced, by more than those commits could have used.
//! 3. Waiters are woken after the commit, never inside it.
//!
//! # Limitations
//!
//! One machine: SQLite's WAL needs shared memory, so a database on a network file system that
//! several machines write is not supported.

mod call_deadline;
mod connection;
mod fault;
mod history;
mod integrity;
mod lock_tables;
mod log;
mod moving;
mod query;
mod read_only;
mod repair;
mod reserved;
mod rows;
mod schema;
mod steroids;
pub mod store;
mod tasks;
mod verbs;
mod view;
mod write;

pub use integrity::{Checked, integrity};
pub use moving::{Moved, move_database, placeholder};
pub use schema::{Purpose, VERSION as SCHEMA_VERSION};
pub use store::{SqliteOptions, SqliteStore};
