//! Where exclusive locks may appear, watched with inotify: [`LockLocations`].
//!
//! 1. A location is watched before it is looked at, so that no change goes unnoticed in between.
//! 2. For a folder that does not exist yet, its parent is watched. A folder that was replaced is watched
//!    from the next cycle on.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fd::BorrowedFd;
use tenure::Project;
use tenure_host::files::lock_watch::{Listen, LockWatch};
use tenure_host::files::look;
use tenure_lockfile::exclusive::FILE;

/// The folders of a project in which an exclusive lock may appear.
#[derive(Debug)]
pub(crate) struct LockLocations {
    locations: Vec<LockLocation>,
    watch_error: Option<String>,
}

#[derive(Debug)]
struct LockLocation {
    folder: PathBuf,
    watch: Option<LocationWatch>,
}

#[derive(Debug)]
struct LocationWatch {
    /// The path that is watched, and the identity of the folder that it is in.
    path: PathBuf,
    folder: (u64, u64),
    changes: LockWatch,
}

impl LockLocations {
    /// The locations of a project. None is watched yet.
    pub(crate) fn of(project: &Project) -> Self {
        let folders = project.exclusive_lock_folders().into_iter();
        let location = |folder| LockLocation {
            folder,
            watch: None,
        };
        Self {
            locations: folders.map(location).collect(),
            watch_error: None,
        }
    }

    /// The folders that exist, in the order in which their locks are checked. A lock in one that can't be looked at can't
    /// be checked, which is found then.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let folders = self.locations.iter().map(|location| &location.folder);
        folders
            .filter(|folder| look::may_be_folder(folder))
            .cloned()
            .collect()
    }

    /// Watches what exists now, and drops all changes seen so far.
    pub(crate) fn refresh(&mut self) {
        self.watch_error = None;
        for location in &mut self.locations {
            if let Err(error) = location.refresh() {
                let path = location.folder.join(FILE);
                self.watch_error = Some(format!("Can't watch {}: {error}", path.display()));
            }
        }
        self.take_changes();
    }

    /// Why a location can't be watched, if one can't.
    pub(crate) fn watch_error(&self) -> Option<&str> {
        self.watch_error.as_deref()
    }

    /// Whether a lock appeared, changed or went since the last call.
    pub(crate) fn take_changes(&mut self) -> bool {
        let mut changed = false;
        for location in &mut self.locations {
            let Some(watch) = &location.watch else {
                continue;
            };
            match watch.changes.take() {
                Ok(changes) => changed |= !changes.is_empty(),
                // The next refresh watches it again.
                Err(_) => location.watch = None,
            }
        }
        changed
    }

    /// The descriptors to poll.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let watches = self.locations.iter().filter_map(|it| it.watch.as_ref());
        watches.map(|watch| watch.changes.as_fd())
    }
}

impl LockLocation {
    fn refresh(&mut self) -> io::Result<()> {
        let id = |folder: &Path| fs::metadata(folder).map(|it| (it.dev(), it.ino())).ok();
        let parent = self.folder.parent().unwrap_or(&self.folder);
        // The lock in its folder, or else the folder in its parent.
        let (path, folder) = if self.folder.is_dir() {
            (self.folder.join(FILE), id(&self.folder))
        } else {
            (self.folder.clone(), id(parent))
        };
        let Some(folder) = folder else {
            self.watch = None;
            return Ok(());
        };
        let same = |watch: &LocationWatch| watch.path == path && watch.folder == folder;
        if self.watch.as_ref().is_some_and(same) {
            return Ok(());
        }
        self.watch = None;
        let changes = LockWatch::on(&path, Listen::Everything)?;
        self.watch = Some(LocationWatch {
            path,
            folder,
            changes,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_noticed_in_both_folders_even_if_one_is_created_later() {
        let dir = tempfile::tempdir().unwrap();
        let (project, _) = Project::init(dir.path()).unwrap();
        let mut locations = LockLocations::of(&project);
        locations.refresh();
        assert!(!locations.take_changes());
        fs::write(dir.path().join("unrelated"), "").unwrap();
        fs::write(project.folder().join("unrelated"), "").unwrap();
        assert!(!locations.take_changes());

        let ours = project.folder().join(FILE);
        fs::write(&ours, "{}").unwrap();
        assert!(locations.take_changes());
        fs::remove_file(&ours).unwrap();
        assert!(locations.take_changes());

        let beads = dir.path().join(".beads");
        fs::create_dir(&beads).unwrap();
        assert!(locations.take_changes(), "the folder was created");
        locations.refresh();
        assert_eq!(locations.folders(), [project.folder(), beads.clone()]);
        fs::write(beads.join(FILE), "{}").unwrap();
        assert!(locations.take_changes(), "the lock was created");

        fs::rename(&beads, dir.path().join("away")).unwrap();
        assert!(locations.take_changes(), "the folder was moved away");
        locations.refresh();
        fs::create_dir(&beads).unwrap();
        assert!(locations.take_changes(), "another folder was created");
        locations.refresh();
        fs::write(beads.join(FILE), "{}").unwrap();
        assert!(locations.take_changes());
        assert_eq!(locations.watch_error(), None);
    }
}
