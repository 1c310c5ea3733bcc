//! `tenure tasks work`: signals, crashes and lost leases of a runner and its command.

use crate::project;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;

use project::{Call, Project, Running, Said, process, until};
use rustix::process::Signal;
use serde_json::Value;

/// Adds a task with these words and returns its id.
#[track_caller]
fn add(project: &Project, words: &str) -> String {
    let said = project.tenure(&format!("tasks add --quiet {words}"));
    said.exits(0).out.trim().to_owned()
}

/// A task, as JSON.
#[track_caller]
fn task(project: &Project, task: &str) -> Value {
    let said = project.tenure(&format!("tasks show {task} --json"));
    said.exits(0).json()["data"].clone()
}

#[track_caller]
fn status(project: &Project, title: &str) -> String {
    task(project, title)["status"].as_str().unwrap().to_owned()
}

/// How many tasks have each status.
#[track_caller]
fn statuses(project: &Project) -> HashMap<String, usize> {
    let listed = project
        .tenure("tasks list --limit 0 --json")
        .exits(0)
        .json();
    let mut counts = HashMap::new();
    for task in listed["data"]["tasks"].as_array().unwrap() {
        let status = task["status"].as_str().unwrap().to_owned();
        *counts.entry(status).or_insert(0) += 1;
    }
    counts
}

#[track_caller]
fn nothing_is_locked(project: &Project) {
    let said = project.tenure("locks list").exits(0);
    assert_eq!(said.out, "No locks.\n");
}

/// `tenure tasks work` with these words.
fn work(project: &Project, words: &str) -> Call {
    project.call(&format!("tasks work {words}"))
}

/// The same with a script for bash, which can name files by large numbers.
fn work_with_bash(project: &Project, words: &str, script: &str) -> Running {
    work(project, words)
        .args(["--", "bash", "-c", script])
        .start()
}

/// Starts a runner whose command prints its pid and keeps running.
#[track_caller]
fn at_work(project: &Project, words: &str, script: &str) -> Running {
    let running = work(project, words)
        .sh(&format!("echo $$; {script}"))
        .start();
    until("the command runs", || running.out().ends_with('\n'));
    running
}

