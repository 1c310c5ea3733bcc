//! Keys on an etcd cluster, against etcd's own locks: `etcdctl lock`, and the lock call of its API.
//!
//! The lock call is `v3lockpb.Lock`, which client libraries such as `etcd-client` offer as `lock`. It is made here by hand, with
//! the same tonic, because that crate can't be built without `protoc`: on a connection that is open already, under an
//! etcd lease that was granted before, the least that it can cost. Each client is a process of its own. The data of the
//! cluster is in memory, so no disk is measured.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use rustix::process::{Pid, Signal, kill_process};
use tenure::store::{Key, call_deadline};
use tenure::{Acquired, Config, StoreUrl, Tenure};
use tenure_testkit::Etcd;
use tokio::runtime::{Builder, Runtime};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::stopwatch::{millis, now, percentile, ratio, time};
use crate::tasks::next_and_complete;
use crate::{Line, Measure};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
const PARTNER: &str = "TENURE_BENCH_ETCD";

/// How long clients take turns, and how often.
const PLAY: Duration = Duration::from_millis(700);
const ROUNDS: u32 = 5;
/// How long each holds the key when hand-overs are measured, so that the other is really waiting.
const MOMENT: Duration = Duration::from_millis(1);
/// How often a command is run, and the end of a holder measured.
const COMMANDS: usize = 40;
const ENDS: usize = 5;
const IMPORTED_AT_ONCE: usize = 5000;
/// How many commands want one key at once.
const CROWD: usize = 50;
/// How often a key was used, and how often that is looked at.
const OFTEN: usize = 20_000;
const LOOKS: usize = 200;

/// What is measured, each on a cluster of its own.
pub(crate) const MEASURES: [(&str, Measure); 5] = [
    ("etcd-locks", || on_a_cluster(pairs)),
    ("etcd-often", || on_a_cluster(used_often)),
    ("etcd-runs", || on_a_cluster(commands)),
    ("etcd-next", || on_a_cluster(next_of_many)),
    ("etcd-leader", || {
        if is_installed() {
            vec![leader_lost()]
        } else {
            Vec::new()
        }
    }),
];

fn on_a_cluster(measure: fn(&Etcd) -> Vec<Line>) -> Vec<Line> {
    if is_installed() {
        measure(&Etcd::start(1))
    } else {
        Vec::new()
    }
}

fn is_installed() -> bool {
    let found = Command::new("etcd").arg("--version").output().is_ok();
    if !found {
        eprintln!("etcd is not measured: it is not installed");
    }
    found
}

/// Acquire and release, with one client and with eight.
fn pairs(cluster: &Etcd) -> Vec<Line> {
    let mut lines = Vec::new();
    let (ours, theirs) = in_turns(cluster, "own", 1);
    lines.push(latency(
        "etcd: pair / its lock call, p50",
        &ours,
        &theirs,
        50,
        "at most 1x",
    ));
    lines.push(latency(
        "etcd: pair / its lock call, p99",
        &ours,
        &theirs,
        99,
        "",
    ));
    lines.push(rate("etcd: pairs/s / its lock call", &ours, &theirs, ""));
    for (keys, aim, [all, p50, p99]) in [
        (
            "own",
            "",
            [
                "etcd: 8 clients, own keys / lock call, pairs/s",
                "etcd: 8 clients, own keys / lock call, p50",
                "etcd: 8 clients, own keys / lock call, p99",
            ],
        ),
        (
            "one",
            "at least 3x",
            [
                "etcd: 8 clients, one key / lock call, pairs/s",
                "etcd: 8 clients, one key / lock call, p50",
                "etcd: 8 clients, one key / lock call, p99",
            ],
        ),
    ] {
        let (ours, theirs) = in_turns(cluster, keys, 8);
        lines.push(rate(all, &ours, &theirs, aim));
        lines.push(latency(p50, &ours, &theirs, 50, ""));
        lines.push(latency(p99, &ours, &theirs, 99, ""));
    }
    let (ours, theirs) = in_turns(cluster, "hold", 2);
    let (mut ours, mut theirs) = (hand_overs(ours), hand_overs(theirs));
    for (what, percent) in [
        ("etcd: hand-over / its lock call, p50", 50),
        ("etcd: hand-over / its lock call, p99", 99),
    ] {
        let (ours, theirs) = (
            percentile(&mut ours, percent),
            percentile(&mut theirs, percent),
        );
        lines.push(line(what, ours, theirs, ""));
    }
    lines
}

