//! `tenure exclusive`: the lock file that makes daemons skip a database.

use crate::project;

use project::{Project, until};
use serde_json::Value;

/// A project that only has another tool's folder.
fn beads() -> Project {
    let project = Project::uninitialised();
    std::fs::create_dir(project.path(".beads")).unwrap();
    project
}

fn lock(project: &Project) -> Value {
    serde_json::from_str(&project.read(".beads/.exclusive-lock")).unwrap()
}

fn host() -> String {
    let name = std::process::Command::new("hostname").output().unwrap();
    String::from_utf8(name.stdout).unwrap().trim().to_owned()
}

fn foreign(project: &Project, holder: &str, pid: u32, host: &str) {
    let text = format!(
        "{{\"holder\":\"{holder}\",\"pid\":{pid},\"hostname\":\"{host}\",\"started_at\":\"2025-10-25T12:00:00Z\"}}"
    );
    project.write(".beads/.exclusive-lock", &text);
}

#[test]
fn a_script_takes_the_lock_and_releases_it() {
    let project = beads();
    let script = "$TENURE exclusive acquire --holder my-tool --version 1.0.0 >&2 || exit 9
        echo $$; cat .beads/.exclusive-lock; $TENURE exclusive release >&2";
    let said = project.shell(script).end().exits(0);
    let (pid, text) = said.out.split_once('\n').unwrap();
    let lock: Value = serde_json::from_str(text).unwrap();
    assert_eq!(lock["holder"], "my-tool");
    assert_eq!(lock["pid"].to_string(), pid, "the script's own process");
    assert_eq!(lock["version"], "1.0.0");
    assert!(!project.path(".beads/.exclusive-lock").exists());
}

/// The daemon of `.beads` looks at no other folder.
#[test]
fn in_a_project_with_beads_the_lock_is_taken_where_its_daemon_looks() {
    let project = Project::new();
    std::fs::create_dir(project.path(".beads")).unwrap();
    let script = "$TENURE exclusive acquire --holder my-tool --version 1.0.0 >&2 || exit 9
        cat .beads/.exclusive-lock; $TENURE exclusive status; echo $?; $TENURE exclusive release >&2";
    let said = project.shell(script).end().exits(0);
    assert!(said.out.contains("\"holder\": \"my-tool\""), "{said:?}");
    assert!(said.out.ends_with("6\n"), "{said:?}");
    assert!(!project.path(".beads/.exclusive-lock").exists());
    let run = project.call("exclusive run --holder me -- cat .beads/.exclusive-lock");
    assert!(run.end().exits(0).out.contains("\"holder\": \"me\""));
    assert!(!project.path(".tenure/.exclusive-lock").exists());
    // The daemon of this project looks at both folders, so a lock in the other one counts, too.
    let text = format!(
        "{{\"holder\":\"other\",\"pid\":{},\"hostname\":\"{}\",\"started_at\":\"2025-10-25T12:00:00Z\"}}",
        std::process::id(),
        host()
    );
    project.write(".tenure/.exclusive-lock", &text);
    for words in [
        "acquire --holder me",
        "run --holder me -- touch ran",
        "status",
    ] {
        let said = project.tenure(&format!("exclusive {words}"));
        said.fails(6, &["other"]);
    }
    assert!(!project.path("ran").exists());
    assert!(!project.path(".beads/.exclusive-lock").exists());
    project.tenure("exclusive release --holder other").exits(0);
    project.tenure("exclusive acquire --holder me").exits(0);
}

#[test]
fn a_lock_of_a_script_that_has_ended_is_stale_and_taken_over() {
    let project = beads();
    let script = "$TENURE exclusive acquire --holder first";
    project.shell(script).end().exits(0);
    let status = project.tenure("exclusive status").exits(0);
    assert!(status.out.starts_with("Stale: first"), "{status:?}");
    let run = project.call("exclusive run --holder second -- cat .beads/.exclusive-lock");
    let text = run.end().exits(0).out;
    let lock: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(lock["holder"], "second");
}

/// The other program creates its lock only where none is: it must not get in between.
#[test]
fn a_stale_lock_is_swapped_for_the_new_one_and_not_removed_first() {
    let project = Project::new();
    std::fs::create_dir(project.path(".beads")).unwrap();
    for words in ["run --holder me -- true", "acquire --holder me --pid 1"] {
        foreign(&project, "dead", i32::MAX.cast_unsigned(), &host());
        project.tenure(&format!("exclusive {words}")).exits(0);
        let store = "database --store exclusive:.beads";
        let mut grant = project.history(store).into_iter();
        let grant = grant.rfind(|(kind, ..)| kind == "granted");
        let (_, _, event) = grant.unwrap();
        assert_eq!(event["reason"], "claimed_dead", "{words}: {event}");
    }
}

