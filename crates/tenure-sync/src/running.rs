//! Whether the user is running git in a work tree.
//!
//! Some commands leave no trace in git's folder for most of the time: a `git pull` that still fetches, a
//! `git commit` whose editor is open. They fail if the branch moves meanwhile.

use std::fs;
use std::path::Path;

/// The commands that fail if the branch moves or the shared file changes.
const DISTURBED: [&str; 14] = [
    "am",
    "bisect",
    "checkout",
    "cherry-pick",
    "commit",
    "merge",
    "pull",
    "rebase",
    "reset",
    "restore",
    "revert",
    "stash",
    "switch",
    "worktree",
];

/// Options of git itself whose value is the next word.
const WITH_VALUE: [&str; 5] = ["-C", "-c", "--git-dir", "--work-tree", "--namespace"];

/// A git that runs in this work tree: its command and its pid. One that started this process does not
/// count: this process is its hook.
pub(super) fn at_work(top: &Path) -> Option<(String, u32)> {
    let ancestors = ancestors();
    let all = fs::read_dir("/proc").ok()?.flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| !ancestors.contains(pid))
        .find_map(|pid| Some((disturbed(pid, top)?, pid)))
}

fn disturbed(pid: u32, top: &Path) -> Option<String> {
    let of = |name: &str| format!("/proc/{pid}/{name}");
    if fs::read(of("comm")).ok()? != b"git\n" {
        return None;
    }
    let line = fs::read(of("cmdline")).ok()?;
    let command = command(&String::from_utf8_lossy(&line))?;
    let here = fs::read_link(of("cwd")).ok()?.starts_with(top);
    (here && DISTURBED.contains(&command.as_str())).then_some(command)
}

/// The command that a git was called with.
fn command(line: &str) -> Option<String> {
    let mut words = line.split('\0').skip(1).filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word.to_owned());
        }
    }
    None
}

/// The ancestors of this process.
fn ancestors() -> Vec<u32> {
    let mut found = Vec::new();
    let mut pid = std::process::id();
    while pid > 1 && !found.contains(&pid) {
        found.push(pid);
        let Some(parent) = parent(pid) else { break };
        pid = parent;
    }
    found
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_found_behind_the_options_of_git() {
        for (line, is) in [
            ("git\0commit\0-m\0x\0", Some("commit")),
            (
                "/usr/bin/git\0-c\0a=b\0-C\0dir\0--no-pager\0pull\0--rebase\0",
                Some("pull"),
            ),
            ("git\0--version\0", None),
        ] {
            assert_eq!(command(line).as_deref(), is, "{line:?}");
        }
    }
}
