//! The event ledger: appends, many writers, replay, claims.
//!
//! Against two others in the same run: the bare system calls of one durable append (write, fsync, rename,
//! fsync the folder), and the documented algorithm (list the folder, count, write, fsync,
//! rename, under a lock file that is polled every 10 ms).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use tenure::protocols::ledger::Options;
use tenure::protocols::ledger::{Appended, Dialect, Ledger, LedgerStore, NewEvent};
use tenure::{Acquired, Config, Tenure};

use crate::Line;
use crate::stopwatch::{millis, now, percentile, ratio, time};

const EVENT: &str = r#"{"type":"note","text":"something happened that is worth writing down"}"#;
const WRITER: &str = "TENURE_BENCH_WRITER";
const WRITERS: usize = 32;
const EACH: usize = 50;

pub(crate) fn measure() -> Vec<Line> {
    // Removed at the end: removing a hundred thousand files slows every sync down.
    let mut folders = Vec::new();
    let mut place = || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        folders.push(dir);
        path
    };
    let mut lines = crowd(&mut place);
    lines.push(claims(&mut place));
    lines.extend(append(&mut place));
    lines.extend(replay(&mut place));
    lines
}

fn ledger(dir: &Path) -> Ledger {
    Ledger::init(dir, Dialect::Documented, Options::default()).unwrap()
}

/// A ledger with so many events, as another program would have written them.
fn filled(dir: &Path, events: u64, one: impl Fn(u64) -> String) {
    fs::create_dir_all(dir.join("ledger")).unwrap();
    for seq in 1..=events {
        let path = dir.join(format!("ledger/event-{seq:06}.json"));
        fs::write(path, one(seq)).unwrap();
    }
}

fn note(_: u64) -> String {
    r#"{"type":"note","timestamp":"2026-11-15T18:09:47.618800602Z"}"#.into()
}

fn append_one(ledger: &Ledger, event: &NewEvent) {
    let appended = ledger.append(event).unwrap();
    assert!(matches!(appended, Appended::Done { .. }), "{appended:?}");
}

/// The cheapest possible durable append.
fn bare(dir: &Path, number: u64) {
    let (temp, event) = (
        dir.join(format!(".event-{number}.tmp")),
        dir.join(format!("event-{number:06}.json")),
    );
    let mut file = File::create(&temp).unwrap();
    file.write_all(EVENT.as_bytes()).unwrap();
    file.sync_all().unwrap();
    drop(file);
    fs::rename(temp, event).unwrap();
    File::open(dir).unwrap().sync_all().unwrap();
}

/// The documented algorithm.
fn documented_append(dir: &Path) {
    let lock = dir.join("ledger.lock");
    let mut tries = 0;
    while File::options()
        .write(true)
        .create_new(true)
        .open(&lock)
        .is_err()
    {
        tries += 1;
        assert!(tries < 500, "timeout waiting for lock");
        std::thread::sleep(Duration::from_millis(10));
    }
    let is_event = |name: &str| name.starts_with("event-");
    let count = fs::read_dir(dir)
        .unwrap()
        .filter(|entry| is_event(entry.as_ref().unwrap().file_name().to_str().unwrap()))
        .count();
    let temp = dir.join(format!(".event-{}.tmp", std::process::id()));
    let mut file = File::create(&temp).unwrap();
    file.write_all(EVENT.as_bytes()).unwrap();
    file.sync_all().unwrap();
    fs::rename(temp, dir.join(format!("event-{:06}.json", count + 1))).unwrap();
    fs::remove_file(lock).unwrap();
}

