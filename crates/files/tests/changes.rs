//! What a command changed in a work tree, with the real git.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tenure_files::changes::{CantTell, Changed, Start, Watched, What};
use tenure_testkit::left_out;

use What::{Committed, Deleted, Modified, New, NewFolder, Undone};

/// A repository with a few files, in its own folder.
struct Repository {
    dir: TempDir,
    root: PathBuf,
}

impl Repository {
    fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("work");
        fs::create_dir(&root).unwrap();
        let repository = Self { dir, root };
        repository.git("init -q -b main");
        repository.git("config user.name a");
        repository.git("config user.email a@b");
        repository
    }

    /// One with the files `a`, `b`, `src/c` and `src/deep/d`, in which `*.log` and `out` are ignored.
    fn new() -> Self {
        let repository = Self::empty();
        for name in ["a", "b", "src/c", "src/deep/d"] {
            repository.write(name, name);
        }
        repository.write(".gitignore", "*.log\n/out/\n");
        repository.commit("first");
        repository
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(&self.root)
            .env("HOME", self.dir.path())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_EDITOR", "true");
        command
    }

    fn try_git(&self, args: &str) -> bool {
        let output = self.command("git").args(args.split(' ')).output().unwrap();
        output.status.success()
    }

    #[track_caller]
    fn git(&self, args: &str) {
        assert!(self.try_git(args), "git {args}");
    }

    #[track_caller]
    fn sh(&self, script: &str) {
        let output = self.command("sh").args(["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
    }

    fn commit(&self, message: &str) {
        self.git("add -A");
        self.git(&format!("commit -q -m {message}"));
    }

    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.root.join(Path::new(name.as_ref()))
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A call that begins after everything that was written before.
    fn start(&self) -> Call<'_> {
        let start = || serde_json::to_value(Start::now(&self.root).unwrap()).unwrap();
        let first = start()["at"].as_i64().unwrap();
        loop {
            let start = start();
            if start["at"].as_i64().unwrap() > first {
                return Call {
                    repository: self,
                    start,
                    watched: Vec::new(),
                };
            }
        }
    }
}

/// A call that has begun.
struct Call<'a> {
    repository: &'a Repository,
    /// As another process reads it.
    start: Value,
    watched: Vec<Watched>,
}

impl Call<'_> {
    fn watch(mut self, names: &[&str]) -> Self {
        let root = &self.repository.root;
        let watched = names
            .iter()
            .map(|name| Watched::now(root, Path::new(name)).unwrap());
        let text = serde_json::to_string(&watched.collect::<Vec<_>>()).unwrap();
        self.watched = serde_json::from_str(&text).unwrap();
        self
    }

    fn end(&self) -> Result<Changed, CantTell> {
        let start: Start = serde_json::from_value(self.start.clone()).unwrap();
        start.changed(&self.repository.root, &self.watched)
    }

    #[track_caller]
    fn found(&self) -> Vec<(String, What)> {
        let changed = self.end().unwrap();
        assert!(changed.left_out.is_empty());
        let files = changed.files.into_iter();
        files
            .map(|file| (file.path.to_string_lossy().into_owned(), file.what))
            .collect()
    }

    #[track_caller]
    fn finds(&self, expected: &[(&str, What)]) {
        let found = self.found();
        let found: Vec<(&str, What)> = found.iter().map(|(path, what)| (&**path, *what)).collect();
        assert_eq!(found, expected);
    }

    /// Moves the start, as both clocks tell it.
    fn move_start(&mut self, by: i64) {
        for clock in ["at", "uptime"] {
            self.start[clock] = (self.start[clock].as_i64().unwrap() + by).into();
        }
    }
}

#[test]
fn an_edit_in_place_a_new_file_and_a_deleted_one_are_seen() {
    let repository = Repository::new();
    let call = repository.start();
    call.finds(&[]);
    repository.sh("echo x >>src/c; sed -i s/b/x/ b; echo new >src/new; rm -r src/deep");
    let expected = [
        ("b", Modified),
        ("src/c", Modified),
        ("src/deep/d", Deleted),
        ("src/new", New),
    ];
    call.finds(&expected);
    repository.git("add -A");
    call.finds(&expected);
}

