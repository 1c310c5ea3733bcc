//! Adding tenure to the configuration of coding agents, and taking it out again.
//!
//! | module | contents |
//! |---|---|
//! | [`merge`] | tenure's hooks in a JSON file |
//! | [`section`] | a section of a Markdown file |
//! | [`diff`] | what such an edit changes, line by line |
//!
//! # Limitations
//!
//! Everything here is pure: it opens no file.

pub mod diff;
mod jsonc;
pub mod merge;
pub mod section;
