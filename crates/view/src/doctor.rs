//! What is wrong in a project, and how to put it right: [`examine`] and [`fix`].
//!
//! # Invariants
//!
//! 1. [`examine`] changes nothing.
//! 2. [`fix`] ends only what a store itself proves to have ended, at the moment when it ends it ([`Store::reap`]): it
//!    never removes a file because of what was seen before.
//! 3. A problem is reported with what was seen, what it means, and a command. If a person has to decide, the
//!    command is not one that [`fix`] runs.
//!
//! [`Store::reap`]: tenure_core::Store::reap

mod cluster;
mod daemon;
mod database;
mod disk;
mod guard;
mod leases;
mod ledger;
mod records;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use tenure::store::call_deadline;
use tenure::{Config, Project, StoreUrl, Tenure};
use tenure_core::{ErrorKind, HolderId, Key, Reap, Reaped, StoreError};
use tenure_files::guard::hooks::{self, HookError};
use tenure_ledger::{BlockingLock, Ledger};

use crate::foreign::{ForeignVerdict, Tool};
use crate::overview::Overview;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It should be put right.
    Problem,
    /// It is worth knowing.
    Note,
}

/// What puts a problem right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// The store ends it, with proof: safe.
    Cleanup(StoreUrl),
    /// Removes the ledger lock of a holder that is proven dead: safe.
    BreakDeadLock(PathBuf),
    /// Removes git's lock that a killed tenure left in the repository of this folder: safe.
    DropGitLock(PathBuf),
    /// The same as [`Remedy::Cleanup`] in a database of another program, which tenure does not write unasked.
    CleanupByHand(StoreUrl),
    /// Takes a key from its holders, or from this one: they may be alive, so a person decides.
    Force(StoreUrl, Key, Option<HolderId>),
    /// Removes a file of another tool: a person decides.
    Remove(PathBuf),
    /// Gives a file another name: a person decides what becomes of it.
    MoveAside(PathBuf),
    /// Gives the second file the mode and the group of the first.
    Chmod(PathBuf, PathBuf),
    /// Shows all that is wrong with the ledger in this folder: a person repairs it.
    VerifyLedger(PathBuf),
    /// A command, as it is.
    Command(String),
    /// Only words help.
    Advice(String),
}

impl Remedy {
    /// Whether [`fix`] does it.
    pub fn is_safe(&self) -> bool {
        matches!(
            self,
            Self::Cleanup(_) | Self::BreakDeadLock(_) | Self::DropGitLock(_)
        )
    }
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How serious it is.
    pub severity: Severity,
    /// What it is, for programs.
    pub code: &'static str,
    /// The store that it is in.
    pub store: Option<StoreUrl>,
    /// The key that it is about.
    pub key: Option<Key>,
    /// What it is, for people.
    pub what: String,
    /// What was seen.
    pub evidence: Vec<String>,
    /// What it means.
    pub meaning: String,
    /// What puts it right.
    pub remedy: Option<Remedy>,
}

impl Finding {
    fn new(severity: Severity, code: &'static str, what: impl Into<String>) -> Self {
        Self {
            severity,
            code,
            store: None,
            key: None,
            what: what.into(),
            evidence: Vec::new(),
            meaning: String::new(),
            remedy: None,
        }
    }

    fn problem(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(Severity::Problem, code, what)
    }

    fn note(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, what)
    }

    /// Something that could not be looked at.
    fn unexamined(what: impl Into<String>, error: &dyn Display) -> Self {
        Self::note("unexamined", what)
            .seen(error.to_string())
            .means("It may be wrong, and is not in this report.")
    }

    fn store(mut self, url: &StoreUrl) -> Self {
        self.store = Some(url.clone());
        self
    }

    fn key(mut self, key: &Key) -> Self {
        self.key = Some(key.clone());
        self
    }

    fn seen(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    fn means(mut self, meaning: impl Into<String>) -> Self {
        self.meaning = meaning.into();
        self
    }

    fn remedy(mut self, remedy: Remedy) -> Self {
        self.remedy = Some(remedy);
        self
    }
}

/// How much is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Everything: each database and each ledger is read as a whole.
    Whole,
    /// What does not grow with a store's history.
    Glance,
}

