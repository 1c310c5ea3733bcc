//! cargo's target lock: a kernel lock on a file that stays. The file is a lock only while a process has it locked.

use std::path::Path;

use tenure::wire::{Connection, ForeignProcessJson};

use super::{Candidate, ForeignVerdict, Tool};
use crate::processes::Processes;
use crate::scan;

/// What is looked for.
const WHAT: &str = "locks of cargo";

/// The names of the files, in the folder of a profile.
const NAMES: [&str; 3] = [".cargo-lock", ".cargo-build-lock", ".cargo-artifact-lock"];

/// The files that may be locked: `target/debug/.cargo-lock`, `target/TRIPLE/release/.cargo-lock`.
pub(super) fn candidates(root: &Path, found: &mut Vec<Candidate>, left_out: &mut Vec<String>) {
    let set = std::env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty());
    let set = set.map(|dir| root.join(dir));
    let target = set.unwrap_or_else(|| root.join("target"));
    for folder in scan::folders(&target, WHAT, left_out) {
        let before = found.len();
        in_profile(&folder, found, left_out);
        if found.len() == before {
            for profile in scan::folders(&folder, WHAT, left_out) {
                in_profile(&profile, found, left_out);
            }
        }
    }
}

fn in_profile(folder: &Path, found: &mut Vec<Candidate>, left_out: &mut Vec<String>) {
    let at = NAMES.map(|name| Candidate::at(Tool::Cargo, folder.join(name), left_out));
    found.extend(at.into_iter().flatten());
}

/// `None` if no process has it locked.
pub(super) fn judge(
    lock: &Candidate,
    processes: &Processes,
) -> Option<(ForeignVerdict, Vec<ForeignProcessJson>)> {
    let by = processes.having_locked(&lock.path, lock.file);
    let why = format!("pid {} has it locked", by.first()?.pid);
    let by = by.iter().map(|seen| seen.connected(Connection::Locked));
    Some((ForeignVerdict::Alive(why), by.collect()))
}
