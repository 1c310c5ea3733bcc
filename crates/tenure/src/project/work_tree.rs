//! Where the paths of reservations begin, and what a caller's path is from there: [`WorkTree`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use tenure_core::{BadPattern, PathPattern};

use super::Project;
use super::worktree::{Top, top};

/// Why a caller's path or pattern names nothing that can be reserved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadPath {
    /// It is not in the repository.
    #[error("{} is outside of {}: only what is in it can be reserved", path.display(), root.display())]
    Outside {
        /// The path.
        path: PathBuf,
        /// The top of the work tree.
        root: PathBuf,
    },
    /// It is no pattern.
    #[error("{}: {why}", text.to_string_lossy())]
    Pattern {
        /// The text, cut off if it is long.
        text: std::ffi::OsString,
        /// What is wrong with it.
        why: BadPattern,
    },
    /// It can't be looked at.
    #[error("{} can't be looked at: {error}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A work tree of a repository, and a folder in it. Every spelling of a file becomes one path: relative to the top of the
/// work tree, without `.`, `..` and symbolic links. All worktrees of a repository have the same paths.
///
/// Bytes of a name that are not UTF-8 become U+FFFD. Two such names may be taken for the same file.
#[derive(Debug)]
pub struct WorkTree {
    root: PathBuf,
    here: PathBuf,
    /// The top of the work tree of each folder that was looked at.
    tops: RefCell<HashMap<PathBuf, PathBuf>>,
}

impl WorkTree {
    /// The work tree that `from` is in: the worktree of the repository, or the project's root if that is above the
    /// repository or there is none. `None` if there is neither a repository nor a project.
    pub fn find(from: &Path, project: Option<&Project>) -> io::Result<Option<Self>> {
        let here = from.canonicalize()?;
        let limit = project
            .map(|project| project.root.canonicalize())
            .transpose()?;
        let root = top_of(&here, limit.as_deref()).or(limit);
        Ok(root.map(|root| Self {
            root,
            here,
            tops: RefCell::default(),
        }))
    }

    /// The top of the work tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What a file or folder is called in reservations. It need not exist.
    pub fn path(&self, path: &Path) -> Result<String, BadPath> {
        let resolved = resolve(&self.here.join(path))?;
        let parent = resolved.parent().unwrap_or(&resolved);
        let known = self.tops.borrow().get(parent).cloned();
        let root = known.unwrap_or_else(|| {
            // Another worktree of the repository may be inside this one.
            let is_inside = parent.starts_with(&self.root);
            let found = top_of(parent, is_inside.then_some(&self.root));
            let root = found.unwrap_or_else(|| self.root.clone());
            let mut tops = self.tops.borrow_mut();
            tops.insert(parent.to_owned(), root.clone());
            root
        });
        match resolved.strip_prefix(&root) {
            Ok(inside) if root == self.root || shares_repository(&root, &self.root) => {
                Ok(inside.to_string_lossy().into_owned())
            }
            _ => Err(BadPath::Outside {
                path: resolved,
                root: self.root.clone(),
            }),
        }
    }

    /// The pattern that a caller gave, relative to its folder. A text that names an existing file is that file, whatever
    /// its characters mean in a pattern.
    pub fn pattern(&self, text: &OsStr) -> Result<PathPattern, BadPath> {
        let bad = |why| BadPath::Pattern {
            text: OsStr::from_bytes(text.as_bytes().get(..80).unwrap_or(text.as_bytes())).into(),
            why,
        };
        if text.is_empty() {
            return Err(bad(BadPattern::Empty));
        }
        if text.len() > tenure_core::path_pattern::MAX_PATTERN {
            return Err(bad(BadPattern::TooLong(text.len())));
        }
        if text.as_bytes().first() == Some(&b'!') {
            return Err(bad(BadPattern::Negated));
        }
        let has_wildcards = |part: &Component<'_>| {
            let bytes = part.as_os_str().as_bytes();
            bytes.iter().any(|byte| b"*?[{\\".contains(byte))
        };
        let path = Path::new(text);
        let exists = fs::symlink_metadata(self.here.join(path)).is_ok();
        let parts: Vec<Component<'_>> = path.components().collect();
        let plain = if exists {
            parts.len()
        } else {
            parts.iter().position(has_wildcards).unwrap_or(parts.len())
        };
        let (folder, rest) = parts.split_at_checked(plain).unwrap_or((&parts, &[]));
        let folder = self.path(&folder.iter().collect::<PathBuf>())?;
        let rest = rest.iter().collect::<PathBuf>();
        let rest = rest.to_string_lossy();
        let pattern = match (folder.as_str(), &*rest) {
            ("", "") => PathPattern::parse("**"),
            (_, "") => PathPattern::exactly(&folder),
            ("", rest) => PathPattern::parse(rest),
            (_, rest) => PathPattern::exactly(&folder)
                .and_then(|folder| PathPattern::parse(&format!("{folder}/{rest}"))),
        };
        pattern.map_err(bad)
    }
}

/// The top of the work tree that a folder is in. A repository below `limit` that is no linked worktree, such as a
/// submodule, belongs to what `limit` is in.
fn top_of(folder: &Path, limit: Option<&Path>) -> Option<PathBuf> {
    folder
        .ancestors()
        .find(|folder| match top(folder) {
            Ok(Top::Linked(_)) | Err(_) => true,
            Ok(Top::Own) => limit.is_none_or(|limit| limit.starts_with(folder)),
            Ok(Top::No) => false,
        })
        .map(Path::to_owned)
}

/// Whether two work trees belong to one repository.
fn shares_repository(one: &Path, other: &Path) -> bool {
    let shared = |folder: &Path| match top(folder) {
        Ok(Top::Linked(shared)) => shared.path().canonicalize().ok(),
        Ok(Top::Own) => Some(folder.to_owned()),
        Ok(Top::No) | Err(_) => None,
    };
    shared(one).is_some_and(|one| Some(one) == shared(other))
}

/// The path without `.`, `..` and symbolic links. What does not exist has no links.
fn resolve(path: &Path) -> Result<PathBuf, BadPath> {
    let parts: Vec<Component<'_>> = path.components().collect();
    for there in (1..=parts.len()).rev() {
        let (there, missing) = parts.split_at_checked(there).unwrap_or((&parts, &[]));
        let existing: PathBuf = there.iter().collect();
        match existing.canonicalize() {
            Ok(mut resolved) => {
                for part in missing {
                    match part {
                        Component::ParentDir => {
                            resolved.pop();
                        }
                        part => resolved.push(part),
                    }
                }
                return Ok(resolved);
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) => {}
            Err(error) => {
                return Err(BadPath::Io {
                    path: path.to_owned(),
                    error,
                });
            }
        }
    }
    Ok(path.to_owned())
}
