//! Which worktree of which repository a folder is the top of: [`top`].
//!
//! 1. Only git's own files are read, and only where `.git` is a file: no `git` process is started.
//! 2. `GIT_DIR` and `GIT_COMMON_DIR` are ignored. Hooks set them, and a hook must find the same project as
//!    the shell that started it.
//! 3. A linked worktree whose repository can't be read is an error, and so is a `.git` that can't be looked at. Without
//!    the error, such a worktree would get a store of its own, and no longer exclude the others.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tenure_host::files::beneath::read_following;
use tenure_host::files::look;

/// The largest file of git's that is read, in bytes.
const LARGEST: u64 = 1 << 20;

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
    Linked(Shared),
}

/// The place that all worktrees of a repository have in common.
pub(super) enum Shared {
    /// The main worktree, and the common directory.
    Main(PathBuf, PathBuf),
    /// The common directory of a bare repository, which has no main worktree.
    Bare(PathBuf),
}

impl Shared {
    /// What stands for a folder of a linked worktree, given by its path within the worktree.
    pub(super) fn place(&self, within: &Path) -> PathBuf {
        match self {
            // Not joined with an empty path, which would add a slash.
            Self::Main(root, _) if within.as_os_str().is_empty() => root.clone(),
            Self::Main(root, _) => root.join(within),
            Self::Bare(common) => common.clone(),
        }
    }

    /// The common directory, unless it is the place itself.
    pub(super) fn common(&self) -> Option<&Path> {
        match self {
            Self::Main(_, common) => Some(common),
            Self::Bare(_) => None,
        }
    }

    /// The main worktree or common directory itself.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Main(path, _) | Self::Bare(path) => path,
        }
    }
}

/// What a folder is to git.
pub(super) fn top(folder: &Path) -> Result<Top, ProjectError> {
    let entry = folder.join(".git");
    let git_dir = match look::link_at(&entry) {
        Ok(None) => return Ok(Top::No),
        // Nothing is in a file.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Top::No),
        Err(error) => return Err(error.into()),
        Ok(Some(found)) if found.is_dir() => return Ok(Top::Own(Some(entry))),
        Ok(Some(found)) if found.is_symlink() && look::is_folder(&entry)? => entry,
        Ok(Some(_)) => match named_in(&entry, b"gitdir: ") {
            Ok(path) => folder.join(path),
            Err(error) if is_no_link(&error) => return Ok(Top::Own(None)),
            Err(error) => return Err(look::unreadable(&entry, &error).into()),
        },
    };
    let fail = |why: String, fix| ProjectError::Worktree {
        worktree: folder.to_owned(),
        why,
        fix,
    };
    let repair = "make it accessible, or run git worktree repair in the main worktree";
    match named_in(&git_dir.join("commondir"), b"") {
        Ok(common) => {
            let common = git_dir.join(common);
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
            Ok(match core(&git_dir)? {
                Core { bare: true, .. } => Top::Linked(Shared::Bare(common)),
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

/// The place that the worktrees with this common directory share, if git records it.
fn shared(common: PathBuf) -> io::Result<Option<Shared>> {
    if common.file_name() == Some(OsStr::new(".git")) {
        let main = common.parent().map(Path::to_owned);
        return Ok(main.map(|main| Shared::Main(main, common)));
    }
    Ok(match core(&common)? {
        // A submodule's repository is inside its superproject's.
        Core {
            worktree: Some(path),
            ..
        } => {
            let main = common.join(path);
            let main = main
                .canonicalize()
                .map_err(|error| look::unreadable(&main, &error))?;
            Some(Shared::Main(main, common))
        }
        Core { bare: true, .. } => Some(Shared::Bare(common)),
        Core { .. } => None,
    })
}

/// The folders of all linked worktrees that stand for `folder`: a folder of the main worktree, or the common directory
/// of a bare repository. Some may be gone.
#[cfg(feature = "config")]
pub(super) fn linked(folder: &Path) -> Vec<PathBuf> {
    let main = folder.ancestors().find(|top| top.join(".git").exists());
    let (common, within) = match main {
        _ if folder.join("worktrees").is_dir() && folder.join("HEAD").is_file() => {
            (folder.to_owned(), Path::new(""))
        }
        Some(top) => {
            let entry = top.join(".git");
            let named = named_in(&entry, b"gitdir: ").map(|path| top.join(path));
            let within = folder.strip_prefix(top).unwrap_or(Path::new(""));
            (named.unwrap_or(entry), within)
        }
        None => return Vec::new(),
    };
    let Ok(entries) = std::fs::read_dir(common.join("worktrees")) else {
        return Vec::new();
    };
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?.path();
            let git = entry.join(named_in(&entry.join("gitdir"), b"").ok()?);
            Some(git.parent()?.join(within))
        })
        .collect();
    folders.sort();
    folders
}

/// The path in a file of one line, after a prefix.
fn named_in(file: &Path, prefix: &[u8]) -> io::Result<PathBuf> {
    let text = read_following(file, LARGEST)?;
    let path = text
        .strip_prefix(prefix)
        .ok_or(io::ErrorKind::InvalidData)?
        .trim_ascii_end();
    Ok(PathBuf::from(OsStr::from_bytes(path)))
}

/// Whether a `.git` that was read, or leads to nothing, names no repository.
fn is_no_link(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData
    )
}

/// Whether git found that the file system of a work tree ignores case, when it made the repository. Git itself can't use
/// a worktree whose repository is gone.
pub(super) fn ignores_case(root: &Path) -> io::Result<bool> {
    let common = match top(root) {
        Ok(
            Top::Own(Some(common)) | Top::Linked(Shared::Main(_, common) | Shared::Bare(common)),
        ) => common,
        Ok(Top::Own(None) | Top::No) | Err(ProjectError::Worktree { .. }) => return Ok(false),
        Err(ProjectError::Unreadable(error)) => return Err(error),
    };
    Ok(core(&common)?.ignore_case)
}

/// What a repository's `config` says in its section `core`.
#[derive(Default)]
struct Core {
    worktree: Option<PathBuf>,
    bare: bool,
    ignore_case: bool,
}

fn core(common: &Path) -> io::Result<Core> {
    let mut core = Core::default();
    let config = common.join("config");
    let text = match read_following(&config, LARGEST) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(core),
        Err(error) => return Err(look::unreadable(&config, &error)),
    };
    let mut inside = false;
    for line in text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
        if line.starts_with(b"[") {
            inside = line.eq_ignore_ascii_case(b"[core]");
            continue;
        }
        let mut parts = line.splitn(2, |byte| *byte == b'=').map(<[u8]>::trim_ascii);
        let (Some(key), value, true) = (parts.next(), parts.next(), inside) else {
            continue;
        };
        let no: [&[u8]; 4] = [b"false", b"no", b"off", b"0"];
        let is_set = !value.is_some_and(|value| no.contains(&&*value.to_ascii_lowercase()));
        if key.eq_ignore_ascii_case(b"bare") {
            core.bare = is_set;
        } else if key.eq_ignore_ascii_case(b"ignorecase") {
            core.ignore_case = is_set;
        } else if key.eq_ignore_ascii_case(b"worktree") {
            let path = value.unwrap_or_default();
            let path = path.strip_prefix(b"\"").unwrap_or(path);
            let path = path.strip_suffix(b"\"").unwrap_or(path);
            core.worktree = Some(PathBuf::from(OsStr::from_bytes(path)));
        }
    }
    Ok(core)
}