/// The protocol's own tool never finds a dead holder.
#[test]
fn the_lock_of_a_killed_run_goes_with_it() {
    let project = beads();
    let run = project.call("exclusive run --holder me");
    let run = run.sh(": > started; exec sleep 300").start();
    until("it holds the lock", || project.path("started").exists());
    run.killed();
    let file = project.path(".beads/.exclusive-lock");
    until("the lock is gone", || !file.exists());
    assert!(!project.path(".beads/.exclusive-lock-tenure/gone").exists());
    let status = project.tenure("exclusive status").exits(0);
    assert!(status.out.starts_with("Stale: me"), "{status:?}");
    project
        .tenure("exclusive run --holder next -- true")
        .exits(0);
    let story = project.story("database --store exclusive:.beads");
    assert!(story.contains("dead 1, granted 2"), "{story}");
}

#[test]
fn a_held_lock_is_refused_and_the_holder_is_named() {
    let project = beads();
    foreign(&project, "vc-executor", 1, &host());
    project
        .tenure("exclusive status")
        .fails(6, &["vc-executor", "pid 1", "alive"]);
    project
        .tenure("exclusive acquire --holder me")
        .fails(6, &["vc-executor", "exclusive status"]);
    let ran = project.call("exclusive run --holder me -- touch ran");
    ran.end().fails(6, &["vc-executor"]);
    assert!(!project.path("ran").exists());
    project
        .tenure("exclusive release")
        .fails(5, &["vc-executor"]);
    assert_eq!(lock(&project)["holder"], "vc-executor");
}

#[test]
fn a_malformed_lock_is_named_as_one_and_nobody_is_told_to_wait() {
    let project = beads();
    project.write(".beads/.exclusive-lock", "");
    let store = "--store exclusive:.beads";
    for (words, look) in [
        (
            format!("run database --no-wait {store} -- true"),
            format!("tenure doctor {store}"),
        ),
        (
            "exclusive run --as me -- true".to_owned(),
            "tenure exclusive status".to_owned(),
        ),
    ] {
        let said = project.tenure(&words).exits(6);
        assert_eq!(
            said.err.lines().skip(1).collect::<Vec<_>>(),
            [
                "  waiting does not end it".to_owned(),
                format!("  to see what is wrong with it: {look}")
            ]
        );
        assert!(
            said.err
                .starts_with("error: database has a malformed lock, which names no holder, since "),
            "{said:?}"
        );
    }
    // A wait is possible: a person may mend the file meanwhile.
    let said = project.tenure(&format!("run database --wait 50ms {store} -- true"));
    let said = said.fails(
        6,
        &[
            "it has a malformed lock, which names no holder",
            "only a person ends it",
        ],
    );
    assert!(!said.err.contains('?'), "{said:?}");
    // What the file names is said, and no more.
    project.write(
        ".beads/.exclusive-lock",
        r#"{"holder":"x","pid":0,"hostname":"h","started_at":"2025-10-25T12:00:00Z"}"#,
    );
    let said = project.tenure("exclusive run --as me -- true").exits(6);
    assert!(said.err.contains("which names x as its holder"), "{said:?}");
    assert!(!said.err.contains("--wait"), "{said:?}");
}

#[test]
fn each_verdict_has_its_exit_code() {
    let project = beads();
    project.tenure("exclusive status").exits(0);
    foreign(&project, "gone", 4_000_000, &host());
    let said = project.tenure("exclusive status --json").exits(0).json();
    assert_eq!(said["data"]["leases"][0]["verdict"], "dead");
    foreign(&project, "far", 4_000_000, "another-host");
    project
        .tenure("exclusive status")
        .fails(6, &["far", "another machine"]);
    for (text, words) in [
        ("", "malformed lock file: unexpected EOF\n"),
        ("{", "malformed lock file: unexpected EOF\n"),
        ("{\"holder\":\"x\"}", "pid must be positive"),
        // The other program is written in Go, which knows no leap second and limits the nesting.
        (
            "{\"holder\":\"x\",\"pid\":4000000,\"hostname\":\"HOST\",\"started_at\":\"2025-06-30T23:59:60Z\"}",
            "23:59:60Z",
        ),
        (
            "{\"extra\":NESTED,\"holder\":\"x\",\"pid\":4000000,\"hostname\":\"HOST\",\"started_at\":\"2025-06-30T23:59:59Z\"}",
            "exceeded max depth",
        ),
    ] {
        let nested = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let text = &text.replace("HOST", &host()).replace("NESTED", &nested);
        project.write(".beads/.exclusive-lock", text);
        project.tenure("exclusive status").fails(1, &[words]);
        project.tenure("exclusive acquire --holder me").exits(6);
        assert_eq!(project.read(".beads/.exclusive-lock"), *text);
    }
}

