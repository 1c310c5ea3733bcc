//! Where a board is: [`Board`].
//!
//! | layout | board | lock |
//! |---|---|---|
//! | installed | `.bilu/board` | `.bilu/storage/lock` |
//! | repository | `src/board` | `src/board/storage/lock` |
//! | named by hand | `DIR` | as above: `../storage/lock` if it is the `board` of a `.bilu`, else `DIR/storage/lock` |

use std::io;
use std::path::{Path, PathBuf};

/// A board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board(PathBuf);

impl Board {
    /// The board of the folder `from`, or of the nearest folder above it that has one.
    pub fn find(from: &Path) -> Option<Self> {
        let places = |root: &Path| [root.join(".bilu/board"), root.join("src/board")];
        from.ancestors()
            .flat_map(places)
            .find(|board| board.is_dir())
            .and_then(|board| Self::at(&board).ok())
    }

    /// The board in this very folder. Whoever comes by a link finds the same one.
    pub fn at(folder: &Path) -> io::Result<Self> {
        let real = folder.canonicalize()?;
        if real.is_dir() {
            Ok(Self(real))
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Where the task files are.
    pub fn tasks(&self) -> PathBuf {
        self.0.join("tasks")
    }

    /// Its settings.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.json")
    }

    /// The index that is made from the tasks.
    pub fn index(&self) -> PathBuf {
        self.0.join("default.json")
    }

    /// The lock that whoever writes anything here holds. It belongs to the installation, wherever the
    /// command is started; this is the only place that knows it.
    pub fn lock(&self) -> PathBuf {
        let installation = self.0.parent().filter(|parent| {
            parent.file_name().is_some_and(|name| name == ".bilu")
                && self.0.file_name().is_some_and(|name| name == "board")
        });
        installation.unwrap_or(&self.0).join("storage/lock")
    }

    /// The link of a task file, as the index has it.
    pub fn link(file: &str) -> String {
        format!("board/tasks/{file}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_nearest_board_upwards_counts_and_the_installed_one_first() {
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
    fn the_lock_is_the_same_however_one_comes_there() {
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
