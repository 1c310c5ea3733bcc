//! Files that are there whole or not at all.
//!
//! Whatever is written is written under a private name first. A reader of the public name sees all
//! of it or nothing, also if the writer is killed in between.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};

/// Whether what is written has to survive a power cut, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// It is on disk before this returns.
    ToDisk,
    /// It survives the end of its writer, not that of the machine.
    Later,
}

/// What came of putting something where nothing may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Put {
    /// It is there.
    Done,
    /// Something else is.
    Occupied,
}

/// Writes a new file under a private name, with mode 0644. What had that name is unlinked, never
/// written into: it may be known under another name as well.
pub fn write(path: &Path, bytes: &[u8], sync: Sync) -> io::Result<()> {
    unlink(path)?;
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(bytes)?;
    if sync == Sync::ToDisk {
        file.sync_all()?;
    }
    Ok(())
}

/// Writes a file whole in the place of what is there, by way of the private name `temp`.
pub fn replace(path: &Path, temp: &Path, bytes: &[u8], sync: Sync) -> io::Result<()> {
    write(temp, bytes, sync)?;
    fs::rename(temp, path)?;
    if sync == Sync::ToDisk
        && let Some(folder) = path.parent()
    {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Gives a file a second name, if that name is free. The first one stays.
pub fn put(from: &Path, to: &Path) -> io::Result<Put> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(Put::Done),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Put::Occupied),
        Err(error) => Err(error),
    }
}

/// Moves something to another name, if that is free. The first one goes.
pub fn move_in(from: &Path, to: &Path) -> io::Result<Put> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(Put::Done),
        Err(rustix::io::Errno::EXIST) => Ok(Put::Occupied),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this file system can't move a folder without replacing: use one on a local one such as ext4, xfs, btrfs or tmpfs",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Swaps two names in one step; `false` if one of them is missing.
pub fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this file system can't swap two names: use a folder on a local one such as ext4, xfs, btrfs or tmpfs",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Moves something to a private name, which must be free; `false` if it is not there.
pub fn take_aside(from: &Path, to: &Path) -> io::Result<bool> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes a name, which need not be there.
pub fn unlink(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_name_that_is_also_a_public_one_is_not_written_into() {
        let dir = tempfile::tempdir().unwrap();
        let (private, public) = (dir.path().join("private"), dir.path().join("public"));
        write(&private, b"first", Sync::Later).unwrap();
        assert_eq!(put(&private, &public).unwrap(), Put::Done);
        write(&private, b"second", Sync::Later).unwrap();
        assert_eq!(fs::read(&public).unwrap(), b"first");
        assert_eq!(put(&private, &public).unwrap(), Put::Occupied);
        assert!(exchange(&private, &public).unwrap());
        assert_eq!(fs::read(&private).unwrap(), b"first");
        assert!(!exchange(&private, &dir.path().join("nothing")).unwrap());
        assert!(take_aside(&public, &private).is_err(), "it is not replaced");
    }
}
