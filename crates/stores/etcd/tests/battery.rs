//! The battery on real etcd clusters, with one member and with three.
#![allow(clippy::unwrap_used, reason = "test code fails by panicking")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use tenure_etcd::{Address, EtcdOptions, EtcdStore};
use tenure_testkit::{Etcd, Proxy, Subject, TaskSubject};

/// A prefix of its own in a cluster of this process, for the store of this folder.
fn prepare(place: &Path, cluster: &Etcd) {
    let prefix = uuid::Uuid::new_v4().simple().to_string();
    fs::write(place.join("address"), cluster.address(&prefix)).unwrap();
}

fn open(place: &Path) -> EtcdStore {
    open_with(place, EtcdOptions::default())
}

fn open_without_guesses(place: &Path) -> EtcdStore {
    let options = EtcdOptions {
        guesses: false,
        ..EtcdOptions::default()
    };
    open_with(place, options)
}

fn open_with(place: &Path, options: EtcdOptions) -> EtcdStore {
    let address = fs::read_to_string(place.join("address")).unwrap();
    let address = Address::parse(&address).unwrap();
    EtcdStore::open(address, &place.join("live"), options).unwrap()
}

fn slow(subject: Subject) -> Subject {
    subject.slower(20).shortest_ttl(Duration::from_secs(2))
}

mod one {
    use super::*;
    tenure_testkit::battery!(slow(
        Subject::opened_by(|place| Box::new(open(place)))
            .prepared_by(|place| prepare(place, Etcd::shared()))
    ));
}

/// A step is right without what it guesses.
mod one_without_guesses {
    use super::*;
    tenure_testkit::battery!(slow(
        Subject::opened_by(|place| Box::new(open_without_guesses(place)))
            .prepared_by(|place| prepare(place, Etcd::shared()))
    ));
}

mod three {
    use super::*;
    tenure_testkit::battery!(
        slow(
            Subject::opened_by(|place| Box::new(open(place)))
                .prepared_by(|place| prepare(place, Etcd::shared_of_three()))
        )
        .slower(60)
    );
}

mod tasks {
    use super::*;
    tenure_testkit::task_battery!(
        TaskSubject::opened_by(|place| Box::new(open(place)))
            .prepared_by(|place| prepare(place, Etcd::shared()))
            .without_clones()
    );
}

mod tasks_without_guesses {
    use super::*;
    tenure_testkit::task_battery!(
        TaskSubject::opened_by(|place| Box::new(open_without_guesses(place)))
            .prepared_by(|place| prepare(place, Etcd::shared()))
            .without_clones()
    );
}

mod tasks_on_three {
    use super::*;
    tenure_testkit::task_battery!(
        TaskSubject::opened_by(|place| Box::new(open(place)))
            .prepared_by(|place| prepare(place, Etcd::shared_of_three()))
            .without_clones()
    );
}

/// Changes of tasks that are larger than one transaction.
mod large {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tempfile::TempDir;
    use tenure_core::{Acquired, ErrorKind};
    use tenure_tasks::{Change, Edit, Proof, Shortage, TaskQuery, TaskStore};
    use tenure_tasks::{Status, TaskError};
    use tenure_testkit::chance::Chance;
    use tenure_testkit::limit::{LIMIT, soon, within_limit};
    use tenure_testkit::process::{self, Process};
    use tenure_testkit::task_battery::{new_task, runner};

    use super::*;

    /// More than fit into one transaction, several times over.
    const TASKS: usize = 300;

    fn place() -> TempDir {
        let place = tempfile::tempdir().unwrap();
        prepare(place.path(), Etcd::shared());
        place
    }

