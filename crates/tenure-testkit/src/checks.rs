//! The checks, one file for each guarantee or two. Each takes the store under test and panics if
//! the store fails it; [`crate::battery!`] makes a test of each.

pub mod crash;
pub mod cut_off;
pub mod deadlock;
pub mod late;
pub mod one_holder;
pub mod one_process;
pub mod order;
pub mod reaper;
pub mod release;
pub mod takeover;
pub mod tokens;
pub mod waking;
