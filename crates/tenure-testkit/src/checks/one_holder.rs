//! G1, G2, G5: eight processes contend for one key while some are killed and some are stopped.
//!
//! The leases live far longer than the check, so nothing but the proof of its holder's death frees
//! the key of a killed process: that the others get on at all is the proof of takeover.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{EventKind, Key, Released, Store, Token};

use crate::ask::Ask;
use crate::chance::Chance;
use crate::history;
use crate::limit::{LIMIT, Stopwatch, soon};
use crate::process::Process;
use crate::run::Run;
use crate::subject::Subject;
use crate::waiting;
use crate::witness::{self, Witness};
use crate::worker::Task;

/// Longer than the check, shorter than for ever.
const TTL: Duration = Duration::from_secs(600);

/// The longest work inside.
const WORK: Duration = Duration::from_micros(200);

/// The longest stop, far below the time to live.
const STOP: Duration = Duration::from_millis(150);

/// The longest pause between two blows. The queue is strict: while one is stopped, its turn comes
/// soon and all wait for it.
const PAUSE: Duration = Duration::from_millis(150);

/// What one of the processes does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contest {
    key: Key,
    name: String,
    named: bool,
    times: u64,
    witness: PathBuf,
    log: PathBuf,
    seed: u64,
}

impl Contest {
    /// In the process: acquires and releases so many times.
    pub(crate) fn contend(&self, store: &dyn Store) {
        let mut chance = Chance::from_seed(self.seed);
        let mut witness = Witness::at(&self.witness);
        let mut log = append(&self.log);
        let mut ask = Ask::new(&self.key, &self.name).ttl(TTL).waiting();
        ask.named = self.named;
        for _ in 0..self.times {
            let lease = waiting::acquire(store, &ask, |_| ()).lease();
            log.write_all(format!("{}\n", lease.token).as_bytes())
                .unwrap();
            witness.observe(lease.token, || work(&mut chance));
            match store.release(&lease.grant(), soon()).unwrap() {
                Released::Freed(_) => {}
                Released::AlreadyGone(now) => {
                    let now: Vec<Token> = now.iter().map(|lease| lease.token).collect();
                    witness.complain(lease.token, &format!("its lease was gone, now {now:?}"));
                }
            }
        }
    }
}

fn append(path: &Path) -> File {
    File::options()
        .append(true)
        .create(true)
        .open(path)
        .unwrap()
}

fn work(chance: &mut Chance) {
    let (watch, long) = (Stopwatch::start(), chance.time(WORK));
    if chance.one_in(4) {
        std::thread::yield_now();
    }
    while watch.elapsed() < long {
        std::hint::spin_loop();
    }
}

/// How hard it is going to be.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How many contend.
    pub processes: usize,
    /// How often each gets the key, in each of the two phases.
    pub times: u64,
    /// Whether some are killed and stopped.
    pub violence: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Found {
    /// How many grants were reported.
    pub grants: u64,
    /// How many processes were killed.
    pub kills: u64,
    /// How many were stopped for a while.
    pub stops: u64,
    /// What the witness saw.
    pub violations: Vec<String>,
    /// Tokens that went back, or repeated.
    pub out_of_order: Option<(Token, Token)>,
}

/// Eight processes never hold one key together, and tokens grow, also over a restart of all.
pub fn eight_processes_never_hold_one_key_together(subject: &Subject) {
    let mut run = Run::begin(subject, "eight_processes_never_hold_one_key_together");
    let plan = Plan {
        processes: 8,
        times: run.times(750),
        violence: true,
    };
    let found = contest(&mut run, plan);
    if !found.violations.is_empty() {
        run.fail(&found.violations.join("\n"));
    }
    if let Some((before, after)) = found.out_of_order {
        run.fail(&format!("token {after} was given after {before}"));
    }
    println!("{} kills, {} stops", found.kills, found.stops);
    run.finish(found.grants);
}

/// Runs the contest, in two phases with nobody there in between.
pub fn contest(run: &mut Run<'_>, plan: Plan) -> Found {
    let place = run.place().join("witness");
    fs::create_dir(&place).unwrap();
    let mut crew = Crew {
        place: place.clone(),
        slots: vec![],
        plan,
        kills: 0,
        stops: 0,
    };
    for phase in 1..=2 {
        crew.work(run, plan.times * phase);
        if !witness::violations(&place).is_empty() {
            break;
        }
    }
    let reported = crew.reported();
    compare_with_history(run, &reported);
    Found {
        grants: u64::try_from(reported.len()).unwrap(),
        kills: crew.kills,
        stops: crew.stops,
        violations: witness::violations(&place),
        out_of_order: witness::out_of_order(&witness::tokens(&place)),
    }
}

