//! What is said is compared with what really happens: each line is run by bash with git in a scratch repository.

mod beyond_files;
mod lines;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::Duration;

use tenure_host::time_limit::TimeLimit;

use super::*;

/// A repository with files in every state, and a name for each of them.
struct Scratch {
    dir: tempfile::TempDir,
}

/// The files that the tests call dirty. `clean` is not.
const FILES: [&str; 17] = [
    "modified",
    "staged",
    "both",
    "deleted",
    "deleted-staged",
    "clean",
    "new",
    "new-both",
    "untracked",
    "in-other",
    "sub/modified",
    "sub/untracked",
    "sub/deep/untracked",
    "x.ign",
    "sub/y.ign",
    "ignored/z",
    "odd \"ü\n name",
];

const SETTINGS: &str = "[user]\n\tname = t\n\temail = t@t\n[init]\n\tdefaultBranch = main\n";

impl Scratch {
    /// With all states; without those that are both staged and changed since, for commands that refuse these.
    fn new(mixed: bool) -> Self {
        let scratch = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::write(scratch.dir.path().join("gitconfig"), SETTINGS).unwrap();
        fs::create_dir_all(scratch.dir.path().join("repo/sub/deep")).unwrap();
        let before = "git init -q; git config alias.undo 'checkout --'; git config alias.nuke '!git reset --hard'
            git config alias.again nuke; git config alias.loop loop; printf '*.ign\\nignored/\\n' > .gitignore
            for f in modified staged both deleted deleted-staged clean plain sub/modified; do echo one > $f; done
            git add .; git commit -qm one
            git checkout -q -b other; for f in in-other modified; do echo other > $f; done; git add .; git commit -qm other
            git checkout -q main
            for f in modified staged both sub/modified; do echo two > $f; done; rm deleted
            git add staged both; git rm -q deleted-staged; echo three > both
            echo new > new; echo new > new-both; git add new new-both; echo newer > new-both
            for f in untracked in-other sub/untracked sub/deep/untracked x.ign sub/y.ign \"$(printf 'odd \"ü\\n name')\"; do echo u > \"$f\"; done
            mkdir ignored; echo u > ignored/z";
        scratch.shell(before);
        if !mixed {
            scratch.shell("git add both new-both");
        }
        scratch
    }

