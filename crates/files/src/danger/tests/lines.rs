//! Lines that are let through, that are hostile, and what is said of a refusal.

use super::*;

#[test]
fn what_cannot_be_understood_is_let_through() {
    let scratch = Scratch::new(true);
    let dirty = scratch.dirty(&FILES);
    for line in [
        "cd $somewhere && git reset --hard",
        "git -C \"$somewhere\" reset --hard",
        "GIT_DIR=$x git reset --hard",
        "git --git-dir=$x reset --hard",
        "git checkout -- $files",
        "git $x --hard",
        "$git reset --hard",
        "git reset --hard (",
        "git reset --hard 'open",
        "cd /nowhere && git reset --hard",
        "cd / && git reset --hard",
        "git ls-files -m | xargs git checkout --",
        "unknown-function reset --hard",
        "git unknown-alias",
        "./script.sh",
        "git checkout --pathspec-from-file=list",
        "git rm -f $x",
        "git clean -f $x",
    ] {
        assert!(scratch.said(line, &dirty).is_empty(), "{line}");
    }
}

#[test]
fn only_a_line_that_may_matter_is_parsed() {
    for line in [
        "cargo test",
        "ls -la && cat x",
        "",
        "echo hi > file",
        "python3 -c 'print(1)'",
    ] {
        assert!(!may_matter(line), "{line}");
    }
    for line in [
        "git stash",
        "g'i't stash",
        "/usr/bin/git",
        "rm -r x",
        "mv a b",
        "bash -c \"g\\it stash\"",
    ] {
        assert!(may_matter(line), "{line}");
    }
    assert!(!may_matter(&"git stash;".repeat(10_000)));
}

#[test]
fn random_lines_neither_fail_nor_take_long() {
    let words = [
        "git",
        "stash",
        "reset",
        "--hard",
        "checkout",
        "--",
        ".",
        "clean",
        "-fdx",
        "-C",
        "-c",
        "alias.x=!y",
        "x",
        "--git-dir",
        "worktree",
        "remove",
        "env",
        "-S",
        "sudo",
        "timeout",
        "5",
        "bash",
        "-c",
        "eval",
        "xargs",
        "cd",
        "..",
        "$(",
        ")",
        "(",
        "`",
        "\"",
        "'",
        "|",
        "&&",
        ";",
        "\n",
        "<<E\n",
        "E\n",
        "{",
        "}",
        "if",
        "then",
        "fi",
        "for",
        "in",
        "do",
        "done",
        "$x",
        "${x",
        "=",
        "~",
        "*",
        "\\",
        "rm",
        "-rf",
        "/nowhere",
        "mv",
        "f()",
        "f",
        "case",
        "esac",
        ")",
        ";;",
        "🦀",
        "\u{0}",
        "submodule",
        "-p",
        "restore",
        "-s",
    ];
    let dir = tempfile::tempdir().unwrap();
    let place = Place {
        folder: dir.path(),
        variable: &|_| None,
    };
    let mut number: u64 = 11;
    let limit = TimeLimit::after(Duration::from_secs(60));
    for _ in 0..3000 {
        let mut line = String::new();
        for _ in 0..12 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let random = usize::try_from(number >> 33).unwrap();
            line.push_str(words[random % words.len()]);
            if random % 3 != 0 {
                line.push(' ');
            }
        }
        let one = TimeLimit::after(Duration::from_secs(2));
        let _ = calls::calls(&line, &place);
        assert!(!one.has_passed(), "{line:?}");
    }
    assert!(!limit.has_passed());
}

#[test]
fn a_refusal_names_the_sessions_their_files_and_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("repo");
    let loss = Loss {
        root: root.clone(),
        command: "git stash\u{1b}[2J\n-u".to_owned(),
        how: How::PutsAway,
        what: Losing::Files(Files {
            paths: Vec::new(),
            tracked: Tracked::Changed,
            untracked: Untracked::None,
            tree: None,
        }),
        repository: Repository::at(&root),
    };
    let file = |owner: &str, path: String| DirtyFile {
        root: root.clone(),
        path: PathBuf::from(std::ffi::OsStr::from_bytes(path.as_bytes())),
        owner: HolderId::parse(owner).unwrap(),
        session: format!("{owner} (fixing\u{202e} the login)"),
    };
    let mut dirty: Vec<DirtyFile> = (0..9)
        .map(|number| file("one", format!("src/{number}.rs")))
        .collect();
    dirty.extend((0..4).map(|number| file("two", format!("doc {number}\n.md"))));
    let lost: Vec<&DirtyFile> = dirty.iter().collect();
    let victims = victims(&lost, &root);
    let text = refusal(&loss, &victims, Some("k7qa-m9xd")).join("\n");
    assert_eq!(
        text,
        "git stash\\u{1b}[2J -u was not run: it would put the uncommitted changes of other sessions away.\n  \
         one (fixing\\u{202e} the login): src/0.rs, src/1.rs, src/2.rs, src/3.rs, src/4.rs, src/5.rs, src/6.rs, src/7.rs, src/8.rs\n  \
         two (fixing\\u{202e} the login): \"$(printf 'doc 0\\012.md')\" and 3 more\n\
         Instead, put away only your own files: git stash push -- YOUR FILES; or commit them: git commit -- YOUR FILES.\n\
         To ask for the files: tenure ask src/0.rs --note 'why you need it'\n\
         Only the person at the keyboard can allow it, once, in a terminal of their own: tenure allow k7qa-m9xd"
    );
}
