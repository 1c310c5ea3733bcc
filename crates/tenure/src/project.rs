//! Finding and creating a project, and listing its stores: [`Project`].
//!
//! All worktrees of a git repository are one project: that of the main worktree. A repository that is bare
//! and only has linked worktrees keeps it in its common directory. `.tenure` holds what belongs to the work tree; the
//! database, and all else that belongs to this machine, is in [`Project::state`].

mod state;
mod work_tree;
mod worktree;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tenure_board::Board;
use tenure_host::files::atomic::{self, PutResult};
use tenure_host::files::beneath;
use tenure_host::files::look;
use tenure_host::files::permissions::create_folder;

use self::worktree::{SharedPlace, Top, top};
#[cfg(feature = "config")]
use crate::config::{Config, ConfigError};
use crate::open::StoreUrl;

#[cfg(feature = "config")]
pub(crate) use self::state::OpenStore;
pub use self::work_tree::{BadPath, Target, WorkTree};
pub use self::worktree::ProjectError;

/// The folder's name.
pub const FOLDER: &str = ".tenure";

/// The database's name, inside the folder.
const DATABASE: &str = "tenure.db";

/// The name of the file with the settings, inside the folder.
const SETTINGS: &str = "config.yaml";

/// The name of the file that keeps the folder out of git.
const GITIGNORE: &str = ".gitignore";

/// Only settings belong in the repository. The file ignores itself, too.
const IGNORED: &str = "# Written by tenure: this folder belongs to one machine, except the settings.\n*\n!config.yaml\n";

/// What earlier versions wrote, which let more be committed.
const IGNORED_EARLIER: &str = "# Written by tenure init: locks are never shared through git.\n*\n!.gitignore\n!config.yaml\n!tasks.jsonl\n";

/// The folder of another tool whose exclusive lock is honoured, too.
const BEADS: &str = ".beads";

/// The boards that a project may have, seen from its root: the installed one, then the repository's.
const BOARDS: [&str; 2] = [".bilu/board", "src/board"];

/// The folder of another tool, and its lock database in it.
const STEROIDS_FOLDER: &str = ".steroids";
const STEROIDS: &str = "steroids.db";

/// A project: the folder that contains `.tenure`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    root: PathBuf,
    worktree: Option<PathBuf>,
    state: PathBuf,
}

impl Project {
    /// The project that `from` is in, found by walking up as git does. The `.tenure` folder in `home`
    /// holds the user's settings; it makes a project only if it has a database, too. A project whose `.tenure` was deleted
    /// is found by its [`state`](Self::state).
    ///
    /// A folder of a linked git worktree belongs to the project of the same folder in the main worktree. A
    /// `.tenure` in the linked worktree, which may be checked out there for its `config.yaml`, only says that
    /// there is a project: its folder in the main worktree need not exist yet ([`Self::create`]).
    ///
    /// What can't be looked at on the way is an error: without it, a project could be taken for another one, or for none.
    pub fn find(from: &Path, home: Option<&Path>) -> Result<Option<Self>, ProjectError> {
        let from = &without_links(from);
        // The folders whose repository is not known yet.
        let mut below = Vec::new();
        for folder in from.ancestors() {
            below.push(folder);
            match top(folder)? {
                Top::No => {}
                Top::Own(common) => {
                    let mut repository = RepositoryStates::of(common.as_deref());
                    for root in below.drain(..) {
                        let within = root.strip_prefix(folder).unwrap_or(root);
                        let project = Self::new(root.to_owned(), None, common.as_deref(), within);
                        if project.is_marked(home)? || repository.has(&project, within) {
                            return Ok(Some(project));
                        }
                    }
                }
                Top::Linked(shared) => {
                    let mut repository = RepositoryStates::of(shared.common.as_deref());
                    for linked in below.drain(..) {
                        let within = linked.strip_prefix(folder).unwrap_or(linked);
                        let project = Self::linked(&shared, within, linked);
                        let checked_out = Self::new(linked.to_owned(), None, None, within);
                        if project.is_marked(home)?
                            || checked_out.is_marked(home)?
                            || repository.has(&project, within)
                        {
                            return Ok(Some(project));
                        }
                    }
                    let above = shared.path.ancestors().skip(1);
                    for root in above {
                        let project = Self::at(root)?;
                        if project.is_marked(home)? {
                            return Ok(Some(project));
                        }
                    }
                }
            }
        }
        for root in below {
            let project = Self::new(root.to_owned(), None, None, Path::new(""));
            if project.is_marked(home)? {
                return Ok(Some(project));
            }
        }
        Ok(None)
    }

