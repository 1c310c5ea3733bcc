//! Looks at every file that git tracks, and at their folders: [`Pass::over`].
//!
//! A folder is opened once, and its files are looked at from there: the kernel then resolves one name for each file. No link
//! is followed: to git, what is behind one is missing.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use tenure_git::index::{Index, Kind};

use super::stamp::FileTime;
use super::start::{Tree, Window};

/// More threads than this only wait for each other.
const MOST_THREADS: usize = 8;

/// A thread is worth its start if it has this many files to look at.
const LEAST_FILES: usize = 2_000;

/// What has changed, of what git tracks.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// The files, by their numbers in the index.
    pub(super) touched: Vec<usize>,
    /// The files that are not there, in folders that have changed.
    pub(super) missing: Vec<usize>,
    /// The folders in which something was added, removed or renamed.
    pub(super) folders: Vec<Vec<u8>>,
    /// The submodules, changed or not.
    pub(super) submodules: Vec<usize>,
}

/// A folder on the way to the next file.
struct Folder {
    /// The length of its path, with the slash.
    end: usize,
    /// `None` if it is not there.
    open: Option<OwnedFd>,
    /// Whether it has changed, or if it is not there, the one above it.
    is_changed: bool,
}

impl Pass {
    pub(super) fn over(tree: &Tree, index: &Index, window: Window) -> Result<Self, Errno> {
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, &tree.root, how, Mode::empty())?;
        let is_changed = window.has(FileTime::changed(&fstat(&root)?));
        let most = thread::available_parallelism().map_or(1, usize::from);
        let threads = most.min(MOST_THREADS).min(index.len() / LEAST_FILES + 1);
        let share = index.len().div_ceil(threads);
        let walk = |number: usize| {
            let files = number * share..index.len().min((number + 1) * share);
            let walk = Walk {
                root: root.as_fd(),
                is_changed,
                window,
                found: Self::default(),
            };
            walk.through(index, files)
        };
        let mut all = thread::scope(|scope| {
            let walk = &walk;
            let others: Vec<_> = (1..threads)
                .map(|number| scope.spawn(move || walk(number)))
                .collect();
            let mut all = walk(0);
            for other in others {
                // It does not panic.
                let other = other.join().unwrap_or_default();
                all.touched.extend(other.touched);
                all.missing.extend(other.missing);
                all.folders.extend(other.folders);
                all.submodules.extend(other.submodules);
            }
            all
        });
        if is_changed {
            all.folders.push(Vec::new());
        }
        all.folders.sort_unstable();
        all.folders.dedup();
        Ok(all)
    }
}

struct Walk<'a> {
    root: BorrowedFd<'a>,
    /// Whether the top of the work tree has changed.
    is_changed: bool,
    window: Window,
    found: Pass,
}

impl Walk<'_> {
    fn through(mut self, index: &Index, files: Range<usize>) -> Pass {
        let mut above: Vec<Folder> = Vec::new();
        let (mut last_folder, mut last): (&[u8], &[u8]) = (b"", b"");
        for (number, entry) in files.filter_map(|at| Some((at, index.get(at)?))) {
            // With a conflict, a file has several entries; and the folders of a sparse index end with a slash.
            if entry.path == last || entry.path.ends_with(b"/") {
                continue;
            }
            last = entry.path;
            let slash = entry.path.iter().rposition(|byte| *byte == b'/');
            let (folder, _) = entry.path.split_at(slash.map_or(0, |at| at + 1));
            if folder != last_folder {
                let is_around = |it: &Folder| {
                    let path = last_folder.get(..it.end);
                    path.is_some_and(|path| folder.starts_with(path))
                };
                while above.pop_if(|it| !is_around(it)).is_some() {}
                self.descend(&mut above, folder);
                last_folder = folder;
            }
            let (open, is_changed) = match above.last() {
                None => (Some(self.root), self.is_changed),
                Some(folder) => (folder.open.as_ref().map(AsFd::as_fd), folder.is_changed),
            };
            let known = match (open, index.name(number, folder.len())) {
                (Some(open), Some(name)) => statat(open, name, AtFlags::SYMLINK_NOFOLLOW),
                _ => Err(Errno::NOENT),
            };
            match known {
                Ok(_) if entry.kind == Kind::Submodule => self.found.submodules.push(number),
                Ok(known) if self.window.has(FileTime::changed(&known)) => {
                    self.found.touched.push(number);
                }
                Err(Errno::NOENT | Errno::NOTDIR) if is_changed && entry.kind != Kind::Skipped => {
                    self.found.missing.push(number);
                }
                _ => {}
            }
        }
        self.found
    }

    /// Opens the folders on the way to this one that are not open yet.
    fn descend(&mut self, above: &mut Vec<Folder>, folder: &[u8]) {
        let mut begin = above.last().map_or(0, |it| it.end);
        while let Some((name, end)) = folder.get(begin..).and_then(|rest| {
            let length = rest.iter().position(|byte| *byte == b'/')?;
            Some((rest.get(..length)?, begin + length + 1))
        }) {
            let (parent, is_changed) = match above.last() {
                None => (Some(self.root), self.is_changed),
                Some(parent) => (parent.open.as_ref().map(AsFd::as_fd), parent.is_changed),
            };
            let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let open = parent.and_then(|parent| openat(parent, name, how, Mode::empty()).ok());
            let known = open.as_ref().and_then(|open| fstat(open).ok());
            let is_changed = match known {
                Some(known) => self.window.has(FileTime::changed(&known)),
                None => is_changed,
            };
            if is_changed && open.is_some() {
                self.found
                    .folders
                    .extend(folder.get(..end - 1).map(<[u8]>::to_vec));
            }
            above.push(Folder {
                end,
                open,
                is_changed,
            });
            begin = end;
        }
    }
}
