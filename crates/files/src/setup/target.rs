//! The file that tenure is added to, and the change of it: [`Target`], [`FileChange`].
//!
//! 1. A file that can't be understood, or that another program has changed since it was read, is left alone.
//! 2. A link is followed, not replaced; one that another user may have put there is refused.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tenure::Project;
use tenure_board::save::{Replaces, SaveError, SaveStep, Saved, save, sweep};
use tenure_core::StoreError;
use tenure_git::folder::{GitEntry, entry};
use tenure_host::files::beneath::{self, Refused};
use tenure_host::files::fault::explain;

use super::{diff, merge, section};
use crate::agents::tool::Tool;

/// A larger file is no configuration.
const LARGEST: u64 = 4 * 1024 * 1024;

/// Why a file was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// There is no place for the file.
    #[error(
        "{} is in no git repository and no project: change to its root, or set up your user with --user",
        .0.display()
    )]
    NoRoot(PathBuf),
    /// The user has no home folder.
    #[error("your home folder is not known: set HOME")]
    NoHome,
    /// It is no file that configures an agent.
    #[error("{} {why}: it was left alone", shown(path).display())]
    NoConfiguration {
        /// Its path.
        path: PathBuf,
        /// What it is.
        why: &'static str,
    },
    /// What it says can't be understood.
    #[error(
        "{} can't be changed safely: {why}\n  it was left alone; correct it by hand and try again",
        shown(path).display()
    )]
    NotUnderstood {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another program has changed it since it was read.
    #[error("{} was changed by another program meanwhile: nothing was written; try again", shown(.0).display())]
    Changed(PathBuf),
    /// A link that leads to nothing.
    #[error("{} leads nowhere ({error}): remove or repair it", path.display())]
    LeadsNowhere {
        /// Its path.
        path: PathBuf,
        /// Why it can't be followed.
        error: io::Error,
    },
    /// A file operation failed.
    #[error("{} can't be {what} ({error})", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was to be done with it.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// It could not be written.
    #[error(transparent)]
    NotWritten(SaveError<std::convert::Infallible>),
    /// Another user may have put it there.
    #[error(transparent)]
    Unsafe(StoreError),
}

/// A path as it is seen from the current folder.
pub fn shown(path: &Path) -> &Path {
    let here = std::env::current_dir().ok();
    here.and_then(|here| path.strip_prefix(here).ok())
        .unwrap_or(path)
}

/// The file to change.
#[derive(Debug)]
pub struct Target {
    tool: Option<Tool>,
    /// As the caller knows it.
    pub name: PathBuf,
    /// What it is in the end: a link is followed, not replaced.
    path: PathBuf,
}

impl Target {
    /// The file with the hooks of an agent, in its folder below `folder`.
    pub fn of_agent(tool: Tool, folder: &Path) -> Result<Self, SetupError> {
        Self::at(Some(tool), folder.join(tool.folder()).join(tool.file()))
    }

    /// The same in the folder of the user's own configuration.
    pub fn of_user(tool: Tool, home: Option<&Path>) -> Result<Self, SetupError> {
        let named = tool.folder_variable().and_then(std::env::var_os);
        if let Some(folder) = named.filter(|folder| !folder.is_empty()) {
            return Self::at(Some(tool), Path::new(&folder).join(tool.file()));
        }
        Self::of_agent(tool, home.ok_or(SetupError::NoHome)?)
    }

    /// The file that tells agents about a repository: `AGENTS.md`, or `CLAUDE.md` if only that is there.
    pub fn agents_md(root: &Path) -> Result<Self, SetupError> {
        let (agents, claude) = (root.join("AGENTS.md"), root.join("CLAUDE.md"));
        let is_there = |file: &Path| file.symlink_metadata().is_ok();
        let is_claude = is_there(&claude) && !is_there(&agents);
        Self::at(None, if is_claude { claude } else { agents })
    }

    fn at(tool: Option<Tool>, name: PathBuf) -> Result<Self, SetupError> {
        let path = match name.symlink_metadata() {
            Ok(_) => beneath::resolve(&name).map_err(|error| unsafe_target(&name, error))?,
            Err(_) => match beneath::resolve_file(&name) {
                Err(error) if Refused::of(&error).is_some() => {
                    return Err(unsafe_target(&name, error));
                }
                found => found.unwrap_or_else(|_| name.clone()),
            },
        };
        Ok(Self { tool, name, path })
    }