    /// The project of this very folder, whether or not it exists: in a linked git worktree, that of the same
    /// folder in the main worktree.
    pub fn at(folder: &Path) -> Result<Self, ProjectError> {
        let folder = &without_links(folder);
        for above in folder.ancestors() {
            let within = folder.strip_prefix(above).unwrap_or(folder);
            match top(above)? {
                Top::No => {}
                Top::Own(common) => {
                    return Ok(Self::new(folder.clone(), None, common.as_deref(), within));
                }
                Top::Linked(shared) => return Ok(Self::linked(&shared, within, folder)),
            }
        }
        Ok(Self::new(folder.clone(), None, None, folder))
    }

    /// The project in the folder `within` of a work tree with this common directory.
    fn new(root: PathBuf, worktree: Option<PathBuf>, common: Option<&Path>, within: &Path) -> Self {
        let state = match common {
            Some(common) => state::place(common, within),
            None => root.join(FOLDER),
        };
        Self {
            root,
            worktree,
            state,
        }
    }

    /// The project of the folder `linked` of a linked worktree.
    fn linked(shared: &SharedPlace, within: &Path, linked: &Path) -> Self {
        let worktree = Some(linked.to_owned());
        let common = shared.common.as_deref();
        Self::new(shared.of(within), worktree, common, within)
    }

    /// Whether a `.tenure` says that this is a project.
    fn is_marked(&self, home: Option<&Path>) -> io::Result<bool> {
        let has_folder = match look::is_folder(&self.folder()) {
            // Nothing is in a file.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => false,
            found => found?,
        };
        Ok(has_folder && (!home.is_some_and(|home| is_same(home, &self.root)) || self.has_store()))
    }

    /// Makes `root` a project ([`Self::at`]), and tells whether its folder is new. Files that exist are left
    /// alone, so that running this again is harmless.
    pub fn init(root: &Path) -> io::Result<(Self, bool)> {
        let project = Self::at(root).map_err(io::Error::other)?;
        let new = project.create()?;
        project.create_state()?;
        Ok((project, new))
    }

    /// Creates the `.tenure` folder if it does not exist, and tells whether it did not.
    pub fn create(&self) -> io::Result<bool> {
        let new = !self.folder().is_dir() && create_folder(&self.folder())?;
        let ignored = self.ignore();
        if new && ignored.is_err() {
            // An empty folder would make a project of everything around. It stays if another process uses it.
            let _ = fs::remove_dir(self.folder());
        }
        ignored.map(|()| new)
    }

    /// The database that an earlier version made in the linked worktree where the project was found, if there
    /// is one. It is not used.
    pub fn unused_store(&self) -> Option<StoreUrl> {
        let path = self.worktree.as_ref()?.join(FOLDER).join(DATABASE);
        path.is_file().then_some(StoreUrl::Sqlite(path))
    }

    /// The folder with the project's `config.yaml`: `.tenure`, or if it has none, that of the linked worktree
    /// where the project was found.
    pub fn settings_folder(&self) -> PathBuf {
        let own = self.folder();
        let linked = self.worktree.as_ref().map(|linked| linked.join(FOLDER));
        // Settings that can't be looked at are there: reading them tells why.
        match linked.filter(|linked| look::may_be_there(&linked.join(SETTINGS))) {
            Some(linked) if !look::may_be_there(&own.join(SETTINGS)) => linked,
            _ => own,
        }
    }

    /// The settings of a command in this project. `home` is the user's home folder.
    #[cfg(feature = "config")]
    pub fn config(&self, home: Option<&Path>) -> Result<Config, ConfigError> {
        Config::load(home, Some(&self.settings_folder()))
    }

