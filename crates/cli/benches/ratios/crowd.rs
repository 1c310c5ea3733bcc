//! Very many waiters for one key: how fast they are served, in which order, and what they cost while they wait.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tenure::store::{Key, Snapshot, call_deadline};
use tenure::{Acquired, Guard, Tenure};

use crate::Line;
use crate::pairs::open;
use crate::stopwatch::{millis, now, percentile, ratio, time};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
const PARTNER: &str = "TENURE_BENCH_WAITER";

/// How many commands wait at once for a key, in which mode.
const COMMANDS: [(usize, Option<&str>, &str); 3] = [
    (200, None, "200 commands that wait, served / flock(1)"),
    (1_000, None, "1,000 commands that wait, served / flock(1)"),
    (
        1_000,
        Some("--shared"),
        "1,000 shared ones, served / flock(1) --shared",
    ),
];
const FEW: usize = 10;
const MANY: usize = 1_000;
const IDLE: Duration = Duration::from_secs(10);

/// How much of a core [`MANY`] waiters may use, in percent.
const IDLE_AIM: f64 = 1.0;

pub(crate) fn measure() -> Vec<Line> {
    let mut lines: Vec<Line> = COMMANDS
        .into_iter()
        .map(|(many, mode, what)| {
            let (ours, theirs) = (serve_commands(many, mode), serve_flock(many, mode));
            Line {
                what,
                ours: millis(ours),
                theirs: millis(theirs),
                ratio: ratio(ours, theirs),
                aim: "",
            }
        })
        .collect();
    let (few, many) = (Crowd::gather(FEW), Crowd::gather(MANY));
    let (idle, _) = (many.idle, few.idle);
    // Several small crowds, so that there are as many hand-overs to compare.
    let mut short = few.hand_overs;
    for _ in 1..MANY / FEW / 10 {
        short.extend(Crowd::gather(FEW).hand_overs);
    }
    let mut long = many.hand_overs;
    let (short, long) = (percentile(&mut short, 50), percentile(&mut long, 50));
    lines.extend([
        Line {
            what: "1,000 waiters, idle, of a core / 1 %",
            ours: format!("{idle:.2} %"),
            theirs: format!("{IDLE_AIM:.2} %"),
            ratio: idle / IDLE_AIM,
            aim: "at most 1x",
        },
        Line {
            what: "waiters that were served out of order / one",
            ours: many.out_of_order.to_string(),
            theirs: "1".into(),
            ratio: many.out_of_order as f64,
            aim: "0x",
        },
        Line {
            what: "hand-over, 1,000 waiters / 10 waiters, p50",
            ours: millis(long),
            theirs: millis(short),
            ratio: ratio(long, short),
            aim: "at most 1.5x",
        },
    ]);
    lines
}

/// What was seen of one crowd.
struct Crowd {
    /// Of a core, in percent.
    idle: f64,
    out_of_order: usize,
    hand_overs: Vec<Duration>,
}

impl Crowd {
    /// Lets so many processes wait for a key, and then serves them.
    fn gather(many: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (tenure, held) = hold(dir.path());
        let waiters = start(many, || {
            let mut partner = Command::new(std::env::current_exe().unwrap());
            partner.env(PARTNER, dir.path());
            partner
        });
        until(|| queue(&tenure).queue.len() == many);
        let order: Vec<u32> = queue(&tenure)
            .queue
            .iter()
            .map(|waiter| waiter.holder.binding.process().unwrap().pid)
            .collect();
        let idle = if many < MANY {
            0.0
        } else {
            let before = used(&waiters);
            std::thread::sleep(IDLE);
            100.0 * ratio(used(&waiters).saturating_sub(before), IDLE)
        };
        let let_go = now();
        let _freed = held.release().unwrap();
        end(waiters);
        let mut turns: Vec<(Duration, Duration, u32)> = order
            .iter()
            .map(|pid| {
                let turn = std::fs::read_to_string(dir.path().join(pid.to_string())).unwrap();
                let (got, let_go) = turn.split_once(' ').unwrap();
                let nanos = |text: &str| Duration::from_nanos(text.parse().unwrap());
                (nanos(got), nanos(let_go), *pid)
            })
            .collect();
        turns.sort_unstable();
        let out_of_order = order
            .iter()
            .zip(&turns)
            .filter(|(pid, turn)| **pid != turn.2);
        let before = std::iter::once(let_go).chain(turns.iter().map(|turn| turn.1));
        Self {
            idle,
            out_of_order: out_of_order.count(),
            hand_overs: before
                .zip(&turns)
                .map(|(let_go, turn)| turn.0.saturating_sub(let_go))
                .collect(),
        }
    }
}

