//! Where a project keeps what belongs to this machine, and how an earlier version's database gets there.
//!
//! | the project | its state |
//! |---|---|
//! | in no git repository | `.tenure` |
//! | the top of a work tree | `tenure` in the repository's common directory |
//! | a folder `a/b` of a work tree | `tenure/at/a/at/b` there |
//! | of a bare repository | `.tenure`, which is in the common directory already |
//!
//! git never touches a folder in its own directory that it does not know, so `git clean -ffdx`, `git stash --all` and the
//! removal of a worktree leave the state alone; in the work tree, `git clean -fdx` deletes it under its holders. All worktrees
//! of a repository have the same common directory.
//!
//! # An earlier database
//!
//! Earlier versions kept the database in `.tenure` everywhere, and it is there, too, if git came later. A command that
//! writes moves it ([`tenure_sqlite::move_database`]) unless another process uses it, and the database stays in use where
//! it is until then.
//!
//! # Invariants
//!
//! 1. If there is a database in the state folder, that is the one. An earlier one is not looked at any more.
//! 2. Before a database is made in the state folder, a file that every version refuses is at its earlier place
//!    ([`tenure_sqlite::placeholder`]). So an earlier version makes no second one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tenure_core::{ErrorKind, StoreError};
use tenure_host::files::atomic::{self, PutResult};
use tenure_host::files::beneath;
use tenure_host::files::look;
use tenure_host::files::permissions::create_folder;

use super::{DATABASE, Project};
use crate::config::Config;
use crate::open::{StoreUrl, Tenure};

/// The folder in a repository's common directory.
const STATE: &str = "tenure";

/// What comes before the name of each folder of the work tree.
const AT: &str = "at";

/// What earlier versions kept in `.tenure` besides the database, and is worth keeping.
const CARRIED: [&str; 3] = ["guard-commits.1.jsonl", "guard-commits.jsonl", "sync.json"];

/// The guard begins a new file at a quarter of this.
const LARGEST: u64 = 4 * 1024 * 1024;

/// How a store is opened.
pub(crate) type OpenStore = fn(&StoreUrl, Config) -> Result<Tenure, StoreError>;

/// The state of the project in the folder `within` of a work tree with this common directory.
pub(super) fn place(common: &Path, within: &Path) -> PathBuf {
    let mut state = common.join(STATE);
    for part in within {
        state.push(AT);
        state.push(part);
    }
    state
}

/// Whether a folder of a work tree other than its top may be a project with a state.
pub(super) fn has_folders(common: &Path) -> bool {
    look::may_be_folder(&common.join(STATE).join(AT))
}

impl Project {
    /// The folder with all that belongs to this machine: the database, and the files of the daemon, of sync and of the
    /// guard.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The project's own store, which a command uses unless it is given another. It need not exist yet.
    pub fn store(&self) -> StoreUrl {
        let database = self.database();
        StoreUrl::Sqlite(if self.has_database() {
            database
        } else {
            self.earlier_database().unwrap_or(database)
        })
    }

    /// Whether the project has a store of its own already. One that can't be looked at is there: opening it tells why.
    pub fn has_store(&self) -> bool {
        self.has_database() || self.earlier_database().is_some()
    }

    /// Whether there is something at the place of the database, or may be.
    pub(super) fn has_database(&self) -> bool {
        look::may_be_there(&self.database())
    }

    fn database(&self) -> PathBuf {
        self.state.join(DATABASE)
    }

    /// Whether the state is somewhere else than in `.tenure`.
    fn is_apart(&self) -> bool {
        self.state.parent() != Some(&self.root)
    }

    /// The database in `.tenure`, if it was not moved yet.
    fn earlier_database(&self) -> Option<PathBuf> {
        let path = self.folder().join(DATABASE);
        let is_one = || match look::link_at(&path) {
            Ok(there) => there.is_some_and(|file| !is_placeholder(&file)),
            Err(_) => true,
        };
        (self.is_apart() && is_one()).then_some(path)
    }

