//! Work trees, branches, submodules, stashes.

use super::*;

/// A linked worktree of a scratch repository, with a changed, a new and an ignored file.
fn linked() -> (Scratch, PathBuf, Vec<DirtyFile>) {
    let scratch = Scratch::new(true);
    scratch.shell("git worktree add -q ../wt -b linked; cd ../wt; echo two > modified; echo u > untracked; echo u > x.ign");
    let root = scratch.root().parent().unwrap().join("wt");
    let mut dirty = scratch.dirty(&["modified", "untracked", "x.ign", "clean"]);
    for file in &mut dirty {
        file.root.clone_from(&root);
    }
    (scratch, root, dirty)
}

#[test]
fn a_worktree_that_is_removed_or_moved_loses_all_that_is_in_it() {
    for (line, count) in [
        ("git worktree remove --force ../wt", 3),
        ("git worktree remove -f -f wt", 3),
        ("git -C sub worktree remove --force ../../wt", 3),
        // Git refuses.
        ("git worktree remove ../wt", 0),
        ("git worktree move ../wt ../else", 3),
        ("rm -rf ../wt", 3),
        ("rm -r -- ../wt/", 3),
        ("cd .. && rm --recursive wt", 3),
        ("mv ../wt ../else", 3),
        ("rm -rf ../wt/sub", 0),
        ("rm ../wt", 0),
        ("git worktree prune", 0),
        ("git worktree lock ../wt", 0),
    ] {
        let (scratch, root, dirty) = linked();
        let said = scratch.said(line, &dirty);
        assert_eq!(said.len(), count, "{line}: {said:?}");
        let printed = scratch.shell(line);
        assert_eq!(
            root.join("modified").exists(),
            count == 0,
            "{line}: {printed}"
        );
    }
    let (scratch, root, dirty) = linked();
    scratch.shell("cd ../wt && git checkout modified && rm untracked");
    // Git removes it, with the ignored file.
    assert_eq!(scratch.said("git worktree remove ../wt", &dirty), ["x.ign"]);
    scratch.shell("git worktree remove ../wt");
    assert!(!root.exists());
}

#[test]
fn a_folder_around_several_work_trees_loses_all_of_them() {
    let (scratch, _, mut dirty) = linked();
    dirty.extend(scratch.dirty(&["modified", "untracked"]));
    let parent = scratch.dir.path().display().to_string();
    assert_eq!(
        scratch.said(&format!("rm -rf {parent}"), &dirty),
        ["modified", "untracked", "x.ign"]
    );
    let link = scratch.dir.path().join("link");
    std::os::unix::fs::symlink(scratch.root(), &link).unwrap();
    // Only the link is removed.
    assert!(scratch.said("rm -rf ../link", &dirty).is_empty());
}

#[test]
fn a_command_in_one_work_tree_does_not_touch_another() {
    let (scratch, _, dirty) = linked();
    assert!(
        scratch
            .said("git reset --hard; git clean -fdx", &dirty)
            .is_empty()
    );
    assert_eq!(
        scratch.said("git -C ../wt reset --hard", &dirty),
        ["modified"]
    );
    assert_eq!(
        scratch.said("cd ../wt; git clean -f", &dirty),
        ["untracked"]
    );
    let own = scratch.dirty(&FILES);
    assert!(
        scratch
            .said("cd ../wt && git reset --hard", &own)
            .is_empty()
    );
    // By a link, it is the same work tree.
    std::os::unix::fs::symlink(scratch.root(), scratch.dir.path().join("link")).unwrap();
    assert!(
        !scratch
            .said("cd ../link && git reset --hard", &own)
            .is_empty()
    );
    let git_dir = scratch.root().join(".git").display().to_string();
    let there = format!(
        "cd /; git --git-dir={git_dir} --work-tree={} reset --hard",
        scratch.root().display()
    );
    assert!(scratch.said(&there, &own).contains(&"modified".to_owned()));
    let there = format!(
        "cd /; GIT_DIR={git_dir} GIT_WORK_TREE={} git checkout -- modified",
        scratch.root().display()
    );
    assert_eq!(scratch.said(&there, &own), ["modified"]);
}