/// Our turns and theirs. They alternate, so that what else the machine does meets both.
fn in_turns(cluster: &Etcd, game: &str, clients: usize) -> (Vec<Turn>, Vec<Turn>) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.extend(play(cluster, &format!("tenure {game}"), clients));
        theirs.extend(play(cluster, &format!("lock {game}"), clients));
    }
    (ours, theirs)
}

/// A key that was used very often, on a cluster that is not compacted, and one that was used once.
fn used_often(cluster: &Etcd) -> Vec<Line> {
    let url = StoreUrl::parse(&cluster.address("often")).unwrap();
    let tenure = Tenure::open_with(&url, Config::default()).unwrap();
    let [often, once] = ["often", "once"].map(|key| Key::parse(key).unwrap());
    let pair = |key: &Key| {
        let Acquired::Granted(held) = tenure.ask(key.as_str()).unwrap().acquire().unwrap() else {
            panic!("it is free")
        };
        let _freed = held.release().unwrap();
    };
    (0..OFTEN).for_each(|_| pair(&often));
    pair(&once);
    let look = |key: &Key| time(|| drop(tenure.store().inspect(key, call_deadline()).unwrap()));
    let (mut looks, mut pairs) = (Vec::new(), Vec::new());
    for _ in 0..LOOKS {
        looks.push((look(&often), look(&once)));
        pairs.push((time(|| pair(&often)), time(|| pair(&once))));
    }
    [
        ("etcd: look at a key, used 20,000 times / once", looks),
        ("etcd: pair on a key, used 20,000 times / once", pairs),
    ]
    .map(|(what, times)| {
        let (mut often, mut once): (Vec<_>, Vec<_>) = times.into_iter().unzip();
        let (often, once) = (percentile(&mut often, 50), percentile(&mut once, 50));
        line(what, often, once, "about 1x")
    })
    .into()
}

/// `tenure run` and `etcdctl lock`.
fn commands(cluster: &Etcd) -> Vec<Line> {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..COMMANDS {
        ours.push(time(|| {
            end(tenure_run(cluster, "k").arg("true").spawn().unwrap());
        }));
        theirs.push(time(|| {
            end(etcdctl_lock(cluster, "k").arg("true").spawn().unwrap());
        }));
    }
    let (ours, theirs) = (percentile(&mut ours, 50), percentile(&mut theirs, 50));
    let runs = line(
        "etcd: tenure run / etcdctl lock, p50",
        ours,
        theirs,
        "at most 1x",
    );
    let at_once = |command: &dyn Fn() -> Command| {
        time(|| {
            let all: Vec<Child> = (0..CROWD)
                .map(|_| command().arg("true").spawn().unwrap())
                .collect();
            all.into_iter().for_each(end);
        })
    };
    let crowd = line(
        "etcd: 50 runs of one key at once / etcdctl lock",
        at_once(&|| tenure_run(cluster, "k")),
        at_once(&|| etcdctl_lock(cluster, "k")),
        "at most 1x",
    );
    let mut lines = vec![runs, crowd];
    for (ending, what) in [
        (
            Ending::OfItsCommand,
            "etcd: end of a run to the next / etcdctl lock",
        ),
        (
            Ending::OfTheHolder,
            "etcd: SIGKILL of a holder to the next grant, p50",
        ),
    ] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for number in 0..ENDS {
            let key = format!("{ending:?}-{number}");
            ours.push(after_its_end(ending, || tenure_run(cluster, &key)));
            theirs.push(after_its_end(ending, || etcdctl_lock(cluster, &key)));
        }
        let (ours, theirs) = (percentile(&mut ours, 50), percentile(&mut theirs, 50));
        lines.push(line(what, ours, theirs, ""));
    }
    lines
}

