//! Whether something is at a path: yes, no, or an error.
//!
//! `Path::exists`, `is_dir` and `is_file` answer "no" also where they could not look: in a folder that this user may not
//! search, behind a loop of links, on a disk that fails. An answer about who holds what must not rest on that. Here, only a
//! name that is missing is a "no".

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;

/// What a path leads to; `None` if that does not exist.
pub fn at(path: &Path) -> io::Result<Option<Metadata>> {
    known(path, fs::metadata(path))
}

/// The same, of a link itself.
pub fn link_at(path: &Path) -> io::Result<Option<Metadata>> {
    known(path, fs::symlink_metadata(path))
}

/// Whether a path leads to a folder.
pub fn is_folder(path: &Path) -> io::Result<bool> {
    Ok(at(path)?.is_some_and(|there| there.is_dir()))
}

/// Whether a path leads to a file.
pub fn is_file(path: &Path) -> io::Result<bool> {
    Ok(at(path)?.is_some_and(|there| there.is_file()))
}

/// Whether there is something at a path, or may be. For a caller that opens it next, which tells why it can't be looked at.
pub fn may_be_there(path: &Path) -> bool {
    !matches!(link_at(path), Ok(None))
}

/// The same for a folder.
pub fn may_be_folder(path: &Path) -> bool {
    is_folder(path).unwrap_or(true)
}

/// `found`, with the path in its error.
fn known(path: &Path, found: io::Result<Metadata>) -> io::Result<Option<Metadata>> {
    if_there(found).map_err(|error| unreadable(path, &error))
}

/// The result of using a name; `None` if it is missing.
pub fn if_there<T>(used: io::Result<T>) -> io::Result<Option<T>> {
    match used {
        Ok(there) => Ok(Some(there)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The same error, with the path that can't be looked at.
pub fn unreadable(path: &Path, error: &io::Error) -> io::Error {
    let path = tenure_core::text::flat(&path.to_string_lossy());
    let what = format!("{path} can't be looked at ({error})");
    io::Error::new(error.kind(), what)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_a_missing_name_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "").unwrap();
        symlink("loop", path("loop")).unwrap();
        symlink("gone", path("dangling")).unwrap();
        assert!(is_folder(dir.path()).unwrap() && !is_folder(&path("file")).unwrap());
        assert!(is_file(&path("file")).unwrap() && !is_file(dir.path()).unwrap());
        assert!(at(&path("gone")).unwrap().is_none() && !may_be_there(&path("gone")));
        assert!(at(&path("dangling")).unwrap().is_none() && may_be_there(&path("dangling")));
        for unknown in ["loop/a", "file/a"] {
            let error = at(&path(unknown)).unwrap_err();
            assert!(error.to_string().contains(unknown), "{error}");
            assert!(may_be_there(&path(unknown)) && may_be_folder(&path(unknown)));
        }
        assert!(is_folder(&path("loop")).is_err() && link_at(&path("loop")).is_ok());
    }
}
