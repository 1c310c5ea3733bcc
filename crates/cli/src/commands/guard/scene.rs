//! The repository, the store and the holder that a hook works with: [`Scene`].

use std::path::Path;

use tenure::wire::ErrorCode;
use tenure::{Config, Project, StoreUrl, Tenure, Who};
use tenure_core::{ErrorKind, HolderId, StoreError};
use tenure_files::guard::here;
use tenure_files::guard::judge::{GuardError, Reserved};
use tenure_files::guard::recording::Recorder;
use tenure_files::guard::records::{How, Known, Records};
use tenure_files::guard::touched;
use tenure_git::Git;

use crate::answer::Failure;
use crate::args::Global;
use crate::context;

/// How many commits without a record are looked for.
const LOOK_BACK: usize = 100;

/// What a hook works with.
pub(super) struct Scene {
    pub(super) git: Git<'static>,
    pub(super) tenure: Tenure,
    pub(super) reserved: Reserved,
    pub(super) me: Who,
    pub(super) records: Records,
}

impl Scene {
    /// Opens the store once, to read it. `top` is where git runs hooks: the top of the work tree, or the bare repository.
    pub(super) fn open(
        global: &Global,
        top: &Path,
        project: Option<&Project>,
        config: Config,
    ) -> Result<Self, Failure> {
        let tenure = match (context::chosen_url(global)?, project) {
            (Some(url), _) => open(&url, config)?,
            (None, Some(project)) => project.read_store(config, open)?,
            (None, None) => {
                let message = format!(
                    "no tenure project in {} or any folder above it: run tenure init in the project's root, name a \
                     store with TENURE_STORE, or remove the hooks with tenure guard uninstall",
                    top.display()
                );
                return Err(Failure::new(ErrorCode::NotInitialised, message));
            }
        };
        Ok(Self {
            git: here(top),
            reserved: Reserved::read(&tenure, top, project)?,
            tenure,
            me: me(global, project)?,
            records: records(top, project)?,
        })
    }

    /// All records, and the commits of this work tree that have none.
    pub(super) fn missing(&self) -> Result<(Known, Vec<String>), Failure> {
        let known = self.records.read()?;
        if known.is_empty() {
            return Ok((known, Vec::new()));
        }
        let missing = known.missing(&touched::own_commits(&self.git, LOOK_BACK)?)?;
        Ok((known, missing))
    }

    /// Records the commits of this work tree that no hook saw.
    pub(super) fn notice(&self) -> Result<(), Failure> {
        let (known, missing) = self.missing()?;
        self.record(known, &missing, How::Late)?;
        Ok(())
    }

    /// Records these commits, and returns all records.
    pub(super) fn record(
        &self,
        known: Known,
        commits: &[String],
        how: How,
    ) -> Result<Known, Failure> {
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

impl From<GuardError> for Failure {
    fn from(error: GuardError) -> Self {
        match error {
            GuardError::Git(error) => error.into(),
            GuardError::Store(error) => error.into(),
            // Errors that a later version of the library adds.
            _ => Self::new(ErrorCode::Io, error.to_string()),
        }
    }
}

/// Opens a store to read it; for writing only if it must be repaired or upgraded first.
fn open(url: &StoreUrl, config: Config) -> Result<Tenure, StoreError> {
    match Tenure::open_read_only(url, config.clone()) {
        Err(error) if error.kind == ErrorKind::ReadOnly => Tenure::open_for_locks(url, config),
        opened => opened,
    }
}

/// The holder that git was started by.
fn me(global: &Global, project: Option<&Project>) -> Result<Who, Failure> {
    let given = match context::named(global)? {
        Some(name) => Some(name),
        None => pusher()?,
    };
    Ok(Who::find(given, project)?)
}

/// The holder in the push option `tenure-holder`, in the hook of a server.
fn pusher() -> Result<Option<HolderId>, Failure> {
    let count = std::env::var("GIT_PUSH_OPTION_COUNT").ok();
    let count: usize = count.and_then(|count| count.parse().ok()).unwrap_or(0);
    for number in 0..count.min(100) {
        let option = std::env::var(format!("GIT_PUSH_OPTION_{number}")).unwrap_or_default();
        if let Some(name) = option.strip_prefix("tenure-holder=") {
            return Ok(Some(HolderId::parse(name)?));
        }
    }
    Ok(None)
}

/// The records of the commits of this repository.
pub(super) fn records(folder: &Path, project: Option<&Project>) -> Result<Records, Failure> {
    Ok(match project {
        Some(project) => {
            let _ = project.create_state();
            Records::in_folder(project.state())
        }
        None => Records::in_repository(&here(folder))?,
    })
}
