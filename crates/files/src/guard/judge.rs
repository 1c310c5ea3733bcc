//! Which paths other holders have reserved: [`Reserved`].

use std::path::Path;

use tenure::files::{Reservations, Target, WorkTree};
use tenure::store::{Holder, Verdict};
use tenure::who::Who;
use tenure::{Project, Tenure};
use tenure_core::Lease;

use super::touched::Touched;
use super::work_tree::work_tree;
use crate::Error;
use crate::ruling::Ruling;

/// The reservations in effect, at one moment, as seen from a repository.
#[derive(Debug)]
pub struct Reserved {
    reservations: Reservations,
    /// The path of the repository in reservations, with a slash at its end. A repository inside that of the project,
    /// such as a submodule, has one.
    within: String,
}

/// Why a path may not be changed.
#[derive(Debug, Clone)]
pub enum Objection {
    /// Another holder has reserved it, to write it or to read it.
    Held(Lease),
    /// The settings require a reservation, and we have none.
    NotReserved,
}

impl Reserved {
    /// Reads them. `top` is the folder that the hook runs in. Reservations that have ended don't count, whether or not
    /// that was recorded yet.
    pub fn read(tenure: &Tenure, top: &Path, project: Option<&Project>) -> Result<Self, Error> {
        let top = work_tree(top)?.canonicalize()?;
        let tree = WorkTree::find(&top, project)?;
        let within = tree.and_then(|tree| top.strip_prefix(tree.root()).ok().map(Path::to_owned));
        let within = within.filter(|path| !path.as_os_str().is_empty());
        Ok(Self {
            reservations: tenure.reservations()?,
            within: within.map_or_else(String::new, |path| format!("{}/", path.to_string_lossy())),
        })
    }

    /// What these paths of the repository are called in reservations.
    pub fn names(&self, mut paths: Vec<String>) -> Vec<String> {
        for path in paths.iter_mut().filter(|_| !self.within.is_empty()) {
            path.insert_str(0, &self.within);
        }
        paths
    }

    /// What such a path is called in the repository.
    pub fn in_repository<'p>(&self, path: &'p str) -> &'p str {
        path.strip_prefix(&self.within).unwrap_or(path)
    }

    /// What the paths of commits are called in reservations.
    pub fn named(&self, mut commits: Vec<Touched>) -> Vec<Touched> {
        for commit in &mut commits {
            commit.paths = self.names(std::mem::take(&mut commit.paths));
        }
        commits
    }

    /// Whether we may write the path.
    pub(super) fn ruling(&self, me: &Who, path: &str) -> Ruling<'_> {
        let is_ours = |holder: &Holder| me.is(holder);
        Ruling::on(&self.reservations, &Target::file(path), is_ours)
    }

    /// Why this path may not be changed, if it may not.
    pub(super) fn judge(&self, me: &Who, require: bool, path: &str) -> Option<Objection> {
        let ruling = self.ruling(me, path);
        match ruling.against.first() {
            Some(lease) => Some(Objection::Held((*lease).clone())),
            None => (require && ruling.own.is_none()).then_some(Objection::NotReserved),
        }
    }

    /// All of them, also those that have ended.
    pub(crate) fn all(&self) -> &[(Lease, Verdict)] {
        self.reservations.all()
    }
}
