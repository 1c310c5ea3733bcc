//! Commands that destroy more than files: work trees, submodules, branches, objects.

use std::path::PathBuf;

use crate::danger::calls::Arg;
use crate::danger::git::Command;
use crate::danger::{How, Losing, Loss};

pub(super) fn worktree(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&[]);
    let words = options.all();
    let (verb, rest) = words.split_first()?;
    let path = |at: usize| rest.get(at).and_then(Arg::text);
    let root = worktree_named(command, path(0)?)?;
    let (how, git_checks) = match verb.text()? {
        "remove" => (How::Deletes, !options.has(&["-f", "--force"])),
        "move" => (How::Moves, false),
        _ => return None,
    };
    let mut loss = command.loss(how, Losing::Folder { git_checks });
    loss.root = root;
    Some(loss)
}

/// The worktree at a path, or the one whose path ends so.
fn worktree_named(command: &Command<'_>, name: &str) -> Option<PathBuf> {
    let path = command.repository.folder.join(name);
    if let Ok(path) = path.canonicalize() {
        return Some(path);
    }
    let list = command
        .repository
        .line(&["worktree", "list", "--porcelain", "-z"])?;
    let worktrees = list
        .split('\0')
        .filter_map(|line| line.strip_prefix("worktree "));
    let mut named = worktrees
        .map(PathBuf::from)
        .filter(|path| path.ends_with(name));
    let first = named.next();
    first.filter(|_| named.next().is_none())
}

pub(super) fn submodule(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&["--reference", "--depth", "-j", "--jobs"]);
    let is_forced = options.has(&["-f", "--force"]);
    let verb = options.words.first()?.text()?;
    let and_new = verb == "deinit";
    (is_forced && (and_new || verb == "update"))
        .then(|| command.loss(How::Overwrites, Losing::Submodules { and_new }))
}

pub(super) fn update_ref(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&["-m"]);
    let name = options.words.first()?.text()?;
    branch_elsewhere(command, name.strip_prefix("refs/heads/")?)
}

/// A branch that another work tree has checked out.
pub(super) fn branch_elsewhere(command: &Command<'_>, branch: &str) -> Option<Loss> {
    let list = command
        .repository
        .line(&["worktree", "list", "--porcelain", "-z"])?;
    let has_it = |record: &&str| {
        let name = record
            .split('\0')
            .find_map(|line| line.strip_prefix("branch refs/heads/"));
        name == Some(branch)
    };
    let record = list.split("\0\0").find(has_it)?;
    let root = record
        .split('\0')
        .find_map(|line| line.strip_prefix("worktree "))?;
    let root = PathBuf::from(root);
    let is_own = root == command.root;
    let mut loss = command.loss(How::Overwrites, Losing::Branch(branch.to_owned()));
    loss.root = root;
    (!is_own).then_some(loss)
}

pub(super) fn unreferenced(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&[]);
    let first = options.words.first().and_then(Arg::text);
    let prunes = match command.name {
        "gc" => options.has(&["--prune"]),
        "prune" => !options.has(&["-n", "--dry-run"]),
        _ => matches!(first, Some("expire" | "delete")) && !options.has(&["-n", "--dry-run"]),
    };
    prunes.then(|| command.loss(How::Deletes, Losing::Unreferenced))
}
