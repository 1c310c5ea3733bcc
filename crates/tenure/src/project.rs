//! Finding and making the `.tenure` folder: [`Project`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::open::StoreUrl;

/// The folder's name.
pub const FOLDER: &str = ".tenure";

/// The database's name, inside the folder.
const DATABASE: &str = "tenure.db";

/// Only what people write is for the repository; the rest belongs to this machine.
const GITIGNORE: &str = "# Written by tenure init: locks are never shared through git.\n*\n!.gitignore\n!config.yaml\n!tasks.jsonl\n";

/// Both sides of a merge of the shared tasks are kept: whoever reads the file makes one of the two.
const GITATTRIBUTES: &str = "tasks.jsonl merge=union\n";

/// A project: the folder that holds `.tenure`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    root: PathBuf,
}

impl Project {
    /// The project that `from` is in, found by walking up as git does. The folder of that name in
    /// somebody's `home` holds settings; it is a project only if it was made one.
    pub fn find(from: &Path, home: Option<&Path>) -> Option<Self> {
        let is_project = |root: &&Path| {
            let folder = root.join(FOLDER);
            folder.is_dir()
                && (folder.join(DATABASE).exists() || !home.is_some_and(|home| is_same(home, root)))
        };
        from.ancestors().find(is_project).map(|root| Self {
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
        for (name, text) in [(".gitignore", GITIGNORE), (".gitattributes", GITATTRIBUTES)] {
            let file = project.folder().join(name);
            match fs::File::options().write(true).create_new(true).open(&file) {
                Ok(mut file) => io::Write::write_all(&mut file, text.as_bytes())?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
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
        StoreUrl::Sqlite(self.folder().join(DATABASE))
    }
}

/// Whether two names lead to the same folder: homes are often reached through a link.
fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_found_from_deep_inside_it() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Project::find(dir.path(), None), None);
        Project::init(dir.path()).unwrap();
        let deep = dir.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(Project::find(&deep, None).unwrap().root(), dir.path());
    }

    #[test]
    fn settings_in_a_home_make_no_project() {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().join("work");
        fs::create_dir_all(&work).unwrap();
        fs::create_dir(home.path().join(FOLDER)).unwrap();
        assert_eq!(Project::find(&work, Some(home.path())), None);
        fs::write(home.path().join(FOLDER).join(DATABASE), "").unwrap();
        assert!(Project::find(&work, Some(home.path())).is_some());
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
