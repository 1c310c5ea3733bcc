//! Finding and making the `.tenure` folder: [`Project`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::open::StoreUrl;

/// The folder's name.
pub const FOLDER: &str = ".tenure";

/// Only what people write is for the repository; the rest belongs to this machine.
const GITIGNORE: &str = "# Written by tenure init: locks are never shared through git.\n*\n!.gitignore\n!config.yaml\n!tasks.jsonl\n";

/// A project: the folder that holds `.tenure`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    root: PathBuf,
}

impl Project {
    /// The project that `from` is in, found by walking up as git does.
    pub fn find(from: &Path) -> Option<Self> {
        from.ancestors()
            .find(|folder| folder.join(FOLDER).is_dir())
            .map(|root| Self {
                root: root.to_owned(),
            })
    }

    /// Makes `root` a project. What is there already is left as it is, so that running it again
    /// is harmless. Tells whether the folder is new.
    pub fn init(root: &Path) -> io::Result<(Self, bool)> {
        let project = Self {
            root: root.to_owned(),
        };
        let new = match fs::create_dir(project.folder()) {
            Ok(()) => true,
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && project.folder().is_dir() =>
            {
                false
            }
            Err(error) => return Err(error),
        };
        let ignore = project.folder().join(".gitignore");
        match fs::File::options()
            .write(true)
            .create_new(true)
            .open(&ignore)
        {
            Ok(mut file) => io::Write::write_all(&mut file, GITIGNORE.as_bytes())?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok((project, new))
    }

    /// The folder that holds `.tenure`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The `.tenure` folder.
    pub fn folder(&self) -> PathBuf {
        self.root.join(FOLDER)
    }

    /// Its store, unless another is named.
    pub fn store(&self) -> StoreUrl {
        StoreUrl::Sqlite(self.folder().join("tenure.db"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_found_from_deep_inside_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Project::find(dir.path()), None);
        Project::init(dir.path()).unwrap();
        let deep = dir.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(Project::find(&deep).unwrap().root(), dir.path());
    }

    #[test]
    fn making_it_again_keeps_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let (project, new) = Project::init(dir.path()).unwrap();
        assert!(new);
        let ignore = project.folder().join(".gitignore");
        fs::write(&ignore, "mine").unwrap();
        assert!(!Project::init(dir.path()).unwrap().1);
        assert_eq!(fs::read_to_string(&ignore).unwrap(), "mine");
    }

    #[test]
    fn a_file_in_its_place_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FOLDER), "").unwrap();
        assert!(Project::init(dir.path()).is_err());
    }
}
