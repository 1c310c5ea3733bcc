//! One battery that every [`TaskStore`] must pass, with real processes and an independent witness.
//!
//! A store's own test file is a few lines:
//!
//! ```text
//! use tenure_testkit::TaskSubject;
//!
//! tenure_testkit::task_battery!(TaskSubject::opened_by(|place| {
//!     Box::new(MyStore::open(&place.join("store")).unwrap())
//! }));
//! ```
//!
//! The checks use the trait only. The lock verbs of the same store have a battery of their own,
//! [`crate::battery!`].
//!
//! | module | checks |
//! |---|---|
//! | [`contest`] | workers that are killed and stopped: one worker per task, one runner per section |
//! | [`takeover`] | a killed worker's task is taken over exactly once; a late worker is refused |
//! | [`queue`] | waiters for any task: order, priority, wake-ups |
//! | [`flow`] | status, dependencies, retries, fields, deletion |
//! | [`exchange`] | export, import, merge |
//! | [`crash`] | a process that is killed at a random moment leaves a usable store |

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tenure_core::{Acquired, Busy, ErrorKind, Holder, HolderId, Patience, Priority, Store};
use tenure_tasks::{NewTask, Proof, Replica, Runner, Started, Task, TaskError, TaskStore};

use crate::chance::Chance;
use crate::history;
use crate::limit::soon;
use crate::process::{self, Process};
use crate::scale::scale;

pub mod contest;
pub mod crash;
pub mod exchange;
pub mod flow;
pub mod queue;
pub mod takeover;

/// Far longer than a check: within it, a lease ends only by release, force, or the death of its
/// holder.
pub const TTL: Duration = Duration::from_secs(3600);

/// The store under test, and what the battery may do to it.
#[derive(Debug, Clone)]
pub struct TaskSubject {
    open: fn(&Path) -> Box<dyn TaskStore>,
    prepare: fn(&Path),
    sound: fn(&Path) -> Result<(), String>,
    clones: Clones,
    worker: String,
}

/// Whether the tasks of a store can be shared with other clones of the project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clones {
    /// They are merged.
    Merged,
    /// All machines use the same store: there is nothing to merge, and every such verb says so.
    None,
}

impl TaskSubject {
    /// A store that `open` opens, or makes, in a folder that is given to it. It is called many times
    /// for one folder, from many processes.
    pub fn opened_by(open: fn(&Path) -> Box<dyn TaskStore>) -> Self {
        Self {
            open,
            prepare: |_| (),
            sound: |_| Ok(()),
            clones: Clones::Merged,
            worker: "worker".into(),
        }
    }

    /// What to do in the folder of a store before it is opened for the first time.
    #[must_use]
    pub fn prepared_by(mut self, prepare: fn(&Path)) -> Self {
        self.prepare = prepare;
        self
    }

    /// A store that all machines use, so that there are no clones to merge. The checks of merging demand then that
    /// every such verb is refused as unsupported.
    #[must_use]
    pub fn without_clones(mut self) -> Self {
        self.clones = Clones::None;
        self
    }

    /// A check of the store's files that only this store can make. It is called after every crash,
    /// once the store has been opened again and used, and must not repair anything.
    #[must_use]
    pub fn sound(mut self, sound: fn(&Path) -> Result<(), String>) -> Self {
        self.sound = sound;
        self
    }

    /// The same subject for tests in this module: `module_path!()`.
    #[must_use]
    pub fn tested_in(mut self, module: &str) -> Self {
        // The test harness names its tests without the crate.
        self.worker = match module.split_once("::") {
            Some((_, inner)) => format!("{inner}::worker"),
            None => "worker".into(),
        };
        self
    }
}

/// One check under way.
#[derive(Debug)]
pub struct TaskRun<'a> {
    subject: &'a TaskSubject,
    /// Where its random choices come from.
    pub chance: Chance,
    name: &'static str,
    seed: u64,
    scale: u64,
    place: TempDir,
}

