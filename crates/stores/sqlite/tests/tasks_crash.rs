//! Runners that are killed at any moment: what they leave agrees, and the others finish it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{
    Acquired, Clock as _, Event, EventKind, HistoryQuery, Holder, HolderId, LivenessId, Patience,
    Priority, Records, Store, Watched,
};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_tasks::{
    ANY, Change, Edit, Proof, Runner, Shortage, Status, TaskError, TaskQuery, TaskStore as _,
    Withdrawal, key_of,
};
use tenure_testkit::limit::{LIMIT, Stopwatch};
use tenure_testkit::soon;
use tenure_testkit::witness::violations;
use tenure_testkit::{Chance, Process, Witness, history, process};

const HOUR: Duration = Duration::from_secs(3600);
const TASKS: usize = 120;

struct Place {
    dir: TempDir,
}

impl Place {
    fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let place = Self { dir };
        let mut chance = Chance::from_seed(seed);
        let mut lines = String::new();
        for task in 0..TASKS {
            let before: Vec<String> = (0..chance.below(3))
                .filter(|_| task > 0)
                .map(|_| format!("\"t{}\"", chance.index(task)))
                .collect();
            let section = match task % 7 {
                0 => String::new(),
                number => format!("\"section\":\"Section {number}\","),
            };
            let line = format!(
                "{{\"id\":\"t{task}\",\"title\":\"Task {task}\",{section}\"dependsOn\":[{}]}}\n",
                before.join(",")
            );
            lines.push_str(&line);
        }
        open(&place.db()).import(&lines, soon()).unwrap();
        place
    }

    fn db(&self) -> PathBuf {
        self.dir.path().join("tenure.db")
    }

    fn count(&self, sql: &str) -> i64 {
        let db = Connection::open(self.db()).unwrap();
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// What must hold at any moment.
    fn agrees(&self) {
        let blockers = "SELECT count(*) FROM tasks t WHERE blockers != (SELECT count(*) FROM task_dependencies d
            JOIN tasks o ON o.id = d.depends_on WHERE d.task_id = t.id AND o.status NOT IN ('completed', 'skipped'))";
        assert_eq!(self.count(blockers), 0, "blockers");
        let idle = "SELECT count(*) FROM leases l JOIN tasks t ON l.key = 'task:' || t.id WHERE t.status != 'in_progress'
            OR t.runner IS NOT l.holder OR t.token != l.token";
        assert_eq!(
            self.count(idle),
            0,
            "a lease on a task that is not in progress by it"
        );
        self.live_tasks_have_their_sections();
        let apart = "SELECT (SELECT count(*) FROM leases WHERE key LIKE 'task:%') - (SELECT count(*) FROM task_locks)
            + (SELECT count(*) FROM leases WHERE key LIKE 'section:%') - (SELECT count(*) FROM section_locks)";
        assert_eq!(self.count(apart), 0, "both tables");
    }
}

