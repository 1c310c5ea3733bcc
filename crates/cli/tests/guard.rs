//! `tenure guard`: the hooks, with the real git, and every way in which a commit is made.

use crate::project;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use project::{Call, Project, Said, TENURE, write_program};
use serde_json::json;
use tenure::store::Clock;
use tenure_host::HostClock;

/// A git repository that is a project.
struct Repository {
    project: Project,
}

impl Repository {
    /// With one commit, and the guard.
    fn guarded() -> Self {
        let repository = Self::new();
        repository.tenure("guard install").exits(0);
        repository
    }

    /// With one commit, and no guard.
    fn new() -> Self {
        let project = Project::uninitialised();
        let repository = Self { project };
        repository.git("init -q -b main").exits(0);
        for setting in ["user.name t", "user.email t@t", "advice.detachedHead false"] {
            repository.git(&format!("config {setting}")).exits(0);
        }
        repository.tenure("init --quiet").exits(0);
        for name in ["a", "b", "src/c", "src/d"] {
            repository.write(name, "0\n");
        }
        repository.git("add .").exits(0);
        repository.git("commit -q -m first").exits(0);
        repository
    }

    fn root(&self) -> PathBuf {
        self.project.root()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.project.path(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn tenure(&self, words: &str) -> Said {
        self.project.tenure(words)
    }

    fn call(&self, words: &str) -> Call {
        let mut git: Command = self.project.program("git");
        git.env("GIT_CONFIG_GLOBAL", self.project.home().join("gitconfig"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_EDITOR", "true")
            .args(words.split_whitespace());
        self.project.prepare(git)
    }

    /// Git as the holder `me`.
    #[track_caller]
    fn git(&self, words: &str) -> Said {
        self.call(words).env("TENURE_HOLDER", "me").end()
    }

    /// Git in another folder.
    #[track_caller]
    fn git_in(&self, folder: &Path, words: &str) -> Said {
        let call = self.call(words).within(folder);
        call.env("TENURE_HOLDER", "me").end()
    }

    /// Changes a file and stages it.
    fn stage(&self, name: &str) {
        // No two changes are the same: by one author in one second, they would be taken for one that was picked.
        static CHANGE: AtomicUsize = AtomicUsize::new(0);
        let change = CHANGE.fetch_add(1, Ordering::Relaxed);
        let text = fs::read_to_string(self.path(name)).unwrap_or_default();
        self.write(name, &format!("{text}more {change}\n"));
        self.git(&format!("add {name}")).exits(0);
    }

    /// Another holder reserves these paths.
    fn reserve(&self, words: &str) {
        self.tenure(&format!("reserve {words} --as other --for 1h"))
            .exits(0);
    }

    fn head(&self) -> String {
        self.git("rev-parse HEAD").exits(0).out
    }
}

#[test]
fn a_commit_of_what_another_holder_reserved_is_refused_and_says_by_whom() {
    let repo = Repository::guarded();
    repo.reserve("a src/**");
    let before = repo.head();
    repo.stage("a");
    let refused = repo.git("commit -m a");
    refused.fails(
        1,
        &[
            "a: other has a until 20",
            "tenure reserve a",
            "git restore --staged -- a",
            "you are me",
        ],
    );
    assert_eq!(repo.head(), before);
    repo.git("restore --staged a").exits(0);
    // What is not staged is not in the way.
    repo.stage("b");
    repo.git("commit -m b").exits(0);
    // The holder itself may, whatever it is called by.
    repo.git("add a").exits(0);
    let own = repo.call("commit -m a").env("TENURE_HOLDER", "other").end();
    own.exits(0);
}

#[test]
fn renames_deletions_and_new_files_count() {
    let repo = Repository::guarded();
    repo.reserve("src/c new");
    repo.git("mv src/c elsewhere").exits(0);
    repo.git("commit -m moved")
        .fails(1, &["src/c: other has src/c"]);
    repo.git("reset -q --hard").exits(0);
    repo.git("mv b new").exits(0);
    repo.git("commit -m moved")
        .fails(1, &["new: other has new"]);
    repo.git("reset -q --hard").exits(0);
    repo.git("rm -q src/c").exits(0);
    repo.git("commit -m gone").fails(1, &["src/c: other"]);
    repo.git("reset -q --hard").exits(0);
    fs::set_permissions(repo.path("src/c"), fs::Permissions::from_mode(0o755)).unwrap();
    repo.git("commit -am mode").fails(1, &["src/c: other"]);
}

#[test]
fn every_form_of_commit_is_checked_by_what_it_really_commits() {
    let repo = Repository::guarded();
    repo.reserve("a");
    // All, parts, and parts beside what is staged.
    repo.write("a", "1\n");
    repo.git("commit -am all").fails(1, &["a: other"]);
    repo.write("b", "1\n");
    repo.git("commit -m part -- b").exits(0);
    repo.git("commit -m part -- a").fails(1, &["a: other"]);
    repo.git("add a").exits(0);
    repo.write("b", "2\n");
    repo.git("commit -m part -- b").exits(0);
    repo.git("reset -q --hard").exits(0);
    // An amended message changes nothing; an amended content does.
    repo.git("commit --amend -m other").exits(0);
    repo.write("a", "1\n");
    repo.git("commit -a --amend -m other")
        .fails(1, &["a: other"]);
    repo.git("reset -q --hard").exits(0);
    // In a subfolder, in a linked worktree, in a sparse one.
    repo.write("a", "1\n");
    repo.git_in(&repo.path("src"), "commit -am sub")
        .fails(1, &["a: other", "tenure reserve ../a", "--staged -- ../a"]);
    repo.git("reset -q --hard").exits(0);
    repo.git("worktree add -q ../linked").exits(0);
    let linked = repo.root().with_file_name("linked");
    fs::write(linked.join("a"), "1\n").unwrap();
    repo.git_in(&linked, "commit -am linked")
        .fails(1, &["a: other"]);
    fs::write(linked.join("b"), "1\n").unwrap();
    repo.git_in(&linked, "commit -m linked -- b").exits(0);
    repo.git("sparse-checkout set --cone src").exits(0);
    repo.write("src/c", "1\n");
    repo.git("commit -am sparse").exits(0);
    repo.git("sparse-checkout disable").exits(0);
}

#[test]
fn the_first_commit_is_checked() {
    let repo = Repository::guarded();
    repo.reserve("a");
    repo.git("checkout -q --orphan fresh").exits(0);
    repo.git("commit -m fresh").fails(1, &["a: other"]);
    repo.git("rm -q --cached a").exits(0);
    repo.git("commit -m fresh").exits(0);
}

#[test]
fn a_shared_reservation_forbids_the_change_and_ones_own_never_does() {
    let repo = Repository::guarded();
    repo.reserve("a --shared");
    repo.tenure("reserve a --shared --as me --for 1h").exits(0);
    repo.stage("a");
    repo.git("commit -m a")
        .fails(1, &["a: other reads a until"]);
    repo.tenure("unreserve a --as other").exits(0);
    repo.git("commit -m a").exits(0);
}

#[test]
fn what_must_be_reserved_is_refused_until_it_is() {
    let repo = Repository::guarded();
    repo.write(".tenure/config.yaml", "guard:\n  require: true\n");
    repo.stage("b");
    repo.git("commit -m b")
        .fails(1, &["b: not reserved by you", "guard.require is on"]);
    repo.tenure("reserve b --shared --as me --for 1h").exits(0);
    repo.git("commit -m b")
        .fails(1, &["b: not reserved by you"]);
    repo.tenure("reserve b --as me --for 1h").exits(0);
    repo.git("commit -m b").exits(0);
}

#[test]
fn without_a_name_the_reservations_of_the_calling_shell_are_its_own() {
    let repo = Repository::guarded();
    repo.stage("a");
    let mut shell = repo.project.program("sh");
    shell
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "$TENURE reserve a --for 1h && git commit -qm mine"]);
    repo.project.prepare(shell).end().exits(0);
    // What is tied to a process belongs to all that it starts, whatever the holder is called.
    repo.stage("b");
    let mut agent = repo.project.program("sh");
    agent.env("GIT_CONFIG_NOSYSTEM", "1").args([
        "-c",
        "$TENURE reserve b --pid $$ --as agent --for 1h && git commit -qm agent -- b; status=$?; echo done; cat; exit $status",
    ]);
    let mut agent = repo.project.prepare(agent).input().start();
    project::until("the agent has committed", || agent.out().contains("done"));
    repo.stage("b");
    let other = repo.call("commit -m other").end();
    other.fails(1, &["b: agent has b", "git can't tell which agent you are"]);
    agent.let_go();
    agent.ended().exits(0);
    // The first shell has ended, and its reservation has not.
    repo.git("restore --staged b").exits(0);
    repo.stage("a");
    repo.call("commit -m other").end().fails(1, &["a: "]);
}

#[test]
fn the_doctor_reports_hooks_that_git_does_not_run() {
    let repo = Repository::new();
    repo.tenure("doctor").exits(0);
    repo.write(".tenure/config.yaml", "guard:\n  require: true\n");
    let said = repo.tenure("doctor").exits(1);
    assert!(
        said.out.contains("git does not run the guard's hooks"),
        "{said:?}"
    );
    assert!(said.out.contains("tenure guard install"), "{said:?}");
    repo.tenure("guard install").exits(0);
    repo.tenure("doctor").exits(0);
    // Another tool takes the place of one of them.
    repo.write(".tenure/config.yaml", "");
    foreign(&repo.path(".git/hooks/pre-commit"));
    let said = repo.tenure("doctor").exits(1);
    assert!(said.out.contains("pre-commit"), "{said:?}");
    repo.tenure("guard status").exits(4);
    repo.tenure("guard install").exits(0);
    repo.tenure("doctor").exits(0);
    repo.reserve("a");
    repo.stage("a");
    repo.git("commit -m a").fails(1, &["a: other"]);
}

#[test]
fn a_merge_is_checked_with_and_without_conflicts() {
    let repo = Repository::guarded();
    repo.git("checkout -q -b side").exits(0);
    repo.stage("a");
    repo.git("commit -q -m side").exits(0);
    repo.git("checkout -q main").exits(0);
    repo.stage("b");
    repo.git("commit -q -m main").exits(0);
    repo.reserve("a");
    repo.git("merge side -m merged")
        .fails(1, &["this merge changes", "a: other"]);
    repo.git("merge --abort").exits(0);
    repo.tenure("unreserve a --as other").exits(0);
    repo.git("merge side -m merged").exits(0);
    // With a conflict, the commit that ends the merge is checked.
    repo.git("checkout -q -b more HEAD~1").exits(0);
    repo.write("b", "theirs\n");
    repo.git("commit -qam theirs").exits(0);
    repo.git("checkout -q main").exits(0);
    repo.write("b", "ours\n");
    repo.git("commit -qam ours").exits(0);
    repo.git("merge more").exits(1);
    repo.reserve("b");
    repo.write("b", "both\n");
    repo.git("commit -am both").fails(1, &["b: other"]);
    repo.tenure("unreserve b --as other").exits(0);
    repo.git("commit -qam both").exits(0);
}

#[test]
fn a_submodule_is_one_path_of_the_repository_around_it() {
    let repo = Repository::guarded();
    let inner = repo.root().with_file_name("inner");
    repo.git(&format!("init -q -b main {}", inner.display()))
        .exits(0);
    for words in [
        "config user.name t",
        "config user.email t@t",
        "commit -q --allow-empty -m i",
    ] {
        repo.git_in(&inner, words).exits(0);
    }
    let add = format!(
        "-c protocol.file.allow=always submodule --quiet add {} sub",
        inner.display()
    );
    repo.git(&add).exits(0);
    repo.git("config submodule.sub.ignore all").exits(0);
    repo.reserve("sub");
    repo.git("commit -m sub").fails(1, &["sub: other has sub"]);
    // A commit in the submodule is seen from the project around it.
    repo.tenure("guard install -C sub").exits(0);
    let sub = repo.path("sub");
    for words in ["config user.name t", "config user.email t@t"] {
        repo.git_in(&sub, words).exits(0);
    }
    repo.write("sub/file", "1\n");
    repo.git_in(&sub, "add file").exits(0);
    repo.git_in(&sub, "commit -m inner")
        .fails(1, &["sub/file: other has sub"]);
    repo.tenure("unreserve sub --as other").exits(0);
    repo.git_in(&sub, "commit -m inner").exits(0);
}

#[test]
fn a_path_that_is_not_utf_8_is_judged_by_its_folder() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let repo = Repository::guarded();
    repo.reserve("src/**");
    fs::write(repo.root().join(OsStr::from_bytes(b"src/\xff\xfe")), "x").unwrap();
    fs::write(repo.root().join(OsStr::from_bytes(b"free \xff\nline")), "x").unwrap();
    repo.git("add .").exits(0);
    repo.git("commit -m odd")
        .fails(1, &["src/\u{fffd}\u{fffd}: other has src/**"]);
    repo.git("restore --staged src").exits(0);
    repo.git("commit -m odd").exits(0);
}

#[test]
fn an_odd_name_is_shown_on_one_line_and_reserved_as_it_is() {
    let repo = Repository::guarded();
    let tenure = |arg: &str| {
        let call = repo.project.call("reserve --as other --for 1h");
        call.arg(arg).end().exits(0);
    };
    tenure("app/**");
    for name in ["app/[id].ts", "app/z\u{1b}[31m\nred"] {
        repo.write(name, "1\n");
    }
    repo.git("add .").exits(0);
    let said = repo.git("commit -m odd");
    let shown = r#""$(printf 'app/z\033\13331m\012red')": other has app/**"#;
    said.fails(1, &[shown, r"tenure reserve 'app/\[id\].ts'"]);
}

/// The hook of another tool: it writes its name, its arguments and its input.
fn foreign(path: &Path) -> Vec<u8> {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let text =
        b"#!/bin/sh\necho \"${0##*/} ${0%/*}\" >> ran\ncase $0 in *push) cat >> ran ;; esac\n";
    write_program(path, text);
    fs::set_permissions(path, fs::Permissions::from_mode(0o750)).unwrap();
    text.to_vec()
}

/// Every path in the folders, with mode, link and content.
fn state(folders: &[PathBuf]) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = folders.to_vec();
    while let Some(path) = open.pop() {
        let Ok(entry) = fs::symlink_metadata(&path) else {
            continue;
        };
        let content = if entry.is_symlink() {
            fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else if entry.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        found.push((path, entry.permissions().mode(), content));
    }
    found.sort();
    found
}

/// Installs the guard beside what is there: the other hooks run, commits are checked, and after `uninstall`
/// everything is as it was.
#[track_caller]
fn beside(repo: &Repository, folders: &[PathBuf], ran: &str) {
    let mut watched = folders.to_vec();
    watched.push(repo.path(".git/config"));
    watched.push(repo.path(".git/hooks"));
    let before = state(&watched);
    let of_others = state(folders);
    repo.tenure("guard install").exits(0);
    assert_eq!(
        state(folders),
        of_others,
        "a file of another tool was changed"
    );
    let installed = state(&[repo.path(".git")]);
    let again = repo.tenure("guard install").exits(0);
    assert!(again.out.contains("nothing was changed"), "{again:?}");
    assert_eq!(state(&[repo.path(".git")]), installed);
    repo.tenure("guard status").exits(0);
    let _ = fs::remove_file(repo.path("ran"));
    repo.stage("b");
    repo.git("commit -m b").exits(0);
    assert_eq!(repo.project.read("ran"), ran);
    repo.reserve("a");
    repo.stage("a");
    repo.git("commit -m a").fails(1, &["a: other"]);
    repo.git("reset -q --hard").exits(0);
    repo.tenure("unreserve a --as other").exits(0);
    repo.tenure("guard uninstall").exits(0);
    assert_eq!(state(&watched), before);
    repo.tenure("guard status").exits(4);
    repo.tenure("guard uninstall").exits(0);
    assert_eq!(state(&watched), before);
}

#[test]
fn hooks_of_a_person_run_at_their_own_path() {
    let repo = Repository::new();
    let hooks = repo.path(".git/hooks");
    foreign(&hooks.join("pre-commit"));
    foreign(&hooks.join("commit-msg"));
    foreign(&repo.path(".git/scripts/post-commit"));
    symlink("../scripts/post-commit", hooks.join("post-commit")).unwrap();
    let at = ".git/hooks";
    let ran = format!("pre-commit {at}\ncommit-msg {at}\npost-commit {at}\n");
    beside(&repo, &[hooks], &ran);
}

#[test]
fn a_folder_of_hooks_in_the_repository_runs_as_before() {
    // As husky and others do it: relative to the top of the work tree.
    let repo = Repository::new();
    foreign(&repo.path(".husky/_/pre-commit"));
    repo.git("config core.hooksPath .husky/_").exits(0);
    beside(&repo, &[repo.path(".husky")], "pre-commit .husky/_\n");
    // A tool that sets the folder again, or another one, after the guard was installed.
    repo.tenure("guard install").exits(0);
    foreign(&repo.path("tools/pre-commit"));
    repo.git("config core.hooksPath tools").exits(0);
    fs::remove_file(repo.path("ran")).unwrap();
    repo.stage("b");
    repo.git("commit -m b").exits(0);
    assert_eq!(repo.project.read("ran"), "pre-commit tools\n");
    repo.tenure("guard status").exits(0);
    // In a linked worktree, from a subfolder.
    repo.git("worktree add -q ../linked").exits(0);
    repo.reserve("a");
    let linked = repo.root().with_file_name("linked");
    fs::write(linked.join("a"), "1\n").unwrap();
    repo.git_in(&linked.join("src"), "commit -am linked")
        .fails(1, &["a: other"]);
}

#[test]
fn a_folder_of_hooks_for_all_repositories_of_a_person_runs_as_before() {
    let repo = Repository::new();
    let hooks = repo.project.home().join("hooks");
    foreign(&hooks.join("pre-commit"));
    fs::write(
        repo.project.home().join("gitconfig"),
        "[core]\n\thooksPath = ~/hooks\n",
    )
    .unwrap();
    let mut tenure = repo.project.call("guard install");
    tenure = tenure.env("GIT_CONFIG_GLOBAL", repo.project.home().join("gitconfig"));
    tenure.end().exits(0);
    repo.stage("b");
    repo.git("commit -m b").exits(0);
    let ran = format!("pre-commit {}\n", hooks.display());
    assert_eq!(repo.project.read("ran"), ran);
    repo.reserve("a");
    repo.stage("a");
    repo.git("commit -m a").fails(1, &["a: other"]);
}

#[test]
fn the_script_of_pre_commit_runs_the_guard_itself() {
    let repo = Repository::new();
    let hooks = repo.path(".git/hooks");
    // What pre-commit writes, reduced to what it does with NAME.legacy.
    fs::create_dir_all(&hooks).unwrap();
    let script = "#!/bin/sh\n# File generated by pre-commit: https://pre-commit.com\n\
                  echo \"${0##*/} ${0%/*}\" >> ran\n\
                  if [ -x \"$0.legacy\" ]; then \"$0.legacy\" \"$@\" || exit 1; fi\n";
    write_program(&hooks.join("pre-commit"), script.as_bytes());
    beside(
        &repo,
        &[hooks.join("pre-commit")],
        "pre-commit .git/hooks\n",
    );
}

#[test]
fn a_hook_that_another_tool_installs_in_the_place_of_ours_is_kept_and_runs() {
    // As lefthook does it: it asks git for the folder, and renames what it finds there.
    let repo = Repository::new();
    let replace = |hooks: &Path, name: &str| {
        fs::rename(hooks.join(name), hooks.join(format!("{name}.old"))).unwrap();
        foreign(&hooks.join(name))
    };
    let (plain, own) = (
        repo.path(".git/hooks"),
        repo.path(".git/tenure-guard/hooks"),
    );
    repo.tenure("guard install").exits(0);
    let lefthook = replace(&plain, "pre-commit");
    repo.stage("b");
    let said = repo.git("commit -m b").exits(0);
    assert!(
        said.err.contains("another tool has replaced pre-commit"),
        "{said:?}"
    );
    repo.tenure("guard install").exits(0);
    assert!(!plain.join("pre-commit.old").exists());
    repo.stage("b");
    let said = repo.git("commit -m b").exits(0);
    assert_eq!(said.err, "");
    // It is installed again, now into our folder, with a hook more and another content.
    replace(&own, "pre-commit");
    foreign(&own.join("commit-msg"));
    let newer = [&lefthook[..], b"# newer\n"].concat();
    fs::write(own.join("pre-commit"), &newer).unwrap();
    repo.tenure("guard status").exits(4);
    repo.tenure("guard install").exits(0);
    repo.tenure("guard status").exits(0);
    let there = |name: &str| fs::read(plain.join(name)).unwrap();
    assert_eq!(there("pre-commit"), newer);
    assert_eq!(there("pre-commit.old"), lefthook);
    assert_eq!(there("commit-msg"), lefthook);
    assert!(!own.join("pre-commit.old").exists());
    fs::remove_file(repo.path("ran")).unwrap();
    repo.stage("b");
    repo.git("commit -m b").exits(0);
    let ran = "pre-commit .git/hooks\ncommit-msg .git/hooks\n";
    assert_eq!(repo.project.read("ran"), ran);
    repo.reserve("a");
    repo.stage("a");
    repo.git("commit -m a").fails(1, &["a: other"]);
    // What would need a third name is left to the person.
    foreign(&own.join("pre-commit"));
    let said = repo.tenure("guard install");
    said.fails(1, &["are hooks of other tools", ".git/hooks/pre-commit"]);
    fs::remove_file(plain.join("pre-commit.old")).unwrap();
    // Removing the guard loses none of them either.
    repo.tenure("guard uninstall").exits(0);
    assert_eq!(there("pre-commit"), lefthook);
    assert_eq!(there("pre-commit.old"), newer);
    assert!(!own.exists());
}

#[test]
fn the_configuration_of_git_is_restored_byte_for_byte_whatever_is_in_it() {
    let repo = Repository::new();
    foreign(&repo.path(".husky/pre-commit"));
    let config = repo.path(".git/config");
    let plain = fs::read_to_string(&config).unwrap();
    let husky = format!("{plain}[core]\n\thooksPath = .husky\n");
    for text in [
        // A section of includes before the setting that ours must win over.
        format!("[include]\n\tpath = mine\n{husky}"),
        format!("{plain}[Include] path = mine\n[core]\n\thooksPath = .husky"),
        format!("{husky}[include]\n"),
        format!("{husky}\n\n# no newline"),
        husky.replace('\n', "\r\n"),
    ] {
        fs::write(&config, &text).unwrap();
        repo.tenure("guard install").exits(0);
        repo.reserve("a");
        repo.stage("a");
        repo.git("commit -m a").fails(1, &["a: other"]);
        repo.git("reset -q --hard").exits(0);
        repo.tenure("unreserve a --as other").exits(0);
        // A tool that puts its setting at the end takes the guard out, and `install` puts it back.
        let installed = fs::read_to_string(&config).unwrap();
        let taken = format!("{installed}\n[core]\n\thooksPath = .husky\n");
        fs::write(&config, taken).unwrap();
        repo.tenure("guard status").exits(4);
        repo.tenure("guard install").exits(0);
        repo.tenure("guard status").exits(0);
        fs::write(&config, &installed).unwrap();
        repo.tenure("guard uninstall").exits(0);
        assert_eq!(fs::read_to_string(&config).unwrap(), text);
    }
    // Another program changes it at this moment.
    fs::write(&config, &husky).unwrap();
    repo.write(".git/config.lock", "");
    let said = repo.tenure("guard install");
    said.fails(1, &["config.lock exists: another program is changing"]);
    assert_eq!(fs::read_to_string(&config).unwrap(), husky);
}

#[test]
fn a_hook_that_stages_more_does_not_get_it_past_the_guard() {
    let repo = Repository::new();
    let hook = repo.path(".git/hooks/pre-commit");
    foreign(&hook);
    fs::write(&hook, "#!/bin/sh\necho x >> a; git add a\n").unwrap();
    repo.tenure("guard install").exits(0);
    repo.reserve("a");
    repo.stage("b");
    repo.git("commit -m b").fails(1, &["a: other"]);
}

#[test]
fn hooks_that_read_get_all_of_their_input() {
    let repo = Repository::new();
    foreign(&repo.path(".git/hooks/pre-push"));
    repo.tenure("guard install").exits(0);
    let hub = repo.root().with_file_name("hub");
    repo.git(&format!("init -q --bare {}", hub.display()))
        .exits(0);
    repo.git(&format!("remote add origin {}", hub.display()))
        .exits(0);
    repo.git("push -q origin main").exits(0);
    let ran = repo.project.read("ran");
    let zeros = "0".repeat(40);
    let head = repo.head();
    let line = format!("refs/heads/main {} refs/heads/main {zeros}\n", head.trim());
    assert_eq!(ran, format!("pre-push .git/hooks\n{line}"));
}

#[test]
fn a_hook_without_tenure_says_so_and_blocks_only_if_it_is_strict() {
    let repo = Repository::new();
    let gone = repo.project.home().join("tenure");
    // Not by this process: a child that another test starts meanwhile would keep the file open for writing.
    let copy = repo.project.program("cp");
    let copy = repo.project.prepare(copy).arg(project::TENURE).arg(&gone);
    copy.end().exits(0);
    for strict in [false, true] {
        repo.write(
            ".tenure/config.yaml",
            &format!("guard:\n  strict: {strict}\n"),
        );
        let install = repo.project.program(&gone);
        let install = repo.project.prepare(install).args(["guard", "install"]);
        install.end().exits(0);
        fs::rename(&gone, gone.with_extension("moved")).unwrap();
        repo.stage("b");
        let said = repo.git("commit -m b");
        assert!(
            said.err.contains("tenure is not installed any more"),
            "{said:?}"
        );
        said.exits(i32::from(strict));
        // It is found in PATH.
        let folder = gone.with_file_name("bin");
        fs::create_dir_all(&folder).unwrap();
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", folder.display());
        let _ = symlink(project::TENURE, folder.join("tenure"));
        repo.stage("b");
        let commit = repo
            .call("commit -m b")
            .env("PATH", path)
            .env("TENURE_HOLDER", "me");
        let said = commit.end().exits(0);
        assert!(!said.err.contains("not installed"), "{said:?}");
        fs::rename(gone.with_extension("moved"), &gone).unwrap();
    }
}

#[test]
fn a_store_that_is_missing_or_damaged_blocks_only_if_the_guard_is_strict() {
    let repo = Repository::guarded();
    let damage = |how: &str| {
        for name in ["tenure.db", "tenure.db-wal", "tenure.db-shm"] {
            let _ = fs::remove_file(repo.path(".git/tenure").join(name));
        }
        if how == "damaged" {
            repo.write(".git/tenure/tenure.db", &"no database ".repeat(1000));
        }
    };
    for how in ["missing", "damaged"] {
        damage(how);
        repo.write(".tenure/config.yaml", "guard:\n  strict: false\n");
        repo.stage("b");
        let said = repo.git("commit -m b").exits(0);
        assert!(said.err.contains("the guard checked nothing"), "{said:?}");
        repo.write(".tenure/config.yaml", "guard:\n  strict: true\n");
        repo.stage("b");
        repo.git("commit -m b").fails(1, &["the guard is strict"]);
    }
    // Settings that can't be read: what was installed counts.
    repo.write(".tenure/config.yaml", "guard:\n  strict: perhaps\n");
    repo.git("commit -m b").exits(0);
}

impl Repository {
    /// With a bare repository `hub` as its remote, which has the first commit.
    fn with_hub() -> Self {
        let repository = Self::guarded();
        let hub = repository.hub();
        repository
            .git(&format!("init -q --bare -b main {}", hub.display()))
            .exits(0);
        repository
            .git(&format!("remote add origin {}", hub.display()))
            .exits(0);
        repository.git("push -q -u origin main").exits(0);
        repository
    }

