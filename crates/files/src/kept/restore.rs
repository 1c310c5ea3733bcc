//! Writes a version back: [`Kept::restore`], [`Kept::export`].
//!
//! The version is written under a private name and then swaps its name with the file. What has the private name afterwards is
//! what was there at that moment: it is kept, too, before it is deleted, even if it was written after it was looked at.

use std::ffi::OsStr;
use std::fs::{Permissions, remove_file};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{OFlags, symlinkat};
use tenure_core::HolderId;
use tenure_host::files::atomic::{PutResult, exchange, put, unlink};
use tenure_host::files::beneath::Place;
use tenure_host::files::permissions::{create_folder, create_new};
use tenure_host::random::random_uuid;

use super::journal::Journal;
use super::objects::Objects;
use super::{Keeping, Kept, KeptError, Version, is_inside, look};
use crate::changes::Stamp;

/// How often another program may replace the file while this does.
const ATTEMPTS: u32 = 10;

/// Which version is written back.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// The newest one that is not what is there now, of this file of the work tree.
    Newest(&'a Path),
    /// The one whose id begins so, of this file.
    Of(&'a Path, &'a str),
    /// The one whose id begins so.
    Id(&'a str),
}

/// What was written back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The version.
    pub version: Version,
    /// Where it is now.
    pub place: PathBuf,
    /// What was there, which is kept; `None` if there was nothing.
    pub before: Option<Version>,
    /// Whether it had to be written: the file did not have these bytes.
    pub written: bool,
}

impl Kept {
    /// Writes a version back to its path in this work tree, for `me`. What is there is kept first.
    pub fn restore(
        &self,
        root: &Path,
        source: Source<'_>,
        me: &HolderId,
        now: Timestamp,
    ) -> Result<Restored, KeptError> {
        let root = &root.canonicalize()?;
        let path = self.path_of(root, source, now)?;
        let place = root.join(&path);
        let before = self.keep_current(root, &path, me, now)?;
        let version = self.choose(root, source, before.as_ref(), now)?;
        let mut restored = Restored {
            written: !before.as_ref().is_some_and(|it| it.is_like(&version)),
            version,
            place,
            before,
        };
        if restored.written {
            let bytes = self.bytes(root, &restored.version)?;
            if let Some(folder) = restored.place.parent() {
                create_folder(folder)?;
            }
            self.swap_in(root, &mut restored, &bytes, me, now)?;
        }
        Ok(restored)
    }

    /// Writes a version to a new file, which nothing may have the name of.
    pub fn export(
        &self,
        root: &Path,
        source: Source<'_>,
        file: &Path,
        now: Timestamp,
    ) -> Result<Restored, KeptError> {
        let root = &root.canonicalize()?;
        let version = self.choose(root, source, None, now)?;
        let bytes = self.bytes(root, &version)?;
        let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize()?;
        let name = file
            .file_name()
            .ok_or_else(|| KeptError::Outside(file.to_owned()))?;
        let (place, temp) = (folder.join(name), private(&folder));
        write(&temp, &version, &bytes)?;
        let given = put(&temp, &place);
        unlink(&temp)?;
        match given? {
            PutResult::Done => Ok(Restored {
                version,
                place,
                before: None,
                written: true,
            }),
            PutResult::Occupied => Err(KeptError::InTheWay {
                path: place,
                why: "it exists, and only files of the work tree are replaced".to_owned(),
            }),
        }
    }

    /// The path that a version is written back to, if there is one.
    fn path_of(
        &self,
        root: &Path,
        source: Source<'_>,
        now: Timestamp,
    ) -> Result<PathBuf, KeptError> {
        if let Source::Newest(path) | Source::Of(path, _) = source
            && !is_inside(path)
        {
            return Err(KeptError::Outside(path.to_owned()));
        }
        let path = self.choose(root, source, None, now)?.path;
        // Another user may have written the journal.
        if is_inside(&path) {
            Ok(path)
        } else {
            Err(KeptError::Outside(path))
        }
    }