/// Takes a kernel lock named after the task, and one named after its section, that end with the
/// last process of the command: flock(1) is the witness, and shares no code with tenure. Large
/// numbers, because the kernel closes those first when a process dies (see `killed.rs`).
const WITNESS: &str = "exec 900> room-$TENURE_TASK_ID
flock -n 900 || { echo $TENURE_TASK_ID is not alone >> crowded; exit 99; }
section=$(sed 's/.*\"section\":\\(null\\|\"[^\"]*\"\\).*/\\1/' | tr -d '\"')
if [ \"$section\" != null ]; then
  exec 901> room-of-$section
  flock -n 901 || { echo section $section is not alone >> crowded; exit 99; }
fi
echo $TENURE_TASK_ID $TENURE_HOLDER >> began
sleep 0.03
echo $TENURE_TASK_ID $TENURE_HOLDER >> ended
";

#[test]
fn eight_runners_do_200_tasks_although_two_are_killed() {
    let project = Project::new();
    project.write("witness.sh", WITNESS);
    let mut lines = String::new();
    for n in 0..200 {
        let section = match n % 4 {
            0 => format!(",\"section\":\"S{}\"", n % 12),
            _ => String::new(),
        };
        writeln!(
            lines,
            "{{\"id\":\"t-{n}\",\"title\":\"Task {n}\"{section}}}"
        )
        .unwrap();
    }
    project.write("tasks.jsonl", &lines);
    project.tenure("tasks import tasks.jsonl").exits(0);
    let began = |runner: &str| project.read("began").matches(runner).count();
    let mut runners: Vec<Running> = (0..8)
        .map(|n| {
            // The runners to be killed stay in their third task.
            let script = if n < 2 {
                "if [ $(grep -c \" $TENURE_HOLDER$\" began) -ge 2 ]; then
                    echo $TENURE_TASK_ID $TENURE_HOLDER >> began; exec 902> room-$TENURE_TASK_ID
                    flock -n 902 || echo $TENURE_TASK_ID is not alone >> crowded
                    echo $TENURE_TASK_ID > caught-$TENURE_HOLDER; sleep 300; fi; . ./witness.sh"
            } else {
                ". ./witness.sh"
            };
            work_with_bash(&project, &format!("--as runner-{n}"), script)
        })
        .collect();
    for (n, runner) in runners.drain(..2).enumerate() {
        let note = format!("caught-runner-{n}");
        until("it is caught in a task", || {
            project.read(&note).ends_with('\n')
        });
        runner.killed().exits(137);
    }
    let mut done = 0;
    for runner in runners {
        let said = runner.ended().exits(0);
        let (_, rest) = said.err.rsplit_once("tenure: ").unwrap();
        done += rest
            .split_once(" completed")
            .unwrap()
            .0
            .parse::<usize>()
            .unwrap();
    }
    assert_eq!(project.read("crowded"), "");
    assert_eq!(
        statuses(&project),
        HashMap::from([("completed".into(), 200)])
    );
    nothing_is_locked(&project);
    assert_eq!(done + began("runner-0") + began("runner-1") - 2, 200);
    // The tasks of the killed runners were taken over, and the history names the dead holders.
    for n in 0..2 {
        let caught = project.read(&format!("caught-runner-{n}"));
        let key = format!("task:{}", caught.trim());
        let history = project.history(&key);
        let dead: Vec<&Value> = history
            .iter()
            .filter(|(kind, _, _)| kind == "dead")
            .map(|(_, _, event)| event)
            .collect();
        // The other one may have been killed in the same task.
        let own = |event: &&&Value| event["holder"] == format!("runner-{n}");
        assert_eq!(dead.iter().filter(own).count(), 1, "{history:?}");
    }
}

#[test]
fn a_section_is_worked_on_by_one_runner_at_a_time() {
    let project = Project::new();
    project.write("witness.sh", WITNESS);
    let lines = (0..40).fold(String::new(), |mut lines, n| {
        let _ = writeln!(
            lines,
            "{{\"title\":\"Task {n}\",\"section\":\"S{}\"}}",
            n % 3
        );
        lines
    });
    project.write("tasks.jsonl", &lines);
    project.tenure("tasks import tasks.jsonl").exits(0);
    let runners: Vec<Running> = (0..6)
        .map(|n| work_with_bash(&project, &format!("--as runner-{n}"), ". ./witness.sh"))
        .collect();
    for runner in runners {
        runner.ended().exits(0);
    }
    assert_eq!(project.read("crowded"), "");
    assert_eq!(project.read("ended").lines().count(), 40);
    assert_eq!(
        statuses(&project),
        HashMap::from([("completed".into(), 40)])
    );
    nothing_is_locked(&project);
}

#[test]
fn a_chain_of_dependencies_is_done_in_order_by_two_runners() {
    let project = Project::new();
    add(&project, "t1");
    for n in 2..=6 {
        add(
            &project,
            &format!("t{n} --priority 9 --depends-on t{}", n - 1),
        );
    }
    let script = "echo $TENURE_TASK_TITLE >> order";
    let runners = ["a", "b"].map(|name| work(&project, &format!("--as {name}")).sh(script).start());
    for runner in runners {
        runner.ended().exits(0);
    }
    assert_eq!(project.read("order"), "t1\nt2\nt3\nt4\nt5\nt6\n");
}

#[test]
fn the_command_gets_its_task_in_its_environment_and_as_json() {
    let project = Project::new();
    project.tenure("sections add Backend").exits(0);
    let before = add(&project, "before");
    project
        .tenure("tasks update before --status completed")
        .exits(0);
    // As long as a description may be.
    let long = "é".repeat(32 * 1024);
    let call = project.call("tasks add --quiet --section Backend --priority 7 --depends-on before");
    let said = call
        .args(["--description", &long, "it's \"quoted\" $HOME"])
        .end()
        .exits(0);
    let id = said.out.trim();
    let script = "cat > stdin; env | grep ^TENURE_ > env";
    work(&project, "--as agent").sh(script).end().exits(0);
    let input: Value = serde_json::from_str(&project.read("stdin")).unwrap();
    assert_eq!(input["id"], id);
    assert_eq!(input["title"], "it's \"quoted\" $HOME");
    assert_eq!(input["description"], long.as_str());
    assert_eq!(input["section"], "Backend");
    assert_eq!(input["status"], "in_progress");
    assert_eq!(input["priority"], 7);
    assert_eq!(input["dependsOn"], serde_json::json!([before]));
    let token = input["token"].as_u64().unwrap();
    let env = project.read("env");
    for line in [
        format!("TENURE_TASK_ID={id}"),
        "TENURE_TASK_TITLE=it's \"quoted\" $HOME".to_owned(),
        "TENURE_TASK_ATTEMPT=1".to_owned(),
        format!("TENURE_TOKEN={token}"),
        format!("TENURE_KEY=task:{id}"),
        "TENURE_HOLDER=agent".to_owned(),
    ] {
        assert!(env.lines().any(|have| have == line), "{line}: {env}");
    }
    let history = project.history(&format!("task:{id}"));
    assert_eq!(history[0].1, token);
}

#[test]
fn a_command_that_does_not_read_its_input_is_no_failure() {
    let project = Project::new();
    let call = project.call("tasks add one --description");
    call.arg("x".repeat(64 * 1024)).end().exits(0);
    work(&project, "-- true").end().exits(0);
    assert_eq!(status(&project, "one"), "completed");
}

#[test]
fn the_exit_code_decides_and_the_last_line_is_recorded() {
    let project = Project::new();
    add(&project, "good");
    add(&project, "bad");
    add(&project, "worse");
    add(&project, "fine");
    let script = "case $TENURE_TASK_TITLE in
        bad) echo first >&2; printf 'disk \\033[31mfull\\033[0m\\n\\n' >&2; exit 3;;
        worse) kill -SEGV $$;;
        esac";
    let said = work(&project, "--as me").sh(script).end().exits(1);
    assert!(said.err.contains("2 completed, 2 failed"), "{said:?}");
    assert!(said.err.contains("first\n"), "passed on: {said:?}");
    let bad = task(&project, "bad");
    assert_eq!(bad["status"], "failed");
    assert_eq!(bad["attempts"], 1);
    let error = bad["lastError"].as_str().unwrap();
    assert!(error.starts_with("exit code 3: disk"), "{error}");
    assert!(!error.contains('\x1b'), "{error:?}");
    let worse = task(&project, "worse");
    assert_eq!(worse["status"], "failed");
    assert_eq!(worse["lastError"], "killed by signal 11");
    assert_eq!(status(&project, "good"), "completed");
    assert_eq!(status(&project, "fine"), "completed");
    nothing_is_locked(&project);
}

