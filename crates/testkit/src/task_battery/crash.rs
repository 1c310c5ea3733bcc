//! G10: a crash anywhere is survivable.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::Acquired;
use tenure_tasks::{
    Change, Edit, Proof, Shortage, Started, Status, Task, TaskError, TaskQuery, TaskStore,
    Withdrawal,
};

use super::{TaskRun, TaskSubject, TaskWork, add, by_name, new_task, runner, waiting_runner};
use crate::chance::Chance;
use crate::limit::{soon, within_limit};
use crate::process;

/// The longest time from the start of a process to its kill.
const LIFETIME: Duration = Duration::from_millis(40);

/// A process that uses every verb in any order, until it is killed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RandomWork {
    seed: u64,
}

impl RandomWork {
    pub(super) fn go_on(&self, subject: &TaskSubject, place: &Path) {
        // Before the store is opened: that may be cut short as well.
        process::report("ready");
        let mut chance = Chance::from_seed(self.seed);
        let store = (subject.open)(place);
        let mut begun: Vec<Started> = Vec::new();
        loop {
            step(&*store, &mut chance, &mut begun);
        }
    }
}

fn any(store: &dyn TaskStore, chance: &mut Chance) -> Option<Task> {
    let tasks = store.tasks(&TaskQuery::default(), soon()).unwrap();
    (!tasks.is_empty()).then(|| tasks[chance.index(tasks.len())].clone())
}

/// One verb. A refusal is an answer; an error of the store is a failure.
fn step(store: &dyn TaskStore, chance: &mut Chance, begun: &mut Vec<Started>) {
    let name = ["one", "two"][chance.index(2)];
    let mut who = runner(store, name);
    if chance.one_in(2) {
        who = waiting_runner(store, name);
    }
    let answer = match chance.below(10) {
        0 => {
            add(store, "Added", None, &[]);
            Ok(())
        }
        1..4 => store.next(&who, soon()).map(|answer| keep(begun, answer)),
        4 => match any(store, chance) {
            Some(task) => store
                .start(&task.id, &who, soon())
                .map(|answer| keep(begun, answer)),
            None => Ok(()),
        },
        5 | 6 => match begun.pop() {
            Some(work) => end(store, chance, &work),
            None => Ok(()),
        },
        7 => match any(store, chance) {
            Some(task) => store
                .edit_task(&task.id, &random_edit(store, chance), soon())
                .map(|_| ()),
            None => Ok(()),
        },
        8 => store.stop_waiting(None, &who, Withdrawal::Leave, soon()),
        _ => match any(store, chance) {
            Some(task) if chance.one_in(3) => store.delete_tasks(&[task.id], soon()).map(|_| ()),
            Some(task) => {
                let open = Change::To(Status::Pending);
                store
                    .change(&task.id, &by_name(name), &open, &Edit::default(), soon())
                    .map(|_| ())
            }
            None => Ok(()),
        },
    };
    if let Err(TaskError::Store(error)) = answer {
        panic!("{error}");
    }
}

fn keep(begun: &mut Vec<Started>, answer: Acquired<Started>) {
    if let Acquired::Granted(started) = answer {
        begun.push(started);
    }
}

fn end(store: &dyn TaskStore, chance: &mut Chance, work: &Started) -> Result<(), TaskError> {
    let change = match chance.below(4) {
        0 => return store.abandon(&work.lease, soon()),
        1 => Change::GiveBack,
        2 => Change::Retry {
            error: "at random".into(),
        },
        _ => Change::To(Status::Completed),
    };
    let proof = Proof::Token(work.lease.token);
    store
        .change(&work.task.id, &proof, &change, &Edit::default(), soon())
        .map(|_| ())
}

fn random_edit(store: &dyn TaskStore, chance: &mut Chance) -> Edit {
    let other = any(store, chance).map(|task| task.id);
    let mut edit = Edit::default();
    match chance.below(3) {
        0 => edit.title = Some(format!("Changed {}", chance.below(1000))),
        1 => edit.add_dependencies.extend(other),
        _ => edit.drop_dependencies.extend(other),
    }
    edit
}

/// A process that uses every verb is killed at random moments, again and again. Each time the next one
/// can begin and end every task that is ready, and no lease of the dead one is left.
pub fn a_crash_at_a_random_moment_leaves_a_usable_store(subject: &TaskSubject) {
    let mut run = TaskRun::begin(subject, "a_crash_at_a_random_moment_leaves_a_usable_store");
    let crashes = run.times(40);
    let mut ended = 0;
    for crash in 1..=crashes {
        let seed = run.chance.next();
        let mut process = run.start(TaskWork::Crash(RandomWork { seed }));
        assert_eq!(process.report(), "ready");
        std::thread::sleep(run.chance.time(LIFETIME));
        process.kill();
        let store = run.open();
        ended += end_all(&run, &*store, crash);
        check_blockers(&run, &*store);
        store.reap(tenure_core::Reap::Free, soon()).unwrap();
        let left = store.list(soon()).unwrap();
        if let Some(known) = left.iter().find(|known| !known.leases.is_empty()) {
            run.fail(&format!("after crash {crash}: still held: {known:?}"));
        }
        run.check_soundness(&*store);
        // What is left does not slow the next round down.
        let tasks = store.tasks(&TaskQuery::default(), soon()).unwrap();
        let ids: Vec<String> = tasks.into_iter().skip(20).map(|task| task.id).collect();
        store.delete_tasks(&ids, soon()).unwrap();
        store.add_task(&new_task("Left"), soon()).unwrap();
    }
    println!("{ended} tasks ended after {crashes} crashes");
}

/// Begins and ends every ready task.
fn end_all(run: &TaskRun<'_>, store: &dyn TaskStore, crash: u64) -> u64 {
    let next = runner(store, "next");
    let mut ended = 0;
    within_limit("every task to be ended", || {
        match store.next(&next, soon()).unwrap() {
            Acquired::Granted(started) => {
                let proof = Proof::Token(started.lease.token);
                let done = Change::To(Status::Completed);
                store
                    .change(&started.task.id, &proof, &done, &Edit::default(), soon())
                    .unwrap();
                ended += 1;
                false
            }
            Acquired::Busy(busy) => match busy.shortage {
                Some(Shortage::NothingLeft | Shortage::Blocked) => true,
                Some(Shortage::Later { .. }) => {
                    // By name it can be begun at once.
                    let query = TaskQuery {
                        status: Some(Status::Pending),
                        ..TaskQuery::default()
                    };
                    for task in store.tasks(&query, soon()).unwrap() {
                        if task.not_before.is_some() && task.blockers == 0 {
                            let done = Change::To(Status::Completed);
                            let by = by_name("next");
                            store
                                .change(&task.id, &by, &done, &Edit::default(), soon())
                                .unwrap();
                            ended += 1;
                        }
                    }
                    false
                }
                other => run.fail(&format!("after crash {crash}: {other:?}, {busy:?}")),
            },
            other => run.fail(&format!("after crash {crash}: {other:?}")),
        }
    });
    ended
}

/// The number of unfinished dependencies of every task is the one that its dependencies say.
fn check_blockers(run: &TaskRun<'_>, store: &dyn TaskStore) {
    let tasks = store.tasks(&TaskQuery::default(), soon()).unwrap();
    for task in &tasks {
        let open = tasks
            .iter()
            .filter(|other| task.depends_on.contains(&other.id) && !other.status.is_done());
        if u64::try_from(open.count()).unwrap() != task.blockers {
            run.fail(&format!("{task:?} counts its dependencies wrong"));
        }
    }
}
