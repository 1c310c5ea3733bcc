//! The places of the exclusive locks, watched: [`Places`].
//!
//! 1. A place is watched before it is looked at, so that nothing happens unseen in between.
//! 2. A folder that is not there yet is awaited by watching its parent; one that was replaced is watched
//!    anew with the next cycle.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fd::BorrowedFd;
use tenure::Project;
use tenure::file::exclusive::FILE;
use tenure::host::files::lock_watch::{Listen, LockWatch};

/// The folder of another tool whose lock is obeyed, too.
const BEADS: &str = ".beads";

/// Where exclusive locks may stand.
#[derive(Debug)]
pub(crate) struct Places {
    places: [Place; 2],
    /// Why one of them can't be watched, if so.
    deaf: Option<String>,
}

#[derive(Debug)]
struct Place {
    folder: PathBuf,
    watch: Option<Watch>,
}

#[derive(Debug)]
struct Watch {
    /// What is watched: the name, and which folder it is in.
    name: PathBuf,
    folder: (u64, u64),
    news: LockWatch,
}

impl Places {
    pub(crate) fn of(project: &Project) -> Self {
        let place = |folder| Place {
            folder,
            watch: None,
        };
        Self {
            places: [place(project.folder()), place(project.root().join(BEADS))],
            deaf: None,
        }
    }

    /// The folders that are there.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let there = self.places.iter().map(|place| &place.folder);
        there.filter(|folder| folder.is_dir()).cloned().collect()
    }

    /// Watches what is there now, and forgets what happened until now.
    pub(crate) fn renew(&mut self) {
        self.deaf = None;
        for place in &mut self.places {
            if let Err(error) = place.renew() {
                let what = place.folder.join(FILE);
                self.deaf = Some(format!("{} can't be watched: {error}", what.display()));
            }
        }
        self.take();
    }

    /// Why one of them can't be watched, if so.
    pub(crate) fn deaf(&self) -> Option<&str> {
        self.deaf.as_deref()
    }

    /// Whether anything happened to a lock since the last call.
    pub(crate) fn take(&mut self) -> bool {
        let mut news = false;
        for place in &mut self.places {
            let Some(watch) = &place.watch else { continue };
            match watch.news.take() {
                Ok(changes) => news |= !changes.is_empty(),
                // What can't tell any more is watched anew with the next cycle.
                Err(_) => place.watch = None,
            }
        }
        news
    }

    /// What to poll.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let watches = self.places.iter().filter_map(|place| place.watch.as_ref());
        watches.map(|watch| watch.news.as_fd())
    }
}

impl Place {
    fn renew(&mut self) -> std::io::Result<()> {
        let id = |folder: &Path| fs::metadata(folder).map(|it| (it.dev(), it.ino())).ok();
        let lock = self.folder.join(FILE);
        let parent = self.folder.parent().unwrap_or(&self.folder).to_owned();
        // The lock in its folder, or else the folder in its parent.
        let (name, folder) = if self.folder.is_dir() {
            (lock, id(&self.folder))
        } else {
            (self.folder.clone(), id(&parent))
        };
        let Some(folder) = folder else {
            self.watch = None;
            return Ok(());
        };
        let same = |watch: &Watch| watch.name == name && watch.folder == folder;
        if self.watch.as_ref().is_some_and(same) {
            return Ok(());
        }
        self.watch = None;
        let news = LockWatch::on(&name, Listen::Everything)?;
        self.watch = Some(Watch { name, folder, news });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_heard_in_both_places_also_in_a_folder_that_comes_later() {
        let dir = tempfile::tempdir().unwrap();
        let (project, _) = Project::init(dir.path()).unwrap();
        let mut places = Places::of(&project);
        places.renew();
        assert!(!places.take());
        fs::write(dir.path().join("unrelated"), "").unwrap();
        fs::write(project.folder().join("unrelated"), "").unwrap();
        assert!(!places.take());

        let ours = project.folder().join(FILE);
        fs::write(&ours, "{}").unwrap();
        assert!(places.take());
        fs::remove_file(&ours).unwrap();
        assert!(places.take());

        let beads = dir.path().join(BEADS);
        fs::create_dir(&beads).unwrap();
        assert!(places.take(), "the folder came");
        places.renew();
        assert_eq!(places.folders(), [project.folder(), beads.clone()]);
        fs::write(beads.join(FILE), "{}").unwrap();
        assert!(places.take(), "the lock came");

        fs::rename(&beads, dir.path().join("away")).unwrap();
        assert!(places.take(), "the folder went");
        places.renew();
        fs::create_dir(&beads).unwrap();
        assert!(places.take(), "another came");
        places.renew();
        fs::write(beads.join(FILE), "{}").unwrap();
        assert!(places.take());
        assert_eq!(places.deaf(), None);
    }
}
