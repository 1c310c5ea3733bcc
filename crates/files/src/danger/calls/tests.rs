use std::time::Duration;

use tenure_host::time_limit::TimeLimit;

use super::*;

/// A folder with the folders `a/b` and `home`.
fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
    std::fs::create_dir_all(dir.path().join("home")).unwrap();
    dir
}

/// The calls as `FOLDER$ program args`, where `?` is what is not known, and `{...}` around a pattern.
fn seen(line: &str) -> Vec<String> {
    let dir = place();
    let home = dir.path().join("home").to_str().unwrap().to_owned();
    let place = Place {
        folder: dir.path(),
        variable: &|name| (name == "HOME").then(|| home.clone()),
    };
    let shown = |call: Call| {
        let folder = call.folder.strip_prefix(dir.path()).unwrap();
        let variables = call.variables.iter();
        let variables =
            variables.map(|(name, value)| format!("{name}={} ", value.as_deref().unwrap_or("?")));
        let args = call.args.iter().map(|arg| match arg {
            Arg::Known(text) => format!(" {text}"),
            Arg::Pattern(text) => format!(" {{{text}}}"),
            Arg::Unknown => " ?".to_owned(),
        });
        let (variables, args): (String, String) = (variables.collect(), args.collect());
        format!("{}$ {variables}{}{args}", folder.display(), call.program)
    };
    calls(line, &place).into_iter().map(shown).collect()
}

#[track_caller]
fn check(cases: &[(&str, &[&str])]) {
    for (line, expected) in cases {
        assert_eq!(seen(line), *expected, "{line}");
    }
}

#[test]
fn a_command_is_found_wherever_the_line_has_it() {
    for line in [
        "git stash",
        "echo hi; git stash",
        "make && git stash || exit",
        "git stash | cat",
        "cat x | git stash &",
        "(git stash)",
        "{ git stash; }",
        "if git stash; then a; fi",
        "if a; then b; else git stash; fi",
        "while git stash; do a; done",
        "until a; do git stash; done",
        "for x in 1; do git stash; done",
        "case x in a) git stash ;; esac",
        "case $(git stash) in a) b ;; esac",
        "f() { git stash; }; f",
        "function f { git stash; }\nf",
        "echo $(git stash)",
        "echo \"a $(git stash) b\"",
        "echo `git stash`",
        "x=$(git stash)",
        "x=$(git stash) make",
        "cat <(git stash)",
        "cat <<EOF\n$(git stash)\nEOF",
        "echo ${x:-$(git stash)}",
        "[[ -n $(git stash) ]]",
        "! git stash",
        "time git stash",
        "a=(1 $(git stash))",
        "'git' \"stash\"",
        "g\"i\"t st'a'sh",
        "\\git stash",
        "/usr/bin/git stash",
        "git \\\n stash",
        "git stash >/dev/null 2>&1",
        "2>&1 git stash",
        "x=1 git stash; :",
    ] {
        let found = seen(line);
        let is_it = |call: &String| call.ends_with("git stash");
        assert_eq!(
            found.iter().filter(|call| is_it(call)).count(),
            1,
            "{line}: {found:?}"
        );
    }
}

#[test]
fn what_is_only_text_is_no_command() {
    for line in [
        "echo git stash",
        "echo 'a; git stash'",
        "git commit -m 'git stash; git reset --hard'",
        "# git stash",
        "a # ; git stash",
        "cat <<EOF\ngit stash\nEOF",
        "f() { git stash; }",
        "printf '%s' \"git stash\" > notes",
        "command -v git stash",
        "grep -r \"git stash\" .",
        "git commit -m \"$(cat <<'EOF'\ngit stash\n$(git stash)\nEOF\n)\"",
        "alias s='git stash'",
        "ssh host git stash",
    ] {
        let found = seen(line);
        assert!(
            !found.iter().any(|call| call.ends_with("$ git stash")),
            "{line}: {found:?}"
        );
    }
}

#[test]
fn the_folder_follows_cd() {
    check(&[
        ("cd a && git x", &["a$ git x"]),
        ("cd a; cd b; git x", &["a/b$ git x"]),
        ("cd a/b/.. && git x", &["a$ git x"]),
        ("(cd a; git x); git y", &["a$ git x", "$ git y"]),
        ("cd a | git x", &["$ git x"]),
        ("cd a & git x", &["$ git x"]),
        ("{ cd a; }; git x", &["a$ git x"]),
        ("cd; git x", &["home$ git x"]),
        ("cd ~ && git x", &["home$ git x"]),
        ("cd \"$HOME\" && git x", &["home$ git x"]),
        ("cd ~/../a && git x", &["a$ git x"]),
        ("cd a && cd - && git x", &["$ git x"]),
        (
            "pushd a >/dev/null; git x; popd; git y",
            &["a$ git x", "$ git y"],
        ),
        ("cd -- a && git x", &["a$ git x"]),
        ("cd -P a && git x", &["a$ git x"]),
        ("d=a; cd $d/b && git x", &["a/b$ git x"]),
        ("d=a\ncd \"${d}\" && git x", &["a$ git x"]),
        (
            "for d in a a/b; do (cd $d && git x); done",
            &["a$ git x", "a/b$ git x"],
        ),
        (
            "cd a && (cd b; git x) && git y",
            &["a/b$ git x", "a$ git y"],
        ),
        ("f() { cd a; }; f; git x", &["a$ git x"]),
        ("f() { cd \"$1\"; }; f a; git x", &["a$ git x"]),
        ("cd a || exit 1; git x", &["a$ git x"]),
        ("cd a || cd home; git x", &["a$ git x"]),
        // It can't be told.
        ("cd nowhere && git x", &[]),
        ("mkdir new; cd new; git x", &[]),
        ("cd $unknown && git x", &[]),
        ("cd \"$(mktemp -d)\" && git x", &[]),
        ("if a; then cd a; fi; git x", &[]),
        ("while a; do cd a; done; git x", &[]),
    ]);
}

