//! Both lock protocols on real folders, with real processes.
//!
//! All of it is one program: it is built faster than many, and its tests wait for one another less.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod contention;
mod exclusive_battery;
mod exclusive_foreign;
mod interrupted;
mod mkdir_battery;
mod mkdir_foreign;
mod protocols;
mod survival;
mod verdicts;
