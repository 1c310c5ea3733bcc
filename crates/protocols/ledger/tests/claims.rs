//! The ledger and its claims on real folders, with real processes.
//!
//! All of it is one program: it is built faster than many, and its tests wait for one another less.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod ledger;
mod ledger_battery;
mod ledger_claims;
mod ledger_survival;
