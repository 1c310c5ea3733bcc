//! Finds what is new in folders that have changed, and that git does not track: [`Fresh`].

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Stat};
use tenure_git::index::{Index, Kind};

use super::stamp::{FileTime, known, path_of};
use super::start::{Tree, Window};

/// If a new folder has more new files than this it is named as a whole: it is most often one of dependencies.
pub(super) const MOST_FILES: usize = 1_000;

/// How many names are looked at in all.
const MOST_LOOKED_AT: usize = 50_000;

/// What git does not track and has changed. Some of it may be ignored.
#[derive(Debug, Default)]
pub(super) struct Fresh {
    /// Files, and links.
    pub(super) files: BTreeSet<Vec<u8>>,
    /// The same, with a new folder in place of what is in it.
    pub(super) tops: BTreeSet<Vec<u8>>,
    /// New folders with many files, and other repositories.
    pub(super) folders: BTreeSet<Vec<u8>>,
    /// Folders with too many names to be looked at.
    pub(super) left_out: Vec<Vec<u8>>,
    looked_at: usize,
}

impl Fresh {
    /// What has changed in these folders, and in new folders in them.
    pub(super) fn look(
        tree: &Tree,
        index: &Index,
        folders: &BTreeSet<Vec<u8>>,
        window: Window,
    ) -> io::Result<Self> {
        let mut fresh = Self::default();
        for folder in folders {
            for (path, known) in fresh.names(tree, folder)? {
                let (kind, is_folder) = (index.kind(&path), is_folder(&known));
                let is_tracked = if is_folder {
                    kind == Some(Kind::Submodule) || index.has_folder(&path)
                } else {
                    kind.is_some()
                };
                if is_tracked || !window.has(FileTime::changed(&known)) {
                    continue;
                }
                if is_folder {
                    fresh.descend(tree, path, &known, window)?;
                } else {
                    fresh.tops.insert(path.clone());
                    fresh.files.insert(path);
                }
            }
        }
        Ok(fresh)
    }

    /// Looks at a folder that git does not track, and at those in it.
    fn descend(
        &mut self,
        tree: &Tree,
        top: Vec<u8>,
        known_top: &Stat,
        window: Window,
    ) -> io::Result<()> {
        let is_moved = |known: &Stat| {
            let is_new = |at| window.has(at);
            is_new(FileTime::changed(known)) && !is_new(FileTime::modified(known))
        };
        let mut files = Vec::new();
        let mut left = vec![(top.clone(), is_moved(known_top))];
        while let Some((folder, is_moved_here)) = left.pop() {
            if known(&tree.root.join(path_of(&folder)).join(".git"))?.is_some() {
                self.folders.insert(folder);
                continue;
            }
            for (path, known) in self.names(tree, &folder)? {
                if is_folder(&known) {
                    left.push((path, is_moved_here || is_moved(&known)));
                } else if is_moved_here || window.has(FileTime::changed(&known)) {
                    // A folder that was renamed keeps the times of its files.
                    files.push(path);
                }
            }
            if files.len() > MOST_FILES {
                self.folders.insert(top);
                return Ok(());
            }
        }
        if !files.is_empty() {
            self.files.extend(files);
            self.tops.insert(top);
        }
        Ok(())
    }

    /// The names in a folder as paths, and what is known of each.
    fn names(&mut self, tree: &Tree, folder: &[u8]) -> io::Result<Vec<(Vec<u8>, Stat)>> {
        let place = tree.root.join(path_of(folder));
        let mut found = Vec::new();
        // It may be gone again, or closed to this user; then git can't see into it either.
        let Ok(entries) = fs::read_dir(&place) else {
            return Ok(found);
        };
        for entry in entries {
            let name = entry?.file_name();
            if name == ".git" {
                continue;
            }
            self.looked_at += 1;
            if self.looked_at > MOST_LOOKED_AT {
                self.left_out.push(folder.to_vec());
                break;
            }
            let slash: &[u8] = if folder.is_empty() { b"" } else { b"/" };
            let path = [folder, slash, name.as_bytes()].concat();
            found.extend(known(&place.join(&name))?.map(|known| (path, known)));
        }
        Ok(found)
    }
}

fn is_folder(known: &Stat) -> bool {
    FileType::from_raw_mode(known.st_mode).is_dir()
}
