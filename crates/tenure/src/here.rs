//! The project of the current folder: [`lock`], [`try_lock`] and [`Tenure::here`].

use crate::config::Config;
use crate::error::Error;
use crate::guard::Guard;
use crate::open::{StoreUrl, Tenure};
use crate::project::{OpenStore, Project};

/// Holds a key of the current folder's project: [`Tenure::lock`] in the store of [`Tenure::here`]. A program that locks
/// often opens that store once.
///
/// # Errors
/// [`Error::Busy`] names the holder that still has the key at the end of the wait. [`Error::NoProject`] says that the
/// current folder is in no project.
pub fn lock(key: &str) -> Result<Guard, Error> {
    open_here(Tenure::open_for_locks)?.lock(key)
}

/// Holds a key of the current folder's project if it is free: [`Tenure::try_lock`] in the store of [`Tenure::here`].
///
/// # Errors
/// [`Error::NoProject`] says that the current folder is in no project.
pub fn try_lock(key: &str) -> Result<Option<Guard>, Error> {
    open_here(Tenure::open_for_locks)?.try_lock(key)
}

impl Tenure {
    /// Opens the store that `tenure` commands in the current folder use, with the settings that they use: that of the
    /// project, or the one that `TENURE_STORE` names.
    ///
    /// # Errors
    /// [`Error::NoProject`] if the current folder is in no project.
    pub fn here() -> Result<Self, Error> {
        open_here(Self::open_with)
    }
}

fn open_here(open: OpenStore) -> Result<Tenure, Error> {
    let folder = std::env::current_dir().map_err(Error::Folder)?;
    let home = std::env::home_dir();
    let home = home.as_deref();
    let found = Project::find(&folder, home);
    let settings = |project: Option<&Project>| match project {
        Some(project) => project.config(home),
        None => Config::load(home, None),
    };
    if let Some(named) = StoreUrl::in_environment() {
        let url = StoreUrl::seen_from(&folder, &named)?;
        // To name the store is the way out where the project can't be found.
        let config = settings(found.unwrap_or_default().as_ref())?;
        return Ok(open(&url, config.for_store(&url, home)?)?);
    }
    let found = found?;
    let config = settings(found.as_ref())?;
    if let Some(url) = config.store_url() {
        return Ok(open(&url, config)?);
    }
    let project = found.ok_or(Error::NoProject(folder))?;
    // Nothing of ours may show in git. A folder that can't be written can still be read.
    let _ = project.create();
    Ok(project.open_store(config, open)?)
}