/// What is wrong in a project and its stores, problems first.
pub fn examine(project: Option<&Project>, overview: &Overview, extent: Extent) -> Vec<Finding> {
    let mut found = Vec::new();
    for store in &overview.stores {
        leases::examine(&overview.now, store, &mut found);
        if extent == Extent::Whole {
            records::examine(store, &mut found);
        }
        match &store.url {
            StoreUrl::Sqlite(path) | StoreUrl::Steroids(path) => {
                let check = store.error.is_none().then_some(extent);
                database::examine(&store.url, path, check, &mut found);
            }
            StoreUrl::Ledger(root) => {
                let is_read = store.error.is_none();
                ledger::examine(&store.url, root, is_read, extent, &mut found);
            }
            // Why it can't be read is known already.
            StoreUrl::Etcd(_) if extent == Extent::Whole && store.error.is_none() => {
                cluster::examine(&store.url, &mut found);
            }
            _ => {}
        }
    }
    leases::cycles(overview, &mut found);
    foreign(overview, &mut found);
    if let Some(project) = project {
        daemon::examine(project, overview, &mut found);
        disk::examine(project, overview, &mut found);
        guard::examine(project, &overview.guard, &mut found);
    }
    found.extend(overview.settings.iter().map(|error| {
        Finding::problem("settings", "the settings can't be used")
            .seen(error)
            .means("Every other command refuses to run. Here, the defaults were used instead.")
            .remedy(Remedy::Advice("correct the file at that line".into()))
    }));
    let left_out = overview.left_out.iter();
    found.extend(left_out.map(|what| Finding::note("left_out", what)));
    found.sort_by_key(|finding| finding.severity);
    found
}

fn foreign(overview: &Overview, found: &mut Vec<Finding>) {
    for lock in &overview.foreign {
        let path = lock.path.display();
        let why = lock.verdict.why();
        let means = match lock.tool {
            Tool::Git => {
                "git refuses to work on what it protects as long as it is there. git removes its lock when it ends; a crash leaves it behind."
            }
            _ => "The tool may refuse to start, or believe that it runs already.",
        };
        let finding = match (&lock.verdict, lock.processes.is_empty()) {
            (ForeignVerdict::Dead(_), _) => Finding::problem(
                "foreign_stale",
                format!("{path} was left behind by {}", lock.tool.word()),
            ),
            (ForeignVerdict::Unknown(_), true) => Finding::note(
                "foreign_unverified",
                format!("{path} may have been left behind by {}", lock.tool.word()),
            ),
            (ForeignVerdict::Malformed(_), _) => {
                Finding::note("foreign_malformed", format!("{path} can't be understood"))
            }
            _ => continue,
        };
        found.push(
            finding
                .seen(why)
                .means(means)
                .remedy(Remedy::Remove(lock.path.clone())),
        );
    }
}

/// What [`fix`] did with one remedy.
#[derive(Debug)]
pub struct Fixed {
    /// What was to be done.
    pub remedy: Remedy,
    /// The leases that were ended, or why it failed.
    pub ended: Result<Vec<Reaped>, StoreError>,
    /// The ledger lock that was removed.
    pub lock: Option<BlockingLock>,
    /// The file that was removed.
    pub removed: Option<PathBuf>,
}

/// The safe remedies of what was found, each once.
pub fn safe_remedies(found: &[Finding]) -> Vec<Remedy> {
    let mut remedies: Vec<Remedy> = Vec::new();
    let safe = found.iter().filter_map(|finding| finding.remedy.as_ref());
    for remedy in safe.filter(|remedy| remedy.is_safe()) {
        if !remedies.contains(remedy) {
            remedies.push(remedy.clone());
        }
    }
    remedies
}

/// Applies the safe remedies of what was found. Each store decides again what has ended, and records it.
pub fn fix(found: &[Finding], config: &Config) -> Vec<Fixed> {
    safe_remedies(found)
        .into_iter()
        .map(|remedy| {
            let mut lock = None;
            let mut removed = None;
            let ended = match &remedy {
                Remedy::Cleanup(url) => Tenure::open_with(url, config.clone())
                    .and_then(|tenure| tenure.store().reap(Reap::Free, call_deadline())),
                Remedy::BreakDeadLock(root) => {
                    Ledger::open(root, tenure_ledger::Options::default()).map(|ledger| {
                        lock = ledger.remove_dead_lock();
                        Vec::new()
                    })
                }
                Remedy::DropGitLock(root) => drop_git_lock(root).map(|there| {
                    removed = there;
                    Vec::new()
                }),
                _ => Ok(Vec::new()),
            };
            Fixed {
                remedy,
                ended,
                lock,
                removed,
            }
        })
        .collect()
}

/// Removes git's lock that a killed tenure left, and tells which.
fn drop_git_lock(root: &Path) -> Result<Option<PathBuf>, StoreError> {
    let failed = |error: HookError| StoreError::new(ErrorKind::Io, error.to_string());
    let lock = hooks::left_lock(root).map_err(failed)?;
    let dropped = hooks::drop_left_lock(root).map_err(failed)?;
    Ok(lock.filter(|_| dropped))
}
