//! Where the files of a board are: [`Board`].
//!
//! The lock is the folder `lock` in the storage folder that the tools of the board use. ROOT is the folder that
//! holds the board: `.bilu` (installed), `src` (repository), or another one with the bilu tool in it.
//!
//! | what exists | storage folder |
//! |---|---|
//! | `ROOT/storage` | `ROOT/storage` |
//! | `ROOT/board/storage` only | `ROOT/board/storage` |
//! | neither | `ROOT/storage` |
//! | both, installed | `ROOT/storage` |
//! | both, otherwise | none: the bilu tool uses the first and the protocol names the second, so [`Board::lock`] refuses to choose |
//!
//! A board without such a ROOT, which `--dir` can name, has its storage folder inside.

use std::io;
use std::path::{Path, PathBuf};

use tenure_host::files::{beneath, look};

use crate::BoardError;

/// The name of the folder that holds the lock.
const STORAGE: &str = "storage";
/// The name of the lock in it.
const LOCK: &str = "lock";

/// How a board is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Installation {
    /// In `.bilu`, beside the tool.
    Installed,
    /// In a source tree.
    Repository,
}

/// A board, by its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board(PathBuf);

impl Board {
    /// Finds the board of `from` or of the nearest folder above it.
    pub fn find(from: &Path) -> Option<io::Result<Self>> {
        let candidates = |root: &Path| [root.join(".bilu/board"), root.join("src/board")];
        from.ancestors()
            .flat_map(candidates)
            .find(|board| look::may_be_folder(board))
            .map(|board| Self::at(&board).map_err(|error| look::unreadable(&board, &error)))
    }

