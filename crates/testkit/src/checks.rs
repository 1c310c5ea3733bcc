//! The checks, one file for each guarantee or two. Each takes the store under test and panics if
//! the store fails it; [`crate::battery!`] makes a test of each.

pub mod crash;
pub mod deadlock;
pub mod expired_holder;
pub mod grace;
pub mod interrupted;
pub mod modes;
pub mod one_holder;
pub mod one_process;
pub mod order;
pub mod past_waits;
pub mod reaper;
pub mod release;
pub mod several;
pub mod takeover;
pub mod tokens;
pub mod waking;
