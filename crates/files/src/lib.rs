//! Who may change which files: path reservations, enforced in git and in coding agents.
//!
//! | module | contents |
//! |---|---|
//! | [`ruling`] | the rule: whether a holder may write a file |
//! | [`guard`] | git's side: hooks that judge commits and pushes |
//! | [`agents`] | the agents' side: what their hooks say and understand |
//! | [`danger`] | which uncommitted work a command line would destroy, and how a person allows it |
//! | [`changes`] | what a command changed in a work tree |
//! | [`kept`] | uncommitted bytes, kept before another command can wipe them |
//! | [`setup`] | edits of the agents' configuration that can be undone byte for byte |

pub mod agents;
pub mod changes;
pub mod danger;
mod error;
pub mod guard;
pub mod kept;
pub mod ruling;
pub mod setup;

pub use error::Error;