#[test]
fn a_failed_task_is_retried_and_then_stays_failed() {
    let project = Project::new();
    add(&project, "hopeless");
    add(&project, "second-time");
    let script = "echo $TENURE_TASK_TITLE $TENURE_TASK_ATTEMPT >> tries
        [ $TENURE_TASK_TITLE$TENURE_TASK_ATTEMPT = second-time2 ]";
    let said = work(&project, "--as me --retries 1 --json")
        .sh(script)
        .end()
        .exits(1);
    let json = said.json();
    let data = &json["error"]["details"];
    assert_eq!(data["completed"], 1);
    assert_eq!(data["retried"], 2);
    assert_eq!(data["failed"][0]["title"], "hopeless");
    let mut tries: Vec<String> = project.read("tries").lines().map(Into::into).collect();
    tries.sort();
    let all = ["hopeless 1", "hopeless 2", "second-time 1", "second-time 2"];
    assert_eq!(tries, all);
    assert_eq!(task(&project, "hopeless")["attempts"], 2);
    assert_eq!(status(&project, "second-time"), "completed");
}

#[test]
fn a_missing_command_locks_nothing() {
    let project = Project::new();
    add(&project, "one");
    work(&project, "--as me -- no-such-command")
        .end()
        .fails(127, &["no-such-command", "nothing was locked"]);
    project.write("plain", "not a program\n");
    work(&project, "--as me -- ./plain")
        .end()
        .fails(126, &["chmod"]);
    project.write("interpreter", "#!/no/such/interpreter\n");
    let mut chmod = project.program("chmod");
    chmod.args(["+x", "interpreter"]);
    project.prepare(chmod).end().exits(0);
    work(&project, "--as me -- ./interpreter")
        .end()
        .fails(126, &["interpreter"]);
    work(&project, "--as me").end().fails(2, &["CMD"]);
    let one = task(&project, "one");
    assert_eq!(one["status"], "pending");
    assert_eq!(one["attempts"], 0);
    nothing_is_locked(&project);
}