fn compare_with_history(run: &Run<'_>, reported: &[Token]) {
    let store = run.open();
    let Some(events) = run.history_if_any(&*store) else {
        return;
    };
    let told = history::tokens(&events, run.subject.key(), EventKind::Granted);
    let missing: BTreeSet<_> = reported
        .iter()
        .filter(|token| !told.contains(token))
        .collect();
    if !missing.is_empty() {
        run.fail(&format!("the history knows nothing of grants {missing:?}"));
    }
}

/// The processes, and what is done to them.
struct Crew {
    place: PathBuf,
    slots: Vec<Slot>,
    plan: Plan,
    kills: u64,
    stops: u64,
}

/// One of the contenders: a process, and after its death the next.
struct Slot {
    process: Option<Process>,
    log: PathBuf,
    number: usize,
}

impl Slot {
    fn done(&self) -> u64 {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        u64::try_from(text.lines().count()).unwrap()
    }
}

impl Crew {
    /// Works until everybody has had the key `goal` times.
    fn work(&mut self, run: &mut Run<'_>, goal: u64) {
        self.slots = (0..self.plan.processes)
            .map(|number| Slot {
                process: None,
                log: self.place.join(format!("grants-{number}")),
                number,
            })
            .collect();
        for index in 0..self.slots.len() {
            self.send(run, index, goal);
        }
        let (mut seen, mut since) = (0, Stopwatch::start());
        while !self.all_ended() && witness::violations(&self.place).is_empty() {
            std::thread::sleep(run.chance.time(PAUSE));
            if self.plan.violence {
                self.strike(run, goal);
            }
            let now = witness::progress(&self.place);
            if now != seen {
                (seen, since) = (now, Stopwatch::start());
            }
            if since.elapsed() > LIMIT {
                run.fail(&self.standstill(run));
            }
        }
    }

    fn send(&mut self, run: &mut Run<'_>, index: usize, goal: u64) {
        let slot = &mut self.slots[index];
        let left = goal.saturating_sub(slot.done());
        let seed = run.chance.next();
        slot.process = (left > 0).then(|| {
            run.start(Task::Contend(Contest {
                key: run.subject.key().clone(),
                name: format!("worker-{}", slot.number),
                // Some come back to their place when they are cut off, some begin anew.
                named: slot.number.is_multiple_of(2),
                times: left,
                witness: self.place.clone(),
                log: slot.log.clone(),
                seed,
            }))
        });
    }

    fn all_ended(&mut self) -> bool {
        for slot in &mut self.slots {
            if slot.process.as_mut().is_some_and(Process::has_ended) {
                slot.process = None;
            }
        }
        self.slots.iter().all(|slot| slot.process.is_none())
    }

    /// Kills one or stops it for a while.
    fn strike(&mut self, run: &mut Run<'_>, goal: u64) {
        let index = run.chance.index(self.slots.len());
        let Some(process) = &mut self.slots[index].process else {
            return;
        };
        if process.has_ended() {
            return;
        }
        if run.chance.one_in(3) {
            process.kill();
            self.kills += 1;
            self.send(run, index, goal);
        } else {
            process.stop();
            std::thread::sleep(run.chance.mostly_short(STOP));
            process.go_on();
            self.stops += 1;
        }
    }

    fn reported(&self) -> Vec<Token> {
        let logs = self.slots.iter().map(|slot| fs::read_to_string(&slot.log));
        logs.flat_map(|log| {
            let log = log.unwrap_or_default();
            log.lines()
                .map(|line| Token(line.parse().unwrap()))
                .collect::<Vec<_>>()
        })
        .collect()
    }

    fn standstill(&self, run: &Run<'_>) -> String {
        let done: Vec<u64> = self.slots.iter().map(Slot::done).collect();
        let known = run.open().inspect(run.subject.key(), soon()).unwrap();
        format!("nobody got on for {LIMIT:?}; grants so far: {done:?}; the store says: {known:?}")
    }
}
