//! Commands that put changes away, and those that end a merge or a rebase.

use crate::danger::calls::Arg;
use crate::danger::git::Command;
use crate::danger::git::options::{Options, pathspecs};
use crate::danger::{Files, How, Losing, Loss, Tracked, Untracked};

pub(super) fn stash(command: &Command<'_>) -> Option<Loss> {
    let (verb, rest) = match command.args.split_first() {
        Some((first, rest)) => match first.text()? {
            "push" => ("push", rest),
            "save" => ("save", rest),
            verb @ ("drop" | "clear") => (verb, rest),
            option if option.starts_with('-') => ("push", command.args),
            _ => return None,
        },
        None => ("push", command.args),
    };
    let options = Options::read(rest, &["-m", "--message", "--pathspec-from-file"]);
    if verb == "drop" || verb == "clear" {
        let named = options
            .words
            .iter()
            .filter_map(Arg::text)
            .map(str::to_owned);
        let mut named: Vec<String> = named.collect();
        if verb == "drop" && named.is_empty() {
            named.push("stash@{0}".to_owned());
        }
        return Some(command.loss(How::Deletes, Losing::Stashes(named)));
    }
    if options.asks() {
        return None;
    }
    // What follows `save` is its message.
    let paths = match options.all() {
        paths if verb == "save" || paths.is_empty() => Vec::new(),
        paths => pathspecs(&paths)?,
    };
    let tracked = if options.has(&["-S", "--staged"]) {
        Tracked::Staged
    } else if options.last_of(&["-k", "--keep-index"], &["--no-keep-index"]) == Some(true) {
        Tracked::Unstaged
    } else {
        Tracked::Changed
    };
    let untracked = if options.has(&["-a", "--all"]) {
        Untracked::AndIgnored
    } else if options.last_of(&["-u", "--include-untracked"], &["--no-include-untracked"])
        == Some(true)
    {
        Untracked::New
    } else {
        Untracked::None
    };
    let tree = None;
    let files = Files {
        paths,
        tracked,
        untracked,
        tree,
    };
    Some(command.loss(How::PutsAway, Losing::Files(files)))
}

/// `pull`, `rebase` and `merge`, which may put changes away and back.
pub(super) fn autostash(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&[
        "-X",
        "-s",
        "--strategy",
        "--strategy-option",
        "--onto",
        "-x",
        "--exec",
        "-m",
        "-F",
    ]);
    let ends = [
        "--abort",
        "--continue",
        "--skip",
        "--quit",
        "--edit-todo",
        "--show-current-patch",
    ];
    if options.has(&ends) {
        return None;
    }
    let on = match options.last_of(&["--autostash"], &["--no-autostash"]) {
        Some(on) => on,
        None => match command.name {
            "rebase" => command.is_set("rebase.autoStash"),
            "merge" => command.is_set("merge.autoStash"),
            _ => {
                let rebases = options.last_of(&["-r", "--rebase"], &["--no-rebase"]);
                let rebases = rebases.unwrap_or_else(|| command.is_set("pull.rebase"));
                command.is_set(if rebases {
                    "rebase.autoStash"
                } else {
                    "merge.autoStash"
                })
            }
        },
    };
    on.then(|| command.tracked(How::PutsAwayForAWhile, Tracked::Changed, Vec::new()))
}

/// The end of a merge, rebase or the like that is in progress.
pub(super) fn abort(command: &Command<'_>) -> Option<Loss> {
    let options = command.options(&[]);
    let is_rebase = command.name == "rebase";
    let skips = options.has(&["--skip"]) && command.name != "merge";
    if !skips && !options.has(&["--abort"]) {
        return None;
    }
    let marks: &[&str] = match command.name {
        "rebase" => &["rebase-merge", "rebase-apply"],
        "merge" => &["MERGE_HEAD"],
        "revert" => &["REVERT_HEAD", "sequencer"],
        _ => &["CHERRY_PICK_HEAD", "sequencer"],
    };
    if !command.is_in_progress(marks) {
        return None;
    }
    let tracked = if is_rebase {
        Tracked::Changed
    } else {
        Tracked::StagedOnly
    };
    command.of_tree(None, tracked, Vec::new())
}
