//! git's lock files. git creates `X.lock`, writes the new content of `X` into it and renames it; or removes it.
//! Meanwhile it may have closed the file, for example while an editor or a hook runs.

use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};

use tenure::wire::{Connection, ForeignProcessJson};
use tenure_git::folder::{self, LARGEST};
use tenure_host::files::beneath::read_following;
use tenure_host::files::look;

use super::{Candidate, ForeignVerdict, Tool};
use crate::processes::{Processes, Seen};
use crate::scan::{self, MOST_ENTRIES};

/// How many entries of `refs` are looked at in each repository.
const MOST_REFS: usize = 20_000;

/// How deep modules are nested at most.
const DEEPEST: usize = 8;

/// A repository, with its linked worktrees and submodules.
#[derive(Debug)]
pub(super) struct GitFolders {
    /// The folders that a git process of this repository works in.
    places: Vec<PathBuf>,
    /// The git folders in which there may be locks.
    folders: Vec<PathBuf>,
}

impl GitFolders {
    /// The repository that a folder is in.
    pub(super) fn of(root: &Path, left_out: &mut Vec<String>) -> Option<Self> {
        let mut above = root.ancestors();
        let found = above.find_map(|folder| Some((folder, git_folder(folder).transpose()?)));
        let (top, own) = match found? {
            (top, Ok(own)) => (top, own),
            (_, Err(error)) => {
                left_out.push(format!("{error}: locks of git were not looked for"));
                return None;
            }
        };
        let common = match folder::common(&own) {
            Ok(common) => common,
            Err(error) if error.kind() == io::ErrorKind::NotFound => own.clone(),
            Err(error) => {
                let error = look::unreadable(&own.join("commondir"), &error);
                left_out.push(format!(
                    "{error}: locks of its repository were not looked for"
                ));
                own.clone()
            }
        };
        let common = common.canonicalize().unwrap_or(common);
        let own = own.canonicalize().unwrap_or(own);
        let mut repository = Self {
            places: vec![top.canonicalize().unwrap_or_else(|_| top.to_owned())],
            folders: vec![common.clone()],
        };
        repository.places.push(common.clone());
        if own != common {
            repository.folders.push(own);
        }
        for worktree in subfolders(&common.join("worktrees"), left_out) {
            match folder::entry_of(&worktree) {
                Ok(entry) => repository.places.extend(entry.parent().map(Path::to_owned)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // It may be anywhere.
                Err(_) => repository.places.push(PathBuf::from("/")),
            }
            if !repository.folders.contains(&worktree) {
                repository.folders.push(worktree);
            }
        }
        let folders = &mut repository.folders;
        modules(&common.join("modules"), DEEPEST, folders, left_out);
        match unabsorbed(top) {
            Ok(more) => folders.extend(more),
            Err(error) => left_out.push(format!("{error}: locks of submodules may be missing")),
        }
        Some(repository)
    }

    /// The lock files that are there now.
    pub(super) fn candidates(&self, found: &mut Vec<Candidate>, left_out: &mut Vec<String>) {
        for folder in &self.folders {
            let more = [
                "objects/maintenance.lock",
                "objects/info/commit-graph.lock",
                "objects/info/commit-graphs/commit-graph-chain.lock",
                "objects/pack/multi-pack-index.lock",
                "reftable/tables.list.lock",
                "info/sparse-checkout.lock",
            ];
            let entries = scan::entries(folder, "locks", left_out);
            let locks = entries.iter().map(DirEntry::path);
            let locks = locks.filter(|path| is_lock(path));
            let more = more.iter().map(|name| folder.join(name));
            for path in more.chain(locks) {
                found.extend(Candidate::at(Tool::Git, path, left_out));
            }
            found.extend(Candidate::at(
                Tool::PidFile,
                folder.join("gc.pid"),
                left_out,
            ));
            let mut left = MOST_REFS;
            refs(&folder.join("refs"), &mut left, found, left_out);
            if left == 0 {
                left_out.push(format!(
                    "{} has more than {MOST_REFS} entries: locks beyond them were not looked for",
                    folder.join("refs").display()
                ));
            }
        }
    }

    /// Whether a process works in this repository.
    fn is_place_of(&self, process: &Seen) -> bool {
        let folder = process.folder.as_ref();
        let within = folder.is_some_and(|folder| {
            self.places.iter().any(|place| folder.starts_with(place))
                || self.folders.iter().any(|place| folder.starts_with(place))
        });
        // `git --git-dir` from elsewhere.
        within || process.folder.is_none() || process.command.contains("--git-dir")
    }
}

/// The git folder of a worktree or of a bare repository.
fn git_folder(place: &Path) -> io::Result<Option<PathBuf>> {
    if let Some(git) = folder::entry(place)?.folder() {
        return Ok(Some(git));
    }
    let is_bare = look::is_file(&place.join("HEAD"))?
        && look::is_folder(&place.join("objects"))?
        && look::is_folder(&place.join("refs"))?;
    Ok(is_bare.then(|| place.to_owned()))
}

fn is_lock(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "lock")
}

