//! Where the paths of reservations begin, and what a caller's path is from there: [`WorkTree`].

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use tenure_core::{BadPattern, Mode, PathPattern, Places};
use tenure_host::files::look;

use super::Project;
use super::worktree::{Top, ignores_case, top};

/// Why a caller's path or pattern names nothing that can be reserved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadPath {
    /// It is not in the repository.
    #[error("{} is outside of {}: only what is in it can be reserved", path.display(), root.display())]
    Outside {
        /// The path.
        path: PathBuf,
        /// The top of the work tree.
        root: PathBuf,
    },
    /// It is no pattern.
    #[error("{:?}: {why}", text.to_string_lossy())]
    Pattern {
        /// The text, cut off if it is long.
        text: OsString,
        /// What is wrong with it.
        why: BadPattern,
    },
    /// It can't be looked at.
    #[error("{} can't be looked at: {error}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// A work tree of a repository, and a folder in it. Every spelling of a file becomes one path: relative to the top of the
/// work tree, without `.`, `..` and symbolic links. All worktrees of a repository have the same paths. Where git's
/// `core.ignorecase` is set, a name that exists in another case is that of the existing file or folder.
///
/// Bytes of a name that are not UTF-8 become U+FFFD. Two such names may be taken for the same file.
#[derive(Debug)]
pub struct WorkTree {
    root: PathBuf,
    here: PathBuf,
    /// The top of the work tree of each folder that was looked at.
    tops: RefCell<HashMap<PathBuf, PathBuf>>,
    /// What each folder is without symbolic links, if it exists.
    folders: RefCell<HashMap<PathBuf, Option<PathBuf>>>,
    /// Whether the file system ignores case, if that was asked for.
    ignores_case: OnceCell<bool>,
    /// The names in each folder that was listed for that, by what they are in lower case.
    listed: RefCell<HashMap<PathBuf, HashMap<String, Vec<OsString>>>>,
}

impl WorkTree {
    /// The work tree that `from` is in: the worktree of the repository, or the project's root if that is above the
    /// repository or there is none. `None` if there is neither a repository nor a project.
    pub fn find(from: &Path, project: Option<&Project>) -> io::Result<Option<Self>> {
        let real = |path: &Path| {
            let real = path.canonicalize();
            real.map_err(|error| look::unreadable(path, &error))
        };
        let here = real(from)?;
        let limit = project.map(|project| real(&project.root)).transpose()?;
        let root = top_of(&here, limit.as_deref()).or(limit);
        Ok(root.map(|root| Self {
            root,
            here,
            tops: RefCell::default(),
            folders: RefCell::default(),
            ignores_case: OnceCell::new(),
            listed: RefCell::default(),
        }))
    }

    /// The top of the work tree.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What a file or folder is called in reservations. It need not exist.
    pub fn path(&self, path: &Path) -> Result<String, BadPath> {
        self.name_of(self.find_place(path)?.0)
    }

    /// Where a path leads, without symbolic links, and what is there.
    fn find_place(&self, path: &Path) -> Result<(PathBuf, Option<FileType>), BadPath> {
        let path = self.here.join(path);
        if let (Some(folder), Some(name)) = (path.parent(), path.file_name())
            && let Some(folder) = self.resolved_folder(folder)
        {
            let place = folder.join(name);
            if let Ok(found) = kind_at(&place)
                && !found.is_some_and(|kind| kind.is_symlink())
            {
                return Ok((place, found));
            }
        }
        let (place, _) = resolve(&path)?;
        let found = kind_at(&place).map_err(|error| not_looked_at(&place, error))?;
        Ok((place, found))
    }

    /// An existing folder without symbolic links. Callers ask about many files of few folders.
    fn resolved_folder(&self, folder: &Path) -> Option<PathBuf> {
        let mut folders = self.folders.borrow_mut();
        if let Some(known) = folders.get(folder) {
            return known.clone();
        }
        let found = folder.canonicalize().ok();
        folders.insert(folder.to_owned(), found.clone());
        found
    }

    /// What an existing file or folder is called, or one in an existing folder. Its path has no symbolic links.
    fn name_of(&self, resolved: PathBuf) -> Result<String, BadPath> {
        let parent = resolved.parent().unwrap_or(&resolved);
        let known = self.tops.borrow().get(parent).cloned();
        let root = known.unwrap_or_else(|| {
            // Another worktree of the repository may be inside this one.
            let is_inside = parent.starts_with(&self.root);
            let found = top_of(parent, is_inside.then_some(&self.root));
            let root = found.unwrap_or_else(|| self.root.clone());
            let mut tops = self.tops.borrow_mut();
            tops.insert(parent.to_owned(), root.clone());
            root
        });
        match resolved.strip_prefix(&root) {
            Ok(inside) if root == self.root || self.shares_repository(&root)? => {
                let inside = self.in_its_case(&root, inside);
                let inside = inside.map_err(|error| not_looked_at(&resolved, error))?;
                Ok(inside.to_string_lossy().into_owned())
            }
            _ => Err(BadPath::Outside {
                path: resolved,
                root: self.root.clone(),
            }),
        }
    }

