//! The repository, the store and the holder that a hook works with: [`Scene`].

use std::path::Path;

use tenure::store::HolderId;
use tenure::who::Who;
use tenure::{Config, Project, StoreUrl, Tenure};
use tenure_core::{ErrorKind, StoreError};
use tenure_git::Git;

use super::here;
use super::judge::Reserved;
use super::recording::Recorder;
use super::records::{How, Known, Records};
use super::touched;
use crate::Error;

/// How many commits without a record are looked for.
const LOOK_BACK: usize = 100;

/// What a hook works with.
pub struct Scene {
    /// The repository.
    pub git: Git<'static>,
    /// The store.
    pub tenure: Tenure,
    /// What is reserved.
    pub reserved: Reserved,
    /// The holder that git runs for.
    pub me: Who,
    pub(super) records: Records,
    /// Whether a path may be changed only if it is reserved.
    pub(super) require: bool,
}

impl Scene {
    /// Opens the store once, to read it. `top` is where git runs hooks: the top of the work tree, or the bare repository.
    /// `store` and `name` are what the caller chose.
    pub fn open(
        top: &Path,
        project: Option<&Project>,
        config: Config,
        store: Option<&StoreUrl>,
        name: Option<HolderId>,
    ) -> Result<Self, Error> {
        let require = config.guard.require;
        let tenure = match (store, project) {
            (Some(url), _) => open(url, config)?,
            (None, Some(project)) => project.read_store(config, open)?,
            (None, None) => return Err(Error::NoProject(top.to_owned())),
        };
        Ok(Self {
            git: here(top),
            reserved: Reserved::read(&tenure, top, project)?,
            tenure,
            me: Who::find(name, project)?,
            records: Records::of(top, project)?,
            require,
        })
    }

    /// All records, and the commits of this work tree that have none.
    pub(super) fn missing(&self) -> Result<(Known, Vec<String>), Error> {
        let known = self.records.read()?;
        if known.is_empty() {
            return Ok((known, Vec::new()));
        }
        let missing = known.missing(&touched::own_commits(&self.git, LOOK_BACK)?)?;
        Ok((known, missing))
    }

    /// Records the commits of this work tree that no hook saw.
    pub fn notice(&self) -> Result<(), Error> {
        let (known, missing) = self.missing()?;
        self.record(known, &missing, How::Late).map(drop)
    }

    /// Records these commits, and returns all records.
    pub(super) fn record(
        &self,
        known: Known,
        commits: &[String],
        how: How,
    ) -> Result<Known, Error> {
        if commits.is_empty() {
            return Ok(known);
        }
        let recorder = Recorder {
            git: &self.git,
            tenure: &self.tenure,
            reserved: &self.reserved,
            me: &self.me,
            known: &known,
        };
        let new = recorder.of(commits, how)?;
        self.records.append(&new)?;
        Ok(self.records.read()?)
    }
}

/// Opens a store to read it; for writing only if it must be repaired or upgraded first.
fn open(url: &StoreUrl, config: Config) -> Result<Tenure, StoreError> {
    match Tenure::open_read_only(url, config.clone()) {
        Err(error) if error.kind == ErrorKind::ReadOnly => Tenure::open_for_locks(url, config),
        opened => opened,
    }
}
