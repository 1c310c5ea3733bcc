//! The command when its etcd cluster does not answer, or can't be talked to.

use std::io::Write as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tenure_testkit::Etcd;
use tenure_testkit::limit::Stopwatch;

use crate::project::{Project, Running, Said, until};

/// A port where connections are accepted and nothing is answered, until it passes them on to a member.
struct Silent {
    listener: TcpListener,
    passes_on: Arc<AtomicBool>,
}

impl Silent {
    fn new() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            passes_on: Arc::default(),
        }
    }

    fn endpoint(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// Passes connections on from now on. Those that were made before are closed.
    fn pass_on(&self, member: &str) {
        let listener = self.listener.try_clone().unwrap();
        let (member, passes_on) = (member.to_owned(), Arc::clone(&self.passes_on));
        passes_on.store(true, Ordering::SeqCst);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&member).unwrap();
                for (mut from, mut to) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server, client),
                ] {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
    }
}

fn timed(project: &Project, url: &str, words: &str) -> (Said, Duration) {
    let began = Stopwatch::start();
    let said = project.call(words).env("TENURE_STORE", url).end();
    (said, began.elapsed())
}

/// The first command waits for the cluster in vain, and the next ones do not wait as long.
fn is_asked_briefly(project: &Project, url: &str, why: &str) {
    let (said, first) = timed(project, url, "locks list");
    said.fails(1, &[why]);
    assert!(first >= Duration::from_secs(4), "{first:?}");
    for words in [
        "locks list",
        "acquire build --as me --ttl 1h",
        "run a -- true",
    ] {
        let (said, later) = timed(project, url, words);
        said.fails(1, &[why]);
        assert!(later < first / 2, "{words} took {later:?} after {first:?}");
    }
}

#[test]
fn a_cluster_that_was_silent_is_asked_briefly_until_it_is_back() {
    let silent = Silent::new();
    let url = format!("etcd://{}/brief", silent.endpoint());
    let project = Project::uninitialised();
    is_asked_briefly(&project, &url, "does not answer");
    // The next command finds out by itself.
    silent.pass_on(Etcd::shared().endpoints().next().unwrap());
    until("it answers", || {
        timed(&project, &url, "locks list").0.code == 0
    });
}

#[test]
fn a_cluster_that_refused_connections_is_asked_briefly_until_it_is_back() {
    let mut cluster = Etcd::start(1);
    let url = cluster.address("refused");
    let project = Project::uninitialised();
    cluster.kill(0);
    is_asked_briefly(&project, &url, "can't be reached");
    cluster.restart(0);
    cluster.until_it_answers();
    timed(&project, &url, "locks list").0.exits(0);
}

#[test]
fn a_hook_that_waited_in_vain_spares_the_next_one_the_wait() {
    let silent = Silent::new();
    let url = format!("etcd://{}/hooks", silent.endpoint());
    let project = Project::new();
    let input = serde_json::json!({
        "session_id": "one",
        "cwd": project.root(),
        "hook_event_name": "PreToolUse",
        "tool_name": "Edit",
        "tool_input": { "file_path": project.path("a.rs") },
    });
    let edit = || {
        let began = Stopwatch::start();
        let call = project.call("hook claude-code").env("TENURE_STORE", &url);
        let mut hook = call.input().start();
        let mut stdin = hook.stdin.take().unwrap();
        stdin.write_all(input.to_string().as_bytes()).unwrap();
        drop(stdin);
        (hook.ended(), began.elapsed())
    };
    let (said, first) = edit();
    // It was ended by its own limit, or on a busy machine by that of the call, which began later and is as long.
    let in_vain = ["within 5 seconds", "does not answer"];
    assert!(in_vain.iter().any(|why| said.err.contains(why)), "{said:?}");
    assert!(first >= Duration::from_secs(2), "{first:?}");
    let (said, later) = edit();
    assert!(said.err.contains("does not answer"), "{said:?}");
    assert!(later < first / 2, "{later:?} after {first:?}");
    silent.pass_on(Etcd::shared().endpoints().next().unwrap());
    until("it answers", || edit().0.code == 0);
}

