//! Uncommitted bytes, kept and restored, with the real git and real processes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;
use tenure_core::{Clock, HolderId};
use tenure_files::kept::{Keeping, Kept, KeptError, NotKept, Source, Version};
use tenure_host::HostClock;

/// Where a process of this test keeps what is in its work tree.
const ROOT: &str = "KEPT_TEST_ROOT";

fn now() -> Timestamp {
    HostClock::new().now().wall
}

fn days(days: i64) -> Timestamp {
    now() + SignedDuration::from_hours(24 * days)
}

fn holder(name: &str) -> HolderId {
    HolderId::parse(name).unwrap()
}

/// A repository with a file `a`, and a state folder in it.
struct Place {
    dir: TempDir,
    root: PathBuf,
    kept: Kept,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("work");
        fs::create_dir(&root).unwrap();
        let state = root.join(".git/tenure");
        let place = Self {
            dir,
            kept: Kept::beside(&state),
            root,
        };
        place.sh("git init -q -b main; git config user.name a; git config user.email a@b");
        place.write("a", "committed");
        place.sh("git add -A; git commit -qm first; mkdir .git/tenure");
        place
    }

    #[track_caller]
    fn sh(&self, script: &str) -> String {
        let mut sh = Command::new("sh");
        sh.current_dir(&self.root).env("HOME", self.dir.path());
        let output = sh.args(["-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    }

    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.root.join(Path::new(name.as_ref()))
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn try_keep(&self, names: &[&str]) -> Result<Keeping, KeptError> {
        let files = names
            .iter()
            .map(|name| (PathBuf::from(name), holder("owner")));
        let files: Vec<_> = files.collect();
        self.kept.keep(&self.root, &files, now())
    }

    /// Keeps these files, and returns how many versions are new.
    #[track_caller]
    fn keep(&self, names: &[&str]) -> usize {
        let keeping = self.try_keep(names).unwrap();
        assert_eq!(keeping.left_out, []);
        keeping.kept.len()
    }

    fn versions(&self) -> Vec<Version> {
        self.kept.versions(now()).unwrap()
    }

    /// The bytes of all versions, the newest first.
    fn texts(&self) -> Vec<String> {
        self.newest_texts(usize::MAX)
    }

    /// The bytes of so many versions.
    fn newest_texts(&self, many: usize) -> Vec<String> {
        let versions = self.versions().into_iter().take(many);
        let bytes = versions.map(|version| self.kept.bytes(&self.root, &version).unwrap());
        bytes
            .map(|bytes| String::from_utf8(bytes).unwrap())
            .collect()
    }

    fn restore(&self, source: Source<'_>) -> Result<tenure_files::kept::Restored, KeptError> {
        self.kept.restore(&self.root, source, &holder("me"), now())
    }

    fn newest(&self, name: &str) -> Result<tenure_files::kept::Restored, KeptError> {
        self.restore(Source::Newest(Path::new(name)))
    }

    fn journal(&self) -> PathBuf {
        self.path(".git/tenure/kept/journal.jsonl")
    }

    fn objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for folder in fs::read_dir(self.path(".git/tenure/kept/objects")).unwrap() {
            for file in fs::read_dir(folder.unwrap().path()).unwrap() {
                found.push(file.unwrap().path());
            }
        }
        found
    }

    /// This program, which keeps `a`, `b` and `c` in another process.
    fn keeper(&self) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_that_keeps", "--ignored"])
            .env(ROOT, &self.root)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

#[test]
#[ignore = "other tests run it"]
fn a_process_that_keeps() {
    let Some(root) = std::env::var_os(ROOT).map(PathBuf::from) else {
        return;
    };
    let files = ["a", "b", "c"].map(|name| (PathBuf::from(name), holder("owner")));
    let kept = Kept::beside(&root.join(".git/tenure"));
    // crashat begins here.
    let _ = kept.keep(&root, &files, now()).unwrap();
}

#[test]
fn each_version_is_kept_once_with_its_raw_bytes_and_its_mode() {
    let place = Place::new();
    place.sh("git config core.autocrlf true; echo '* text eol=crlf' >.gitattributes");
    place.write("a", "one\r\ntwo\n");
    place.write("tool", "#!/bin/sh\n");
    fs::set_permissions(place.path("tool"), fs::Permissions::from_mode(0o710)).unwrap();
    symlink("tool", place.path("link")).unwrap();
    symlink("nowhere\nat all", place.path("new\nline")).unwrap();
    let odd = OsStr::from_bytes(b"\xff");
    fs::write(place.path(odd), "").unwrap();
    let names = ["a", "tool", "link", "new\nline"].map(PathBuf::from);
    let names = names.into_iter().chain([PathBuf::from(odd)]);
    let files: Vec<_> = names.map(|name| (name, holder("owner"))).collect();
    let keep = || place.kept.keep(&place.root, &files, now()).unwrap();
    assert_eq!(keep().kept.len(), 5);
    assert_eq!(keep(), Keeping::default());
    let kept = place.versions();
    let known: Vec<(&OsStr, u32, u64, bool)> = kept
        .iter()
        .rev()
        .map(|it| (it.path.as_os_str(), it.mode & 0o777, it.size, it.is_link()))
        .collect();
    let name = OsStr::new;
    let mode = |name: &str| place.path(name).symlink_metadata().unwrap().mode() & 0o777;
    assert_eq!(
        known,
        [
            (name("a"), mode("a"), 9, false),
            (name("tool"), 0o710, 10, false),
            (name("link"), 0o777, 4, true),
            (name("new\nline"), 0o777, 14, true),
            (odd, mode("a"), 0, false),
        ]
    );
    let texts = ["", "nowhere\nat all", "tool", "#!/bin/sh\n", "one\r\ntwo\n"];
    assert_eq!(place.texts(), texts);
    place.write("a", "three");
    assert_eq!(keep().kept.len(), 1);
    assert_eq!(place.texts()[0], "three");
    assert_eq!(place.versions()[0].owner, holder("owner"));
}

#[test]
fn git_does_not_see_deletes_or_push_what_is_kept() {
    let place = Place::new();
    place.sh("git init -q --bare ../mirror; git remote add mirror ../mirror");
    let look = "git for-each-ref; git log --all --format=%H; git fsck --unreachable --dangling; \
                git count-objects; git status --porcelain";
    let before = place.sh(look);
    place.write("a", "secret");
    assert_eq!(place.keep(&["a"]), 1);
    place.sh("git checkout -q -- a");
    assert_eq!(place.sh(look), before);
    place
        .sh("git push -q --mirror mirror; git gc -q --prune=now; git clone -q --mirror . ../clone");
    let id = place.versions()[0].blob.clone().unwrap();
    for other in [".git", "../mirror", "../clone"] {
        let found = place.sh(&format!("git -C {other} cat-file -t {id} 2>&1 || true"));
        assert!(found.contains("could not get object info"), "{found}");
    }
    assert_eq!(place.texts(), ["secret"]);
    let read = format!("GIT_OBJECT_DIRECTORY=.git/tenure/kept/objects git cat-file blob {id}");
    assert_eq!(place.sh(&read), "secret");
}

#[test]
fn others_can_read_what_is_kept_only_if_they_may_write_the_project() {
    for (state, kept) in [(0o755, 0o700), (0o775, 0o770), (0o777, 0o777)] {
        let place = Place::new();
        let folder = place.path(".git/tenure");
        fs::set_permissions(&folder, fs::Permissions::from_mode(state)).unwrap();
        for text in ["one", "two"] {
            place.write("a", text);
            assert_eq!(place.keep(&["a"]), 1);
            let mode = folder.join("kept").metadata().unwrap().mode() & 0o777;
            assert_eq!(mode, kept, "{state:o}");
        }
        let written = place.objects()[0].parent().unwrap().to_owned();
        let mode = written.metadata().unwrap().mode() & 0o777;
        assert_eq!(mode & 0o022, kept & 0o022, "{state:o}: {mode:o}");
    }
}

#[test]
fn a_file_that_is_too_large_is_said_and_listed_and_not_kept() {
    let place = Place::new();
    let large = 20 * 1024 * 1024;
    place.write("a", &"x".repeat(large));
    place.write("b", "small");
    fs::File::create(place.path("c"))
        .unwrap()
        .set_len(large as u64 + 1)
        .unwrap();
    let keeping = place.try_keep(&["a", "b", "c"]).unwrap();
    assert_eq!(keeping.kept.len(), 2);
    let why = NotKept::TooLarge(large as u64 + 1);
    assert_eq!(keeping.left_out, [(PathBuf::from("c"), why)]);
    let versions = place.versions();
    let ids: Vec<bool> = versions.iter().map(|it| it.blob.is_some()).collect();
    assert_eq!(ids.iter().filter(|kept| **kept).count(), 2);
    assert_eq!(ids.len(), 3);
    // Once for each state of the file.
    assert_eq!(place.keep(&["c"]), 0);
    assert_eq!(place.versions().len(), 3);
}

#[test]
fn what_can_not_be_kept_is_told_and_the_rest_is_kept() {
    let place = Place::new();
    place.sh("mkdir folder; mkfifo pipe; echo x >folder/file; ln -s folder link");
    let names = [
        "folder",
        "pipe",
        "link/file",
        "../work/a",
        "/etc/passwd",
        ".git/config",
        "missing",
        "a",
    ];
    let keeping = place.try_keep(&names).unwrap();
    assert_eq!(keeping.kept.len(), 1);
    let why: Vec<(&str, bool)> = keeping
        .left_out
        .iter()
        .map(|(path, why)| (path.to_str().unwrap(), *why == NotKept::Outside))
        .collect();
    let expected = [
        ("folder", false),
        ("pipe", false),
        ("../work/a", true),
        ("/etc/passwd", true),
        (".git/config", true),
        ("link/file", false),
    ];
    assert_eq!(why, expected);
    assert_eq!(place.texts(), ["committed"]);
}

#[test]
fn eight_processes_at_once_keep_every_version_once() {
    let place = Place::new();
    for round in 0..5 {
        for name in ["a", "b", "c"] {
            place.write(name, &format!("{name} {round}"));
        }
        let keepers: Vec<Child> = (0..8).map(|_| place.keeper()).collect();
        for mut keeper in keepers {
            assert!(keeper.wait().unwrap().success());
        }
    }
    let mut texts = place.texts();
    texts.sort();
    let expected = ["a", "b", "c"].map(|name| (0..5).map(move |round| format!("{name} {round}")));
    assert_eq!(texts, expected.into_iter().flatten().collect::<Vec<_>>());
}

#[test]
fn a_process_that_is_killed_at_any_time_loses_nothing_that_was_kept() {
    let place = Place::new();
    for round in 0..20_u64 {
        for name in ["a", "b", "c"] {
            place.write(name, &format!("{name} {round}"));
        }
        let mut keeper = place.keeper();
        std::thread::sleep(std::time::Duration::from_millis(2 * round));
        keeper.kill().unwrap();
        let _ = keeper.wait().unwrap();
        // Every line has its bytes, and the next process keeps the rest.
        let _ = place.newest_texts(3);
        let _ = place.try_keep(&["a", "b", "c"]).unwrap();
        let mut texts = place.newest_texts(3);
        texts.sort();
        let expected = ["a", "b", "c"].map(|name| format!("{name} {round}"));
        assert_eq!(texts, expected);
    }
    assert_eq!(place.versions().len(), 60);
}

#[test]
fn half_a_line_is_skipped_and_the_next_one_is_whole() {
    let place = Place::new();
    assert_eq!(place.keep(&["a"]), 1);
    let whole = fs::read(place.journal()).unwrap();
    place.write("a", "two");
    assert_eq!(place.keep(&["a"]), 1);
    let both = fs::read(place.journal()).unwrap();
    for end in [whole.len() + 1, both.len() - 2, both.len() - 1] {
        fs::write(place.journal(), &both[..end]).unwrap();
        let is_whole = end == both.len() - 1;
        assert_eq!(place.versions().len(), 1 + usize::from(is_whole));
        assert_eq!(place.keep(&["a"]), usize::from(!is_whole));
        assert_eq!(place.texts(), ["two", "committed"]);
    }
}

#[test]
fn a_folder_that_can_not_be_written_is_an_error_and_later_the_bytes_are_kept() {
    let place = Place::new();
    let kept = place.path(".git/tenure/kept");
    fs::write(&kept, "in the way").unwrap();
    assert!(place.try_keep(&["a"]).is_err());
    fs::remove_file(&kept).unwrap();
    fs::create_dir(&kept).unwrap();
    fs::create_dir(kept.join("objects")).unwrap();
    // Git makes folders of two letters there.
    for first in 0..=255_u8 {
        fs::write(kept.join(format!("objects/{first:02x}")), "").unwrap();
    }
    let error = place.try_keep(&["a"]).unwrap_err();
    assert!(matches!(error, KeptError::Git(_)), "{error:?}");
    assert!(place.versions().is_empty());
    fs::remove_dir_all(kept.join("objects")).unwrap();
    assert_eq!(place.keep(&["a"]), 1);
    assert_eq!(place.texts(), ["committed"]);
}

#[test]
fn what_is_older_than_14_days_is_gone_and_a_file_that_stays_dirty_is_kept_again() {
    let place = Place::new();
    place.write("b", "stays");
    let keep = |names: &[&str], at| {
        let files = names
            .iter()
            .map(|name| (PathBuf::from(name), holder("owner")));
        let files: Vec<_> = files.collect();
        place.kept.keep(&place.root, &files, at).unwrap().kept.len()
    };
    assert_eq!(keep(&["a", "b"], now()), 2);
    assert_eq!(keep(&["b"], days(6)), 0);
    assert_eq!(keep(&["b"], days(8)), 1);
    assert_eq!(place.objects().len(), 2);
    let old = place.kept.versions(days(15)).unwrap();
    assert_eq!(old.len(), 1);
    assert_eq!(old[0].path, Path::new("b"));
    place.write("c", "new");
    assert_eq!(keep(&["c"], days(15)), 1);
    assert_eq!(place.objects().len(), 2, "the bytes of a are gone");
    let left = place.kept.versions(days(15)).unwrap();
    assert_eq!(left.len(), 2);
    let bytes = place.kept.bytes(&place.root, &left[1]).unwrap();
    assert_eq!(bytes, b"stays");
}

#[test]
fn the_journal_has_a_limit_and_keeps_the_newest_lines() {
    let place = Place::new();
    assert_eq!(place.keep(&["a"]), 1);
    let line = fs::read_to_string(place.journal()).unwrap();
    let many = line.repeat((1 << 20) / line.len() + 1);
    for round in ["one", "two", "three"] {
        let rest = fs::read_to_string(place.journal()).unwrap();
        fs::write(place.journal(), many.clone() + &rest).unwrap();
        place.write("a", round);
        assert_eq!(place.keep(&["a"]), 1);
    }
    assert_eq!(place.newest_texts(2), ["three", "two"]);
    let size = |name: &str| {
        let file = place.path(".git/tenure/kept").join(name);
        file.metadata().unwrap().len()
    };
    assert!(size("journal.jsonl") < 1000, "it was begun anew");
    assert!(size("journal.1.jsonl") < (2 << 20));
}

#[test]
fn what_was_wiped_comes_back_and_what_is_there_is_kept_first() {
    let place = Place::new();
    place.write("a", "mine");
    assert_eq!(place.keep(&["a"]), 1);
    place.sh("git checkout -q -- a");
    let restored = place.newest("a").unwrap();
    assert_eq!(fs::read(place.path("a")).unwrap(), b"mine");
    assert!(restored.written);
    assert_eq!(restored.version.owner, holder("owner"));
    let before = restored.before.unwrap();
    assert_eq!(before.owner, holder("me"));
    assert_eq!(place.texts(), ["committed", "mine"]);
    // Once more undoes it, and a third time undoes that.
    assert!(place.newest("a").unwrap().written);
    assert_eq!(fs::read(place.path("a")).unwrap(), b"committed");
    assert!(place.newest("a").unwrap().written);
    assert_eq!(fs::read(place.path("a")).unwrap(), b"mine");
    let id = before.blob.unwrap();
    let by_id = place.restore(Source::Id(&id[..8])).unwrap();
    assert_eq!(by_id.place, place.path("a"));
    assert_eq!(fs::read(place.path("a")).unwrap(), b"committed");
    let again = place.restore(Source::Of(Path::new("a"), &id[..8])).unwrap();
    assert!(!again.written);
    let names = fs::read_dir(&place.root).unwrap();
    assert_eq!(names.count(), 2, "nothing else is left");
}

#[test]
fn a_deleted_file_comes_back_with_its_folder_its_mode_or_as_a_link() {
    let place = Place::new();
    place.sh(
        "mkdir -p new/deep; echo x >new/deep/tool; chmod 750 new/deep/tool; ln -s ../x new/link",
    );
    assert_eq!(place.keep(&["new/deep/tool", "new/link"]), 2);
    place.sh("git clean -qfd; test ! -e new");
    let restored = place.newest("new/deep/tool").unwrap();
    assert_eq!(restored.before, None);
    let mode = place.path("new/deep/tool").metadata().unwrap().mode();
    assert_eq!(mode & 0o777, 0o750);
    assert!(place.newest("new/link").unwrap().written);
    let target = place.path("new/link").read_link().unwrap();
    assert_eq!(target, Path::new("../x"));
    // A link is replaced, not followed.
    place.sh("echo mine >x; rm new/deep/tool; ln -s ../../x new/deep/tool");
    let restored = place.newest("new/deep/tool").unwrap();
    assert!(restored.before.unwrap().is_link());
    assert_eq!(fs::read(place.path("x")).unwrap(), b"mine\n");
    assert_eq!(fs::read(place.path("new/deep/tool")).unwrap(), b"x\n");
}

#[test]
fn a_version_is_written_nowhere_but_into_the_work_tree() {
    let place = Place::new();
    place.sh("mkdir folder ../outside; echo mine >folder/file; echo hers >../outside/file");
    assert_eq!(place.keep(&["folder/file"]), 1);
    place.sh("rm -r folder; ln -s ../outside folder");
    let error = place.newest("folder/file").unwrap_err();
    assert!(error.to_string().contains("folder is a link"), "{error}");
    assert_eq!(place.sh("cat ../outside/file"), "hers\n");
    place.sh("rm folder; mkdir -p folder/file");
    let error = place.newest("folder/file").unwrap_err();
    assert!(matches!(error, KeptError::InTheWay { .. }), "{error:?}");
    place.sh("rmdir folder/file folder");
    // Another user may have written the journal.
    let line = fs::read_to_string(place.journal()).unwrap();
    for planted in [
        "../outside/file",
        "/tmp/kept-test",
        ".git/hooks/x",
        "s/.GIT/x",
    ] {
        let line = line.replace("folder/file", planted);
        assert!(line.contains(planted));
        fs::write(place.journal(), line).unwrap();
        let id = place.versions()[0].blob.clone().unwrap();
        for source in [Source::Id(&id), Source::Newest(Path::new(planted))] {
            let error = place.restore(source).unwrap_err();
            assert!(
                matches!(error, KeptError::Outside(_)),
                "{planted}: {error:?}"
            );
        }
    }
    assert_eq!(place.sh("cat ../outside/file"), "hers\n");
}

#[test]
fn a_version_can_be_written_to_a_new_file_only() {
    let place = Place::new();
    assert_eq!(place.keep(&["a"]), 1);
    let export = |name: &str| {
        let source = Source::Newest(Path::new("a"));
        let file = place.path(name);
        place.kept.export(&place.root, source, &file, now())
    };
    assert_eq!(
        export("../copy").unwrap().place,
        place.root.with_file_name("copy")
    );
    assert_eq!(place.sh("cat ../copy"), "committed");
    place.sh("echo mine >mine; ln -s nowhere link");
    for taken in ["mine", "link", "../copy"] {
        let error = export(taken).unwrap_err();
        assert!(matches!(error, KeptError::InTheWay { .. }), "{error:?}");
    }
    assert_eq!(place.sh("cat mine"), "mine\n");
    assert_eq!(fs::read_dir(&place.root).unwrap().count(), 4);
}

#[test]
fn a_version_of_another_worktree_is_found_after_those_of_this_one() {
    let place = Place::new();
    place.sh("git worktree add -q ../linked");
    place.write("a", "main");
    assert_eq!(place.keep(&["a"]), 1);
    let linked = place.root.with_file_name("linked");
    let restored = place.kept.restore(
        &linked,
        Source::Newest(Path::new("a")),
        &holder("me"),
        now(),
    );
    assert_eq!(restored.unwrap().place, linked.join("a"));
    assert_eq!(fs::read(linked.join("a")).unwrap(), b"main");
    // What was in the linked one is its own version.
    fs::write(linked.join("a"), "linked").unwrap();
    place.write("a", "other");
    assert_eq!(place.keep(&["a"]), 1);
    let mine = place.kept.restore(
        &linked,
        Source::Newest(Path::new("a")),
        &holder("me"),
        now(),
    );
    assert_eq!(mine.unwrap().version.worktree, linked);
    assert_eq!(fs::read(linked.join("a")).unwrap(), b"committed");
}

#[test]
fn an_unknown_ambiguous_or_damaged_version_is_told() {
    let place = Place::new();
    assert!(matches!(place.newest("a"), Err(KeptError::NotKept(_))));
    // As many as there are first letters, and one more.
    for number in 0..17 {
        place.write("a", &number.to_string());
        assert_eq!(place.keep(&["a"]), 1);
    }
    let versions = place.versions();
    let begins = |first: &str| {
        let ids = versions.iter().filter_map(|it| it.blob.as_deref());
        ids.filter(|id| id.starts_with(first)).count()
    };
    let letters: Vec<String> = (0..16).map(|letter| format!("{letter:x}")).collect();
    let several = letters.iter().find(|first| begins(first) > 1).unwrap();
    let error = place.restore(Source::Id(several)).unwrap_err();
    assert!(matches!(error, KeptError::Ambiguous { .. }), "{error:?}");
    assert!(place.restore(Source::Id("0123456789abcdef")).is_err());
    place.write("a", "there");
    for object in place.objects() {
        fs::set_permissions(&object, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&object, "").unwrap();
    }
    let error = place.newest("a").unwrap_err();
    assert!(matches!(error, KeptError::Damaged(_)), "{error:?}");
    assert_eq!(fs::read(place.path("a")).unwrap(), b"there");
}
