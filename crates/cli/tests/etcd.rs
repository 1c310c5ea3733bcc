//! The command on a real etcd cluster.

use crate::project;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use project::{Call, Project, Running, Said, process, until};
use rustix::process::Signal;
use tenure_testkit::Etcd;

/// A folder without a project, and a store in a cluster.
struct Place {
    project: Project,
    url: String,
}

impl Place {
    /// In the cluster that the tests of this file share.
    fn shared(prefix: &str) -> Self {
        Self::on(Etcd::shared(), prefix)
    }

    fn on(cluster: &Etcd, prefix: &str) -> Self {
        Self {
            project: Project::uninitialised(),
            url: cluster.address(prefix),
        }
    }

    fn call(&self, words: &str) -> Call {
        let call = self.project.call(words);
        call.env("TENURE_STORE", &self.url)
    }

    #[track_caller]
    fn tenure(&self, words: &str) -> Said {
        self.call(words).end()
    }

    /// Runs a command that lasts, under a key.
    fn hold(&self, words: &str) -> Running {
        let run = self.call(words).sh("echo $$; exec sleep 300").start();
        until("the command runs", || !run.out().is_empty());
        run
    }

    fn history(&self, key: &str) -> String {
        let said = self.tenure(&format!("locks history {key} --json")).exits(0);
        let events = said.json()["data"]["events"].clone();
        let words = events.as_array().unwrap().iter().map(|event| {
            let kind = event["event"].as_str().or_else(|| event["kind"].as_str());
            kind.unwrap().to_owned()
        });
        words.collect::<Vec<_>>().join(", ")
    }
}

#[test]
fn every_command_for_keys_works_on_a_cluster() {
    let place = Place::shared("commands");
    let token = place
        .tenure("acquire build --as me --ttl 1h -q")
        .exits(0)
        .out;
    let token = token.trim();
    for words in ["locks list", "locks show build", "locks"] {
        let said = place.tenure(words).exits(0);
        assert!(
            said.out.contains("me") && said.out.contains(token),
            "{said:?}"
        );
    }
    place
        .tenure("run build --no-wait -- true")
        .fails(6, &["locked by me"]);
    place
        .tenure(&format!("fence build --token {token}"))
        .exits(0);
    place.tenure("renew build --as me").exits(0);
    place.tenure("release build --as other").exits(5);
    place.tenure("release build --as me").exits(0);
    place
        .tenure(&format!("fence build --token {token}"))
        .exits(7);
    let run = place
        .call("run build")
        .sh("echo $TENURE_TOKEN")
        .end()
        .exits(0);
    let later: u64 = run.out.trim().parse().unwrap();
    assert!(later > token.parse().unwrap(), "tokens grow: {run:?}");
    place.tenure("acquire build --as me --ttl 1h").exits(0);
    place.tenure("force build --as boss").exits(0);
    place.tenure("locks cleanup").exits(0);
    assert_eq!(
        place.history("build"),
        "granted, released, granted, released, granted, forced"
    );
    place.tenure("sections add S").exits(0);
    for title in ["One", "Two"] {
        place.tenure(&format!("tasks add {title}")).exits(0);
    }
    let said = place.tenure("store check").exits(0);
    assert!(said.out.contains("leader"), "{said:?}");
    let contents = "0 held, 0 waiting, 6 events, 2 tasks, 1 section\n";
    assert!(said.out.contains(contents), "{said:?}");
}