    /// Another one with the same files.
    fn copy(&self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let from = format!("{}/.", self.dir.path().display());
        let copied = Command::new("cp")
            .arg("-a")
            .arg(from)
            .arg(dir.path())
            .status();
        assert!(copied.unwrap().success());
        let copy = Self { dir };
        // The copies have other times and numbers than the index knows.
        copy.shell("git update-index -q --refresh");
        copy
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("repo").canonicalize().unwrap()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path())
            .env("GIT_CONFIG_GLOBAL", self.dir.path().join("gitconfig"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(std::process::Stdio::null());
        command
    }

    /// Runs a line. It may fail: that is a way of not destroying anything.
    fn shell(&self, line: &str) -> String {
        let output = self.command("bash").args(["-c", line]).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn dirty(&self, files: &[&str]) -> Vec<DirtyFile> {
        let dirty = |file: &&str| DirtyFile {
            root: self.root(),
            path: PathBuf::from(file),
            owner: HolderId::parse("other").unwrap(),
            session: "the other session".to_owned(),
        };
        files.iter().map(dirty).collect()
    }

    /// The files that a line is said to destroy.
    fn said(&self, line: &str, dirty: &[DirtyFile]) -> Vec<String> {
        let root = self.root();
        let home = self.dir.path().to_str().unwrap().to_owned();
        let place = Place {
            folder: &root,
            variable: &|name| (name == "HOME").then(|| home.clone()),
        };
        let losses = losses(line, &place);
        let lost = losses.iter().flat_map(|loss| lost(loss, dirty));
        let mut said: Vec<String> = lost
            .map(|file| file.path.to_str().unwrap().to_owned())
            .collect();
        said.sort();
        said.dedup();
        said
    }

    /// What is in each file.
    fn content(&self) -> BTreeMap<&'static str, Option<Vec<u8>>> {
        let read = |file: &&'static str| (*file, fs::read(self.root().join(file)).ok());
        FILES.iter().map(read).collect()
    }

    /// The dirty files that a line really changes.
    fn really(&self, line: &str) -> (Vec<String>, String) {
        let before = self.content();
        let printed = self.shell(line);
        let after = self.content();
        let changed = FILES
            .iter()
            .filter(|file| before[**file] != after[**file] && **file != "clean");
        let mut changed: Vec<String> = changed.map(|file| (*file).to_owned()).collect();
        changed.sort();
        (changed, printed)
    }
}

/// Compares what is said of these lines with what each of them does. Returns what was wrong.
fn compare(lines: &[&str], mixed: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let template = Scratch::new(mixed);
    for line in lines {
        let scratch = template.copy();
        let dirty = scratch.dirty(&FILES);
        let said = scratch.said(line, &dirty);
        let (really, printed) = scratch.really(line);
        if said != really {
            wrong.push(format!(
                "{line} (mixed: {mixed}): said {said:?}, destroyed {really:?}: {printed}"
            ));
        }
    }
    wrong
}

#[test]
fn what_is_said_to_be_destroyed_is_what_is_destroyed() {
    let mut wrong = compare(
        &[
            "git reset --hard",
            "git reset --hard HEAD",
            "git reset --hard other",
            "git reset -q --hard HEAD~0",
            "git checkout -f",
            "git checkout -f other",
            "git checkout --force HEAD",
            "git checkout -f -b fresh other",
            "git checkout -- .",
            "git checkout .",
            "git checkout -- modified both",
            "git checkout modified",
            "git checkout HEAD modified staged",
            "git checkout HEAD -- .",
            "git checkout other -- .",
            "git checkout other in-other",
            "git checkout other -- sub",
            "git checkout --no-overlay HEAD -- .",
            "git checkout -- '*odified'",
            "git checkout -- *odified",
            "git checkout -- ':!modified'",
            "cd sub && git checkout -- .",
            "cd sub && git checkout -- :/",
            "git -C sub checkout -- modified",
            "git switch -f main",
            "git switch --discard-changes other",
            "git switch --discard-changes main",
            "git switch --discard-changes -C fresh",
            "git switch -f -c fresh",
            "git switch --discard-changes -c fresh HEAD",
            "git checkout -f -b fresh",
            "git switch --force other",
            "git switch -f other",
            "git switch -fC fresh other",
            "git restore .",
            "git restore modified",
            "git restore -W both",
            "git restore --source=HEAD .",
            "git restore -s other .",
            "git restore -s other --overlay .",
            "git restore -SW .",
            "git restore --staged --worktree staged new",
            "cd sub; git restore .",
            "git stash",
            "git stash -q",
            "git stash push -m 'a message'",
            "git stash save a message",
            "git stash -u",
            "git stash --include-untracked",
            "git stash -a",
            "git stash -k",
            "git stash --keep-index -u",
            "git stash push -- modified",
            "git stash push modified sub",
            "git stash -u -- sub",
            "cd sub; git stash",
            "git clean -f",
            "git clean -fd",
            "git clean -fdq sub",
            "git clean -fdx",
            "git clean -xdff",
            "git clean -fX",
            "git clean -fdX",
            "git clean -fd -e 'un*'",
            "git clean -fd --exclude=untracked",
            "git clean -f untracked '*odd*'",
            "cd sub && git clean -fd",
            "git -c clean.requireForce=false clean",
            "git rm -f modified staged new",
            "git rm -rf sub",
            "git rm -rqf .",
            "git mv -f plain modified",
            "git mv -f plain untracked",
            "git mv plain -f sub/modified",
            "git checkout-index -f -a",
            "git checkout-index -f modified staged",
            "cd sub; git checkout-index -af",
            "git read-tree -u --reset HEAD",
            "git read-tree --reset -u other",
            "git reset --hard && git clean -fdx",
            "(cd sub && git stash) | cat",
            "bash -c 'git checkout .'",
            "git --git-dir=.git --work-tree=. checkout -- .",
            "GIT_DIR=.git git reset --hard",
            "f() { git \"$@\"; }; f reset --hard",
            "git -c alias.nuke='reset --hard' nuke",
            "git -c alias.nuke='!git reset --hard && git clean -fd' nuke",
            "git undo modified",
            "git again",
            "git reset --har",
            "git stash --include-untr",
            "git ls-files -m | xargs git reset --hard --",
        ],
        true,
    );
    wrong.extend(compare(
        &[
            "git reset --merge",
            "git reset --merge HEAD",
            "git reset --merge other",
            "git stash --staged",
            "git stash -S",
            "git reset --hard",
            "git stash -k",
            "git restore -SW .",
        ],
        false,
    ));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn of_what_is_harmless_nothing_is_said() {
    let lines = [
        "git status",
        "git diff HEAD",
        "git add -A",
        "git commit -qam message",
        "git reset",
        "git reset --soft HEAD",
        "git reset --mixed other",
        "git reset --keep HEAD",
        "git reset --keep other",
        "git reset --merge",
        "git reset modified",
        "git checkout other",
        "git checkout -b fresh",
        "git checkout -B other main",
        "git checkout",
        "git checkout --detach",
        "git checkout -p",
        "git switch other",
        "git switch -c fresh",
        "git switch -C other",
        "git restore --staged .",
        "git restore -S staged",
        "git restore nothing",
        "git restore",
        "git merge other",
        "git rebase other",
        "git pull",
        "git pull . other",
        "git stash list",
        "git stash show",
        "git stash create",
        "git stash drop",
        "git stash clear",
        "git stash pop",
        "git stash -p",
        "git stash push -- nothing",
        "git clean",
        "git clean -n",
        "git clean -nfdx",
        "git clean -d",
        "git rm modified",
        "git rm --cached modified",
        "git rm -rn .",
        "git rm -f nothing",
        "git rm --cached -f staged",
        "git branch -D other",
        "git branch -f other main",
        "git branch -M main trunk",
        "git read-tree HEAD",
        "git read-tree -m -u HEAD",
        "git checkout-index --prefix=/tmp/nowhere/ -f nothing",
        "git cherry-pick other",
        "git cherry-pick --abort",
        "git revert HEAD",
        "git merge --abort",
        "git rebase --abort",
        "git gc -q --prune=now",
        "git reflog expire --expire=now --all",
        "git update-ref refs/heads/other HEAD",
        "git loop",
        "git sparse-checkout set sub",
        "git diff > ../patch; git apply -R --check ../patch",
        "git worktree add -q ../wt other",
        "git worktree remove ../nowhere",
        "git worktree prune",
        "git submodule update --force",
        "git frobnicate --hard",
        "git reset --hard nothing-of-this-name -- || true; git log",
        "echo git reset --hard",
        "git commit -qm 'git reset --hard' --allow-empty",
        "git --version reset --hard",
        "git help stash",
        "GIT_INDEX_FILE=../index git read-tree HEAD",
        "rm -f ../nothing",
        "mv ../nothing ../else",
    ];
    let template = Scratch::new(true);
    let wrong = lines.iter().filter_map(|line| {
        let scratch = template.copy();
        let said = scratch.said(line, &scratch.dirty(&FILES));
        let (really, printed) = scratch.really(line);
        let is_harmless = said.is_empty() && really.is_empty();
        (!is_harmless).then(|| format!("{line}: said {said:?}, destroyed {really:?}: {printed}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_name_that_is_only_meant_for_later_keeps_git_from_stashing() {
    for (line, destroys) in [
        ("git stash", false),
        ("git reset --hard", true),
        ("git checkout .", true),
    ] {
        let scratch = Scratch::new(true);
        scratch.shell(
            "git reset -q --hard; echo i > untracked; git add -N untracked; echo two > modified",
        );
        let said = scratch.said(line, &scratch.dirty(&FILES));
        let (really, printed) = scratch.really(line);
        assert_eq!(said, really, "{line}: {printed}");
        assert_eq!(
            really.contains(&"untracked".to_owned()),
            destroys,
            "{line}: {printed}"
        );
    }
}

#[test]
fn what_is_put_away_for_a_while_is_said_too() {
    let changed = [
        "both",
        "deleted",
        "deleted-staged",
        "modified",
        "new",
        "new-both",
        "staged",
        "sub/modified",
    ];
    for (settings, line, is_said) in [
        ("", "git rebase --autostash other", true),
        ("", "git merge --autostash other", true),
        ("", "git pull --rebase --autostash . other", true),
        ("rebase.autoStash true", "git rebase other", true),
        (
            "rebase.autoStash true",
            "git rebase --no-autostash other",
            false,
        ),
        ("rebase.autoStash true", "git pull --rebase . other", true),
        (
            "rebase.autoStash true",
            "git pull --no-rebase . other",
            false,
        ),
        ("merge.autoStash true", "git merge other", true),
        ("merge.autoStash false", "git merge other", false),
        ("", "git -c rebase.autoStash=true rebase other", true),
        (
            "rebase.autoStash true",
            "git -c rebase.autostash=no rebase other",
            false,
        ),
    ] {
        let scratch = Scratch::new(true);
        if !settings.is_empty() {
            scratch.shell(&format!("git config {settings}"));
        }
        scratch.shell("rm in-other");
        let said = scratch.said(line, &scratch.dirty(&FILES));
        let expected: &[&str] = if is_said { &changed } else { &[] };
        assert_eq!(said, expected, "{settings}: {line}");
        let printed = scratch.shell(line);
        assert_eq!(
            printed.contains("Created autostash"),
            is_said,
            "{settings}: {line}: {printed}"
        );
    }
}

#[test]
fn the_end_of_a_merge_or_a_rebase_destroys_what_was_staged_meanwhile() {
    let start =
        "git reset -q --hard; git clean -fdq; echo three > modified; git commit -qam three; ";
    for (before, line) in [
        ("git merge other", "git merge --abort"),
        ("git cherry-pick other", "git cherry-pick --abort"),
        ("git cherry-pick other", "git cherry-pick --skip"),
        ("git rebase other", "git rebase --abort"),
        ("git rebase other", "git rebase --skip"),
        ("git rebase other", "git checkout -f"),
        ("git merge other", "git stash"),
        ("git merge other", "git checkout -- ."),
        ("git merge other", "git restore sub"),
        ("git merge other", "git merge --quit"),
    ] {
        let scratch = Scratch::new(true);
        scratch.shell(&format!(
            "{start}{before}; echo mine > staged; git add staged; echo mine > sub/modified"
        ));
        let files = ["staged", "sub/modified", "modified"];
        let said = scratch.said(line, &scratch.dirty(&files));
        let (really, printed) = scratch.really(line);
        // What the other branch brought was nobody's.
        let really: Vec<String> = really
            .into_iter()
            .filter(|file| files.contains(&file.as_str()))
            .collect();
        assert_eq!(said, really, "{before}; {line}: {printed}");
    }
}
