//! Reads git's own files, without a git process.
//!
//! `GIT_DIR` and `GIT_COMMON_DIR` are ignored: hooks set them, and a hook has to find the same repository as the shell that
//! started it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tenure_host::files::beneath::read_following;
use tenure_host::files::look;

/// The largest file of git's that is read, in bytes.
pub const LARGEST: u64 = 1 << 20;

/// What a folder's `.git` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitEntry {
    /// It is not there.
    Missing,
    /// The folder of git itself. One without `HEAD` is none to git, either: sandboxes of agents leave an empty one behind in
    /// folders that they let commands write.
    Folder(PathBuf),
    /// A link or a file that names the folder of git, which need not exist.
    Link(PathBuf),
    /// Something else, or a link that leads to nothing.
    Other,
}

impl GitEntry {
    /// The folder of git that belongs to the work tree: of a linked worktree, its own.
    pub fn folder(self) -> Option<PathBuf> {
        match self {
            Self::Folder(path) | Self::Link(path) => Some(path),
            Self::Missing | Self::Other => None,
        }
    }
}

/// What a folder's `.git` is.
pub fn entry(folder: &Path) -> io::Result<GitEntry> {
    let entry = folder.join(".git");
    match look::link_at(&entry) {
        Ok(None) => Ok(GitEntry::Missing),
        // Nothing is in a file.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(GitEntry::Missing),
        Err(error) => Err(error),
        Ok(Some(found)) if found.is_dir() => Ok(if look::may_be_there(&entry.join("HEAD")) {
            GitEntry::Folder(entry)
        } else {
            GitEntry::Missing
        }),
        Ok(Some(found)) if found.is_symlink() && look::is_folder(&entry)? => {
            Ok(GitEntry::Link(entry))
        }
        Ok(Some(_)) => match named_in(&entry, b"gitdir: ") {
            Ok(path) => Ok(GitEntry::Link(folder.join(path))),
            Err(error) if names_nothing(&error) => Ok(GitEntry::Other),
            Err(error) => Err(look::unreadable(&entry, &error)),
        },
    }
}

fn names_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidData
    )
}

/// The folder that the worktrees of a repository have in common, as the folder of git of a linked worktree names it. Any
/// other has no such file.
pub fn common(own: &Path) -> io::Result<PathBuf> {
    named_in(&own.join("commondir"), b"").map(|common| own.join(common))
}

/// The `.git` of a linked worktree, as its folder of git names it. The main worktree's has no such file.
pub fn entry_of(own: &Path) -> io::Result<PathBuf> {
    named_in(&own.join("gitdir"), b"").map(|entry| own.join(entry))
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

/// What a repository's `config` says in its section `core`. What it includes is not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Core {
    /// Where the work tree is, as it is written.
    pub worktree: Option<PathBuf>,
    /// Whether there is none.
    pub bare: bool,
    /// Whether the file system of the work tree ignores case.
    pub ignore_case: bool,
    /// Where the hooks are, as it is written.
    pub hooks: Option<PathBuf>,
}

/// What the `config` in a repository's common folder says; nothing if there is none.
pub fn core(common: &Path) -> io::Result<Core> {
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
        let path = || {
            let path = value.unwrap_or_default();
            let path = path.strip_prefix(b"\"").unwrap_or(path);
            let path = path.strip_suffix(b"\"").unwrap_or(path);
            Some(PathBuf::from(OsStr::from_bytes(path)))
        };
        match key.to_ascii_lowercase().as_slice() {
            b"bare" => core.bare = is_set,
            b"ignorecase" => core.ignore_case = is_set,
            b"worktree" => core.worktree = path(),
            b"hookspath" => core.hooks = path(),
            _ => {}
        }
    }
    Ok(core)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_section_core_counts() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(core(place.path()).unwrap(), Core::default());
        let text = "[user]\n\thooksPath = no\n[Core]\n\tbare\n\tIgnoreCase = OFF\n\
                    \tworktree = \"../a b\"\n\tHOOKSPATH = .hooks\n[core \"x\"]\n\tbare = false\n";
        std::fs::write(place.path().join("config"), text).unwrap();
        let expected = Core {
            worktree: Some("../a b".into()),
            bare: true,
            ignore_case: false,
            hooks: Some(".hooks".into()),
        };
        assert_eq!(core(place.path()).unwrap(), expected);
    }

    #[test]
    fn every_kind_of_entry_is_told_from_the_others() {
        let place = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = place.path().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        };
        assert_eq!(entry(&folder("none")).unwrap(), GitEntry::Missing);
        let real = folder("own/.git");
        assert_eq!(entry(&folder("own")).unwrap(), GitEntry::Missing);
        std::fs::write(real.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        assert_eq!(
            entry(&folder("own")).unwrap(),
            GitEntry::Folder(real.clone())
        );
        let linked = folder("linked");
        std::os::unix::fs::symlink(&real, linked.join(".git")).unwrap();
        assert_eq!(entry(&linked).unwrap(), GitEntry::Link(linked.join(".git")));
        let tree = folder("tree");
        std::fs::write(tree.join(".git"), "gitdir: ../own/.git/worktrees/tree\n").unwrap();
        let own = tree.join("../own/.git/worktrees/tree");
        assert_eq!(entry(&tree).unwrap(), GitEntry::Link(own));
        std::fs::write(tree.join(".git"), "something else\n").unwrap();
        assert_eq!(entry(&tree).unwrap(), GitEntry::Other);
        std::fs::remove_file(tree.join(".git")).unwrap();
        std::os::unix::fs::symlink("nowhere", tree.join(".git")).unwrap();
        assert_eq!(entry(&tree).unwrap(), GitEntry::Other);
    }
}