    /// The change that adds tenure to the file, or takes it out again.
    pub fn change(&self, remove: bool) -> Result<FileChange<'_>, SetupError> {
        let bad = |why: &dyn std::fmt::Display| SetupError::NotUnderstood {
            path: self.name.clone(),
            why: why.to_string(),
        };
        let old = self.read()?;
        let new = match (self.tool, remove, old.as_deref()) {
            (_, true, None) => None,
            (Some(tool), false, old) => Some(merge::add(tool, old).map_err(|why| bad(&why))?),
            (Some(tool), true, Some(old)) => merge::remove(tool, old).map_err(|why| bad(&why))?,
            (None, false, old) => Some(section::add(old).map_err(|why| bad(&why))?),
            (None, true, Some(old)) => section::remove(old).map_err(|why| bad(&why))?,
        };
        Ok(FileChange {
            target: self,
            diff: diff::unified(
                old.as_deref().unwrap_or_default(),
                new.as_deref().unwrap_or_default(),
            ),
            old,
            new,
        })
    }

    fn read(&self) -> Result<Option<String>, SetupError> {
        let failed = |error| SetupError::Io {
            path: shown(&self.name).to_owned(),
            what: "read",
            error,
        };
        let (open, file) = match beneath::open(&self.path, OFlags::RDONLY, Mode::empty())
            .and_then(|open| open.metadata().map(|known| (open, known)))
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let path = self.name.clone();
        let why = match (file.is_file(), file.len() > LARGEST) {
            (true, false) => None,
            (true, true) => Some("is larger than 4 MB"),
            (false, _) => Some("is no regular file"),
        };
        if let Some(why) = why {
            return Err(SetupError::NoConfiguration { path, why });
        }
        let mut bytes = Vec::new();
        open.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|_| SetupError::NotUnderstood {
            path,
            why: "it is not UTF-8 text".to_owned(),
        })
    }

    /// Whether the file is in the folder of an agent, such as `.claude`.
    fn is_in_own_folder(&self) -> bool {
        let folder = self.path.parent().and_then(Path::file_name);
        Tool::ALL
            .iter()
            .any(|tool| folder.is_some_and(|folder| folder == tool.folder()))
    }
}

/// A link that leads nowhere, or that another user may have put there.
fn unsafe_target(name: &Path, error: io::Error) -> SetupError {
    if Refused::of(&error).is_some() {
        return SetupError::Unsafe(explain("opened", name, error));
    }
    SetupError::LeadsNowhere {
        path: name.to_owned(),
        error,
    }
}

/// Where the files of a repository are: at its root, or at that of the project if there is no repository. In a linked
/// worktree, it is that worktree's: the file belongs to its branch.
pub fn root<E: From<SetupError>>(
    start: &Path,
    project: impl FnOnce() -> Result<Option<Project>, E>,
) -> Result<PathBuf, E> {
    let mut above = start.ancestors();
    if let Some(root) = above.find(|folder| !matches!(entry(folder), Ok(GitEntry::Missing))) {
        return Ok(root.to_owned());
    }
    let root = project()?.map(|project| project.root().to_owned());
    Ok(root.ok_or_else(|| SetupError::NoRoot(start.to_owned()))?)
}

/// What is done to the file.
#[derive(Debug)]
pub struct FileChange<'a> {
    target: &'a Target,
    /// The content before; `None` if there is no file.
    pub old: Option<String>,
    /// The content afterwards; `None` if the file goes.
    pub new: Option<String>,
    /// The difference, line by line.
    pub diff: String,
}

impl FileChange<'_> {
    /// Makes the change.
    pub fn write(&self) -> Result<(), SetupError> {
        let path = &self.target.path;
        let changed = || SetupError::Changed(self.target.name.clone());
        let failed = |path: &Path, what| {
            let path = path.to_owned();
            move |error| SetupError::Io { path, what, error }
        };
        let is_same = || self.target.read().is_ok_and(|now| now == self.old);
        let Some(new) = &self.new else {
            if !is_same() {
                return Err(changed());
            }
            std::fs::remove_file(path).map_err(failed(path, "removed"))?;
            // It was made for this file. A folder with other files in it stays.
            if let Some(folder) = path.parent().filter(|_| self.target.is_in_own_folder()) {
                let _ = std::fs::remove_dir(folder);
            }
            return Ok(());
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(failed(folder, "created"))?;
        }
        let old = self.old.as_ref();
        let replaces = old.map_or(Replaces::Anything, |old| Replaces::Exactly(old.as_bytes()));
        let saved = save(path, new.as_bytes(), replaces, |step| match step {
            SaveStep::Rename if !is_same() => Err(()),
            SaveStep::Write | SaveStep::Rename => Ok(()),
        });
        match saved {
            Ok(Saved::Done) => {}
            Ok(Saved::Changed) | Err(SaveError::Stopped(())) => return Err(changed()),
            Err(SaveError::Io { path, error }) => {
                return Err(SetupError::NotWritten(SaveError::Io { path, error }));
            }
        }
        // What a killed setup left behind.
        let _ = path.parent().map(sweep);
        Ok(())
    }
}
