//! Which worktree of which repository a folder is the top of: [`top`].
//!
//! 1. Only git's own files are read, and only where `.git` is a file: no `git` process is started.
//! 2. A linked worktree whose repository can't be read is an error, and so is a `.git` that can't be looked at. Without
//!    the error, such a worktree would get a store of its own, and no longer exclude the others.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use tenure_git::folder::{self, Core, GitEntry};
use tenure_host::files::look;

/// Why it can't be told which project a folder is in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProjectError {
    /// The project of a linked worktree can't be found.
    #[error(
        "{} is a linked git worktree, and its project belongs to the main worktree, but {why}\n  {fix}, \
         or name a store with --store or TENURE_STORE",
        worktree.display()
    )]
    #[non_exhaustive]
    Worktree {
        /// The top of the worktree.
        worktree: PathBuf,
        /// What is wrong with its repository.
        why: String,
        /// What puts it right.
        fix: &'static str,
    },
    /// Something that says which project it is can't be looked at.
    #[error(
        "it can't be told which project this is: {0}\n  make it accessible, or name a store with --store or TENURE_STORE"
    )]
    Unreadable(#[from] io::Error),
}

/// What a folder is to git.
pub(super) enum Top {
    /// It has no `.git`.
    No,
    /// A repository's main worktree, or a submodule; with its common directory, if that can be found.
    Own(Option<PathBuf>),
    /// A linked worktree.
    Linked(SharedPlace),
}

/// The place that all worktrees of a repository have in common.
pub(super) struct SharedPlace {
    /// The main worktree; or the common directory of a bare repository, which has none.
    pub(super) path: PathBuf,
    /// The common directory, unless it is the place itself.
    pub(super) common: Option<PathBuf>,
}

impl SharedPlace {
    /// What stands for a folder of a linked worktree, given by its path within the worktree.
    pub(super) fn of(&self, within: &Path) -> PathBuf {
        // Not joined with an empty path, which would add a slash.
        if self.common.is_none() || within.as_os_str().is_empty() {
            return self.path.clone();
        }
        self.path.join(within)
    }
}

/// What a folder is to git.
pub(super) fn top(place: &Path) -> Result<Top, ProjectError> {
    let git_dir = match folder::entry(place)? {
        GitEntry::Missing => return Ok(Top::No),
        GitEntry::Folder(git) => return Ok(Top::Own(Some(git))),
        GitEntry::Link(git) => git,
        GitEntry::Other => return Ok(Top::Own(None)),
    };
    let fail = |why: String, fix| ProjectError::Worktree {
        worktree: place.to_owned(),
        why,
        fix,
    };
    let repair = "make it accessible, or run git worktree repair in the main worktree";
    match folder::common(&git_dir) {
        Ok(common) => {
            let common = common.canonicalize().map_err(|error| {
                fail(
                    format!("{} can't be read ({error})", common.display()),
                    repair,
                )
            })?;
            shared(common)?.map(Top::Linked).ok_or_else(|| {
                let why =
                    "git does not record where the main worktree is (git init --separate-git-dir)";
                fail(
                    why.to_owned(),
                    "record it with git config core.worktree PATH in the main worktree",
                )
            })
        }
        // The folder around a bare repository and its worktrees.
        Err(error) if error.kind() == io::ErrorKind::NotFound && look::is_folder(&git_dir)? => {
            let common = git_dir.canonicalize()?;
            Ok(match folder::core(&git_dir)? {
                Core { bare: true, .. } => Top::Linked(bare(common)),
                _ => Top::Own(Some(common)),
            })
        }
        Err(error) => {
            let parent = git_dir.parent().and_then(Path::file_name);
            if parent == Some(OsStr::new("worktrees")) {
                let why = format!(
                    "its repository {} can't be read ({error})",
                    git_dir.display()
                );
                return Err(fail(why, repair));
            }
            match error.kind() {
                io::ErrorKind::NotFound => Ok(Top::Own(None)),
                _ => Err(look::unreadable(&git_dir, &error).into()),
            }
        }
    }
}

fn bare(path: PathBuf) -> SharedPlace {
    SharedPlace { path, common: None }
}

/// The place that the worktrees with this common directory share, if git records it.
fn shared(common: PathBuf) -> io::Result<Option<SharedPlace>> {
    if common.file_name() == Some(OsStr::new(".git")) {
        let main = common.parent().map(Path::to_owned);
        return Ok(main.map(|path| SharedPlace {
            path,
            common: Some(common),
        }));
    }
    Ok(match folder::core(&common)? {
        // A submodule's repository is inside its superproject's.
        Core {
            worktree: Some(path),
            ..
        } => {
            let main = common.join(path);
            let main = main
                .canonicalize()
                .map_err(|error| look::unreadable(&main, &error))?;
            Some(SharedPlace {
                path: main,
                common: Some(common),
            })
        }
        Core { bare: true, .. } => Some(bare(common)),
        Core { .. } => None,
    })
}

/// The folders of all linked worktrees that stand for a place: a folder of the main worktree, or the common directory
/// of a bare repository. Some may be gone.
#[cfg(feature = "config")]
pub(super) fn linked(place: &Path) -> Vec<PathBuf> {
    let is_top = |top: &&Path| !matches!(folder::entry(top), Ok(GitEntry::Missing));
    let main = place.ancestors().find(is_top);
    let (common, within) = match main {
        _ if place.join("worktrees").is_dir() && place.join("HEAD").is_file() => {
            (place.to_owned(), Path::new(""))
        }
        Some(top) => {
            let git = folder::entry(top).ok().and_then(GitEntry::folder);
            let within = place.strip_prefix(top).unwrap_or(Path::new(""));
            (git.unwrap_or_else(|| top.join(".git")), within)
        }
        None => return Vec::new(),
    };
    let Ok(entries) = std::fs::read_dir(common.join("worktrees")) else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?.path();
            Some(folder::entry_of(&entry).ok()?.parent()?.join(within))
        })
        .collect();
    folders.sort();
    folders
}

/// Whether git found that the file system of a work tree ignores case, when it made the repository. Git itself can't use
/// a worktree whose repository is gone.
pub(super) fn ignores_case(root: &Path) -> io::Result<bool> {
    let common = match top(root) {
        Ok(Top::Own(Some(common))) => common,
        Ok(Top::Linked(shared)) => shared.common.unwrap_or(shared.path),
        Ok(Top::Own(None) | Top::No) | Err(ProjectError::Worktree { .. }) => return Ok(false),
        Err(ProjectError::Unreadable(error)) => return Err(error),
    };
    Ok(folder::core(&common)?.ignore_case)
}
