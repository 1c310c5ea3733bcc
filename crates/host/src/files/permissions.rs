//! Files and folders that tenure creates get the permissions of the folder that they are created in.
//!
//! A user who may write in the folder of a lock or database has to be able to use it, whichever user used it
//! first and whatever the umask of that user is. So a new name gets the folder's bits for owner, group and
//! others, and its group:
//!
//! | the folder | new folder | new file or pipe |
//! |---|---|---|
//! | 0700 | 0700 | 0600 |
//! | 0755 | 0755 | 0644 |
//! | 0775, 2775 | 2775 | 0664 |
//! | 1777 | 0777 | 0666 |
//!
//! # Invariants
//!
//! 1. No user gets a permission that the folder does not give. If the group of the folder can't be set, the
//!    file's group gets no more than all others.
//! 2. No link is followed, in no component of a path: another user may have planted it ([`super::beneath`]).
//!    Permissions are changed through a descriptor that is known to be the new name, never through a path.
//! 3. An existing file is changed only if it belongs to this user, has no second name, and lacks bits: its
//!    creator was killed before it could set them.
//! 4. What root creates belongs to the owner of the folder.
//!
//! The sticky bit is not copied. A process that is killed leaves files behind that the next user's process
//! has to replace, and the kernel may refuse to open another user's file in a sticky folder
//! (`fs.protected_regular`).

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Stat, Uid, chownat, fchmod, fchown, fstat, mkdirat, mknodat,
    openat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::files::beneath::{self, Place, parent};

pub use rustix::fs::OFlags;

/// The set-group-id bit: new names in such a folder get its group.
const SET_GROUP: u32 = 0o2000;

/// The permissions of a folder, which new names in it get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FolderPermissions {
    mode: u32,
    owner: u32,
    group: u32,
}

/// What gets permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CreatedKind {
    File,
    Folder,
    /// Whatever it is, with this mode.
    Exactly(u32),
}

impl From<&Metadata> for FolderPermissions {
    fn from(folder: &Metadata) -> Self {
        Self {
            mode: folder.mode(),
            owner: folder.uid(),
            group: folder.gid(),
        }
    }
}

impl From<Stat> for FolderPermissions {
    fn from(folder: Stat) -> Self {
        Self {
            mode: folder.st_mode,
            owner: folder.st_uid,
            group: folder.st_gid,
        }
    }
}

impl FolderPermissions {
    /// Of the folder that contains `path`.
    fn around(path: &Path) -> io::Result<Self> {
        let folder = parent(path).symlink_metadata()?;
        if folder.is_dir() {
            return Ok((&folder).into());
        }
        // A link that took the folder's path just now, if it has a folder behind it.
        beneath::open_folder(parent(path)).and_then(|folder| Ok((&folder.metadata()?).into()))
    }

    /// The mode of a new name. This user can always use it.
    fn mode_of(self, kind: CreatedKind) -> u32 {
        match kind {
            CreatedKind::File => self.mode & 0o666 | 0o600,
            CreatedKind::Folder => {
                // Other programs create files in it, too (SQLite its log), for the same group.
                let for_group = if self.mode & 0o022 == 0o020 {
                    SET_GROUP
                } else {
                    0
                };
                self.mode & (0o777 | SET_GROUP) | 0o700 | for_group
            }
            CreatedKind::Exactly(mode) => mode,
        }
    }

    /// Gives a name that this process has just created its group, owner and mode.
    fn give(self, created: impl AsFd, known: &Metadata, kind: CreatedKind) -> io::Result<()> {
        let mut mode = self.mode_of(kind);
        if known.gid() != self.group
            && fchown(&created, None, Some(Gid::from_raw(self.group))).is_err()
        {
            // Another group must not get what the folder gives to its own.
            mode = mode & !(0o070 | SET_GROUP) | (mode & 0o007) << 3;
        }
        if geteuid().is_root() && self.owner != known.uid() {
            // A file system without owners refuses this.
            let _ = fchown(&created, Some(Uid::from_raw(self.owner)), None);
        }
        if known.mode() & 0o7777 != mode {
            fchmod(&created, Mode::from_bits_retain(mode))?;
        }
        Ok(())
    }