#[test]
fn the_output_of_pwd_is_known() {
    let found = seen("cd a && git x \"$(pwd)/y\" $PWD/z");
    let words: Vec<&str> = found[0].split(' ').collect();
    assert!(
        words[3].ends_with("/a/y") && words[4].ends_with("/a/z"),
        "{found:?}"
    );
}

#[test]
fn wrappers_are_looked_through() {
    for line in [
        "env git stash",
        "env -u X -i git stash",
        "env -S 'git stash'",
        "sudo git stash",
        "sudo -u me -E git stash",
        "doas -u me git stash",
        "nice -n 5 git stash",
        "nice -5 git stash",
        "nohup git stash &",
        "setsid -f git stash",
        "stdbuf -oL -e 0 git stash",
        "/usr/bin/time -f %e git stash",
        "timeout 10 git stash",
        "timeout -k 5 --signal=KILL 10s git stash",
        "command git stash",
        "command -p git stash",
        "builtin command git stash",
        "exec git stash",
        "exec -a x git stash",
        "eval git stash",
        "eval \"git stash\"",
        "bash -c 'git stash'",
        "sh -lc \"git stash\"",
        "bash -euo pipefail -c 'git stash'",
        "bash -o errexit -c 'git stash' name arg",
        "/bin/bash --norc -c 'a; git stash'",
        "bash -c \"bash -c 'git stash'\"",
        "bash <<EOF\ngit stash\nEOF",
        "sh -s <<< 'git stash'",
        "echo 'git stash' | sh",
        "echo git stash | bash -",
        "cat <<'EOF' | bash\ngit stash\nEOF",
        "bash -c '$0 $1' git stash",
        "bash -c '\"$@\"' x git stash",
        "busybox sh -c 'git stash'",
        "flock /tmp/x git stash",
        "flock /tmp/x -c 'git stash'",
        "tenure run build -- git stash",
        "tenure run build -c 'git stash'",
        "trap 'git stash' EXIT",
        "sudo env nice timeout 5 bash -c 'git stash'",
        "g=git; $g stash",
        "s='git stash'; $s",
    ] {
        let found = seen(line);
        assert_eq!(found.len(), 1, "{line}: {found:?}");
        assert!(found[0].ends_with("git stash"), "{line}: {found:?}");
    }
}

#[test]
fn variables_before_a_command_and_exported_ones_reach_it() {
    check(&[
        ("A=1 git x", &["$ A=1 git x"]),
        ("A=1; git x", &["$ git x"]),
        ("export A=1; git x", &["$ A=1 git x"]),
        ("A=1; export A; git x", &["$ A=1 git x"]),
        ("declare -x A=1; git x", &["$ A=1 git x"]),
        ("env A=1 B=2 git x", &["$ A=1 B=2 git x"]),
        ("export A=1; bash -c 'git $A'", &["$ A=1 git 1"]),
        ("A=1 bash -c 'git $A'", &["$ A=1 git 1"]),
        ("A=1; bash -c 'git $A'", &["$ git ?"]),
        ("A=$x git y", &["$ A=? git y"]),
        ("env -C a git x", &["a$ git x"]),
        ("sudo --chdir=a git x", &["a$ git x"]),
    ]);
}

#[test]
fn words_are_split_quoted_and_left_open_as_the_shell_does() {
    check(&[
        ("git 'a b' c\\ d \"e f\"", &["$ git a b c d e f"]),
        ("git *.rs 'x*' [ab]", &["$ git {*.rs} x* {[ab]}"]),
        ("git 'a*'*", &["$ git {a\\**}"]),
        ("git $x y", &["$ git ? y"]),
        ("git a$x", &["$ git ?"]),
        ("git {a,b}", &["$ git ?"]),
        ("git \"\" x", &["$ git  x"]),
        ("x='1 2'; git $x \"$x\"", &["$ git 1 2 1 2"]),
        ("git ~other/x", &["$ git ?"]),
        ("git $((1+2)) $'a\\tb'", &["$ git ? a\tb"]),
        ("a | xargs git x", &["$ git x ?"]),
        ("a | xargs -n 1 -I{} git x {}", &["$ git x {} ?"]),
        (
            "for f in a b; do git x $f; done",
            &["$ git x a", "$ git x b"],
        ),
        ("read f; git x $f", &["$ git x ?"]),
        ("x=a; x+=b; git $x", &["$ git ?"]),
        ("x=a; if y; then x=b; fi; git $x", &["$ git ?"]),
    ]);
}

#[test]
fn no_line_takes_long_or_fails() {
    let limit = TimeLimit::after(Duration::from_secs(5));
    for line in [
        "f() { f; f; }; f",
        "f() { f | f; }; f",
        "f() { g; g; }; g() { f; f; }; f",
        "eval \"$x\" ; x='eval $x'; eval $x",
        "x='eval \"$x;$x\"'; eval \"$x\"",
        "for a in 1 2 3 4 5 6 7 8 9; do for b in 1 2 3 4 5 6 7 8 9; do for c in 1 2 3 4 5 6 7 8 9; do for d in 1 2 3 4 5 6 7 8 9; do git x; done; done; done; done",
        "x=aaaaaaaaaa; x=$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x; x=$x$x$x$x$x$x$x$x; git $x",
        "git",
        "git -C",
        "bash -c",
        "env",
        "timeout git stash",
        "xargs",
    ] {
        let _ = seen(line);
    }
    assert!(!limit.has_passed());
}
