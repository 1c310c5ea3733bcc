//! Help, completions and manual pages.

mod project;

use std::io::Write;

use project::Project;

const COMMANDS: [&str; 10] = [
    "init",
    "run",
    "acquire",
    "renew",
    "release",
    "fence",
    "locks",
    "config",
    "completions",
    "man",
];

#[test]
fn every_command_has_help_and_all_of_them_are_listed() {
    let project = Project::uninitialised();
    let mut all = project.tenure("--help").exits(0);
    assert_eq!(all.err, "");
    for command in COMMANDS {
        assert!(all.out.contains(&format!("  {command} ")), "{command}");
        let one = project.tenure(&format!("{command} --help")).exits(0);
        assert!(one.out.contains("Usage: tenure"), "{command}");
    }
    // Independent of line breaks.
    all.out = all.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for code in [
        "2 usage",
        "3 no project",
        "4 not found",
        "5 not allowed",
        "6 locked",
        "7 lease lost",
    ] {
        assert!(all.out.contains(code), "{code}");
    }
    let version = project.tenure("--version").exits(0).out;
    assert_eq!(version, format!("tenure {}\n", env!("CARGO_PKG_VERSION")));
    let nothing = project.tenure("").exits(2);
    assert!(nothing.err.contains("Usage"), "{nothing:?}");
}

#[test]
fn completions_exist_for_each_shell_and_load_in_bash() {
    let project = Project::uninitialised();
    for shell in ["bash", "zsh", "fish"] {
        let said = project.tenure(&format!("completions {shell}")).exits(0);
        for command in COMMANDS {
            assert!(said.out.contains(command), "{shell} {command}");
        }
    }
    let script = project.tenure("completions bash").exits(0).out;
    project.write("completions.bash", &script);
    let mut bash = project.program("bash");
    bash.args([
        "--norc",
        "-c",
        "bash -n completions.bash && . ./completions.bash && complete -p tenure",
    ]);
    let said = project.prepare(bash).end().exits(0);
    assert!(said.out.contains("_tenure"), "{said:?}");
}

#[test]
fn tenure_and_each_command_have_a_manual_page() {
    let project = Project::uninitialised();
    let whole = project.tenure("man").exits(0).out;
    assert!(whole.contains(".TH tenure 1"), "{whole}");
    for command in COMMANDS {
        let page = project.tenure(&format!("man {command}")).exits(0).out;
        assert!(page.contains(&format!(".TH tenure-{command} 1")), "{page}");
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
    }
}

#[test]
fn a_manual_page_renders_without_warnings() {
    let project = Project::uninitialised();
    let page = project.tenure("man run").exits(0).out;
    let mut man = project.program("man");
    man.args(["--warnings", "-l", "-"])
        .env("MANPAGER", "cat")
        .env("MANWIDTH", "80");
    if std::process::Command::new("man")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("skipped: there is no man here");
        return;
    }
    let mut reading = project.prepare(man).input().start();
    reading
        .stdin
        .as_mut()
        .unwrap()
        .write_all(page.as_bytes())
        .unwrap();
    reading.let_go();
    let said = reading.ended().exits(0);
    assert!(said.out.contains("tenure-run"), "{said:?}");
    assert!(said.out.contains("--no-wait"), "{said:?}");
}
