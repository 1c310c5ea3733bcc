//! From release in one process to held in another.
//!
//! Two processes take turns on one lock. Each notes when it got it and when it began to let go;
//! what lies between a release and the next grant is the hand-over. While one holds the lock, it
//! sleeps a moment, so that the other is really waiting.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use tenure::Acquired;

use crate::Line;
use crate::pairs::open;
use crate::stopwatch::{millis, now, percentile, ratio};

const TURNS: usize = 400;
const MOMENT: Duration = Duration::from_millis(1);
const PARTNER: &str = "TENURE_BENCH_PARTNER";

pub(crate) fn measure() -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    let mut ours = play("tenure", dir.path());
    let mut theirs = play("flock", dir.path());
    let mut line = |what, percent, aim| {
        let (ours, theirs) = (
            percentile(&mut ours, percent),
            percentile(&mut theirs, percent),
        );
        Line {
            what,
            ours: millis(ours),
            theirs: millis(theirs),
            ratio: ratio(ours, theirs),
            aim,
        }
    };
    vec![
        line("hand-over / flock(2), p50", 50, "p50 under 1 ms"),
        line("hand-over / flock(2), p99", 99, ""),
    ]
}

/// Two partners; every hand-over between them.
fn play(game: &str, dir: &Path) -> Vec<Duration> {
    let partners: Vec<Child> = (0..2)
        .map(|number| {
            Command::new(std::env::current_exe().unwrap())
                .env(PARTNER, format!("{game} {number} {}", dir.display()))
                .spawn()
                .unwrap()
        })
        .collect();
    for mut partner in partners {
        assert!(partner.wait().unwrap().success());
    }
    let mut turns: Vec<(u64, u64, u64, u64)> = Vec::new();
    for number in 0..2 {
        let log = std::fs::read_to_string(dir.join(format!("{game}-{number}"))).unwrap();
        turns.extend(log.lines().map(|line| {
            let fields: Vec<u64> = line
                .split(' ')
                .map(|field| field.parse().unwrap())
                .collect();
            (fields[0], fields[1], fields[2], number)
        }));
    }
    // By the time they got it: one holder at a time makes that the order of the turns.
    turns.sort_unstable();
    turns
        .windows(2)
        .filter(|pair| pair[0].3 != pair[1].3)
        .map(|pair| Duration::from_nanos(pair[1].0.saturating_sub(pair[0].1)))
        .collect()
}

/// Plays, if this process was started as a partner.
pub(crate) fn is_partner() -> bool {
    let Ok(job) = std::env::var(PARTNER) else {
        return false;
    };
    let mut words = job.splitn(3, ' ');
    let (game, number, dir) = (
        words.next().unwrap(),
        words.next().unwrap(),
        Path::new(words.next().unwrap()),
    );
    let mut log = File::create(dir.join(format!("{game}-{number}"))).unwrap();
    let mut note = |got: Duration, let_go: Duration| {
        writeln!(log, "{} {} 0", got.as_nanos(), let_go.as_nanos()).unwrap();
    };
    match game {
        "tenure" => {
            let tenure = open(&dir.join("tenure.db"));
            for _ in 0..TURNS {
                let ask = tenure.ask("build").unwrap().wait(Duration::from_secs(60));
                let Acquired::Granted(held) = ask.acquire().unwrap() else {
                    panic!("it must come")
                };
                let got = now();
                std::thread::sleep(MOMENT);
                let let_go = now();
                let _freed = held.release().unwrap();
                note(got, let_go);
            }
        }
        _ => {
            for _ in 0..TURNS {
                let file = File::create(dir.join("flock.lock")).unwrap();
                file.lock().unwrap();
                let got = now();
                std::thread::sleep(MOMENT);
                let let_go = now();
                file.unlock().unwrap();
                note(got, let_go);
                // flock is not fair: without this the same process takes it again at once.
                std::thread::yield_now();
            }
        }
    }
    true
}
