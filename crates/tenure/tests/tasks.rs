//! Working on tasks through the library: begin, renew, end, wait.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use tenure::ask::{Cancel, Tie};
use tenure::store::{HolderId, Key, Priority};
use tenure::tasks::{
    Change, Edit, NewTask, Proof, Shortage, Status, TaskError, TaskGuard, TaskQuery,
};
use tenure::{Acquired, Busy, Config, Error, StoreUrl, Tenure};
use tenure_testkit::soon;

/// Longer than any test should take: a guard against hanging, not a measure.
const LONG: Duration = Duration::from_secs(60);

struct Project {
    dir: TempDir,
    tenure: Tenure,
}

impl Project {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tenure = open(&dir);
        Self { dir, tenure }
    }

    /// Another process, as far as the store can tell.
    fn other(&self) -> Tenure {
        open(&self.dir)
    }

    fn section(&self, name: &str) -> String {
        self.tenure
            .tasks()
            .unwrap()
            .add_section(name, soon())
            .unwrap()
            .id
    }

    fn task(&self, title: &str, section: Option<&str>) -> String {
        add(&self.tenure, title, section)
    }

    fn is_held(&self, key: &str) -> bool {
        let key = Key::parse(key).unwrap();
        let found = self.tenure.store().inspect(&key, soon()).unwrap();
        found
            .lease()
            .is_some_and(|(_, verdict)| verdict.ended().is_none())
    }

    /// How long after its grant a lease was last renewed.
    fn renewed_for(&self, key: &str) -> Duration {
        let key = Key::parse(key).unwrap();
        let found = self
            .tenure
            .store()
            .inspect(&key, tenure::store::call_deadline())
            .unwrap();
        let (lease, _) = found.lease().unwrap();
        let renewed = lease.heartbeat_at.duration_since(lease.acquired_at);
        Duration::try_from(renewed).unwrap()
    }

    fn force(&self, key: &str) {
        let admin = HolderId::parse("admin").unwrap();
        let key = Key::parse(key).unwrap();
        let _ = self
            .tenure
            .store()
            .force(&key, None, &admin, None, soon())
            .unwrap();
    }

    fn status(&self, id: &str) -> Status {
        self.tenure
            .tasks()
            .unwrap()
            .find_task(id, soon())
            .unwrap()
            .status
    }

    fn waiters(&self) -> usize {
        let known = self.tenure.store().list(soon()).unwrap();
        known.iter().map(|snapshot| snapshot.queue.len()).sum()
    }
}

fn open(dir: &TempDir) -> Tenure {
    let url = format!("sqlite:{}", dir.path().join("tenure.db").display());
    let mut config = Config::default();
    // Polling must not be what wakes a waiter.
    config.locking.poll_interval = Duration::from_secs(600);
    Tenure::open_with(&StoreUrl::parse(&url).unwrap(), config).unwrap()
}

fn add(tenure: &Tenure, title: &str, section: Option<&str>) -> String {
    let task = NewTask {
        title: title.into(),
        description: None,
        section: section.map(str::to_owned),
        priority: Priority::default(),
        depends_on: vec![],
    };
    tenure.tasks().unwrap().add_task(&task, soon()).unwrap().id
}

fn granted(answer: Acquired<TaskGuard>) -> TaskGuard {
    match answer {
        Acquired::Granted(guard) => guard,
        Acquired::Busy(busy) => panic!("busy: {busy:?}"),
        Acquired::Deadlock(cycle) => panic!("{cycle}"),
        Acquired::Cancelled => panic!("cancelled"),
    }
}

fn busy(answer: Acquired<TaskGuard>) -> Box<Busy> {
    match answer {
        Acquired::Busy(busy) => busy,
        _ => panic!("it should be busy"),
    }
}

fn start(tenure: &Tenure, name: &str, id: &str) -> TaskGuard {
    let ask = tenure.ask_for_task().unwrap().named(name).unwrap();
    granted(ask.start(id).unwrap())
}

fn done() -> Change {
    Change::To(Status::Completed)
}

#[test]
fn a_runner_takes_the_tasks_of_a_section_one_after_another() {
    let project = Project::new();
    let section = project.section("S");
    for number in 0..3 {
        project.task(&format!("Task {number}"), Some(&section));
    }
    for number in 0..3 {
        let ask = project.tenure.ask_for_task().unwrap().named("a").unwrap();
        let task_guard = granted(ask.next().unwrap());
        assert_eq!(task_guard.task().title, format!("Task {number}"));
        assert!(task_guard.section_token().is_some());
        let changed = task_guard.finish(&done()).unwrap();
        assert_eq!(changed.task.status, Status::Completed);
        assert_eq!(project.is_held(&format!("section:{section}")), number < 2);
    }
}

