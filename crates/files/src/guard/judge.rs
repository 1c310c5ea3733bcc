//! Which paths other holders have reserved: [`Reserved`].

use std::path::Path;

use tenure::files::{Reservations, WorkTree};
use tenure::store::Verdict;
use tenure::who::Who;
use tenure::{Project, Tenure};
use tenure_core::Lease;

use super::touched::Touched;
use super::work_tree::work_tree;
use crate::Error;

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
pub enum Problem {
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

    /// A reservation of another holder that covers the path. To read is enough: its holder asked that the path is not
    /// changed.
    pub fn against<'a>(&'a self, me: &Who, path: &'a str) -> Option<&'a Lease> {
        let mut covering = self.reservations.covering(path);
        covering.find(|lease| !me.is(&lease.holder))
    }

    /// A reservation of our own, to write the path.
    pub fn own<'a>(&'a self, me: &Who, path: &'a str) -> Option<&'a Lease> {
        let writes = |lease: &&Lease| lease.mode.paths().is_none_or(|paths| !paths.is_shared());
        let mut covering = self.reservations.covering(path).filter(writes);
        covering.find(|lease| me.is(&lease.holder))
    }

    /// Why this path may not be changed, if it may not.
    pub fn judge(&self, me: &Who, require: bool, path: &str) -> Option<Problem> {
        if let Some(lease) = self.against(me, path) {
            return Some(Problem::Held(lease.clone()));
        }
        (require && self.own(me, path).is_none()).then_some(Problem::NotReserved)
    }

    /// All of them, also those that have ended.
    pub(crate) fn all(&self) -> &[(Lease, Verdict)] {
        self.reservations.all()
    }
}
