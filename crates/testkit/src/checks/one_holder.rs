//! G1, G2, G5: eight processes contend for one key while some are killed and some are stopped.
//!
//! The leases last far longer than the check, so only proof that its holder died frees the key of a killed
//! process. That the other processes make progress proves that they take it over.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{EventKind, Key, Mode, Released, Token};

use crate::ask::Ask;
use crate::chance::Chance;
use crate::history;
use crate::limit::{LIMIT, Stopwatch, soon};
use crate::process::Process;
use crate::run::Run;
use crate::subject::Subject;
use crate::waiting;
use crate::witness::{self, Admission, RESERVATIONS, Witness};
use crate::worker::Task;

/// Longer than the check.
const TTL: Duration = Duration::from_secs(600);

/// The longest time that a holder works.
const WORK: Duration = Duration::from_micros(200);

/// The longest stop, far below the time to live.
const STOP: Duration = Duration::from_millis(150);

/// The longest pause between two kills or stops. The queue is strict: the turn of a stopped process comes
/// soon, and then all others wait for it.
const PAUSE: Duration = Duration::from_millis(150);

/// The job of one contestant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contest {
    key: Key,
    name: String,
    named: bool,
    /// The mode of most claims; the others are exclusive.
    beside: Option<Mode>,
    times: u64,
    witness: PathBuf,
    log: PathBuf,
    seed: u64,
}

