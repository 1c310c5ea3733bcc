//! Keys that are held without a running command: `acquire`, `renew`, `release`, `fence`.

use crate::project;

use std::process::Child;

use project::{Project, process, until};
use rustix::process::Signal;

/// A process that a lease can be tied to.
fn bystander() -> Child {
    std::process::Command::new("sleep")
        .arg("300")
        .spawn()
        .unwrap()
}

#[test]
fn the_token_is_all_that_is_printed() {
    let project = Project::new();
    let said = project.tenure("acquire build --as me").exits(0);
    assert_eq!(said.out, "1\n");
    for word in ["me holds build until", "tenure release build --as me"] {
        assert!(said.err.contains(word), "{word}: {said:?}");
    }
    let quiet = project.tenure("acquire other --as me --quiet").exits(0);
    assert_eq!((quiet.out.as_str(), quiet.err.as_str()), ("2\n", ""));

    let json = project
        .tenure("acquire third --as me --ttl 10m --json")
        .exits(0)
        .json();
    assert_eq!(json["data"]["key"], "third");
    assert_eq!(json["data"]["holder"], "me");
    assert_eq!(json["data"]["token"], 3);
    assert_eq!(json["data"]["reason"], "acquired_new");
    assert!(
        (590..=600).contains(&json["data"]["remainingSeconds"].as_u64().unwrap()),
        "{json}"
    );
}

#[test]
fn the_same_name_keeps_its_token_and_gets_more_time() {
    let project = Project::new();
    let token = project.acquire("build --as me --ttl 1m");
    let json = project
        .tenure("acquire build --as me --ttl 1h --json")
        .exits(0)
        .json();
    assert_eq!(json["data"]["reason"], "already_owned");
    assert_eq!(json["data"]["token"], token);
    assert!(
        json["data"]["remainingSeconds"].as_u64().unwrap() > 3000,
        "{json}"
    );
    assert_eq!(project.story("build"), "granted 1, renewed 1");
    let from_env = project
        .call("acquire build --no-wait")
        .env("TENURE_HOLDER", "me")
        .end();
    assert_eq!(from_env.exits(0).out, "1\n");
}

#[test]
fn another_name_is_told_who_has_it() {
    let project = Project::new();
    project.acquire("build --as me");
    project
        .tenure("acquire build --as you --no-wait")
        .fails(6, &["locked by me"]);
    project
        .tenure("run build --as you --no-wait -- true")
        .fails(6, &["locked by me"]);
}

#[test]
fn a_repeated_acquire_in_one_shell_answers_with_the_token() {
    let project = Project::new();
    let script = "$TENURE acquire schema --pid $$ && $TENURE acquire schema --pid $$ \
                  && $TENURE acquire schema && $TENURE acquire other -q && $TENURE acquire other; exit $?";
    let said = project.shell(script).end().exits(0);
    assert_eq!(said.out, "1\n1\n1\n2\n2\n", "{said:?}");
    assert_eq!(said.err.matches("you hold schema already").count(), 2);
    assert!(
        said.err.contains("tenure release schema --token 1"),
        "{said:?}"
    );
    assert_eq!(project.verdict("schema"), "dead", "it ended with its shell");
    // Another shell is another holder, also one that the first one started.
    project.tenure("acquire schema -q").exits(0);
    let script = "$TENURE acquire schema --no-wait -q; exit $?";
    project
        .shell(script)
        .end()
        .fails(6, &["schema is locked by"]);
}

#[test]
fn a_shell_does_not_wait_for_its_own_lease() {
    let project = Project::new();
    for acquire in ["acquire schema --pid $$", "acquire schema"] {
        let script = format!("$TENURE {acquire} -q; $TENURE run schema -- touch ran; exit $?");
        let said = project.shell(&script).end();
        said.fails(
            6,
            &["you hold schema yourself", "tenure release schema --token"],
        );
        project.tenure("force schema").exits(0);
        let at_once = script.replace("run schema", "run schema --no-wait");
        let said = project.shell(&at_once).end();
        said.fails(6, &["you hold schema yourself"]);
        project.tenure("force schema").exits(0);
        let json = script.replace("run schema", "run schema --json");
        let json = project.shell(&json).end().exits(6);
        assert!(json.out.contains("DEADLOCK"), "{json:?}");
        project.tenure("force schema").exits(0);
    }
    assert!(!project.path("ran").exists());
}

