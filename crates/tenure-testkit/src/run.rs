//! One check under way: [`Run`].

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

/// One check under way: its seed, its place, its summary.
#[derive(Debug)]
pub struct Run<'a> {
    /// The store under test.
    pub subject: &'a Subject,
    /// Where its random choices come from.
    pub chance: Chance,
    name: &'static str,
    seed: u64,
    scale: u64,
    place: TempDir,
}

impl<'a> Run<'a> {
    /// Begins a check of this name, in an empty place.
    pub fn begin(subject: &'a Subject, name: &'static str) -> Self {
        let seed = Chance::seed();
        // At the start, too: a check that hangs is killed before it can tell.
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
        run
    }

    /// Where the store is.
    pub fn store_place(&self) -> PathBuf {
        self.place.path().join("store")
    }

    /// Where everything else is.
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

    /// Whether the store can do what the check is about; tells if it is skipped.
    pub fn needs(&self, what: &str, is_there: bool) -> bool {
        if !is_there {
            println!("{}: skipped, the store has no {what}", self.name);
        }
        is_there
    }

    /// So many, times the scale.
    pub fn times(&self, usual: u64) -> u64 {
        usual * self.scale
    }

    /// Starts a process that does this.
    pub fn start(&self, task: Task) -> Process {
        let job = Job {
            place: self.store_place(),
            task,
        };
        Process::start(self.subject.worker(), &serde_json::to_string(&job).unwrap())
    }

    /// Starts a process that does as it is told.
    pub fn puppet(&self) -> Puppet {
        Puppet::new(self.start(Task::Puppet))
    }

    /// What happened so far, if the store keeps a history. Fails if it contradicts itself.
    pub fn history_if_any(&self, store: &dyn Store) -> Option<Vec<Event>> {
        match store.history(&HistoryQuery::default(), soon()) {
            Err(error) if error.kind == ErrorKind::Unsupported => None,
            _ => Some(self.history(store)),
        }
    }

    /// What happened so far. Fails if it contradicts itself.
    pub fn history(&self, store: &dyn Store) -> Vec<Event> {
        let events = store.history(&HistoryQuery::default(), soon()).unwrap();
        let flaws = history::flaws(&events);
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

    /// Ends the check well: tells what it did, and looks at the history once more.
    pub fn finish(self, grants: u64) {
        let store = self.open();
        self.history_if_any(&*store);
        if let Err(what) = self.subject.check_soundness(&self.store_place()) {
            panic!("{} (seed {}): {what}", self.name, self.seed);
        }
        println!("{}: seed {}, {grants} grants checked", self.name, self.seed);
    }

    /// Ends the check badly.
    pub fn fail(&self, what: &str) -> ! {
        panic!("{} (seed {}): {what}", self.name, self.seed);
    }
}

/// Waits until what the store knows of a key is as wanted.
pub fn until(store: &dyn Store, key: &Key, what: &str, wanted: impl Fn(&Snapshot) -> bool) {
    limit::within_limit(what, || wanted(&store.inspect(key, soon()).unwrap()));
}