impl<'a> TaskRun<'a> {
    /// Begins a check of this name, with an empty store.
    pub fn begin(subject: &'a TaskSubject, name: &'static str) -> Self {
        let seed = Chance::seed();
        // Now, because a check that hangs is killed before it ends.
        println!("{name}: seed {seed}");
        let run = Self {
            subject,
            chance: Chance::apart(seed, name),
            name,
            seed,
            scale: scale(),
            place: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(run.store_place()).unwrap();
        (subject.prepare)(&run.store_place());
        run
    }

    /// Whether there are no clones to merge. Then this has checked that every verb about them says so.
    pub fn has_no_clones(&self) -> bool {
        if self.subject.clones == Clones::Merged {
            return false;
        }
        let store = self.open();
        let refused = |answer: Result<(), TaskError>| match answer {
            Err(TaskError::Store(error)) if error.kind == ErrorKind::Unsupported => {}
            other => self.fail(&format!("it should be unsupported: {other:?}")),
        };
        refused(store.replica(soon()).map(|_| ()));
        refused(store.merge(&Replica::default(), soon()).map(|_| ()));
        refused(store.sync_state(soon()).map(|_| ()));
        refused(store.settle("", 0, soon()));
        refused(store.unsettle(soon()));
        true
    }

    fn store_place(&self) -> PathBuf {
        self.place.path().join("store")
    }

    /// A folder for anything but the store.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// Opens the store once more.
    pub fn open(&self) -> Box<dyn TaskStore> {
        (self.subject.open)(&self.store_place())
    }

    /// Opens another, empty store: another clone's.
    pub fn open_another(&self, name: &str) -> Box<dyn TaskStore> {
        let place = self.place.path().join(name);
        std::fs::create_dir_all(&place).unwrap();
        (self.subject.prepare)(&place);
        (self.subject.open)(&place)
    }

    /// So many, times the scale.
    pub fn times(&self, usual: u64) -> u64 {
        usual * self.scale
    }

    /// Starts a process that does this.
    pub fn start(&self, work: TaskWork) -> Process {
        let job = TaskJob {
            place: self.store_place(),
            work,
        };
        let job = serde_json::to_string(&job).unwrap();
        Process::start(&self.subject.worker, &job)
    }

    /// Asks the store's own check, and looks for contradictions in its history.
    pub fn check_soundness(&self, store: &dyn Store) {
        if let Err(what) = (self.subject.sound)(&self.store_place()) {
            self.fail(&what);
        }
        let events = store
            .history(&tenure_core::HistoryQuery::default(), soon())
            .unwrap();
        let flaws = history::contradictions(&events);
        if let Some(flaw) = flaws.first() {
            self.fail(&format!("the history contradicts itself: {flaw}"));
        }
    }

    /// Ends the check with a failure.
    pub fn fail(&self, what: &str) -> ! {
        panic!("{} (seed {}): {what}", self.name, self.seed);
    }
}

/// What a process of the battery is started with.
#[derive(Debug, Serialize, Deserialize)]
struct TaskJob {
    place: PathBuf,
    work: TaskWork,
}

/// What a process of the battery does.
#[derive(Debug, Serialize, Deserialize)]
pub enum TaskWork {
    /// Takes the next task and ends it, until none is left.
    Contend(contest::Contender),
    /// Begins one task, waiting for it if it has to, and holds it until it is killed.
    Hold(takeover::HeldTask),
    /// Every verb in any order, until it is killed.
    Crash(crash::RandomWork),
}

/// Does the job that this process was started for; nothing if there is none.
pub fn work(subject: &TaskSubject) {
    let Some(job) = process::job() else { return };
    let TaskJob { place, work } = serde_json::from_str(&job).unwrap();
    match work {
        TaskWork::Contend(contender) => contender.work(&*(subject.open)(&place)),
        TaskWork::Hold(holding) => holding.hold(&*(subject.open)(&place)),
        TaskWork::Crash(random) => random.go_on(subject, &place),
    }
}

/// A runner of this name, tied to this process.
pub fn runner(store: &dyn TaskStore, name: &str) -> Runner {
    let binding = store.this_process().unwrap();
    Runner {
        holder: Holder {
            id: holder_id(name),
            host: "here".into(),
            command: None,
            binding: binding.clone(),
        },
        asker: binding,
        named: true,
        task_ttl: TTL,
        section_ttl: TTL,
        priority: Priority::default(),
        patience: Patience::Try,
        within: vec![],
        leaves: vec![],
        reopens: true,
    }
}

/// The same, one that queues.
pub fn waiting_runner(store: &dyn TaskStore, name: &str) -> Runner {
    Runner {
        patience: Patience::Queue,
        ..runner(store, name)
    }
}

fn holder_id(name: &str) -> HolderId {
    HolderId::parse(name).unwrap()
}

/// The proof of a runner that gives its name.
pub fn by_name(name: &str) -> Proof {
    Proof::Name(holder_id(name))
}

/// A task in no section, with nothing but a title.
pub fn new_task(title: &str) -> NewTask {
    NewTask {
        title: title.into(),
        description: None,
        section: None,
        priority: Priority::default(),
        depends_on: vec![],
    }
}

/// Adds a task in a section (or none) that depends on others.
pub fn add(store: &dyn TaskStore, title: &str, section: Option<&str>, on: &[&Task]) -> Task {
    let task = NewTask {
        section: section.map(str::to_owned),
        depends_on: on.iter().map(|task| task.id.clone()).collect(),
        ..new_task(title)
    };
    store.add_task(&task, soon()).unwrap()
}

/// The task that was begun, which must have been.
#[track_caller]
pub fn started(answer: Acquired<Started>) -> Started {
    match answer {
        Acquired::Granted(started) => started,
        other => panic!("it should have been begun: {other:?}"),
    }
}

/// Why a task was not begun, which must not have been.
#[track_caller]
pub fn busy(answer: Acquired<Started>) -> Box<Busy> {
    match answer {
        Acquired::Busy(busy) => busy,
        other => panic!("it should be busy: {other:?}"),
    }
}

/// Makes one test for each check of the battery, and the `worker` that their processes run.
#[macro_export]
macro_rules! task_battery {
    ($subject:expr) => {
        $crate::task_battery! { @checks $subject;
            contest::eight_processes_never_work_on_one_task_or_in_one_section_together,
            takeover::a_killed_workers_task_is_taken_over_exactly_once,
            takeover::a_late_workers_change_is_refused_by_token_and_by_name,
            takeover::work_that_nobody_took_over_may_be_ended_late,
            takeover::the_end_of_a_task_is_reported_to_its_own_token_only,
            queue::ready_tasks_go_to_the_waiters_in_the_order_in_which_they_came,
            queue::an_urgent_waiter_overtakes_and_a_parked_one_comes_back,
            queue::a_waiter_for_any_task_is_woken_when_one_becomes_ready,
            queue::a_waiter_for_a_task_takes_no_key_while_it_waits,
            queue::a_section_is_held_by_one_runner_until_it_works_there_no_more,
            flow::a_task_is_begun_only_when_its_dependencies_are_done,
            flow::no_task_depends_on_itself,
            flow::the_status_of_a_task_follows_the_work_on_it,
            flow::a_task_that_failed_is_tried_again_later,
            flow::a_task_is_found_by_id_title_and_prefix_and_listed_in_order,
            flow::the_name_of_a_deleted_task_finds_no_other,
            flow::a_task_that_a_runner_works_on_is_neither_moved_nor_deleted,
            flow::a_section_is_deleted_unless_a_task_or_a_runner_needs_it,
            flow::every_earlier_value_of_a_field_is_in_the_history,
            exchange::what_is_exported_can_be_imported,
            exchange::a_bad_line_imports_nothing,
            exchange::two_clones_that_merge_have_the_same_tasks,
            exchange::a_deleted_section_goes_in_every_clone_once_no_task_is_in_it,
            exchange::a_merge_leaves_a_task_alone_while_a_runner_works_on_it,
            crash::a_crash_at_a_random_moment_leaves_a_usable_store,
        }
    };
    (@checks $subject:expr; $($file:ident::$check:ident,)+) => {
        fn subject() -> $crate::TaskSubject {
            $crate::TaskSubject::tested_in($subject, module_path!())
        }

        /// Not a test: what the processes of the battery run. See `tenure_testkit::task_battery`.
        #[test]
        fn worker() {
            $crate::task_battery::work(&subject());
        }

        $(
            #[test]
            fn $check() {
                $crate::task_battery::$file::$check(&subject());
            }
        )+
    };
}