#[test]
fn a_made_up_name_is_not_handed_down_to_be_shared() {
    // Two workers of one command, neither of which ever chose a name.
    let project = Project::new();
    let script = "($TENURE acquire shared --no-wait -q; exit $?) && ($TENURE acquire shared --no-wait -q; exit $?)";
    let said = project.call("run build").sh(script).end();
    assert_eq!(said.out, "2\n", "both have it: {said:?}");
    said.exits(6);
}

#[test]
fn the_steps_of_a_ci_job_are_one_holder_and_two_jobs_are_two() {
    let project = Project::new();
    let step = |words: &str, vars: &[(&str, &str)]| {
        let call = project.shell(&format!("$TENURE {words}; exit $?"));
        let call = vars
            .iter()
            .fold(call, |call, (name, value)| call.env(name, value));
        call.end()
    };
    let github = [
        ("GITHUB_RUN_ID", "77"),
        ("GITHUB_JOB", "test"),
        ("RUNNER_NAME", "one"),
    ];
    let other = [
        ("GITHUB_RUN_ID", "77"),
        ("GITHUB_JOB", "test"),
        ("RUNNER_NAME", "two"),
    ];
    let gitlab = [("CI_JOB_ID", "123")];
    let jenkins = [
        ("BUILD_TAG", "jenkins-app-5"),
        ("EXECUTOR_NUMBER", "0"),
        ("NODE_NAME", "n"),
    ];
    for (job, name) in [
        (&github[..], "github-77.--test@one"),
        (&gitlab, "gitlab-123"),
        (&jenkins, "jenkins-app-5.0@n"),
    ] {
        step("acquire build", job).fails(0, &[name]);
        step("acquire build --no-wait", &other).exits(6);
        step("release build", &other).exits(5);
        step("release build", job).exits(0);
        // A name that is given wins.
        let named: Vec<_> = job
            .iter()
            .copied()
            .chain([("TENURE_HOLDER", "me")])
            .collect();
        step("acquire build", &named).fails(0, &["me holds build"]);
        step("release build --as me", job).exits(0);
    }
}

#[test]
fn without_a_login_name_the_holder_is_named_by_the_users_entry() {
    let project = Project::new();
    let user = project.shell("id -un").end().exits(0).out;
    let call = project
        .call("acquire build")
        .env("USER", "")
        .env("LOGNAME", "");
    call.end().fails(0, &[&format!("{}@", user.trim())]);
}

#[test]
fn a_script_gives_back_what_it_took_without_naming_itself() {
    let project = Project::new();
    let script =
        "$TENURE acquire build -q && $TENURE renew build -q && $TENURE release build -q; exit $?";
    project.shell(script).end().exits(0);
    assert_eq!(project.story("build"), "granted 1, renewed 1, released 1");
    // Another shell is another holder.
    project
        .shell("$TENURE acquire build -q; exit $?")
        .end()
        .exits(0);
    project
        .shell("$TENURE release build; exit $?")
        .end()
        .fails(5, &["not yours"]);
}

#[test]
fn only_the_holder_releases() {
    let project = Project::new();
    project.acquire("build --as me");
    let said = project.tenure("release build --as you");
    said.fails(
        5,
        &[
            "not yours",
            "held by me",
            "you are you",
            "--token",
            "tenure force build",
        ],
    );
    let json = project.tenure("release build --as you --json").exits(5);
    assert_eq!(json.error(), "PERMISSION_DENIED");
    assert_eq!(json.json()["error"]["details"]["leases"][0]["holder"], "me");
    project.tenure("release build --as you --token 1").exits(5);
    project.tenure("renew build --as you").exits(5);
    project.tenure("fence build --token 1").exits(0);

    assert_eq!(
        project.tenure("release build --as me").exits(0).out,
        "build is free\n"
    );
    project
        .tenure("release build --as me")
        .fails(4, &["build is free"]);
    assert_eq!(
        project
            .tenure("release build --as me --json")
            .exits(4)
            .error(),
        "LOCK_NOT_FOUND"
    );
    project.tenure("renew build --as me").exits(4);
}

