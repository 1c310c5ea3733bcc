//! Reading all task files, in order: [`Tasks`].
//!
//! Task files are the plain files in `tasks/` whose names end with `.md` and do not begin with a dot. Their
//! order is that of the number their names begin with, and then of the names; those without one come last.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::document::Document;
use crate::place::Board;
use crate::task::Task;
use crate::{BoardError, unreadable};

/// Where a file without a number stands.
const NO_NUMBER: u64 = 999_999;

/// A task file and what it says.
#[derive(Debug)]
pub struct Loaded {
    /// The name of the file, without `.md`.
    pub id: String,
    /// The file.
    pub path: PathBuf,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Loaded {
    /// Its sections.
    pub fn document(&self) -> Document<'_> {
        Document::parse(&self.bytes)
    }
}

/// All task files of a board.
#[derive(Debug)]
pub struct Tasks {
    /// In order.
    pub files: Vec<Loaded>,
    /// Names that are no text, and so can be no id.
    pub nameless: Vec<PathBuf>,
    /// Files that are there and can't be read, and why.
    pub unreadable: Vec<(PathBuf, std::io::Error)>,
}

/// The names of all task files, in order, and those that are no text.
pub fn names(board: &Board) -> Result<(Vec<String>, Vec<PathBuf>), BoardError> {
    let folder = board.tasks();
    let mut named: Vec<(u64, String)> = Vec::new();
    let mut nameless = Vec::new();
    for entry in fs::read_dir(&folder).map_err(unreadable(&folder))? {
        let entry = entry.map_err(unreadable(&folder))?;
        let name = entry.file_name();
        let bytes = name.as_encoded_bytes();
        let is_task = bytes.ends_with(b".md") && !bytes.starts_with(b".");
        if !is_task || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        match name.into_string() {
            Ok(name) => named.push((number(&name), name)),
            Err(_) => nameless.push(entry.path()),
        }
    }
    named.sort();
    let ids = named
        .into_iter()
        .map(|(_, name)| match name.strip_suffix(".md") {
            Some(id) => id.to_owned(),
            None => name,
        });
    Ok((ids.collect(), nameless))
}

/// Reads all of them. One that was removed meanwhile is not there.
pub fn load(board: &Board) -> Result<Tasks, BoardError> {
    let (ids, nameless) = names(board)?;
    let folder = board.tasks();
    let mut files = Vec::with_capacity(ids.len());
    let mut unreadable = Vec::new();
    for id in ids {
        let path = folder.join(format!("{id}.md"));
        match fs::read(&path) {
            Ok(bytes) => files.push(Loaded { id, path, bytes }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => unreadable.push((path, error)),
        }
    }
    Ok(Tasks {
        files,
        nameless,
        unreadable,
    })
}

/// Reads what all of them say. One that can't be read is an error: nobody should take the rest for all.
pub fn tasks(board: &Board, config: &Config) -> Result<Vec<Task>, BoardError> {
    let mut loaded = load(board)?;
    match loaded.unreadable.pop() {
        Some((path, error)) => Err(BoardError::Unreadable { path, error }),
        None => Ok(loaded.tasks(config)),
    }
}

impl Tasks {
    /// What all of them say.
    pub fn tasks(&self, config: &Config) -> Vec<Task> {
        let read = |file: &Loaded| Task::read(&file.path, &file.id, &file.document(), config);
        self.files.iter().map(read).collect()
    }
}

fn number(name: &str) -> u64 {
    let digits = name.bytes().take_while(u8::is_ascii_digit).count();
    name.get(..digits)
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(NO_NUMBER)
}

/// What came of looking for a task.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Sought {
    /// This one: its id and its file.
    One(String, PathBuf),
    /// None.
    Nothing,
    /// All of these begin like that.
    Several(Vec<String>),
}

/// Looks for the task that somebody means: by its id, its file, or a beginning that only one has. The
/// folder is listed only if it is not the name of a file.
pub fn seek(board: &Board, wanted: &str) -> Result<Sought, BoardError> {
    let id = crate::task::id_of(wanted);
    let file = |id: &str| board.tasks().join(format!("{id}.md"));
    let is_name = !id.is_empty() && !id.starts_with('.') && Path::new(id).components().count() == 1;
    if is_name
        && file(id)
            .symlink_metadata()
            .is_ok_and(|there| there.is_file())
    {
        return Ok(Sought::One(id.to_owned(), file(id)));
    }
    let (ids, _) = names(board)?;
    let mut matching: Vec<String> = ids
        .into_iter()
        .filter(|known| known.starts_with(id))
        .collect();
    Ok(match (matching.pop(), matching.is_empty()) {
        (None, _) => Sought::Nothing,
        (Some(_), _) if id.is_empty() => Sought::Nothing,
        (Some(only), true) => {
            let path = file(&only);
            Sought::One(only, path)
        }
        (Some(last), false) => {
            matching.push(last);
            Sought::Several(matching)
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
    fn files_come_in_the_order_of_their_numbers_and_nothing_else_is_a_task() {
        let files = [
            "10-b.md",
            "2-a.md",
            "x.md",
            "02-a.md",
            ".2-a.md",
            "2.txt",
            ".1.md.tenure-tmp",
        ];
        let (_dir, board) = board(&files);
        fs::create_dir(board.tasks().join("1.md")).unwrap();
        let (ids, nameless) = names(&board).unwrap();
        assert_eq!(ids, ["02-a", "2-a", "10-b", "x"]);
        assert!(nameless.is_empty());
    }

    #[test]
    fn a_task_is_found_by_id_file_link_and_beginning() {
        let (_dir, board) = board(&["01-a.md", "01-ab.md", "02-c.md"]);
        let found = |wanted: &str| match seek(&board, wanted).unwrap() {
            Sought::One(id, path) => {
                assert!(path.is_file());
                id
            }
            Sought::Nothing => "nothing".into(),
            Sought::Several(ids) => ids.join(" or "),
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
