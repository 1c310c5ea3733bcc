//! Replacing a file atomically, under a caller that can stop it at any point: [`save`].
//!
//! 1. The content is written to a temporary file in the same folder, with the mode of the old file.
//! 2. The temporary file is synced before it is renamed.
//! 3. The caller is asked before each chunk and before the rename. If it stops the save, or a step fails, the
//!    temporary file is removed and the old file is untouched.
//! 4. A file that another program saved since the caller read it is left alone: editors and scripts save task
//!    files without the board's lock. The new file and the old one swap names in one system call, and the one
//!    that comes out is compared with what the caller read.
//! 5. Two writers never share a temporary file, even if the lock between them was lost: neither can rename
//!    what the other has written half.
//!
//! A killed writer leaves its temporary file behind. Its name begins with a dot, so no reader takes it for a
//! task, and the next [`sweep`] removes it.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use tenure_host::files::beneath::{self, Place};
use tenure_host::files::look::if_there;

/// How much is written before the caller is asked again.
const CHUNK: usize = 64 * 1024;

/// How many temporary names are tried: another container may have a process with our pid.
const ATTEMPTS: u32 = 1000;

/// The end of every temporary name.
pub const SUFFIX: &str = ".tenure-tmp";

/// The next step of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveStep {
    /// Writing to the temporary file.
    Write,
    /// Renaming it over the old file.
    Rename,
}

/// What the caller knows of the file that is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaces<'a> {
    /// Nothing: the new content does not depend on the old.
    Anything,
    /// The new content was made from these bytes. If the file has others by now, it stays.
    Exactly(&'a [u8]),
}

/// The result of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Saved {
    /// The file has the new content.
    Done,
    /// Another program has saved or removed the file since it was read. What is there now stays.
    Changed,
}

/// Why a file was not replaced. The old file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum SaveError<E> {
    /// The caller stopped it.
    #[error("stopped")]
    Stopped(E),
    /// A system call failed.
    #[error("{path} can't be written ({error}); the file is unchanged")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// Replaces a file, or creates it. `go_on` is called before every step, and its error stops the save.
pub fn save<E>(
    path: &Path,
    bytes: &[u8],
    replaces: Replaces<'_>,
    mut go_on: impl FnMut(SaveStep) -> Result<(), E>,
) -> Result<Saved, SaveError<E>> {
    let failed = |error| SaveError::Io {
        path: path.to_owned(),
        error,
    };
    go_on(SaveStep::Write).map_err(SaveError::Stopped)?;
    let (temp, file, old) = begin(path).map_err(failed)?;
    let done = write(file, old.as_ref(), bytes, &mut go_on)
        .map_err(failed)
        .and_then(|stopped| match stopped {
            Some(stop) => Err(SaveError::Stopped(stop)),
            None => Ok(()),
        })
        .and_then(|()| go_on(SaveStep::Rename).map_err(SaveError::Stopped))
        .and_then(|()| put(&temp, path, replaces).map_err(failed));
    if !matches!((&done, replaces), (Ok(Saved::Done), Replaces::Anything)) {
        // What could not be used, or the old file.
        let _ = Place::of(&temp).and_then(|temp| temp.unlink());
    }
    if !matches!(done, Ok(Saved::Done)) {
        return done;
    }
    // The rename has happened, so an error here must not report a failure. At worst a power cut undoes it.
    if let Some(folder) = path.parent() {
        let _ = beneath::open_folder(folder).and_then(|folder| folder.sync_all());
    }
    Ok(Saved::Done)
}

/// Gives the temporary file its name.
fn put(temp: &Path, path: &Path, replaces: Replaces<'_>) -> io::Result<Saved> {
    let Replaces::Exactly(expected) = replaces else {
        rename(temp, path, RenameFlags::empty())?;
        return Ok(Saved::Done);
    };
    // Look first: a file that is not swapped need not be swapped back.
    if !has(path, expected)? {
        return Ok(Saved::Changed);
    }
    swap(temp, path, expected)
}