#[test]
fn what_git_removes_counts_and_what_it_only_forgets_does_not() {
    let repository = Repository::new();
    repository.git("rm -q b");
    let call = repository.start().watch(&["b"]);
    repository.sh("git rm -q src/deep/d; git rm -q --cached src/c; git mv a moved");
    call.finds(&[("a", Deleted), ("moved", New), ("src/deep/d", Deleted)]);
}

#[test]
fn what_was_dirty_before_does_not_count_until_it_is_written_again() {
    let repository = Repository::new();
    repository.sh("echo x >>a; echo x >>src/c; rm b; echo x >new");
    let call = repository.start();
    call.finds(&[]);
    repository.git("add a new");
    call.finds(&[]);
    repository.sh("echo x >>src/c; echo x >>new");
    call.finds(&[("new", New), ("src/c", Modified)]);
}

#[test]
fn a_file_that_is_only_touched_or_written_as_it_was_is_no_change() {
    let repository = Repository::new();
    let call = repository.start();
    repository.sh("touch a; printf b >b; chmod g-r src/c");
    call.finds(&[]);
    repository.sh("chmod +x src/c");
    call.finds(&[("src/c", Modified)]);
}

#[test]
fn what_a_checkout_a_merge_a_reset_and_a_rebase_bring_does_not_count() {
    let repository = Repository::new();
    repository.git("switch -q -c other");
    repository.sh("echo other >a; echo other >src/other; git rm -q src/deep/d");
    repository.commit("other");
    repository.git("switch -q main");
    repository.write("mine", "mine");
    repository.commit("mine");
    for command in [
        "git switch -q other",
        "git switch -q main",
        "git merge -q --no-edit other",
        "git reset -q --hard HEAD~1",
        "git rebase -q other",
        "git reset -q --hard HEAD~1",
        "git checkout -q HEAD~1",
        "git switch -q main",
        "git pull -q . other",
    ] {
        let call = repository.start();
        repository.sh(command);
        assert_eq!(call.found(), [], "{command}");
    }
}

#[test]
fn a_conflict_counts_and_what_the_merge_staged_beside_it_does_not() {
    let repository = Repository::new();
    repository.git("switch -q -c other");
    repository.sh("echo other >a; echo other >b; echo other >staged");
    repository.commit("other");
    repository.git("switch -q main");
    repository.write("a", "mine");
    repository.commit("mine");
    for command in ["merge -q other", "cherry-pick other", "rebase -q other"] {
        let call = repository.start();
        assert!(!repository.try_git(command), "{command}");
        call.finds(&[("a", Modified)]);
        // In the next call, what is staged is not the merge's alone.
        let call = repository.start();
        repository.sh("echo both >a; echo x >>b; git add a b");
        call.finds(&[("a", Modified), ("b", Modified)]);
        repository.sh("git reset -q --hard; rm -rf .git/rebase-merge; git switch -q -f main");
    }
}

#[test]
fn a_file_that_is_changed_and_committed_in_one_call_is_seen() {
    let repository = Repository::new();
    repository.write("b", "dirty");
    let call = repository.start();
    // What was dirty before was not changed now.
    repository.sh("echo x >>a; echo x >new; git add -A; git commit -qm one; echo x >>src/c");
    call.finds(&[("a", Committed), ("new", Committed), ("src/c", Modified)]);
    repository.sh("git commit -qa --amend --no-edit; git rm -q src/deep/d; git commit -qm two");
    call.finds(&[
        ("a", Committed),
        ("new", Committed),
        ("src/c", Committed),
        ("src/deep/d", Committed),
    ]);
}

#[test]
fn a_watched_file_that_is_stashed_reset_or_cleaned_is_undone() {
    for command in [
        "git stash -q -u",
        "git reset -q --hard; git clean -qfd",
        "git checkout -q -- .; rm -r untracked new",
        "git restore a src/c; git restore --staged --worktree b; git clean -qfd",
    ] {
        let repository = Repository::new();
        repository.sh("echo x >>a; echo x >b; git add b; rm src/c; echo x >new");
        repository.write("untracked/file", "mine");
        let names = ["a", "b", "new", "src/c", "src/deep/d", "untracked/file"];
        let call = repository.start().watch(&names);
        call.finds(&[]);
        repository.sh(command);
        let mut expected = vec![
            ("a", Undone),
            ("b", Undone),
            ("new", Deleted),
            ("src/c", Undone),
            ("untracked/file", Deleted),
        ];
        // What is staged stays.
        expected.retain(|(path, _)| *path != "b" || !command.contains("checkout"));
        call.finds(&expected);
    }
}