    /// Adds the bits that a file or folder of this user lacks.
    fn complete(self, existing: impl AsFd, known: &Metadata, kind: CreatedKind) {
        let group = if known.gid() == self.group { 0o070 } else { 0 };
        let missing = self.mode_of(kind) & (0o707 | group) & !known.mode();
        if missing != 0 && known.uid() == geteuid().as_raw() {
            // It worked so far without them.
            let mode = known.mode() & 0o7777 | missing;
            let _ = fchmod(existing, Mode::from_bits_retain(mode));
        }
    }
}

/// Creates a folder and those above it, each with the permissions of the one above. Returns whether it is
/// new.
pub fn create_folder(path: &Path) -> io::Result<bool> {
    let place = match Place::of(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(parent(path))?;
            Place::of(path)?
        }
        place => place?,
    };
    let around = FolderPermissions::from(fstat(&place.folder)?);
    let mode = Mode::from_bits_retain(around.mode_of(CreatedKind::Folder));
    let is_new = match mkdirat(&place.folder, place.name, mode) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let folder = match beneath::open_folder(path) {
        Ok(folder) => folder,
        // It need not be readable.
        Err(error) if !is_new && error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let known = folder.metadata()?;
    if is_new {
        around.give(&folder, &known, CreatedKind::Folder)?;
    } else {
        around.complete(&folder, &known, CreatedKind::Folder);
    }
    Ok(is_new)
}

/// Gives a folder that this process has just created at `path` the group and, if this is root, the owner of
/// the folder around it, and then `mode`.
pub fn hand_over(created: &File, path: &Path, mode: u32) -> io::Result<()> {
    let around = FolderPermissions::around(path)?;
    around.give(created, &created.metadata()?, CreatedKind::Exactly(mode))
}

/// Gives a file that another library of this process created the group of `like`. Opens nothing: closing a
/// file would drop the locks that SQLite has on it.
pub fn follow_group(path: &Path, like: &Path) {
    let (Ok(known), Ok(like)) = (path.symlink_metadata(), like.metadata()) else {
        return;
    };
    if known.gid() != like.gid() && known.uid() == geteuid().as_raw() {
        let group = Some(Gid::from_raw(like.gid()));
        // Best effort: its owner can use it in any case.
        let _ = chownat(CWD, path, None, group, AtFlags::SYMLINK_NOFOLLOW);
    }
}

/// The mode that a new folder gets at `path`.
pub fn folder_mode(path: &Path) -> io::Result<u32> {
    Ok(FolderPermissions::around(path)?.mode_of(CreatedKind::Folder))
}