fn append(place: &mut dyn FnMut() -> PathBuf) -> Vec<Line> {
    const ROUNDS: usize = 300;
    let sizes = [100, 10_000, 100_000];
    let event = NewEvent::parse(EVENT).unwrap();
    let dirs: Vec<_> = sizes.iter().map(|_| place()).collect();
    for (dir, size) in dirs.iter().zip(sizes) {
        filled(dir, size, note);
    }
    let bare_dir = place();
    let ledgers: Vec<Ledger> = dirs.iter().map(|dir| ledger(dir)).collect();
    let mut ours = [const { Vec::new() }; 3];
    let mut theirs = Vec::new();
    // What was written above goes to disk now, not during a measurement.
    rustix::fs::sync();
    for ledger in &ledgers {
        append_one(ledger, &event);
    }
    let mut number = 0;
    for _ in 0..ROUNDS {
        for (ledger, times) in ledgers.iter().zip(&mut ours) {
            number += 1;
            theirs.push(time(|| bare(&bare_dir, number)));
            times.push(time(|| append_one(ledger, &event)));
        }
    }
    let mut documented: Vec<Duration> = Vec::new();
    for dir in &dirs {
        let folder = dir.join("ledger");
        let mut times: Vec<_> = (0..20)
            .map(|_| time(|| documented_append(&folder)))
            .collect();
        documented.push(percentile(&mut times, 50));
    }
    let bare = percentile(&mut theirs, 50);
    let [few, some, many] = ours.map(|mut times| percentile(&mut times, 50));
    let line = |what, ours, theirs, aim| Line {
        what,
        ours: millis(ours),
        theirs: millis(theirs),
        ratio: ratio(ours, theirs),
        aim,
    };
    vec![
        line(
            "append at 100 events / bare system calls",
            few,
            bare,
            "at most 1.5x",
        ),
        line(
            "append at 100,000 events / bare system calls",
            many,
            bare,
            "at most 1.5x",
        ),
        line(
            "append at 10,000 events / at 100",
            some,
            few,
            "at most 1.2x",
        ),
        line(
            "append at 100,000 events / at 100",
            many,
            few,
            "at most 1.2x",
        ),
        line(
            "append at 100 / the documented algorithm",
            few,
            documented[0],
            "",
        ),
        line(
            "append at 10,000 / the documented algorithm",
            some,
            documented[1],
            "",
        ),
        line(
            "append at 100,000 / the documented algorithm",
            many,
            documented[2],
            "",
        ),
    ]
}

/// How long each writer took, and all of them.
fn write_together(how: &str, dir: &Path, writers: usize) -> (Vec<Duration>, Duration) {
    let go = dir.join("go");
    for number in 0..writers {
        let _ = fs::remove_file(dir.join(format!("ready-{number}")));
    }
    let _ = fs::remove_file(&go);
    let children: Vec<Child> = (0..writers)
        .map(|number| {
            Command::new(std::env::current_exe().unwrap())
                .env(WRITER, format!("{how} {number} {}", dir.display()))
                .spawn()
                .unwrap()
        })
        .collect();
    let ready = |number: usize| dir.join(format!("ready-{number}")).exists();
    while !(0..writers).all(ready) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let began = now();
    fs::write(&go, "").unwrap();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let took = |number: usize| {
        let path = dir.join(format!("done-{number}"));
        let at: u64 = fs::read_to_string(path).unwrap().parse().unwrap();
        Duration::from_nanos(at).saturating_sub(began)
    };
    let times: Vec<Duration> = (0..writers).map(took).collect();
    let all = times.iter().copied().max().unwrap();
    (times, all)
}

/// Writes, if this process was started as a writer.
pub(crate) fn is_partner() -> bool {
    let Ok(job) = std::env::var(WRITER) else {
        return false;
    };
    let mut words = job.splitn(3, ' ');
    let (how, number, dir) = (
        words.next().unwrap(),
        words.next().unwrap(),
        PathBuf::from(words.next().unwrap()),
    );
    let event = NewEvent::parse(EVENT).unwrap();
    let ledger = (how == "tenure").then(|| ledger(&dir));
    fs::write(dir.join(format!("ready-{number}")), "").unwrap();
    while !dir.join("go").exists() {
        std::thread::sleep(Duration::from_micros(200));
    }
    for _ in 0..EACH {
        match &ledger {
            Some(ledger) => append_one(ledger, &event),
            None => documented_append(&dir.join("ledger")),
        }
    }
    let done = now().as_nanos().to_string();
    fs::write(dir.join(format!("done-{number}")), done).unwrap();
    true
}