#[test]
fn a_runner_without_a_name_takes_them_one_after_another_too() {
    let project = Project::new();
    let section = project.section("S");
    for number in 0..3 {
        project.task(&format!("Task {number}"), Some(&section));
    }
    let ask = project.tenure.ask_for_task().unwrap();
    for _ in 0..3 {
        granted(ask.next().unwrap()).finish(&done()).unwrap();
    }
    assert!(!project.is_held(&format!("section:{section}")));
}

#[test]
fn a_dropped_guard_releases_the_task_and_its_section() {
    let project = Project::new();
    let section = project.section("S");
    let one = project.task("One", Some(&section));
    drop(start(&project.tenure, "a", &one));
    assert!(!project.is_held(&format!("task:{one}")));
    assert!(!project.is_held(&format!("section:{section}")));
    let other = project.other();
    let ask = other.ask_for_task().unwrap().named("b").unwrap();
    let again = granted(ask.next().unwrap());
    assert_eq!(again.task().id, one, "another runner may take it");
}

#[test]
fn a_dropped_guard_leaves_the_section_to_another_task_of_the_same_runner() {
    let project = Project::new();
    let section = project.section("S");
    let (one, two) = (
        project.task("One", Some(&section)),
        project.task("Two", Some(&section)),
    );
    let first = start(&project.tenure, "a", &one);
    let second = start(&project.tenure, "a", &two);
    drop(first);
    assert!(project.is_held(&format!("task:{two}")));
    assert!(
        project.is_held(&format!("section:{section}")),
        "a live task keeps its section"
    );
    second.finish(&done()).unwrap();
}

#[test]
fn a_refused_end_leaves_nothing_locked() {
    let project = Project::new();
    let section = project.section("S");
    let one = project.task("One", Some(&section));
    let late = start(&project.tenure, "late", &one);
    let other = project.other();
    project.force(&format!("task:{one}"));
    let key = format!("task:{one}");
    let ask = other.ask(&key).unwrap().named("new").unwrap();
    let Acquired::Granted(_guard) = ask.acquire().unwrap() else {
        panic!("it is free");
    };
    let refused = late.finish(&done()).map(|changed| changed.task.status);
    assert!(
        matches!(refused, Err(Error::Task(TaskError::Superseded { .. }))),
        "{refused:?}"
    );
    assert_eq!(project.status(&one), Status::InProgress);
    assert!(
        !project.is_held(&format!("section:{section}")),
        "a refused runner has nothing more to do there"
    );
}

#[test]
fn an_end_after_force_is_refused_and_releases_the_section() {
    let project = Project::new();
    let section = project.section("S");
    let one = project.task("One", Some(&section));
    let task_guard = start(&project.tenure, "a", &one);
    project.force(&format!("task:{one}"));
    let refused = task_guard
        .finish(&done())
        .map(|changed| changed.task.status);
    assert!(
        matches!(refused, Err(Error::Task(TaskError::Superseded { .. }))),
        "{refused:?}"
    );
    assert_eq!(project.status(&one), Status::InProgress);
    assert!(
        !project.is_held(&format!("section:{section}")),
        "it works on nothing there any more"
    );
}

#[test]
fn only_an_end_by_the_token_is_the_runners_own_end() {
    let project = Project::new();
    let one = project.task("One", None);
    let task_guard = start(&project.tenure, "a", &one);
    assert!(task_guard.ended_by_token().unwrap().is_none());
    let store = project.tenure.tasks().unwrap();
    let proof = Proof::Token(task_guard.token());
    store
        .change(&one, &proof, &done(), &Edit::default(), soon())
        .unwrap();
    assert!(task_guard.ended_by_token().unwrap().is_some());
    drop(task_guard);

    let two = project.task("Two", None);
    let task_guard = start(&project.tenure, "a", &two);
    project.force(&format!("task:{two}"));
    let admin = Proof::Name(HolderId::parse("admin").unwrap());
    let skipped = Change::To(Status::Skipped);
    store
        .change(&two, &admin, &skipped, &Edit::default(), soon())
        .unwrap();
    assert!(
        task_guard.ended_by_token().unwrap().is_none(),
        "the admin did, not the runner"
    );
    let refused = task_guard
        .finish(&done())
        .map(|changed| changed.task.status);
    assert!(
        matches!(refused, Err(Error::Task(TaskError::Superseded { .. }))),
        "{refused:?}"
    );
}

