use std::time::Duration;

use tenure_host::time_limit::TimeLimit;

use super::*;

#[test]
fn what_bash_accepts_has_a_tree() {
    for line in [
        "",
        "# only a comment",
        "a; b & c && d || e",
        "a |& b | c",
        "! a && time -p b",
        "if a; then b; elif c; then d; else e; fi >out 2>&1",
        "while read -r x; do a; done < file",
        "until a\ndo\n b\ndone",
        "for x in 1 2 3; do a $x; done; for y; do b; done",
        "for ((i=0; i<3; i++)); do a; done",
        "select x in a b; do c; done",
        "case $x in a|b) c;; (d) e ;& *) f;;& esac",
        "case $x in a) b; esac",
        "case x in esac",
        "f() { a; }; function g { b; }; function h() ( c )",
        "( a; b ) | { c; d; }",
        "((x = (1 + 2) * 3)) && a",
        "[[ -n $x && ( $y == a* || $z < b ) ]] && c",
        "a=1 b+=2 c=(1 2 3) d $(e `f \\`g\\`` \"$(h)\")",
        "a ${x} ${x:-$(b)} ${x//\\//_} \"${x%%.*}\" $((1 + 2)) $[1] $'a\\'b' $\"c\"",
        "a <<EOF && b\nbody $(c) `d`\nEOF\ne",
        "a <<-'EOF' <<B\n\tbody $(\n\tEOF\nother\nB\nc",
        "git commit -m \"$(cat <<'EOF'\nIt's (a) \"title\"\n\nbody ) `x\nEOF\n)\" && b",
        "a <<< \"text $x\" > >(b) < <(c)",
        "a 2>&1 >/dev/null &>>log 3<>file >&- <&0 >|x",
        "coproc a; echo $! $? $# $@ \"$*\" $1 ${10} $",
        "a\\\n b 'c\nd' \"e\nf\"",
        "echo a#b \\# '#' ; # end",
        "shopt -s extglob; ls !(a|b) *.@(c|d)",
        ">file",
        "{ a; } 2>/dev/null &",
        "echo }; echo fi; echo if",
    ] {
        assert!(parse(line).is_some(), "{line}");
    }
}

#[test]
fn what_bash_refuses_has_none() {
    for line in [
        "a &&",
        "a | ; b",
        "( a",
        "a )",
        "{ a;",
        "if a; then b",
        "for x in; b",
        "case x in a) b",
        "'a",
        "\"a",
        "`a",
        "$(a",
        "${a",
        "; a",
        "&& a",
        "f() ",
        "a <",
        "then",
        "}",
        "a ;; b",
        "[[ a",
    ] {
        assert_eq!(parse(line), None, "{line}");
    }
}

#[test]
fn bash_agrees_about_what_is_a_line() {
    // A list of pieces that are put together in every order.
    let pieces = [
        "a",
        "(",
        ")",
        "{ ",
        " ; ",
        "}",
        "&&",
        "|",
        "if ",
        "then ",
        "fi",
        "$(",
        "\"",
        "'",
        "\n",
        "<<E\nx\nE\n",
        "do ",
        "done",
        "f()",
        "for x in ",
        "case ",
        " in ",
        ";;",
        "esac",
        "\\",
        "`",
        "((",
        "))",
        "!",
        "${x",
        "&",
    ];
    let mut lines = Vec::new();
    let mut number: u64 = 7;
    for _ in 0..400 {
        let mut line = String::new();
        for _ in 0..6 {
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(number >> 33).unwrap() % pieces.len();
            line.push_str(pieces[at]);
        }
        lines.push(line);
    }
    let mut wrong = Vec::new();
    for line in &lines {
        let mut bash = std::process::Command::new("bash");
        let bash = bash
            .args(["-O", "extglob", "-n", "-c", line])
            .env_clear()
            .output()
            .unwrap();
        // Bash warns of a here-document without an end, and goes on.
        let is_accepted = bash.status.success();
        if is_accepted && parse(line).is_none() {
            wrong.push(line);
        }
    }
    assert!(wrong.len() <= lines.len() / 50, "bash accepts {wrong:#?}");
}

#[test]
fn neither_length_nor_depth_takes_long() {
    let limit = TimeLimit::after(Duration::from_secs(10));
    for piece in [
        "(",
        "((",
        "$(",
        "\"$(",
        "`",
        "{ ",
        "if ",
        "case x in ",
        "case x in a) ",
        "${x:-",
        "$((",
        "f() ",
        "! ",
        "<<a ",
        "<<a\n",
        "<(",
        "while ",
        "a && ",
        "a | ",
        "\\",
        "'",
        "[[ ",
        "x=( ",
        "$(( ( ",
        "!(",
        "<(((",
        "\"${x:-$(",
        "'\"'",
        "&",
        "~",
        "~99999999999999999999/",
        "99999999999999999999>a ",
        "{99999999999999999999..1}",
        "a{b,",
        "𝒳",
        "\u{0}",
    ] {
        for count in [1, 10, 30, 100, 1000, 20_000] {
            let line = piece.repeat(count);
            let _ = parse(&line);
            let _ = parse(&format!("{line}git stash"));
        }
    }
    assert!(!limit.has_passed());
}
