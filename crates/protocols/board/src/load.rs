//! Finding and reading task files: [`load()`], [`find_task`].
//!
//! Task files are the regular files in `tasks/` whose names end with `.md`. They are ordered as the bilu tool
//! orders them: by the number that the name begins with, written with at least six digits, then by name;
//! names without a number count as 999999.

use std::fs;
use std::path::{Path, PathBuf};

use tenure_host::files::beneath;

use crate::config::Config;
use crate::document::Document;
use crate::location::Board;
use crate::task::Task;
use crate::{BoardError, unreadable};

/// A task file and its content.
#[derive(Debug)]
pub struct TaskFile {
    /// The name of the file, without `.md`.
    pub id: String,
    /// The file.
    pub path: PathBuf,
    /// The content.
    pub bytes: Vec<u8>,
}

impl TaskFile {
    /// Parses it.
    pub fn document(&self) -> Document<'_> {
        Document::parse(&self.bytes)
    }
}

/// All task files of a board.
#[derive(Debug)]
pub struct TaskFiles {
    /// The files that could be read, in order.
    pub files: Vec<TaskFile>,
    /// Files whose name is not UTF-8 and so is no id.
    pub badly_named: Vec<PathBuf>,
    /// Files that can't be read, and why.
    pub unreadable: Vec<(PathBuf, std::io::Error)>,
}

/// The names of the task files of a board.
#[derive(Debug, Default)]
pub struct TaskFileNames {
    /// The ids, in order.
    pub ids: Vec<String>,
    /// Files whose name is not UTF-8 and so is no id.
    pub badly_named: Vec<PathBuf>,
}

/// Lists the task files.
pub fn names(board: &Board) -> Result<TaskFileNames, BoardError> {
    let folder = board.tasks();
    let mut found = TaskFileNames::default();
    beneath::must_not_be_link(&folder).map_err(unreadable(&folder))?;
    for entry in fs::read_dir(&folder).map_err(unreadable(&folder))? {
        let entry = entry.map_err(unreadable(&folder))?;
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let name = entry.file_name();
        let Some(id) = name.as_encoded_bytes().strip_suffix(b".md") else {
            continue;
        };
        match str::from_utf8(id) {
            Ok(id) => found.ids.push(id.to_owned()),
            Err(_) => found.badly_named.push(entry.path()),
        }
    }
    found.ids.sort_by_cached_key(|id| order(id));
    found.badly_named.sort();
    Ok(found)
}

/// Reads all task files. A file that is removed meanwhile is left out.
pub fn load(board: &Board) -> Result<TaskFiles, BoardError> {
    let TaskFileNames { ids, badly_named } = names(board)?;
    let folder = board.tasks();
    let mut files = Vec::with_capacity(ids.len());
    let mut unreadable = Vec::new();
    for id in ids {
        let path = folder.join(format!("{id}.md"));
        match crate::read_file(&path) {
            Ok(bytes) => files.push(TaskFile { id, path, bytes }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => unreadable.push((path, error)),
        }
    }
    Ok(TaskFiles {
        files,
        badly_named,
        unreadable,
    })
}

/// Reads all tasks. A file that can't be read or has no id is an error, so that no caller takes the rest for
/// all.
pub fn tasks(board: &Board, config: &Config) -> Result<Vec<Task>, BoardError> {
    let mut loaded = load(board)?;
    if let Some((path, error)) = loaded.unreadable.pop() {
        return Err(BoardError::Unreadable { path, error });
    }
    match loaded.badly_named.pop() {
        Some(path) => Err(BoardError::BadName(path)),
        None => Ok(loaded.tasks(config)),
    }
}

impl TaskFiles {
    /// The tasks that the files describe.
    pub fn tasks(&self, config: &Config) -> Vec<Task> {
        let read = |file: &TaskFile| Task::read(&file.path, &file.id, &file.document(), config);
        self.files.iter().map(read).collect()
    }
}

/// The key by which the ids are sorted: the number with at least six digits, as text, then the file name.
fn order(id: &str) -> (String, String) {
    let digits = id.bytes().take_while(u8::is_ascii_digit).count();
    let number = match id.get(..digits).unwrap_or_default() {
        "" => "999999",
        digits => digits.trim_start_matches('0'),
    };
    (format!("{number:0>6}"), format!("{id}.md"))
}

/// The result of [`find_task`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Lookup {
    /// One task: its id and its file.
    One(String, PathBuf),
    /// No task matches.
    NotFound,
    /// The ids of several tasks begin with the text.
    Ambiguous(Vec<String>),
}