#[test]
fn both_leases_are_renewed_and_a_loss_of_either_is_reported() {
    let project = Project::new();
    let section = project.section("S");
    let one = project.task("One", Some(&section));
    let ttl = Duration::from_millis(1500);
    for lost in ["task", "section"] {
        let ask = project.tenure.ask_for_task().unwrap().named("a").unwrap();
        let task_guard = granted(ask.ttl(ttl).start(&one).unwrap());
        let told = Arc::new(AtomicUsize::new(0));
        task_guard.on_lost({
            let told = Arc::clone(&told);
            move || {
                told.fetch_add(1, Ordering::SeqCst);
            }
        });
        // Renewed when their first time to live would have passed.
        for key in [format!("task:{one}"), format!("section:{section}")] {
            until("both leases are renewed", || {
                project.renewed_for(&key) > ttl
            });
        }
        let other = project.other();
        let hasty = other.ask_for_task().unwrap().named("b").unwrap();
        let refused = busy(hasty.start(&one).unwrap());
        assert_eq!(refused.key.as_str(), format!("section:{section}"));
        assert_eq!(told.load(Ordering::SeqCst), 0);
        let id = if lost == "task" { &one } else { &section };
        project.force(&format!("{lost}:{id}"));
        until("the loss is reported", || told.load(Ordering::SeqCst) > 0);
        assert!(task_guard.loss().is_some());
        drop(task_guard);
        project.force(&format!("section:{section}"));
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not in a minute");
}

#[test]
fn a_wait_for_any_task_ends_with_the_next_task_that_is_added() {
    let project = Project::new();
    let other = project.other();
    let added = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let ask = other.ask_for_task().unwrap().named("w").unwrap();
            granted(ask.wait(LONG).next().unwrap()).task().id.clone()
        });
        until("the runner waits", || project.waiters() == 1);
        let added = project.task("One", None);
        assert_eq!(waiter.join().unwrap(), added);
        added
    });
    assert_eq!(project.waiters(), 0);
    assert!(
        !project.is_held(&format!("task:{added}")),
        "it was dropped by then"
    );
}

#[test]
fn a_wait_that_ends_without_a_task_leaves_a_ticket_only_if_asked_to() {
    let project = Project::new();
    let section = project.section("S");
    let (one, two) = (
        project.task("One", Some(&section)),
        project.task("Two", Some(&section)),
    );
    let holder = start(&project.tenure, "holder", &one);
    let other = project.other();
    let brief = Duration::from_millis(100);
    let ask = || {
        other
            .ask_for_task()
            .unwrap()
            .named("w")
            .unwrap()
            .wait(brief)
    };
    let refused = busy(ask().start(&two).unwrap());
    assert_eq!(refused.key.as_str(), format!("section:{section}"));
    assert_eq!(project.waiters(), 0);
    let refused = busy(ask().next().unwrap());
    assert_eq!(refused.shortage, Some(Shortage::Locked));
    assert_eq!(project.waiters(), 0);
    let _ = busy(ask().keep_place().start(&two).unwrap());
    assert_eq!(project.waiters(), 1);
    holder.finish(&Change::GiveBack).unwrap();
    let again = granted(ask().start(&two).unwrap());
    assert_eq!(again.task().id, two);
    assert_eq!(project.waiters(), 0);
}

#[test]
fn a_cancelled_wait_leaves_no_ticket() {
    let project = Project::new();
    let section = project.section("S");
    let one = project.task("One", Some(&section));
    let _holder = start(&project.tenure, "holder", &one);
    let other = project.other();
    for any in [false, true] {
        let cancel = Cancel::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let ask = other.ask_for_task().unwrap().named("w").unwrap().wait(LONG);
                if any {
                    ask.next_watched(&cancel, &mut |_| {}).unwrap()
                } else {
                    ask.start_watched(&one, &cancel, &mut |_| {}).unwrap()
                }
            });
            until("the runner waits", || project.waiters() == 1);
            cancel.leave();
            assert!(matches!(waiter.join().unwrap(), Acquired::Cancelled));
        });
        assert_eq!(project.waiters(), 0);
    }
}

