//! A real etcd cluster on this machine: [`Etcd`].

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::limit::within_limit;

/// The members of a cluster. They end with the process that started them, even if it is killed.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
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
        cluster.until_it_answers();
        cluster
    }

    /// The same, without waiting until it answers.
    pub fn start_unasked(members: usize, options: &[&str]) -> Self {
        let folder = Folder::new();
        let ports: Vec<(u16, u16)> = (0..members).map(|_| (free_port(), free_port())).collect();
        let peers: Vec<String> = ports
            .iter()
            .enumerate()
            .map(|(number, (_, peer))| format!("m{number}=http://127.0.0.1:{peer}"))
            .collect();
        let peers = peers.join(",");
        let members = ports
            .iter()
            .enumerate()
            .map(|(number, ports)| Member::new(folder.path(), number, *ports, &peers))
            .collect();
        let mut cluster = Self {
            members,
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

    /// Runs `etcdctl` on the cluster.
    pub fn etcdctl(&self, arguments: &[&str]) -> std::process::Output {
        let endpoints: Vec<&str> = self.endpoints().collect();
        Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoints.join(","), "--dial-timeout", "2s"])
            .args(arguments)
            .output()
            .unwrap()
    }

    fn answers(&self) -> bool {
        let put = self.etcdctl(&["put", "tenure-testkit", "started"]);
        put.status.success()
    }
}

impl Member {
    fn new(folder: &Path, number: usize, (client, peer): (u16, u16), peers: &str) -> Self {
        let endpoint = format!("127.0.0.1:{client}");
        let (client, peer) = (
            format!("http://{endpoint}"),
            format!("http://127.0.0.1:{peer}"),
        );
        let data = folder.join(format!("m{number}")).display().to_string();
        let name = format!("m{number}");
        let arguments = [
            ["--name", &name],
            ["--data-dir", &data],
            ["--listen-client-urls", &client],
            ["--advertise-client-urls", &client],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &peer],
            ["--initial-cluster", peers],
            ["--initial-cluster-state", "new"],
            ["--logger", "zap"],
            ["--log-level", "warn"],
        ];
        Self {
            endpoint,
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