fn crowd(place: &mut dyn FnMut() -> PathBuf) -> Vec<Line> {
    let many = place();
    let one = place();
    ledger(&many);
    ledger(&one);
    // Before and after, and the better of both: disk times vary.
    let (_, before) = write_together("tenure", &one, 1);
    let (times, all) = write_together("tenure", &many, WRITERS);
    let (_, after) = write_together("tenure", &one, 1);
    let alone = before.min(after);
    let last = ledger(&many).last().unwrap();
    assert_eq!(
        last,
        u64::try_from(WRITERS * EACH).unwrap(),
        "events are lost"
    );
    let verified = ledger(&many).verify().unwrap();
    assert!(verified.is_sound(), "{:?}", verified.findings);
    let rate = |events: usize, all: Duration| events as f64 / all.as_secs_f64();
    let (together, by_one) = (rate(WRITERS * EACH, all), rate(EACH, alone));
    let (slowest, fastest) = (all, times.iter().copied().min().unwrap());
    let theirs = place();
    fs::create_dir(theirs.join("ledger")).unwrap();
    let (_, documented) = write_together("documented", &theirs, 8);
    let documented = rate(8 * EACH, documented);
    let per_second = |rate: f64| format!("{rate:.0} /s");
    vec![
        Line {
            what: "32 writers x 50 appends / one writer, appends/s",
            ours: per_second(together),
            theirs: per_second(by_one),
            ratio: together / by_one,
            aim: "at least 1x",
        },
        Line {
            what: "slowest of 32 writers / fastest",
            ours: millis(slowest),
            theirs: millis(fastest),
            ratio: ratio(slowest, fastest),
            aim: "at most 1.5x",
        },
        Line {
            what: "32 writers / 8 of the documented algorithm, appends/s",
            ours: per_second(together),
            theirs: per_second(documented),
            ratio: together / documented,
            aim: "",
        },
    ]
}

/// A claim or the end of one.
fn claim_event(seq: u64) -> String {
    let node = format!("1.{}.{}", seq / 2 % 40 + 1, seq / 80 % 50 + 1);
    let kind = if seq.is_multiple_of(2) {
        "lock_acquired"
    } else {
        "lock_released"
    };
    format!(
        r#"{{"type":"{kind}","timestamp":"2026-11-15T18:09:47.618800602Z","node_id":"{node}","owner":"agent-{}","expires_at":"2036-11-15T18:09:47Z"}}"#,
        seq / 2 % 7
    )
}

fn replay(place: &mut dyn FnMut() -> PathBuf) -> Vec<Line> {
    let dir = place();
    filled(&dir, 100_000, claim_event);
    ledger(&dir);
    let claims = || {
        let store = LedgerStore::open(&dir, Options::default()).unwrap();
        store.claims().unwrap().len()
    };
    let sidecar = dir.join("ledger/.ledger-tenure");
    let mut cold = Vec::new();
    let mut held = 0;
    for _ in 0..3 {
        for slot in ["checkpoint.a", "checkpoint.b"] {
            let _ = fs::remove_file(sidecar.join(slot));
        }
        cold.push(time(|| held = claims()));
    }
    let mut resumed: Vec<_> = (0..30)
        .map(|_| time(|| assert_eq!(claims(), held)))
        .collect();
    let (cold, resumed) = (percentile(&mut cold, 50), percentile(&mut resumed, 50));
    vec![Line {
        what: "replay of 100,000 events: cold / from a checkpoint",
        ours: millis(cold),
        theirs: millis(resumed),
        ratio: ratio(cold, resumed),
        aim: "at least 50x",
    }]
}

fn claims(place: &mut dyn FnMut() -> PathBuf) -> Line {
    const ROUNDS: usize = 200;
    let (small, large) = (place(), place());
    filled(&small, 50, note);
    filled(&large, 50_000, note);
    let open = |dir: &Path| {
        ledger(dir);
        Tenure::open_ledger(dir, None, Config::default()).unwrap()
    };
    let pair = |tenure: &Tenure| {
        let ask = tenure.ask("node:1.2.3").unwrap().named("agent").unwrap();
        let Acquired::Granted(held) = ask.acquire().unwrap() else {
            panic!("no other program is here");
        };
        let _freed = held.release().unwrap();
    };
    let (small, large) = (open(&small), open(&large));
    rustix::fs::sync();
    for tenure in [&small, &large] {
        pair(tenure);
    }
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        few.push(time(|| pair(&small)));
        many.push(time(|| pair(&large)));
    }
    let (few, many) = (percentile(&mut few, 50), percentile(&mut many, 50));
    Line {
        what: "claim and release at 50,000 events / at 50",
        ours: millis(many),
        theirs: millis(few),
        ratio: ratio(many, few),
        aim: "about 1x",
    }
}
