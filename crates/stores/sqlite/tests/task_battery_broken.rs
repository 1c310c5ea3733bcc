//! The task battery can fail: task stores that are broken on purpose, each in its own way, fail the
//! check of the rule that they break.

use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use tenure_core::{
    Acquired, Binding, Capabilities, Claim, Event, Fenced, Forced, Grant, Granted, HistoryQuery,
    Holder, HolderId, Key, KeyKind, Lease, PathPattern, Priority, Reap, Reaped, Records, Released,
    Renewed, Snapshot, Store, StoreError, Token, Verdict, Waited, Watched,
};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_tasks::{
    Change, Changed, DeletedSection, DeletedTask, Edit, ImportSummary, MergeSummary, NewTask, Past,
    Proof, Replica, Runner, Section, SectionSummary, Started, SyncState, Task, TaskError,
    TaskQuery, TaskStore, Withdrawal,
};
use tenure_testkit::TaskSubject;
use tenure_testkit::task_battery::{exchange, flow, queue, takeover};

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A late worker's change is written in the name of the newest runner.
    AcceptsLateWork,
    /// Every runner that looks for any task overtakes the waiters.
    IgnoresTheQueue,
    /// A task is begun without the lease of its section.
    TakesNoSection,
    /// A runner that finds every task locked takes one from its holder.
    StealsTasks,
    /// A task is begun although its dependencies are not done.
    IgnoresDependencies,
    /// Of an import with a bad line the good lines are kept.
    ImportsHalf,
    /// A task that is held is deleted.
    DeletesHeldTasks,
    /// None: this wrapper itself breaks no rule.
    None,
}

struct BrokenStore {
    inner: SqliteStore,
    fault: Fault,
}

/// Passes verbs on to the store inside.
macro_rules! pass_on {
    ($($verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)+) => {
        $(fn $verb(&self, $($name: $type),*) -> $answer {
            self.inner.$verb($($name),*)
        })+
    };
}

impl Records for BrokenStore {
    pass_on! {
        capabilities() -> Capabilities;
        this_process() -> Result<Binding, StoreError>;
        on_record(by: Instant) -> Result<Vec<Snapshot>, StoreError>;
        history(query: &HistoryQuery, by: Instant) -> Result<Vec<Event>, StoreError>;
        wait(watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError>;
        wake() -> ();
    }
}

impl Store for BrokenStore {
    pass_on! {
        acquire_all(claims: &[Claim], by: Instant) -> Result<Acquired<Vec<Granted>>, StoreError>;
        renew_all(grants: &[Grant], ttl: Duration, by: Instant) -> Result<Vec<Renewed>, StoreError>;
        release_all(grants: &[Grant], by: Instant) -> Result<Vec<Released>, StoreError>;
        release_paths(parts: &[(Grant, Vec<PathPattern>)], by: Instant) -> Result<Vec<Released>, StoreError>;
        withdraw_all(claims: &[Claim], then: Withdrawal, by: Instant) -> Result<(), StoreError>;
        ask(key: &Key, only: Option<&[Token]>, asker: &HolderId, note: Option<&str>, by: Instant) -> Result<Vec<Lease>, StoreError>;
        force(key: &Key, of: Option<&HolderId>, forced_by: &HolderId, reason: Option<&str>, by: Instant) -> Result<Forced, StoreError>;
        force_one(grant: &Grant, forced_by: &HolderId, reason: Option<&str>, by: Instant) -> Result<Forced, StoreError>;
        fence(key: &Key, token: Token, by: Instant) -> Result<Fenced, StoreError>;
        inspect(key: &Key, by: Instant) -> Result<Snapshot, StoreError>;
        reap(reap: Reap, by: Instant) -> Result<Vec<Reaped>, StoreError>;
    }
}

impl TaskStore for BrokenStore {
    pass_on! {
        add_section(name: &str, by: Instant) -> Result<Section, TaskError>;
        sections(by: Instant) -> Result<Vec<SectionSummary>, TaskError>;
        find_section(given: &str, by: Instant) -> Result<Section, TaskError>;
        delete_section(id: &str, move_to: Option<&str>, caller: &HolderId, by: Instant) -> Result<DeletedSection, TaskError>;
        add_task(task: &NewTask, by: Instant) -> Result<Task, TaskError>;
        add_task_once(task: &NewTask, by: Instant) -> Result<(Task, bool), TaskError>;
        find_task(given: &str, by: Instant) -> Result<Task, TaskError>;
        tasks(query: &TaskQuery, by: Instant) -> Result<Vec<Task>, TaskError>;
        dependents(id: &str, by: Instant) -> Result<Vec<Task>, TaskError>;
        edit_task(id: &str, edit: &Edit, by: Instant) -> Result<Task, TaskError>;
        task_history(id: &str, by: Instant) -> Result<Vec<Past>, TaskError>;
        stop_waiting(id: Option<&str>, runner: &Runner, tickets: Withdrawal, by: Instant) -> Result<(), TaskError>;
        abandon(lease: &Lease, by: Instant) -> Result<(), TaskError>;
        leave_idle_sections(holder: &Holder, by: Instant) -> Result<(), TaskError>;
        ended_by(id: &str, token: Token, by: Instant) -> Result<Option<Task>, TaskError>;
        export(line: &mut dyn FnMut(&str), by: Instant) -> Result<(), TaskError>;
        replica(by: Instant) -> Result<Replica, TaskError>;
        merge(other: &Replica, by: Instant) -> Result<(Replica, MergeSummary), TaskError>;
        sync_state(by: Instant) -> Result<SyncState, TaskError>;
        settle(note: &str, changes: u64, by: Instant) -> Result<(), TaskError>;
        unsettle(by: Instant) -> Result<(), TaskError>;
    }

