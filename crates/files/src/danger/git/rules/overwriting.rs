//! Commands that overwrite files with what git has.

use tenure_host::files::look;

use super::beyond::branch_elsewhere;
use crate::danger::calls::Arg;
use crate::danger::git::Command;
use crate::danger::git::options::{Options, pathspecs};
use crate::danger::{How, Loss, Tracked};

pub(super) fn reset(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&[]);
    // With paths, git refuses anything but to unstage.
    let has_paths = options.words.len() > 1 || options.paths.iter().flatten().next().is_some();
    if options.asks() || has_paths {
        return None;
    }
    let tree = options.words.first();
    if options.has(&["--hard"]) {
        return command.forced(tree);
    }
    let merges = options.has(&["--merge"]);
    merges.then(|| command.of_tree(tree, Tracked::StagedOnly, Vec::new()))?
}

pub(super) fn checkout(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&["-b", "-B", "--orphan", "--conflict", "--pathspec-from-file"]);
    if options.asks() {
        return None;
    }
    let is_forced = options.has(&["-f", "--force"]);
    let names_branch = options.has(&["-b", "-B", "--orphan"]);
    let (tree, paths) = match (&options.paths, options.words.as_slice()) {
        (Some(paths), [tree, ..]) if !paths.is_empty() => (Some(tree), paths.clone()),
        (Some(paths), []) if !paths.is_empty() => (None, paths.clone()),
        (_, [tree]) if names_branch => (Some(tree), Vec::new()),
        (_, [only]) => {
            let is_tree = match only.text() {
                Some("-") | None => true,
                Some(text) => command.is_tree(text),
            };
            if is_tree || is_new_branch(command, &options, only) {
                (Some(only), Vec::new())
            } else {
                (None, vec![only.clone()])
            }
        }
        (_, [first, rest @ ..]) => match first.text() {
            Some(text) if command.is_tree(text) => (Some(first), rest.to_vec()),
            Some(_) => (None, options.words.clone()),
            None => (None, rest.to_vec()),
        },
        (_, []) => (None, Vec::new()),
    };
    if paths.is_empty() {
        if let Some(branch) = options.value(&["-B"])
            && options.has(&["--ignore-other-worktrees"])
            && let Some(loss) = branch_elsewhere(command, branch.text()?)
        {
            return Some(loss);
        }
        return is_forced.then(|| command.forced(tree))?;
    }
    let paths = pathspecs(&paths)?;
    let Some(tree) = tree else {
        return Some(command.tracked(How::Overwrites, Tracked::Unstaged, paths));
    };
    let tracked = if options.has(&["--no-overlay"]) {
        Tracked::Changed
    } else {
        Tracked::InTree
    };
    command.of_tree(Some(tree), tracked, paths)
}

/// Whether `checkout NAME` makes a branch of a remote's: then there is no file of this name.
fn is_new_branch(command: &Command<'_>, options: &Options, name: &Arg) -> bool {
    let path = name.text().map(|name| command.repository.folder.join(name));
    let is_there = path.is_some_and(|path| look::may_be_there(&path));
    let tracks = options.has(&["-t", "--track"]);
    let known = || {
        let name = name.text()?;
        let known = command.repository.line(&["ls-files", "--", name])?;
        (!known.is_empty()).then_some(())
    };
    tracks || (!is_there && known().is_none())
}

pub(super) fn switch(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&[
        "-c",
        "-C",
        "--create",
        "--force-create",
        "--orphan",
        "--conflict",
    ]);
    if let Some(branch) = options.value(&["-C", "--force-create"])
        && options.has(&["--ignore-other-worktrees"])
        && let Some(loss) = branch_elsewhere(command, branch.text()?)
    {
        return Some(loss);
    }
    // A new branch of the same commit leaves all files as they are.
    let is_new =
        options.has(&["-c", "-C", "--create", "--force-create"]) && options.words.is_empty();
    let is_forced = !is_new && options.has(&["-f", "--force", "--discard-changes"]);
    is_forced.then(|| command.forced(options.words.first()))?
}

pub(super) fn restore(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&["-s", "--source", "--conflict", "--pathspec-from-file"]);
    let staged = options.has(&["-S", "--staged"]);
    if options.asks() || (staged && !options.has(&["-W", "--worktree"])) {
        return None;
    }
    let paths = pathspecs(&options.all())?;
    let head = Arg::Known("HEAD".to_owned());
    let source = options.value(&["-s", "--source"]);
    match source.or_else(|| staged.then_some(&head)) {
        None => Some(command.tracked(How::Overwrites, Tracked::Unstaged, paths)),
        Some(tree) => {
            let tracked = match options.last_of(&["--overlay"], &["--no-overlay"]) {
                Some(true) => Tracked::InTree,
                _ => Tracked::Changed,
            };
            command.of_tree(Some(tree), tracked, paths)
        }
    }
}

pub(super) fn read_tree(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&["--index-output", "--prefix", "--exclude-per-directory"]);
    let writes = options.has(&["-u"]) && options.has(&["--reset"]);
    let is_dry = options.has(&["-n", "--dry-run", "--index-output"]);
    (writes && !is_dry).then(|| command.forced(options.words.last()))?
}

pub(super) fn checkout_index(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&["--prefix", "--stage"]);
    if !options.has(&["-f", "--force"])
        || options.has(&["--prefix", "--temp", "-n", "--no-create", "--stdin"])
    {
        return None;
    }
    let paths = if options.has(&["-a", "--all"]) {
        vec![".".to_owned()]
    } else {
        pathspecs(&options.all())?
    };
    Some(command.tracked(How::Overwrites, Tracked::Unstaged, paths))
}
