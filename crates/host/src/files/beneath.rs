//! Opens files and folders that other users, or a repository, may have put in a project.
//!
//! A project is often a folder that several users may write, and a clone contains what its author wanted
//! it to contain. So each of tenure's own names may be a link to a private file of this user, a named pipe
//! that blocks its reader for ever, a second name of another file, or 40 GB of nothing. Every file of a
//! store is opened here.
//!
//! # Invariants
//!
//! 1. No component of a path is followed if it is a symbolic link. The caller resolves the folder that a
//!    user named (a project's root, the folder of a lock) once ([`resolve`]); below it, every link is refused.
//! 2. No call blocks on a named pipe, and only regular files are returned, or pipes where a pipe is meant.
//! 3. A file with a second name is refused in a folder that other users may write.
//! 4. The size is checked before memory is allocated.
//! 5. Names are created, renamed and removed in a folder that is open ([`Place`]), so a folder that is
//!    replaced by a link between two calls changes nothing elsewhere.
//!
//! The kernel checks invariant 1 (`openat2`, since Linux 5.6). Older kernels, and sandboxes that do not
//! know the call, open one component after another.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, FileType, Metadata};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, openat, openat2, unlinkat};
use rustix::io::Errno;

use crate::files::look::if_there;

/// The bits by which other users than its owner may create names in a folder.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// As many links as Linux follows.
const MOST_LINKS: usize = 40;

/// Something that tenure does not open, follow or read: inside an [`io::Error`], see [`Refused::of`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    path: PathBuf,
    why: Why,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    Link,
    Type(&'static str),
    NotAFolder,
    SecondName,
    TooLarge { bytes: u64, most: u64 },
}

impl Refused {
    /// The refusal that is the cause of this error.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Whether it is about this very path, and not a folder above it.
    pub fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }

    /// What the user can do about it.
    pub fn fix(&self) -> &'static str {
        match self.why {
            Why::Link => "look where it leads and who put it there (ls -l), and remove the link",
            Why::Type(_) | Why::NotAFolder => {
                "look who put it there (ls -l), and remove it or move it away"
            }
            Why::SecondName => {
                "find the other name with find -samefile, and remove the one that is not meant"
            }
            Why::TooLarge { .. } => "look who wrote it (ls -l), and move it away",
        }
    }

    fn error(path: &Path, why: Why) -> io::Error {
        let path = path.to_owned();
        io::Error::other(Self { path, why })
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.path.display();
        match self.why {
            Why::Link => write!(
                f,
                "{place} is a link, which another user may have put there"
            ),
            Why::Type(what) => write!(f, "{place} is {what}, not a file"),
            Why::NotAFolder => write!(f, "{place} is not a folder"),
            Why::SecondName => write!(
                f,
                "{place} has a second name (a hard link), which another user may have given it"
            ),
            Why::TooLarge { bytes, most } => write!(
                f,
                "{place} has {bytes} bytes, and tenure never writes more than {most} there"
            ),
        }
    }
}

impl std::error::Error for Refused {}

/// Opens a path without following a link in any of its components, and without blocking. `how` says whether
/// to read, write, append or create; what is opened may be anything but a link.
pub fn open(path: &Path, how: OFlags, mode: Mode) -> io::Result<File> {
    static NO_OPENAT2: AtomicBool = AtomicBool::new(false);
    let mut how = how | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if !how.contains(OFlags::PATH) {
        how |= OFlags::NONBLOCK | OFlags::NOCTTY;
    }
    let mut opened = Err(Errno::NOSYS);
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        opened = openat2(CWD, path, how, mode, ResolveFlags::NO_SYMLINKS);
        if opened.as_ref().err() == Some(&Errno::NOSYS) {
            NO_OPENAT2.store(true, Ordering::Relaxed);
        }
    }
    // Some sandboxes answer EPERM to a call that they do not know.
    if matches!(opened, Err(Errno::NOSYS | Errno::PERM)) {
        opened = step_by_step(path, how, mode);
    }
    opened
        .map(File::from)
        .map_err(|error| explain(path, how, error))
}