#[test]
fn a_command_may_set_the_status_itself() {
    let project = Project::new();
    for (title, code) in [
        ("review", 0),
        ("skipped", 3),
        ("completed", 4),
        ("failed", 0),
    ] {
        add(&project, title);
        let script =
            format!("$TENURE tasks update $TENURE_TASK_ID --status {title} && exit {code}");
        let expected = i32::from(title == "failed");
        work(&project, "--as me").sh(&script).end().exits(expected);
        assert_eq!(status(&project, title), title);
        nothing_is_locked(&project);
    }
    // By its title, and without any name.
    add(&project, "one");
    let script = "$TENURE tasks update \"$TENURE_TASK_TITLE\" --status review";
    work(&project, "").sh(script).end().exits(0);
    assert_eq!(status(&project, "one"), "review");
}

#[test]
fn a_command_can_set_the_status_from_within_another_lock() {
    let project = Project::new();
    add(&project, "one");
    let script = "$TENURE run build --quiet -- \
                  $TENURE tasks update $TENURE_TASK_ID --status review";
    work(&project, "--as me").sh(script).end().exits(0);
    assert_eq!(status(&project, "one"), "review");
    nothing_is_locked(&project);
}

#[test]
fn a_command_that_puts_its_task_back_does_not_get_it_again() {
    let project = Project::new();
    add(&project, "one");
    let script = "echo >> tries; [ $(wc -l < tries) -lt 20 ] || exit 0
        $TENURE tasks update $TENURE_TASK_ID --status pending --quiet";
    work(&project, "--as me").sh(script).end();
    let tries = project.read("tries").lines().count();
    assert!(tries < 20, "the runner loops");
}

#[test]
fn processes_that_a_command_leaves_behind_end_with_it() {
    let project = Project::new();
    add(&project, "one");
    add(&project, "two");
    let script = "sleep 300 & echo $! >> left";
    work(&project, "--as me").sh(script).end().exits(0);
    let left = project.read("left");
    assert_eq!(left.lines().count(), 2);
    for pid in left.lines() {
        let pid: u32 = pid.parse().unwrap();
        until("it is gone", || !process::alive(pid));
    }
    assert_eq!(statuses(&project), HashMap::from([("completed".into(), 2)]));
}

#[test]
fn a_signal_ends_the_runner_and_puts_the_task_back() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let project = Project::new();
        project.tenure("sections add S").exits(0);
        add(&project, "one --section S");
        add(&project, "two --section S");
        let runner = at_work(&project, "--as me", "exec sleep 300");
        let command = runner.command();
        runner.signal(signal);
        let said = runner.ended().exits(128 + signal.as_raw());
        assert!(said.err.contains("signal"), "{said:?}");
        assert!(!process::alive(command));
        let one = task(&project, "one");
        assert_eq!(one["status"], "pending", "{signal:?}");
        assert_eq!(one["attempts"], 0);
        nothing_is_locked(&project);
    }
}

#[test]
fn a_command_that_ends_well_on_a_signal_is_completed() {
    let project = Project::new();
    project.tenure("sections add S").exits(0);
    add(&project, "one --section S");
    add(&project, "two --section S");
    let script = "trap 'exit 0' TERM; echo; while :; do sleep 0.02; done";
    let runner = at_work(&project, "--as me", script);
    until("it listens", || runner.out().lines().count() == 2);
    runner.signal(Signal::TERM);
    runner.ended().exits(143);
    assert_eq!(status(&project, "one"), "completed");
    assert_eq!(status(&project, "two"), "pending");
    nothing_is_locked(&project);
}

