//! A real etcd cluster on this machine: [`Etcd`].

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::limit::within_limit;
use crate::peers::Peers;

/// The members of a cluster. They end with the process that started them, even if it is killed.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    peers: Option<Peers>,
    _folder: Folder,
}

/// One member: how it is started, and its process while it runs.
#[derive(Debug)]
struct Member {
    endpoint: String,
    arguments: Vec<String>,
    log: PathBuf,
    running: Option<Running>,
}

/// A process that ends when this is dropped, or with this process.
#[derive(Debug)]
struct Running {
    shell: Child,
    open: Option<ChildStdin>,
    pid: Pid,
}

/// Starts etcd, and stops it when standard input is closed. SIGKILL: there is nothing to save.
const UNTIL_CLOSED: &str = r#"exec 3<&0
"$@" </dev/null 3<&- >/dev/null &
etcd=$!
echo $etcd
read -r _ <&3
kill -9 $etcd
wait"#;

/// Removes a folder when standard input is closed.
const REMOVE_WHEN_CLOSED: &str = r#"read -r _
for try in 1 2 3 4 5 6 7 8 9; do rm -rf "$1" && exit; sleep 0.2; done"#;

impl Etcd {
    /// Starts a cluster with so many members, and waits until it answers.
    pub fn start(members: usize) -> Self {
        Self::start_with(members, &[])
    }

    /// The same, with more options of etcd.
    pub fn start_with(members: usize, options: &[&str]) -> Self {
        let cluster = Self::start_unasked(members, options);
        cluster.until_all_answer();
        cluster
    }

    /// The same, without waiting until it answers.
    pub fn start_unasked(members: usize, options: &[&str]) -> Self {
        Self::launch(members, options, |_| None)
    }

    /// A cluster whose members can be cut off from one another.
    pub fn start_divisible(members: usize) -> Self {
        let cluster = Self::launch(members, &[], |listening| Some(Peers::of(listening)));
        cluster.until_all_answer();
        let names = (0..members).map(|member| format!("{:x}", cluster.status(member).unwrap().id));
        cluster.peers.as_ref().unwrap().name(names.collect());
        cluster
    }

    fn launch(
        members: usize,
        options: &[&str],
        between: impl FnOnce(&[String]) -> Option<Peers>,
    ) -> Self {
        let folder = Folder::new();
        let address = || format!("127.0.0.1:{}", free_port());
        let clients: Vec<String> = (0..members).map(|_| address()).collect();
        let listening: Vec<String> = (0..members).map(|_| address()).collect();
        let peers = between(&listening);
        let known_as = |number: usize| match &peers {
            Some(peers) => peers.address(number).to_owned(),
            None => listening[number].clone(),
        };
        let all: Vec<String> = (0..members)
            .map(|number| format!("m{number}=http://{}", known_as(number)))
            .collect();
        let all = all.join(",");
        let members = (0..members)
            .map(|number| {
                let peer = (listening[number].as_str(), known_as(number));
                Member::new(folder.path(), number, &clients[number], peer, &all)
            })
            .collect();
        let mut cluster = Self {
            members,
            peers,
            _folder: folder,
        };
        for member in &mut cluster.members {
            if options.contains(&"--cert-file") {
                let plain = format!("http://{}", member.endpoint);
                for argument in member.arguments.iter_mut().filter(|one| **one == plain) {
                    *argument = format!("https://{}", member.endpoint);
                }
            }
            let options = options.iter().map(ToString::to_string);
            member.arguments.extend(options);
            member.start();
        }
        cluster
    }

