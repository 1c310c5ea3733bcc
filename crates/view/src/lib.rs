//! One view over every lock in a project, whichever program made it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`overview`] | [`Overview`]: every store of a project, and the locks of other tools |
//! | [`foreign`] | the locks of git and cargo, and pid files: found, and judged by the processes of this machine |
//! | [`doctor`] | [`doctor::examine`]: what is wrong in a project, and [`doctor::fix`]: what can be put right safely |
//! | [`history`] | what the history of a store proves, and who held what when |
//! | [`watch`] | what changes in a project: [`watch::Feed`] reads it, [`watch::Alarm`] tells when to look again |
//! | [`waits`] | who waits for whom, and the circles of waits that never end |
//! | [`processes`] | the processes of this machine, and what they have open or locked |
//!
//! # Invariants
//!
//! 1. Looking changes nothing: every store is opened read-only, and a foreign lock is only read. Only
//!    [`doctor::fix`] writes, through the stores' own verbs.
//! 2. The work is bounded: no folder is walked as a whole but git's `refs`, and each is read up to a limit (`scan`), which
//!    is reported when it is reached. Of cargo's target folder, it is not.
//! 3. A lock that is released while it is examined is left out.
//!
//! # What this does not do
//!
//! It opens no store of another machine unless the caller names it.

pub mod doctor;
pub mod foreign;
pub mod history;
pub mod overview;
pub mod processes;
mod scan;
pub mod waits;
pub mod watch;

pub use foreign::{ForeignLock, Tool};
pub use overview::{Overview, StoreView};