#[test]
fn what_the_owner_commits_is_not_undone() {
    let repository = Repository::new();
    repository.sh("echo x >>a; echo x >new");
    let call = repository.start().watch(&["a", "new", "missing"]);
    repository.commit("mine");
    call.finds(&[]);
}

#[test]
fn ignored_files_never_count() {
    let repository = Repository::new();
    repository.write("out/before", "");
    let call = repository.start().watch(&["src/x.log"]);
    repository.sh("echo x >src/x.log; mkdir -p src/new; echo x >src/new/y.log; echo x >out/after");
    repository.sh("mkdir deep; echo x >deep/z.log; echo '*.tmp' >.git/info/exclude; echo x >x.tmp");
    call.finds(&[]);
    repository.write("deep/seen", "");
    call.finds(&[("deep/seen", New)]);
}

#[test]
fn names_that_are_no_text_and_links_are_seen_and_links_are_not_followed() {
    let repository = Repository::new();
    let odd = OsStr::from_bytes(b"src/\xff \n\"x");
    fs::write(repository.path(odd), "").unwrap();
    symlink("../a", repository.path("src/link")).unwrap();
    repository.commit("odd");
    let call = repository.start();
    fs::write(repository.path(odd), "x").unwrap();
    fs::write(repository.path(OsStr::from_bytes(b"\xfe\n")), "x").unwrap();
    // What is behind a link has its own name.
    repository.sh("echo x >>src/link; ln -s nowhere dangling");
    let changed = call.end().unwrap();
    let paths: Vec<&[u8]> = changed
        .files
        .iter()
        .map(|file| file.path.as_os_str().as_bytes())
        .collect();
    let expected: [&[u8]; 4] = [b"a", b"dangling", b"src/\xff \n\"x", b"\xfe\n"];
    assert_eq!(paths, expected);
    let text = serde_json::to_string(&changed).unwrap();
    assert_eq!(serde_json::from_str::<Changed>(&text).unwrap(), changed);
    let call = repository.start();
    repository.sh("ln -sfn ../b src/link; rm -r src/deep; ln -s .. src/deep");
    call.finds(&[
        ("src/deep", New),
        ("src/deep/d", Deleted),
        ("src/link", Modified),
    ]);
}

#[test]
fn a_file_that_becomes_a_folder_and_a_folder_that_becomes_a_file_are_seen() {
    let repository = Repository::new();
    let call = repository.start();
    repository.sh("rm a; mkdir a; echo x >a/inside; rm -r src/deep; echo x >src/deep");
    call.finds(&[
        ("a", Deleted),
        ("a/inside", New),
        ("src/deep", New),
        ("src/deep/d", Deleted),
    ]);
}

#[test]
fn every_file_of_a_new_folder_is_named_and_a_huge_folder_as_a_whole() {
    let repository = Repository::new();
    let call = repository.start();
    repository.sh("mkdir -p new/deep; touch new/one new/deep/two new/x.log; mkdir empty");
    repository.sh("mkdir -p huge/in; cd huge/in; seq 1 1001 | xargs touch");
    repository.sh("mkdir -p logs; cd logs; seq -f %g.log 1 1001 | xargs touch");
    repository.sh("git init -q other; cd other; touch file");
    call.finds(&[
        ("huge", NewFolder),
        ("new/deep/two", New),
        ("new/one", New),
        ("other", NewFolder),
    ]);
    // They are there now, and nothing more is said of them.
    let call = repository.start();
    repository.write("another", "");
    call.finds(&[("another", New)]);
    // More than git is asked about one by one.
    let call = repository.start();
    repository.sh("cd src; seq 1 150 | xargs touch; touch x.log");
    assert_eq!(call.found().len(), 150);
}

#[test]
fn a_renamed_folder_is_seen_on_both_sides() {
    let repository = Repository::new();
    let call = repository.start();
    repository.sh("mv src moved; mv a z");
    call.finds(&[
        ("a", Deleted),
        ("moved/c", New),
        ("moved/deep/d", New),
        ("src/c", Deleted),
        ("src/deep/d", Deleted),
        ("z", New),
    ]);
}

