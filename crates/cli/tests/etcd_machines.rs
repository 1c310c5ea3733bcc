//! Two machines that share an etcd cluster, and what their own transactions may depend on.
//!
//! A machine is made of namespaces: it has a network, pids, a host name, a boot id and a `/tmp` of its own. All of
//! them, and the cluster, are inside one more namespace, so nothing of it touches the real machine.

use crate::project;

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use project::{Call, Project, Running, Said, TENURE, until};
use tenure_testkit::Etcd;

/// The network: a bridge with the cluster on it, and the two machines. `$1` is a folder for files, `$2` the command
/// under test.
const NETWORK: &str = r#"set -e
mount --make-rprivate /
ip link set lo up
ip link add name bridge type bridge
ip addr add 10.9.0.1/24 dev bridge
ip link set bridge up
mkdir "$1/etcd"
etcd --name m0 --data-dir "$1/etcd" --logger zap --log-level error \
  --listen-client-urls http://10.9.0.1:2379 --advertise-client-urls http://10.9.0.1:2379 \
  --listen-peer-urls http://10.9.0.1:2380 --initial-advertise-peer-urls http://10.9.0.1:2380 \
  --initial-cluster m0=http://10.9.0.1:2380 >"$1/etcd.log" 2>&1 &
number=2
for name in red blue; do
  ip link add name $name type veth peer name $name-inside
  ip link set $name master bridge up
  echo "00000000-0000-4000-8000-00000000000$number" >"$1/$name.boot"
  MACHINE=$name unshare --net --mount --pid --uts --fork --kill-child --mount-proc \
    sh -c "$MACHINE_INIT" sh "$1" "$2" &
  echo $! >"$1/$name.pid"
  # The network namespace is there when the process has another one.
  while [ "$(readlink /proc/$!/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
  ip link set $name-inside netns $!
  echo 10.9.0.$number >"$1/$name.address"
  number=$((number + 1))
done
while ! ETCDCTL_API=3 etcdctl --endpoints 10.9.0.1:2379 put started yes >/dev/null 2>&1; do sleep 0.1; done
for name in red blue; do
  while [ ! -e "$1/$name.ready" ]; do sleep 0.05; done
done
echo ready
wait"#;

/// A machine, from inside.
const MACHINE_INIT: &str = r#"set -e
hostname $MACHINE
mount --bind "$1/$MACHINE.boot" /proc/sys/kernel/random/boot_id
# Its own /tmp, in which the files of the test keep their places.
mount --bind /tmp /mnt
mount -t tmpfs none /tmp
for path in "$1" "$(dirname "$2")"; do
  case $path in /tmp/*) mkdir -p "$path"; mount --bind "/mnt/${path#/tmp/}" "$path" ;; esac
done
ip link set lo up
while [ ! -s "$1/$MACHINE.address" ]; do sleep 0.05; done
ip addr add "$(cat "$1/$MACHINE.address")/24" dev $MACHINE-inside
ip link set $MACHINE-inside up
: >"$1/$MACHINE.ready"
while :; do sleep 60; done"#;

struct Network {
    project: Project,
    outer: Running,
}

#[derive(Clone, Copy)]
struct Machine<'a> {
    network: &'a Network,
    name: &'a str,
}

impl Network {
    /// `None` where a user can't make namespaces, or the programs for it are missing.
    fn new() -> Option<Self> {
        let project = Project::uninitialised();
        let possible = "ip link add name red type bridge && ip link add name blue type veth peer name inside \
                        && mount --bind /proc/version /proc/sys/kernel/random/boot_id && nsenter --version";
        let try_out = project.prepare(unshare(&project, possible)).end();
        if try_out.code != 0 {
            tenure_testkit::left_out(&format!("no namespaces here ({})", try_out.err.trim()));
            return None;
        }
        let mut command = unshare(&project, NETWORK);
        command.arg("sh").arg(project.root()).arg(TENURE);
        let call = project.prepare(command);
        let outer = call.env("MACHINE_INIT", MACHINE_INIT).start();
        let network = Self { project, outer };
        until("the machines run", || network.outer.out() == "ready\n");
        Some(network)
    }

    fn machine<'a>(&'a self, name: &'a str) -> Machine<'a> {
        Machine {
            network: self,
            name,
        }
    }

    /// A program beside the cluster.
    fn beside(&self) -> Command {
        let mut command = self.project.program("nsenter");
        command
            .args([
                "--user",
                "--preserve-credentials",
                "--net",
                "--mount",
                "--pid",
            ])
            .args(["--target", &first_child(self.outer.pid()).unwrap()]);
        command
    }

    fn shell(&self, script: &str) -> Said {
        let mut command = self.beside();
        command.args(["sh", "-c", script]);
        self.project.prepare(command).end()
    }
}

fn unshare(project: &Project, script: &str) -> Command {
    let mut command = project.program("unshare");
    command
        .args(["--map-root-user", "--net", "--mount", "--pid", "--fork"])
        .args(["--kill-child", "--mount-proc", "sh", "-c", script]);
    command
}

fn first_child(pid: u32) -> Option<String> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next().map(str::to_owned)
}

impl Machine<'_> {
    fn shell_call(self, script: &str) -> Call {
        let mut command = self.network.beside();
        // The first process of the machine, as the network sees it.
        let pid = self.network.project.read(&format!("{}.pid", self.name));
        let pid = pid.trim();
        let inside = format!(
            "read pid _ </proc/{pid}/task/{pid}/children; \
             exec nsenter --net --mount --pid --uts --target $pid sh -c \"$0\""
        );
        command.args(["sh", "-c", &inside, &format!("cd \"$PLACE\"; {script}")]);
        let call = self.network.project.prepare(command);
        call.env("TENURE_STORE", "etcd://10.9.0.1:2379/team")
            .env("PLACE", self.network.project.root())
    }

    fn shell(self, script: &str) -> Said {
        self.shell_call(script).end()
    }

    /// Runs `tenure` on this machine.
    fn tenure(self, words: &str) -> Said {
        self.shell(&format!("exec $TENURE {words}"))
    }

    /// Starts `tenure run` with a command that lasts; its first line says its pid on that machine.
    fn hold(self, words: &str) -> Running {
        let script =
            format!("echo $$; exec $TENURE run {words} -- sh -c 'echo runs; exec sleep 300'");
        let run = self.shell_call(&script).start();
        until("the command runs", || run.out().contains("runs"));
        run
    }

    /// Kills what [`Self::hold`] started.
    fn kill(self, held: &Running) {
        self.shell(&format!("kill -9 {}", held.command())).exits(0);
    }

    /// Starts a waiter, and returns when it waits.
    fn queue(self, words: &str) -> Running {
        let waiter = self
            .shell_call(&format!("exec $TENURE run {words} -- echo got"))
            .start();
        until("it waits", || waiter.err().contains("1st in the queue"));
        waiter
    }

    fn history(self, key: &str) -> String {
        let said = self.tenure(&format!("locks history {key} --json")).exits(0);
        let events = said.json()["data"]["events"].as_array().unwrap().clone();
        let kinds = events
            .iter()
            .map(|event| event["event"].as_str().unwrap_or_default());
        kinds.collect::<Vec<_>>().join(", ")
    }
}

#[test]
fn a_dead_holder_is_proven_dead_on_its_machine_and_expires_on_another() {
    let Some(network) = Network::new() else {
        return;
    };
    let (red, blue) = (network.machine("red"), network.machine("blue"));
    // An hour: only the proof of its death can free the key.
    let held = red.hold("local --ttl 1h");
    let shown = blue.tenure("locks list").exits(0);
    assert!(shown.out.contains("@red:"), "{shown:?}");
    let here = red.queue("local --wait 1m");
    red.kill(&held);
    assert_eq!(here.ended().exits(0).out, "got\n");
    assert_eq!(blue.history("local"), "granted, dead, granted, released");

    let held = red.hold("remote --ttl 1h");
    red.kill(&held);
    blue.tenure("run remote --no-wait -- true")
        .fails(6, &["locked by", "@red:"]);
    let there = blue.queue("remote --wait 1m");
    red.tenure("locks cleanup").exits(0);
    assert_eq!(there.ended().exits(0).out, "got\n", "the cleanup wakes it");
    assert_eq!(blue.history("remote"), "granted, dead, granted, released");

    let held = red.hold("expired --ttl 2s");
    let there = blue.queue("expired --wait 1m");
    red.kill(&held);
    assert_eq!(there.ended().exits(0).out, "got\n");
    assert_eq!(
        red.history("expired"),
        "granted, expired, granted, released"
    );
}

#[test]
fn a_machine_that_is_cut_off_stops_its_command_before_another_gets_the_key() {
    let Some(network) = Network::new() else {
        return;
    };
    let (red, blue) = (network.machine("red"), network.machine("blue"));
    let script = "exec $TENURE run build --ttl 3s -- sh -c \
                  'trap \"cut -d\\\" \\\" -f1 /proc/uptime >stopped; exit 9\" TERM; echo runs; while :; do sleep 0.01; done'";
    let held = red.shell_call(script).start();
    until("the command runs", || held.out().contains("runs"));
    let waiter = blue.shell_call(
        "exec $TENURE run build --wait 1m -- sh -c 'cut -d\" \" -f1 /proc/uptime >granted; echo got'",
    );
    let waiter = waiter.start();
    until("it waits", || waiter.err().contains("1st in the queue"));
    network.shell("ip link set red down").exits(0);
    let said = held.ended().exits(7);
    assert!(said.err.contains("lost"), "{said:?}");
    assert_eq!(waiter.ended().exits(0).out, "got\n");
    let at = |name: &str| network.project.read(name).trim().parse::<f64>().unwrap();
    assert!(
        at("stopped") <= at("granted"),
        "{} {}",
        at("stopped"),
        at("granted")
    );
    let refused = red.tenure("run build -- true").exits(1);
    assert!(
        refused.err.contains("can't be reached") || refused.err.contains("does not answer"),
        "{refused:?}"
    );
    network.shell("ip link set red up").exits(0);
    until("the machine is back", || {
        red.tenure("run build -- true").code == 0
    });
    assert!(
        blue.history("build")
            .starts_with("granted, expired, granted, released")
    );
}

#[test]
fn runners_on_two_machines_work_on_each_task_once_and_in_a_section_alone() {
    let Some(network) = Network::new() else {
        return;
    };
    let (red, blue) = (network.machine("red"), network.machine("blue"));
    // A third of them outside of the sections.
    let line = |number: usize| {
        let section = ["", r#","section":"a""#, r#","section":"b""#][number % 3];
        format!("{{\"id\":\"t{number}\",\"title\":\"T\"{section}}}\n")
    };
    let lines: String = (0..24).map(line).collect();
    network.project.write("tasks", &lines);
    red.shell("$TENURE sections add a && $TENURE sections add b && $TENURE tasks import tasks")
        .exits(0);
    // The witness is a file that each command appends to, one line at a time. No command ends before both machines work.
    let script = r#"exec $TENURE tasks work --quiet -- sh -c '
        echo "begin $TENURE_TASK_ID $(hostname)" >>witness
        until grep -q red witness && grep -q blue witness; do sleep 0.02; done
        echo "end $TENURE_TASK_ID $(hostname)" >>witness'"#;
    let runners = [red, blue].map(|machine| machine.shell_call(script).start());
    for runner in runners {
        runner.ended().exits(0);
    }
    let witness = network.project.read("witness");
    let section = |id: &str| id[1..].parse::<usize>().unwrap() % 3;
    let (mut begun, mut under_way) = (Vec::new(), Vec::<&str>::new());
    for line in witness.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let id = words[1];
        if words[0] == "begin" {
            assert!(!begun.contains(&id), "{id} was begun twice: {witness}");
            begun.push(id);
            let mut others = under_way.iter().map(|other| section(other));
            let alone = section(id) == 0 || others.all(|other| other != section(id));
            assert!(alone, "two runners are in the section of {id}: {witness}");
            under_way.push(id);
        } else {
            under_way.retain(|other| *other != id);
        }
    }
    assert_eq!(begun.len(), 24, "{witness}");
    let left = blue.tenure("tasks list --status completed --limit 0 --json");
    let left = left.exits(0).json()["data"]["tasks"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(left, 24);
}

/// A store in a cluster that the tests of this file share.
fn shared(prefix: &str) -> (Project, String) {
    (Project::uninitialised(), Etcd::shared().address(prefix))
}

/// Makes an etcd transaction that writes if all comparisons hold; whether they did.
fn write_if(comparisons: &[String], value: &str) -> bool {
    let endpoint = Etcd::shared().endpoints().next().unwrap();
    let mut etcdctl = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", endpoint, "txn"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = format!("{}\n\nput protected {value}\n\n\n", comparisons.join("\n"));
    let mut input = etcdctl.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let said = etcdctl.wait_with_output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8(said.stdout).unwrap();
    said.starts_with("SUCCESS")
}

#[test]
fn a_transaction_with_the_comparisons_of_an_outdated_token_writes_nothing() {
    let (project, url) = shared("comparisons");
    let tenure = |words: &str| project.call(words).env("TENURE_STORE", &url).end();
    let granted = |ttl: &str| {
        let said = tenure(&format!("acquire build --as me --ttl {ttl} -q")).exits(0);
        let token = said.out.trim().to_owned();
        let said = tenure(&format!("fence build --token {token} --json")).exits(0);
        let lines = said.json()["data"]["comparisons"].clone();
        let lines: Vec<String> = serde_json::from_value(lines).unwrap();
        assert_eq!(lines.len(), 2, "{said:?}");
        lines
    };
    let first = granted("1h");
    assert!(write_if(&first, "1"));
    tenure("renew build --as me").exits(0);
    assert!(write_if(&first, "2"), "they outlive a renewal");
    tenure("release build --as me").exits(0);
    assert!(!write_if(&first, "3"), "released");
    let second = granted("1h");
    assert!(!write_if(&first, "4"), "taken over by the same name");
    assert!(write_if(&second, "5"));
    tenure("force build --as boss").exits(0);
    let third = granted("2s");
    until("it expires", || !write_if(&third, "6"));
    let found =
        Etcd::shared().etcdctl(&["get", "comparisons/k/build/l/", "--prefix", "--keys-only"]);
    assert!(
        !found.stdout.is_empty(),
        "no other process has ended the lease yet"
    );
}

#[test]
fn a_run_timeout_that_is_set_counts_even_if_it_is_the_usual_one() {
    let (project, url) = shared("timeout");
    let ttl = |key: &str, set: Option<&str>| {
        let call = project
            .call(&format!("run {key}"))
            .env("TENURE_STORE", &url);
        let call = match set {
            Some(time) => call.env("TENURE_LOCKING_RUN_TIMEOUT", time),
            None => call,
        };
        let run = call.sh("echo $$; exec sleep 300").start();
        until("the command runs", || !run.out().is_empty());
        let prefix = format!("timeout/k/{key}/l/");
        let found = Etcd::shared().etcdctl(&["get", &prefix, "--prefix", "--print-value-only"]);
        run.killed();
        let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
        found["ttl"]["secs"].as_u64()
    };
    assert_eq!(ttl("unset", None), Some(30));
    assert_eq!(ttl("usual", Some("5m")), Some(300));
    assert_eq!(ttl("other", Some("7m")), Some(420));
}