    /// Creates the folder of the state if it does not exist, and brings along what an earlier version kept in `.tenure`.
    pub fn create_state(&self) -> io::Result<()> {
        if self.state.is_dir() || !create_folder(&self.state)? || !self.is_apart() {
            return Ok(());
        }
        for name in CARRIED {
            let (from, to) = (self.folder().join(name), self.state.join(name));
            let temp = to.with_extension(std::process::id().to_string());
            // Best effort: none of them is needed. The common directory may be on another file system.
            let carried = beneath::read(&from, LARGEST)
                .and_then(|bytes| atomic::create(&to, &temp, &bytes))
                .is_ok();
            if carried {
                let _ = atomic::unlink(&from);
            }
        }
        Ok(())
    }

    /// Puts the file at the database's earlier place that every version refuses, if nothing is there.
    pub(super) fn refuse_earlier_versions(&self) -> io::Result<()> {
        if !self.is_apart() {
            return Ok(());
        }
        let path = self.folder().join(DATABASE);
        let temp = path.with_extension(std::process::id().to_string());
        let (PutResult::Done | PutResult::Occupied) = atomic::create(&path, &temp, &placeholder())?;
        Ok(())
    }

    /// Opens the project's own store for writing, with `open`. Makes it if it does not exist; and moves the database of
    /// an earlier version to its place if no process uses it.
    pub fn open_store(&self, config: Config, open: OpenStore) -> Result<Tenure, StoreError> {
        if self.is_apart() && !self.has_database() {
            self.settle()?;
        }
        self.read_store(config, open)
    }

    /// Opens the project's own store with `open`, where it is.
    pub fn read_store(&self, config: Config, open: OpenStore) -> Result<Tenure, StoreError> {
        let url = self.store();
        match open(&url, config.clone()) {
            // Another process has moved it meanwhile.
            Err(error) if error.kind == ErrorKind::TooNew && self.store() != url => {
                open(&self.store(), config)
            }
            opened => opened,
        }
    }

    /// Prepares the place of a database that is not there yet.
    fn settle(&self) -> Result<(), StoreError> {
        let created = self.create_state();
        if let Some(earlier) = self.earlier_database() {
            // While it can't be moved it is used where it is. What is wrong with it, opening it tells.
            if created.is_ok() {
                move_database(&earlier, &self.database());
            }
            return Ok(());
        }
        let prepared = created.and_then(|()| self.refuse_earlier_versions());
        prepared.map_err(|error| self.explain_state(error))
    }

    /// The state can't be kept where it belongs. A second store somewhere else would exclude nobody.
    fn explain_state(&self, error: io::Error) -> StoreError {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::ReadOnly
            }
            io::ErrorKind::StorageFull => ErrorKind::Full,
            _ => ErrorKind::Io,
        };
        let what = format!(
            "the locks of {} are kept in {}, which can't be made",
            self.root.display(),
            self.state.display()
        );
        StoreError::new(kind, what).because(error).fix(
            "run tenure init there as a user who may write it; in a sandbox that protects .git, allow that folder \
             to be written (tenure setup says how), or name a store with --store or TENURE_STORE",
        )
    }
}

/// Whether a file at the place of a database is none, but stands for one that was moved.
fn is_placeholder(file: &fs::Metadata) -> bool {
    file.is_file() && file.len() == placeholder().len() as u64
}

#[cfg(feature = "sqlite")]
use tenure_sqlite::placeholder;

#[cfg(feature = "sqlite")]
fn move_database(from: &Path, to: &Path) {
    let _ = tenure_sqlite::move_database(from, to);
}

#[cfg(not(feature = "sqlite"))]
fn placeholder() -> [u8; 0] {
    []
}

#[cfg(not(feature = "sqlite"))]
fn move_database(_from: &Path, _to: &Path) {}