    /// The version that is meant. Those of this work tree come before those of another.
    fn choose(
        &self,
        root: &Path,
        source: Source<'_>,
        current: Option<&Version>,
        now: Timestamp,
    ) -> Result<Version, KeptError> {
        let mut versions = self.versions(now)?;
        versions.retain(|version| version.blob.is_some());
        // Stable: the newest ones stay in front.
        versions.sort_by_key(|version| version.worktree != root);
        let (path, id) = match source {
            Source::Newest(path) => (Some(path), None),
            Source::Of(path, id) => (Some(path), Some(id)),
            Source::Id(id) => (None, Some(id)),
        };
        versions.retain(|version| {
            let known = version.blob.as_deref().unwrap_or_default();
            path.is_none_or(|path| version.path == path)
                && id.is_none_or(|id| known.starts_with(&id.to_ascii_lowercase()))
        });
        let Some(first) = versions.first().cloned() else {
            let what = match (path, id) {
                (Some(path), None) => path.display().to_string(),
                (Some(path), Some(id)) => format!("{} with the id {id}", path.display()),
                (None, id) => format!("a file with the id {}", id.unwrap_or_default()),
            };
            return Err(KeptError::NotKept(what));
        };
        match id {
            None => {
                let differs = |it: &&Version| !current.is_some_and(|current| current.is_like(it));
                Ok(versions.iter().find(differs).cloned().unwrap_or(first))
            }
            Some(id) => {
                // The same bytes may have been kept of several files.
                let is_other = |it: &&Version| it.blob != first.blob || it.path != first.path;
                if !versions.iter().any(|it| is_other(&it)) {
                    return Ok(first);
                }
                let id = id.to_owned();
                Err(KeptError::Ambiguous { id, versions })
            }
        }
    }

    /// Keeps what is at a path; `None` if there is nothing.
    fn keep_current(
        &self,
        root: &Path,
        path: &Path,
        me: &HolderId,
        now: Timestamp,
    ) -> Result<Option<Version>, KeptError> {
        let place = root.join(path);
        let Some(stamp) = Stamp::of(&place)? else {
            return Ok(None);
        };
        let journal = Journal::in_folder(&self.folder).read()?;
        let last = journal.newest(root, std::iter::once(path)).remove(path);
        let objects = Objects::in_folder(&self.folder);
        let has_bytes = |it: &Version| it.blob.as_ref().is_some_and(|id| objects.has(id));
        match last.filter(|it| it.stands_for(stamp, now) && has_bytes(it)) {
            Some(known) => Ok(Some(known)),
            None => self.keep_from(root, place, path, me, now).map(Some),
        }
    }

    /// Keeps the file at `place` as a version of another path.
    fn keep_from(
        &self,
        root: &Path,
        place: PathBuf,
        path: &Path,
        me: &HolderId,
        now: Timestamp,
    ) -> Result<Version, KeptError> {
        let in_the_way = |why: &str| in_the_way(&root.join(path), why);
        let file = look(place, path, me).map_err(|why| in_the_way(&why.to_string()))?;
        let mut keeping = Keeping::default();
        self.keep_these(root, file.as_slice(), now, &mut keeping)?;
        match (keeping.kept.pop(), keeping.left_out.pop()) {
            (Some(version), _) => Ok(version),
            (None, Some((_, why))) => Err(in_the_way(&why.to_string())),
            (None, None) => Err(in_the_way("it is being written by another program")),
        }
    }

    /// The bytes of a version.
    pub fn bytes(&self, root: &Path, version: &Version) -> Result<Vec<u8>, KeptError> {
        let id = version.blob.clone().unwrap_or_default();
        let bytes = Objects::in_folder(&self.folder).read(root, &id)?;
        if bytes.len() as u64 == version.size {
            Ok(bytes)
        } else {
            Err(KeptError::Damaged(id))
        }
    }

