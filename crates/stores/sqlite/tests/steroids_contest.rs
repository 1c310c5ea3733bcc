//! G1 across two programs: runners of the tool and of tenure fight over three tasks of one
//! database, some of them are killed, and a witness that knows neither sees who is inside.
//!
//! A lease lasts far longer than any holder works, so a late holder is a fault and not a slow
//! machine. Some do not give theirs back but let it run out, once they are outside.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tenure_core::{Event, EventKind, HistoryQuery, Records, Released, Renewed, Store, Token};
use tenure_testkit::limit::{LIMIT, Stopwatch};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Chance, Process, Witness, process, waiting, witness};
use tool::Tool;

use crate::tool;

const TASKS: [&str; 3] = ["t1", "t2", "t3"];

/// Far longer than any holder works; how long the lock of a killed holder blocks the tool.
const TTL: Duration = Duration::from_secs(2);

/// The rest of a lease that is left to run out.
const REST: Duration = Duration::from_millis(30);

/// How often each side must have been inside, and how many must have been killed.
const TIMES: usize = 300;
const KILLS: usize = 25;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Side {
    Tool,
    Tenure,
}

#[derive(Serialize, Deserialize)]
struct Job {
    side: Side,
    place: PathBuf,
    name: String,
    seed: u64,
}

fn witness_place(place: &Path, task: &str) -> PathBuf {
    place.join(format!("witness-{task}"))
}

/// Not a test: one of the runners, until there is a file that says stop.
#[test]
fn worker() {
    let Some(job) = process::job() else { return };
    let job: Job = serde_json::from_str(&job).unwrap();
    let mut chance = Chance::from_seed(job.seed);
    let mut witnesses = TASKS.map(|task| Witness::at(&witness_place(&job.place, task)));
    let path = tool::database(&job.place);
    let mut tool = Tool::at(&path, &job.name);
    let store = tool::tenure(&path);
    while !job.place.join("stop").exists() {
        let index = chance.index(TASKS.len());
        let (Some(task), Some(witness)) = (TASKS.get(index), witnesses.get_mut(index)) else {
            panic!("{index}");
        };
        match job.side {
            Side::Tool => work_as_tool(&mut tool, task, witness, &mut chance),
            Side::Tenure => work_as_tenure(&store, &job.name, task, witness, &mut chance),
        }
    }
}

fn work_as_tool(tool: &mut Tool, task: &str, witness: &mut Witness, chance: &mut Chance) {
    if !tool.acquire(task, TTL) {
        std::thread::sleep(chance.time(Duration::from_millis(5)));
        if chance.one_in(10) {
            tool.cleanup();
        }
        return;
    }
    if chance.one_in(3) && !tool.heartbeat(task, TTL) {
        witness.complain(Token::NONE, "the tool's lock was gone at its heartbeat");
    }
    witness.observe(Token::NONE, || std::thread::sleep(chance.time(REST / 100)));
    let kept = if chance.one_in(4) {
        tool.heartbeat(task, REST)
    } else {
        tool.release(task)
    };
    if !kept {
        witness.complain(Token::NONE, "the tool's lock was gone when it was done");
    }
}

fn work_as_tenure(
    store: &dyn Store,
    name: &str,
    task: &str,
    witness: &mut Witness,
    chance: &mut Chance,
) {
    let key = tool::key(&format!("task:{task}"));
    let mut ask = Ask::new(&key, name)
        .ttl(TTL)
        .waiting()
        .polling(Duration::from_millis(500));
    ask.detached = chance.one_in(4);
    ask.named = false;
    let lease = match waiting::acquire(store, &ask, |_| ()) {
        waiting::Outcome::Granted { lease, .. } => lease,
        // Two that wait for what the other has left to run out.
        waiting::Outcome::Deadlock(_) => return,
        waiting::Outcome::Busy(busy) => panic!("{busy:?}"),
    };
    witness.observe(lease.token, || {
        std::thread::sleep(chance.time(REST / 100));
    });
    let kept = if chance.one_in(4) {
        matches!(
            store.renew(&lease.grant(), REST, soon()).unwrap(),
            Renewed::Extended(_)
        )
    } else {
        matches!(
            store.release(&lease.grant(), soon()).unwrap(),
            Released::Freed(_)
        )
    };
    if !kept {
        witness.complain(lease.token, "the lease was gone when its holder was done");
    }
}