#[test]
fn a_wait_for_a_task_ends_when_the_task_becomes_blocked() {
    let project = Project::new();
    let section = project.section("S");
    let (one, two) = (
        project.task("One", Some(&section)),
        project.task("Two", Some(&section)),
    );
    let holder = start(&project.tenure, "holder", &one);
    let other = project.other();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let ask = other.ask_for_task().unwrap().named("w").unwrap().wait(LONG);
            match ask.start(&two) {
                Err(Error::Task(error)) => error.to_string(),
                Err(error) => panic!("{error}"),
                Ok(_) => panic!("it is blocked"),
            }
        });
        until("the runner waits", || project.waiters() == 1);
        let edit = Edit {
            add_dependencies: vec![one.clone()],
            ..Edit::default()
        };
        project
            .tenure
            .tasks()
            .unwrap()
            .edit_task(&two, &edit, soon())
            .unwrap();
        let review = Change::To(Status::Review);
        holder.finish(&review).unwrap();
        project.force(&format!("section:{section}"));
        let words = waiter.join().unwrap();
        assert!(words.contains("One"), "{words}");
    });
    assert_eq!(project.waiters(), 0);
}

#[test]
fn a_wait_until_none_is_left_ends_when_no_task_can_become_ready() {
    let project = Project::new();
    let one = project.task("One", None);
    let holder = start(&project.tenure, "holder", &one);
    let other = project.other();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let ask = other.ask_for_task().unwrap().named("w").unwrap();
            busy(
                ask.wait(LONG)
                    .until_none_left_for(Duration::ZERO)
                    .next()
                    .unwrap(),
            )
            .shortage
        });
        until("the runner waits", || project.waiters() == 1);
        holder.finish(&done()).unwrap();
        assert_eq!(waiter.join().unwrap(), Some(Shortage::NothingLeft));
    });
    assert_eq!(project.waiters(), 0);
}

#[test]
fn detached_leases_outlive_their_guard() {
    let project = Project::new();
    let section = project.section("S");
    let (one, two) = (
        project.task("One", Some(&section)),
        project.task("Two", Some(&section)),
    );
    let ask = |tenure: &Tenure, id: &str| {
        let ask = tenure.ask_for_task().unwrap().named("a").unwrap();
        granted(ask.tied_to(Tie::Nothing).start(id).unwrap())
    };
    drop(ask(&project.tenure, &one));
    assert!(project.is_held(&format!("task:{one}")));
    drop(ask(&project.other(), &two));
    let store = project.tenure.tasks().unwrap();
    let a = Proof::Name(HolderId::parse("a").unwrap());
    for id in [&one, &two] {
        store
            .change(id, &a, &done(), &Edit::default(), soon())
            .unwrap();
    }
    assert!(!project.is_held(&format!("section:{section}")));
}

/// Eight threads of one process, each a runner of its own.
#[test]
fn runners_of_one_process_share_tasks_as_runners_of_many_processes_do() {
    let project = Project::new();
    for section in 0..4 {
        let section = project.section(&format!("Section {section}"));
        for number in 0..15 {
            project.task(&format!("Task {number}"), Some(&section));
        }
    }
    let mut given: Vec<String> = std::thread::scope(|scope| {
        let runners: Vec<_> = (0..8)
            .map(|number| {
                let tenure = &project.tenure;
                scope.spawn(move || {
                    let mut given = Vec::new();
                    loop {
                        let ask = tenure.ask_for_task().unwrap();
                        let ask = ask.named(&format!("runner {number}")).unwrap();
                        match ask
                            .wait(LONG)
                            .until_none_left_for(Duration::ZERO)
                            .next()
                            .unwrap()
                        {
                            Acquired::Granted(task_guard) => {
                                given.push(task_guard.task().id.clone());
                                task_guard.finish(&done()).unwrap();
                            }
                            _ => return given,
                        }
                    }
                })
            })
            .collect();
        runners
            .into_iter()
            .flat_map(|runner| runner.join().unwrap())
            .collect()
    });
    given.sort();
    given.dedup();
    assert_eq!(given.len(), 60);
    let query = TaskQuery {
        status: Some(Status::Completed),
        ..TaskQuery::default()
    };
    let completed = project
        .tenure
        .tasks()
        .unwrap()
        .tasks(&query, soon())
        .unwrap();
    assert_eq!(completed.len(), 60);
    assert_eq!(project.tenure.store().list(soon()).unwrap().len(), 0);
}
