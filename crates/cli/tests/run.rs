//! `tenure run`: what goes in, what comes out, and what it leaves behind.

use crate::project;

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use project::{Project, process, until};
use rustix::process::Signal;

#[test]
fn input_and_output_pass_through_to_the_byte() {
    let project = Project::new();
    let bytes: Vec<u8> = (0..=255u8).cycle().take(300_000).collect();
    fs::write(project.path("in"), &bytes).unwrap();
    let said = project
        .shell("$TENURE run build -- sh -c 'tee copy; echo complaint >&2' < in > out 2> err")
        .end();
    said.exits(0);
    assert_eq!(fs::read(project.path("out")).unwrap(), bytes);
    assert_eq!(fs::read(project.path("copy")).unwrap(), bytes);
    assert_eq!(project.read("err"), "complaint\n", "tenure adds nothing");
}

#[test]
fn a_conversation_through_pipes_is_not_held_up() {
    let project = Project::new();
    let mut talk = project
        .call("run build")
        .input()
        .sh("while read line; do echo \"<$line>\"; done")
        .start();
    for line in ["one", "two"] {
        writeln!(talk.stdin.as_mut().unwrap(), "{line}").unwrap();
        until("it answers", || talk.out().contains(&format!("<{line}>\n")));
    }
    talk.let_go();
    talk.ended().exits(0);
}

#[test]
fn every_exit_code_is_the_commands_own() {
    let project = Project::new();
    let script = "code=0; while [ $code -lt 256 ]; do
        $TENURE run build -- sh -c \"exit $code\"; echo $?; code=$((code + 1)); done";
    let said = project.shell(script).end().exits(0);
    let codes: Vec<u32> = said.out.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(codes, (0..256).collect::<Vec<_>>());
    assert_eq!(said.err, "");
}

#[test]
fn a_command_that_a_signal_ended_gives_128_and_the_signal() {
    let project = Project::new();
    for (name, number) in [
        ("HUP", 1),
        ("INT", 2),
        ("KILL", 9),
        ("USR1", 10),
        ("PIPE", 13),
        ("TERM", 15),
    ] {
        let script = format!("kill -{name} $$; sleep 60");
        let said = project
            .call("run build")
            .sh(&script)
            .end()
            .exits(128 + number);
        assert_eq!(said.err, "", "{name}");
    }
    assert_eq!(project.tenure("locks list").exits(0).out, "No locks.\n");
}

#[test]
fn the_command_knows_what_it_holds() {
    let project = Project::new();
    let show = "echo $TENURE_KEY $TENURE_TOKEN $TENURE_HOLDER";
    let named = project
        .call("run build --as agent-7")
        .sh(show)
        .end()
        .exits(0);
    assert_eq!(named.out, "build 1 agent-7\n");
    let from_env = project
        .call("run build")
        .env("TENURE_HOLDER", "agent-8")
        .sh(show)
        .end();
    assert_eq!(from_env.exits(0).out, "build 2 agent-8\n");

    let mut made_up = project.hold("run build");
    let json = project.tenure("locks show build --json").exits(0).json();
    let holder = json["data"]["leases"][0]["holder"].as_str().unwrap();
    assert!(holder.starts_with("tester@"), "{holder}");
    assert!(holder.ends_with(&format!(":{}", made_up.pid())), "{holder}");
    made_up.let_go();
    made_up.ended().exits(0);
}

#[test]
fn arguments_reach_the_command_as_they_are() {
    let project = Project::new();
    let script = r#"for word in "$@"; do printf '<%s>' "$word"; done"#;
    let said = project
        .call("run build -- sh -c")
        .arg(script)
        .args([
            "name",
            "two words",
            "",
            "--json",
            "--",
            "-C",
            "$HOME",
            "a\nb",
            "*",
        ])
        .end()
        .exits(0);
    assert_eq!(said.out, "<two words><><--json><--><-C><$HOME><a\nb><*>");
    let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let said = project
        .call("run build -- sh -c")
        .arg("printf %s \"$1\" | od -An -tx1")
        .arg("name")
        .arg(odd);
    assert_eq!(said.end().exits(0).out.trim(), "ff fe");
}

#[test]
fn the_command_runs_where_tenure_was_started() {
    let project = Project::new();
    fs::create_dir(project.path("inside")).unwrap();
    let said = project
        .call("run build")
        .within(project.path("inside"))
        .sh("pwd -P")
        .end()
        .exits(0);
    let inside = project.path("inside").canonicalize().unwrap();
    assert_eq!(said.out.trim(), inside.to_str().unwrap());
}

