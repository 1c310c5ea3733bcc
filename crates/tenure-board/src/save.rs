//! Writing a file whole or not at all, with somebody who may say stop: [`save`].
//!
//! 1. The new file is written under a private name in the folder of the old one, with its mode.
//! 2. It is on disk before it gets its name, by rename.
//! 3. Before each piece that is written and before the rename the caller is asked. Whoever is told to
//!    stop, or fails, removes the private file: the old one was never touched.
//!
//! No two writers ever have the same private name, whatever became of the lock between them: nobody can
//! give its name to what another one has half written. What a killed one left behind begins with a dot,
//! is taken for a task by nobody, and goes with the next [`sweep`].

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How much is written between two questions.
const PIECE: usize = 64 * 1024;

/// How many private names are tried: a pid is used again, and in another container at the same time.
const ATTEMPTS: u32 = 1000;

/// What private names end with.
pub const SUFFIX: &str = ".tenure-tmp";

/// What is about to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Something is written that nobody sees yet.
    Write,
    /// The new file gets its name.
    Rename,
}

/// Why a file was not written. The old one is as it was.
#[derive(Debug, thiserror::Error)]
pub enum SaveError<E> {
    /// The caller said stop.
    #[error("stopped")]
    Stopped(E),
    /// The system refused.
    #[error("{path} can't be written ({error}): it is as it was")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Replaces a file, or makes it. `go_on` is asked before every step.
pub fn save<E>(
    path: &Path,
    bytes: &[u8],
    mut go_on: impl FnMut(Step) -> Result<(), E>,
) -> Result<(), SaveError<E>> {
    let failed = |error| SaveError::Io {
        path: path.to_owned(),
        error,
    };
    go_on(Step::Write).map_err(SaveError::Stopped)?;
    let (temp, file, old) = begin(path).map_err(failed)?;
    let done = write(file, old.as_ref(), bytes, &mut go_on)
        .map_err(failed)
        .and_then(|stopped| match stopped {
            Some(stop) => Err(SaveError::Stopped(stop)),
            None => Ok(()),
        })
        .and_then(|()| go_on(Step::Rename).map_err(SaveError::Stopped))
        .and_then(|()| fs::rename(&temp, path).map_err(failed));
    if done.is_err() {
        let _ = fs::remove_file(&temp);
        return done;
    }
    // It has its name: that a power cut may still undo that is no reason to call it failed.
    if let Some(folder) = path.parent() {
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(())
}

/// Makes a private file that nobody else has; and what is known of the file that it will replace.
fn begin(path: &Path) -> io::Result<(PathBuf, File, Option<Metadata>)> {
    let old = match path.metadata() {
        Ok(old) => Some(old),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    for number in 0..ATTEMPTS {
        let temp = private(path, number);
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

/// Writes the private file; what the caller said if it was stop.
fn write<E>(
    mut file: File,
    old: Option<&Metadata>,
    bytes: &[u8],
    go_on: &mut impl FnMut(Step) -> Result<(), E>,
) -> io::Result<Option<E>> {
    if let Some(old) = old {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            // Only root can; for the others it becomes theirs, as with every editor.
            let owner = rustix::fs::Uid::from_raw(old.uid());
            let group = rustix::fs::Gid::from_raw(old.gid());
            let _ = rustix::fs::fchown(&file, Some(owner), Some(group));
        }
        // After the owner, for changing that takes some bits away.
        file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
    }
    for piece in bytes.chunks(PIECE) {
        if let Err(stop) = go_on(Step::Write) {
            return Ok(Some(stop));
        }
        file.write_all(piece)?;
    }
    file.sync_all()?;
    Ok(None)
}

/// A private name for a file.
fn private(path: &Path, number: u32) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{number}{SUFFIX}", std::process::id()));
    path.with_file_name(name)
}

/// Removes what killed writers left behind in a folder. Only whoever holds the lock may.
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
    fn whoever_says_stop_at_any_step_finds_everything_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("task.md");
        fs::write(&path, "old").unwrap();
        let new = vec![b'x'; 3 * PIECE];
        for stop_at in 1.. {
            let mut asked = 0;
            let saved = save(&path, &new, |_| {
                asked += 1;
                if asked == stop_at { Err(asked) } else { Ok(()) }
            });
            assert_eq!(names(dir.path()), ["task.md"], "stopped at {stop_at}");
            if saved.is_ok() {
                assert_eq!(stop_at, 6, "one before, three pieces, one rename");
                assert_eq!(fs::read(&path).unwrap(), new);
                break;
            }
            assert!(matches!(saved, Err(SaveError::Stopped(at)) if at == stop_at));
            assert_eq!(fs::read(&path).unwrap(), b"old");
        }
    }

    #[test]
    fn mode_and_owner_stay_and_what_a_killed_one_left_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("task.md");
        let go = |_: Step| Ok::<(), ()>(());
        fs::write(&path, "old").unwrap();
        for mode in [0o640, 0o444, 0o755] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            fs::write(private(&path, 0), "half of").unwrap();
            let owner = path.metadata().unwrap().uid();
            save(&path, b"new", go).unwrap();
            let now = path.metadata().unwrap();
            assert_eq!((now.mode() & 0o7777, now.uid()), (mode, owner));
            assert_eq!(
                fs::read(private(&path, 0)).unwrap(),
                b"half of",
                "another one's"
            );
        }
        fs::write(dir.path().join(".other.md.tenure-tmp"), "left").unwrap();
        fs::write(dir.path().join("mine.tenure-tmp"), "no dot: not ours").unwrap();
        sweep(dir.path()).unwrap();
        assert_eq!(names(dir.path()), ["mine.tenure-tmp", "task.md"]);
    }

    #[test]
    fn a_folder_that_may_not_be_written_fails_and_leaves_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nowhere/task.md");
        let error = save(&path, b"new", |_| Ok::<(), ()>(())).unwrap_err();
        assert!(error.to_string().contains("it is as it was"), "{error}");
    }
}