    /// Whether another work tree belongs to the same repository.
    fn shares_repository(&self, other: &Path) -> Result<bool, BadPath> {
        let shared = |folder: &Path| match top(folder) {
            Ok(Top::Linked(shared)) => shared.path.canonicalize().map(Some),
            Ok(Top::Own(_)) => Ok(Some(folder.to_owned())),
            Ok(Top::No) => Ok(None),
            Err(error) => Err(io::Error::other(error)),
        };
        let shared = |folder| shared(folder).map_err(|error| not_looked_at(folder, error));
        let other = shared(other)?;
        Ok(other.is_some() && other == shared(&self.root)?)
    }

    /// A path as the folders list it, where case is ignored. What is not there stays as it is.
    fn in_its_case<'a>(&self, root: &Path, path: &'a Path) -> io::Result<Cow<'a, Path>> {
        let ignores_case = if let Some(known) = self.ignores_case.get() {
            *known
        } else {
            let found = ignores_case(&self.root)?;
            *self.ignores_case.get_or_init(|| found)
        };
        if !ignores_case {
            return Ok(Cow::Borrowed(path));
        }
        let mut listed = self.listed.borrow_mut();
        let mut found = PathBuf::new();
        for name in path {
            let folder = root.join(&found);
            let names = match listed.entry(folder) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let names = names(new.key())?;
                    new.insert(names)
                }
            };
            let alike = names.get(&name.to_string_lossy().to_lowercase());
            let alike = alike.map(Vec::as_slice).unwrap_or_default();
            match alike.first() {
                Some(other) if !alike.iter().any(|it| it == name) => found.push(other),
                _ => found.push(name),
            }
        }
        Ok(Cow::Owned(found))
    }

    /// The pattern that a caller gave, and the path of every link that it goes through: who has reserved a file or a
    /// folder by a link has reserved what the link leads to, and that it leads there.
    pub fn patterns(&self, text: &OsStr) -> Result<Vec<PathPattern>, BadPath> {
        let mut patterns = vec![self.pattern(text)?];
        for link in resolve(&self.here.join(text))?.1 {
            match self.name_of(link) {
                // A link outside of the repository is ignored.
                Err(BadPath::Outside { .. }) => {}
                Err(error) => return Err(error),
                Ok(name) => patterns.extend(PathPattern::file(&name).ok()),
            }
        }
        Ok(patterns)
    }

    /// The pattern that a caller gave, relative to its folder. A text that names an existing file is that file, whatever
    /// its characters mean in a pattern.
    pub fn pattern(&self, text: &OsStr) -> Result<PathPattern, BadPath> {
        let bad = |why| BadPath::Pattern {
            text: OsStr::from_bytes(text.as_bytes().get(..80).unwrap_or(text.as_bytes())).into(),
            why,
        };
        if text.is_empty() {
            return Err(bad(BadPattern::Empty));
        }
        if text.as_bytes().first() == Some(&b'!') {
            return Err(bad(BadPattern::Negated));
        }
        let path = Path::new(text);
        if fs::symlink_metadata(self.here.join(path)).is_ok() {
            let (place, found) = self.find_place(path)?;
            let name = self.name_of(place)?;
            return match name.as_str() {
                "" => PathPattern::parse("**"),
                // What a link leads to may become a folder.
                name if found.is_none_or(|kind| kind.is_dir()) => PathPattern::exactly(name),
                name => PathPattern::file(name),
            }
            .map_err(bad);
        }
        if text.len() > tenure_core::path_pattern::MAX_PATTERN {
            return Err(bad(BadPattern::TooLong(text.len())));
        }
        let has_wildcards = |part: &Component<'_>| {
            let bytes = part.as_os_str().as_bytes();
            bytes.iter().any(|byte| b"*?[{\\".contains(byte))
        };
        let parts: Vec<Component<'_>> = path.components().collect();
        let plain = parts.iter().position(has_wildcards).unwrap_or(parts.len());
        let (folder, rest) = parts.split_at_checked(plain).unwrap_or((&parts, &[]));
        let folder = self.path(&folder.iter().collect::<PathBuf>())?;
        let mut rest = rest.iter().collect::<PathBuf>();
        if text.as_bytes().ends_with(b"/") {
            rest.push("");
        }
        let rest = rest.to_string_lossy();
        let pattern = match (folder.as_str(), &*rest) {
            ("", "") => PathPattern::parse("**"),
            (_, "") if names_file(text) => PathPattern::file(&folder),
            (_, "") => PathPattern::exactly(&folder),
            ("", rest) => PathPattern::parse(rest),
            (_, rest) => PathPattern::exactly(&folder)
                .and_then(|folder| PathPattern::parse(&format!("{folder}/{rest}"))),
        };
        pattern.map_err(bad)
    }

    /// What a caller asks about: an existing folder with everything in it, or else a file.
    pub fn target(&self, path: &Path) -> Result<Target, BadPath> {
        if path.as_os_str().is_empty() {
            let (text, why) = (path.into(), BadPattern::Empty);
            return Err(BadPath::Pattern { text, why });
        }
        let (place, found) = self.find_place(path)?;
        let is_folder =
            found.is_some_and(|kind| kind.is_dir()) || path.as_os_str().as_bytes().ends_with(b"/");
        let name = self.name_of(place)?;
        let folder = match name.as_str() {
            "" => PathPattern::parse("**").ok(),
            // What can't be reserved itself can be in what is reserved.
            name if is_folder => PathPattern::exactly(name).ok(),
            _ => None,
        };
        Ok(Target { name, folder })
    }
}