    /// The settings of work that no command asked for, which is the daemon's. All worktrees have the same tasks, so
    /// these are shared only if the settings of no worktree forbid it.
    #[cfg(feature = "config")]
    pub fn background_config(&self, home: Option<&Path>) -> Result<Config, ConfigError> {
        let mut config = self.config(home)?;
        if look::may_be_there(&self.folder().join(SETTINGS)) {
            return Ok(config);
        }
        for worktree in worktree::linked(&self.root) {
            let folder = worktree.join(FOLDER);
            if look::may_be_there(&folder.join(SETTINGS)) {
                config.sync.enabled &= Config::load(home, Some(&folder))?.sync.enabled;
            }
        }
        Ok(config)
    }

    /// The folder where the project was found: its root, or the same folder of a linked worktree.
    pub fn found_in(&self) -> &Path {
        self.worktree.as_deref().unwrap_or(&self.root)
    }

    /// Whether the project was found from a linked git worktree, whose repository it belongs to.
    pub fn is_shared(&self) -> bool {
        self.worktree.is_some()
    }

    /// Makes sure that git ignores the folder: writes its `.gitignore` if that is missing or empty. The
    /// file appears whole or not at all.
    pub fn ignore(&self) -> io::Result<()> {
        let path = self.folder().join(GITIGNORE);
        match fs::symlink_metadata(&path) {
            Ok(file) if file.is_file() && file.len() == 0 => atomic::unlink(&path)?,
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let temp = path.with_extension(std::process::id().to_string());
        // Another process may be doing the same.
        let (PutResult::Done | PutResult::Occupied) =
            atomic::create(&path, &temp, IGNORED.as_bytes())?;
        // The folder is new, or git cleaned it.
        self.refuse_earlier_versions()
    }

    /// Whether the `.gitignore` is that of an earlier version. It shows in git, if it was not committed.
    pub fn has_earlier_ignore(&self) -> bool {
        let path = self.folder().join(GITIGNORE);
        beneath::read(&path, 4096).is_ok_and(|text| text == IGNORED_EARLIER.as_bytes())
    }

    /// Replaces the `.gitignore` of an earlier version.
    pub fn renew_ignore(&self) -> io::Result<()> {
        let path = self.folder().join(GITIGNORE);
        let temp = path.with_extension(std::process::id().to_string());
        atomic::replace(&path, &temp, IGNORED.as_bytes(), atomic::Durability::Crash)
    }

    /// The folder that contains `.tenure`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The `.tenure` folder.
    pub fn folder(&self) -> PathBuf {
        self.root.join(FOLDER)
    }

    /// The folders in which an exclusive lock of this project may appear, in the order in which they are
    /// checked: `.tenure`, then `.beads`. They need not exist.
    pub fn exclusive_lock_folders(&self) -> [PathBuf; 2] {
        [self.folder(), self.root.join(BEADS)]
    }

    /// The folders that may be boards: the installed one, then the repository's.
    pub fn board_folders(&self) -> [PathBuf; 2] {
        BOARDS.map(|board| self.root.join(board))
    }

    /// The stores that are in this project now, in this order:
    ///
    /// 1. the project's own database, if it was created already ([`StoreRole::Own`]);
    /// 2. the exclusive locks of `.tenure` and `.beads` ([`StoreRole::ExclusiveLock`]);
    /// 3. the locks of the boards in `.bilu/board` and `src/board`, both of one that has two
    ///    ([`StoreRole::BoardLock`]);
    /// 4. the ledger in the root ([`StoreRole::Ledger`]);
    /// 5. the database `.steroids/steroids.db` of another program ([`StoreRole::OtherProgram`]).
    ///
    /// A store is listed if the folder or database that it belongs to exists, whether or not it holds any
    /// lease; and if it can't be told whether it exists, because opening the store tells why. This looks at paths only: it
    /// opens no store, and creates and writes nothing.
    ///
    /// ```
    /// use tenure::project::{Project, StoreRole};
    ///
    /// let dir = tempfile::tempdir().unwrap();
    /// let (project, _) = Project::init(dir.path()).unwrap();
    /// let roles: Vec<StoreRole> = project.stores().iter().map(|store| store.role).collect();
    /// assert_eq!(roles, [StoreRole::ExclusiveLock]);
    /// ```
    pub fn stores(&self) -> Vec<ProjectStore> {
        let mut stores = Vec::new();
        let mut add = |role, url| stores.push(ProjectStore { role, url });
        if self.has_store() {
            add(StoreRole::Own, self.store());
        }
        for folder in self.exclusive_lock_folders() {
            if look::may_be_folder(&folder) {
                add(StoreRole::ExclusiveLock, StoreUrl::Exclusive(folder));
            }
        }
        for board in self.board_folders() {
            for lock in Board::locks_in(&board) {
                add(StoreRole::BoardLock, StoreUrl::Mkdir(lock));
            }
        }
        if is_ledger(&self.root).unwrap_or(true) {
            add(StoreRole::Ledger, StoreUrl::Ledger(self.root.clone()));
        }
        let steroids = self.root.join(STEROIDS_FOLDER);
        let database = steroids.join(STEROIDS);
        if look::may_be_folder(&steroids) && look::may_be_there(&database) {
            add(StoreRole::OtherProgram, StoreUrl::Steroids(database));
        }
        stores
    }
}

/// Whether a folder is the root of a ledger. A project may have some in folders of its root.
pub fn is_ledger(root: &Path) -> io::Result<bool> {
    Ok(look::is_folder(&root.join("ledger"))? && look::is_file(&root.join("meta.json"))?)
}

/// A store that was found in a project.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProjectStore {
    /// What the store is to the project.
    pub role: StoreRole,
    /// How to open it.
    pub url: StoreUrl,
}