    /// So many lines, each with an id of this round, and each the dependency of the next one.
    fn lines(round: usize) -> String {
        let line = |n: usize| {
            let on = match n {
                0 => String::new(),
                _ => format!(r#","dependsOn":["r{round}-{}"]"#, n - 1),
            };
            format!(r#"{{"id":"r{round}-{n}","title":"Round {round}"{on}}}"#)
        };
        (0..TASKS).map(line).collect::<Vec<_>>().join("\n")
    }

    /// Not a test: a process that imports until it is killed.
    #[test]
    fn importer() {
        let Some(job) = process::job() else { return };
        let (first, place) = job.split_once(' ').unwrap();
        process::report("ready");
        let store = open(Path::new(place));
        for round in first.parse::<usize>().unwrap().. {
            store.import(&lines(round), soon()).unwrap();
        }
    }

    #[test]
    fn a_large_import_is_whole_although_its_process_is_killed() {
        let place = place();
        let mut chance = Chance::from_seed(Chance::seed());
        let (mut imported, mut cut) = (0, 0);
        for round in 0..12 {
            // A range of rounds for each process, so that none meets what another one has imported.
            let job = format!("{} {}", round * 1000, place.path().display());
            let mut importer = Process::start("large::importer", &job);
            assert_eq!(importer.report(), "ready");
            std::thread::sleep(chance.time(Duration::from_millis(150)));
            importer.kill();
            cut += usize::from(has_parts(place.path()));
            let store = open(place.path());
            let all = store.tasks(&TaskQuery::default(), soon()).unwrap();
            assert_eq!(all.len() % TASKS, 0, "after {round} kills");
            imported = all.len() / TASKS;
            let blocked = all.iter().filter(|task| task.blockers == 1).count();
            assert_eq!(blocked, imported * (TASKS - 1));
            let ready = TaskQuery {
                ready: true,
                ..TaskQuery::default()
            };
            assert_eq!(store.tasks(&ready, soon()).unwrap().len(), imported);
        }
        println!("{imported} imports, 12 kills, {cut} with parts in place");
    }

    /// Whether parts of large changes are there.
    fn has_parts(place: &Path) -> bool {
        let address = fs::read_to_string(place.join("address")).unwrap();
        let (_, prefix) = address.rsplit_once('/').unwrap();
        let parts = format!("{prefix}/t/j/");
        let found = Etcd::shared().etcdctl(&["get", "--prefix", "--keys-only", &parts]);
        assert!(found.status.success(), "{found:?}");
        !found.stdout.is_empty()
    }

    #[test]
    fn a_large_change_leaves_no_parts_behind() {
        let place = place();
        let store = open(place.path());
        for round in 0..2 {
            store.import(&lines(round), soon()).unwrap();
            assert!(!has_parts(place.path()), "after import {round}");
        }
    }

    #[test]
    fn the_next_change_removes_the_parts_of_a_killed_process() {
        let place = place();
        let slow = Proxy::to(Etcd::shared().endpoints().next().unwrap());
        slow.delay_answers(Duration::from_millis(100));
        let address = fs::read_to_string(place.path().join("address")).unwrap();
        let (_, prefix) = address.rsplit_once('/').unwrap();
        let far = place.path().join("far");
        fs::create_dir(&far).unwrap();
        fs::write(
            far.join("address"),
            format!("etcd://{}/{prefix}", slow.address()),
        )
        .unwrap();
        let mut importer = Process::start("large::importer", &format!("0 {}", far.display()));
        assert_eq!(importer.report(), "ready");
        within_limit("the first part", || has_parts(place.path()));
        importer.kill();
        assert!(has_parts(place.path()), "it was killed too late");
        let store = open(place.path());
        store.add_task(&new_task("Small"), soon()).unwrap();
        assert!(!has_parts(place.path()));
        let all = store.tasks(&TaskQuery::default(), soon()).unwrap();
        assert_eq!(all.len() % TASKS, 1);
    }

    #[test]
    fn a_task_on_which_hundreds_depend_is_ended_whole() {
        let place = place();
        let store = open(place.path());
        let first = store.add_task(&new_task("First"), soon()).unwrap();
        let line = |n| format!(r#"{{"title":"Task {n}","dependsOn":["{}"]}}"#, first.id);
        let lines: Vec<String> = (0..TASKS).map(line).collect();
        store.import(&lines.join("\n"), soon()).unwrap();
        let me = runner(&store, "me");
        let Acquired::Granted(begun) = store.next(&me, soon()).unwrap() else {
            panic!("the first task is ready");
        };
        assert_eq!(begun.task.id, first.id);
        let proof = Proof::Token(begun.lease.token);
        let done = Change::To(Status::Completed);
        store
            .change(&first.id, &proof, &done, &Edit::default(), soon())
            .unwrap();
        let ready = TaskQuery {
            ready: true,
            ..TaskQuery::default()
        };
        let ready = store.tasks(&ready, soon()).unwrap();
        assert_eq!(ready.len(), TASKS);
        // The index knows it, too.
        let Acquired::Granted(second) = store.next(&me, soon()).unwrap() else {
            panic!("the others are ready");
        };
        let ids: Vec<String> = ready.iter().map(|task| task.id.clone()).collect();
        assert!(ids.contains(&second.task.id));
        let proof = Proof::Token(second.lease.token);
        store
            .change(
                &second.task.id,
                &proof,
                &Change::GiveBack,
                &Edit::default(),
                soon(),
            )
            .unwrap();
        assert_eq!(store.delete_tasks(&ids, soon()).unwrap().len(), TASKS);
        let Acquired::Busy(none) = store.next(&me, soon()).unwrap() else {
            panic!("no task is left");
        };
        assert_eq!(none.shortage, Some(Shortage::NothingLeft));
    }

    #[test]
    fn the_next_task_is_the_first_one_however_many_there_are() {
        let place = place();
        let (store, other) = (open(place.path()), open(place.path()));
        let line = |n: usize| format!(r#"{{"id":"{n:03}","title":"Task {n}"}}"#);
        let lines: Vec<String> = (0..TASKS).map(line).collect();
        store.import(&lines.join("\n"), soon()).unwrap();
        let me = runner(&store, "me");
        let ready = TaskQuery {
            ready: true,
            ..TaskQuery::default()
        };
        for n in 0..TASKS {
            // What another process adds comes before those that this one has seen, or behind them.
            let more = match n % 40 {
                10 => format!(r#"{{"title":"Urgent {n}","priority":9}}"#),
                30 => format!(r#"{{"title":"Later {n}","priority":1}}"#),
                _ => String::new(),
            };
            other.import(&more, soon()).unwrap();
            let expected = other.tasks(&ready, soon()).unwrap().remove(0);
            let Acquired::Granted(begun) = store.next(&me, soon()).unwrap() else {
                panic!("tasks are ready");
            };
            assert_eq!(begun.task.title, expected.title, "after {n}");
            let proof = Proof::Token(begun.lease.token);
            let done = Change::To(Status::Completed);
            store
                .change(&begun.task.id, &proof, &done, &Edit::default(), soon())
                .unwrap();
        }
    }

    #[test]
    fn a_step_that_never_gets_its_turn_says_that_the_tasks_are_busy() {
        let place = tempfile::tempdir().unwrap();
        let slow = Proxy::to(Etcd::shared().endpoints().next().unwrap());
        let address = format!("etcd://{}/busy", slow.address());
        fs::write(place.path().join("address"), address).unwrap();
        let store = open(place.path());
        store.add_task(&new_task("First"), soon()).unwrap();
        // As a process that is about to change many tasks, and takes too long.
        let turn = Etcd::shared().etcdctl(&["put", "busy/t/i", "another"]);
        assert!(turn.status.success(), "{turn:?}");
        // The deadline comes in the middle of an attempt, mostly.
        slow.delay_answers(Duration::from_millis(30));
        for limit in [400, 412, 424, 436] {
            let early = LIMIT.saturating_sub(Duration::from_millis(limit));
            let by = soon().checked_sub(early).unwrap();
            let refused = store.add_task(&new_task("Second"), by).unwrap_err();
            let TaskError::Store(refused) = refused else {
                panic!("it has nothing to do with the task: {refused}");
            };
            assert_eq!(refused.kind, ErrorKind::Contended, "{refused}");
        }
        Etcd::shared().etcdctl(&["del", "busy/t/i"]);
        store.add_task(&new_task("Second"), soon()).unwrap();
    }

    #[test]
    fn a_large_import_gets_its_turn_among_busy_runners() {
        let place = place();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (place, stop) = (place.path(), &stop);
                scope.spawn(move || {
                    let store = open(place);
                    while !stop.load(Ordering::Relaxed) {
                        let title = format!("Of runner {n}");
                        store.add_task(&new_task(&title), soon()).unwrap();
                    }
                });
            }
            let store = open(place.path());
            let done = store.import(&lines(0), soon());
            stop.store(true, Ordering::Relaxed);
            assert_eq!(done.unwrap().added, u64::try_from(TASKS).unwrap());
        });
        assert!(!has_parts(place.path()), "of attempts that were overtaken");
    }
}