impl Contest {
    /// In the process: acquires and releases the key this many times.
    pub(crate) fn contend(&self, subject: &Subject, place: &Path) {
        let mut chance = Chance::from_seed(self.seed);
        let mut witness = Witness::at(&self.witness);
        let store = &*subject.open(place);
        // After the liveness lock: when a process is killed, the kernel closes first what was opened last.
        store.this_process().unwrap();
        let mut admission = Admission::at(&self.witness);
        let mut log = append(&self.log);
        let mut ask = Ask::new(&self.key, &self.name).ttl(TTL).waiting();
        ask.named = self.named;
        for _ in 0..self.times {
            if let Some(mode) = &self.beside {
                let exclusive = chance.one_in(4);
                ask.mode = if exclusive {
                    Mode::Exclusive
                } else {
                    one_of(mode, chance.next())
                };
            }
            let lease = waiting::acquire(store, &ask, |_| ()).lease();
            log.write_all(format!("{}\n", lease.token).as_bytes())
                .unwrap();
            if self.beside.is_some() {
                admission.observe(&witness, &lease, || work(&mut chance));
            } else {
                witness.observe(lease.token, || work(&mut chance));
            }
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

/// This mode; for paths, that of one of the reservations that the witness knows.
pub(crate) fn one_of(mode: &Mode, number: u64) -> Mode {
    if mode.paths().is_none() {
        return mode.clone();
    }
    let number = usize::try_from(number % RESERVATIONS.len() as u64).unwrap();
    RESERVATIONS[number].0.parse().unwrap()
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

/// The settings of a contest.
#[derive(Debug, Clone)]
pub struct ContestSettings {
    /// The number of contestants.
    pub processes: usize,
    /// How often each gets the key, in each of the two phases.
    pub times: u64,
    /// Whether some are killed and stopped.
    pub kills_and_stops: bool,
    /// The mode of most claims, if not all are exclusive.
    pub beside: Option<Mode>,
}

/// The result of a contest.
#[derive(Debug)]
pub struct ContestResult {
    /// How many grants were reported.
    pub grants: u64,
    /// How many processes were killed.
    pub kills: u64,
    /// How many were stopped and continued.
    pub stops: u64,
    /// What the witness saw.
    pub violations: Vec<String>,
    /// Two tokens of which the later is not larger.
    pub out_of_order: Option<(Token, Token)>,
}

/// Eight processes never hold one key together, and tokens grow even across a restart of all of them.
pub fn eight_processes_never_hold_one_key_together(subject: &Subject) {
    let mut run = Run::begin(subject, "eight_processes_never_hold_one_key_together");
    let settings = ContestSettings {
        processes: 8,
        times: run.times(750),
        kills_and_stops: true,
        beside: None,
    };
    let result = contest(&mut run, settings);
    if !result.violations.is_empty() {
        run.fail(&result.violations.join("\n"));
    }
    if let Some((before, after)) = result.out_of_order {
        run.fail(&format!("token {after} was granted after {before}"));
    }
    println!("{} kills, {} stops", result.kills, result.stops);
    run.finish(result.grants);
}

/// Runs the contest in two phases. No process has the store open in between.
pub fn contest(run: &mut Run<'_>, settings: ContestSettings) -> ContestResult {
    let place = run.place().join("witness");
    fs::create_dir(&place).unwrap();
    let times = settings.times;
    let mut contestants = Contestants {
        place: place.clone(),
        members: vec![],
        settings,
        kills: 0,
        stops: 0,
    };
    for phase in 1..=2 {
        contestants.work(run, times * phase);
        if !witness::violations(&place).is_empty() {
            break;
        }
    }
    let reported = contestants.reported();
    compare_with_history(run, &reported);
    ContestResult {
        grants: u64::try_from(reported.len()).unwrap(),
        kills: contestants.kills,
        stops: contestants.stops,
        violations: witness::violations(&place),
        out_of_order: witness::out_of_order(&witness::tokens(&place)),
    }
}

fn compare_with_history(run: &Run<'_>, reported: &[Token]) {
    let store = run.open();
    let Some(events) = run.history_if_any(&*store) else {
        return;
    };
    let recorded = history::tokens(&events, run.subject.key(), EventKind::Granted);
    let missing: BTreeSet<_> = reported
        .iter()
        .filter(|token| !recorded.contains(token))
        .collect();
    if !missing.is_empty() {
        run.fail(&format!("the history lacks the grants {missing:?}"));
    }
}

/// All contestants.
struct Contestants {
    place: PathBuf,
    members: Vec<Contestant>,
    settings: ContestSettings,
    kills: u64,
    stops: u64,
}

/// One contestant: a process, and its successor once it was killed.
struct Contestant {
    process: Option<Process>,
    log: PathBuf,
    number: usize,
}

impl Contestant {
    fn done(&self) -> u64 {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        u64::try_from(text.lines().count()).unwrap()
    }
}

impl Contestants {
    /// Runs until every contestant has had the key `goal` times.
    fn work(&mut self, run: &mut Run<'_>, goal: u64) {
        self.members = (0..self.settings.processes)
            .map(|number| Contestant {
                process: None,
                log: self.place.join(format!("grants-{number}")),
                number,
            })
            .collect();
        for index in 0..self.members.len() {
            self.send(run, index, goal);
        }
        let (mut seen, mut since) = (0, Stopwatch::start());
        while !self.all_ended() && witness::violations(&self.place).is_empty() {
            std::thread::sleep(run.chance.time(PAUSE));
            if self.settings.kills_and_stops {
                self.kill_or_stop(run, goal);
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
        let contestant = &mut self.members[index];
        let left = goal.saturating_sub(contestant.done());
        let seed = run.chance.next();
        let beside = self.settings.beside.clone();
        contestant.process = (left > 0).then(|| {
            run.start(Task::Contend(Contest {
                key: run.subject.key().clone(),
                name: format!("worker-{}", contestant.number),
                // Some resume their ticket after a kill, some take a new one.
                named: contestant.number.is_multiple_of(2),
                beside,
                times: left,
                witness: self.place.clone(),
                log: contestant.log.clone(),
                seed,
            }))
        });
    }

    fn all_ended(&mut self) -> bool {
        for contestant in &mut self.members {
            if contestant.process.as_mut().is_some_and(Process::has_ended) {
                contestant.process = None;
            }
        }
        self.members
            .iter()
            .all(|contestant| contestant.process.is_none())
    }

    /// Kills a contestant, or stops it for a while.
    fn kill_or_stop(&mut self, run: &mut Run<'_>, goal: u64) {
        let index = run.chance.index(self.members.len());
        let Some(process) = &mut self.members[index].process else {
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
        let logs = self
            .members
            .iter()
            .map(|contestant| fs::read_to_string(&contestant.log));
        logs.flat_map(|log| {
            let log = log.unwrap_or_default();
            log.lines()
                .map(|line| Token(line.parse().unwrap()))
                .collect::<Vec<_>>()
        })
        .collect()
    }

    fn standstill(&self, run: &Run<'_>) -> String {
        let done: Vec<u64> = self.members.iter().map(Contestant::done).collect();
        let known = run.open().inspect(run.subject.key(), soon()).unwrap();
        format!("no progress for {LIMIT:?}; grants so far: {done:?}; the store reports: {known:?}")
    }
}
