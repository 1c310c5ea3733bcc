//! The command on a real etcd cluster.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod project;

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
    place
        .tenure("locks release build --force --as boss")
        .exits(0);
    place.tenure("locks cleanup").exits(0);
    assert_eq!(
        place.history("build"),
        "granted, released, granted, released, granted, forced"
    );
    let said = place.tenure("store check").exits(0);
    assert!(said.out.contains("leader"), "{said:?}");
    assert!(said.out.contains("0 held, 0 waiting, 6 events"), "{said:?}");
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
    let place = with("ci:pa55word@", "team");
    let said = place.call("run build").sh("echo got").end().exits(0);
    assert_eq!(said.out, "got\n");
    for words in ["locks history", "store check", "init", "locks list --json"] {
        let said = place.tenure(words).exits(0);
        assert!(!format!("{said:?}").contains("pa55w"), "{said:?}");
    }
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
    place.call("run other --wait 1m").sh("true").end().exits(0);
    place
        .tenure("run build --no-wait -- true")
        .fails(6, &["locked"]);
    held.killed();
}

/// Makes an authority, and certificates that it signed: of a server that has expired, of a good one, of a client.
const CERTIFICATES: &str = r"set -e
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
}
