//! cargo's target lock: a kernel lock on a file that stays. The file is a lock only while a process has it locked.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Candidate, ForeignProcess, ForeignVerdict, How, Tool};
use crate::processes::Processes;

/// The names of the files, in the folder of a profile.
const NAMES: [&str; 3] = [".cargo-lock", ".cargo-build-lock", ".cargo-artifact-lock"];

/// How many entries of a folder are looked at.
const MOST_ENTRIES: usize = 256;

/// The files that may be locked: `target/debug/.cargo-lock`, `target/TRIPLE/release/.cargo-lock`.
pub(super) fn candidates(root: &Path, found: &mut Vec<Candidate>) {
    let set = std::env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty());
    let set = set.map(|dir| root.join(dir));
    let target = set.unwrap_or_else(|| root.join("target"));
    for folder in folders(&target) {
        let before = found.len();
        in_profile(&folder, found);
        if found.len() == before {
            for profile in folders(&folder) {
                in_profile(&profile, found);
            }
        }
    }
}

fn in_profile(folder: &Path, found: &mut Vec<Candidate>) {
    let at = NAMES.map(|name| Candidate::at(Tool::Cargo, folder.join(name)));
    found.extend(at.into_iter().flatten());
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .take(MOST_ENTRIES)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// `None` if no process has it locked.
pub(super) fn judge(
    lock: &Candidate,
    processes: &Processes,
) -> Option<(ForeignVerdict, Vec<ForeignProcess>)> {
    let by = processes.having_locked(&lock.path, lock.file);
    let why = format!("pid {} has it locked", by.first()?.pid);
    let by = by.iter().map(|seen| ForeignProcess::of(seen, How::Locked));
    Some((ForeignVerdict::Alive(why), by.collect()))
}
