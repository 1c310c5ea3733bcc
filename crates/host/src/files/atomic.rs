//! Files that appear complete or not at all.
//!
//! A writer writes under a private name first and then links or renames the file to its public name.
//! A reader of the public name sees all of the file or none of it, even if the writer is killed in
//! between.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, OFlags, RenameFlags, linkat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;

use crate::files::beneath::{Place, open_folder, parent};
use crate::files::look::if_there;
use crate::files::permissions::{create_new, create_unnamed};

/// What a write must survive besides the death of every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// A power cut: the bytes are on disk before they get their public name, so a torn file is never found
    /// there. Costs one sync.
    PowerCut,
    /// The end of the writer, but not a power cut.
    Crash,
}

/// The result of giving a file a name that must be free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum PutResult {
    /// The file has the name.
    Done,
    /// Another file has it.
    Occupied,
}

/// Writes a new file with mode 0644 under a private name. An existing file of that name is unlinked,
/// never written into: it may be linked to a public name as well.
pub fn write(path: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    unlink(path)?;
    let file = create_new(path, OFlags::WRONLY)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    fill(file, bytes, durability)
}

fn fill(mut file: File, bytes: &[u8], durability: Durability) -> io::Result<()> {
    file.write_all(bytes)?;
    if durability == Durability::PowerCut {
        file.sync_all()?;
    }
    Ok(())
}

/// Replaces `path` with a complete new file, by way of the private name `temp`. It gets the permissions of
/// its folder.
pub fn replace(path: &Path, temp: &Path, bytes: &[u8], durability: Durability) -> io::Result<()> {
    unlink(temp)?;
    fill(create_new(temp, OFlags::WRONLY)?, bytes, durability)?;
    let (from, to) = (Place::of(temp)?, Place::of(path)?);
    renameat(&from.folder, from.name, &to.folder, to.name)?;
    if durability == Durability::PowerCut {
        open_folder(parent(path))?.sync_all()?;
    }
    Ok(())
}

/// Writes a new file that has no name until it is complete, with the permissions of its folder. Where the
/// file system can't do that, it has the private name `temp` meanwhile.
pub fn create(path: &Path, temp: &Path, bytes: &[u8]) -> io::Result<PutResult> {
    let Ok(mut file) = create_unnamed(path) else {
        unlink(temp)?;
        fill(create_new(temp, OFlags::WRONLY)?, bytes, Durability::Crash)?;
        let put = put(temp, path);
        unlink(temp)?;
        return put;
    };
    file.write_all(bytes)?;
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    let to = Place::of(path)?;
    let follow = AtFlags::SYMLINK_FOLLOW;
    named(linkat(CWD, unnamed, &to.folder, to.name, follow))
}

/// Links a file to a second name if that name is free. The first name stays.
pub fn put(from: &Path, to: &Path) -> io::Result<PutResult> {
    let (from, to) = (Place::of(from)?, Place::of(to)?);
    let no_flags = AtFlags::empty();
    named(linkat(
        &from.folder,
        from.name,
        &to.folder,
        to.name,
        no_flags,
    ))
}

/// What became of an attempt to give a file a name that must be free.
fn named(result: Result<(), Errno>) -> io::Result<PutResult> {
    match result {
        Ok(()) => Ok(PutResult::Done),
        Err(Errno::EXIST) => Ok(PutResult::Occupied),
        Err(error) => Err(error.into()),
    }
}

/// Renames a file or folder if the new name is free.
pub fn move_in(from: &Path, to: &Path) -> io::Result<PutResult> {
    match rename_with(from, to, RenameFlags::NOREPLACE)? {
        Err(Errno::INVAL | Errno::NOSYS) => Err(unsupported("move a folder without replacing")),
        moved => named(moved),
    }
}

/// Swaps two names in one atomic step; `false` if one of them does not exist.
pub fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    match rename_with(one, other, RenameFlags::EXCHANGE)? {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(Errno::INVAL | Errno::NOSYS) => Err(unsupported("swap two names")),
        Err(error) => Err(error.into()),
    }
}

fn unsupported(what: &str) -> io::Error {
    let what =
        format!("this file system can't {what}: use a local one such as ext4, xfs, btrfs or tmpfs");
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// Renames a file or folder to a private name, which must be free; `false` if there is nothing to
/// rename.
pub fn take_aside(from: &Path, to: &Path) -> io::Result<bool> {
    match rename_with(from, to, RenameFlags::NOREPLACE)? {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Renames between two folders that are open; the inner result is that of the rename itself.
fn rename_with(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<Result<(), Errno>> {
    let (from, to) = match (Place::of(from), Place::of(to)) {
        (Ok(from), Ok(to)) => (from, to),
        (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Err(Errno::NOENT));
        }
        (from, to) => (from?, to?),
    };
    Ok(renameat_with(
        &from.folder,
        from.name,
        &to.folder,
        to.name,
        flags,
    ))
}

/// Removes a name. A name that does not exist is no error.
pub fn unlink(path: &Path) -> io::Result<()> {
    if_there(Place::of(path))?.map_or(Ok(()), |place| place.unlink())
}

/// Removes an empty folder.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let place = Place::of(path)?;
    Ok(unlinkat(&place.folder, place.name, AtFlags::REMOVEDIR)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn create_makes_a_whole_file_and_replaces_none() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
        let (path, temp) = (dir.path().join("file"), dir.path().join("temp"));
        assert_eq!(create(&path, &temp, b"one").unwrap(), PutResult::Done);
        assert_eq!(create(&path, &temp, b"two").unwrap(), PutResult::Occupied);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660, "the folder's bits");
    }

    #[test]
    fn write_never_changes_a_file_that_is_also_linked_to_a_public_name() {
        let dir = tempfile::tempdir().unwrap();
        let (private, public) = (dir.path().join("private"), dir.path().join("public"));
        write(&private, b"first", Durability::Crash).unwrap();
        assert_eq!(put(&private, &public).unwrap(), PutResult::Done);
        write(&private, b"second", Durability::Crash).unwrap();
        assert_eq!(fs::read(&public).unwrap(), b"first");
        assert_eq!(put(&private, &public).unwrap(), PutResult::Occupied);
        assert!(exchange(&private, &public).unwrap());
        assert_eq!(fs::read(&private).unwrap(), b"first");
        assert!(!exchange(&private, &dir.path().join("nothing")).unwrap());
        assert!(take_aside(&public, &private).is_err(), "it is not replaced");
    }
}
