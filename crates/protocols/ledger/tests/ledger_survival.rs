//! G10: a process that appends in a tight loop is killed 500 times. Each time the next append succeeds
//! without intervention, and every event that was reported as appended exists.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tenure_ledger::Options;
use tenure_ledger::{Appended, Dialect, Ledger, NewEvent};
use tenure_testkit::{Chance, Process, process, scaled};

const KILLS: usize = 200;

/// With syncs, as in production.
fn open(dir: &Path) -> Ledger {
    Ledger::init(dir, Dialect::Documented, Options::default()).unwrap()
}

fn event(writer: u32, round: u64, part: u64) -> NewEvent {
    let text = format!(r#"{{"type":"part","writer":{writer},"round":{round},"part":{part}}}"#);
    NewEvent::parse(&text).unwrap()
}

/// Not a test: appends single events and batches of three until it is killed, and logs each report at
/// once.
#[test]
fn worker() {
    let Some(dir) = process::job() else { return };
    let dir = Path::new(&dir);
    let mut log = fs::File::options()
        .append(true)
        .create(true)
        .open(dir.join("reported"))
        .unwrap();
    let ledger = open(dir);
    process::report("ready");
    let us = std::process::id();
    for round in 0.. {
        let parts = if round % 3 == 2 { 3 } else { 1 };
        let events: Vec<NewEvent> = (0..parts).map(|part| event(us, round, part)).collect();
        let Appended::Done { first, last } = ledger.append_all(None, &events).unwrap() else {
            panic!("no other program holds the lock");
        };
        let line = format!("{first} {last} {us} {round}\n");
        log.write_all(line.as_bytes()).unwrap();
    }
}

#[test]
fn five_hundred_kills_lose_no_event_and_block_no_writer() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    open(dir);
    let mut chance = Chance::from_seed(Chance::seed());
    // Several at a time: they wait for each other, and are killed while they do.
    let mut crew: Vec<Process> = Vec::new();
    let mut next = 0;
    let kills = scaled(KILLS);
    for kill in 0..kills {
        while crew.len() < 1 + kill % 3 {
            crew.push(Process::start(
                "ledger_survival::worker",
                dir.to_str().unwrap(),
            ));
            assert_eq!(crew.last().unwrap().report(), "ready");
        }
        std::thread::sleep(chance.time(Duration::from_millis(6)));
        let unlucky = chance.index(crew.len());
        crew.swap_remove(unlucky).kill();
        let ledger = open(dir);
        match ledger
            .append(&event(0, u64::try_from(kill).unwrap(), 0))
            .unwrap()
        {
            Appended::Done { last, .. } => {
                assert!(last > next, "after kill {kill}");
                next = last;
            }
            other => panic!("after kill {kill}: {other:?}"),
        }
    }
    drop(crew);
    let ledger = open(dir);
    let _ = ledger.append(&event(0, 0, 0)).unwrap();
    let verified = ledger.verify().unwrap();
    assert!(
        verified.findings.is_empty(),
        "{:?}",
        verified.findings.first()
    );
    judge(dir, verified.events);
}

/// Checks the files without tenure's own reader.
fn judge(dir: &Path, events: u64) {
    let mut parts: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
    for seq in 1..=events {
        let bytes = fs::read(dir.join(format!("ledger/event-{seq:06}.json"))).unwrap();
        let value: Value = serde_json::from_slice(&bytes).unwrap();
        let field = |name: &str| value[name].as_u64().unwrap();
        if field("writer") > 0 {
            parts
                .entry((field("writer"), field("round")))
                .or_default()
                .push(seq);
        }
    }
    for ((writer, round), seqs) in &parts {
        let whole = if round % 3 == 2 { 3 } else { 1 };
        assert_eq!(
            seqs.len(),
            whole,
            "round {round} of {writer} is incomplete: {seqs:?}"
        );
        assert!(seqs.windows(2).all(|two| two[1] == two[0] + 1), "{seqs:?}");
    }
    let reported = fs::read_to_string(dir.join("reported")).unwrap();
    let mut count = 0;
    for line in reported.lines() {
        let fields: Vec<u64> = line
            .split(' ')
            .map(|field| field.parse().unwrap())
            .collect();
        let [first, last, writer, round] = fields[..] else {
            panic!("{line}")
        };
        let seqs = &parts[&(writer, round)];
        assert_eq!((seqs[0], *seqs.last().unwrap()), (first, last), "{line}");
        count += 1;
    }
    // Most workers report something before they are killed.
    assert!(count > scaled(KILLS) * 3 / 5, "only {count} were reported");
    let left: Vec<_> = fs::read_dir(dir.join("ledger"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("event-"))
        .collect();
    assert_eq!(left, [".ledger-tenure"]);
    println!("{events} events, {count} reports");
}
