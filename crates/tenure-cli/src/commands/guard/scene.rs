//! The repository, the store and the holder that a hook works with: [`Scene`].

use std::path::Path;

use tenure::wire::ErrorCode;
use tenure::{Config, Project, StoreUrl, Tenure};
use tenure_core::{ErrorKind, HolderId};
use tenure_guard::Git;
use tenure_guard::judge::{Reserved, newest_token};
use tenure_guard::me::Me;
use tenure_guard::records::{How, Known, Record, Records};
use tenure_guard::touched;

use crate::answer::Failure;
use crate::args::Global;
use crate::context;

/// How many commits without a record are looked for.
const LOOK_BACK: usize = 100;

/// What a hook works with.
pub(super) struct Scene {
    pub(super) git: Git,
    pub(super) tenure: Tenure,
    pub(super) reserved: Reserved,
    pub(super) me: Me,
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
        let url = match (context::chosen_url(global)?, project) {
            (Some(url), _) => url,
            (None, Some(project)) => project.store(),
            (None, None) => {
                let message = format!(
                    "no tenure project in {} or any folder above it: run tenure init in the project's root, name a \
                     store with TENURE_STORE, or remove the hooks with tenure guard uninstall",
                    top.display()
                );
                return Err(Failure::new(ErrorCode::NotInitialised, message));
            }
        };
        let tenure = open(&url, config)?;
        Ok(Self {
            git: Git::at(top),
            reserved: Reserved::read(&tenure, top, project)?,
            tenure,
            me: me(global)?,
            records: records(top, project)?,
        })
    }

    /// All records, and the commits of this work tree that have none.
    pub(super) fn missing(&self) -> Result<(Known, Vec<String>), Failure> {
        let known = self.records.read()?;
        if known.is_empty() {
            return Ok((known, Vec::new()));
        }
        let missing = known.missing(&touched::own_commits(&self.git, LOOK_BACK)?);
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
        let newest = newest_token(&self.tenure)?;
        let at = self.tenure.clock().now().wall;
        let paths = self
            .reserved
            .named(touched::of_commits(&self.git, commits)?);
        let new: Vec<Record> = commits
            .iter()
            .rev()
            .map(|commit| {
                let changed = paths.iter().find(|touched| touched.commit == *commit);
                let paths = changed.map_or(&[][..], |touched| &touched.paths);
                let record = Record::before(commit.clone(), at);
                record.under(how, &self.me, newest, &self.reserved, paths)
            })
            .collect();
        self.records.append(&new)?;
        Ok(self.records.read()?)
    }
}

/// Opens a store to read it; for writing only if it must be repaired or upgraded first.
fn open(url: &StoreUrl, config: Config) -> Result<Tenure, Failure> {
    match Tenure::open_read_only(url, config.clone()) {
        Err(error) if error.kind == ErrorKind::ReadOnly => Ok(Tenure::open_for_locks(url, config)?),
        opened => Ok(opened?),
    }
}

/// The holder that git was started by.
fn me(global: &Global) -> Result<Me, Failure> {
    Ok(match context::named(global)? {
        Some(name) => Me::named(name),
        // Every command of an agent is run by a shell of its own, so the session is the holder.
        None => match pusher()?.or_else(context::agent_session) {
            Some(name) => Me::named(name),
            None => Me::unnamed(|pid| context::called_by(pid).ok()),
        },
    })
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
        Some(project) => Records::in_folder(&project.folder()),
        None => Records::in_repository(&Git::at(folder))?,
    })
}