/// `tasks next` and the end of the task, beside many tasks and beside few.
fn next_of_many(cluster: &Etcd) -> Vec<Line> {
    let with = |count: usize| {
        let url = StoreUrl::parse(&cluster.address(&format!("tasks-{count}"))).unwrap();
        let tenure = Tenure::open_with(&url, Config::default()).unwrap();
        let numbers: Vec<usize> = (0..count).collect();
        for some in numbers.chunks(IMPORTED_AT_ONCE) {
            let line = |number| format!("{{\"id\":\"{number:06}\",\"title\":\"T\"}}\n");
            let lines: String = some.iter().map(line).collect();
            let tasks = tenure.tasks().unwrap();
            tasks.import(&lines, call_deadline()).unwrap();
        }
        tenure
    };
    let stores = (with(100), with(100_000));
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..COMMANDS {
        few.push(time(|| next_and_complete(&stores.0)));
        many.push(time(|| next_and_complete(&stores.1)));
    }
    let (few, many) = (percentile(&mut few, 50), percentile(&mut many, 50));
    let what = "etcd: next and completed, 100k tasks / 100";
    vec![line(what, many, few, "about 1x")]
}

/// From the kill of the leader of three members to the next grant.
fn leader_lost() -> Line {
    let lost = |game: &str| {
        let mut cluster = Etcd::start(3);
        while cluster.leader().is_none() {}
        let leader = cluster.leader().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut client = start(&cluster, game, 0, dir.path());
        let mut pairs = BufReader::new(client.stdout.take().unwrap()).lines();
        let mut next = || pairs.next().unwrap().unwrap();
        fs::write(dir.path().join("go"), "").unwrap();
        for _ in 0..20 {
            next();
        }
        let killed = now();
        cluster.kill(leader);
        // What was granted before is in the pipe.
        while next().parse::<u128>().unwrap() <= killed.as_nanos() + MOMENT.as_nanos() {}
        let found = now().saturating_sub(killed);
        let _ = client.kill();
        let _ = client.wait();
        found
    };
    let (ours, theirs) = (lost("tenure report"), lost("lock report"));
    line(
        "etcd: loss of the leader to the next grant",
        ours,
        theirs,
        "",
    )
}

fn line(what: &'static str, ours: Duration, theirs: Duration, aim: &'static str) -> Line {
    Line {
        what,
        ours: millis(ours),
        theirs: millis(theirs),
        ratio: ratio(ours, theirs),
        aim,
    }
}

fn latency(
    what: &'static str,
    ours: &[Turn],
    theirs: &[Turn],
    percent: usize,
    aim: &'static str,
) -> Line {
    let of = |turns: &[Turn]| {
        let mut times: Vec<Duration> = turns.iter().map(Turn::time).collect();
        percentile(&mut times, percent)
    };
    line(what, of(ours), of(theirs), aim)
}

fn rate(what: &'static str, ours: &[Turn], theirs: &[Turn], aim: &'static str) -> Line {
    let all = PLAY * ROUNDS;
    let per_second = |turns: &[Turn]| format!("{:.0} /s", turns.len() as f64 / all.as_secs_f64());
    Line {
        what,
        ours: per_second(ours),
        theirs: per_second(theirs),
        ratio: ours.len() as f64 / theirs.len() as f64,
        aim,
    }
}

fn tenure_run(cluster: &Etcd, key: &str) -> Command {
    let mut command = Command::new(TENURE);
    command
        .args(["run", key, "--quiet", "--"])
        .env("TENURE_STORE", cluster.address("commands"));
    command
}