    /// A cluster of one member that all tests of this process share.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Etcd> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(1))
    }

    /// A cluster of three members that all tests of this process share.
    pub fn shared_of_three() -> &'static Self {
        static SHARED: OnceLock<Etcd> = OnceLock::new();
        SHARED.get_or_init(|| Self::start(3))
    }

    /// Waits until a majority of the members answers.
    pub fn until_it_answers(&self) {
        within_limit("etcd to answer", || self.answers());
    }

    /// Waits until every member answers. One that has not joined when a majority is killed would never answer.
    fn until_all_answer(&self) {
        self.until_it_answers();
        for member in 0..self.members.len() {
            within_limit("every member of etcd to answer", || {
                self.status(member).is_some()
            });
        }
    }

    /// The address of a store in this cluster.
    pub fn address(&self, prefix: &str) -> String {
        let endpoints: Vec<&str> = self.endpoints().collect();
        format!("etcd://{}/{prefix}", endpoints.join(","))
    }

    /// The members, as `HOST:PORT`.
    pub fn endpoints(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.endpoint.as_str())
    }

    /// Kills a member.
    pub fn kill(&mut self, member: usize) {
        self.members[member].running = None;
    }

    /// Starts a member that was killed, with the data that it had.
    pub fn restart(&mut self, member: usize) {
        self.members[member].start();
    }

    /// Saves a snapshot of the cluster.
    pub fn save(&self, snapshot: &Path) {
        let saved = etcdctl(
            &self.members[0].endpoint,
            &["snapshot", "save", &shown(snapshot)],
        );
        assert!(saved.status.success(), "{saved:?}");
    }

    /// Restores a snapshot in the place of the only member. With the same `token`, it is the same cluster as before
    /// (`etcd-cluster` is the one that etcd chooses).
    pub fn restore(&mut self, snapshot: &Path, token: &str) {
        self.kill(0);
        let member = &mut self.members[0];
        let of = |option: &str| {
            let at = member.arguments.iter().position(|one| one == option);
            member.arguments[at.unwrap() + 1].clone()
        };
        std::fs::remove_dir_all(of("--data-dir")).unwrap();
        let mut restore = Command::new("etcdctl");
        restore.env("ETCDCTL_API", "3");
        restore.args(["snapshot", "restore", &shown(snapshot)]);
        for option in [
            "--name",
            "--data-dir",
            "--initial-cluster",
            "--initial-advertise-peer-urls",
        ] {
            restore.args([option, &of(option)]);
        }
        let restored = restore
            .args(["--initial-cluster-token", token])
            .output()
            .unwrap();
        assert!(restored.status.success(), "{restored:?}");
        self.restart(0);
        self.until_it_answers();
    }

    /// Stops a member with SIGSTOP: its connections stay open, and it does not answer.
    pub fn stop(&self, member: usize) {
        self.signal(member, Signal::STOP);
    }

    /// Lets a stopped member go on.
    pub fn go_on(&self, member: usize) {
        self.signal(member, Signal::CONT);
    }

    fn signal(&self, member: usize, signal: Signal) {
        let running = self.members[member].running.as_ref().unwrap();
        kill_process(running.pid, signal).unwrap();
    }

    /// Cuts a member of a divisible cluster off from the others; its clients still reach it.
    pub fn cut_off(&self, member: usize) {
        self.peers.as_ref().unwrap().cut(member, true);
    }

    /// Connects a member with the others again.
    pub fn connect(&self, member: usize) {
        self.peers.as_ref().unwrap().cut(member, false);
    }

    /// Runs `etcdctl` on the cluster.
    pub fn etcdctl(&self, arguments: &[&str]) -> std::process::Output {
        let endpoints: Vec<&str> = self.endpoints().collect();
        etcdctl(&endpoints.join(","), arguments)
    }

    /// The leader, as it sees itself; `None` while there is none.
    pub fn leader(&self) -> Option<usize> {
        let leads = |member: &usize| {
            let status = self.status(*member);
            status.is_some_and(|status| status.id == status.leader)
        };
        (0..self.members.len()).find(leads)
    }

    /// Makes another member the leader. Returns whether that was possible.
    pub fn move_leader(&self) -> bool {
        let Some(leader) = self.leader() else {
            return false;
        };
        let Some(next) = self.status((leader + 1) % self.members.len()) else {
            return false;
        };
        let endpoint = &self.members[leader].endpoint;
        let moved = etcdctl(endpoint, &["move-leader", &format!("{:x}", next.id)]);
        moved.status.success()
    }

    /// What a member says of itself, if it answers.
    fn status(&self, member: usize) -> Option<Status> {
        let endpoint = &self.members[member].endpoint;
        let arguments = [
            "endpoint",
            "status",
            "-w",
            "json",
            "--command-timeout",
            "2s",
        ];
        let said = etcdctl(endpoint, &arguments);
        let said: Value = serde_json::from_slice(&said.stdout).ok()?;
        let status = &said[0]["Status"];
        Some(Status {
            id: status["header"]["member_id"].as_u64()?,
            leader: status["leader"].as_u64()?,
        })
    }

    fn answers(&self) -> bool {
        let put = self.etcdctl(&["put", "tenure-testkit", "started"]);
        put.status.success()
    }
}

/// What a member says of itself.
struct Status {
    id: u64,
    /// The leader that it follows.
    leader: u64,
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn etcdctl(endpoints: &str, arguments: &[&str]) -> std::process::Output {
    Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", endpoints, "--dial-timeout", "2s"])
        .args(arguments)
        .output()
        .unwrap()
}

impl Member {
    fn new(
        folder: &Path,
        number: usize,
        endpoint: &str,
        (listening, known_as): (&str, String),
        all: &str,
    ) -> Self {
        let client = format!("http://{endpoint}");
        let (peer, known_as) = (format!("http://{listening}"), format!("http://{known_as}"));
        let data = folder.join(format!("m{number}")).display().to_string();
        let name = format!("m{number}");
        let arguments = [
            ["--name", &name],
            ["--data-dir", &data],
            ["--listen-client-urls", &client],
            ["--advertise-client-urls", &client],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &known_as],
            ["--initial-cluster", all],
            ["--initial-cluster-state", "new"],
            ["--logger", "zap"],
            ["--log-level", "warn"],
        ];
        Self {
            endpoint: endpoint.to_owned(),
            arguments: arguments.concat().iter().map(ToString::to_string).collect(),
            log: folder.join(format!("{name}.log")),
            running: None,
        }
    }

    fn start(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .unwrap();
        let mut shell = Command::new("sh")
            .args(["-c", UNTIL_CLOSED, "sh", "etcd"])
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut pid = String::new();
        let told = BufReader::new(shell.stdout.take().unwrap()).read_line(&mut pid);
        told.unwrap();
        self.running = Some(Running {
            open: shell.stdin.take(),
            shell,
            pid: Pid::from_raw(pid.trim().parse().unwrap()).unwrap(),
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.open.take());
        let _ = self.shell.wait();
    }
}

/// The folder of a cluster. It is removed when this is dropped, or when this process ends.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    shell: Child,
}

impl Folder {
    fn new() -> Self {
        // In memory, if possible: etcd syncs each write to its disk, which is not under test.
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let path = TempDir::keep(place.unwrap());
        let shell = Command::new("sh")
            .args(["-c", REMOVE_WHEN_CLOSED, "sh"])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        Self { path, shell }
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