/// Opens one component after another, each without following a link.
fn step_by_step(path: &Path, how: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut components = path.components().peekable();
    let start = match components.next_if_eq(&Component::RootDir) {
        Some(_) => "/",
        None => ".",
    };
    let mut folder = openat(CWD, start, through, Mode::empty())?;
    while let Some(component) = components.next() {
        if components.peek().is_none() {
            return openat(&folder, component.as_os_str(), how, mode);
        }
        folder = openat(&folder, component.as_os_str(), through, Mode::empty())?;
    }
    openat(&folder, ".", how, mode)
}

/// Names the component that is in the way.
fn explain(path: &Path, how: OFlags, error: Errno) -> io::Error {
    match error {
        Errno::LOOP | Errno::NOTDIR => {
            let mut above: Vec<&Path> = path.ancestors().collect();
            above.reverse();
            if let Some(link) = above.into_iter().find(|path| path.is_symlink()) {
                return Refused::error(link, Why::Link);
            }
            let is_other = |path: &Path| path.symlink_metadata().is_ok_and(|it| !it.is_dir());
            if how.contains(OFlags::DIRECTORY) && is_other(path) {
                return Refused::error(path, Why::NotAFolder);
            }
        }
        // A pipe without a reader, or a socket.
        Errno::NXIO => return Refused::error(path, Why::Type("a named pipe or a socket")),
        Errno::ISDIR => return Refused::error(path, Why::Type("a folder")),
        _ => {}
    }
    error.into()
}

/// Opens a regular file that exists. `how` says whether to read, write or append.
pub fn open_file(path: &Path, how: OFlags) -> io::Result<File> {
    open_known(path, how).map(|(file, _)| file)
}

/// Opens a regular file that exists, and tells what the kernel knows of it.
pub fn open_known(path: &Path, how: OFlags) -> io::Result<(File, Metadata)> {
    let file = open(path, how, Mode::empty())?;
    let known = file.metadata()?;
    must_be_file(path, &known)?;
    must_have_one_name(path, &known)?;
    Ok((file, known))
}

/// Opens a named pipe that exists. `how` says whether to read or write.
pub fn open_pipe(path: &Path, how: OFlags) -> io::Result<File> {
    let pipe = open(path, how, Mode::empty())?;
    if pipe.metadata()?.file_type().is_fifo() {
        return Ok(pipe);
    }
    Err(io::Error::other(format!(
        "{} is not a named pipe",
        path.display()
    )))
}

/// Reads a whole file of at most this many bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, known) = open_known(path, OFlags::RDONLY)?;
    read_open(&file, path, &known, most)
}

/// Reads a whole file of at most this many bytes, which may have several names: a lock or an event that is
/// linked under its public name. It is never written.
pub fn read_linked(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path, OFlags::RDONLY, Mode::empty())?;
    let known = file.metadata()?;
    must_be_file(path, &known)?;
    read_open(&file, path, &known, most)
}

/// Reads a whole file of at most this many bytes that another program keeps, and that may be reached by links:
/// a `.git` file, for example. It does not block on a pipe.
pub fn read_following(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let how = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, how, Mode::empty())?);
    let known = file.metadata()?;
    must_be_file(path, &known)?;
    read_open(&file, path, &known, most)
}