#[test]
fn a_token_alone_is_enough_and_an_old_one_is_not() {
    let project = Project::new();
    let old = project.acquire("build --as me");
    project
        .tenure(&format!("renew build --token {old}"))
        .exits(0);
    project
        .tenure(&format!("release build --token {old}"))
        .exits(0);
    for verb in ["release", "renew", "fence"] {
        project
            .tenure(&format!("{verb} build --token {old}"))
            .exits(7);
    }
    let new = project.acquire("build --as you");
    for words in [
        format!("release build --token {old}"),
        format!("release build --as me --token {old}"),
        format!("renew build --token {old}"),
    ] {
        let said = project
            .tenure(&words)
            .fails(7, &["has ended", "held by you"]);
        assert!(said.err.contains(&format!("token {new}")), "{said:?}");
        assert_eq!(
            project.tenure(&format!("{words} --json")).exits(7).error(),
            "LEASE_LOST"
        );
    }
    let never = new + 100;
    project
        .tenure(&format!("release build --token {never}"))
        .exits(7);
    project
        .tenure(&format!("release build --token {new}"))
        .exits(0);
}

#[test]
fn renewing_moves_the_end() {
    let project = Project::new();
    project.acquire("build --as me --ttl 1m");
    let said = project.tenure("renew build --as me --ttl 2h").exits(0);
    assert!(said.out.contains("yours until"), "{said:?}");
    let left = |project: &Project| {
        let json = project.tenure("locks show build --json").exits(0).json();
        json["data"]["leases"][0]["remainingSeconds"]
            .as_u64()
            .unwrap()
    };
    assert!(left(&project) > 7000);
    // Without a time it is as long as last asked for.
    project.tenure("renew build --as me").exits(0);
    assert!(left(&project) > 7000);
    project.tenure("renew build --as me --ttl 1m").exits(0);
    assert!(left(&project) <= 60, "it can be made shorter too");
}

#[test]
fn an_expired_lease_can_be_renewed_until_another_holder_takes_it() {
    let project = Project::new();
    project.acquire("build --as me --ttl 100ms");
    until("it has run out", || project.verdict("build") == "expired");
    project
        .tenure("fence build --token 1")
        .fails(7, &["expired"]);
    project.tenure("renew build --as me --ttl 100ms").exits(0);
    until("it has run out", || project.verdict("build") == "expired");
    project.acquire("build --as you");
    project.tenure("renew build --as me --token 1").exits(7);
    assert_eq!(
        project.story("build"),
        "granted 1, renewed 1, expired 1, granted 2"
    );
}

#[test]
fn fence_lets_only_the_newest_standing_grant_write() {
    let project = Project::new();
    let first = project.acquire("build --as me");
    let fence = |token: u64| project.tenure(&format!("fence build --token {token}"));
    let said = fence(first).exits(0);
    assert!(said.out.contains("of build is valid until"), "{said:?}");
    fence(first + 1).exits(7);
    project.tenure("force build").exits(0);
    fence(first).fails(7, &["no longer valid", "the key is free"]);

    let second = project.acquire("build --as you");
    fence(first).fails(7, &["held by you", &format!("token {second}")]);
    fence(second).exits(0);
    let json = project
        .tenure(&format!("fence build --json --token {first}"))
        .exits(7);
    assert_eq!(json.error(), "LEASE_LOST");
    assert_eq!(
        json.json()["error"]["details"]["leases"][0]["token"],
        second
    );
    project.tenure("fence never-heard-of --token 1").exits(7);
    project
        .tenure("fence build --token 18446744073709551615")
        .exits(7);
    project.tenure("fence build").exits(2);
}

