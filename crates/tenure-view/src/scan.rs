//! Reads folders up to a limit, and says so where it is reached.

use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// How many entries of a folder are looked at.
pub(crate) const MOST_ENTRIES: usize = 4096;

/// The entries of a folder; none if it does not exist. If it can't be read, or there are too many, `left_out` says which
/// (`what`) were not looked for.
pub(crate) fn entries(folder: &Path, what: &str, left_out: &mut Vec<String>) -> Vec<DirEntry> {
    let read = fs::read_dir(folder);
    if let Err(error) = &read
        && !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
    {
        left_out.push(format!(
            "{} can't be read ({error}): {what} in it were not looked for",
            folder.display()
        ));
    }
    let mut rest = read.into_iter().flatten().flatten();
    let entries = rest.by_ref().take(MOST_ENTRIES).collect();
    if rest.next().is_some() {
        // Without a slash at the end.
        let folder: PathBuf = folder.components().collect();
        left_out.push(format!(
            "{} has more than {MOST_ENTRIES} entries: {what} beyond them were not looked for",
            folder.display()
        ));
    }
    entries
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