#[test]
fn a_member_that_hangs_is_not_asked_first_again() {
    let silent = Silent::new();
    let real = Etcd::shared().endpoints().next().unwrap();
    let url = format!("etcd://{},{real}/hung", silent.endpoint());
    let project = Project::uninitialised();
    let (said, first) = timed(&project, &url, "locks list");
    said.exits(0);
    assert!(first >= Duration::from_secs(2), "{first:?}");
    let (said, second) = timed(&project, &url, "locks list");
    said.exits(0);
    assert!(second < first / 2, "{second:?} after {first:?}");
}

#[test]
fn a_signal_ends_a_call_of_a_cluster_that_does_not_answer() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let silent = Silent::new();
        let url = format!("etcd://{}/signal", silent.endpoint());
        let project = Project::uninitialised();
        let call = project.call("run build --wait 10m");
        let run = call.env("TENURE_STORE", url).sh("true").start();
        // It asks, so it catches signals.
        let (_connection, _) = silent.listener.accept().unwrap();
        run.signal(signal);
        // Without the signal it would ask for five seconds, and fail.
        run.ended().exits(code);
    }
}

/// A run under a key of a cluster of its own, whose command lasts until the file `go` is there.
fn holding(cluster: &Etcd, project: &Project, words: &str) -> Running {
    let call = project
        .call(words)
        .env("TENURE_STORE", cluster.address("run"));
    let run = call
        .sh("echo $$; until [ -e go ]; do sleep 0.05; done; exit 5")
        .start();
    until("the command runs", || !run.out().is_empty());
    run
}

