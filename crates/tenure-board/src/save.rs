//! Replacing a file atomically, under a caller that can stop it at any point: [`save`].
//!
//! 1. The content is written to a temporary file in the same folder, with the mode of the old file.
//! 2. The temporary file is synced before it is renamed.
//! 3. The caller is asked before each chunk and before the rename. If it stops the save, or a step fails, the
//!    temporary file is removed and the old file is untouched.
//! 4. Two writers never share a temporary file, even if the lock between them was lost: neither can rename
//!    what the other has written half.
//!
//! A killed writer leaves its temporary file behind. Its name begins with a dot, so no reader takes it for a
//! task, and the next [`sweep`] removes it.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

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
    mut go_on: impl FnMut(SaveStep) -> Result<(), E>,
) -> Result<(), SaveError<E>> {
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
        .and_then(|()| fs::rename(&temp, path).map_err(failed));
    if done.is_err() {
        let _ = fs::remove_file(&temp);
        return done;
    }
    // The rename has happened, so an error here must not report a failure. At worst a power cut undoes it.
    if let Some(folder) = path.parent() {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(())
}

/// Creates the temporary file; also returns the metadata of the file that it will replace.
fn begin(path: &Path) -> io::Result<(PathBuf, File, Option<Metadata>)> {
    let old = match path.metadata() {
        Ok(old) => Some(old),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    for number in 0..ATTEMPTS {
        let temp = temp_name(path, number);
        let made = File::options()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&temp);
        match made {
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
            fs::remove_file(entry.path())?;
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
            let saved = save(&path, &new, |_| {
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
            save(&path, b"new", go).unwrap();
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

    #[test]
    fn a_save_into_a_missing_folder_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nowhere/task.md");
        let error = save(&path, b"new", |_| Ok::<(), ()>(())).unwrap_err();
        assert!(
            error.to_string().contains("the file is unchanged"),
            "{error}"
        );
    }
}