/// Opens a file that tenure alone writes, and creates it if it does not exist. `how` says whether to read,
/// write or append. Fails if the name is a link, or anything else that another user may have put there.
pub fn open_or_create(path: &Path, how: OFlags) -> io::Result<File> {
    loop {
        match beneath::open_known(path, how) {
            Ok((file, known)) => {
                if known.nlink() <= 1 {
                    FolderPermissions::around(path)?.complete(&file, &known, CreatedKind::File);
                }
                return Ok(file);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match create_new(path, how) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
}

/// Creates a file that does not exist. `how` says whether to read, write or append.
pub fn create_new(path: &Path, how: OFlags) -> io::Result<File> {
    create(path, path, how | OFlags::CREATE | OFlags::EXCL)
}

/// Creates a file that has no name yet, in the folder of `path`. Some file systems can't do that.
pub fn create_unnamed(path: &Path) -> io::Result<File> {
    create(path, parent(path), OFlags::TMPFILE | OFlags::WRONLY)
}

/// Creates a file for `path` by opening `opened`.
fn create(path: &Path, opened: &Path, how: OFlags) -> io::Result<File> {
    let around = FolderPermissions::around(path)?;
    let mode = Mode::from_bits_retain(around.mode_of(CreatedKind::File));
    let file = beneath::open(opened, how, mode)?;
    around.give(&file, &file.metadata()?, CreatedKind::File)?;
    Ok(file)
}

/// Creates a named pipe that does not exist, and opens it to read and write.
pub fn create_pipe(path: &Path) -> io::Result<File> {
    create_pipe_at(&Place::of(path)?)
}

/// The same in a folder that is open already.
pub(crate) fn create_pipe_at(place: &Place<'_>) -> io::Result<File> {
    let around = FolderPermissions::from(fstat(&place.folder)?);
    let mode = Mode::from_bits_retain(around.mode_of(CreatedKind::File));
    mknodat(&place.folder, place.name, FileType::Fifo, mode, 0)?;
    let how = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let pipe = File::from(openat(&place.folder, place.name, how, Mode::empty())?);
    let known = pipe.metadata()?;
    if !known.file_type().is_fifo() || known.uid() != geteuid().as_raw() {
        return Err(io::Error::other("another user replaced it"));
    }
    around.give(&pipe, &known, CreatedKind::File)?;
    Ok(pipe)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn new_names_have_the_permissions_of_their_folder() {
        let dir = tempfile::tempdir().unwrap();
        for (folder, folders, files) in [
            (0o700, 0o700, 0o600),
            (0o755, 0o755, 0o644),
            (0o711, 0o711, 0o600),
            (0o2775, 0o2775, 0o664),
            (0o775, 0o2775, 0o664),
            (0o1777, 0o777, 0o666),
            (0o777, 0o777, 0o666),
        ] {
            let whole = dir.path().join(format!("{folder:o}"));
            fs::create_dir(&whole).unwrap();
            fs::set_permissions(&whole, Permissions::from_mode(folder)).unwrap();
            create_folder(&whole.join("a/b")).unwrap();
            assert_eq!(mode(&whole.join("a")), folders, "{folder:o}");
            assert_eq!(mode(&whole.join("a/b")), folders, "{folder:o}");
            open_or_create(&whole.join("file"), OFlags::WRONLY).unwrap();
            create_pipe(&whole.join("pipe")).unwrap();
            for name in ["file", "pipe"] {
                assert_eq!(mode(&whole.join(name)), files, "{name} in {folder:o}");
            }
        }
    }

    #[test]
    fn a_file_whose_creator_was_killed_gets_what_it_lacks_and_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let (file, folder) = (dir.path().join("file"), dir.path().join("folder"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o602)).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        open_or_create(&file, OFlags::RDWR).unwrap();
        create_folder(&folder).unwrap();
        assert_eq!((mode(&file), mode(&folder)), (0o646, 0o755));
    }

    #[test]
    fn a_planted_link_pipe_or_second_name_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::write(&target, "mine").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let at = |name: &str| dir.path().join(name);
        symlink(&target, at("link")).unwrap();
        symlink(at("nothing"), at("dangling")).unwrap();
        fs::hard_link(&target, at("second")).unwrap();
        create_pipe(&at("pipe")).unwrap();
        for name in ["link", "dangling", "second", "pipe"] {
            assert!(open_or_create(&at(name), OFlags::RDWR).is_err(), "{name}");
            assert!(open_or_create(&at(name), OFlags::WRONLY).is_err(), "{name}");
            assert!(create_new(&at(name), OFlags::WRONLY).is_err(), "{name}");
        }
        assert!(!at("nothing").exists());
        assert_eq!(mode(&target), 0o600);
        let folder = at("folder");
        symlink(&target, &folder).unwrap();
        assert!(create_folder(&folder).is_err());
        fs::remove_file(&folder).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::set_permissions(elsewhere.path(), Permissions::from_mode(0o700)).unwrap();
        symlink(elsewhere.path(), &folder).unwrap();
        assert!(create_folder(&folder).is_err());
        assert!(create_folder(&folder.join("below")).is_err());
        assert!(create_pipe(&folder.join("pipe")).is_err());
        assert!(create_new(&folder.join("file"), OFlags::WRONLY).is_err());
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
        assert_eq!(mode(elsewhere.path()), 0o700, "changed through a link");
    }
}
