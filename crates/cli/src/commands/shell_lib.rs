//! `tenure shell-lib`: functions for shell scripts.

use tenure::wire::ShellLibraryJson;

use crate::answer::Answer;

/// The functions, in POSIX `sh`.
const SCRIPT: &str = include_str!("shell_lib/board_lock.sh");

pub(crate) fn shell_lib() -> Answer {
    let data = ShellLibraryJson {
        script: SCRIPT.to_owned(),
    };
    Answer::new(data, SCRIPT.trim_end())
}
