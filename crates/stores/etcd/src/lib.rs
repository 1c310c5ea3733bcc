//! tenure's store for many machines: leases, queue, history and tasks on an etcd cluster.
//!
//! # Contents
//!
//! | module | contents |
//! |---|---|
//! | `address` | [`Address`]: where a cluster is, how to log in |
//! | `check` | [`check`]: examines a cluster |
//! | `member_metrics` | what a member says of itself outside of etcd's API: its clock, its quota |
//! | `cluster` | how its members are asked, and what their errors mean |
//! | `hindrance` | why a member can't be talked to, although it may run |
//! | `driver` | what runs on the caller's thread, and what on a thread of its own |
//! | `client`, `proto` | the connection to one member, and etcd's messages |
//! | `layout` | the names of the keys in etcd |
//! | `records` | their values |
//! | `let_pass` | waiters that let their turn pass |
//! | `etcd_leases` | the etcd leases that leases live by |
//! | `memory` | what this machine remembers of a cluster between two commands |
//! | `origin` | where tokens come from, and how a cluster that was restored is noticed |
//! | `repair` | puts right what was removed, damaged or restored |
//! | `session` | the session of a process that waits, kept alive by one task |
//! | `step` | one step of the engine as one optimistic transaction |
//! | `guess` | what a step takes for granted instead of reading it |
//! | `commit` | its transaction, and what became of it |
//! | `wait` | how a waiter sleeps and is woken |
//! | `comparison` | [`Comparison`]: how a user's own transaction depends on a lease |
//! | `history` | the events, and how the history stays short |
//! | `read` | reads and writes that may be made twice |
//! | `tasks` | tasks and sections |
//! | `store` | [`EtcdStore`]: its parts, and how steps are retried |

mod address;
mod check;
mod client;
mod cluster;
mod commit;
mod comparison;
mod driver;
mod etcd_leases;
mod guess;
mod hindrance;
mod history;
mod layout;
mod let_pass;
mod member_metrics;
mod memory;
mod origin;
mod proto;
mod read;
mod records;
mod repair;
mod session;
mod step;
mod store;
mod tasks;
mod wait;

pub use address::{Address, BadAddress, Tls};
pub use check::{Check, Login, MemberCheck, MemberStatus, check};
pub use comparison::{Comparison, Relation};
pub use memory::MemoryFolder;
pub use repair::Repair;
pub use store::{EtcdOptions, EtcdStore};