fn etcdctl_lock(cluster: &Etcd, key: &str) -> Command {
    let mut command = Command::new("etcdctl");
    command
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", cluster.endpoints().next().unwrap()])
        // The shortest time to live that etcd keeps: its default is 10 seconds.
        .args(["lock", "--ttl", "2", key, "--"]);
    command
}

fn end(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

/// How a holder ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Its command ends, and it gives the key back.
    OfItsCommand,
    /// It is killed.
    OfTheHolder,
}

/// From the end of a holder until the command of a waiter runs.
fn after_its_end(ending: Ending, command: impl Fn() -> Command) -> Duration {
    let start = |script: &str| {
        let child = command()
            .args(["sh", "-c", script])
            .stdout(Stdio::piped())
            // etcdctl reports that its command was killed.
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        (child, out)
    };
    let mut line = String::new();
    let (mut holder, mut out) = start("echo $$; exec sleep 300");
    out.read_line(&mut line).unwrap();
    let held: i32 = line.trim().parse().unwrap();
    let (waiter, mut out) = start("echo got");
    // It is in the queue by then.
    std::thread::sleep(Duration::from_millis(300));
    let ended = now();
    if ending == Ending::OfTheHolder {
        holder.kill().unwrap();
        holder.wait().unwrap();
    }
    // etcdctl leaves the command of a killed holder behind.
    let _ = kill_process(Pid::from_raw(held).unwrap(), Signal::KILL);
    out.read_line(&mut line).unwrap();
    let found = now().saturating_sub(ended);
    let _ = holder.wait();
    end(waiter);
    found
}

/// One turn of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    got: Duration,
    asked: Duration,
    let_go: Duration,
    end: Duration,
    client: usize,
}

impl Turn {
    fn time(&self) -> Duration {
        self.end.saturating_sub(self.asked)
    }
}

/// Lets clients take turns for a while.
fn play(cluster: &Etcd, game: &str, clients: usize) -> Vec<Turn> {
    let dir = tempfile::tempdir().unwrap();
    let mut playing = Vec::new();
    for number in 0..clients {
        let mut child = start(cluster, game, number, dir.path());
        let mut ready = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut ready).unwrap();
        playing.push(child);
    }
    fs::write(dir.path().join("go"), "").unwrap();
    playing.into_iter().for_each(end);
    let mut turns = Vec::new();
    for client in 0..clients {
        let log = fs::read_to_string(dir.path().join(client.to_string())).unwrap();
        turns.extend(log.lines().map(|line| {
            let times = line.split(' ').map(|time| time.parse().unwrap());
            let times: Vec<Duration> = times.map(Duration::from_nanos).collect();
            Turn {
                asked: times[0],
                got: times[1],
                let_go: times[2],
                end: times[3],
                client,
            }
        }));
    }
    turns
}

fn hand_overs(mut turns: Vec<Turn>) -> Vec<Duration> {
    turns.sort_unstable();
    turns
        .windows(2)
        .filter(|pair| pair[0].client != pair[1].client)
        .map(|pair| pair[1].got.saturating_sub(pair[0].let_go))
        .collect()
}

