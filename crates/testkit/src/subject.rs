//! The store under test: [`Subject`].

use std::path::Path;
use std::time::Duration;

use tenure_core::{Key, Store};

/// The store under test, and what the battery may do to it.
#[derive(Debug, Clone)]
pub struct Subject {
    open: fn(&Path) -> Box<dyn Store>,
    prepare: fn(&Path),
    slower: u64,
    shortest_ttl: Duration,
    sound: fn(&Path) -> Result<(), String>,
    keys: Vec<Key>,
    worker: String,
}

impl Subject {
    /// A store that `open` opens, or makes, in a folder that is given to it. It is called many
    /// times for one folder, from many processes.
    pub fn opened_by(open: fn(&Path) -> Box<dyn Store>) -> Self {
        Self {
            open,
            prepare: |_| (),
            slower: 1,
            shortest_ttl: Duration::from_millis(10),
            sound: |_| Ok(()),
            keys: vec![],
            worker: "worker".into(),
        }
        .keys(&["build", "deploy", "docs"])
    }

    /// The keys that the store can hold; one is enough, and some checks are skipped then.
    #[must_use]
    pub fn keys(mut self, names: &[&str]) -> Self {
        self.keys = names
            .iter()
            .map(|name| Key::parse(*name).unwrap())
            .collect();
        self
    }

    /// What has to be there before the store is opened in an empty folder: a server. It is called once for each
    /// folder, in the test's own process.
    #[must_use]
    pub fn prepared_by(mut self, prepare: fn(&Path)) -> Self {
        self.prepare = prepare;
        self
    }

    /// A store whose verbs take so many times longer: repeated checks run so many times fewer rounds.
    #[must_use]
    pub fn slower(mut self, slower: u64) -> Self {
        self.slower = slower;
        self
    }

    /// The shortest time to live that the store keeps exactly.
    #[must_use]
    pub fn shortest_ttl(mut self, ttl: Duration) -> Self {
        self.shortest_ttl = ttl;
        self
    }

    /// What else can be said of the store's files: a check that only this store knows. It is
    /// called after every crash, once the store has been opened again and used, and must not
    /// repair anything.
    #[must_use]
    pub fn sound(mut self, sound: fn(&Path) -> Result<(), String>) -> Self {
        self.sound = sound;
        self
    }

    /// The same, for tests that stand in this module: `module_path!()`.
    #[must_use]
    pub fn tested_in(mut self, module: &str) -> Self {
        // The test harness names its tests without the crate.
        self.worker = match module.split_once("::") {
            Some((_, inner)) => format!("{inner}::worker"),
            None => "worker".into(),
        };
        self
    }

    /// Opens the store.
    pub fn open(&self, place: &Path) -> Box<dyn Store> {
        (self.open)(place)
    }

    /// Prepares a folder for the store.
    pub fn prepare(&self, place: &Path) {
        (self.prepare)(place);
    }

    /// This many rounds, or fewer of a slower store.
    pub fn rounds(&self, usual: u64) -> u64 {
        usual.div_ceil(self.slower)
    }

    /// The time to live of leases that should expire soon.
    pub fn brief_ttl(&self) -> Duration {
        self.shortest_ttl
    }

    /// Asks the store's own check.
    pub fn check_soundness(&self, place: &Path) -> Result<(), String> {
        (self.sound)(place)
    }

    /// The first key.
    pub fn key(&self) -> &Key {
        &self.keys[0]
    }

    /// All of them.
    pub fn all_keys(&self) -> &[Key] {
        &self.keys
    }

    /// The name of the test that processes run.
    pub fn worker(&self) -> &str {
        &self.worker
    }
}