#[test]
fn quiet_and_json_leave_the_commands_output_alone() {
    let project = Project::new();
    for flag in ["--quiet", "--json", "--no-color"] {
        let said = project
            .call("run build")
            .arg(flag)
            .sh("echo out; echo err >&2; exit 5")
            .end()
            .exits(5);
        assert_eq!(said.out, "out\n", "{flag}");
        // With --json, what tenure says is a JSON line beside what the command says.
        let is_event = |line: &&str| flag != "--json" || !line.starts_with("{\"event\":");
        let err: Vec<&str> = said.err.lines().filter(is_event).collect();
        assert_eq!(err, ["err"], "{flag}: {said:?}");
    }
}

#[test]
fn tokens_grow_over_every_way_to_get_the_key() {
    let project = Project::new();
    let run = || -> u64 {
        let said = project
            .call("run build")
            .sh("echo $TENURE_TOKEN")
            .end()
            .exits(0);
        said.out.trim().parse().unwrap()
    };
    let mut tokens = vec![run(), run()];
    tokens.push(project.acquire("build --as me"));
    project.tenure("force build").exits(0);
    tokens.push(run());
    tokens.push(project.acquire("build --as me --ttl 100ms"));
    until("the lease has run out", || {
        project.verdict("build") == "expired"
    });
    tokens.push(run());
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "{tokens:?}"
    );
}

#[test]
fn signals_reach_the_command_and_all_of_its_group() {
    let signals = [
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
    ];
    let project = Project::new();
    for (name, signal) in signals {
        project.write("heard", "");
        // The inner shell hears it at once; the outer one when the inner one has ended.
        let script = format!(
            "trap 'echo outer >> heard; exit 40' {name}
             sh -c 'trap \"echo inner >> heard; exit 0\" {name}; echo ready; while :; do sleep 0.02; done'"
        );
        let run = project.call("run build").sh(&script).start();
        until("the inner shell is ready", || run.out().contains("ready"));
        run.signal(signal);
        run.ended().exits(40);
        assert_eq!(project.read("heard"), "inner\nouter\n", "{name}");
    }
}

#[test]
fn a_signal_that_the_command_does_not_handle_ends_all_of_it() {
    let project = Project::new();
    let run = project
        .call("run build")
        .sh("echo $$; sleep 300 & sleep 300 & wait")
        .start();
    until("the command runs", || {
        !run.out().is_empty() && process::members(run.command()).len() == 3
    });
    let group = run.command();
    run.signal(Signal::TERM);
    run.ended().exits(143);
    until("the group is gone", || process::members(group).is_empty());
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
}

#[test]
fn a_signal_that_ends_tenure_ends_a_stopped_command_too() {
    let project = Project::new();
    project.tenure("tasks add one --quiet").exits(0);
    let cases = [
        ("run build --ttl 1h", Signal::TERM),
        ("run build --ttl 1h", Signal::HUP),
        ("run build --ttl 1h", Signal::INT),
        ("run build --ttl 1h", Signal::QUIT),
        ("exclusive run --holder me --dir .", Signal::TERM),
        ("--store mkdir:lock run board", Signal::TERM),
        ("tasks work", Signal::TERM),
    ];
    for (words, signal) in cases {
        let run = project.call(words).sh("echo $$; exec sleep 300").start();
        until("the command runs", || run.out().ends_with('\n'));
        process::signal(run.command(), Signal::STOP);
        until("it is stopped", || process::is_stopped(run.command()));
        run.signal(signal);
        run.ended().exits(128 + signal.as_raw());
    }
    assert_eq!(project.tenure("locks list").exits(0).out, "No locks.\n");
}