    /// The board in this folder. Symbolic links are resolved, so that every path leads to the same lock; one that another
    /// user may have put there is refused.
    pub fn at(folder: &Path) -> io::Result<Self> {
        let real = beneath::resolve(folder)?;
        if real.is_dir() {
            Ok(Self(real))
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// Every folder that a program may use as the lock of a board in this folder; none if no board is there. Of a folder that
    /// can't be looked at it is the usual one: opening it tells why.
    pub fn locks_in(folder: &Path) -> Vec<PathBuf> {
        match Self::at(folder) {
            Ok(board) => board.locks(),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Vec::new(),
                _ => Self(folder.to_owned()).locks(),
            },
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
    pub fn lock(&self) -> Result<PathBuf, BoardError> {
        match self.storages().as_slice() {
            [root, board, ..] => Err(BoardError::TwoStorages {
                root: root.clone(),
                board: board.clone(),
            }),
            [only] => Ok(only.join(LOCK)),
            [] => Ok(self.0.join(STORAGE).join(LOCK)),
        }
    }

    /// Every folder that a program may use as the lock of this board: one, or two that contradict.
    pub fn locks(&self) -> Vec<PathBuf> {
        let storages = self.storages().into_iter();
        storages.map(|storage| storage.join(LOCK)).collect()
    }

    /// The storage folders in use.
    fn storages(&self) -> Vec<PathBuf> {
        let inside = self.0.join(STORAGE);
        let Some((layout, root)) = self.root() else {
            return vec![inside];
        };
        let beside = root.join(STORAGE);
        match (beside.canonicalize(), inside.canonicalize()) {
            (Ok(real), Ok(other))
                if layout == Installation::Repository
                    && real != other
                    && real.is_dir()
                    && other.is_dir() =>
            {
                vec![beside, inside]
            }
            (Err(error), Ok(other))
                if error.kind() == io::ErrorKind::NotFound && other.is_dir() =>
            {
                vec![inside]
            }
            _ => vec![beside],
        }
    }

    /// The folder that holds the board and its tools.
    fn root(&self) -> Option<(Installation, &Path)> {
        if self.0.file_name()? != "board" {
            return None;
        }
        let root = self.0.parent()?;
        let is_repository =
            root.file_name()? == "src" || root.join("cli/commands/board.sh").is_file();
        if root.file_name()? == ".bilu" {
            Some((Installation::Installed, root))
        } else {
            is_repository.then_some((Installation::Repository, root))
        }
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
        assert!(Board::find(&root.join("src")).is_none());
        fs::create_dir_all(root.join("src/board/tasks")).unwrap();
        let found = |from: &str| Board::find(&root.join(from)).unwrap().unwrap();
        assert_eq!(found("src/board/tasks").folder(), root.join("src/board"));
        assert_eq!(found("").lock().unwrap(), root.join("src/storage/lock"));
        fs::create_dir_all(root.join(".bilu/board")).unwrap();
        assert_eq!(found("src/board/tasks").folder(), root.join(".bilu/board"));
        fs::create_dir_all(root.join("sub/.bilu/board")).unwrap();
        let lock = found("sub").lock().unwrap();
        assert_eq!(lock, root.join("sub/.bilu/storage/lock"));
    }

    #[test]
    fn the_lock_is_the_same_through_a_symbolic_link() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join(".bilu/board")).unwrap();
        std::os::unix::fs::symlink(root.join(".bilu/board"), root.join("link")).unwrap();
        let by_link = Board::at(&root.join("link")).unwrap();
        assert_eq!(by_link.lock().unwrap(), root.join(".bilu/storage/lock"));
        assert_eq!(Board::find(&root).unwrap().unwrap(), by_link);
        assert!(Board::at(&root.join("nothing")).is_err());
    }

    #[test]
    fn the_lock_is_in_the_storage_folder_that_the_tools_of_the_board_use() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("src/board", &[], &["src/storage/lock"]),
            ("src/board", &["src/storage"], &["src/storage/lock"]),
            (
                "src/board",
                &["src/board/storage"],
                &["src/board/storage/lock"],
            ),
            (
                "src/board",
                &["src/board/storage", "src/storage"],
                &["src/storage/lock", "src/board/storage/lock"],
            ),
            (".bilu/board", &[], &[".bilu/storage/lock"]),
            (
                ".bilu/board",
                &[".bilu/board/storage"],
                &[".bilu/board/storage/lock"],
            ),
            (
                ".bilu/board",
                &[".bilu/board/storage", ".bilu/storage"],
                &[".bilu/storage/lock"],
            ),
            ("board", &[], &["board/storage/lock"]),
            ("board", &["storage"], &["board/storage/lock"]),
            (
                "board",
                &["cli/commands/board.sh/"],
                &["board/storage/lock"],
            ),
            ("src/tasks", &["src/storage"], &["src/tasks/storage/lock"]),
        ];
        for (board, folders, locks) in cases {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path().canonicalize().unwrap();
            for folder in [board].into_iter().chain(*folders) {
                fs::create_dir_all(root.join(folder)).unwrap();
            }
            let board = Board::at(&root.join(board)).unwrap();
            let expected: Vec<PathBuf> = locks.iter().map(|lock| root.join(lock)).collect();
            assert_eq!(board.locks(), expected, "{folders:?}");
            match board.lock() {
                Ok(lock) => assert_eq!([lock].as_slice(), expected),
                Err(error) => {
                    assert_eq!(expected.len(), 2);
                    assert!(error.to_string().contains("src/board/storage"), "{error}");
                }
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("board")).unwrap();
        fs::create_dir_all(root.join("cli/commands")).unwrap();
        fs::write(root.join("cli/commands/board.sh"), "").unwrap();
        let board = Board::at(&root.join("board")).unwrap();
        assert_eq!(board.lock().unwrap(), root.join("storage/lock"));
        // Two names of one folder are one lock.
        fs::create_dir_all(root.join("storage")).unwrap();
        std::os::unix::fs::symlink("../storage", root.join("board/storage")).unwrap();
        assert_eq!(board.lock().unwrap(), root.join("storage/lock"));
    }
}