#[test]
fn a_run_that_has_ended_waits_for_its_cluster_no_longer_than_its_lease_lasts() {
    let cluster = Etcd::start(1);
    let project = Project::uninitialised();
    let run = holding(&cluster, &project, "run build --ttl 10s");
    cluster.stop(0);
    project.write("go", "");
    let began = Stopwatch::start();
    let said = run.ended().exits(5);
    assert!(said.err.contains("could not be released"), "{said:?}");
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn ctrl_c_ends_a_run_although_its_cluster_is_away() {
    let cluster = Etcd::start(1);
    // While the command runs.
    let project = Project::uninitialised();
    let run = holding(&cluster, &project, "run build --ttl 1h");
    let other = Project::uninitialised();
    let ended = holding(&cluster, &other, "run other --ttl 1h");
    cluster.stop(0);
    let began = Stopwatch::start();
    run.signal(Signal::INT);
    run.ended().exits(130);
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    // After it has ended, while its key is being released.
    let command = ended.command();
    other.write("go", "");
    until("the command ends", || {
        crate::project::process::members(command).is_empty()
    });
    let began = Stopwatch::start();
    ended.signal(Signal::INT);
    let said = ended.ended().exits(130);
    assert!(said.err.contains("could not be released"), "{said:?}");
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    // Their leases last for an hour, but this machine knows that they have exited.
    cluster.go_on(0);
    for key in ["build", "other"] {
        until("it is free", || {
            let call = project.call(&format!("run {key} --no-wait"));
            let said = call
                .env("TENURE_STORE", cluster.address("run"))
                .sh("true")
                .end();
            assert_ne!(said.code, 6, "{said:?}");
            said.code == 0
        });
    }
}

#[test]
fn a_lease_that_could_not_be_released_because_the_login_changed_is_known_to_be_over() {
    let cluster = Etcd::start(1);
    let root = |words: &str| {
        let words: Vec<&str> = words.split(' ').collect();
        assert!(cluster.etcdctl(&words).status.success(), "{words:?}");
    };
    for words in [
        "user add root:r",
        "user grant-role root root",
        "role add ci",
        "role grant-permission ci --prefix=true readwrite run/",
        "user add ci:old",
        "user add late:new",
        "user grant-role ci ci",
        "user grant-role late ci",
        "auth enable",
    ] {
        root(words);
    }
    let project = Project::uninitialised();
    let url = |login: &str| cluster.address("run").replace("//", &format!("//{login}@"));
    let call = project
        .call("run build --ttl 1h")
        .env("TENURE_STORE", url("ci:old"));
    let run = call
        .sh("echo $$; until [ -e go ]; do sleep 0.05; done")
        .start();
    until("the command runs", || !run.out().is_empty());
    root("--user root:r user delete ci");
    project.write("go", "");
    let said = run.ended().exits(0);
    assert!(said.err.contains("could not be released"), "{said:?}");
    let call = project
        .call("run build --no-wait")
        .env("TENURE_STORE", url("late:new"));
    call.sh("true").end().exits(0);
}

#[test]
fn what_hinders_a_connection_is_named_with_the_parameter_and_not_tried_again() {
    let project = Project::uninitialised();
    project.shell(super::etcd::CERTIFICATES).end().exits(0);
    let file = |name: &str| project.path(name).display().to_string();
    let plain = Etcd::shared().endpoints().next().unwrap();
    let (cert, key, ca) = (file("good.pem"), file("key"), file("ca.pem"));
    let options = [["--cert-file", &cert], ["--key-file", &key]].concat();
    let encrypted = Etcd::start_unasked(1, &options);
    let endpoint = encrypted.endpoints().next().unwrap();
    let ours = format!("etcd://{endpoint}/tls?ca={ca}");
    until("it answers", || {
        timed(&project, &ours, "locks list").0.code == 0
    });
    for (url, why, fix) in [
        (
            format!("etcd://{endpoint}/tls"),
            "the member uses TLS",
            "?ca=FILE",
        ),
        (
            format!("etcd://{endpoint}/tls?tls"),
            "certificate",
            "check ?ca=",
        ),
        (
            format!("etcd://{plain}/tls?ca={ca}"),
            "does not use it",
            "leave out ?tls",
        ),
        (
            "etcd://no-such-host.invalid/x".to_owned(),
            "",
            "correct the name",
        ),
    ] {
        // A memory of its own.
        let project = Project::uninitialised();
        let (said, took) = timed(&project, &url, "locks list");
        let said = said.fails(1, &[why, fix]);
        assert!(took < Duration::from_secs(4), "{took:?} {said:?}");
        if !why.is_empty() {
            timed(&project, &url, "store check").0.fails(1, &[why, fix]);
        }
    }
}

#[test]
fn a_member_without_a_leader_is_reported_as_such() {
    let mut cluster = Etcd::start(3);
    let url = cluster.address("leaderless");
    cluster.kill(0);
    cluster.kill(1);
    let project = Project::uninitialised();
    until("it knows that it has no leader", || {
        let (said, _) = timed(&project, &url, "store check");
        said.code == 1 && said.err.contains("no leader  ")
    });
    // Nobody has waited for it on this machine.
    let project = Project::uninitialised();
    let (said, took) = timed(&project, &url, "store check --json");
    assert!(took < Duration::from_secs(10), "{took:?}");
    let said = said.exits(1).json();
    let members = said["error"]["details"]["members"].as_array().unwrap();
    let last = &members[2];
    assert!(
        last["error"].is_null() && last["hasLeader"] == false,
        "{last}"
    );
}

#[test]
fn a_store_that_can_not_be_read_is_not_an_empty_one() {
    let silent = Silent::new();
    let url = format!("etcd://{}/status", silent.endpoint());
    let project = Project::uninitialised();
    let (said, _) = timed(&project, &url, "status");
    let said = said.fails(1, &["unknown; ", "can't be read", "does not answer"]);
    assert!(!said.err.contains("nothing, as"), "{said:?}");
    let (said, _) = timed(&project, &url, "status --json");
    said.exits(1);
}