    /// Gives a version its path.
    fn swap_in(
        &self,
        root: &Path,
        restored: &mut Restored,
        bytes: &[u8],
        me: &HolderId,
        now: Timestamp,
    ) -> Result<(), KeptError> {
        let (place, path) = (restored.place.clone(), restored.version.path.clone());
        let temp = private(place.parent().unwrap_or(root));
        for _ in 0..ATTEMPTS {
            write(&temp, &restored.version, bytes)?;
            let is_swapped = match exchange(&temp, &place) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    // Then what is there is looked at just before.
                    restored.before = self.keep_current(root, &path, me, now)?;
                    unlink(&place)?;
                    false
                }
                swapped => swapped?,
            };
            if !is_swapped {
                let given = put(&temp, &place);
                unlink(&temp)?;
                if given? == PutResult::Done {
                    return Ok(());
                }
                // It is there again.
                continue;
            }
            let now_there = Stamp::of(&temp)?;
            let is_known = restored.before.as_ref().is_some_and(|before| {
                // The swap changed the rest of its stamp.
                let parts = |stamp: Stamp| (stamp.inode, stamp.size, stamp.modified);
                now_there.is_some_and(|stamp| parts(stamp) == parts(before.stamp))
            });
            if !is_known {
                // It was written after it was kept.
                match self.keep_from(root, temp.clone(), &path, me, now) {
                    Ok(version) => restored.before = Some(version),
                    Err(error) => {
                        exchange(&temp, &place)?;
                        unlink(&temp)?;
                        return Err(error);
                    }
                }
            }
            unlink(&temp)?;
            return Ok(());
        }
        Err(in_the_way(&place, "another program writes it all the time"))
    }
}

fn in_the_way(place: &Path, why: &str) -> KeptError {
    KeptError::InTheWay {
        path: place.to_owned(),
        why: why.to_owned(),
    }
}

/// The name that a version has until it is complete.
fn private(folder: &Path) -> PathBuf {
    folder.join(format!(".tenure-restore-{}", random_uuid().simple()))
}

/// Writes a version to a new file.
fn write(path: &Path, version: &Version, bytes: &[u8]) -> io::Result<()> {
    if version.is_link() {
        let place = Place::of(path)?;
        return Ok(symlinkat(
            OsStr::from_bytes(bytes),
            &place.folder,
            place.name,
        )?);
    }
    let mut file = create_new(path, OFlags::WRONLY)?;
    let mode = Permissions::from_mode(version.mode & 0o777);
    let written = file
        .write_all(bytes)
        .and_then(|()| file.set_permissions(mode));
    if written.is_err() {
        let _ = remove_file(path);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use tenure_core::Clock;

    use super::*;

    #[test]
    fn what_is_written_after_it_was_kept_is_kept_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let root = &dir.path().canonicalize().unwrap();
        let mut git = Command::new("git");
        let status = git.args(["init", "-q"]).current_dir(root).status();
        assert!(status.unwrap().success());
        let (kept, me) = (Kept::beside(root), HolderId::parse("me").unwrap());
        let now = tenure_host::HostClock::new().now().wall;
        let write = |text: &str| fs::write(root.join("a"), text).unwrap();
        write("one");
        let before = kept.keep_current(root, Path::new("a"), &me, now).unwrap();
        let version = before.clone().unwrap();
        for (text, before) in [("two", before), ("three", None)] {
            // Another program writes it just now.
            write(text);
            let mut restored = Restored {
                version: version.clone(),
                place: root.join("a"),
                before,
                written: true,
            };
            kept.swap_in(root, &mut restored, b"one", &me, now).unwrap();
            assert_eq!(fs::read(root.join("a")).unwrap(), b"one");
            let replaced = kept.bytes(root, &restored.before.unwrap()).unwrap();
            assert_eq!(replaced, text.as_bytes());
        }
        let texts = kept.versions(now).unwrap().into_iter();
        let texts = texts.map(|version| kept.bytes(root, &version).unwrap());
        let expected: [&[u8]; 3] = [b"three", b"two", b"one"];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
        let names = fs::read_dir(root).unwrap();
        assert_eq!(names.count(), 3, "the private name is gone");
    }
}