struct Crew {
    dir: TempDir,
    chance: Chance,
    runners: Vec<(Side, Process)>,
    started: usize,
}

impl Crew {
    fn start(&mut self, side: Side) -> Process {
        self.started += 1;
        let job = Job {
            side,
            place: self.dir.path().to_owned(),
            name: format!("{side:?}-{}", self.started),
            seed: self.chance.next(),
        };
        Process::start(
            "steroids_contest::worker",
            &serde_json::to_string(&job).unwrap(),
        )
    }

    /// How often each side was inside: the tool has no tokens.
    fn inside(&self) -> (usize, usize) {
        let tokens = TASKS
            .iter()
            .flat_map(|task| witness::tokens(&witness_place(self.dir.path(), task)));
        let (tool, tenure): (Vec<_>, Vec<_>) = tokens.partition(|token| *token == Token::NONE);
        (tool.len(), tenure.len())
    }

    fn violations(&self) -> Vec<String> {
        let seen = |task: &&str| witness::violations(&witness_place(self.dir.path(), task));
        TASKS.iter().flat_map(seen).collect()
    }
}

/// Every lease of tenure's ends before the next of its task begins. How one of the tool's ended is
/// told as well, how it began is not.
fn tells_of_one_holder_at_a_time(events: &[Event]) {
    let mut held = BTreeMap::new();
    for event in events.iter().filter(|event| event.token != Token::NONE) {
        match event.kind {
            EventKind::Granted => {
                assert_eq!(held.insert(&event.key, event.token), None, "{event:?}");
            }
            EventKind::Renewed => assert_eq!(held.get(&event.key), Some(&event.token), "{event:?}"),
            _ => assert_eq!(held.remove(&event.key), Some(event.token), "{event:?}"),
        }
    }
}

#[test]
fn the_tool_and_tenure_never_hold_one_task_together() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let mut crew = Crew {
        dir: tempfile::tempdir().unwrap(),
        chance: Chance::from_seed(seed),
        runners: vec![],
        started: 0,
    };
    tool::database(crew.dir.path());
    for side in [Side::Tool, Side::Tenure].repeat(3) {
        let runner = crew.start(side);
        crew.runners.push((side, runner));
    }
    let (watch, mut kills) = (Stopwatch::start(), 0);
    loop {
        let (tool, tenure) = crew.inside();
        if !crew.violations().is_empty() || (tool.min(tenure) >= TIMES && kills >= KILLS) {
            break;
        }
        assert!(
            watch.elapsed() < LIMIT,
            "{tool} and {tenure} times inside, {kills} kills in {LIMIT:?}"
        );
        std::thread::sleep(crew.chance.time(Duration::from_millis(120)));
        let index = crew.chance.index(crew.runners.len());
        let (side, mut runner) = crew.runners.swap_remove(index);
        // What the tool's dead leave is not proven to be theirs: all wait for it to run out.
        if side == Side::Tenure || crew.chance.one_in(8) {
            assert!(!runner.has_ended());
            runner.kill();
            kills += 1;
            runner = crew.start(side);
        }
        crew.runners.push((side, runner));
    }
    std::fs::write(crew.dir.path().join("stop"), "").unwrap();
    if crew.violations().is_empty() {
        for (_, runner) in &mut crew.runners {
            runner.wait_for_end();
        }
    }
    assert_eq!(crew.violations(), Vec::<String>::new(), "seed {seed}");
    let store = tool::tenure(&tool::database(crew.dir.path()));
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    tells_of_one_holder_at_a_time(&events);
    let (tool, tenure) = crew.inside();
    println!("{tool} times the tool, {tenure} times tenure, {kills} kills");
}