/// Waits for the key and gives it back at once, if this process was started as a waiter.
pub(crate) fn is_partner() -> bool {
    let Some(dir) = std::env::var_os(PARTNER) else {
        return false;
    };
    let dir = Path::new(&dir);
    let tenure = open(&dir.join("tenure.db"));
    let ask = tenure.ask("build").unwrap().wait(Duration::from_secs(600));
    let Acquired::Granted(held) = ask.acquire().unwrap() else {
        panic!("it must come")
    };
    let got = now().as_nanos();
    let mut log = File::create(dir.join(std::process::id().to_string())).unwrap();
    let let_go = now().as_nanos();
    let _freed = held.release().unwrap();
    write!(log, "{got} {let_go}").unwrap();
    true
}

/// Serves so many times `tenure run build -- true`.
fn serve_commands(many: usize, mode: Option<&str>) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let (tenure, held) = hold(dir.path());
    let store = format!("sqlite:{}", dir.path().join("tenure.db").display());
    let waiters = start(many, || {
        let mut command = Command::new(TENURE);
        command.args(["run", "build", "--wait", "10m", "--store", &store]);
        command.args(mode).args(["--", "true"]);
        command
    });
    until(|| queue(&tenure).queue.len() == many);
    time(|| {
        let _freed = held.release().unwrap();
        end(waiters);
    })
}

/// The same with `flock f true`.
fn serve_flock(many: usize, mode: Option<&str>) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let file = File::create(&path).unwrap();
    file.lock().unwrap();
    let inode = format!(":{} ", file.metadata().unwrap().ino());
    let waiters = start(many, || {
        let mut command = Command::new("flock");
        command.args(mode).arg(&path).arg("true");
        command
    });
    until(|| {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let blocked = |line: &&str| line.contains("->") && line.contains(&inode);
        locks.lines().filter(blocked).count() == many
    });
    time(|| {
        file.unlock().unwrap();
        end(waiters);
    })
}

fn hold(dir: &Path) -> (Tenure, Guard) {
    let tenure = open(&dir.join("tenure.db"));
    let Acquired::Granted(held) = tenure.ask("build").unwrap().acquire().unwrap() else {
        panic!("nobody else is here");
    };
    (tenure, held)
}

fn queue(tenure: &Tenure) -> Snapshot {
    let key = Key::parse("build").unwrap();
    tenure.store().inspect(&key, call_deadline()).unwrap()
}

fn start(many: usize, command: impl Fn() -> Command) -> Vec<Child> {
    let quiet = |mut command: Command| command.stderr(Stdio::null()).spawn().unwrap();
    (0..many).map(|_| quiet(command())).collect()
}

fn end(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}

fn until(mut holds: impl FnMut() -> bool) {
    let began = now();
    while !holds() {
        assert!(
            now().saturating_sub(began) < Duration::from_secs(120),
            "they must come"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The time that the threads of these processes have run.
fn used(children: &[Child]) -> Duration {
    let run = |task: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).unwrap();
        Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
    };
    let of = |child: &Child| -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
        tasks.flatten().map(run).sum()
    };
    children.iter().map(of).sum()
}