#[test]
fn a_command_that_ignores_a_signal_keeps_its_task_until_it_ends() {
    let project = Project::new();
    let one = add(&project, "one");
    let script = "trap '' TERM; echo; until [ -e go ]; do sleep 0.02; done; exit 5";
    let mut runner = at_work(&project, "--as me", script);
    until("it does not listen", || runner.out().lines().count() == 2);
    runner.signal(Signal::TERM);
    project.tenure("tasks next --as other").exits(6);
    assert!(runner.runs());
    assert_eq!(project.verdict(&format!("task:{one}")), "alive");
    project.write("go", "");
    runner.ended().exits(143);
    assert_eq!(status(&project, "one"), "pending");
    nothing_is_locked(&project);
}

#[test]
fn a_killed_runner_ends_its_command_and_the_next_runner_takes_over() {
    let project = Project::new();
    let one = add(&project, "one");
    let runner = at_work(&project, "--as first --ttl 1h", "sleep 300 & wait");
    let group = runner.command();
    let second = project.queue("task:*", "tasks work --as second -- true");
    runner.killed().exits(137);
    second.ended().exits(0);
    assert_eq!(process::members(group), [] as [u32; 0]);
    assert_eq!(status(&project, "one"), "completed");
    let key = format!("task:{one}");
    assert_eq!(
        project.story(&key),
        "granted 1, dead 1, granted 2, released 2"
    );
}

#[test]
fn a_task_that_is_taken_away_stops_its_command_and_the_runner_continues() {
    let project = Project::new();
    let one = add(&project, "one --priority 9");
    add(&project, "two");
    let script = "echo $TENURE_TASK_TITLE >> done
        if mkdir first 2> /dev/null; then echo $$ > pid; sleep 300 & wait; fi";
    let runner = work(&project, "--as me").sh(script).start();
    until("it works", || project.read("pid").ends_with('\n'));
    let command: u32 = project.read("pid").trim().parse().unwrap();
    project.tenure(&format!("force task:{one}")).exits(0);
    let said = runner.ended().fails(7, &["\"one\" was lost", "1 lost"]);
    assert_eq!(process::members(command), [] as [u32; 0], "{said:?}");
    assert_eq!(status(&project, "two"), "completed");
    // Other runners can start it again.
    nothing_is_locked(&project);
    let next = project.tenure("tasks next --as other --quiet").exits(0);
    assert_eq!(next.out.trim(), one);
}

#[test]
fn a_task_that_was_taken_over_is_not_written_to() {
    let project = Project::new();
    let one = add(&project, "one");
    let script = "trap '' TERM; echo; until [ -e go ]; do sleep 0.02; done; exit 0";
    project.write(".tenure/config.yaml", "run:\n  killGrace: 10s\n");
    let runner = at_work(&project, "--as me", script);
    until("it does not listen", || runner.out().lines().count() == 2);
    project.tenure(&format!("force task:{one}")).exits(0);
    project.tenure("tasks next --as other").exits(0);
    project.write("go", "");
    until("it is known to be lost", || {
        runner.err().contains("was lost")
    });
    let now = task(&project, "one");
    assert_eq!(now["status"], "in_progress");
    assert_eq!(now["holder"], "other");
    project
        .tenure("tasks update one --status completed --as other")
        .exits(0);
    runner.ended().exits(7);
}

#[test]
fn a_task_that_is_put_back_from_outside_is_not_worked_on_by_two() {
    let project = Project::new();
    add(&project, "one");
    let runner = at_work(&project, "--as me --no-wait", "exec sleep 300");
    let command = runner.command();
    // A person with the runner's name. Allowed or not: no other runner may get the task while the
    // command runs.
    let said = project.tenure("tasks update one --status pending --as me");
    if said.code == 0 {
        until("the command is stopped", || !process::alive(command));
        runner.ended();
    } else {
        project.tenure("tasks next --as other").exits(6);
    }
}

