//! Reads one configuration file, if it exists.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tenure_host::files::beneath;

use super::error::{ConfigError, Location, Problem};
use super::{Assignment, yaml};

/// A complete file in the longest form is about 3 KiB.
const LARGEST: u64 = 64 * 1024;

/// The settings that the file at `path` makes. A file that does not exist makes none.
pub(super) fn read(path: &Path) -> Result<Vec<Assignment>, ConfigError> {
    Ok(match text(path)? {
        Some(text) => yaml::assignments(path, &text)?,
        None => Vec::new(),
    })
}

/// The same for a file of another program, of which only what its protocol documents counts.
pub(super) fn read_documented(path: &Path) -> Result<Vec<Assignment>, ConfigError> {
    Ok(match text(path)? {
        Some(text) => yaml::documented(path, &text)?,
        None => Vec::new(),
    })
}

/// The text of a file, if it exists.
fn text(path: &Path) -> Result<Option<String>, ConfigError> {
    let bytes = match bytes(path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(problem) => return Err(in_file(path, problem)),
    };
    let text = String::from_utf8(bytes).map_err(|_| in_file(path, Problem::NotUtf8))?;
    Ok(Some(text))
}

/// The content of a regular file; `None` if there is none.
pub(super) fn bytes(path: &Path) -> Result<Option<Vec<u8>>, Problem> {
    // People keep their settings elsewhere and link to them.
    let opened = beneath::resolve_file(path)
        .and_then(|path| beneath::open(&path, OFlags::RDONLY, Mode::empty()));
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(Problem::Unreadable(error)),
    };
    let kind = file.metadata().map_err(Problem::Unreadable)?.file_type();
    if kind.is_dir() {
        return Err(Problem::NotAFile("a directory"));
    }
    if !kind.is_file() {
        return Err(Problem::NotAFile("a pipe, socket or device"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(Problem::Unreadable)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Problem::TooLarge(LARGEST / 1024));
    }
    Ok(Some(bytes))
}

/// `HOME` is `/dev/null` for many services: that is a home folder without a configuration, too.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn in_file(path: &Path, problem: Problem) -> ConfigError {
    ConfigError {
        location: Location::File(path.to_owned()),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refusal(path: &Path) -> String {
        let error = read(path).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        error
    }

    #[test]
    fn a_file_that_does_not_exist_makes_no_settings() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(&folder.path().join("config.yaml")).unwrap().is_empty());
    }

    #[test]
    fn a_home_that_is_not_a_folder_has_no_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inside = file.path().join(".tenure/config.yaml");
        assert!(read(&inside).unwrap().is_empty());
    }

    #[test]
    fn a_directory_in_place_of_the_file_is_named_as_such() {
        let folder = tempfile::tempdir().unwrap();
        assert!(refusal(folder.path()).contains("it is a directory"));
    }

    #[cfg(unix)]
    #[test]
    fn a_device_in_place_of_the_file_is_refused_without_being_read() {
        assert!(refusal(Path::new("/dev/zero")).contains("device"));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        fs::write(&path, b"locking:\n  taskTimeout: \xff\xfe\n").unwrap();
        assert!(refusal(&path).contains("not UTF-8"));
    }

    #[test]
    fn a_file_larger_than_any_configuration_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        fs::write(&path, "#".repeat(64 * 1024)).unwrap();
        assert!(read(&path).unwrap().is_empty());
        fs::write(&path, "#".repeat(64 * 1024 + 1)).unwrap();
        assert!(refusal(&path).contains("larger than 64 KiB"));
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_may_not_be_read_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        // Even root cannot read a link to itself.
        std::os::unix::fs::symlink(&path, &path).unwrap();
        assert!(refusal(&path).contains("cannot read this configuration file"));
    }
}
