//! Help, completions and manual pages.

#[path = "../src/args/habits.rs"]
mod habits;

use crate::project;

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

/// Those of them that the first page shows.
const EVERYDAY: [&str; 5] = ["init", "run", "acquire", "release", "locks"];

#[test]
fn every_command_has_help_and_all_of_them_are_listed() {
    let project = Project::uninitialised();
    let mut all = project.tenure("--help").exits(0);
    assert_eq!(all.err, "");
    let whole = project.tenure("help --all").exits(0).out;
    for command in COMMANDS {
        let listed = format!("\n  {command} ");
        assert!(whole.contains(&listed), "{command}");
        let is_everyday = EVERYDAY.contains(&command);
        assert_eq!(all.out.contains(&listed), is_everyday, "{command}");
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
fn help_is_found_however_it_is_asked_for() {
    let project = Project::uninitialised();
    let page = project.tenure("run --help").exits(0).out;
    assert_eq!(project.tenure("help run").exits(0).out, page);
    let whole = project.tenure("--help").exits(0).out;
    assert_eq!(project.tenure("help").exits(0).out, whole);
    for group in [
        "Everyday:",
        "Tasks:",
        "Looking:",
        "Other tools' locks:",
        "Setting up:",
    ] {
        assert!(whole.contains(&format!("\n{group}\n")), "{whole}");
    }
    assert!(page.contains("Print only what a script needs"), "{page}");
    // The short page names the global options on one line.
    let short = project.tenure("run -h").exits(0).out;
    assert!(!short.contains("Print only what a script needs"), "{short}");
    let line = "Global options: -C --store --as --json -q --no-color --no-daemon";
    assert!(short.contains(line), "{short}");
    let version = project.tenure("version").exits(0).out;
    assert_eq!(version, project.tenure("-V").exits(0).out);
    assert!(
        project
            .tenure("help nothing")
            .exits(2)
            .err
            .contains("'nothing'")
    );
}

#[test]
fn what_other_tools_call_it_leads_to_the_right_command() {
    let project = Project::uninitialised();
    for (typed, meant) in [
        ("taks list --all", "tenure tasks list --all"),
        ("tasks lst", "tenure tasks list"),
        ("run -n held true", "tenure run -n held -- true"),
        ("run held make -j4", "tenure run held -- make -j4"),
        ("run held -w 5 make all", "tenure run held -w 5 -- make all"),
        ("tasks work make", "tenure tasks work -- make"),
        ("reserve release", "tenure unreserve"),
        ("--as 'a b' unlock", "tenure --as 'a b' release"),
    ] {
        assert_eq!(tip(&project, typed), meant, "{typed}");
    }
    let said = project.tenure("locks frobnicate").exits(2);
    assert!(said.err.contains("'locks frobnicate'"), "{said:?}");
    assert!(
        said.err.contains("the commands are list, show,"),
        "{said:?}"
    );
    let page = project.tenure("locks list --help").exits(0).out;
    assert_eq!(project.tenure("locks help list").exits(0).out, page);
    // What follows `--` is the command, so it is no place for an option.
    let said = project.tenure("release build --frobnicate").exits(2);
    assert!(
        said.err
            .starts_with("error: unexpected argument '--frobnicate'"),
        "{said:?}"
    );
    assert!(!said.err.contains("-- --frobnicate"), "{said:?}");
}

/// The command line that tenure answers with. Nothing is done, and there is one error.
#[track_caller]
fn tip(project: &Project, typed: &str) -> String {
    let said = project.shell(&format!("$TENURE {typed}")).end().exits(2);
    assert_eq!(said.err.matches("error:").count(), 1, "{said:?}");
    let tip = said
        .err
        .lines()
        .find_map(|line| line.strip_prefix("  tip: "));
    tip.unwrap_or_else(|| panic!("{typed}: {said:?}"))
        .to_owned()
}

#[test]
fn every_habit_gets_a_tip_that_works_as_it_is_printed() {
    for (habit, keeps_working) in habits::EARLIER
        .iter()
        .map(|habit| (habit, true))
        .chain(habits::HABITS.iter().map(|habit| (habit, false)))
    {
        let project = Project::new();
        if habit.typed == "stop" {
            project.tenure("daemon start").exits(0);
        }
        // What the commands are about.
        project
            .shell(
                "$TENURE tasks add One; $TENURE sections add Backend; $TENURE acquire build --as me; \
                 $TENURE reserve src --as me; :",
            )
            .end()
            .exits(0);
        let options = habit
            .typed
            .split(' ')
            .filter(|word| *word != "_" && *word != "--");
        let typed = format!("{} {}", options.collect::<Vec<_>>().join(" "), habit.then);
        let line = if keeps_working {
            typed
        } else {
            tip(&project, &typed).replacen("tenure", "", 1)
        };
        let verb = habit.meant.split(' ').next().unwrap();
        assert!(keeps_working || line.contains(verb), "{line}");
        let said = project.shell(&format!("$TENURE {line}")).end();
        let is_known = !said.err.contains("tip: ") && said.code != 2;
        assert!(
            is_known && (said.code == 0 || keeps_working),
            "{line}: {said:?}"
        );
        project.shell("$TENURE daemon stop; :").end().exits(0);
    }
}

#[test]
fn a_file_named_like_a_verb_can_be_reserved() {
    let project = Project::new();
    let said = project.tenure("reserve release src --as me").exits(2);
    assert!(
        said.err.contains("  tip: tenure unreserve src --as me\n"),
        "{said:?}"
    );
    assert!(said.err.contains("./release"), "{said:?}");
    project.tenure("reserve ./release src --as me").exits(0);
    project.write("release", "");
    project.tenure("reserve release --as me").exits(0);
}

#[test]
fn a_mistake_gets_one_error_that_says_how_to_fix_it() {
    let project = Project::new();
    project.write("file", "");
    for (typed, said) in [
        (
            "release build --token abc",
            "error: --token 'abc': the token is a whole number\n",
        ),
        (
            "acquire build --pid 0",
            "error: --pid '0': give a whole number\n",
        ),
        (
            "acquire build --ttl 5x",
            "error: --ttl: \"5x\" is not a duration: write a number and a unit",
        ),
        (
            "tasks add Fix bug",
            "error: unexpected argument 'bug': put the title in quotes\n",
        ),
        ("-C file locks", "error: -C file is a file, not a folder\n"),
        (
            "--store sqlite:/ locks",
            "error: / is a folder, not a database: name the database file",
        ),
    ] {
        let err = project.tenure(typed).err;
        assert!(err.starts_with(said), "{typed}: {err}");
    }
    // A name with blanks is quoted.
    project
        .call("acquire --as me")
        .arg("the notes")
        .end()
        .exits(0);
    let held = project
        .call("acquire --as you --no-wait")
        .arg("the notes")
        .end()
        .exits(6);
    assert!(
        held.err.starts_with("error: 'the notes' is locked by me"),
        "{held:?}"
    );
    // One store a line.
    let err = project.tenure("--store foo locks").exits(2).err;
    for store in ["sqlite:", "steroids:", "exclusive:", "mkdir:", "ledger:"] {
        assert!(err.contains(&format!("\n  {store}")), "{err}");
    }
    let json = project
        .tenure("--json release build --token abc")
        .exits(2)
        .json();
    assert!(
        json["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("--token 'abc'"),
        "{json}"
    );
    // What the operating system says, without its number.
    let err = project.tenure("tasks import nothing").err;
    assert!(err.contains("No such file or directory)"), "{err}");
}

#[test]
fn the_history_says_in_words_why_a_key_was_granted() {
    let project = Project::new();
    project.hold("run build --as one").killed();
    project.tenure("run build --as two -- true").exits(0);
    let text = project.tenure("locks history build").exits(0).out;
    assert!(text.contains("taken over from a dead holder"), "{text}");
    let last = project
        .history("build")
        .into_iter()
        .rev()
        .find(|(kind, ..)| kind == "granted");
    assert_eq!(last.unwrap().2["reason"], "claimed_dead");
}

#[test]
fn locks_tasks_and_sections_list_by_themselves() {
    let project = Project::new();
    project.acquire("build --as me");
    project.tenure("tasks add Lint").exits(0);
    project.tenure("sections add Backend").exits(0);
    for (command, shown) in [
        ("locks", "build"),
        ("tasks", "Lint"),
        ("sections", "Backend"),
    ] {
        let said = project.tenure(command).exits(0);
        assert!(said.out.contains(shown), "{said:?}");
        let json = project.tenure(&format!("--json {command}")).exits(0).json();
        assert_eq!(json["subcommand"], "list");
    }
    assert!(
        !project
            .tenure("tasks --status completed")
            .exits(0)
            .out
            .contains("Lint")
    );
    assert!(
        project
            .tenure("tasks --help")
            .exits(0)
            .out
            .contains("Commands:")
    );
}

#[test]
fn completions_know_the_project_and_change_nothing() {
    let project = Project::new();
    project.acquire("build-docs --as me");
    project.tenure("sections add Backend").exits(0);
    project.call("tasks add").arg("Fix bug").end().exits(0);
    let offered = |typed: &[&str]| {
        let mut call = project.call("complete --");
        for word in typed {
            call = call.arg(word);
        }
        let out = call.end().exits(0).out;
        let words = out
            .lines()
            .map(|line| line.split('\t').next().unwrap().to_owned());
        words.collect::<Vec<String>>()
    };
    for command in COMMANDS {
        assert!(offered(&[""]).contains(&command.to_owned()), "{command}");
    }
    for (typed, expected) in [
        (&["locks", "show", "bu"][..], "build-docs"),
        (&["run", ""], "build-docs"),
        (&["--json", "release", "--as", "m"], "me"),
        (&["tasks", "show", "Fi"], "Fix bug"),
        (&["tasks", "list", "--section", "B"], "Backend"),
        (&["sections", "rm", "B"], "Backend"),
        (&["sections", "rm", "x", "--move-to", "B"], "Backend"),
        (&["tasks", "list", "--status=in"], "--status=in_progress"),
        (&["run", "build", "--no-w"], "--no-wait"),
        (&["help", "ren"], "renew"),
        (&["tasks", "import", ""], ":files"),
        (&["-C", ""], ":folders"),
    ] {
        assert_eq!(offered(typed), [expected], "{typed:?}");
    }
    // Where there is nothing, nothing is made.
    assert!(offered(&["--store", "sqlite:nothing.db", "locks", "show", ""]).is_empty());
    assert!(!project.path("nothing.db").exists());
    assert!(offered(&["-C", "nowhere", "locks", "show", ""]).is_empty());
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
    let page = project.tenure("man locks list").exits(0).out;
    assert!(page.contains(".TH tenure-locks-list 1"), "{page}");
    assert!(page.contains("\"tenure 0.1.0\""), "{page}");
    project
        .tenure("man locks nothing")
        .fails(2, &["'nothing'", "list, show"]);
}

#[test]
fn make_installs_manual_pages_and_completions() {
    let project = Project::uninitialised();
    let mut make = project.program("make");
    make.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .args(["--no-print-directory", "share"])
        .arg(format!("PREFIX={}", project.root().display()))
        .arg(format!("TENURE={}", project::TENURE))
        .env_remove("MAKEFLAGS");
    project.prepare(make).end().exits(0);
    for file in [
        "man/man1/tenure.1",
        "man/man1/tenure-run.1",
        "man/man1/tenure-tasks-next.1",
        "bash-completion/completions/tenure",
        "zsh/site-functions/_tenure",
        "fish/vendor_completions.d/tenure.fish",
    ] {
        assert!(project.read(&format!("share/{file}")).len() > 200, "{file}");
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
        tenure_testkit::left_out("there is no man here");
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
