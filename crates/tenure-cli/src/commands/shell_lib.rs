//! `tenure shell-lib`: functions for shell scripts.

use serde_json::json;

use crate::answer::Answer;

/// The functions, in POSIX `sh`.
const SCRIPT: &str = include_str!("shell_lib/board_lock.sh");

pub(crate) fn shell_lib() -> Answer {
    Answer::new(json!({ "script": SCRIPT }), SCRIPT.trim_end())
}
