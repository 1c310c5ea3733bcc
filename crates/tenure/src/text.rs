//! Texts for people: durations, counts, and text from others made fit to be shown.

pub mod duration;
pub mod plural;

pub use tenure_core::key::is_hidden;
pub use tenure_core::text::{flat, quoted, quoted_bytes, visible};