#[test]
fn two_runners_of_one_name_do_not_share_a_task() {
    let project = Project::new();
    project.write("witness.sh", WITNESS);
    project.tenure("sections add S").exits(0);
    for n in 0..12 {
        let section = if n % 2 == 0 { "--section S" } else { "" };
        add(&project, &format!("t{n} {section}"));
    }
    let runners: Vec<Running> = (0..3)
        .map(|_| work_with_bash(&project, "--as same", ". ./witness.sh"))
        .collect();
    for runner in runners {
        runner.ended().exits(0);
    }
    assert_eq!(project.read("crowded"), "");
    assert_eq!(
        statuses(&project),
        HashMap::from([("completed".into(), 12)])
    );
    nothing_is_locked(&project);
}

#[test]
fn a_nested_runner_does_not_wait_for_the_outer_one() {
    let project = Project::new();
    project.tenure("sections add S").exits(0);
    add(&project, "one --section S");
    add(&project, "two --section S");
    // Without a section, it finds another task.
    add(&project, "loose --priority 0");
    let script = "[ $TENURE_TASK_TITLE = one ] || exit 0
        $TENURE tasks work --as inner -- sh -c 'echo $TENURE_TASK_TITLE >> inner'";
    let said = work(&project, "--as outer").sh(script).end();
    assert_eq!(project.read("inner"), "loose\n", "{said:?}");
    assert_eq!(status(&project, "two"), "completed");
    nothing_is_locked(&project);
}

#[test]
fn closed_standard_streams_are_no_failure() {
    let project = Project::new();
    add(&project, "one");
    add(&project, "two");
    add(&project, "three");
    let one = "$TENURE tasks work --as me -- sh -c 'cat > in; exit 1' <&- >&- 2>&-";
    project.shell(one).end().exits(1);
    assert_eq!(statuses(&project), HashMap::from([("failed".into(), 3)]));
    let input: Value = serde_json::from_str(&project.read("in")).unwrap();
    assert_eq!(input["title"], "three");

    // The output of the command and the runner has no reader.
    project.tenure("tasks update one --status pending").exits(0);
    let script = "{ $TENURE tasks work --as me -- sh -c 'until [ -e gone ]; do sleep 0.02; done
        echo lost; echo lost >&2; echo done > said'; echo $? > code; } 2>&1 |
        sh -c 'exec <&-; touch gone'";
    project.shell(script).end().exits(0);
    // A command that dies of a broken pipe has failed; the runner has not.
    let code = project.read("code");
    let one = status(&project, "one");
    match code.trim() {
        "0" => assert_eq!(one, "completed"),
        "1" => assert_eq!(one, "failed"),
        other => panic!("{other}"),
    }
    nothing_is_locked(&project);
}

#[test]
fn with_json_the_output_is_only_json() {
    let project = Project::new();
    add(&project, "good");
    add(&project, "bad");
    let script = "echo chatter; echo chatter >&2; [ $TENURE_TASK_TITLE = good ]";
    for words in ["--json --as me", "--as me --json"] {
        let said = work(&project, words).sh(script).end().exits(1);
        let json = said.json();
        assert_eq!(json["command"], "tasks");
        assert_eq!(json["subcommand"], "work");
        assert_eq!(json["error"]["code"], "TASKS_FAILED");
        let data = &json["error"]["details"];
        assert_eq!(data["completed"], 1);
        assert_eq!(data["failed"][0]["title"], "bad");
        assert_eq!(data["failed"][0]["error"], "exit code 1: chatter");
        assert_eq!(data["ended"], "NO_TASK_LEFT");
        assert_eq!(said.err, "chatter\n".repeat(4));
        for title in ["good", "bad"] {
            project
                .tenure(&format!("tasks update {title} --status pending"))
                .exits(0);
        }
    }
    let said = work(&project, "--quiet --as me").sh(script).end().exits(1);
    assert_eq!(said.out, "chatter\nchatter\n");
    let (chatter, error) = said.err.split_at("chatter\nchatter\n".len());
    assert_eq!(chatter, "chatter\nchatter\n");
    assert!(
        error.starts_with("error: some tasks were not completed"),
        "{error}"
    );
}