#[test]
fn a_lock_file_that_a_mistaken_checker_removes_is_put_back() {
    let project = beads();
    let script = "rm .beads/.exclusive-lock
        until [ -e .beads/.exclusive-lock ]; do sleep 0.02; done; echo back";
    let run = project
        .call("exclusive run --holder me -- sh -c")
        .arg(script);
    assert_eq!(run.end().exits(0).out, "back\n");
    assert!(!project.path(".beads/.exclusive-lock").exists());
}

#[test]
fn a_lock_file_that_another_program_replaces_is_lost() {
    let project = beads();
    let mine = format!(
        "printf '{{\"holder\":\"thief\",\"pid\":1,\"hostname\":\"{}\",\"started_at\":\"2025-10-25T12:00:00Z\"}}' > .beads/new
        mv .beads/new .beads/.exclusive-lock; sleep 300",
        host()
    );
    let run = project.call("exclusive run --holder me -- sh -c").arg(mine);
    run.end().fails(7, &["was lost", "thief"]);
    assert_eq!(lock(&project)["holder"], "thief");
}

#[test]
fn one_of_many_callers_at_once_gets_the_lock() {
    let project = beads();
    let asking: Vec<_> = (0..8)
        .map(|n| {
            let call = format!("exclusive run --holder tool-{n} -- sh -c");
            // mkdir fails if two commands run at the same time.
            let script = "mkdir inside || echo crowded >> crowded; sleep 0.3; rmdir inside";
            project.call(&call).arg(script).start()
        })
        .collect();
    let codes: Vec<i32> = asking.into_iter().map(|run| run.ended().code).collect();
    assert!(codes.contains(&0), "{codes:?}");
    assert!(codes.iter().all(|code| [0, 6].contains(code)), "{codes:?}");
    assert!(!project.path("crowded").exists());
}

#[test]
fn waiting_callers_get_the_lock_one_after_another() {
    let project = beads();
    let asking: Vec<_> = (0..6)
        .map(|n| {
            let call = format!("exclusive run --holder tool-{n} --wait 1m -- sh -c");
            let script = "mkdir inside || echo crowded >> crowded; sleep 0.02; rmdir inside";
            project.call(&call).arg(script).start()
        })
        .collect();
    for run in asking {
        run.ended().exits(0);
    }
    assert!(!project.path("crowded").exists());
}

#[test]
fn the_folder_is_the_projects_or_the_one_given_with_dir() {
    let project = Project::new();
    let run = project.call("exclusive run --holder me -- ls -A .tenure");
    assert!(run.end().exits(0).out.contains(".exclusive-lock"));
    std::fs::create_dir(project.path(".beads")).unwrap();
    let run = project.call("exclusive run --holder me --dir .tenure -- ls -A .tenure .beads");
    let said = run.end().exits(0);
    let (beads, tenure) = said.out.split_once(".tenure:").unwrap();
    assert!(tenure.contains(".exclusive-lock\n"), "{said:?}");
    assert!(!beads.contains(".exclusive-lock\n"), "{said:?}");

    let nowhere = Project::uninitialised();
    nowhere
        .tenure("exclusive status")
        .fails(3, &["no .beads", "--dir"]);
}

/// The two stores whose locks have no end, each with its key.
const WITHOUT_END: [(&str, &str); 2] = [
    ("--store exclusive:.beads", "database"),
    ("--store mkdir:lock", "board"),
];

#[test]
fn a_time_to_live_is_refused_where_locks_have_no_end() {
    let project = beads();
    for (store, key) in WITHOUT_END {
        let run = project.call(&format!("{store} run {key} --ttl 5m -- touch ran"));
        run.end().fails(2, &["does not expire", "time to live"]);
        assert!(!project.path("ran").exists());
        let script = format!("$TENURE {store} renew {key} --token $TENURE_TOKEN --ttl 5m");
        let run = project.call(&format!("{store} run {key} -- sh -c"));
        run.arg(&script).end().fails(2, &["does not expire"]);
    }
}

