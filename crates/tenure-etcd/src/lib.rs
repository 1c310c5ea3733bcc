//! tenure's store for many machines: leases, queue, history and tasks on an etcd cluster.
//!
//! # Contents
//!
//! | module | contents |
//! |---|---|
//! | `address` | [`Address`]: where a cluster is, how to log in |
//! | `check` | [`check`]: examines a cluster |
//! | `told` | what a member says of itself outside of etcd's API: its clock, its quota |
//! | `cluster` | how its members are asked, and what their errors mean |
//! | `driver` | what runs on the caller's thread, and what on a thread of its own |
//! | `client`, `proto` | the connection to one member, and etcd's messages |
//! | `layout` | the names of the keys in etcd |
//! | `records` | their values |
//! | `lives` | the etcd leases that leases live by |
//! | `session` | the session of a process that waits, kept alive by one task |
//! | `step` | one step of the engine as one optimistic transaction |
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
mod history;
mod layout;
mod lives;
mod proto;
mod read;
mod records;
mod session;
mod step;
mod store;
mod tasks;
mod told;
mod wait;

pub use address::{Address, BadAddress, Tls};
pub use check::{Check, Login, MemberCheck, MemberStatus, check};
pub use comparison::{Comparison, Relation};
pub use store::{EtcdOptions, EtcdStore};