#[test]
fn no_wait_ends_when_other_runners_hold_the_remaining_tasks() {
    let project = Project::new();
    add(&project, "one --priority 9");
    add(&project, "two");
    add(&project, "three --depends-on one");
    project.tenure("tasks next --as other").exits(0);
    let said = work(&project, "--as me --no-wait --json -- true")
        .end()
        .exits(6);
    assert_eq!(said.error(), "TASKS_LOCKED");
    assert_eq!(said.json()["error"]["details"]["completed"], 1);
    assert_eq!(status(&project, "one"), "in_progress");
    assert_eq!(status(&project, "three"), "pending");
}

#[test]
fn a_runner_waits_for_others_and_ends_when_no_task_can_become_ready() {
    let project = Project::new();
    add(&project, "one");
    add(&project, "two --depends-on one");
    project.tenure("tasks next --as other").exits(0);
    let runner = project.queue("task:*", "tasks work --as me --json -- true");
    project
        .tenure("tasks update one --status review --as other")
        .exits(0);
    let said = runner.ended().exits(4);
    assert_eq!(said.error(), "TASKS_BLOCKED");
}

#[test]
fn the_exit_code_tells_that_what_is_left_can_not_be_done() {
    let project = Project::new();
    add(&project, "one");
    add(&project, "two --depends-on one");
    // Higher priority and ready later, so that it is the first of the list and waits for nothing.
    add(&project, "three --priority 9");
    project.tenure("tasks update one --status failed").exits(0);
    let said = work(&project, "--as me -- true").end();
    let said = said.fails(4, &["1 completed", "\"two\" waits for \"one\" (failed)"]);
    drop(said);
    // What was put back is left to other runners.
    add(&project, "four --priority 9");
    let script = "$TENURE tasks update $TENURE_TASK_ID --status pending --quiet";
    // One that goes on is stopped: another runner may have the task at once.
    for script in [script.to_owned(), format!("{script}; exec sleep 300")] {
        let said = work(&project, "--as me --no-wait").sh(&script).end();
        let said = said.fails(4, &["this runner leaves them to others"]);
        assert!(
            !said.err.contains("waits for \n") && !said.err.trim_end().ends_with("waits for"),
            "{said:?}"
        );
    }
    assert_eq!(status(&project, "four"), "pending");
    nothing_is_locked(&project);
}

#[test]
fn a_wait_is_for_new_tasks() {
    let project = Project::new();
    let runner = project.queue("task:*", "tasks work --as me --wait 2s --json -- true");
    add(&project, "one");
    until("it is done", || status(&project, "one") == "completed");
    let said = runner.ended().exits(0);
    assert_eq!(said.json()["data"]["completed"], 1);
    assert_eq!(said.json()["data"]["ended"], "NO_TASK_LEFT");
}

#[test]
fn a_wait_for_tasks_that_others_hold_has_a_limit() {
    for wait in ["0s", "1ms", "1s"] {
        let project = Project::new();
        add(&project, "one");
        project.tenure("tasks next --as other").exits(0);
        let said = work(&project, &format!("--as me --wait {wait} -- true")).end();
        let said = said.fails(6, &["\"one\" is held by other"]);
        let lines = said.err.lines().count();
        assert!(lines < 10, "it says the same {lines} times: {said:?}");
    }
}

#[test]
fn an_interrupted_runner_says_what_happens_to_its_place() {
    let project = Project::new();
    add(&project, "one");
    project.tenure("tasks next --as other").exits(0);
    let runner = project.queue("task:*", "tasks work --as me -- true");
    runner.signal(Signal::TERM);
    let said = runner.ended().exits(143);
    let again = project.queue("task:*", "tasks work --as me -- true");
    let kept = again.err().contains("your place in the queue was kept");
    assert_eq!(
        said.err.contains("is kept"),
        kept,
        "it said {:?} and then {:?}",
        said.err,
        again.err()
    );
}