#[test]
fn a_second_ctrl_c_ends_a_command_that_ignores_the_first_and_a_third_kills_it() {
    let project = Project::new();
    for (term, code) in [("trap - TERM", 143), ("trap '' TERM", 137)] {
        let script =
            format!("trap 'echo heard' INT; {term}; echo $$; while :; do sleep 0.02; done");
        let run = project
            .call("run build")
            .env("TENURE_RUN_KILL_GRACE", "1h")
            .sh(&script)
            .start();
        until("the command runs", || run.out().ends_with('\n'));
        let group = run.command();
        run.signal(Signal::INT);
        until("the first is forwarded", || run.out().contains("heard"));
        run.signal(Signal::INT);
        until("the second is not", || {
            run.err().contains("SIGKILL follows")
        });
        if code == 137 {
            run.signal(Signal::INT);
        }
        run.ended().fails(code, &["ending the command (SIGTERM)"]);
        until("the group is gone", || process::members(group).is_empty());
    }
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    // nohup(1) makes its command ignore SIGHUP before it runs it.
    let project = Project::new();
    let script = "trap '' HUP; exec $TENURE run build -- sh -c 'kill -HUP $$; echo survived'";
    let said = project.shell(script).end();
    assert_eq!(said.out, "survived\n", "{said:?}");
}

#[test]
fn a_command_that_does_not_exist_is_127_at_once_and_locks_nothing() {
    let project = Project::new();
    let _held = project.hold("run build");
    for words in [
        "run build -- no-such-command",
        "run build --wait 1h -- ./no/such/file",
    ] {
        project.tenure(words).fails(127, &["no such", "PATH"]);
    }
    let said = project
        .tenure("run other --json -- no-such-command")
        .exits(127);
    assert_eq!(said.error(), "COMMAND_NOT_FOUND");
    project.tenure("locks history other").exits(4);
    assert!(project.waiting("build").is_empty());
}

#[test]
fn a_command_that_can_not_be_executed_is_126_at_once_and_locks_nothing() {
    let project = Project::new();
    let _held = project.hold("run build");
    project.write("plain", "echo hello\n");
    fs::create_dir(project.path("folder")).unwrap();
    for words in [
        "run build -- ./plain",
        "run build -- ./folder",
        "run build -- /",
    ] {
        project
            .tenure(words)
            .fails(126, &["cannot be executed", "chmod +x"]);
    }
    let said = project.tenure("run other --json -- ./plain").exits(126);
    assert_eq!(said.error(), "COMMAND_NOT_EXECUTABLE");
    project.tenure("locks history other").exits(4);
}

#[test]
fn no_command_at_all_is_a_usage_error() {
    let project = Project::new();
    project
        .tenure("run build")
        .fails(2, &["no command after --"]);
    project
        .tenure("run build --")
        .fails(2, &["no command after --"]);
    project.tenure("run build make all").fails(2, &["--"]);
}

#[test]
fn a_command_with_an_empty_name_does_not_exist() {
    let project = Project::new();
    project
        .call("run build --")
        .arg("")
        .end()
        .fails(127, &["no such"]);
}

#[test]
fn a_script_whose_interpreter_is_missing_is_not_called_missing_itself() {
    let project = Project::new();
    project::write_program(&project.path("script"), b"#!/no/such/interpreter\n");
    let said = project
        .tenure("run build -- ./script")
        .fails(126, &["interpreter"]);
    assert!(!said.err.contains("check its name"), "{said:?}");
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
}

#[test]
fn what_the_command_leaves_in_the_background_lives_on_and_holds_nothing() {
    let project = Project::new();
    let script = "sleep 300 < /dev/null > /dev/null 2>&1 & echo $!";
    let said = project.call("run build --ttl 1h").sh(script).end().exits(0);
    let left: u32 = said.out.trim().parse().unwrap();
    project.tenure("run build --no-wait -- true").exits(0);
    assert!(process::alive(left), "it was killed");
    assert_eq!(
        project.story("build"),
        "granted 1, released 1, granted 2, released 2"
    );
    process::signal(left, Signal::KILL);
}

#[test]
fn a_command_that_ends_before_tenure_has_looked_is_still_seen_to_end() {
    let project = Project::new();
    let script = "for round in 1 2 3 4 5 6 7 8 9 10; do
        $TENURE run build -- true || exit 1; $TENURE run build -- sh -c 'kill -9 $$'; [ $? = 137 ] || exit 2; done";
    project.shell(script).end().exits(0);
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
}

#[test]
fn a_code_of_its_own_tells_a_held_key_from_a_command_that_exits_with_6() {
    let project = Project::new();
    project.call("run build -E 75").sh("exit 6").end().exits(6);
    let _held = project.hold("run build --as first");
    for words in [
        "run build -n -E 75",
        "run build --wait 50ms --conflict-exit-code 75",
    ] {
        project
            .call(words)
            .sh("touch ran")
            .end()
            .fails(75, &["locked by first"]);
    }
    project.tenure("run build -E 256 -- true").exits(2);
    assert!(!project.path("ran").exists());
}

