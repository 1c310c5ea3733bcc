//! G1, G5: eight workers share sections and tasks while some are killed and some are stopped.
//!
//! Leases last far longer than the check. That the tasks of a killed worker are done at all proves
//! that they were taken over.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::Acquired;
use tenure_tasks::{Change, Edit, Proof, Shortage, Started, Status, TaskQuery, TaskStore};

use super::{TaskRun, TaskSubject, TaskWork, add, waiting_runner};
use crate::chance::Chance;
use crate::limit::{LIMIT, Stopwatch, soon};
use crate::process::Process;
use crate::witness::{self, Witness};

const WORKERS: usize = 8;
const SECTIONS: usize = 3;

/// The longest work on a task, most of the time.
const WORK: Duration = Duration::from_micros(500);

/// The longest work on one task in four: long enough for another worker to begin beside it, if the
/// store lets it, however busy the machine is.
const LONG_WORK: Duration = Duration::from_millis(10);

/// The longest stop, far below the time to live.
const STOP: Duration = Duration::from_millis(60);

/// A worker that takes the next task and ends it, until none is left.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contender {
    name: String,
    seed: u64,
    /// One folder for each task and section, for its witness.
    witnesses: PathBuf,
    /// Every completion: the id of the task.
    completed: PathBuf,
}