/// How many bytes a cluster of one member has sent to its clients.
fn sent(cluster: &Etcd) -> f64 {
    let mut stream = TcpStream::connect(cluster.endpoints().next().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let name = "etcd_network_client_grpc_sent_bytes_total ";
    let count = page.lines().find_map(|line| line.strip_prefix(name));
    // It is a decimal number with an exponent if it is large.
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn looking_at_one_key_does_not_read_the_others() {
    let cluster = Etcd::start(1);
    let place = Place::on(&cluster, "one-of-many");
    place.tenure("acquire build --as me --ttl 1h").exits(0);
    let cost = |words: &str| {
        let before = sent(&cluster);
        let said = place.tenure(words).exits(0);
        assert!(said.out.contains("me"), "{said:?}");
        sent(&cluster) - before
    };
    let looks = ["locks show build", "why build"];
    let alone = looks.map(cost);
    let names: Vec<String> = (0..300).map(|number| format!("other-{number}")).collect();
    for some in names.chunks(30) {
        let words = format!("acquire {} --as other --ttl 1h", some.join(" "));
        place.tenure(&words).exits(0);
    }
    // `locks show` reads the history since then, for what its holder is asked.
    place.tenure("release build --as me").exits(0);
    place.tenure("acquire build --as me --ttl 1h").exits(0);
    for (look, alone) in looks.into_iter().zip(alone) {
        let crowded = cost(look);
        // All records of the others are about 100,000 bytes.
        assert!(crowded < alone + 5_000.0, "{look}: {alone}, then {crowded}");
    }
    assert!(cost("locks list") > 50_000.0, "it reads all of them");
    // Nor does looking for a key that nobody holds, or for one by the beginning of its name or its id.
    place.tenure("acquire node:4.2 --as me --ttl 1h").exits(0);
    for (look, code) in [
        ("locks show nobody", 4),
        ("locks show buil", 0),
        ("locks show 4.2", 0),
        ("force 4.2 --as boss", 0),
    ] {
        let before = sent(&cluster);
        place.tenure(look).exits(code);
        let crowded = sent(&cluster) - before;
        assert!(crowded < 15_000.0, "{look}: {crowded}");
    }
}

#[test]
fn a_key_that_can_not_be_released_does_not_stop_the_next() {
    let cluster = Etcd::shared();
    let place = Place::on(cluster, "all-but-one");
    for key in ["build", "task:a", "zone"] {
        place
            .tenure(&format!("acquire {key} --as me --ttl 1h"))
            .exits(0);
    }
    // No step on tasks can be taken.
    let damage = ["put", "all-but-one/t/g", "nonsense"];
    assert!(cluster.etcdctl(&damage).status.success());
    let said = place.tenure("release --all --as me");
    said.fails(1, &["task:a is not released", "others were: 2 leases"]);
    let said = place.tenure("locks list -q").exits(0);
    assert!(said.out.contains("task:a"), "{said:?}");
    assert!(!said.out.contains("zone"), "{said:?}");
}

#[test]
fn every_command_that_looks_works_on_a_cluster_without_a_project() {
    let place = Place::shared("looks");
    place.tenure("acquire build --as me --ttl 1h").exits(0);
    for (words, expected) in [
        ("status", "looks: 1 held, 0 waiting"),
        ("doctor", "1 store and 0 locks of other tools examined"),
        ("why build", "build is held by me"),
        ("timeline", "build: me (token"),
        ("locks verify", "1 event, 1 grant"),
        ("locks list --all", "build "),
        ("reservations", "Nothing is reserved"),
    ] {
        let said = place.tenure(words).exits(0);
        assert!(said.out.contains(expected), "{words}: {said:?}");
        place.tenure(&format!("{words} --json")).exits(0);
    }
    // What is suggested works as it is.
    let said = place.tenure("why build").exits(0);
    assert!(!said.out.contains("--store"), "{said:?}");
    // The same with the store on the command line, as it was written there.
    place.project.tenure("status").exits(3);
    let named = format!("--store {}", place.url.replace("//", "//ci@"));
    let said = place.project.tenure(&format!("why build {named}")).exits(0);
    let wait = format!("--wait 30m {named} -- CMD");
    assert!(said.out.contains(&wait), "{said:?}");
    // A project's own locks are named, because its commands use the cluster.
    let local = Project::new();
    local.tenure("acquire build --as me --ttl 1h").exits(0);
    let said = local
        .call("why build")
        .env("TENURE_STORE", &place.url)
        .end();
    assert!(said.out.contains("--wait 30m -- CMD"), "{said:?}");
    assert!(
        said.out.contains("--store sqlite:.tenure/tenure.db"),
        "{said:?}"
    );
}

#[test]
fn a_configuration_file_chooses_a_cluster_and_holds_no_password() {
    let place = Place::shared("configured");
    let local = Project::new();
    let configure = |url: &str| {
        local.write(".tenure/config.yaml", &format!("store:\n  url: {url}\n"));
    };
    configure(&place.url);
    local.tenure("acquire build --as me --ttl 1h").exits(0);
    local.tenure("tasks add Task").exits(0);
    for words in [
        "locks list",
        "status",
        "why build",
        "tasks list",
        "store check",
    ] {
        let here = local.tenure(words).exits(0);
        let there = place.tenure(words).exits(0);
        assert_eq!(
            here.out.contains("me"),
            there.out.contains("me"),
            "{here:?}"
        );
    }
    assert_eq!(place.history("build"), "granted");
    let shown = local.tenure("config show").exits(0);
    assert!(shown.out.contains(&place.url), "{shown:?}");
    let said = local.tenure("sync").fails(2, &["store.url", &place.url]);
    assert!(!said.err.contains("TENURE_STORE"), "{said:?}");
    // What is nearer to the command wins.
    let other = format!("{}-too", place.url);
    let said = local.call("locks list").env("TENURE_STORE", &other).end();
    assert_eq!(said.exits(0).out, "No locks.\n");
    let said = local.tenure("locks list --store sqlite:.tenure/tenure.db");
    assert_eq!(said.exits(0).out, "No locks.\n");
    for secret in ["ci:pa55word@", "ci:@"] {
        configure(&place.url.replace("//", &format!("//{secret}")));
        let said = local
            .tenure("locks list")
            .fails(2, &["store.url", "password-file"]);
        assert!(!format!("{said:?}").contains("pa55w"), "{said:?}");
    }
    configure("own");
    assert_eq!(local.tenure("locks list").exits(0).out, "No locks.\n");
}

/// Passes connections on to a member, but what it says by HTTP/1 has another date.
fn with_another_clock(member: &str) -> String {
    const DATE: &[u8] = b"Date: ";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let member = member.to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(&member).unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let (mut from, mut to) = (server, client);
            std::thread::spawn(move || {
                let mut first = vec![0; 16 * 1024];
                let length = from.read(&mut first).unwrap_or(0);
                first.truncate(length);
                let at = first.windows(DATE.len()).position(|part| part == DATE);
                if let Some(at) = at.filter(|_| first.starts_with(b"HTTP/1")) {
                    let date = b"Thu, 01 Jan 1970 00:00:00 GMT";
                    first[at + DATE.len()..][..date.len()].copy_from_slice(date);
                }
                let _ = to.write_all(&first);
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

#[test]
fn a_check_reports_clock_quota_login_and_members_that_the_address_leaves_out() {
    let cluster = Etcd::shared_of_three();
    let place = Place::on(cluster, "checked");
    let said = place.tenure("store check --json").exits(0).json();
    let (data, members) = (&said["data"], said["data"]["members"].as_array().unwrap());
    assert_eq!(members.len(), 3);
    assert_eq!(
        (&data["clusterSize"], &data["loginRequired"]),
        (&3.into(), &false.into())
    );
    let leaders = members.iter().filter(|member| member["leader"] == true);
    assert_eq!(leaders.count(), 1);
    for member in members {
        assert_eq!(member["clockAheadSeconds"], 0, "{member}");
        let default = 2_u64 << 30;
        assert_eq!(member["quota"], default, "{member}");
    }
    let first = cluster.endpoints().next().unwrap();
    let one = |member: &str| Place {
        project: Project::uninitialised(),
        url: format!("etcd://{member}/checked"),
    };
    let said = one(first).tenure("store check").exits(0);
    assert!(
        said.out
            .contains("the cluster has 3 members, the address names 1"),
        "{said:?}"
    );
    let late = one(&with_another_clock(first));
    let said = late
        .tenure("store check")
        .fails(1, &["s behind this machine's", "NTP"]);
    assert!(
        said.err.contains("Reads:"),
        "it is used nevertheless: {said:?}"
    );
    late.tenure("run build -- true").exits(0);
}

#[test]
fn a_killed_holder_is_replaced_at_once_on_its_own_machine() {
    let place = Place::shared("killed");
    let holder = place.hold("run build --ttl 1h");
    let waiter = place.call("run build").sh("echo got").start();
    until("it waits", || waiter.err().contains("1st in the queue"));
    holder.killed();
    let said = waiter.ended().exits(0);
    assert_eq!(said.out, "got\n");
    assert_eq!(place.history("build"), "granted, dead, granted, released");
}

#[test]
fn a_command_is_stopped_when_its_lease_can_not_be_renewed() {
    let cluster = Etcd::start(1);
    let place = Place::on(&cluster, "lost");
    let run = place.hold("run build --ttl 2s");
    let group = run.command();
    // Its connections stay open: only the missing answers say it.
    cluster.stop(0);
    let said = run.ended().exits(7);
    assert!(said.err.contains("lost"), "{said:?}");
    until("the command is gone", || process::members(group).is_empty());
    cluster.go_on(0);
    // The lease of the process that is gone ends by itself, if its machine does not prove it.
    let again = place.call("run build --wait 30s").sh("echo got").end();
    assert_eq!(again.exits(0).out, "got\n");
}

#[test]
fn a_wait_ends_soon_after_its_limit_although_the_cluster_is_silent() {
    let cluster = Etcd::start(1);
    let place = Place::on(&cluster, "silent");
    place.tenure("acquire build --as other --ttl 1h").exits(0);
    let waiter = place.call("run build --wait 2s").sh("true").start();
    until("it waits", || waiter.err().contains("1st in the queue"));
    cluster.stop(0);
    waiter.ended().fails(1, &["does not answer"]);
}

#[test]
fn a_wait_survives_a_cluster_that_is_away_for_longer_than_a_call_may_take() {
    let mut cluster = Etcd::start(1);
    let place = Place::on(&cluster, "away");
    place.tenure("acquire build --as other --ttl 1h").exits(0);
    let waiter = place.call("run build --wait 30m").sh("echo got").start();
    until("it waits", || waiter.err().contains("1st in the queue"));
    cluster.kill(0);
    // As long as a call without a limit of its own may take.
    std::thread::sleep(Duration::from_secs(60));
    until("it says that the cluster is away", || {
        waiter.err().contains("the wait goes on until its limit")
    });
    cluster.restart(0);
    cluster.until_it_answers();
    // One that comes now is behind it.
    let later = place.call("run build --wait 30m").sh("echo later").start();
    until("the other one waits", || {
        later.err().contains("2nd in the queue")
    });
    place.tenure("release build --as other").exits(0);
    let said = waiter.ended().exits(0);
    assert_eq!(said.out, "got\n");
    assert!(said.err.contains("the store answers again"), "{said:?}");
    assert_eq!(later.ended().exits(0).out, "later\n");
}

#[test]
fn the_end_of_an_expired_lease_is_not_the_moment_of_looking() {
    let place = Place::shared("ended");
    let granted = place
        .tenure("acquire build --as me --ttl 2s --json")
        .exits(0);
    let end = granted.json()["data"]["expiresAt"]
        .as_str()
        .unwrap()
        .to_owned();
    let end = end.get(.."2026-11-18T08:48:00".len()).unwrap().to_owned();
    let looks = || place.tenure("locks show build").exits(0).out;
    until("it has expired", || {
        looks().contains("expired: it expired at")
    });
    let began = tenure_testkit::limit::Stopwatch::start();
    until("time passes", || began.elapsed() > Duration::from_secs(1));
    assert!(looks().contains(&format!("it expired at {end}")), "{end}");
    place.tenure("locks cleanup").exits(0);
    let history = place.tenure("locks history build").exits(0).out;
    assert!(
        history.contains(&format!("it expired at {end}")),
        "{end}: {history}"
    );
}

#[test]
fn an_end_whose_time_is_not_known_is_not_invented() {
    let (cluster, place) = (Etcd::shared(), Place::shared("unknown-end"));
    place.tenure("acquire gone --as me --ttl 1h").exits(0);
    place.tenure("acquire broken --as me --ttl 1h").exits(0);
    cluster.etcdctl(&["put", "unknown-end/k/broken/l/0", "nonsense"]);
    for key in ["gone", "broken"] {
        cluster.etcdctl(&["del", &format!("unknown-end/k/{key}/a/0")]);
        let shown = place.tenure(&format!("locks show {key}")).exits(0).out;
        assert!(
            shown.contains("it expired; when is not known") && !shown.contains("1970"),
            "{shown}"
        );
        let json = place.tenure(&format!("locks show {key} --json")).exits(0);
        assert_eq!(
            json.json()["data"]["leases"][0]["expiresAt"],
            serde_json::Value::Null,
            "{json:?}"
        );
    }
    let listed = place.tenure("timeline").exits(0).out;
    assert!(!listed.contains("1970"), "{listed}");
    place.tenure("locks cleanup").exits(0);
    for key in ["gone", "broken"] {
        let history = place.tenure(&format!("locks history {key}")).exits(0).out;
        assert!(
            history.contains("it expired; when is not known") && !history.contains("1970"),
            "{history}"
        );
        let json = place
            .tenure(&format!("locks history {key} --json"))
            .exits(0);
        let events = json.json()["data"]["events"].clone();
        let events = events.as_array().unwrap();
        let ended = events.iter().find(|event| event["evidence"].is_object());
        let evidence = &ended.unwrap()["evidence"];
        assert!(evidence["expiredAt"].is_null(), "{evidence}");
    }
}

#[test]
fn a_stopped_run_learns_that_its_lease_was_taken_over() {
    let place = Place::shared("stopped");
    let run = place.hold("run build --as sleeper --ttl 2s");
    run.signal(Signal::STOP);
    let other = place
        .call("run build --wait 1m")
        .sh("echo $TENURE_TOKEN; exec sleep 300");
    let other = other.start();
    until("the lease has expired and was taken over", || {
        !other.out().is_empty()
    });
    run.signal(Signal::CONT);
    let said = run.ended().exits(7);
    assert!(said.err.contains("lost"), "{said:?}");
    assert_eq!(place.history("build"), "granted, expired, granted");
    other.killed();
}

#[test]
fn a_login_that_is_refused_says_so_and_no_output_contains_a_password() {
    let cluster = Etcd::start(1);
    for words in [
        "user add root:root",
        "user grant-role root root",
        "role add ci",
        "role grant-permission ci --prefix=true readwrite team/",
        "user add ci:pa55word",
        "user grant-role ci ci",
        "role add reader",
        "role grant-permission reader --prefix=true read team/",
        "user add reader:pa55word",
        "user grant-role reader reader",
        "auth enable",
    ] {
        let arguments: Vec<&str> = words.split(' ').collect();
        let said = cluster.etcdctl(&arguments);
        assert!(said.status.success(), "{words}: {said:?}");
    }
    let with = |login: &str, prefix: &str| {
        let url = cluster.address(prefix).replace("//", &format!("//{login}"));
        Place {
            project: Project::uninitialised(),
            url,
        }
    };
    let refused = |place: &Place, words: &[&str]| {
        let said = place.tenure("run build -- true").fails(1, words);
        assert!(!format!("{said:?}").contains("pa55w"), "{said:?}");
    };
    refused(&with("", "team"), &["does not accept the login"]);
    refused(
        &with("ci:pa55wrong@", "team"),
        &["does not accept the login"],
    );
    refused(
        &with("ci:pa55word@", "other"),
        &["does not allow it", "prefix"],
    );
    // A check tells a member that does not answer from a login that is refused.
    for (login, prefix, words) in [
        (
            "",
            "team",
            ["Login:    required", "does not accept the login"],
        ),
        (
            "ci:pa55wrong@",
            "team",
            ["Login:    required", "does not accept the login"],
        ),
        (
            "ci:pa55word@",
            "other",
            ["Login:    ci", "does not allow it"],
        ),
        (
            "reader:pa55word@",
            "team",
            ["Login:    reader", "does not allow it"],
        ),
    ] {
        let said = with(login, prefix).tenure("store check").fails(1, &words);
        assert!(said.err.contains("  leader  "), "{said:?}");
        assert!(!format!("{said:?}").contains("pa55w"), "{said:?}");
    }
    with("reader:pa55word@", "team")
        .tenure("locks list")
        .exits(0);
    let place = with("ci:pa55word@", "team");
    let said = place.call("run build").sh("echo got").end().exits(0);
    assert_eq!(said.out, "got\n");
    for words in [
        "locks history --json",
        "store check --json",
        "store check",
        "init",
        "locks list --json",
        "status --json",
        "doctor --json",
        "why build --json",
        "timeline --json",
        "locks verify --json",
        "config show",
        "config show --json",
        "locks list --all",
        "tasks add T --json",
    ] {
        let said = place.tenure(words).exits(0);
        assert!(!format!("{said:?}").contains("pa55w"), "{said:?}");
    }
    // A file for the password: a configuration file may name it, from the project's root.
    let local = Project::new();
    local.write("password", "pa55word\n");
    let by_file = place.url.replace(":pa55word", "") + "?password-file=password";
    local.write(
        ".tenure/config.yaml",
        &format!("store:\n  url: {by_file}\n"),
    );
    std::fs::create_dir(local.path("inner")).unwrap();
    let said = local.tenure("-C inner run build -- echo got").exits(0);
    assert_eq!(said.out, "got\n");
    local.write("password", "pa55wrong\n");
    let said = local.tenure("run build -- true");
    let said = said.fails(1, &["does not accept the login"]);
    assert!(!format!("{said:?}").contains("pa55w"), "{said:?}");
    std::fs::remove_file(local.path("password")).unwrap();
    local
        .tenure("run build -- true")
        .fails(1, &["password file", "can't be read"]);
    // On a command line, every user of the machine could read it.
    let url = &place.url;
    let said = place.tenure(&format!("run build --store {url} -- true"));
    let said = said.fails(2, &["TENURE_ETCD_PASSWORD"]);
    assert!(!format!("{said:?}").contains("pa55w"), "{said:?}");
    let by_name = url.replace(":pa55word", "");
    let call = place.project.call(&format!("--store {by_name} run build"));
    let call = call.env("TENURE_ETCD_PASSWORD", "pa55word").sh("echo got");
    assert_eq!(call.end().exits(0).out, "got\n");
}

#[test]
fn what_is_no_store_of_this_version_is_refused_and_left_alone() {
    let cluster = Etcd::shared();
    for (version, words) in [
        ("99", ["newer tenure", "update tenure"]),
        ("hello", ["holds something else", "another prefix"]),
    ] {
        let place = Place::shared(&format!("version-{version}"));
        let key = format!("version-{version}/v");
        cluster.etcdctl(&["put", &key, version]);
        place.tenure("run build -- true").fails(1, &words);
        place.tenure("locks list").fails(1, &words);
        place.tenure("store check").fails(1, &[]);
        let found = cluster.etcdctl(&["get", "--prefix", &format!("version-{version}/")]);
        let found = String::from_utf8(found.stdout).unwrap();
        assert_eq!(found, format!("{key}\n{version}\n"));
    }
}

#[test]
fn a_cluster_without_space_is_reported_and_recovers() {
    let cluster = Etcd::start_with(1, &["--quota-backend-bytes", "1000000"]);
    let place = Place::on(&cluster, "full");
    let token = place
        .tenure("acquire build --as me --ttl 1h -q")
        .exits(0)
        .out;
    let big = "x".repeat(100_000);
    until("the quota is used up", || {
        !cluster.etcdctl(&["put", "big", &big]).status.success()
    });
    place
        .tenure("run other -- true")
        .fails(1, &["no space left", "quota"]);
    place.tenure("store check").fails(1, &["NOSPACE"]);
    let said = place.tenure("doctor").exits(1);
    assert!(said.out.contains("NOSPACE"), "{said:?}");
    // What needs no space works.
    place
        .tenure(&format!("fence build --token {}", token.trim()))
        .exits(0);
    let status = cluster.etcdctl(&["get", "big", "-w", "json"]);
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let revision = status["header"]["revision"].to_string();
    for words in [
        vec!["del", "big"],
        vec!["compact", &revision],
        vec!["defrag"],
        vec!["alarm", "disarm"],
    ] {
        cluster.etcdctl(&words);
    }
    until("it recovers", || {
        place.tenure("run other -- true").code == 0
    });
}

#[test]
fn one_of_three_members_may_fail_and_without_a_majority_a_call_ends() {
    let mut cluster = Etcd::start(3);
    let place = Place::on(&cluster, "members");
    let held = place.hold("run build --ttl 1h");
    // The one that is asked first.
    cluster.kill(0);
    let said = place.call("run other --wait 1m").sh("echo got").end();
    assert_eq!(said.exits(0).out, "got\n");
    let said = place.tenure("store check").fails(1, &["does not answer"]);
    assert!(said.err.contains("unreachable"), "{said:?}");
    cluster.kill(1);
    let said = place.tenure("run other -- true").exits(1);
    assert!(said.err.contains("etcd://"), "{said:?}");
    cluster.restart(0);
    cluster.restart(1);
    cluster.until_it_answers();
    // It was silent a moment ago, so that it is asked briefly.
    until("it answers", || {
        place.call("run other --wait 1m").sh("true").end().code == 0
    });
    place
        .tenure("run build --no-wait -- true")
        .fails(6, &["locked"]);
    held.killed();
}

/// Makes an authority, and certificates that it signed: of a server that has expired, of a good one, of a client.
pub(crate) const CERTIFICATES: &str = r"set -e
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca
printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' > extensions
openssl req -newkey rsa:2048 -nodes -keyout key -out request -subj /CN=tenure
for name in good:2 expired:-1; do
  openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -out ${name%:*}.pem \
    -days ${name#*:} -extfile extensions
done";

#[test]
fn an_encrypted_connection_needs_certificates_that_are_valid() {
    let project = Project::uninitialised();
    project.shell(CERTIFICATES).end().exits(0);
    let file = |name: &str| project.path(name).display().to_string();
    let (ca, key) = (file("ca.pem"), file("key"));
    for server in ["good", "expired"] {
        let cert = file(&format!("{server}.pem"));
        let cluster = Etcd::start_unasked(
            1,
            &[
                ["--cert-file", &cert],
                ["--key-file", &key],
                ["--trusted-ca-file", &ca],
            ]
            .concat(),
        );
        let endpoint = cluster.endpoints().next().unwrap();
        let run = |parameters: &str| {
            let url = format!("etcd://{endpoint}/tls?{parameters}");
            let call = project.call("run build").env("TENURE_STORE", url);
            call.sh("echo got").end()
        };
        let ours = format!("ca={ca}&cert={}&key={key}", file("good.pem"));
        if server == "expired" {
            until("it is refused", || {
                let said = run(&ours).exits(1);
                said.err.contains("Expired") && said.err.contains("when the certificates expire")
            });
            continue;
        }
        until("it answers", || run(&ours).code == 0);
        let url = format!("etcd://{endpoint}/tls?{ours}");
        let check = project.call("store check --json").env("TENURE_STORE", url);
        let check = check.end().exits(0).json();
        assert_eq!(
            check["data"]["members"][0]["clockAheadSeconds"], 0,
            "{check}"
        );
        assert!(check["data"]["members"][0]["quota"].is_u64(), "{check}");
        run(&format!("ca={ca}")).fails(1, &["can't be reached"]);
        run("tls").fails(1, &["certificate", "?ca="]);
    }
}

#[test]
fn an_address_that_makes_no_sense_is_refused_at_once() {
    let project = Project::uninitialised();
    for (url, words) in [
        ("etcd://", "names no host"),
        ("etcd://h:x/p", "not HOST or HOST:PORT"),
        ("etcd://h/p?colour=red", "not a parameter"),
        ("etcd://h/p?cert=a", "belong together"),
    ] {
        let said = project.call("run build").env("TENURE_STORE", url);
        said.sh("true").end().fails(2, &[words]);
    }
    let missing = project
        .call("run build")
        .env("TENURE_STORE", "etcd://h/p?ca=/nowhere");
    missing
        .sh("true")
        .end()
        .fails(1, &["/nowhere can't be read"]);
    let nobody = project
        .call("run build")
        .env("TENURE_STORE", "etcd://127.0.0.1:1/p");
    let said = nobody.sh("true").end();
    said.fails(1, &["can't be reached", "refused"]);
    // What can't be read is not free.
    let why = project
        .call("why build")
        .env("TENURE_STORE", "etcd://127.0.0.1:1/p");
    why.end().fails(1, &["can't be reached", "refused"]);
}

/// The number of tasks with each status, as words.
fn statuses(place: &Place) -> String {
    let said = place.tenure("tasks list --limit 0 --json").exits(0);
    let mut counts = std::collections::BTreeMap::new();
    for task in said.json()["data"]["tasks"].as_array().unwrap() {
        let status = task["status"].as_str().unwrap().to_owned();
        *counts.entry(status).or_insert(0) += 1;
    }
    let words = counts
        .iter()
        .map(|(status, count)| format!("{count} {status}"));
    words.collect::<Vec<_>>().join(", ")
}

#[test]
fn every_command_for_tasks_works_on_a_cluster() {
    let place = Place::shared("task-commands");
    place.tenure("sections add Backend").exits(0);
    let first = place
        .tenure("tasks add First --section Backend -q")
        .exits(0);
    let first = first.out.trim().to_owned();
    let add = format!("tasks add Second --depends-on {first} --priority 9 -q");
    let second = place.tenure(&add).exits(0).out.trim().to_owned();
    let again = place.tenure("tasks add First --once").exits(0);
    assert!(again.out.contains("exists already"), "{again:?}");
    let next = place.tenure("tasks next --as me --json").exits(0).json();
    assert_eq!(next["data"]["id"], first.as_str(), "{next}");
    let token = &next["data"]["token"];
    let update = format!("tasks update {first} --status completed");
    place
        .tenure(&format!("{update} --as other"))
        .fails(6, &["locked by runner me"]);
    place
        .tenure(&format!("{update} --token 1"))
        .fails(7, &["was lost"]);
    place.tenure(&format!("{update} --token {token}")).exits(0);
    place
        .tenure("tasks update Second --status in_progress --as late")
        .exits(0);
    let listed = place.tenure("tasks list").exits(0).out;
    assert!(
        listed.contains("Second") && listed.contains("in_progress"),
        "{listed}"
    );
    place
        .tenure("tasks delete Second")
        .fails(6, &["locked by runner late"]);
    place
        .tenure("tasks update Second --status pending --as late")
        .exits(0);
    let exported = place.tenure("tasks export").exits(0).out;
    let other = Place::shared("task-commands-too");
    other.project.write("lines", &exported);
    let imported = other.tenure("tasks import lines").exits(0);
    assert!(imported.out.contains("2 tasks added"), "{imported:?}");
    assert_eq!(other.tenure("tasks export").exits(0).out, exported);
    place.tenure("tasks work --as me -- true").exits(0);
    assert_eq!(statuses(&place), "2 completed");
    let history = place.tenure("tasks show First").exits(0);
    assert!(history.out.contains("completed"), "{history:?}");
    place
        .tenure(&format!("tasks delete {first} {second}"))
        .exits(0);
    place.tenure("sections delete Backend").exits(0);
    assert_eq!(statuses(&place), "");
    place.tenure("sync").fails(2, &["TENURE_STORE"]);
    assert_eq!(place.tenure("locks list").exits(0).out, "No locks.\n");
}

#[test]
fn runners_that_are_killed_leave_no_task_undone_and_do_none_twice() {
    const RUNNERS: usize = 8;
    const TASKS: usize = 40;
    let place = Place::shared("runners");
    for name in ["One", "Two", "Three"] {
        place.tenure(&format!("sections add {name}")).exits(0);
    }
    let line = |n: usize| match n % 4 {
        0 => format!("{{\"title\":\"Task {n}\"}}\n"),
        section => {
            let name = ["One", "Two", "Three"][section - 1];
            format!("{{\"title\":\"Task {n}\",\"section\":\"{name}\"}}\n")
        }
    };
    let lines: String = (0..TASKS).map(line).collect();
    place.project.write("lines", &lines);
    place.tenure("tasks import lines").exits(0);
    let script = r#"sleep 0.05; echo ended >> "ended-$TENURE_TASK_ID""#;
    let start = |n: usize| {
        let words = format!("tasks work --as runner-{n} --ttl 1h");
        place.call(&words).sh(script).start()
    };
    let mut runners: Vec<Running> = (0..RUNNERS).map(start).collect();
    let ended = || {
        let files = std::fs::read_dir(place.project.root()).unwrap();
        let names = files.map(|file| file.unwrap().file_name());
        let done = names.filter(|name| name.to_string_lossy().starts_with("ended-"));
        done.count()
    };
    let mut kills = 0;
    for n in 0..RUNNERS / 2 {
        until("some tasks are done", || ended() > n * 4);
        runners.remove(0).killed();
        kills += 1;
        runners.push(start(RUNNERS + n));
    }
    for runner in runners {
        runner.ended().exits(0);
    }
    assert_eq!(statuses(&place), format!("{TASKS} completed"));
    assert_eq!(ended(), TASKS, "after {kills} kills");
    let mut lines = 0;
    let listed = place.tenure("tasks list --limit 0 --json").exits(0);
    for task in listed.json()["data"]["tasks"].as_array().unwrap() {
        let id = task["id"].as_str().unwrap();
        lines += place.project.read(&format!("ended-{id}")).lines().count();
        // One runner ended it, and those before it are dead.
        let history = place.history(&format!("task:{id}"));
        let deaths = history.strip_suffix("granted, released").unwrap();
        assert_eq!(deaths.replace("granted, dead, ", ""), "", "{history}");
    }
    // A runner that is killed between the end of its command and its report leaves one task to do again.
    assert!(lines <= TASKS + kills, "{lines} commands ended");
}

#[test]
fn tasks_are_copied_to_a_cluster_and_back_and_nothing_gets_lost() {
    let place = Place::shared("copy");
    let local = Project::new();
    local.tenure("sections add Backend").exits(0);
    local.tenure("sections add Empty").exits(0);
    let mut first = String::new();
    for n in 0..60 {
        let on = match n {
            0 => String::new(),
            _ => format!("--depends-on {first}"),
        };
        let words = format!("tasks add Task-{n} --section Backend --description Text-{n} {on} -q");
        let said = local.tenure(&words).exits(0);
        if n == 0 {
            said.out.trim().clone_into(&mut first);
        }
    }
    local
        .tenure("tasks update Task-59 --status skipped --as me")
        .exits(0);
    let copy = |from: &str, to: &str, words: &str| {
        local.tenure(&format!("store copy {from} {to} {words}"))
    };
    let here = "sqlite:.tenure/tenure.db";
    local
        .tenure("tasks update Task-0 --status in_progress --as me")
        .exits(0);
    copy(here, &place.url, "").fails(6, &["Task-0", "--as-pending", "nothing was copied"]);
    assert_eq!(statuses(&place), "");
    local
        .tenure("tasks update Task-0 --status pending --as me")
        .exits(0);
    let exported = local.tenure("tasks export").exits(0).out;
    let said = copy(here, &place.url, "").exits(0);
    assert!(
        said.out.contains("Copied 60 tasks and 2 sections"),
        "{said:?}"
    );
    assert_eq!(place.tenure("tasks export").exits(0).out, exported);
    // Once more: nothing is new.
    let said = copy(here, &place.url, "--json").exits(0).json();
    assert_eq!(said["data"]["addedTasks"], 0);
    assert_eq!(said["data"]["tasks"], 60);
    // And back, into another database.
    copy(&place.url, "sqlite:back.db", "").exits(0);
    let back = local.tenure("--store sqlite:back.db tasks export").exits(0);
    assert_eq!(back.out, exported);
    // What differs is not overwritten.
    place.tenure("tasks update Task-1 --title Other").exits(0);
    copy(here, &place.url, "").fails(1, &["Other", "nothing was copied"]);
    copy(&place.url, "sqlite:back.db", "").fails(1, &["Task-1"]);
    copy(here, here, "").fails(2, &["the same store"]);
    copy("sqlite:nowhere.db", &place.url, "").fails(4, &["nowhere.db"]);
    // A task in progress can be copied as a pending one.
    place
        .tenure("tasks update Task-0 --status in_progress --as me")
        .exits(0);
    copy(&place.url, "sqlite:third.db", "").fails(6, &["Task-0"]);
    copy(&place.url, "sqlite:third.db", "--as-pending").exits(0);
    let third = local.tenure("--store sqlite:third.db tasks show Task-0");
    assert!(third.exits(0).out.contains("pending"));
}

/// The numbers and keys of the events that `watch --json` has printed so far.
fn events(watch: &Running) -> Vec<(u64, String)> {
    let text = watch.out();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let lines = whole
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    lines
        .inspect(|line| assert_ne!(line["type"], "gap", "{line}"))
        .filter(|line| line["type"] == "event")
        .map(|line| {
            let key = line["key"].as_str().unwrap().to_owned();
            (line["id"].as_u64().unwrap(), key)
        })
        .collect()
}

#[test]
fn a_cluster_is_watched_and_its_events_are_followed_from_one_on() {
    let place = Place::shared("watched");
    place.tenure("acquire first --as me").exits(0);
    let watch = place.call("watch --json").start();
    until("it watches", || watch.out().contains("\"start\""));
    let _holder = place.hold("run build --as agent --ttl 1h");
    until("the grant is printed", || events(&watch).len() == 1);
    assert_eq!(events(&watch)[0].1, "build");
    let all = place.call("watch --json --since 0").start();
    until("both are printed", || events(&all).len() == 2);
    let (first, key) = events(&all)[0].clone();
    assert_eq!(key, "first");
    let rest = place.call(&format!("watch --json --since {first}")).start();
    until("the rest is printed", || !events(&rest).is_empty());
    assert_eq!(events(&rest), events(&watch));
    // Without a project on this machine, and with a wait as long as it is.
    let _waiter = place.call("run build --as next --wait 1h -- true").start();
    until("the wait is told", || {
        let said = place.tenure("why build").exits(0).out;
        said.contains("1st in the queue: next (pid") && !said.contains("), for 0s")
    });
}

#[test]
fn a_damaged_key_and_task_are_repaired_and_no_advice_names_etcdctl() {
    let cluster = Etcd::shared();
    let place = Place::shared("repair");
    place.tenure("acquire build --as me --ttl 1h").exits(0);
    place.tenure("acquire other --as me --ttl 1h").exits(0);
    let tasks = ["First", "Second", "Third"].map(|title| {
        let said = place.tenure(&format!("tasks add {title} -q")).exits(0);
        said.out.trim().to_owned()
    });
    cluster.etcdctl(&["put", "repair/k/build/l/0", "nonsense"]);
    cluster.etcdctl(&["put", &format!("repair/t/t/{}", tasks[0]), "nonsense"]);
    // Everything else is listed, and the record is named.
    let said = place.tenure("locks").exits(0);
    assert!(said.out.contains("other"), "{said:?}");
    let said = place.tenure("locks show build").exits(0);
    assert!(said.out.contains("repair/k/build/l/0"), "{said:?}");
    place.tenure("locks verify").exits(0);
    let said = place.tenure("doctor").exits(1);
    assert!(said.out.contains("repair/k/build/l/0"), "{said:?}");
    assert!(said.out.contains(&tasks[0]), "{said:?}");
    let said = place.tenure("timeline").exits(0);
    assert!(said.out.contains("other"), "{said:?}");
    // It may be in use, so it stays until it is taken away.
    let said = place.tenure("store repair build");
    assert!(said.err.contains("tenure force build"), "{said:?}");
    assert_eq!(said.code, 1, "{said:?}");
    place.tenure("run build --no-wait -- true").exits(6);
    place.tenure("force build --reason damaged").exits(0);
    place.tenure("run build -- true").exits(0);
    // The damaged task is in nobody's way.
    let said = place.tenure("tasks next --as runner --json").exits(0);
    assert_eq!(said.json()["data"]["id"], tasks[1].as_str());
    // It is shown with its problem, and the others with it.
    let name = format!("repair/t/t/{}", tasks[0]);
    for words in ["tasks list", &format!("tasks show {}", tasks[0])] {
        let said = place.tenure(words).exits(0).out;
        let bad = said.lines().find(|line| line.contains(&name)).unwrap();
        assert!(
            bad.contains("malformed") && bad.contains("tenure store repair"),
            "{said}"
        );
        assert!(!said.contains("etcdctl"), "{said}");
    }
    assert_eq!(place.tenure("tasks list").exits(0).out.lines().count(), 4);
    let said = place.tenure("tasks export").exits(0);
    assert_eq!(said.out.lines().count(), 3, "{said:?}");
    assert!(
        said.err.contains(&name) && said.err.contains("stand-ins"),
        "{said:?}"
    );
    place
        .tenure(&format!(
            "tasks update {} --status in_progress --as other",
            tasks[0]
        ))
        .fails(1, &[&name, "tenure store repair"]);
    let said = place
        .tenure(&format!("store repair task:{}", tasks[0]))
        .exits(0);
    assert!(said.out.contains("nonsense"), "{said:?}");
    place.tenure("tasks list").exits(0);
    let said = place.tenure("store repair").exits(0);
    assert_eq!(said.out, "Nothing had to be repaired.\n");
}

#[test]
fn an_event_that_can_not_be_understood_is_named_wherever_the_history_is_shown() {
    let place = Place::shared("damaged-event");
    for _ in 0..2 {
        place.tenure("run build -- true").exits(0);
    }
    let names = Etcd::shared().etcdctl(&["get", "--prefix", "--keys-only", "damaged-event/e/"]);
    let names = String::from_utf8(names.stdout).unwrap();
    let event = names.lines().next().unwrap();
    Etcd::shared().etcdctl(&["put", event, "{"]);
    let history = place.tenure("locks history").exits(0).out;
    assert_eq!(history.matches("build").count(), 3, "{history}");
    let json = place.tenure("locks history --json").exits(0).json();
    let problem = json["data"]["problems"][0].as_str().unwrap().to_owned();
    assert!(problem.contains(event), "{problem}");
    for said in [
        history,
        place.tenure("locks history build").exits(0).out,
        place.tenure("timeline").exits(0).out,
        place.tenure("locks verify").exits(1).err,
    ] {
        assert!(said.contains(&problem), "{said}");
    }
    let said = place.tenure("doctor").exits(1).out;
    assert!(said.contains(event), "{said}");
    let said = place.tenure("store repair").exits(0).out;
    assert!(said.contains(event), "{said}");
    place.tenure("locks verify").exits(0);
}

#[test]
fn a_restored_cluster_is_reported_and_grants_nothing_until_it_is_repaired() {
    let mut cluster = Etcd::start(1);
    let place = Place::on(&cluster, "team");
    place.tenure("run early -- true").exits(0);
    let backup = place.project.path("backup");
    cluster.save(&backup);
    let before: u64 = place
        .tenure("acquire build --as me --ttl 1h -q")
        .exits(0)
        .out
        .trim()
        .parse()
        .unwrap();
    cluster.restore(&backup, "another");
    for words in [
        "store check",
        "doctor",
        "locks verify",
        "acquire build --as you",
    ] {
        let said = place.tenure(words).exits(1);
        let text = format!("{}{}", said.out, said.err);
        assert!(text.contains("restored from a backup"), "{words}: {said:?}");
    }
    // What it holds can be read.
    place.tenure("locks").exits(0);
    let said = place.tenure("store repair").exits(0);
    assert!(said.out.contains("Raised the tokens"), "{said:?}");
    place.tenure("store check").exits(0);
    let after: u64 = place
        .tenure("acquire build --as you --ttl 1h -q")
        .exits(0)
        .out
        .trim()
        .parse()
        .unwrap();
    assert!(after > before, "{after} after {before}");
}