#[test]
fn a_folder_that_git_does_not_track_is_looked_at_if_a_file_in_it_is_watched() {
    let repository = Repository::new();
    repository.sh("mkdir -p new/deep; touch new/deep/one new/deep/two other");
    let change = || repository.sh("echo x >new/deep/three; echo x >>new/deep/two; echo x >>other");
    let blind = repository.start();
    change();
    // This is what is missed.
    blind.finds(&[]);
    repository.sh("rm new/deep/three");
    let call = repository.start().watch(&["new/deep/one", "other"]);
    change();
    call.finds(&[
        ("new/deep/three", New),
        ("new/deep/two", New),
        ("other", New),
    ]);
}

#[test]
fn a_watched_stamp_that_is_the_same_is_no_change_even_in_the_same_tick() {
    let repository = Repository::new();
    repository.write("a", "dirty");
    let known = Watched::now(&repository.root, Path::new("a")).unwrap();
    let mut call = repository.start();
    let at = call.start["at"].as_i64().unwrap();
    call.move_start(known.stamp.unwrap().changed.0 - at);
    call.finds(&[("a", Modified)]);
    call.watch(&["a"]).finds(&[]);
}

#[test]
fn files_that_are_not_checked_out_are_not_missing() {
    let repository = Repository::new();
    for folder in ["one", "two/deep"] {
        repository.write(&format!("{folder}/file"), "");
    }
    repository.commit("more");
    for options in ["", " --sparse-index"] {
        repository.git(&format!("sparse-checkout set{options} one"));
        let call = repository.start();
        repository.sh("echo x >>one/file; echo x >b.new; rm b");
        assert!(!repository.path("two").exists());
        call.finds(&[("b", Deleted), ("b.new", New), ("one/file", Modified)]);
        repository.sh("git checkout -q -- b one; rm b.new");
        let call = repository.start();
        repository.git("sparse-checkout disable");
        call.finds(&[]);
    }
    repository.git("update-index --assume-unchanged a");
    repository.git("update-index --skip-worktree b");
    let call = repository.start();
    // Git is told not to look at the first two.
    repository.sh("echo x >>a; rm b; echo x >>src/c");
    call.finds(&[("src/c", Modified)]);
}

#[test]
fn a_split_index_is_read_by_git() {
    let repository = Repository::new();
    repository.git("update-index --split-index");
    repository.sh("echo x >>a; mkdir old; echo x >old/one");
    let call = repository.start().watch(&["a", "src/deep/d"]);
    repository.sh("echo x >>src/c; rm b; echo x >old/new; echo x >x.log; git checkout -q -- a");
    call.finds(&[
        ("a", Undone),
        ("b", Deleted),
        ("old/new", New),
        ("src/c", Modified),
    ]);
}

#[test]
fn a_lock_of_another_git_does_not_matter() {
    let repository = Repository::new();
    let call = repository.start();
    repository.write(".git/index.lock", "");
    repository.sh("echo x >>a");
    call.finds(&[("a", Modified)]);
    assert_eq!(fs::read(repository.path(".git/index.lock")).unwrap(), b"");
}

#[test]
fn a_repository_without_commits_has_new_files() {
    let repository = Repository::empty();
    let call = repository.start();
    call.finds(&[]);
    repository.sh("echo x >a; git add a; mkdir s; echo x >s/b");
    call.finds(&[("a", New), ("s/b", New)]);
    repository.sh("git commit -qm first");
    call.finds(&[("a", Committed), ("s/b", New)]);
}

#[test]
fn a_linked_worktree_sees_its_own_files() {
    let mut repository = Repository::new();
    repository.git("worktree add -q ../linked");
    repository.root.set_file_name("linked");
    repository.write("b", "dirty");
    let call = repository.start().watch(&["b"]);
    repository.sh("echo x >../work/a; echo x >src/new; git stash -q");
    repository.sh("echo x >>src/c; git commit -qam mine");
    call.finds(&[("b", Undone), ("src/c", Committed), ("src/new", New)]);
}