#[test]
fn a_lock_without_an_end_says_so() {
    let project = beads();
    for (store, key) in WITHOUT_END {
        for command in [
            format!("renew {key} --token $TENURE_TOKEN"),
            format!("fence {key} --token $TENURE_TOKEN"),
            format!("locks show {key}"),
        ] {
            let script = |more: &str| format!("$TENURE {store} {command} {more}");
            let run = |more: &str| {
                let run = project.call(&format!("{store} run {key} -- sh -c"));
                run.arg(script(more)).end().exits(0)
            };
            let shown = run("").out;
            assert!(shown.contains("no end"), "{command}: {shown}");
            assert!(!shown.contains("9999"), "{command}: {shown}");
            let json = run("--json").json();
            let data = &json["data"];
            let expires = data.get("expiresAt").or(data["leases"][0].get("expiresAt"));
            assert_eq!(expires, Some(&Value::Null), "{command}: {json}");
        }
    }
}

/// Calls `tenure exclusive acquire` from a process that exits before it, and shows what it says.
const ORPHAN: &str = r#"
sh -c 'caller=$$
  ( while kill -0 $caller 2>/dev/null; do sleep 0.01; done
    exec "$TENURE" exclusive acquire --holder orphan 2>&1 ) &' | cat
"#;

#[test]
fn the_lock_is_not_taken_for_a_caller_that_has_ended() {
    let project = beads();
    let said = project.shell(ORPHAN).end().exits(0);
    for words in ["adopts orphans", "--pid"] {
        assert!(said.out.contains(words), "{said:?}");
    }
    assert!(!project.path(".beads/.exclusive-lock").exists());
}

/// A shell that adopts orphans, as `systemd --user` does.
#[allow(unsafe_code, reason = "only the process itself can ask for orphans")]
fn subreaper(project: &Project, script: &str) -> project::Call {
    use std::os::unix::process::CommandExt;
    let mut shell = project.program("sh");
    shell.args(["-c", script]);
    // SAFETY: one system call between fork and exec.
    unsafe {
        shell.pre_exec(|| {
            let this = rustix::process::getpid();
            Ok(rustix::process::set_child_subreaper(Some(this))?)
        });
    }
    project.prepare(shell)
}

#[test]
fn a_caller_that_adopts_orphans_has_to_name_itself() {
    let project = beads();
    let said = subreaper(&project, ORPHAN).end().exits(0);
    assert!(said.out.contains("adopts orphans"), "{said:?}");
    assert!(!project.path(".beads/.exclusive-lock").exists());
    let script = "$TENURE exclusive acquire --holder me; echo $?
        $TENURE exclusive acquire --holder me --pid $$ -q; echo $?; echo $$
        cat .beads/.exclusive-lock; $TENURE exclusive release -q";
    let said = subreaper(&project, script).end().exits(0);
    assert!(said.err.contains("--pid $$"), "{said:?}");
    let mut lines = said.out.splitn(4, '\n');
    assert_eq!((lines.next(), lines.next()), (Some("4"), Some("0")));
    let pid = lines.next().unwrap();
    let lock: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(lock["pid"].to_string(), pid);
}

#[test]
fn a_caller_that_ends_while_it_waits_leaves_no_lock() {
    let project = beads();
    let mut held = project.hold("exclusive run --holder first");
    let key = "database --store exclusive:.beads";
    let script = "$TENURE exclusive acquire --holder late --wait 10m; true";
    let caller = project.shell(script).start();
    project.until_waiting(key, 1);
    caller.killed();
    held.let_go();
    held.ended().exits(0);
    project::until("the waiter has given up", || {
        project.waiting(key).is_empty()
    });
    assert_eq!(project.verdict(key), "free");
    assert_eq!(project.story(key), "granted 1, released 1");
}

#[test]
fn a_background_job_takes_the_lock_for_the_shell_that_waits_for_it() {
    let project = beads();
    let script = "nohup $TENURE exclusive acquire --holder me > said 2>&1 &
        wait $! || exit 9; echo $$; cat .beads/.exclusive-lock";
    let said = project.shell(script).end().exits(0);
    let (pid, text) = said.out.split_once('\n').unwrap();
    let lock: Value = serde_json::from_str(text).unwrap();
    assert_eq!(lock["pid"].to_string(), pid);
}

#[test]
fn a_run_is_named_by_as_or_holder() {
    let project = Project::new();
    let said = project.tenure("exclusive run --as nightly -- cat .tenure/.exclusive-lock");
    assert!(said.exits(0).out.contains("\"nightly\""));
    let said = project.tenure("exclusive run --as x --holder tool -- cat .tenure/.exclusive-lock");
    assert!(said.exits(0).out.contains("\"tool\""));
    let said = project.tenure("exclusive run -- true");
    said.fails(2, &["give --holder NAME, or --as NAME"]);
}
