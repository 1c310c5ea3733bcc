//! One check of the battery: [`Run`].

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tenure_core::{Capabilities, ErrorKind, Event, HistoryQuery, Key, Snapshot, Store};

use crate::chance::Chance;
use crate::history;
use crate::limit::{self, soon};
use crate::process::Process;
use crate::puppet::Puppet;
use crate::scale::scale;
use crate::subject::Subject;
use crate::worker::{Job, Task};

/// One check: its seed, its folder, its summary.
#[derive(Debug)]
pub struct Run<'a> {
    /// The store under test.
    pub subject: &'a Subject,
    /// The source of its random choices.
    pub chance: Chance,
    name: &'static str,
    seed: u64,
    scale: u64,
    place: TempDir,
}

impl<'a> Run<'a> {
    /// Begins a check of this name, in an empty folder.
    pub fn begin(subject: &'a Subject, name: &'static str) -> Self {
        let seed = Chance::seed();
        // Also at the start: a check that hangs is killed before it prints its summary.
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
        subject.prepare(&run.store_place());
        run
    }

    /// The folder of the store.
    pub fn store_place(&self) -> PathBuf {
        self.place.path().join("store")
    }

    /// The folder for everything else.
    pub fn place(&self) -> &Path {
        self.place.path()
    }

    /// Opens the store once more.
    pub fn open(&self) -> Box<dyn Store> {
        self.subject.open(&self.store_place())
    }

    /// What the store can do.
    pub fn capabilities(&self) -> Capabilities {
        self.open().capabilities()
    }

    /// Whether the store has the capability that the check needs. Prints a line if it is skipped.
    pub fn needs(&self, what: &str, is_there: bool) -> bool {
        if !is_there {
            println!("{}: skipped, the store has no {what}", self.name);
        }
        is_there
    }

    /// This many, times the scale; fewer if the store is slow.
    pub fn times(&self, usual: u64) -> u64 {
        self.subject.rounds(usual) * self.scale
    }

    /// Starts a process with this job.
    pub fn start(&self, task: Task) -> Process {
        let job = Job {
            place: self.store_place(),
            task,
        };
        Process::start(self.subject.worker(), &serde_json::to_string(&job).unwrap())
    }

    /// Starts a process that follows orders.
    pub fn puppet(&self) -> Puppet {
        Puppet::new(self.start(Task::Puppet))
    }

    /// The history so far, if the store records one. Fails if it has a contradiction.
    pub fn history_if_any(&self, store: &dyn Store) -> Option<Vec<Event>> {
        match store.history(&HistoryQuery::default(), soon()) {
            Err(error) if error.kind == ErrorKind::Unsupported => None,
            _ => Some(self.history(store)),
        }
    }

    /// The history so far. Fails if it has a contradiction.
    pub fn history(&self, store: &dyn Store) -> Vec<Event> {
        let events = store.history(&HistoryQuery::default(), soon()).unwrap();
        let flaws = history::contradictions(&events);
        assert!(
            flaws.is_empty(),
            "{} (seed {}): the history contradicts itself: {}",
            self.name,
            self.seed,
            flaws
                .iter()
                .take(5)
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; ")
        );
        events
    }

    /// Ends the check with success: prints a summary, and checks the history once more.
    pub fn finish(self, grants: u64) {
        let store = self.open();
        self.history_if_any(&*store);
        if let Err(what) = self.subject.check_soundness(&self.store_place()) {
            panic!("{} (seed {}): {what}", self.name, self.seed);
        }
        println!("{}: seed {}, {grants} grants checked", self.name, self.seed);
    }

    /// Ends the check with a failure.
    pub fn fail(&self, what: &str) -> ! {
        panic!("{} (seed {}): {what}", self.name, self.seed);
    }
}

/// Waits until the store's records of a key satisfy a condition.
pub fn until(store: &dyn Store, key: &Key, what: &str, wanted: impl Fn(&Snapshot) -> bool) {
    limit::within_limit(what, || wanted(&store.inspect(key, soon()).unwrap()));
}