#[test]
fn a_submodule_is_its_folder() {
    let repository = Repository::new();
    let inner = Repository::new();
    let add = format!(
        "-c protocol.file.allow=always submodule --quiet add {} sub",
        inner.root.display()
    );
    repository.git(&add);
    repository.commit("sub");
    let call = repository.start();
    call.finds(&[]);
    repository.sh("cd sub; echo x >>src/c; git add -A");
    call.finds(&[("sub", Modified)]);
    let call = repository.start();
    call.finds(&[]);
    repository.sh("cd sub; git reset -q --hard; echo x >new");
    call.finds(&[("sub", Modified)]);
}

#[test]
fn a_clock_that_was_set_hides_nothing() {
    let repository = Repository::new();
    let call = repository.start();
    repository.sh("echo x >>a");
    let hour = 3_600_000_000_000_i64;
    // Set back or forward by an hour, after the start.
    for step in [hour, -hour] {
        let mut call = Call {
            start: call.start.clone(),
            watched: Vec::new(),
            ..call
        };
        let at = call.start["at"].as_i64().unwrap();
        call.start["at"] = (at + step).into();
        call.finds(&[("a", Modified)]);
    }
}

#[test]
fn without_a_work_tree_nothing_can_be_told() {
    let dir = tempfile::tempdir().unwrap();
    let none = |error: CantTell| matches!(error, CantTell::NoWorkTree(_));
    assert!(none(Start::now(dir.path()).unwrap_err()));
    let repository = Repository::new();
    repository.git("clone -q --bare . ../bare.git");
    let bare = repository.root.with_file_name("bare.git");
    assert!(none(Start::now(&bare).unwrap_err()));
    // It was one when the call began.
    let call = repository.start();
    repository.sh("rm -rf .git");
    assert!(none(call.end().unwrap_err()));
    repository.sh("echo gitdir: /nowhere >.git");
    assert!(none(call.end().unwrap_err()));
}

#[test]
fn what_git_refuses_to_tell_is_no_change() {
    let repository = Repository::new();
    let call = repository.start();
    repository.sh("echo x >>a");
    if chown(&repository.root, Some(12345), None).is_err() {
        left_out("a repository of another user needs root");
        return;
    }
    chown(repository.path(".git"), Some(12345), None).unwrap();
    let error = call.end().unwrap_err();
    assert!(matches!(error, CantTell::Git(_)), "{error:?}");
    assert!(error.to_string().contains("safe.directory"), "{error}");
}

#[test]
fn a_damaged_index_is_left_to_git() {
    let repository = Repository::new();
    let call = repository.start();
    let index = repository.path(".git/index");
    let mut bytes = fs::read(&index).unwrap();
    bytes[0] = b'X';
    fs::write(&index, bytes).unwrap();
    let error = call.end().unwrap_err();
    assert!(matches!(error, CantTell::Git(_)), "{error:?}");
}

#[test]
fn thousands_of_files_are_all_looked_at() {
    let repository = Repository::new();
    let each = "for d in $(seq 1 60); do";
    repository.sh(&format!(
        "mkdir many; cd many; {each} mkdir $d; (cd $d; seq 1 100 | xargs touch); done"
    ));
    repository.commit("many");
    let call = repository.start();
    call.finds(&[]);
    // More than git is asked about one by one.
    repository.sh(&format!(
        "cd many; {each} echo x >>$d/1; echo x >>$d/100; touch $d/50; done"
    ));
    assert_eq!(call.found().len(), 120);
    let call = repository.start();
    repository.sh("rm -r many; echo x >>src/c");
    let found = call.found();
    assert_eq!(found.len(), 6001);
    let deleted = found.iter().filter(|(_, what)| *what == Deleted);
    assert_eq!(deleted.count(), 6000);
}

#[test]
fn nothing_is_written_into_the_repository() {
    let repository = Repository::new();
    let call = repository.start();
    repository.sh("touch a; echo x >>b");
    let index = repository.path(".git/index");
    let before = fs::read(&index).unwrap();
    call.finds(&[("b", Modified)]);
    assert_eq!(fs::read(&index).unwrap(), before, "the index is the user's");
    assert!(!repository.path(".git/tenure-clock").exists());
    assert_eq!(fs::read_dir(&repository.root).unwrap().count(), 5);
}
