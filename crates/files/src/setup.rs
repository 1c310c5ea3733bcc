//! Adding tenure to the configuration of coding agents, and taking it out again.
//!
//! | module | contents |
//! |---|---|
//! | [`target`] | the file to change, and the change |
//! | [`merge`] | tenure's hooks in a JSON file |
//! | [`section`] | a section of a Markdown file |
//! | [`diff`] | what such an edit changes, line by line |

pub mod diff;
mod jsonc;
pub mod merge;
pub mod section;
pub mod target;
