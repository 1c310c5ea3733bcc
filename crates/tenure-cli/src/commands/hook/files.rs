//! The files of the work tree that an agent edits: [`WorkTree`].

use std::ffi::OsStr;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use jiff::Timestamp;
use tenure::Project;
use tenure::wire::ErrorCode;

use crate::answer::Failure;
use crate::context;

/// How many links in a row are followed.
const LINKS: usize = 40;

/// The kernel's clock for files is late by at most one tick.
const COARSE: Duration = Duration::from_millis(20);

/// A work tree of the project's repository.
pub(super) struct WorkTree {
    /// The folder that the agent works in.
    folder: PathBuf,
    top: Top,
    project: PathBuf,
}

/// The root of a work tree.
#[derive(PartialEq)]
struct Top {
    root: PathBuf,
    /// Where git keeps the state of this work tree.
    git: Option<PathBuf>,
    linked: bool,
}

impl WorkTree {
    pub(super) fn of(folder: &Path, project: &Project) -> Self {
        let folder = resolved(folder, LINKS);
        let top = top(&folder).unwrap_or_else(|| Top {
            root: resolved(project.root(), LINKS),
            git: None,
            linked: false,
        });
        Self {
            folder,
            top,
            project: project.root().to_owned(),
        }
    }

    /// Whether it is a linked one, whose files the other agents don't see.
    pub(super) fn is_linked(&self) -> bool {
        self.top.linked
    }

    /// The path of a file from the root of the repository, however it was spelt; `None` if it is outside of the
    /// repository. The same file in another work tree of the repository has the same path.
    pub(super) fn path(&self, file: &Path) -> Result<Option<String>, Failure> {
        let file = resolved(&self.folder.join(file), LINKS);
        let parent = file.parent().unwrap_or(&file);
        let top = top(parent);
        let root = match &top {
            Some(top) if *top == self.top => &top.root,
            Some(top) => {
                let project = Project::find(parent, context::home().as_deref())?;
                if project.is_none_or(|project| project.root() != self.project) {
                    return Ok(None);
                }
                &top.root
            }
            None => &self.top.root,
        };
        let Ok(path) = file.strip_prefix(root) else {
            return Ok(None);
        };
        let is_git = path.components().next() == Some(Component::Normal(OsStr::new(".git")));
        if is_git || path.as_os_str().is_empty() {
            return Ok(None);
        }
        let text = path.to_str().ok_or_else(|| {
            let message = format!(
                "{} is not UTF-8 text, so it can't be reserved",
                path.display()
            );
            Failure::new(ErrorCode::BadName, message)
        })?;
        Ok(Some(text.to_owned()))
    }

    /// When a file was written last.
    pub(super) fn written(&self, path: &str) -> Option<Timestamp> {
        written(&self.top.root.join(path))
    }

    /// Whether a commit was made since, and the file was written before it. It costs no process.
    pub(super) fn may_be_committed(&self, path: &str, since: Timestamp) -> bool {
        let Some(git) = &self.top.git else {
            return false;
        };
        let (Some(file), Some(head)) = (self.written(path), written(&git.join("logs/HEAD"))) else {
            return false;
        };
        // A file that was reserved and not yet written is not committed.
        since
            .saturating_sub(COARSE)
            .is_ok_and(|since| since <= file)
            && file <= head
    }

    /// Which of these files are as they are in the last commit.
    pub(super) fn committed(&self, paths: &[&str]) -> Vec<String> {
        if paths.is_empty() {
            return Vec::new();
        }
        let status = Command::new("git")
            .arg("-C")
            .arg(&self.top.root)
            .args([
                "--literal-pathspecs",
                "--no-optional-locks",
                "status",
                "--porcelain",
                "-z",
            ])
            .args([
                "--untracked-files=all",
                "--ignored=matching",
                "--no-renames",
                "--",
            ])
            .args(paths)
            .env_remove("GIT_DIR")
            .env_remove("GIT_INDEX_FILE")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let Some(status) = status.ok().filter(|status| status.status.success()) else {
            return Vec::new();
        };
        let changed: Vec<&[u8]> = status
            .stdout
            .split(|byte| *byte == 0)
            .filter_map(|line| line.get(3..))
            .collect();
        let clean = paths
            .iter()
            .filter(|path| !changed.contains(&path.as_bytes()));
        clean.map(|path| (*path).to_owned()).collect()
    }
}

fn written(file: &Path) -> Option<Timestamp> {
    Timestamp::try_from(file.metadata().ok()?.modified().ok()?).ok()
}

/// The root of the work tree that a folder is in. A submodule belongs to the work tree around it.
fn top(folder: &Path) -> Option<Top> {
    folder.ancestors().find_map(|root| {
        let entry = root.join(".git");
        let file = fs::symlink_metadata(&entry).ok()?;
        let git = if file.is_file() {
            let text = fs::read_to_string(&entry).ok()?;
            root.join(text.strip_prefix("gitdir: ")?.trim_end())
        } else {
            entry
        };
        let linked = git.join("commondir").is_file();
        (file.is_dir() || linked || !is_module(&git)).then(|| Top {
            root: root.to_owned(),
            git: Some(git),
            linked,
        })
    })
}

/// Whether this is where git keeps a submodule.
fn is_module(git: &Path) -> bool {
    git.components().any(|part| part.as_os_str() == "modules")
}

/// A path without links and `..`, whether or not the file exists.
fn resolved(path: &Path, links: usize) -> PathBuf {
    if let Ok(whole) = path.canonicalize() {
        return whole;
    }
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            part => {
                out.push(part);
                if let Ok(target) = out.read_link() {
                    out.pop();
                    out = if links == 0 {
                        out.join(target)
                    } else {
                        resolved(&out.join(target), links - 1)
                    };
                }
            }
        }
    }
    out
}

/// The path of a pattern that was made by [`tenure_core::PathPattern::exactly`].
pub(super) fn unescaped(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut escaped = false;
    for c in pattern.chars() {
        if c == '\\' && !escaped {
            escaped = true;
        } else {
            out.push(c);
            escaped = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_file_is_one_file() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("src/deep")).unwrap();
        fs::write(root.join("src/a.rs"), "").unwrap();
        std::os::unix::fs::symlink("src", root.join("link")).unwrap();
        std::os::unix::fs::symlink("src/new.rs", root.join("dangling.rs")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        for (spelt, meant) in [
            ("src/a.rs", "src/a.rs"),
            ("./src/deep/../a.rs", "src/a.rs"),
            ("link/a.rs", "src/a.rs"),
            ("link/new.rs", "src/new.rs"),
            ("link/deep/../new.rs", "src/new.rs"),
            ("link/none/../new.rs", "src/new.rs"),
            ("dangling.rs", "src/new.rs"),
        ] {
            assert_eq!(
                resolved(&root.join(spelt), LINKS),
                root.join(meant),
                "{spelt}"
            );
        }
        let _ = resolved(&root.join("loop/a"), LINKS);
    }

    #[test]
    fn a_path_survives_its_pattern() {
        for path in ["a", "a b", "src/[id].ts", "a\\b", "{x},*?!", "a\\\\*"] {
            let pattern = tenure_core::PathPattern::exactly(path).unwrap();
            assert_eq!(unescaped(pattern.as_str()), path);
        }
    }
}