/// Finds a task by its id, its file, or whole words at the beginning of its id that no other id has: a part of a word
/// may have meant a task that was deleted, as 1 in the place of 10. The folder is listed only if no file has that very
/// name.
pub fn find_task(board: &Board, wanted: &str) -> Result<Lookup, BoardError> {
    let id = crate::task::id_of(wanted);
    let file = |id: &str| board.tasks().join(format!("{id}.md"));
    let is_name = !id.is_empty() && Path::new(id).file_name() == Some(id.as_ref());
    if is_name
        && file(id)
            .symlink_metadata()
            .is_ok_and(|there| there.is_file())
    {
        return Ok(Lookup::One(id.to_owned(), file(id)));
    }
    let TaskFileNames { ids, badly_named } = names(board)?;
    let may_be_meant = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(id.as_bytes())
    };
    if let Some(path) = badly_named.into_iter().find(may_be_meant) {
        return Err(BoardError::BadName(path));
    }
    let mut matching: Vec<String> = ids
        .into_iter()
        .filter(|known| known.starts_with(id))
        .collect();
    let is_cut = |known: &String| {
        let rest = known.strip_prefix(id).unwrap_or_default();
        rest.starts_with(char::is_alphanumeric)
    };
    Ok(match (matching.pop(), matching.is_empty()) {
        (None, _) => Lookup::NotFound,
        (Some(_), _) if id.is_empty() => Lookup::NotFound,
        (Some(only), true) if is_cut(&only) => Lookup::NotFound,
        (Some(only), true) => {
            let path = file(&only);
            Lookup::One(only, path)
        }
        (Some(last), false) => {
            matching.push(last);
            Lookup::Ambiguous(matching)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(files: &[&str]) -> (tempfile::TempDir, Board) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tasks")).unwrap();
        for file in files {
            fs::write(dir.path().join("tasks").join(file), "# T\n").unwrap();
        }
        let board = Board::at(dir.path()).unwrap();
        (dir, board)
    }

    #[test]
    fn task_files_are_ordered_by_number_and_other_files_are_left_out() {
        let files = [
            "10-b.md",
            "2-a.md",
            "x.md",
            "02-a.md",
            ".2-a.md",
            "1234567.md",
            "2.txt",
            ".1.md.tenure-tmp",
        ];
        let (_dir, board) = board(&files);
        fs::create_dir(board.tasks().join("1.md")).unwrap();
        let found = names(&board).unwrap();
        let ids = ["02-a", "2-a", "10-b", "1234567", ".2-a", "x"];
        assert_eq!(found.ids, ids);
        assert!(found.badly_named.is_empty());
    }

    #[test]
    fn a_task_is_found_by_id_file_link_and_prefix() {
        let (_dir, board) = board(&["01-a.md", "01-ab.md", "02-c.md"]);
        let found = |wanted: &str| match find_task(&board, wanted).unwrap() {
            Lookup::One(id, path) => {
                assert!(path.is_file());
                id
            }
            Lookup::NotFound => "nothing".into(),
            Lookup::Ambiguous(ids) => ids.join(" or "),
        };
        assert_eq!(found("01-a"), "01-a");
        assert_eq!(found("board/tasks/01-a.md"), "01-a");
        assert_eq!(found("02"), "02-c");
        assert_eq!(found("01"), "01-a or 01-ab");
        assert_eq!(found("03"), "nothing");
        assert_eq!(found(""), "nothing");
        assert_eq!(found("../tasks/01-a"), "01-a");
        assert_eq!(found(".."), "nothing");
    }
}
