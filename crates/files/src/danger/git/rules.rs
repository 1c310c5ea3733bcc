//! What each command of git destroys. What git refuses by itself is left out; every line here was tried with git 2.47.
//!
//! | command | loses |
//! |---|---|
//! | `reset --hard`, `checkout -f`, `switch -f`, `read-tree --reset -u` | changes, and new files that are in the way of a tracked one |
//! | `reset --merge`, `merge`, `cherry-pick`, `revert --abort` | what is staged |
//! | `rebase --abort`, `--skip` | changes |
//! | `checkout PATH`, `restore`, `checkout-index -f` | what is not staged |
//! | `checkout TREE PATH`, `restore --source` | changes, and new files that are in the way |
//! | `stash`, `--autostash` | changes; with `-u` new files, with `-a` ignored ones, too |
//! | `stash drop`, `clear` | stashes |
//! | `clean -f` | new files |
//! | `rm -f`, `mv -f` | changes of these files |
//! | `worktree remove`, `move` | all of the work tree |
//! | `update-ref`, `checkout -B --ignore-other-worktrees` | commits of a branch that another work tree has |
//! | `submodule update --force`, `deinit -f` | changes in submodules |
//! | `gc --prune`, `prune`, `reflog expire`, `delete` | objects that nothing refers to |

mod beyond;
mod deleting;
mod overwriting;
mod putting_away;

use super::Command;
use crate::danger::calls::Arg;
use crate::danger::{Files, How, Losing, Loss, Tracked, Untracked};
use beyond::{submodule, unreferenced, update_ref, worktree};
use deleting::{clean, mv, rm};
use overwriting::{checkout, checkout_index, read_tree, reset, restore, switch};
use putting_away::{abort, autostash, stash};

/// Whether a command can destroy anything, without a look at the repository.
pub(super) fn may_destroy(name: &str, args: &[Arg]) -> bool {
    let first = args.first().map(Arg::text);
    match name {
        "checkout" | "checkout-index" | "cherry-pick" | "clean" | "gc" | "merge" | "mv"
        | "prune" | "pull" | "read-tree" | "rebase" | "reflog" | "reset" | "restore" | "revert"
        | "rm" | "submodule" | "switch" | "update-ref" | "worktree" => true,
        "stash" => !matches!(
            first,
            Some(Some("list" | "show" | "apply" | "pop" | "create" | "store"))
        ),
        _ => false,
    }
}

/// What a command may destroy.
pub(super) fn losses(command: &Command<'_>) -> Vec<Loss> {
    let found = match command.name {
        "reset" => reset(command),
        "checkout" => checkout(command),
        "switch" => switch(command),
        "restore" => restore(command),
        "stash" => stash(command),
        "clean" => clean(command),
        "rm" => rm(command),
        "mv" => mv(command),
        "pull" | "rebase" | "merge" => autostash(command).or_else(|| abort(command)),
        "cherry-pick" | "revert" => abort(command),
        "read-tree" => read_tree(command),
        "checkout-index" => checkout_index(command),
        "worktree" => worktree(command),
        "submodule" => submodule(command),
        "update-ref" => update_ref(command),
        "gc" | "prune" | "reflog" => unreferenced(command),
        _ => None,
    };
    found.into_iter().collect()
}

impl Command<'_> {
    fn loss(&self, how: How, what: Losing) -> Loss {
        let words = self.args.iter().map(|arg| arg.text().unwrap_or("..."));
        let words: Vec<&str> = ["git", self.name].into_iter().chain(words).collect();
        Loss {
            root: self.root.clone(),
            command: words.join(" "),
            how,
            what,
            repository: self.repository.clone(),
        }
    }

    /// Files that are overwritten with those of a tree, and files of it that are new here.
    fn forced(&self, tree: Option<&Arg>) -> Option<Loss> {
        self.of_tree(tree, Tracked::Changed, Vec::new())
    }

    /// The same of some paths. Without a tree, it is that of the last commit.
    fn of_tree(&self, tree: Option<&Arg>, tracked: Tracked, paths: Vec<String>) -> Option<Loss> {
        // `--discard-changes` keeps new files, `--force` does not.
        let keeps_new = self.name == "switch" && !self.options(&[]).has(&["-f", "--force"]);
        let tree = match tree.map(Arg::text) {
            None => Some("HEAD"),
            // The branch before.
            Some(Some("-")) => Some("@{-1}"),
            // Git does nothing if there is no such tree.
            Some(Some(tree)) => Some(self.is_tree(tree).then_some(tree)?),
            // Which of the new files are in the way can't be told.
            Some(None) => None,
        };
        let files = Files {
            paths,
            tracked,
            untracked: match tracked {
                Tracked::StagedOnly => Untracked::None,
                _ if keeps_new => Untracked::Refused,
                _ => Untracked::InTree,
            },
            tree: tree.map(str::to_owned),
        };
        Some(self.loss(How::Overwrites, Losing::Files(files)))
    }

    /// Tracked files only.
    fn tracked(&self, how: How, tracked: Tracked, paths: Vec<String>) -> Loss {
        let files = Files {
            paths,
            tracked,
            untracked: Untracked::None,
            tree: None,
        };
        self.loss(how, Losing::Files(files))
    }
}