/// Swaps the two names, and swaps them back if another file than the expected one comes out.
fn swap(temp: &Path, path: &Path, expected: &[u8]) -> io::Result<Saved> {
    let exchange = || rename(temp, path, RenameFlags::EXCHANGE);
    let mut put = id(temp)?;
    match exchange() {
        Ok(()) => {}
        Err(Errno::NOENT) => return Ok(Saved::Changed),
        // This file system can't swap names: a save since the look is lost.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rename(temp, path, RenameFlags::empty())?;
            return Ok(Saved::Done);
        }
        Err(error) => return Err(error.into()),
    }
    if has(temp, expected).unwrap_or(false) {
        return Ok(Saved::Done);
    }
    // If yet another file comes out, another program saved it in between: the newest one stays.
    loop {
        let back = id(temp)?;
        match exchange() {
            Ok(()) if id(temp)? != put => put = back,
            Ok(()) | Err(Errno::NOENT) => return Ok(Saved::Changed),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Renames a file in its folder, wherever the path of the folder leads by now.
fn rename(temp: &Path, path: &Path, how: RenameFlags) -> Result<(), Errno> {
    let error = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::LOOP);
    let place = Place::of(path).map_err(error)?;
    let temp = temp.file_name().unwrap_or_default();
    renameat_with(&place.folder, temp, &place.folder, place.name, how)
}

fn has(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    Ok(if_there(crate::read_file(path))?.is_some_and(|there| there == bytes))
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    let there = path.symlink_metadata()?;
    Ok((there.dev(), there.ino()))
}

/// Creates the temporary file; also returns the metadata of the file that it will replace.
fn begin(path: &Path) -> io::Result<(PathBuf, File, Option<Metadata>)> {
    beneath::must_be_file_or_missing(path)?;
    let old = if_there(path.symlink_metadata())?;
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    for number in 0..ATTEMPTS {
        let temp = temp_name(path, number);
        let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        match beneath::open(&temp, how, Mode::from_raw_mode(mode)) {
            Ok(file) => return Ok((temp, file, old)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Writes the temporary file; `Some` if the caller stopped it.
fn write<E>(
    mut file: File,
    old: Option<&Metadata>,
    bytes: &[u8],
    go_on: &mut impl FnMut(SaveStep) -> Result<(), E>,
) -> io::Result<Option<E>> {
    if let Some(old) = old {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            // Only root can. For other users the file becomes theirs, as with every editor.
            let owner = rustix::fs::Uid::from_raw(old.uid());
            let group = rustix::fs::Gid::from_raw(old.gid());
            let _ = rustix::fs::fchown(&file, Some(owner), Some(group));
        }
        // After the owner: chown clears the set-user-id and set-group-id bits.
        file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
    }
    for chunk in bytes.chunks(CHUNK) {
        if let Err(stop) = go_on(SaveStep::Write) {
            return Ok(Some(stop));
        }
        file.write_all(chunk)?;
    }
    file.sync_all()?;
    Ok(None)
}

/// A temporary name for a file.
fn temp_name(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{number}{SUFFIX}", std::process::id()));
    path.with_file_name(name)
}

/// Removes the temporary files of killed writers from a folder. The caller must hold the lock.
pub fn sweep(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        if name.starts_with(b".") && name.ends_with(SUFFIX.as_bytes()) {
            Place::of(&entry.path())?.unlink()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_save_that_is_stopped_at_any_step_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("task.md");
        fs::write(&path, "old").unwrap();
        let new = vec![b'x'; 3 * CHUNK];
        for stop_at in 1.. {
            let mut asked = 0;
            let saved = save(&path, &new, Replaces::Exactly(b"old"), |_| {
                asked += 1;
                if asked == stop_at { Err(asked) } else { Ok(()) }
            });
            assert_eq!(names(dir.path()), ["task.md"], "stopped at {stop_at}");
            if saved.is_ok() {
                assert_eq!(stop_at, 6, "one before, three chunks, one rename");
                assert_eq!(fs::read(&path).unwrap(), new);
                break;
            }
            assert!(matches!(saved, Err(SaveError::Stopped(at)) if at == stop_at));
            assert_eq!(fs::read(&path).unwrap(), b"old");
        }
    }

    #[test]
    fn mode_and_owner_are_preserved_and_leftovers_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("task.md");
        let go = |_: SaveStep| Ok::<(), ()>(());
        fs::write(&path, "old").unwrap();
        for mode in [0o640, 0o444, 0o755] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            fs::write(temp_name(&path, 0), "half of").unwrap();
            let owner = path.metadata().unwrap().uid();
            let saved = save(&path, b"new", Replaces::Anything, go).unwrap();
            assert_eq!(saved, Saved::Done);
            let now = path.metadata().unwrap();
            assert_eq!((now.mode() & 0o7777, now.uid()), (mode, owner));
            assert_eq!(
                fs::read(temp_name(&path, 0)).unwrap(),
                b"half of",
                "the other writer's file is left alone"
            );
        }
        fs::write(dir.path().join(".other.md.tenure-tmp"), "left").unwrap();
        fs::write(dir.path().join("mine.tenure-tmp"), "no dot: not ours").unwrap();
        sweep(dir.path()).unwrap();
        assert_eq!(names(dir.path()), ["mine.tenure-tmp", "task.md"]);
    }

    /// As an editor saves: a new file, renamed.
    fn saved_by_an_editor(path: &Path, text: &str) {
        let new = path.with_extension("editor");
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }

    #[test]
    fn a_file_that_an_editor_saved_or_removed_since_it_was_read_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("task.md");
        for stop_at in [SaveStep::Write, SaveStep::Rename] {
            fs::write(&path, "old").unwrap();
            let saved = save(&path, b"new", Replaces::Exactly(b"old"), |step| {
                if step == stop_at {
                    saved_by_an_editor(&path, "the editor's");
                }
                Ok::<(), ()>(())
            });
            assert_eq!(saved.unwrap(), Saved::Changed);
            assert_eq!(fs::read(&path).unwrap(), b"the editor's");
            assert_eq!(names(dir.path()), ["task.md"]);
        }
        let saved = save(&path, b"new", Replaces::Exactly(b"the editor's"), |step| {
            if step == SaveStep::Rename {
                fs::remove_file(&path).unwrap();
            }
            Ok::<(), ()>(())
        });
        assert_eq!(saved.unwrap(), Saved::Changed);
        assert_eq!(names(dir.path()), [""; 0]);
    }

    #[test]
    fn a_file_that_an_editor_saved_in_the_last_microsecond_is_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let (path, temp) = (dir.path().join("task.md"), dir.path().join("temp"));
        fs::write(&path, "the editor's").unwrap();
        fs::write(&temp, "new").unwrap();
        assert_eq!(swap(&temp, &path, b"old").unwrap(), Saved::Changed);
        assert_eq!(fs::read(&path).unwrap(), b"the editor's");
        assert_eq!(fs::read(&temp).unwrap(), b"new");
        assert_eq!(swap(&temp, &path, b"the editor's").unwrap(), Saved::Done);
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_save_into_a_missing_folder_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nowhere/task.md");
        let error = save(&path, b"new", Replaces::Anything, |_| Ok::<(), ()>(())).unwrap_err();
        assert!(
            error.to_string().contains("the file is unchanged"),
            "{error}"
        );
    }
}