    fn start(
        &self,
        id: &str,
        runner: &Runner,
        by: Instant,
    ) -> Result<Acquired<Started>, TaskError> {
        let mut answer = self.inner.start(id, runner, by);
        if let (Fault::IgnoresDependencies, Err(TaskError::Blocked { task, .. })) =
            (self.fault, &answer)
        {
            let drop = Edit {
                drop_dependencies: task.depends_on.clone(),
                ..Edit::default()
            };
            self.inner.edit_task(id, &drop, by)?;
            answer = self.inner.start(id, runner, by);
        }
        match answer? {
            Acquired::Granted(started) => Ok(self.without_section(started, by)?),
            other => Ok(other),
        }
    }

    fn next(&self, runner: &Runner, by: Instant) -> Result<Acquired<Started>, TaskError> {
        let mut runner = runner.clone();
        if self.fault == Fault::IgnoresTheQueue {
            // A few levels of priority are worth more than the time since the others came.
            runner.priority = Priority::MAX;
        }
        match self.inner.next(&runner, by)? {
            Acquired::Granted(started) => Ok(self.without_section(started, by)?),
            Acquired::Busy(busy) if self.fault == Fault::StealsTasks => {
                let is_task =
                    |(lease, _): &&(Lease, Verdict)| matches!(lease.key.kind(), KeyKind::Task(_));
                let Some((lease, _)) = busy.leases.iter().find(is_task) else {
                    return Ok(Acquired::Busy(busy));
                };
                let _ = self
                    .inner
                    .force(&lease.key, None, &runner.holder.id, None, by)?;
                self.inner.next(&runner, by)
            }
            other => Ok(other),
        }
    }

    fn change(
        &self,
        id: &str,
        proof: &Proof,
        change: &Change,
        edit: &Edit,
        by: Instant,
    ) -> Result<Changed, TaskError> {
        match self.inner.change(id, proof, change, edit, by) {
            Err(TaskError::Superseded { task, .. }) if self.fault == Fault::AcceptsLateWork => {
                let newest = Proof::Token(task.token);
                self.inner.change(id, &newest, change, edit, by)
            }
            other => other,
        }
    }