/// Reads a whole file that is open, of at most this many bytes.
fn read_open(file: &File, path: &Path, known: &Metadata, most: u64) -> io::Result<Vec<u8>> {
    let too_large = |bytes| Refused::error(path, Why::TooLarge { bytes, most });
    if known.len() > most {
        return Err(too_large(known.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(known.len()).unwrap_or(0));
    // It may grow meanwhile.
    let read = file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match u64::try_from(read) {
        Ok(read) if read <= most => Ok(bytes),
        read => Err(too_large(read.unwrap_or(u64::MAX))),
    }
}

/// Reads a text file of at most this many bytes.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Fails unless this is a regular file.
pub fn must_be_file(path: &Path, known: &Metadata) -> io::Result<()> {
    if known.is_file() {
        return Ok(());
    }
    Err(Refused::error(path, Why::Type(name_of(known.file_type()))))
}

/// Fails if the file has a second name and other users may write its folder.
pub fn must_have_one_name(path: &Path, known: &Metadata) -> io::Result<()> {
    let is_private = |folder: Metadata| folder.is_dir() && is_ours_alone(&folder);
    if known.nlink() > 1 && !parent(path).symlink_metadata().is_ok_and(is_private) {
        return Err(Refused::error(path, Why::SecondName));
    }
    Ok(())
}

fn name_of(kind: FileType) -> &'static str {
    if kind.is_symlink() {
        "a link"
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// The real path of something that a user named, or that was found by its name: a project, the folder of a
/// lock, a database. A link on the way is followed only if this user or root made it, in a folder that
/// nobody else may write: no other user can have put it there.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = std::path::absolute(path)?;
    let mut followed = false;
    for _ in 0..MOST_LINKS {
        let link = match open(&path, OFlags::PATH, Mode::empty()) {
            Ok(there) if !there.metadata()?.is_symlink() => {
                let has_dots = path.components().any(|it| it == Component::ParentDir);
                return if followed || has_dots {
                    path.canonicalize()
                } else {
                    Ok(path)
                };
            }
            Ok(_) => path.clone(),
            Err(error) => match Refused::of(&error) {
                Some(refused) if refused.why == Why::Link => refused.path.clone(),
                _ => return Err(error),
            },
        };
        if !is_chosen(&link)? {
            return Err(Refused::error(&link, Why::Link));
        }
        let rest = path.strip_prefix(&link).unwrap_or(Path::new(""));
        let mut target = parent(&link).join(link.read_link()?);
        if rest.components().next().is_some() {
            target.push(rest);
        }
        path = target;
        followed = true;
    }
    Err(Errno::LOOP.into())
}

/// The real path of a file that need not exist yet, in a folder that does; see [`resolve`].
pub fn resolve_file(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let folder = resolve(parent(&path))?;
        let Some(name) = path.file_name() else {
            return Ok(folder);
        };
        let file = folder.join(name);
        path = match file.read_link() {
            Ok(target) if is_chosen(&file)? => folder.join(target),
            Ok(_) => return Err(Refused::error(&file, Why::Link)),
            Err(_) => return Ok(file),
        };
    }
    Err(Errno::LOOP.into())
}

/// Whether only this user or root can have put a link there.
fn is_chosen(link: &Path) -> io::Result<bool> {
    let (link, folder) = (link.symlink_metadata()?, parent(link).symlink_metadata()?);
    Ok(is_trusted(&link) && is_ours_alone(&folder))
}

/// Whether this user or root made it.
fn is_trusted(known: &Metadata) -> bool {
    known.uid() == rustix::process::geteuid().as_raw() || known.uid() == 0
}

/// Whether only this user and root can change what is in a folder.
fn is_ours_alone(folder: &Metadata) -> bool {
    is_trusted(folder) && folder.mode() & WRITTEN_BY_OTHERS == 0
}

/// Opens a folder to look into it or to lock it.
pub fn open_folder(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// Fails if this is a link, or reached by one. Nothing need be there.
pub fn must_not_be_link(path: &Path) -> io::Result<()> {
    match open(path, OFlags::PATH, Mode::empty()) {
        Ok(there) if there.metadata()?.is_symlink() => Err(Refused::error(path, Why::Link)),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Fails unless this is a regular file with one name, or nothing: for files that another library opens.
pub fn must_be_file_or_missing(path: &Path) -> io::Result<()> {
    match if_there(path.symlink_metadata())? {
        Some(known) if known.is_symlink() => Err(Refused::error(path, Why::Link)),
        Some(known) => {
            must_be_file(path, &known)?;
            must_have_one_name(path, &known)
        }
        None => Ok(()),
    }
}

/// The folder that contains `path`.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A name in an open folder: the folder stays the same one, whatever takes its path meanwhile.
#[derive(Debug)]
pub struct Place<'a> {
    /// The folder.
    pub folder: OwnedFd,
    /// The name in it.
    pub name: &'a OsStr,
}

impl<'a> Place<'a> {
    /// The place of this path. Its folder must exist.
    pub fn of(path: &'a Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let how = OFlags::PATH | OFlags::DIRECTORY;
        let folder = open(parent(path), how, Mode::empty())?.into();
        Ok(Self { folder, name })
    }

    /// Removes the name of a file. A missing one is no error.
    pub fn unlink(&self) -> io::Result<()> {
        match unlinkat(&self.folder, self.name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::files::permissions::create_pipe;

    /// A folder that others may write, with a private file beside what is planted in it.
    fn planted() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir(root.join("shared")).unwrap();
        let mode = fs::Permissions::from_mode(0o777);
        fs::set_permissions(root.join("shared"), mode).unwrap();
        fs::write(root.join("victim"), "mine").unwrap();
        fs::create_dir(root.join("folder")).unwrap();
        fs::write(root.join("folder/file"), "mine").unwrap();
        let at = |name: &str| root.join("shared").join(name);
        symlink(root.join("victim"), at("link")).unwrap();
        symlink(root.join("nothing"), at("dangling")).unwrap();
        symlink(root.join("folder"), at("through")).unwrap();
        fs::hard_link(root.join("victim"), at("second")).unwrap();
        create_pipe(&at("pipe")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        let sparse = File::create(at("sparse")).unwrap();
        sparse.set_len(40 << 30).unwrap();
        fs::write(at("good"), "good").unwrap();
        (dir, root)
    }

    const PLANTED: [(&str, &str); 7] = [
        ("link", "is a link"),
        ("dangling", "is a link"),
        ("through/file", "through is a link"),
        ("second", "a second name"),
        ("pipe", "a named pipe"),
        ("directory", "a folder"),
        ("sparse", "42949672960 bytes"),
    ];

    #[test]
    fn what_is_planted_is_refused_by_name_and_the_rest_is_read() {
        let (_dir, root) = planted();
        let shared = root.join("shared");
        for (name, why) in PLANTED {
            let error = read(&shared.join(name), 1 << 20).unwrap_err();
            let refused = Refused::of(&error).unwrap_or_else(|| panic!("{name}: {error}"));
            assert!(refused.to_string().contains(why), "{name}: {refused}");
            assert!(!refused.fix().is_empty());
        }
        assert_eq!(read(&shared.join("good"), 4).unwrap(), b"good");
        assert!(read(&shared.join("good"), 3).is_err());
        let missing = read(&shared.join("missing"), 3).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_kernel_without_openat2_refuses_the_same() {
        let (_dir, root) = planted();
        let shared = root.join("shared");
        let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        for name in ["link", "dangling", "through/file"] {
            let path = shared.join(name);
            let error = step_by_step(&path, how, Mode::empty()).unwrap_err();
            let error = explain(&path, how, error);
            assert!(error.to_string().contains("is a link"), "{name}: {error}");
        }
        step_by_step(&shared.join("good"), how, Mode::empty()).unwrap();
        step_by_step(Path::new("/"), how, Mode::empty()).unwrap();
    }

    #[test]
    fn a_link_on_the_way_is_followed_only_where_no_other_user_can_have_put_it() {
        let (_dir, root) = planted();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        symlink("folder", root.join("one")).unwrap();
        symlink("one", root.join("chosen")).unwrap();
        for path in ["folder/file", "chosen/file", "chosen/../one/file"] {
            let found = resolve(&root.join(path)).unwrap();
            assert_eq!(found, root.join("folder/file"), "{path}");
        }
        for path in ["shared/through", "shared/through/file", "shared/link"] {
            let error = resolve(&root.join(path)).unwrap_err();
            assert!(error.to_string().contains("is a link"), "{path}: {error}");
        }
        symlink("turn", root.join("turn")).unwrap();
        for resolved in [resolve, resolve_file] {
            let error = resolved(&root.join("turn")).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        }
        let missing = resolve(&root.join("chosen/missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_name_is_removed_in_the_folder_that_was_opened() {
        let (_dir, root) = planted();
        let good = root.join("shared/good");
        let place = Place::of(&good).unwrap();
        fs::rename(root.join("shared"), root.join("away")).unwrap();
        symlink(root.join("folder"), root.join("shared")).unwrap();
        fs::write(root.join("folder/good"), "mine").unwrap();
        place.unlink().unwrap();
        assert!(root.join("folder/good").exists());
        assert!(!root.join("away/good").exists());
        assert!(Place::of(&good).is_err());
    }
}
