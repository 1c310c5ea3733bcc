//! [`Overview`]: every store of a project with its locks, and the locks of other tools.

use std::path::{Path, PathBuf};

use tenure::config::GuardSettings;
use tenure::project::{StoreRole, is_ledger};
use tenure::store::call_deadline;
use tenure::{Config, Project, StoreUrl, Tenure};
use tenure_core::{Clock, Key, Moment, Snapshot, StoreError};
use tenure_host::HostClock;
use tenure_host::files::look;

use crate::foreign::{self, ForeignLock};
use crate::scan;

/// A store and what is in it.
pub struct StoreView {
    /// What it is to the project.
    pub role: StoreRole,
    /// Its address.
    pub url: StoreUrl,
    /// Every key that is held or waited for.
    pub locks: Vec<Snapshot>,
    /// Why it can't be read, if it can't.
    pub error: Option<StoreError>,
    /// The store, opened read-only; `None` if it can't be read.
    pub tenure: Option<Tenure>,
}

/// Every lock in a project.
pub struct Overview {
    /// When it was made.
    pub now: Moment,
    /// The stores, the project's own first.
    pub stores: Vec<StoreView>,
    /// The locks of other tools.
    pub foreign: Vec<ForeignLock>,
    /// Which parts were too large to be looked at as a whole, or could not be looked at, as sentences.
    pub left_out: Vec<String>,
    /// What the settings say about the guard.
    pub guard: GuardSettings,
    /// Why the settings can't be used, if they can't.
    pub settings: Option<String>,
}

impl Overview {
    /// Before the first look.
    pub fn empty() -> Self {
        Self {
            guard: Config::default().guard,
            now: HostClock::new().now(),
            stores: Vec::new(),
            foreign: Vec::new(),
            left_out: Vec::new(),
            settings: None,
        }
    }

    /// Looks at every store of a project, at the one that the caller chose besides, and at the locks of other tools; without
    /// a project, at the chosen store only. When looking again, a connection to a server is kept; every other
    /// store is opened anew, because another one may be in its place.
    pub fn look(&mut self, project: Option<&Project>, chosen: Option<&StoreUrl>, config: &Config) {
        self.look_for(None, project, chosen, config);
    }

    /// The same; a store that is far away shows these keys and those that are waited for only.
    pub fn look_for(
        &mut self,
        keys: Option<&[Key]>,
        project: Option<&Project>,
        chosen: Option<&StoreUrl>,
        config: &Config,
    ) {
        self.guard.clone_from(&config.guard);
        self.left_out.clear();
        self.foreign = match project {
            Some(project) => foreign::find(project.root(), &mut self.left_out),
            None => Vec::new(),
        };
        let found = match project {
            Some(project) => stores(project, chosen.cloned(), &mut self.left_out),
            None => chosen
                .map(|url| (StoreRole::Chosen, url.clone()))
                .into_iter()
                .collect(),
        };
        let mut before = std::mem::take(&mut self.stores);
        for (role, url) in found {
            let is_kept = |view: &&mut StoreView| {
                view.url == url && matches!(url, StoreUrl::Etcd(_)) && view.error.is_none()
            };
            let kept = before.iter_mut().find(is_kept);
            let kept = kept.and_then(|view| view.tenure.take());
            self.stores
                .push(StoreView::of(role, url, kept, keys, config));
        }
        self.now = HostClock::new().now();
    }
}

/// The file or folder whose existence is the lock of a store, if it is such a store.
pub fn lock_path(url: &StoreUrl) -> Option<PathBuf> {
    match url {
        StoreUrl::Exclusive(folder) => Some(folder.join(tenure_lockfile::exclusive::FILE)),
        StoreUrl::Mkdir(folder) => Some(folder.clone()),
        _ => None,
    }
}

/// The stores of a project, the project's own first, and the one that the caller chose. What was too large to be looked at
/// as a whole is added to `left_out`.
fn stores(
    project: &Project,
    chosen: Option<StoreUrl>,
    left_out: &mut Vec<String>,
) -> Vec<(StoreRole, StoreUrl)> {
    // The lock folder of a board is made in a folder that may not exist yet. Then nobody holds it.
    let is_there = |url: &StoreUrl| match url {
        StoreUrl::Mkdir(folder) => folder.parent().is_some_and(look::may_be_folder),
        _ => true,
    };
    let found = project.stores().into_iter();
    let found = found.filter(|store| is_there(&store.url));
    let mut stores: Vec<(StoreRole, StoreUrl)> =
        found.map(|store| (store.role, store.url)).collect();
    let nested = ledgers(project.root(), left_out).into_iter();
    stores.extend(nested.map(|root| (StoreRole::Ledger, StoreUrl::Ledger(root))));
    if let Some(url) = chosen
        && !stores.iter().any(|(_, known)| *known == url)
    {
        stores.push((StoreRole::Chosen, url));
    }
    stores
}

/// The ledgers in folders of the root. The root's own is a store of the project.
fn ledgers(root: &Path, left_out: &mut Vec<String>) -> Vec<PathBuf> {
    let mut folders = scan::folders(root, "ledgers", left_out);
    folders.sort();
    folders.retain(|folder| {
        is_ledger(folder).unwrap_or_else(|error| {
            left_out.push(format!("{error}: a ledger there was not looked for"));
            false
        })
    });
    folders
}

impl StoreView {
    /// Reads a store, through the connection that is `kept` if there is one.
    fn of(
        role: StoreRole,
        url: StoreUrl,
        kept: Option<Tenure>,
        keys: Option<&[Key]>,
        config: &Config,
    ) -> Self {
        let mut view = Self {
            role,
            url,
            locks: Vec::new(),
            error: None,
            tenure: None,
        };
        let opened = match kept {
            Some(tenure) => Ok(tenure),
            None => Tenure::open_read_only(&view.url, config.clone()),
        };
        let looked = opened.and_then(|tenure| {
            let locks = match keys {
                Some(keys) => tenure.store().list_with(keys, call_deadline()),
                None => tenure.store().list(call_deadline()),
            };
            view.tenure = Some(tenure);
            locks
        });
        match looked {
            Ok(locks) => view.locks = locks,
            Err(error) => {
                // A server that does not answer would be asked, and waited for, again.
                view.tenure = None;
                view.error = Some(error);
            }
        }
        view
    }

    /// Reads keys that a look for others may have left out.
    pub fn add(&mut self, keys: &[Key]) -> Result<(), StoreError> {
        let Some(tenure) = self.tenure.as_ref().filter(|_| self.error.is_none()) else {
            return Ok(());
        };
        for key in keys {
            if self.locks.iter().all(|lock| lock.key != *key) {
                let lock = tenure.store().inspect(key, call_deadline())?;
                let says = !lock.is_idle() || !lock.problems.is_empty();
                self.locks.extend(Some(lock).filter(|_| says));
            }
        }
        Ok(())
    }
}