    fn delete_tasks(&self, ids: &[String], by: Instant) -> Result<Vec<DeletedTask>, TaskError> {
        match self.inner.delete_tasks(ids, by) {
            Err(TaskError::Locked { lease, .. }) if self.fault == Fault::DeletesHeldTasks => {
                self.inner.abandon(&lease, by)?;
                self.inner.delete_tasks(ids, by)
            }
            other => other,
        }
    }

    fn import(&self, lines: &str, by: Instant) -> Result<ImportSummary, TaskError> {
        let whole = self.inner.import(lines, by);
        if self.fault == Fault::ImportsHalf && whole.is_err() {
            for line in lines.lines() {
                let _ = self.inner.import(line, by);
            }
        }
        whole
    }
}

impl BrokenStore {
    fn without_section(
        &self,
        started: Started,
        by: Instant,
    ) -> Result<Acquired<Started>, StoreError> {
        if let (Fault::TakesNoSection, Some(section)) = (self.fault, &started.section) {
            let _ = self.inner.release(&section.grant(), by)?;
        }
        Ok(Acquired::Granted(started))
    }
}

fn open(place: &Path, fault: Fault) -> Box<dyn TaskStore> {
    let inner = SqliteStore::open(&place.join("tenure.db"), SqliteOptions::default()).unwrap();
    Box::new(BrokenStore { inner, fault })
}

type Open = fn(&Path) -> Box<dyn TaskStore>;
type Check = fn(&TaskSubject);

/// Whether a store passes a check. A check fails by panicking.
fn passes(open: Open, check: Check) -> bool {
    let subject = TaskSubject::opened_by(open);
    catch_unwind(|| check(&subject)).is_ok()
}

#[test]
fn each_broken_store_fails_the_check_of_the_rule_that_it_breaks() {
    let faults: [(Open, Check); 6] = [
        (
            |place| open(place, Fault::AcceptsLateWork),
            takeover::a_late_workers_change_is_refused_by_token_and_by_name,
        ),
        (
            |place| open(place, Fault::IgnoresTheQueue),
            queue::an_urgent_waiter_overtakes_and_a_parked_one_comes_back,
        ),
        (
            |place| open(place, Fault::TakesNoSection),
            queue::a_section_is_held_by_one_runner_until_it_works_there_no_more,
        ),
        (
            |place| open(place, Fault::IgnoresDependencies),
            flow::a_task_is_begun_only_when_its_dependencies_are_done,
        ),
        (
            |place| open(place, Fault::ImportsHalf),
            exchange::a_bad_line_imports_nothing,
        ),
        (
            |place| open(place, Fault::DeletesHeldTasks),
            flow::a_task_that_a_runner_works_on_is_neither_moved_nor_deleted,
        ),
    ];
    for (number, (broken, check)) in faults.into_iter().enumerate() {
        assert!(
            passes(|place| open(place, Fault::None), check),
            "check {number} fails a store without a fault"
        );
        assert!(!passes(broken, check), "check {number} finds no fault");
    }
}

/// The contest of eight processes, on a store with this fault. Its processes run the test `worker` of
/// the same module.
macro_rules! contest_fails {
    ($module:ident, $fault:expr) => {
        mod $module {
            use std::panic::catch_unwind;

            use tenure_testkit::TaskSubject;
            use tenure_testkit::task_battery::{self, contest};

            fn subject() -> TaskSubject {
                TaskSubject::opened_by(|place| super::open(place, $fault)).tested_in(module_path!())
            }

            /// Not a test: what the processes of the contest run.
            #[test]
            fn worker() {
                task_battery::work(&subject());
            }

            #[test]
            fn fails_the_contest() {
                let contest = || {
                    contest::eight_processes_never_work_on_one_task_or_in_one_section_together(
                        &subject(),
                    );
                };
                // Whether workers meet is a matter of chance: a contest may miss the fault.
                assert!((0..5).any(|_| catch_unwind(contest).is_err()));
            }
        }
    };
}

contest_fails!(a_store_that_takes_no_section, super::Fault::TakesNoSection);
contest_fails!(a_store_that_steals_tasks, super::Fault::StealsTasks);
