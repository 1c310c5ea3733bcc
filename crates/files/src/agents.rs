//! Coding agents as tenure meets them: what their hooks say and understand, and where they are configured.
//!
//! | module | contents |
//! |---|---|
//! | [`tool`] | the agents, the files that configure their hooks, and the hooks that tenure adds |
//! | [`event`] | what an agent tells a hook on standard input |
//! | [`patch`] | the files that a patch of Codex names |
//! | [`reply`] | what a hook answers, in the form that the agent passes on to its model |
//!
//! # Limitations
//!
//! Everything here is pure: it opens no file, knows no store and no clock.

pub mod event;
pub mod patch;
pub mod reply;
pub mod tool;