/// What a store is to its project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreRole {
    /// The project's own database.
    Own,
    /// The exclusive lock of a folder, for which the daemon skips its cycles.
    ExclusiveLock,
    /// The lock of a task board.
    BoardLock,
    /// The claims of the project's event ledger.
    Ledger,
    /// The lock tables of another program. Nothing is written there unless a user names it.
    OtherProgram,
    /// Not in the project: the caller named it, for example on a server.
    Chosen,
}

impl StoreRole {
    /// The word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::ExclusiveLock => "exclusive_lock",
            Self::BoardLock => "board_lock",
            Self::Ledger => "ledger",
            Self::OtherProgram => "other_program",
            Self::Chosen => "chosen",
        }
    }
}

/// Where projects of a repository may have their state.
struct RepositoryStates<'a> {
    common: Option<&'a Path>,
    /// Whether folders below the top may have one.
    has_folders: Option<bool>,
}

impl<'a> RepositoryStates<'a> {
    fn of(common: Option<&'a Path>) -> Self {
        Self {
            common,
            has_folders: None,
        }
    }

    /// Whether the project in the folder `within` of the work tree has a database in the repository.
    fn has(&mut self, project: &Project, within: &Path) -> bool {
        let Some(common) = self.common else {
            return false;
        };
        let is_top = within.as_os_str().is_empty();
        let has_folders = &mut self.has_folders;
        (is_top || *has_folders.get_or_insert_with(|| state::has_folders(common)))
            && project.has_database()
    }
}

/// The path without links: the state of a project is found by its place in the work tree. The kernel names the current
/// folder without links, so that one need not be examined.
fn without_links(path: &Path) -> PathBuf {
    match std::env::current_dir() {
        Ok(here) if here == path => here,
        _ => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
    }
}

