//! Where the files of a board are: [`Board`].
//!
//! | layout | board | lock |
//! |---|---|---|
//! | installed | `.bilu/board` | `.bilu/storage/lock` |
//! | repository | `src/board` | `src/board/storage/lock` |
//! | `--dir DIR` | `DIR` | `DIR/../storage/lock` if `DIR` is `.bilu/board`, otherwise `DIR/storage/lock` |

use std::io;
use std::path::{Path, PathBuf};

/// A board, by its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board(PathBuf);

impl Board {
    /// Finds the board of `from` or of the nearest folder above it.
    pub fn find(from: &Path) -> Option<Self> {
        let candidates = |root: &Path| [root.join(".bilu/board"), root.join("src/board")];
        from.ancestors()
            .flat_map(candidates)
            .find(|board| board.is_dir())
            .and_then(|board| Self::at(&board).ok())
    }

    /// The board in this folder. Symbolic links are resolved, so that every path leads to the same lock.
    pub fn at(folder: &Path) -> io::Result<Self> {
        let real = folder.canonicalize()?;
        if real.is_dir() {
            Ok(Self(real))
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// The folder of the board.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// The folder of the task files.
    pub fn tasks(&self) -> PathBuf {
        self.0.join("tasks")
    }

    /// The configuration file.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.json")
    }

    /// The index, which is derived from the task files.
    pub fn index(&self) -> PathBuf {
        self.0.join("default.json")
    }

    /// The lock that every writer holds. It belongs to the installation, not to the current folder. No
    /// other code computes this path, so all commands agree on it.
    pub fn lock(&self) -> PathBuf {
        let installation = self.0.parent().filter(|parent| {
            parent.file_name().is_some_and(|name| name == ".bilu")
                && self.0.file_name().is_some_and(|name| name == "board")
        });
        installation.unwrap_or(&self.0).join("storage/lock")
    }

    /// The link to a task file, as it is written in the index.
    pub fn link(file: &str) -> String {
        format!("board/tasks/{file}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_nearest_board_is_found_and_the_installed_one_comes_first() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        assert_eq!(Board::find(&root.join("src")), None);
        fs::create_dir_all(root.join("src/board/tasks")).unwrap();
        let found = |from: &str| Board::find(&root.join(from)).unwrap();
        assert_eq!(found("src/board/tasks").folder(), root.join("src/board"));
        assert_eq!(found("").lock(), root.join("src/board/storage/lock"));
        fs::create_dir_all(root.join(".bilu/board")).unwrap();
        assert_eq!(found("src/board/tasks").folder(), root.join(".bilu/board"));
        fs::create_dir_all(root.join("sub/.bilu/board")).unwrap();
        assert_eq!(found("sub").lock(), root.join("sub/.bilu/storage/lock"));
    }

    #[test]
    fn the_lock_is_the_same_through_a_symbolic_link() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".bilu/board")).unwrap();
        std::os::unix::fs::symlink(root.join(".bilu/board"), root.join("link")).unwrap();
        let by_link = Board::at(&root.join("link")).unwrap();
        assert_eq!(by_link.lock(), root.join(".bilu/storage/lock"));
        assert_eq!(Board::find(&root).unwrap(), by_link);
        assert!(Board::at(&root.join("nothing")).is_err());
    }
}