#[test]
fn the_command_of_a_run_can_fence_itself() {
    let project = Project::new();
    let script = "$TENURE fence \"$TENURE_KEY\" --token \"$TENURE_TOKEN\" --quiet && echo push";
    assert_eq!(
        project.call("run build").sh(script).end().exits(0).out,
        "push\n"
    );
}

#[test]
fn a_lease_tied_to_a_process_ends_with_it_even_before_it_is_waited_for() {
    let project = Project::new();
    let mut process = bystander();
    project.acquire(&format!("build --as me --ttl 1h --pid {}", process.id()));
    assert_eq!(project.verdict("build"), "alive");
    let waiter = project.queue("build", "run build --wait 10m -- echo mine");
    process::signal(process.id(), Signal::KILL);
    assert_eq!(waiter.ended().exits(0).out, "mine\n");
    assert_eq!(
        project.story("build"),
        "granted 1, dead 1, granted 2, released 2"
    );
    let (_, _, dead) = &project.history("build")[1];
    assert_eq!(dead["evidence"]["proof"], "process_gone");
    assert_eq!(dead["evidence"]["pid"], process.id());
    process.wait().unwrap();
}

#[test]
fn a_lease_tied_to_a_process_ends_with_its_time_too() {
    let project = Project::new();
    let mut process = bystander();
    project.acquire(&format!("build --as me --ttl 200ms --pid {}", process.id()));
    project.tenure("run build --wait 10m -- true").exits(0);
    assert!(
        project.story("build").contains("expired 1"),
        "{}",
        project.story("build")
    );
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_process_that_is_not_there_can_hold_nothing() {
    let project = Project::new();
    let mut process = bystander();
    process.kill().unwrap();
    process.wait().unwrap();
    let words = format!("acquire build --as me --pid {}", process.id());
    project
        .tenure(&words)
        .fails(4, &["no process", "give the pid of a process that runs"]);
    assert_eq!(
        project.tenure(&format!("{words} --json")).error(),
        "NO_PROCESS"
    );
    for pid in ["0", "-1", "x", "4294967296"] {
        project.call("acquire build --pid").arg(pid).end().exits(2);
    }
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
}

#[test]
fn a_process_that_ended_during_the_wait_gets_no_key() {
    let project = Project::new();
    project.acquire("build --as first");
    let mut process = bystander();
    let waiter = project.queue(
        "build",
        &format!("acquire build --as second --pid {}", process.id()),
    );
    process.kill().unwrap();
    process.wait().unwrap();
    project.tenure("release build --as first").exits(0);
    let said = waiter.ended();
    assert_ne!(
        said.code, 0,
        "a lease that was dead from the start: {said:?}"
    );
    assert_eq!(said.out, "");
}

#[test]
fn a_token_that_could_not_be_printed_is_a_failure_that_leaves_things_as_they_were() {
    // TOKEN=$(tenure acquire ...) on a full disk: who would ever give it back?
    let project = Project::new();
    let unprinted = || {
        project
            .shell("$TENURE acquire build --as me > /dev/full")
            .end()
    };
    unprinted().fails(1, &["could not be written"]);
    assert_eq!(project.verdict("build"), "free");
    // Nor may what was held before be lost by it.
    let token = project.acquire("build --as me");
    unprinted().exits(1);
    project
        .tenure(&format!("fence build --token {token}"))
        .exits(0);
}

#[test]
fn a_holder_releases_all_that_it_has_and_not_what_a_command_runs_under() {
    let project = Project::new();
    for words in ["a --as me", "b --as me", "c --as you"] {
        project.acquire(words);
    }
    let running = project.hold("run d --as me");
    let said = project.tenure("release --all --as me").exits(0);
    assert_eq!(said.out, "a is free\nb is free\n");
    for (key, verdict) in [
        ("a", "free"),
        ("b", "free"),
        ("c", "unknown"),
        ("d", "alive"),
    ] {
        assert_eq!(project.verdict(key), verdict, "{key}");
    }
    let json = project
        .tenure("release --all --as me --json")
        .exits(0)
        .json();
    assert_eq!(json["data"]["released"].as_array().unwrap().len(), 0);
    project.tenure("release").exits(2);
    project.tenure("release a --all").exits(2);
    drop(running);
}