#[test]
fn the_key_is_free_when_the_command_exits_or_with_an_option_its_last_process() {
    let project = Project::new();
    let script = "echo $$; sleep 300 & echo $! > child; exit 3";
    let start = |words: &str| {
        let _ = fs::remove_file(project.path("child"));
        let run = project.call(words).sh(script).start();
        until("the child runs", || project.read("child").ends_with('\n'));
        let child: u32 = project.read("child").trim().parse().unwrap();
        until("the command has exited", || !process::alive(run.command()));
        (run, child)
    };
    let (run, child) = start("run build");
    run.ended().exits(3);
    assert!(process::alive(child));
    project.tenure("run build --no-wait -- true").exits(0);
    process::signal(child, Signal::KILL);

    let (mut run, child) = start("run build --all-processes");
    project.tenure("run build --no-wait -- true").exits(6);
    assert!(run.runs());
    process::signal(child, Signal::KILL);
    run.ended().exits(3);
    project.tenure("run build --no-wait -- true").exits(0);

    // A signal reaches the processes that are left, and a lost lease ends them.
    let (run, child) = start("run build --all-processes");
    run.signal(Signal::TERM);
    run.ended().exits(3);
    until("the child has exited", || !process::alive(child));
    let (run, child) = start("run build --all-processes");
    project.tenure("force build").exits(0);
    run.ended().exits(7);
    until("the child has exited", || !process::alive(child));
}

#[test]
fn the_last_process_of_a_command_is_supervised_as_the_first_one_is() {
    let project = Project::new();
    let start = |script: &str| {
        let _ = fs::remove_file(project.path("child"));
        let run = project.call("run build --all-processes").sh(script).start();
        until("the child runs", || project.read("child").ends_with('\n'));
        until("the command has exited", || !process::alive(run.command()));
        (run, project.read("child").trim().parse().unwrap())
    };
    let plain = "echo $$; sleep 300 & echo $! > child";
    // A stopped process reacts to a signal once it is continued.
    let (run, child) = start(plain);
    process::signal(child, Signal::STOP);
    run.signal(Signal::TERM);
    run.ended().exits(0);
    until("the child has exited", || !process::alive(child));
    // A process in the background ignores Ctrl+C; the second one ends it.
    let (run, child) = start(plain);
    until("the child has exited", || {
        run.signal(Signal::INT);
        !process::alive(child)
    });
    run.ended().fails(0, &["ending the command (SIGTERM)"]);
    // A script that uses low descriptors itself does not close the one that tells of the last process.
    let (run, child) =
        start("echo $$; exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; sleep 300 & echo $! > child");
    project.tenure("run build --no-wait -- true").exits(6);
    // Killed, tenure takes the rest with it.
    run.signal(Signal::KILL);
    until("the child has exited", || !process::alive(child));
    project.tenure("run build --no-wait -- true").exits(0);
}

#[test]
fn options_of_flock_are_understood() {
    let project = Project::new();
    let said = project
        .call("run build -x -c")
        .arg("echo $TENURE_KEY; exit 4")
        .end();
    assert_eq!(said.exits(4).out, "build\n");
    let _held = project.hold("run build --as first");
    for words in [
        "run build -n -- true",
        "run build -w 0.05 -- true",
        "run build -w 50ms -- true",
        "acquire build -n",
    ] {
        project.tenure(words).exits(6);
    }
    project.tenure("run other -s -- true").exits(0);
    project.tenure("run build -w soon -- true").exits(2);
}

#[test]
fn a_forgotten_separator_is_named() {
    let project = Project::new();
    for (words, tip) in [
        ("run build make all", "tip: tenure run build -- make all"),
        ("run build make -j4", "tip: tenure run build -- make -j4"),
        (
            "run build --no-wait make",
            "tip: tenure run build --no-wait -- make",
        ),
    ] {
        let said = project.tenure(words).fails(2, &[tip]);
        assert!(!said.err.contains("-- -"), "{said:?}");
    }
    let said = project.tenure("run build -- true -z").code;
    assert_eq!(said, 0);
    let said = project.tenure("run build -z -- true").exits(2);
    assert!(!said.err.contains("use '-- -z'"), "{said:?}");
}