fn start(cluster: &Etcd, game: &str, number: usize, dir: &Path) -> Child {
    let endpoints: Vec<&str> = cluster.endpoints().collect();
    Command::new(std::env::current_exe().unwrap())
        .env(
            PARTNER,
            format!("{game} {number} {} {}", endpoints.join(","), dir.display()),
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Plays, if this process was started as a client.
pub(crate) fn is_partner() -> bool {
    let Ok(job) = std::env::var(PARTNER) else {
        return false;
    };
    let words: Vec<&str> = job.splitn(5, ' ').collect();
    let (who, game, number, endpoints, dir) =
        (words[0], words[1], words[2], words[3], Path::new(words[4]));
    let key = match game {
        "own" => format!("own-{number}"),
        _ => game.to_owned(),
    };
    let mut client: Box<dyn Client> = match who {
        "tenure" => Box::new(Ours::new(endpoints, key)),
        _ => Box::new(Theirs::new(endpoints, &key)),
    };
    // Connected.
    client.take();
    client.give_back();
    println!("ready");
    let go = dir.join("go");
    while !go.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut log = File::create(dir.join(number)).unwrap();
    let began = now();
    while game == "report" || now().saturating_sub(began) < PLAY {
        let asked = now();
        client.take();
        let got = now();
        if game == "hold" || game == "report" {
            std::thread::sleep(MOMENT);
        }
        let let_go = now();
        client.give_back();
        let end = now();
        if game == "report" {
            println!("{}", got.as_nanos());
        } else {
            let times = [asked, got, let_go, end].map(|time| time.as_nanos().to_string());
            writeln!(log, "{}", times.join(" ")).unwrap();
        }
    }
    true
}

trait Client {
    fn take(&mut self);
    fn give_back(&mut self);
}

struct Ours {
    tenure: Tenure,
    key: String,
    held: Option<tenure::Guard>,
}

impl Ours {
    fn new(endpoints: &str, key: String) -> Self {
        let url = StoreUrl::parse(&format!("etcd://{endpoints}/bench")).unwrap();
        Self {
            tenure: Tenure::open_with(&url, Config::default()).unwrap(),
            key,
            held: None,
        }
    }
}

impl Client for Ours {
    fn take(&mut self) {
        let ask = self.tenure.ask(&self.key).unwrap();
        let Acquired::Granted(held) = ask.wait(Duration::from_secs(60)).acquire().unwrap() else {
            panic!("it must come")
        };
        self.held = Some(held);
    }

    fn give_back(&mut self) {
        let _freed = self.held.take().unwrap().release().unwrap();
    }
}

#[derive(Clone, PartialEq, Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

/// The lock call of etcd's API.
struct Theirs {
    runtime: Runtime,
    channels: Vec<Channel>,
    current: usize,
    name: Vec<u8>,
    lease: i64,
    held: Vec<u8>,
}

impl Theirs {
    fn new(endpoints: &str, key: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let connect = |endpoint: &str| {
            let endpoint = Endpoint::from_shared(format!("http://{endpoint}")).unwrap();
            endpoint.tcp_nodelay(true).connect_lazy()
        };
        let channels = runtime.block_on(async { endpoints.split(',').map(connect).collect() });
        let mut client = Self {
            runtime,
            channels,
            current: 0,
            name: key.as_bytes().to_vec(),
            lease: 0,
            held: Vec::new(),
        };
        let granted: LeaseGrantResponse = client.call(
            "/etcdserverpb.Lease/LeaseGrant",
            &LeaseGrantRequest { ttl: 600 },
        );
        client.lease = granted.id;
        client
    }

    /// One call. Another member is asked if this one does not answer, as a client library does.
    fn call<Q, A>(&mut self, path: &'static str, message: &Q) -> A
    where
        Q: Message + Clone + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        loop {
            let channel = self.channels[self.current % self.channels.len()].clone();
            let message = message.clone();
            let answer = self.runtime.block_on(async move {
                let mut grpc = Grpc::new(channel);
                grpc.ready()
                    .await
                    .map_err(|error| tonic::Status::unavailable(error.to_string()))?;
                let path = PathAndQuery::from_static(path);
                let codec = ProstCodec::<Q, A>::default();
                grpc.unary(tonic::Request::new(message), path, codec).await
            });
            match answer {
                Ok(answer) => return answer.into_inner(),
                Err(_) => self.current += 1,
            }
            std::thread::sleep(MOMENT);
        }
    }
}

impl Client for Theirs {
    fn take(&mut self) {
        let request = LockRequest {
            name: self.name.clone(),
            lease: self.lease,
        };
        let locked: LockResponse = self.call("/v3lockpb.Lock/Lock", &request);
        self.held = locked.key;
    }

    fn give_back(&mut self) {
        let key = std::mem::take(&mut self.held);
        let _: Nothing = self.call("/v3lockpb.Lock/Unlock", &UnlockRequest { key });
    }
}