#[test]
fn a_runner_interrupted_by_ctrl_c_leaves_no_ticket() {
    let project = Project::new();
    add(&project, "one");
    project.tenure("tasks next --as other").exits(0);
    for words in ["tasks work -- true", "tasks work --as me -- true"] {
        let runner = project.queue("task:*", words);
        runner.signal(Signal::INT);
        runner.ended().fails(130, &["left the queue"]);
        assert!(project.waiting("task:*").is_empty());
    }
    let locks = project.tenure("locks list").exits(0).out;
    assert!(!locks.contains("task:*"), "{locks}");
}

#[test]
fn a_lease_is_renewed_while_its_command_runs() {
    let project = Project::new();
    project.tenure("sections add S").exits(0);
    let one = add(&project, "one --section S");
    let runner = at_work(
        &project,
        "--as me --ttl 1s",
        "until [ -e go ]; do sleep 0.02; done",
    );
    let key = format!("task:{one}");
    let beat = || {
        let shown = project.tenure(&format!("locks show {key} --json")).json();
        shown["data"]["leases"][0]["heartbeatAt"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = beat();
    let mut seen = std::collections::HashSet::from([first]);
    until("it was renewed several times", || {
        seen.insert(beat());
        seen.len() > 4
    });
    project.tenure("tasks next --as other").exits(6);
    project.write("go", "");
    runner.ended().exits(0);
    assert_eq!(status(&project, "one"), "completed");
}

#[test]
fn a_command_is_not_started_for_a_task_whose_lease_may_be_over() {
    let project = Project::new();
    let id = add(&project, "one");
    // It says that it started the task before it starts the command, and is held up there.
    let late = work(&project, "--as late --no-wait --ttl 300ms");
    let (late, mut pipe) = late.sh("echo late >> inside").held_up();
    let late = late.start();
    let shown = format!("locks show task:{id}");
    until("it has the task", || project.tenure(&shown).code == 0);
    let next =
        work(&project, "--as next").sh("echo next >> inside; until [ -e go ]; do sleep 0.02; done");
    let next = next.start();
    until("the next runner works", || project.path("inside").exists());
    let reader = std::thread::spawn(move || std::io::copy(&mut pipe, &mut std::io::sink()));
    late.ended().exits(7);
    reader.join().unwrap().unwrap();
    assert_eq!(project.read("inside"), "next\n");
    project.write("go", "");
    next.ended().exits(0);
    assert_eq!(status(&project, "one"), "completed");
}

/// A runner on a new terminal, made by script(1).
fn on_a_terminal(project: &Project, line: &str) -> Running {
    let mut script = project.program("script");
    script
        .args(["--quiet", "--return", "--command", line, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm");
    project.prepare(script).input().start()
}

#[test]
fn ctrl_c_on_a_terminal_ends_command_and_runner() {
    let project = Project::new();
    add(&project, "one");
    add(&project, "two");
    let line = "exec $TENURE tasks work --as me -- sh -c 'echo ready; exec sleep 300'";
    let mut runner = on_a_terminal(&project, line);
    until("it works", || runner.out().contains("ready"));
    let stdin = runner.stdin.as_mut().unwrap();
    stdin.write_all(b"\x03").unwrap();
    let said: Said = runner.ended().exits(130);
    assert_eq!(said.out.matches("ready").count(), 1, "{said:?}");
    assert_eq!(statuses(&project), HashMap::from([("pending".into(), 2)]));
    nothing_is_locked(&project);
}

#[test]
fn a_command_that_crashes_on_a_terminal_has_failed() {
    let project = Project::new();
    add(&project, "one");
    add(&project, "two");
    let line = "exec $TENURE tasks work --as me -- sh -c 'sleep 0.1; kill -SEGV $$'";
    let said = on_a_terminal(&project, line).ended();
    assert_eq!(
        statuses(&project),
        HashMap::from([("failed".into(), 2)]),
        "{said:?}"
    );
    assert_eq!(said.code, 1, "{said:?}");
}