impl Contender {
    pub(super) fn work(&self, store: &dyn TaskStore) {
        let mut chance = Chance::from_seed(self.seed);
        let runner = waiting_runner(store, &self.name);
        loop {
            match store.next(&runner, soon()).unwrap() {
                Acquired::Granted(started) => self.end(store, &mut chance, &started),
                Acquired::Busy(busy) if busy.shortage == Some(Shortage::NothingLeft) => return,
                // Only a wake-up ends the wait: a wake-up that is missed shows as a check that hangs.
                Acquired::Busy(busy) => {
                    let _ = store.wait(&busy.watched(), super::TTL).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn end(&self, store: &dyn TaskStore, chance: &mut Chance, started: &Started) {
        let (task, token) = (&started.task, started.lease.token);
        let mut on_task = Witness::at(&self.witnesses.join(&task.id));
        match (&task.section, &started.section) {
            (Some(section), Some(lease)) => {
                let mut in_section = Witness::at(&self.witnesses.join(&section.id));
                in_section.observe(lease.token, || on_task.observe(token, || work(chance)));
            }
            _ => on_task.observe(token, || work(chance)),
        }
        if chance.one_in(12) {
            return store.abandon(&started.lease, soon()).unwrap();
        }
        let change = match chance.below(12) {
            0 => Change::GiveBack,
            _ => Change::To(Status::Completed),
        };
        let proof = Proof::Token(token);
        match store.change(&task.id, &proof, &change, &Edit::default(), soon()) {
            Ok(_) if change == Change::GiveBack => {}
            Ok(_) => append(&self.completed, &task.id),
            Err(error) => on_task.complain(token, &format!("its work was refused: {error}")),
        }
    }
}

fn work(chance: &mut Chance) {
    if chance.one_in(4) {
        return std::thread::sleep(chance.time(LONG_WORK));
    }
    let (watch, long) = (Stopwatch::start(), chance.time(WORK));
    while watch.elapsed() < long {
        std::hint::spin_loop();
    }
}

/// One write to a file that is open for appending: it is there whole, or not at all.
fn append(path: &Path, line: &str) {
    let mut file = File::options()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Eight workers never work on one task together, nor two runners in one section. Every task is
/// completed, exactly once.
pub fn eight_processes_never_work_on_one_task_or_in_one_section_together(subject: &TaskSubject) {
    let mut run = TaskRun::begin(
        subject,
        "eight_processes_never_work_on_one_task_or_in_one_section_together",
    );
    let store = run.open();
    let tasks = usize::try_from(run.times(150)).unwrap();
    let sections: Vec<String> = (0..SECTIONS)
        .map(|n| store.add_section(&format!("Section {n}"), soon()).unwrap())
        .map(|section| section.id)
        .collect();
    let mut added = Vec::new();
    for n in 0..tasks {
        let section = sections.get(run.chance.index(SECTIONS * 2));
        let on = (run.chance.one_in(4) && n > 0).then(|| run.chance.index(n));
        let on: Vec<&tenure_tasks::Task> = on.map(|on| &added[on]).into_iter().collect();
        let task = add(
            &*store,
            &format!("Task {n}"),
            section.map(String::as_str),
            &on,
        );
        added.push(task);
    }
    let (witnesses, log) = (run.place().join("witnesses"), run.place().join("completed"));
    let mut crew: Vec<Option<Process>> = (0..WORKERS)
        .map(|number| Some(send(&mut run, number, &witnesses, &log)))
        .collect();
    let (mut kills, mut stops, mut seen, mut since) = (0, 0, 0, Stopwatch::start());
    while crew.iter().any(Option::is_some) {
        std::thread::sleep(run.chance.time(STOP));
        for slot in &mut crew {
            if slot.as_mut().is_some_and(Process::has_ended) {
                *slot = None;
            }
        }
        let struck = run.chance.index(WORKERS);
        if let Some(process) = &mut crew[struck] {
            if run.chance.one_in(3) {
                process.kill();
                kills += 1;
                crew[struck] = Some(send(&mut run, struck, &witnesses, &log));
            } else if !process.has_ended() {
                process.stop();
                std::thread::sleep(run.chance.mostly_short(STOP));
                process.go_on();
                stops += 1;
            }
        }
        let done = std::fs::metadata(&log).map_or(0, |log| log.len());
        if done != seen {
            (seen, since) = (done, Stopwatch::start());
        }
        if since.elapsed() > LIMIT {
            let left = store.list(soon()).unwrap();
            run.fail(&format!("no task was ended for {LIMIT:?}: {left:?}"));
        }
    }
    judge(&run, &*store, &witnesses, &log, tasks);
    println!("{tasks} tasks, {kills} kills, {stops} stops");
}

fn send(run: &mut TaskRun<'_>, number: usize, witnesses: &Path, log: &Path) -> Process {
    let seed = run.chance.next();
    run.start(TaskWork::Contend(Contender {
        name: format!("worker-{number}"),
        seed,
        witnesses: witnesses.to_owned(),
        completed: log.to_owned(),
    }))
}

fn judge(run: &TaskRun<'_>, store: &dyn TaskStore, witnesses: &Path, log: &Path, tasks: usize) {
    for place in std::fs::read_dir(witnesses).unwrap() {
        let place = place.unwrap().path();
        let violations = witness::violations(&place);
        if !violations.is_empty() {
            run.fail(&violations.join("\n"));
        }
    }
    for task in store.tasks(&TaskQuery::default(), soon()).unwrap() {
        let tokens = witness::tokens(&witnesses.join(&task.id));
        if let Some((before, after)) = witness::out_of_order(&tokens) {
            run.fail(&format!(
                "token {after} was granted after {before}: {task:?}"
            ));
        }
    }
    let query = TaskQuery {
        status: Some(Status::Completed),
        ..TaskQuery::default()
    };
    assert_eq!(store.tasks(&query, soon()).unwrap().len(), tasks);
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for id in std::fs::read_to_string(log).unwrap().lines() {
        *times.entry(id.to_owned()).or_default() += 1;
    }
    if let Some((id, times)) = times.iter().find(|(_, times)| **times > 1) {
        run.fail(&format!("{id} was completed {times} times"));
    }
    // A worker that was killed after its last task may have left its section.
    store.reap(tenure_core::Reap::Free, soon()).unwrap();
    let left = store.list(soon()).unwrap();
    let held = left.iter().find(|known| !known.leases.is_empty());
    if let Some(known) = held {
        run.fail(&format!("still held: {known:?}"));
    }
    run.check_soundness(store);
}