/// The folders in a folder. A link is not followed, because it may lead back.
fn subfolders(folder: &Path, left_out: &mut Vec<String>) -> Vec<PathBuf> {
    let mut folders = scan::folders(folder, "git folders", left_out);
    folders.sort();
    folders
}

/// The git folders of submodules that have them in their own work tree, as older ones do.
fn unabsorbed(top: &Path) -> io::Result<Vec<PathBuf>> {
    let modules = top.join(".gitmodules");
    let text = match read_following(&modules, LARGEST) {
        Ok(text) => String::from_utf8(text).map_err(io::Error::other)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(look::unreadable(&modules, &error)),
    };
    let paths = text.lines().filter_map(|line| {
        let (name, path) = line.split_once('=')?;
        (name.trim() == "path").then(|| path.trim().trim_matches('"'))
    });
    let folders = paths
        .take(MOST_ENTRIES)
        .map(|path| top.join(path).join(".git"));
    Ok(folders
        .filter(|folder| look::may_be_folder(folder))
        .collect())
}

/// The git folders of submodules, whose names may have slashes.
fn modules(folder: &Path, depth: usize, found: &mut Vec<PathBuf>, left_out: &mut Vec<String>) {
    if depth == 0 {
        return;
    }
    for module in subfolders(folder, left_out) {
        if look::may_be_there(&module.join("HEAD")) {
            let inner = module.join("modules");
            found.push(module);
            modules(&inner, depth - 1, found, left_out);
        } else {
            modules(&module, depth - 1, found, left_out);
        }
    }
}

/// The locks of refs, up to a number of entries.
fn refs(folder: &Path, left: &mut usize, found: &mut Vec<Candidate>, left_out: &mut Vec<String>) {
    let mut unread = Vec::new();
    for entry in scan::read(folder, "locks", &mut unread) {
        if *left == 0 {
            return;
        }
        *left -= 1;
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => refs(&entry.path(), left, found, left_out),
            Ok(kind) if kind.is_file() && is_lock(&entry.path()) => {
                found.extend(Candidate::at(Tool::Git, entry.path(), left_out));
            }
            _ => {}
        }
    }
    left_out.append(&mut unread);
}

/// Whether it is a process of git: `git`, `git-remote-https`, and the like.
fn is_git(process: &Seen) -> bool {
    process.program == "git" || process.program.starts_with("git-")
}

pub(super) fn judge(
    repository: &GitFolders,
    lock: &Candidate,
    processes: &Processes,
) -> (ForeignVerdict, Vec<ForeignProcessJson>) {
    let open = processes.having_open(&lock.path, lock.file);
    if let Some(first) = open.first() {
        let why = format!("pid {} has it open", first.pid);
        let by = open.iter().map(|seen| seen.connected(Connection::Open));
        return (ForeignVerdict::Alive(why), by.collect());
    }
    let may_have_made = |seen: &&Seen| {
        is_git(seen)
            && (seen.uid == lock.owner || lock.owner == 0 || seen.uid == 0)
            && lock.since.is_none_or(|since| seen.may_have_made(since))
            && repository.is_place_of(seen)
    };
    let likely: Vec<&Seen> = processes.all.iter().filter(may_have_made).collect();
    if let Some(first) = likely.first() {
        let why = format!(
            "a git process works in this repository (pid {}) and may hold it, although it does not have it open",
            first.pid
        );
        let by = likely.iter().map(|seen| seen.connected(Connection::Likely));
        return (ForeignVerdict::Unknown(why), by.collect());
    }
    let owners = processes.all.iter().filter(|seen| seen.uid == lock.owner);
    let hidden = owners.filter(|seen| !seen.readable).count();
    let verdict = if hidden > 0 {
        ForeignVerdict::Unknown(format!(
            "no git process is seen here, but {hidden} processes of its owner can't be examined by this user"
        ))
    } else if processes.are_all() {
        ForeignVerdict::Dead(
            "no process has it open, and no git process works in this repository".to_owned(),
        )
    } else {
        ForeignVerdict::Unknown(
            "no process that is seen here has it open and no git process works here, but not all processes can be seen"
                .to_owned(),
        )
    };
    (verdict, Vec::new())
}