/// Whether two paths lead to the same folder: home folders are often reached through a link.
fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_project_is_found_from_deep_inside_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Project::find(dir.path(), None).unwrap().is_none());
        Project::init(dir.path()).unwrap();
        let deep = dir.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        let found = Project::find(&deep, None).unwrap().unwrap();
        assert_eq!(found.root(), dir.path());
    }

    #[test]
    fn settings_in_a_home_folder_make_no_project() {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().join("work");
        fs::create_dir_all(&work).unwrap();
        fs::create_dir(home.path().join(FOLDER)).unwrap();
        let find = || Project::find(&work, Some(home.path())).unwrap();
        assert_eq!(find(), None);
        fs::write(home.path().join(FOLDER).join(DATABASE), "").unwrap();
        assert!(find().is_some());
    }

    #[test]
    fn init_leaves_existing_files_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (project, new) = Project::init(dir.path()).unwrap();
        assert!(new);
        let ignore = project.folder().join(".gitignore");
        fs::write(&ignore, "mine").unwrap();
        assert!(!Project::init(dir.path()).unwrap().1);
        assert_eq!(fs::read_to_string(&ignore).unwrap(), "mine");
    }

    #[test]
    fn a_gitignore_that_is_missing_or_empty_is_repaired() {
        let dir = tempfile::tempdir().unwrap();
        let (project, _) = Project::init(dir.path()).unwrap();
        let ignore = project.folder().join(GITIGNORE);
        let whole = fs::read_to_string(&ignore).unwrap();
        assert!(whole.ends_with("*\n!config.yaml\n"), "{whole}");
        fs::write(&ignore, "").unwrap();
        project.ignore().unwrap();
        assert_eq!(fs::read_to_string(&ignore).unwrap(), whole);
        fs::remove_file(&ignore).unwrap();
        project.ignore().unwrap();
        assert_eq!(fs::read_to_string(&ignore).unwrap(), whole);
    }

    #[test]
    fn init_fails_if_a_file_has_the_folders_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FOLDER), "").unwrap();
        assert!(Project::init(dir.path()).is_err());
    }

    /// All paths below a folder, sorted.
    fn tree(folder: &Path) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                paths.extend(tree(&path));
            }
            paths.push(path);
        }
        paths.sort();
        paths
    }

    #[test]
    fn all_stores_are_listed_in_order_and_nothing_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let root = &dir.path().canonicalize().unwrap();
        let (project, _) = Project::init(root).unwrap();
        for folder in [
            ".beads",
            ".bilu/board",
            "src/board/storage",
            "src/storage",
            "ledger",
            ".steroids",
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in [".tenure/tenure.db", "meta.json", ".steroids/steroids.db"] {
            fs::write(root.join(file), "").unwrap();
        }
        let before = tree(root);
        let found: Vec<(StoreRole, String)> = project
            .stores()
            .into_iter()
            .map(|store| (store.role, store.url.to_string()))
            .collect();
        let at = |scheme: &str, path: &str| format!("{scheme}:{}", root.join(path).display());
        assert_eq!(
            found,
            [
                (StoreRole::Own, at("sqlite", ".tenure/tenure.db")),
                (StoreRole::ExclusiveLock, at("exclusive", ".tenure")),
                (StoreRole::ExclusiveLock, at("exclusive", ".beads")),
                (StoreRole::BoardLock, at("mkdir", ".bilu/storage/lock")),
                // Programs may use either, so both are looked at.
                (StoreRole::BoardLock, at("mkdir", "src/storage/lock")),
                (StoreRole::BoardLock, at("mkdir", "src/board/storage/lock")),
                (
                    StoreRole::Ledger,
                    StoreUrl::Ledger(root.to_owned()).to_string()
                ),
                (
                    StoreRole::OtherProgram,
                    at("steroids", ".steroids/steroids.db")
                ),
            ]
        );
        assert_eq!(tree(root), before);
    }

    #[test]
    fn half_a_ledger_and_a_file_named_like_a_board_are_no_stores() {
        let dir = tempfile::tempdir().unwrap();
        let (project, _) = Project::init(dir.path()).unwrap();
        fs::create_dir(dir.path().join("ledger")).unwrap();
        fs::create_dir(dir.path().join("src")).unwrap();
        fs::write(dir.path().join("src/board"), "").unwrap();
        let stores = project.stores();
        assert_eq!(stores.len(), 1, "{stores:?}");
        assert_eq!(stores[0].role, StoreRole::ExclusiveLock);
    }
}