/// A dead one's section may be taken before its task is.
impl Place {
    fn live_tasks_have_their_sections(&self) {
        let store = open(&self.db());
        let sections: BTreeMap<String, Option<String>> = store
            .tasks(&TaskQuery::default(), soon())
            .unwrap()
            .into_iter()
            .map(|task| (task.id, task.section.map(|section| section.id)))
            .collect();
        let held: BTreeMap<String, Option<LivenessId>> = store
            .list(soon())
            .unwrap()
            .into_iter()
            .filter_map(|known| known.lease().cloned())
            .filter(|(_, verdict)| verdict.ended().is_none())
            .map(|(lease, _)| {
                (
                    lease.key.as_str().to_owned(),
                    lease.holder.liveness_lock().cloned(),
                )
            })
            .collect();
        for (task, section) in &sections {
            if let (Some(holder), Some(section)) = (held.get(&format!("task:{task}")), section) {
                let roof = held.get(&format!("section:{section}"));
                assert_eq!(roof, Some(holder), "task {task} without its section");
            }
        }
    }
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn runner(store: &SqliteStore, name: &str) -> Runner {
    let binding = store.this_process().unwrap();
    Runner {
        holder: Holder {
            id: HolderId::parse(name).unwrap(),
            host: "here".into(),
            command: None,
            binding: binding.clone(),
        },
        asker: binding,
        named: true,
        task_ttl: HOUR,
        section_ttl: HOUR,
        priority: Priority::default(),
        patience: Patience::Queue,
        within: vec![],
        leaves: Vec::new(),
        reopens: true,
    }
}

/// Not a test: a runner that works until nothing is left, or until it is killed.
#[test]
fn worker() {
    let Some(job) = process::job() else { return };
    let (seed, place) = job.split_once(' ').unwrap();
    let place = Path::new(place);
    let mut chance = Chance::apart(seed.parse().unwrap(), &std::process::id().to_string());
    let store = open(&place.join("tenure.db"));
    let runner = runner(&store, &format!("runner {}", chance.below(6)));
    process::report("ready");
    work(&store, &runner, place, &mut chance);
    process::report("nothing left");
}

fn work(store: &SqliteStore, runner: &Runner, place: &Path, chance: &mut Chance) {
    let any = key_of(ANY).unwrap();
    let watch = Stopwatch::start();
    loop {
        assert!(watch.elapsed() < LIMIT, "a task is never given out");
        if chance.one_in(4) {
            // By name, without a wait.
            let id = format!("t{}", chance.index(TASKS));
            let hasty = Runner {
                patience: Patience::Try,
                ..runner.clone()
            };
            if store.find_task(&id, soon()).unwrap().status.is_open() {
                note(place, "asked", &id);
                match store.start(&id, &hasty, soon()) {
                    Ok(Acquired::Granted(begun)) if begun.was.is_open() => {
                        end(store, &id, begun.lease.token, place, chance);
                    }
                    // Another runner ended it first, so this begins a closed task: put it back.
                    Ok(Acquired::Granted(begun)) => {
                        let proof = Proof::Token(begun.lease.token);
                        store
                            .change(
                                &id,
                                &proof,
                                &Change::To(begun.was),
                                &Edit::default(),
                                soon(),
                            )
                            .unwrap();
                    }
                    Ok(_) | Err(TaskError::Blocked { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                note(place, "answered", &id);
            }
        }
        match store.next(runner, soon()).unwrap() {
            Acquired::Granted(begun) => {
                end(store, &begun.task.id, begun.lease.token, place, chance);
            }
            Acquired::Busy(want) if want.shortage == Some(Shortage::NothingLeft) => {
                store
                    .stop_waiting(None, runner, Withdrawal::Leave, soon())
                    .unwrap();
                return;
            }
            other @ (Acquired::Deadlock(_) | Acquired::Cancelled) => panic!("{other:?}"),
            Acquired::Busy(want) => {
                let watched = Watched {
                    key: &any,
                    seen: want.revision,
                    held: None,
                    others: Vec::new(),
                    ahead: want.watch.iter().collect(),
                };
                let now = tenure_host::HostClock::new().now();
                let due = want
                    .look_again
                    .as_ref()
                    .map(|due| due.remaining(&now).unwrap_or_default());
                let until = due.unwrap_or(HOUR).min(Duration::from_secs(5));
                let _ = store.wait(&watched, until).unwrap();
            }
        }
    }
}

/// Works on a task, seen by the witness, and ends it in some way.
fn end(
    store: &SqliteStore,
    id: &str,
    token: tenure_core::Token,
    place: &Path,
    chance: &mut Chance,
) {
    let pause = chance.mostly_short(Duration::from_millis(4));
    Witness::at(&place.join("witness").join(id)).observe(token, || std::thread::sleep(pause));
    let change = match chance.below(8) {
        0 => Change::GiveBack,
        1 => Change::To(Status::Pending),
        _ => Change::To(Status::Completed),
    };
    store
        .change(id, &Proof::Token(token), &change, &Edit::default(), soon())
        .unwrap();
    if change == Change::To(Status::Completed) {
        note(place, "completed", id);
    }
}

/// Adds a line to a list of the witness.
fn note(place: &Path, list: &str, id: &str) {
    let mut file = File::options();
    let mut file = file
        .append(true)
        .create(true)
        .open(place.join(list))
        .unwrap();
    file.write_all(format!("{id}\n").as_bytes()).unwrap();
}

/// The lines of a list, sorted.
fn noted(place: &Path, list: &str) -> Vec<String> {
    let text = fs::read_to_string(place.join(list)).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// However often runners are killed, no task is worked on by two, none is completed twice, and
/// the rest finish all of it.
#[test]
fn runners_that_are_killed_at_any_moment_leave_their_tasks_to_the_others() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let mut chance = Chance::from_seed(seed);
    let mut kills = 0;
    let mut round = 0;
    let mut taken_over = 0;
    while kills < 150 {
        round += 1;
        let place = Place::new(chance.next());
        let job =
            |chance: &mut Chance| format!("{} {}", chance.next() >> 1, place.dir.path().display());
        let mut workers: Vec<Process> = (0..4)
            .map(|_| Process::start("tasks_crash::worker", &job(&mut chance)))
            .collect();
        // Each is killed some moments after it is at work, and followed by another.
        for _ in 0..40 {
            let victim = chance.index(workers.len());
            assert_eq!(workers[victim].report(), "ready");
            std::thread::sleep(chance.mostly_short(Duration::from_millis(25)));
            if workers[victim].try_report().is_some() {
                break;
            }
            workers[victim].kill();
            kills += 1;
            workers[victim] = Process::start("tasks_crash::worker", &job(&mut chance));
            place.agrees();
        }
        // One that does not look like any of them finishes what is left.
        drop(workers);
        place.agrees();
        let store = open(&place.db());
        let last = runner(&store, "last");
        work(&store, &last, place.dir.path(), &mut chance);
        place.agrees();
        let query = TaskQuery {
            status: Some(Status::Completed),
            ..TaskQuery::default()
        };
        assert_eq!(
            store.tasks(&query, soon()).unwrap().len(),
            TASKS,
            "round {round}"
        );
        let dir = place.dir.path();
        // A runner that asked for a task by name may have begun it again just after another one completed it, and was
        // killed before it could put it back.
        let mut unanswered = noted(dir, "asked");
        for answered in noted(dir, "answered") {
            let at = unanswered.iter().position(|asked| *asked == answered);
            unanswered.remove(at.unwrap());
        }
        let mut done = noted(dir, "completed");
        done.retain(|id| !unanswered.contains(id));
        assert!(done.windows(2).all(|pair| pair[0] != pair[1]), "{done:?}");
        for task in 0..TASKS {
            let seen = violations(&place.dir.path().join("witness").join(format!("t{task}")));
            assert_eq!(seen, Vec::<String>::new(), "task {task}");
        }
        let events = store.history(&HistoryQuery::default(), soon()).unwrap();
        assert_eq!(history::contradictions(&events), []);
        let dead = |event: &&Event| event.kind == EventKind::Dead;
        taken_over += events.iter().filter(dead).count();
        let own = "SELECT count(*) FROM leases";
        assert_eq!(place.count(own), 0, "nothing is held by the dead");
    }
    println!("{kills} kills in {round} rounds, {taken_over} leases taken over");
    assert!(taken_over > 0, "no runner was killed at work");
}
