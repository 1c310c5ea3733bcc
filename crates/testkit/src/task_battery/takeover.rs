//! G3, G5, G7: a dead worker's task is taken over exactly once, and a late worker is refused.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{Acquired, Binding, EventKind, HistoryQuery, Reason, Token};
use tenure_tasks::{Change, Edit, Proof, Runner, Status, TaskError, TaskStore, key_of};

use super::{
    TaskRun, TaskSubject, TaskWork, add, by_name, new_task, runner, started, waiting_runner,
};
use crate::limit::{soon, within_limit};
use crate::process::{self, Process};

const WAITERS: usize = 4;

/// A worker that begins one task, waiting for it if it has to, and holds it until it is killed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeldTask {
    id: String,
    name: String,
}

impl HeldTask {
    pub(super) fn hold(&self, store: &dyn TaskStore) {
        let runner = waiting_runner(store, &self.name);
        let mut queued = false;
        loop {
            match store.start(&self.id, &runner, soon()).unwrap() {
                Acquired::Granted(started) => {
                    let dead = started.reason == Reason::ClaimedDead;
                    process::report(&format!("{} {dead}", started.lease.token));
                    let _ = std::io::stdin().read_line(&mut String::new());
                    return;
                }
                Acquired::Busy(busy) => {
                    if !queued {
                        process::report("queued");
                        queued = true;
                    }
                    let _ = store.wait(&busy.watched(), super::TTL).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The token that a process was granted, and whether it took the task over from a dead worker.
fn grant(report: &str) -> Option<(Token, bool)> {
    let (token, dead) = report.split_once(' ')?;
    Some((Token(token.parse().ok()?), dead == "true"))
}

/// A worker is killed while four wait for its task and its section: exactly one of them takes the task
/// over, with evidence, and is killed next.
pub fn a_killed_workers_task_is_taken_over_exactly_once(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "a_killed_workers_task_is_taken_over_exactly_once");
    let store = run.open();
    let section = store.add_section("Backend", soon()).unwrap();
    let task = add(&*store, "One", Some(&section.id), &[]);
    let mut names = (0..).map(|number| format!("worker-{number}"));
    let mut send = || {
        run.start(TaskWork::Hold(HeldTask {
            id: task.id.clone(),
            name: names.next().unwrap(),
        }))
    };
    let mut holder = send();
    let (mut token, _) = grant(&holder.report()).unwrap();
    let mut waiters: Vec<Process> = Vec::new();
    let rounds = run.times(12);
    for _ in 0..rounds {
        while waiters.len() < WAITERS {
            let waiter = send();
            assert_eq!(waiter.report(), "queued");
            waiters.push(waiter);
        }
        holder.kill();
        let mut winner = None;
        within_limit("a waiter to take the task over", || {
            winner = waiters.iter().position(|waiter| match waiter.try_report() {
                Some(report) => {
                    let (next, dead) = grant(&report).unwrap();
                    assert!(dead && next > token, "{report} after {token}");
                    token = next;
                    true
                }
                None => false,
            });
            winner.is_some()
        });
        holder = waiters.remove(winner.unwrap());
        // The others wait on: one of them that were granted the task would report it now.
        let known = store.inspect(&key_of(&task.id).unwrap(), soon()).unwrap();
        assert_eq!(known.leases.len(), 1);
        assert_eq!(known.leases[0].0.token, token);
        if let Some(report) = waiters.iter().find_map(Process::try_report) {
            run.fail(&format!("a second waiter was granted the task: {report}"));
        }
    }
    let query = HistoryQuery {
        key: Some(key_of(&task.id).unwrap()),
        ..HistoryQuery::default()
    };
    let events = store.history(&query, soon()).unwrap();
    let dead = events.iter().filter(|event| event.kind == EventKind::Dead);
    assert!(dead.clone().all(|event| event.evidence.is_some()));
    assert_eq!(u64::try_from(dead.count()).unwrap(), rounds);
    assert_eq!(
        store.find_task(&task.id, soon()).unwrap().status,
        Status::InProgress
    );
    run.check_soundness(&*store);
}

/// A runner that is tied to no process, whose lease ends at once.
fn hasty(store: &dyn TaskStore, name: &str) -> Runner {
    let mut runner = runner(store, name);
    runner.holder.binding = Binding::Detached;
    runner.task_ttl = Duration::from_millis(1);
    runner.section_ttl = Duration::from_millis(1);
    runner
}

/// After its task was granted to another runner, a late worker changes nothing: not while the other
/// one works on it, nor after it has ended it.
pub fn a_late_workers_change_is_refused_by_token_and_by_name(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "a_late_workers_change_is_refused_by_token_and_by_name",
    );
    let store = run.open();
    let task = store.add_task(&new_task("One"), soon()).unwrap();
    let late = started(
        store
            .start(&task.id, &hasty(&*store, "late"), soon())
            .unwrap(),
    );
    let other = runner(&*store, "other");
    let mut taken = None;
    within_limit("the lease to expire", || {
        if let Acquired::Granted(started) = store.start(&task.id, &other, soon()).unwrap() {
            taken = Some(started);
        }
        taken.is_some()
    });
    let taken = taken.unwrap();
    assert_eq!(taken.reason, Reason::ClaimedExpired);
    assert!(taken.lease.token > late.lease.token);
    let refused = || {
        let before = store.find_task(&task.id, soon()).unwrap();
        for change in [
            Change::To(Status::Completed),
            Change::To(Status::Pending),
            Change::Failed {
                error: "late".into(),
            },
            Change::Retry {
                error: "late".into(),
            },
            Change::GiveBack,
        ] {
            for proof in [Proof::Token(late.lease.token), by_name("late")] {
                let answer = store.change(&task.id, &proof, &change, &Edit::default(), soon());
                assert!(
                    matches!(answer, Err(TaskError::Superseded { .. })),
                    "{proof:?}, {change:?}: {answer:?}"
                );
            }
        }
        assert_eq!(store.find_task(&task.id, soon()).unwrap(), before);
    };
    refused();
    // A stranger is refused as well, as long as the task is held.
    let done = Change::To(Status::Completed);
    let answer = store.change(
        &task.id,
        &by_name("stranger"),
        &done,
        &Edit::default(),
        soon(),
    );
    assert!(
        matches!(answer, Err(TaskError::Locked { .. })),
        "{answer:?}"
    );
    let proof = Proof::Token(taken.lease.token);
    let changed = store
        .change(&task.id, &proof, &done, &Edit::default(), soon())
        .unwrap();
    assert_eq!(changed.task.status, Status::Completed);
    assert_eq!(changed.freed, [key_of(&task.id).unwrap()]);
    refused();
    // Abandoning its old lease takes nothing away either.
    store.abandon(&late.lease, soon()).unwrap();
    run.check_soundness(&*store);
}

/// A lease that expired without a successor does not throw the work away.
pub fn work_that_nobody_took_over_may_be_ended_late(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "work_that_nobody_took_over_may_be_ended_late");
    let store = run.open();
    let done = Change::To(Status::Completed);
    for by_token in [true, false] {
        let task = store.add_task(&new_task("One"), soon()).unwrap();
        let late = started(
            store
                .start(&task.id, &hasty(&*store, "late"), soon())
                .unwrap(),
        );
        within_limit("the lease to expire", || {
            let known = store.inspect(&late.lease.key, soon()).unwrap();
            known
                .leases
                .iter()
                .all(|(_, verdict)| verdict.ended().is_some())
        });
        let proof = if by_token {
            Proof::Token(late.lease.token)
        } else {
            by_name("late")
        };
        let changed = store
            .change(&task.id, &proof, &done, &Edit::default(), soon())
            .unwrap();
        assert_eq!(changed.task.status, Status::Completed);
    }
    // Not after force: that is a decision against the worker.
    let task = store.add_task(&new_task("Two"), soon()).unwrap();
    let forced = started(
        store
            .start(&task.id, &runner(&*store, "forced"), soon())
            .unwrap(),
    );
    let admin = tenure_core::HolderId::parse("admin").unwrap();
    let _ = store
        .force(&forced.lease.key, None, &admin, None, soon())
        .unwrap();
    for proof in [Proof::Token(forced.lease.token), by_name("forced")] {
        let answer = store.change(&task.id, &proof, &done, &Edit::default(), soon());
        assert!(
            matches!(answer, Err(TaskError::Superseded { .. })),
            "{answer:?}"
        );
    }
    run.check_soundness(&*store);
}

/// `ended_by` tells a worker whether the end of its task was its own.
pub fn the_end_of_a_task_is_reported_to_its_own_token_only(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "the_end_of_a_task_is_reported_to_its_own_token_only",
    );
    let store = run.open();
    let task = store.add_task(&new_task("One"), soon()).unwrap();
    let begin = |name: &str| {
        let answer = store.start(&task.id, &runner(&*store, name), soon());
        started(answer.unwrap()).lease.token
    };
    let end = |token: Token, change: Change| {
        let proof = Proof::Token(token);
        store
            .change(&task.id, &proof, &change, &Edit::default(), soon())
            .unwrap();
    };
    let ended = |token: Token| store.ended_by(&task.id, token, soon()).unwrap();
    let first = begin("one");
    assert_eq!(ended(first), None);
    end(first, Change::GiveBack);
    assert_eq!(ended(first), None, "it is open again");
    let second = begin("two");
    end(second, Change::To(Status::Completed));
    assert_eq!(ended(second).unwrap().status, Status::Completed);
    assert_eq!(ended(first), None);
    let third = begin("three");
    assert_eq!(ended(second), None, "it was taken up again");
    assert_eq!(ended(third), None);
    run.check_soundness(&*store);
}