    fn hub(&self) -> PathBuf {
        self.root().with_file_name("hub")
    }

    /// Commits a change of a file while it is reserved, and gives the file back.
    fn commit_reserved(&self, name: &str) {
        self.tenure(&format!("reserve {name} --as me --for 1h"))
            .exits(0);
        self.stage(name);
        self.git(&format!("commit -q -m reserved-{name}")).exits(0);
        self.tenure(&format!("unreserve {name} --as me")).exits(0);
    }

    /// The commits made in spite of the guard: each with whether a hook saw it, and against whom.
    fn bypasses(&self) -> Vec<(String, bool, String)> {
        let status = self.tenure("guard status --json").json();
        let found = status["data"]["bypasses"].as_array().unwrap().clone();
        let each = found.iter().map(|bypass| {
            let against = bypass["against"].as_array().unwrap();
            let against: Vec<&str> = against
                .iter()
                .map(|holder| holder.as_str().unwrap())
                .collect();
            (
                bypass["commit"].as_str().unwrap().to_owned(),
                bypass["seenAtCommit"].as_bool().unwrap(),
                against.join(" "),
            )
        });
        each.collect()
    }
}

#[test]
fn what_was_granted_after_a_commit_does_not_stop_its_push() {
    let repo = Repository::with_hub();
    repo.commit_reserved("a");
    // Another holder looks at the file and ends without a change, or still has it, or reads it.
    repo.reserve("a");
    repo.tenure("unreserve a --as other").exits(0);
    repo.git("push -q").exits(0);
    for mode in ["", " --shared"] {
        repo.commit_reserved("b");
        repo.reserve(&format!("b{mode}"));
        repo.git("push -q").exits(0);
        repo.tenure("unreserve b --as other").exits(0);
    }
    // A commit of what nobody had reserved.
    repo.stage("a");
    repo.git("commit -qm a").exits(0);
    repo.reserve("a");
    repo.git("push -q").exits(0);
    assert_eq!(repo.bypasses(), []);
}

#[test]
fn amended_rebased_and_picked_commits_carry_their_record_over() {
    let repo = Repository::with_hub();
    repo.git("checkout -q -b side").exits(0);
    repo.commit_reserved("a");
    repo.git("checkout -q main").exits(0);
    repo.commit_reserved("b");
    // From now on, another holder has both files.
    repo.reserve("a b");
    repo.git("commit -q --amend -m other-words").exits(0);
    repo.git("cherry-pick side").exits(0);
    repo.git("checkout -q side").exits(0);
    repo.git("rebase -q main~1").exits(0);
    repo.git("checkout -q main").exits(0);
    repo.git("push -q origin main side").exits(0);
    assert_eq!(repo.bypasses(), []);
    // Another change of the file is not carried.
    repo.stage("b");
    let said = repo.git("commit -q --no-verify --amend --no-edit").exits(0);
    assert!(said.err.contains("which is recorded"), "{said:?}");
    repo.git("push -qf")
        .fails(1, &["b: other had b when commit"]);
}

/// What the refusal of a push says, with the commands that it advises to run.
fn advised(said: &Said) -> Vec<String> {
    let lines = said.err.lines().map(str::trim);
    let commands = lines.filter_map(|line| {
        let (_, command) = line.split_once(": ")?;
        (command.starts_with("tenure reserve ") || command.starts_with("git rebase "))
            .then(|| command.to_owned())
    });
    commands.collect()
}

#[test]
fn the_advice_for_a_refused_push_works_wherever_the_commit_is() {
    for first in ["a", "b"] {
        let repo = Repository::with_hub();
        repo.stage("src/c");
        repo.git("commit -qm before").exits(0);
        repo.reserve(first);
        repo.stage(first);
        repo.git("commit -q --no-verify -m against").exits(0);
        repo.stage("src/d");
        repo.git("commit -qm after").exits(0);
        let said = repo.git("push -q").fails(1, &["other had", "you are me"]);
        repo.tenure(&format!("unreserve {first} --as other"))
            .exits(0);
        // Giving it back alone changes nothing.
        repo.git("push -q").exits(1);
        let advice = advised(&said);
        assert_eq!(advice.len(), 2, "{said:?}");
        for command in advice {
            let (program, words) = command.split_once(' ').unwrap();
            match program {
                "tenure" => repo.tenure(&format!("{words} --as me")).exits(0),
                _ => repo.git(words).exits(0),
            };
        }
        repo.git("push -q").exits(0);
    }
}

#[test]
fn neither_a_source_with_spaces_nor_many_commits_without_hooks_get_past_a_push() {
    let repo = Repository::with_hub();
    // So that its first second has passed for sure.
    repo.reserve("a");
    let later = |seconds: i64| HostClock::new().now().wall.as_second() + seconds;
    let unseen = |words: &str, at: i64| {
        let call = repo.call(&format!("-c core.hooksPath=/dev/null {words}"));
        call.env("GIT_COMMITTER_DATE", format!("@{at} +0000"))
            .end()
            .exits(0);
    };
    let begun = later(2);
    repo.stage("a");
    unseen("commit -qm a", begun);
    for number in 0..110 {
        unseen(&format!("commit -q --allow-empty -m {number}"), begun);
    }
    project::until("the commits are made", || later(0) > begun);
    let words = ["a: other had a when commit"];
    // A hook that sees the newest commit sees not all that are below it.
    repo.stage("b");
    let commit = repo.call("commit -q -m").arg("the last");
    commit.end().exits(0);
    repo.git("push -q").fails(1, &words);
    let push = repo.call("push -q origin");
    let push = push.arg("HEAD^{/the last}:refs/heads/odd");
    push.env("TENURE_HOLDER", "me").end().fails(1, &words);
}

#[test]
fn a_commit_that_no_hook_saw_is_judged_by_its_date() {
    let repo = Repository::with_hub();
    let at = |seconds: i64| {
        let at = HostClock::new().now().wall.as_second() + seconds;
        format!("@{at} +0000")
    };
    let unseen = |name: &str, date: String| {
        repo.stage(name);
        let call = repo.call(&format!("-c core.hooksPath=/dev/null commit -qm {name}"));
        call.env("GIT_COMMITTER_DATE", date).end().exits(0);
    };
    // Made before the grant.
    unseen("a", at(-1));
    repo.reserve("a");
    repo.git("push -q").exits(0);
    // A date before that of the parent, or to come, proves nothing.
    for date in [at(-3600), at(3600)] {
        unseen("a", date);
        repo.git("push -q")
            .fails(1, &["a: other had a when commit"]);
        repo.git("reset -q --hard origin/main").exits(0);
    }
}

#[test]
fn a_commit_past_the_guard_is_recorded_and_can_t_be_pushed() {
    let repo = Repository::with_hub();
    repo.reserve("a");
    repo.stage("a");
    let said = repo.git("commit -q --no-verify -m a").exits(0);
    assert!(
        said.err
            .contains("changes what other holders have reserved, which is recorded"),
        "{said:?}"
    );
    let verified = repo.head().trim().to_owned();
    assert_eq!(
        repo.bypasses(),
        [(verified.clone(), true, "other".to_owned())]
    );
    repo.git("push -q")
        .fails(1, &["a: other had a when commit"]);

    // No hook at all: the next command that looks sees it.
    repo.stage("b");
    repo.git("-c core.hooksPath=/dev/null commit -q -m b")
        .exits(0);
    let unseen = repo.head().trim().to_owned();
    repo.stage("src/c");
    repo.git("commit -q -m c").exits(0);
    let expected = [
        (verified, true, "other".to_owned()),
        (unseen, false, String::new()),
    ];
    assert_eq!(repo.bypasses(), expected);
    let shown = repo.tenure("guard status").exits(0);
    assert!(
        shown.out.contains("2 commits made in spite of the guard"),
        "{shown:?}"
    );
    assert!(
        shown.out.contains("no hook ran when it was made"),
        "{shown:?}"
    );
    // Commits of others are none of these.
    assert_eq!(repo.bypasses(), expected);
}

#[test]
fn cherry_picks_rebases_and_what_others_push_need_no_guard() {
    let repo = Repository::with_hub();
    repo.git("checkout -q -b side").exits(0);
    for name in ["a", "b"] {
        repo.commit_reserved(name);
    }
    repo.git("checkout -q main").exits(0);
    repo.git("cherry-pick side").exits(0);
    repo.stage("src/c");
    repo.git("commit -q -m c").exits(0);
    repo.git("checkout -q side").exits(0);
    repo.git("rebase -q main").exits(0);
    repo.git("revert --no-edit HEAD").exits(0);
    repo.git("checkout -q main").exits(0);
    repo.git("merge -q --ff-only side").exits(0);
    repo.git("push -q").exits(0);
    assert_eq!(repo.bypasses(), []);
    // A revert of what another holder has reserved makes no commit hook run, but is recorded.
    repo.commit_reserved("a");
    repo.reserve("a");
    let said = repo.git("revert --no-edit HEAD").exits(0);
    assert!(said.err.contains("which is recorded"), "{said:?}");
    repo.git("push -q")
        .fails(1, &["a: other had a when commit"]);
}

/// Turns `guard.strict` on.
fn strict(repo: &Repository) {
    repo.write(".tenure/config.yaml", "guard:\n  strict: true\n");
    repo.tenure("guard install").exits(0);
}

#[test]
fn a_strict_guard_can_t_be_passed_with_no_verify() {
    let repo = Repository::guarded();
    strict(&repo);
    repo.git("checkout -q -b side").exits(0);
    repo.commit_reserved("a");
    repo.git("format-patch -q -1 -o ../patch").exits(0);
    repo.git("checkout -q main").exits(0);
    // Or a pick of the same second would be the very same commit.
    repo.stage("src/d");
    repo.git("commit -q -m d").exits(0);
    repo.reserve("a");
    let before = repo.head();
    let refused = ["this change of a branch changes", "a: other has a"];
    repo.stage("a");
    repo.git("commit -q --no-verify -m a").fails(128, &refused);
    repo.git("reset -q --hard").exits(0);
    let said = repo.git("cherry-pick side");
    assert!(said.err.contains(refused[1]), "{said:?}");
    repo.git("cherry-pick --abort").exits(0);
    let patch = fs::read_dir(repo.root().with_file_name("patch"))
        .unwrap()
        .next();
    let patch = patch.unwrap().unwrap().path();
    let said = repo.git(&format!("am -q {}", patch.display()));
    assert!(said.code != 0 && said.err.contains(refused[1]), "{said:?}");
    repo.git("am --abort").exits(0);
    assert_eq!(repo.head(), before);
    // Another path, another holder, another branch.
    repo.stage("b");
    repo.git("commit -q --no-verify -m b").exits(0);
}

#[test]
fn a_strict_guard_can_t_be_passed_by_way_of_a_tag_or_a_detached_head() {
    let repo = Repository::guarded();
    strict(&repo);
    repo.write("a", "1\n2\n3\n4\n5\n");
    repo.git("commit -qam lines").exits(0);
    let before = repo.head();
    // A branch that had a commit may have it back.
    repo.write("a", "one\n2\n3\n4\n5\n");
    repo.git("commit -qam one").exits(0);
    let one = repo.head();
    repo.git("branch side").exits(0);
    repo.git("reset -q --hard HEAD~1").exits(0);
    repo.reserve("a");
    repo.git("reset -q --hard HEAD@{1}").exits(0);
    assert_eq!(repo.head(), one);
    repo.git("branch -D side").exits(0);
    repo.git("reset -q --hard HEAD~1").exits(0);
    // No branch gets what was made where no branch is.
    let refused = ["this change of a branch changes", "a: other has a"];
    repo.git("checkout -q --detach").exits(0);
    repo.write("a", "1\n2\n3\n4\nfive\n");
    repo.git("commit -q --no-verify -am detached").exits(0);
    repo.git("tag passed").exits(0);
    repo.git("update-ref refs/odd/passed HEAD").exits(0);
    for words in [
        "branch new",
        "branch new passed",
        "update-ref refs/heads/new refs/odd/passed",
        "checkout -q -B main",
        "push -q --no-verify . HEAD:refs/heads/new",
    ] {
        let said = repo.git(words);
        assert!(
            said.code != 0 && refused.iter().all(|part| said.err.contains(part)),
            "{words}: {said:?}"
        );
    }
    // A push to a repository with a work tree, from another clone and to a linked worktree.
    repo.git("worktree add -q --detach ../linked").exits(0);
    for to in ["repo", "linked"] {
        let to = if to == "repo" {
            repo.root()
        } else {
            repo.root().with_file_name(to)
        };
        let said = repo.git(&format!(
            "push -q --no-verify {} HEAD:refs/heads/new",
            to.display()
        ));
        assert!(said.code != 0 && said.err.contains(refused[1]), "{said:?}");
    }
    repo.git("checkout -q main").exits(0);
    repo.git("reset -q --hard passed").fails(128, &refused);
    repo.git("reset -q --hard").exits(0);
    assert_eq!(repo.head(), before);
    // A rebase ends on a branch, too, and can be taken back.
    repo.tenure("unreserve a --as other").exits(0);
    repo.git("checkout -q -b twig").exits(0);
    repo.write("a", "first\n2\n3\n4\n5\n");
    repo.git("commit -qam first").exits(0);
    let twig = repo.head();
    repo.git("checkout -q main").exits(0);
    repo.write("a", "1\n2\n3\n4\nlast\n");
    repo.git("commit -qam last").exits(0);
    repo.git("checkout -q twig").exits(0);
    repo.reserve("a");
    let said = repo.git("rebase -q main");
    assert!(said.code != 0 && said.err.contains(refused[0]), "{said:?}");
    repo.git("rebase --abort").exits(0);
    assert_eq!(repo.head(), twig);
}

#[test]
fn a_strict_guard_does_not_disturb_what_makes_no_new_commits() {
    let repo = Repository::with_hub();
    strict(&repo);
    repo.stage("a");
    repo.git("commit -q -m a").exits(0);
    repo.reserve("a b src/**");
    // What others push comes in, although it changes what is reserved.
    let clone = repo.root().with_file_name("clone");
    repo.git(&format!(
        "clone -q {} {}",
        repo.hub().display(),
        clone.display()
    ))
    .exits(0);
    for words in ["config user.name o", "config user.email o@o"] {
        repo.git_in(&clone, words).exits(0);
    }
    fs::write(clone.join("b"), "other\n").unwrap();
    repo.git_in(&clone, "commit -qam other").exits(0);
    repo.git_in(&clone, "push -q").exits(0);
    repo.git("fetch -q").exits(0);
    repo.git("fetch -q origin main:theirs").exits(0);
    repo.git("checkout -q -b follow origin/main~1").exits(0);
    repo.git("merge -q --ff-only origin/main").exits(0);
    repo.git("checkout -q main").exits(0);
    // The rebased commit changes nothing that the branch did not have already.
    repo.git("rebase -q origin/main").exits(0);
    repo.write("a", "dirty\n");
    for words in [
        "stash -q",
        "stash pop -q",
        "checkout -q a",
        "commit -q --amend -m other",
        "tag v1",
        "tag -a v2 -m v2",
        "branch twig",
        "branch -f twig HEAD~1",
        "branch -m twig bough",
        "branch -D bough",
        "worktree add -q ../linked",
        "worktree remove ../linked",
        "pack-refs --all",
        "gc -q",
        "reset -q --hard HEAD~1",
        "reset -q --hard HEAD@{1}",
        "checkout -q --detach",
        "checkout -q main",
        "push -q origin HEAD:refs/tags/pushed",
    ] {
        repo.git(words).exits(0);
    }
}

#[test]
fn a_server_refuses_what_is_reserved_and_knows_the_pusher() {
    let repo = Repository::new();
    let hub = repo.root().with_file_name("hub");
    repo.git(&format!("init -q --bare -b main {}", hub.display()))
        .exits(0);
    repo.git_in(&hub, "config receive.advertisePushOptions true")
        .exits(0);
    repo.project
        .call("init --quiet")
        .within(&hub)
        .end()
        .exits(0);
    repo.project
        .call("guard install")
        .within(&hub)
        .end()
        .exits(0);
    let status = repo
        .project
        .call("guard status")
        .within(&hub)
        .end()
        .exits(0);
    assert!(status.out.contains("pre-receive in hooks"), "{status:?}");
    repo.git(&format!("remote add origin {}", hub.display()))
        .exits(0);
    // The pusher's own name does not reach a server, so git is called without one.
    let push = |words: &str| repo.call(&format!("push -q {words}")).end();
    push("origin main").exits(0);
    let reserve = |words: &str| {
        let call = repo
            .project
            .call(&format!("reserve {words} --as other --for 1h"));
        call.within(&hub).end().exits(0);
    };
    reserve("a");
    repo.stage("a");
    repo.git("commit -q -m a").exits(0);
    push("origin main").fails(
        1,
        &[
            "this push changes",
            "a: other has a",
            "pre-receive hook declined",
        ],
    );
    // No other ref makes the commits known.
    for name in ["refs/tags/first", "refs/remotes/x/main", "refs/odd/main"] {
        push(&format!("origin main:{name}")).exits(0);
    }
    push("origin main").fails(1, &["a: other has a"]);
    push("-o tenure-holder=me origin main").fails(1, &["a: other has a", "you are me"]);
    push("-o tenure-holder=other origin main").exits(0);
    push("origin main:refs/tags/v1").exits(0);
    push("origin :main").exits(1);
    // A new branch of commits that are there already, and one of new ones.
    push("origin main:refs/heads/same").exits(0);
    repo.stage("b");
    repo.git("commit -q -m b").exits(0);
    push("origin main:refs/heads/new").exits(0);
    push("origin :refs/heads/same").exits(0);
}

#[test]
fn the_session_of_an_agent_is_the_holder_of_its_commits() {
    let repo = Repository::guarded();
    repo.project
        .tenure("reserve a --as claude-code-s1")
        .exits(0);
    repo.stage("a");
    let commit = |session: &str| {
        repo.call("commit -qm mine")
            .env("CLAUDE_CODE_SESSION_ID", session)
            .end()
    };
    commit("s2").fails(1, &["claude-code-s1 has a"]);
    commit("s1").exits(0);
}

#[test]
fn setup_installs_and_removes_the_guard_after_a_question() {
    let repo = Repository::new();
    let hook = repo.project.path(".git/hooks/pre-commit");
    repo.project
        .tenure("setup git")
        .fails(5, &["before commits", "tenure setup git --yes"]);
    assert!(!hook.exists());
    repo.project.tenure("setup git --yes").exits(0);
    assert!(hook.exists());
    repo.project.tenure("setup git --remove").exits(5);
    assert!(hook.exists());
    repo.project.tenure("setup git --remove --yes").exits(0);
    assert!(!hook.exists());
    repo.project.tenure("setup git --user --yes").exits(2);
}

#[test]
fn an_agent_that_names_no_session_to_its_commands_is_found_by_its_process() {
    let repo = Repository::guarded();
    let hook = |session: &str, edited: &str| {
        let event = json!({
            "session_id": session, "hook_event_name": "BeforeTool", "cwd": repo.root(),
            "tool_name": "replace", "tool_input": { "file_path": edited },
        });
        let file = repo.root().with_file_name(session);
        fs::write(&file, event.to_string()).unwrap();
        format!("{TENURE} hook gemini < {}", file.display())
    };
    // An agent runs each hook and each command with a shell of its own.
    let run = |commands: &[&str]| {
        let script = repo.root().with_file_name("agent");
        let lines = commands
            .iter()
            .map(|it| format!("sh -c '{it}; exit $?' || exit\n"));
        fs::write(&script, lines.collect::<String>()).unwrap();
        let mut agent: Command = repo.project.program("bash");
        agent
            .arg(&script)
            .env("GIT_CONFIG_GLOBAL", repo.project.home().join("gitconfig"));
        repo.project.prepare(agent).end()
    };
    let commit = "git commit -qm mine";
    repo.stage("a");
    run(&[&hook("s1", "a"), commit]).exits(0);
    repo.stage("a");
    // The first agent has ended without a word. Its file is still reserved, and nobody else has its name.
    run(&[commit]).fails(
        1,
        &["gemini-s1 has a", "git can't tell which agent you are"],
    );
    let other = hook("s2", "b");
    let said = run(&[&other, commit]);
    said.fails(1, &["gemini-s1 has a", "you are gemini-s2"]);
    // What it reserves and looks at has the same holder.
    let said = run(&[&other, &format!("{TENURE} reserve src --for 1h")]).exits(0);
    assert!(said.err.contains("gemini-s2 has reserved src"), "{said:?}");
    // A name that is given goes first.
    let named = format!("TENURE_HOLDER=gemini-s1 {commit}");
    run(&[&other, &named]).exits(0);
}

#[test]
fn a_lock_of_git_that_a_killed_install_left_is_resolved_and_gits_own_is_not() {
    let repo = Repository::new();
    fs::write(repo.path(".git/hooks/pre-commit"), "#!/bin/sh\n").unwrap();
    let (lock, own) = (
        repo.path(".git/config.lock"),
        repo.path(".git/config.tenure-4194304"),
    );
    let leave = || {
        fs::write(&own, "half").unwrap();
        fs::hard_link(&own, &lock).unwrap();
    };
    for words in ["guard install", "guard uninstall", "doctor --fix"] {
        leave();
        repo.git("config x.y z").exits(255);
        let said = repo.tenure(words);
        assert!(!lock.exists() && !own.exists(), "{words}: {said:?}");
        repo.git("config x.y z").exits(0);
        fs::write(&lock, "").unwrap();
        let said = repo.tenure(words);
        assert!(lock.exists(), "{words}: {said:?}");
        fs::remove_file(&lock).unwrap();
    }
}

#[test]
fn a_push_is_judged_whatever_the_ref_is_that_it_sends_commits_to() {
    let repo = Repository::with_hub();
    repo.reserve("a");
    repo.stage("a");
    repo.git("commit -q --no-verify -m passed").exits(0);
    repo.git("tag light").exits(0);
    repo.git("tag -a -m x heavy").exits(0);
    repo.git("tag -a -m x twice heavy").exits(0);
    for to in [
        "HEAD:refs/tags/lw",
        "light",
        "heavy",
        "twice",
        "HEAD:refs/notes/n",
        "HEAD:refs/tenure/n",
        "HEAD:refs/for/main",
        "HEAD:refs/changes/1",
        "HEAD:refs/heads/x",
    ] {
        let said = repo.git(&format!("push -q origin {to}"));
        said.fails(1, &["a: other had a when commit"]);
    }
    // What is no commit, and what has no file of the work tree.
    repo.git("tag blob HEAD:a").exits(0);
    repo.git("tag -a -m x folder HEAD^{tree}").exits(0);
    repo.git("push -q origin blob folder").exits(0);
    repo.tenure("unreserve --as other").exits(0);
    repo.tenure("reserve ** --as other --for 1h").exits(0);
    repo.git("notes add -m note HEAD~1").exits(0);
    repo.git("push -q origin refs/notes/commits").exits(0);
    repo.git("push -q origin HEAD~1:refs/tags/first").exits(0);
}

#[test]
fn a_link_to_a_folder_belongs_to_the_reservation_that_goes_through_it() {
    for reserved in ["dl/**", "dl/x", "dl", "dl/new.rs"] {
        let repo = Repository::guarded();
        repo.write("d1/x", "1\n");
        repo.write("d2/x", "2\n");
        symlink("./d1", repo.path("dl")).unwrap();
        repo.git("add .").exits(0);
        repo.git("commit -q -m link").exits(0);
        repo.reserve(reserved);
        fs::remove_file(repo.path("dl")).unwrap();
        symlink("d2", repo.path("dl")).unwrap();
        repo.git("add dl").exits(0);
        repo.git("commit -q -m other")
            .fails(1, &["dl: other has dl"]);
        repo.git("reset -q --hard").exits(0);
        // It is given back by the name that it was reserved by.
        repo.tenure(&format!("unreserve {reserved} --as other"))
            .exits(0);
        let left = repo.tenure("reservations --json").exits(0);
        assert!(!left.out.contains("other"), "{left:?}");
    }
}

#[test]
fn an_agent_is_found_as_the_first_process_of_a_container_and_behind_a_script_of_its_hook() {
    let repo = Repository::guarded();
    let event = json!({
        "session_id": "s1", "hook_event_name": "BeforeTool", "cwd": repo.root(),
        "tool_name": "replace", "tool_input": { "file_path": "a" },
    });
    let beside = |name: &str| repo.root().with_file_name(name);
    fs::write(beside("event"), event.to_string()).unwrap();
    let wrapper = beside("wrapper");
    write_program(
        &wrapper,
        format!("#!/bin/bash\n{TENURE} hook gemini\nexit $?\n").as_bytes(),
    );
    let agent = |hook: &str| {
        // Each event comes in a pipe.
        let lines = [
            format!(
                "cat {} | sh -c '{hook}; exit $?' || exit",
                beside("event").display()
            ),
            "sh -c 'git commit -qm mine; exit $?'".to_owned(),
        ];
        let script = beside("agent");
        fs::write(&script, lines.join("\n")).unwrap();
        script.display().to_string()
    };
    let run = |words: String| {
        let mut call: Command = repo.project.program("sh");
        call.args(["-c", &format!("{words}; exit $?")])
            .env("GIT_CONFIG_GLOBAL", repo.project.home().join("gitconfig"));
        repo.project.prepare(call).end()
    };
    repo.stage("a");
    let behind = agent(&wrapper.display().to_string());
    run(format!("bash {behind}")).exits(0);
    let container = "unshare -Urfp --mount-proc";
    if run(format!("{container} true")).code != 0 {
        eprintln!("skipped: no container can be made here");
        return;
    }
    repo.stage("a");
    let first = agent(&format!("{TENURE} hook gemini"));
    run(format!("{container} bash {first}")).exits(0);
}
