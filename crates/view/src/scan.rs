//! Reads folders up to a limit, and says so where it is reached.

use std::fs::{self, DirEntry, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tenure_host::files::look;

/// How many entries of a folder are looked at.
pub(crate) const MOST_ENTRIES: usize = 4096;

/// The entries of a folder; none if it does not exist. If it can't be read, or there are too many, `left_out` says which
/// (`what`) were not looked for.
pub(crate) fn entries(folder: &Path, what: &str, left_out: &mut Vec<String>) -> Vec<DirEntry> {
    let mut rest = read(folder, what, left_out);
    let entries = rest.by_ref().take(MOST_ENTRIES).collect();
    let has_more = rest.next().is_some();
    drop(rest);
    if has_more {
        // Without a slash at the end.
        let folder: PathBuf = folder.components().collect();
        left_out.push(format!(
            "{} has more than {MOST_ENTRIES} entries: {what} beyond them were not looked for",
            folder.display()
        ));
    }
    entries
}

/// The same without a limit.
pub(crate) fn read(
    folder: &Path,
    what: &str,
    left_out: &mut Vec<String>,
) -> impl Iterator<Item = DirEntry> {
    let mut say = move |error: io::Error| {
        left_out.push(format!(
            "{} can't be read ({error}): {what} in it were not looked for",
            folder.display()
        ));
    };
    let entries = fs::read_dir(folder).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => {}
        _ => say(error),
    });
    let entries = entries.into_iter().flatten();
    entries.map_while(move |entry| entry.map_err(&mut say).ok())
}

/// The folders in a folder. A link is not followed, because it may lead back.
pub(crate) fn folders(folder: &Path, what: &str, left_out: &mut Vec<String>) -> Vec<PathBuf> {
    let entries = entries(folder, what, left_out).into_iter();
    let is_folder = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries
        .filter(is_folder)
        .map(|entry| entry.path())
        .collect()
}

/// What is at a path; `None` if nothing is. If that can't be told, `left_out` says so.
pub(crate) fn at(path: &Path, left_out: &mut Vec<String>) -> Option<Metadata> {
    match look::link_at(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotADirectory => None,
        Err(error) => {
            left_out.push(format!("{error}: it may be a lock"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_too_many_entries_is_named_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut left_out = Vec::new();
        for number in 0..MOST_ENTRIES {
            fs::write(dir.path().join(number.to_string()), "").unwrap();
        }
        assert_eq!(entries(dir.path(), "x", &mut left_out).len(), MOST_ENTRIES);
        assert_eq!(left_out, Vec::<String>::new());
        fs::write(dir.path().join("one more"), "").unwrap();
        assert_eq!(
            entries(dir.path(), "pid files", &mut left_out).len(),
            MOST_ENTRIES
        );
        assert!(left_out[0].contains("pid files beyond"), "{left_out:?}");
    }
}
