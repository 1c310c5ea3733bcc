//! The background cycle: stand aside for exclusive locks, free what nobody holds any more, sync.
//!
//! | module | what it holds |
//! |---|---|
//! | [`sync`] | the project's tasks, shared through git |

pub mod sync;