/// What is at a place; `None` if nothing is.
fn kind_at(place: &Path) -> io::Result<Option<FileType>> {
    match fs::symlink_metadata(place) {
        Ok(there) => Ok(Some(there.file_type())),
        Err(error) if is_nothing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file or a folder that a caller asks about.
#[derive(Debug, Clone)]
pub struct Target {
    name: String,
    folder: Option<PathPattern>,
}

impl Target {
    /// The file that has this name in reservations.
    pub fn file(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            folder: None,
        }
    }

    /// What it is called in reservations; `.` for the top of the work tree.
    pub fn name(&self) -> &str {
        match self.name.as_str() {
            "" => ".",
            name => name,
        }
    }

    /// Whether a holder in this mode has reserved the file, or something in the folder.
    pub fn is_reserved_by(&self, mode: &Mode) -> bool {
        mode.paths().is_none_or(|paths| match &self.folder {
            Some(folder) => paths.overlap(folder).is_some(),
            None => paths.covers(&self.name).is_some(),
        })
    }

    /// Adds the places of reservations that the file, or something in the folder, can be in.
    pub fn add_to(&self, places: &mut Places) {
        match &self.folder {
            Some(folder) => places.add_pattern(folder),
            None => places.add_file(&self.name),
        }
    }

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.folder.is_some()
    }
}

/// The names in a folder, by what they are in lower case.
fn names(folder: &Path) -> io::Result<HashMap<String, Vec<OsString>>> {
    let mut names: HashMap<String, Vec<OsString>> = HashMap::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if is_nothing(&error) => return Ok(names),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let lower = name.to_string_lossy().to_lowercase();
        names.entry(lower).or_default().push(name);
    }
    Ok(names)
}

/// Whether a name that does not exist is that of a file: it has an extension, and no `/` at the end.
fn names_file(text: &OsStr) -> bool {
    let extension = Path::new(text).extension();
    extension.is_some_and(|extension| !extension.is_empty()) && !text.as_bytes().ends_with(b"/")
}

/// The top of the work tree that a folder is in. A repository below `limit` that is no linked worktree, such as a
/// submodule, belongs to what `limit` is in.
fn top_of(folder: &Path, limit: Option<&Path>) -> Option<PathBuf> {
    folder
        .ancestors()
        .find(|folder| match top(folder) {
            Ok(Top::Linked(_)) | Err(_) => true,
            Ok(Top::Own(_)) => limit.is_none_or(|limit| limit.starts_with(folder)),
            Ok(Top::No) => false,
        })
        .map(Path::to_owned)
}

/// Whether nothing is at a path: the name is missing, or a file is in the place of a folder.
fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// A path that can't be looked at.
fn not_looked_at(path: &Path, error: io::Error) -> BadPath {
    let path = path.to_owned();
    BadPath::Io { path, error }
}

/// How many links are followed, as in the kernel.
const MOST_LINKS: usize = 40;

/// What the kernel says of a file that is no link, and of a name that no file can have.
const NO_LINK: io::ErrorKind = io::ErrorKind::InvalidInput;
const LONG: io::ErrorKind = io::ErrorKind::InvalidFilename;

/// The path without `.`, `..` and symbolic links, also those that lead to nothing yet; and every link that it goes through,
/// without links in its own path. What is missing is no link.
fn resolve(path: &Path) -> Result<(PathBuf, Vec<PathBuf>), BadPath> {
    let mut links = Vec::new();
    let mut place = PathBuf::new();
    let mut left = path.to_owned();
    while let Some(part) = left.components().next() {
        let rest = left.components().skip(1).collect::<PathBuf>();
        left = match part {
            Component::CurDir => rest,
            Component::ParentDir => {
                place.pop();
                rest
            }
            part => {
                place.push(part);
                match fs::read_link(&place) {
                    Ok(_) if links.len() == MOST_LINKS => {
                        let error = rustix::io::Errno::LOOP.into();
                        return Err(not_looked_at(path, error));
                    }
                    Ok(target) => {
                        links.push(place.clone());
                        place.pop();
                        target.join(rest)
                    }
                    // It is no link, or a pattern longer than any name.
                    Err(error) if matches!(error.kind(), NO_LINK | LONG) || is_nothing(&error) => {
                        rest
                    }
                    Err(error) => return Err(not_looked_at(path, error)),
                }
            }
        };
    }
    Ok((place, links))
}