/// What a line loses besides files.
fn kinds(scratch: &Scratch, line: &str) -> Vec<Losing> {
    let root = scratch.root();
    let place = Place {
        folder: &root,
        variable: &|_| None,
    };
    losses(line, &place)
        .into_iter()
        .map(|loss| loss.what)
        .collect()
}

#[test]
fn a_branch_is_lost_only_where_git_does_not_refuse() {
    for (line, is_lost) in [
        ("git update-ref refs/heads/linked HEAD~1", true),
        ("git update-ref -d refs/heads/linked", true),
        (
            "git checkout --ignore-other-worktrees -B linked HEAD~1",
            true,
        ),
        ("git switch --ignore-other-worktrees -C linked HEAD~1", true),
        ("git branch -D linked", false),
        ("git branch -f linked HEAD~1", false),
        ("git branch -M linked", false),
        ("git checkout -B linked HEAD~1", false),
        ("git switch -C linked HEAD~1", false),
        ("git worktree add -B linked ../third HEAD~1", false),
    ] {
        let (scratch, _, _) = linked();
        scratch.shell("git reset -q --hard; git commit -q --allow-empty -m two; git -C ../wt commit -q --allow-empty -m w");
        let before = scratch.shell("git rev-parse linked");
        let lost = kinds(&scratch, line);
        assert_eq!(
            lost == [Losing::Branch("linked".to_owned())],
            is_lost,
            "{line}: {lost:?}"
        );
        let printed = scratch.shell(line);
        assert_eq!(
            scratch.shell("git rev-parse linked") != before,
            is_lost,
            "{line}: {printed}"
        );
    }
}

#[test]
fn stashes_and_unreferenced_objects_are_kinds_of_their_own() {
    let scratch = Scratch::new(true);
    let stash = |name: &str| vec![Losing::Stashes(vec![name.to_owned()])];
    assert_eq!(kinds(&scratch, "git stash drop"), stash("stash@{0}"));
    assert_eq!(
        kinds(&scratch, "git stash drop -q stash@{2}"),
        stash("stash@{2}")
    );
    assert_eq!(
        kinds(&scratch, "git stash clear"),
        [Losing::Stashes(Vec::new())]
    );
    for line in [
        "git gc --prune=now",
        "git prune",
        "git reflog expire --expire=now --all",
        "git reflog delete HEAD@{1}",
    ] {
        assert_eq!(kinds(&scratch, line), [Losing::Unreferenced], "{line}");
    }
    for line in ["git gc", "git prune -n", "git reflog", "git stash list"] {
        assert!(kinds(&scratch, line).is_empty(), "{line}");
    }
}

#[test]
fn a_forced_update_destroys_what_was_changed_in_submodules() {
    for (line, expected) in [
        ("git submodule update --force", &["modified"][..]),
        ("git submodule update", &[]),
        ("git submodule deinit -f inner", &["fresh", "modified"]),
        ("git submodule deinit inner", &[]),
    ] {
        let scratch = Scratch::new(true);
        scratch.shell(
            "git reset -q --hard; git clean -fdqx; git init -q ../module; cd ../module; echo one > modified; git add .; git commit -qm m; \
             cd ../repo; git -c protocol.file.allow=always submodule --quiet add ../module inner; git commit -qm inner; \
             echo two > inner/modified; echo new > inner/fresh",
        );
        let mut dirty = scratch.dirty(&["modified", "fresh"]);
        for file in &mut dirty {
            file.root = scratch.root().join("inner");
        }
        assert_eq!(scratch.said(line, &dirty), expected, "{line}");
        let printed = scratch.shell(line);
        let is_there = |name: &str, text: &str| {
            fs::read_to_string(scratch.root().join("inner").join(name)).is_ok_and(|it| it == text)
        };
        assert_eq!(
            !is_there("modified", "two\n"),
            expected.contains(&"modified"),
            "{line}: {printed}"
        );
        assert_eq!(
            !is_there("fresh", "new\n"),
            expected.contains(&"fresh"),
            "{line}: {printed}"
        );
    }
}
