//! Coding agents as tenure meets them: what their hooks say and understand, and where they are configured.
//!
//! | module | contents |
//! |---|---|
//! | [`tool`] | the agents, the files that configure their hooks, and the hooks that tenure adds |
//! | [`event`] | what an agent tells a hook on standard input |
//! | [`patch`] | the files that a patch of Codex names |
//! | [`reply`] | what a hook answers, in the form that the agent passes on to its model |
//! | [`merge`] | adding tenure's hooks to a JSON file, and taking them out again |
//! | [`section`] | the same for a section of a Markdown file |
//! | [`diff`] | what such an edit changes, line by line |
//!
//! # Limitations
//!
//! Everything here is pure: it opens no file, knows no store and no clock. `tenure hook` and `tenure setup` do
//! that.

pub mod diff;
pub mod event;
mod jsonc;
pub mod merge;
pub mod patch;
pub mod reply;
pub mod section;
pub mod tool;
