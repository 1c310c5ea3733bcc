//! Coding agents as tenure meets them: what their hooks say and understand, and where they are configured.
//!
//! | module | contents |
//! |---|---|
//! | [`tool`] | the agents, the files that configure their hooks, and the hooks that tenure adds |
//! | [`command`] | shell commands: what they would destroy, and what they have changed |
//! | [`event`] | what an agent tells a hook on standard input |
//! | [`patch`] | the files that a patch of Codex names |
//! | [`record`] | what is known of a session: its process, its sub-agents, when it was heard |
//! | [`session`] | what a hook decides: which files are reserved, renewed and given back, and which edits are refused |
//! | `files` | the files of the work tree that an agent edits |
//! | [`reply`] | what a hook answers, in the form that the agent passes on to its model |

pub mod command;
pub mod event;
mod files;
pub mod patch;
pub mod record;
pub mod reply;
pub mod session;
pub mod tool;
