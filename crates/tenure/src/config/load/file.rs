//! Reads one configuration file, if it exists.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tenure_host::files::beneath;

use super::Assignment;
use super::error::{ConfigError, ConfigProblem, Location};

/// A complete file in the longest form is about 3 KiB.
const LARGEST: u64 = 64 * 1024;

/// The settings that the file at `path` makes, as `assignments` finds them in its text. A file that does not exist makes none.
pub(super) fn read(
    path: &Path,
    assignments: fn(&Path, &str) -> Result<Vec<Assignment>, ConfigError>,
) -> Result<Vec<Assignment>, ConfigError> {
    let bytes = bytes(path).map_err(|problem| in_file(path, problem))?;
    let Some(bytes) = bytes else {
        return Ok(Vec::new());
    };
    let text = String::from_utf8(bytes).map_err(|_| in_file(path, ConfigProblem::NotUtf8))?;
    assignments(path, &text)
}

/// The content of a regular file; `None` if there is none.
pub(super) fn bytes(path: &Path) -> Result<Option<Vec<u8>>, ConfigProblem> {
    // People keep their settings elsewhere and link to them.
    let opened = beneath::resolve_file(path)
        .and_then(|path| beneath::open(&path, OFlags::RDONLY, Mode::empty()));
    let file = match opened {
        Ok(file) => file,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(ConfigProblem::Unreadable(error)),
    };
    let kind = file
        .metadata()
        .map_err(ConfigProblem::Unreadable)?
        .file_type();
    if kind.is_dir() {
        return Err(ConfigProblem::NotAFile("a directory"));
    }
    if !kind.is_file() {
        return Err(ConfigProblem::NotAFile("a pipe, socket or device"));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(ConfigProblem::Unreadable)?;
    if bytes.len() as u64 > LARGEST {
        return Err(ConfigProblem::TooLarge(LARGEST / 1024));
    }
    Ok(Some(bytes))
}

/// `HOME` is `/dev/null` for many services: that is a home folder without a configuration, too.
fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn in_file(path: &Path, problem: ConfigProblem) -> ConfigError {
    ConfigError {
        location: Location::File(path.to_owned()),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::yaml;
    use super::*;

    fn read(path: &Path) -> Result<Vec<Assignment>, ConfigError> {
        super::read(path, yaml::assignments)
    }

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
