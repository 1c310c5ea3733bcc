//! Path reservations, enforced in git.
//!
//! | module | contents |
//! |---|---|
//! | [`hooks`] | the hooks: installed beside those of other tools, and removed again |
//! | `config` | the lines in git's configuration that make git use a folder of ours |
//! | `script` | what the hooks are: small shell scripts that call `tenure guard hook` |
//! | [`run`] | what each hook does |
//! | [`scene`] | the repository, the store and the holder that a hook works with |
//! | [`touched`] | the paths that a commit, an index or a push changes |
//! | [`judge`] | which of those paths other holders have reserved |
//! | [`records`] | under which tokens each commit was made, and against whose reservations |
//! | `recording` | how that is found out |
//! | `past` | what was reserved at an earlier time |
//! | [`push`] | which commits of a push were made against reservations |
//! | `work_tree` | where git runs the hooks of a repository, and git as a hook runs it |
//!
//! # Invariants
//!
//! 1. No file of another tool is written, moved or removed. A hook that exists is run at its own path.
//! 2. What git passes to a hook (`GIT_DIR`, `GIT_INDEX_FILE`, the quarantine of a push) is passed on to every git
//!    that the guard runs: a partial commit has an index of its own.
//! 3. Nothing is added to a commit, to its message or to the notes.
//!
//! # Limitations
//!
//! The guard sees what git changes, not what an editor writes. A person who can write the repository can remove
//! it; a server can't be passed that way ([`touched::new_on_branches`] is what its hook asks).

mod config;
pub mod hooks;
pub mod judge;
mod past;
pub mod push;
mod recording;
pub mod records;
pub mod run;
pub mod scene;
mod script;
pub mod touched;
mod work_tree;

pub use work_tree::here;
