//! The embedded store: leases, queue, tokens and history in one SQLite database.
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | [`store`] | [`SqliteStore`]: what it is made of, and its transactions |
//! | `verbs` | the verbs of [`tenure_core::Store`], each one transaction |
//! | `tasks` | tasks and sections, worked on under two leases |
//! | `write` | what the verbs do inside a write transaction |
//! | `view` | reading one key inside a transaction |
//! | `rows` | rows to types and back |
//! | `lock_tables` | `task_locks` and `section_locks`, which other programs read and write too |
//! | `foreign` | the same two tables in a live database of another program |
//! | `history` | events: append, count, prune, tell |
//! | `schema` | tables, versions, migration |
//! | `connection` | opening, pragmas, patience |
//! | `fault` | SQLite's errors in words |
//!
//! # Invariants
//!
//! 1. Every verb that may change something is one `BEGIN IMMEDIATE` transaction: read, decide,
//!    write (G1, G5, G10). Those that only look are one read transaction.
//! 2. The token counter is never lowered and outlives every lease (G2). A power cut may undo the
//!    last commits (WAL without a sync for each), so before the first grant of a new boot the
//!    counter is raised, and synced, by more than those commits could have used.
//! 3. Bells are rung after the commit, never inside it.
//!
//! # Limitations
//!
//! One machine: SQLite's WAL needs shared memory, so a database on a network file system that
//! several machines write is not supported.

mod connection;
mod fault;
mod foreign;
mod history;
mod lock_tables;
mod patience;
mod rows;
mod schema;
pub mod store;
mod tasks;
mod verbs;
mod view;
mod write;

pub use schema::VERSION as SCHEMA_VERSION;
pub use store::{Options, SqliteStore};
pub use tasks::{Imported, Merged, Places};
