//! The hooks: [`install`], [`uninstall`] and [`status`].
//!
//! | what is there | where ours go |
//! |---|---|
//! | no hook of that name, and `core.hooksPath` is not set | `hooks/NAME` |
//! | the script of the tool pre-commit | `hooks/NAME.legacy`, which that script runs |
//! | `core.hooksPath` (husky and others), or another hook of that name (lefthook, a person's own) | a folder of our own |
//!
//! The folder of our own, `tenure-guard/hooks` in the repository's common directory, has a script for every hook
//! that git knows. It runs the guard, and then the hook that git would have run: at its own path, so that it finds
//! what is beside it. A file that the repository's configuration includes makes git use the folder; it is the last line, so
//! it stays in effect when another tool sets `core.hooksPath` again, and the scripts follow that setting. A tool that asks
//! git for the folder of hooks gets ours, and may install its own there. [`install`] and [`uninstall`] move them to the
//! folder that they would be in without ours.
//!
//! # Invariants
//!
//! 1. No file of another tool is written or removed, and none is moved but out of our own folder.
//! 2. Killed anywhere, what git runs is either what it was before or all of ours: the line in the configuration is
//!    written last and removed first.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tenure_host::files::atomic::{self, Durability};
use tenure_host::files::{beneath, look};

use super::config;
use super::script::{OWN_FOLDER, Script, is_ours, is_pre_commit, is_strict};
use super::work_tree::here;
use tenure_git::folder::{GitEntry, entry};
use tenure_git::{Git, GitError, lines};

/// The hooks of a repository with a work tree.
const CLIENT: [&str; 5] = [
    "pre-commit",
    "pre-merge-commit",
    "post-commit",
    "post-merge",
    "pre-push",
];

/// The hook that `--no-verify` does not skip.
const STRICT: &str = "reference-transaction";

/// The hook of a bare repository.
const SERVER: &str = "pre-receive";

/// Every other hook that git knows, for the folder of our own.
const OTHERS: [&str; 16] = [
    "applypatch-msg",
    "commit-msg",
    "post-applypatch",
    "post-checkout",
    "post-index-change",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-rebase",
    "prepare-commit-msg",
    "sendemail-validate",
    "update",
    SERVER,
    STRICT,
];

/// Hooks that change what git does by being there, so they are in our folder only if they are in the other one.
const ONLY_IF_THERE: [&str; 2] = ["proc-receive", "push-to-checkout"];

/// The folder with everything of ours, in the repository's common directory, and the files in it that the
/// configuration includes.
const FOLDER: &str = "tenure-guard";
const INCLUDED_LINKED: &str = "config-worktrees";

/// Why hooks were not installed or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// There is no repository.
    #[error("{} is not in a git repository: run git init first, or change to one", .0.display())]
    NoRepository(PathBuf),
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file could not be read or written.
    #[error("{} can't be {what} ({error})", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// What was to be done with it.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
    /// Git's configuration is locked.
    #[error(
        "{}.lock exists: another program is changing git's configuration\n  try again; if no program is, remove that file first",
        .0.display()
    )]
    ConfigLocked(PathBuf),
    /// Two tools have a hook of the same name.
    #[error(
        "{} and {} are hooks of other tools, and only one of them can run\n  remove one of them, then try again",
        one.display(), other.display()
    )]
    TwoHooks {
        /// In our folder.
        one: PathBuf,
        /// In the folder that git uses without ours.
        other: PathBuf,
    },
    /// Another setting wins over ours.
    #[error(
        "git would use the hooks in {} all the same, because core.hooksPath is set for this worktree alone or on git's \
         command line: nothing was installed\n  remove that setting: git config --worktree --unset core.hooksPath",
        .0.display()
    )]
    Overridden(PathBuf),
}

/// A repository, as far as its hooks are concerned.
#[derive(Debug)]
struct HookedRepository {
    git: Git<'static>,
    /// The directory that all its worktrees share.
    common: PathBuf,
    /// The folder that git takes hooks from.
    effective: PathBuf,
    bare: bool,
    /// What `core.hooksPath` says, apart from ours: as it is written.
    configured: Option<PathBuf>,
}

impl HookedRepository {
    fn find(folder: &Path) -> Result<Self, HookError> {
        let git = here(folder);
        let facts = [
            "rev-parse",
            "--path-format=absolute",
            "--is-bare-repository",
            "--git-common-dir",
            "--git-path",
            "hooks",
        ];
        let mut above = folder.ancestors();
        let answer = match git.run(&facts) {
            Err(GitError::Refused { .. })
                if above.all(|it| matches!(entry(it), Ok(GitEntry::Missing))) =>
            {
                return Err(HookError::NoRepository(folder.to_owned()));
            }
            answer => answer?,
        };
        let mut parts = answer.split(|byte| *byte == b'\n').map(<[u8]>::to_vec);
        let bare = parts.next().is_some_and(|word| word == b"true");
        let mut path = || PathBuf::from(OsString::from_vec(parts.next().unwrap_or_default()));
        let (common, effective) = (path(), path());
        let set = git.ask(&[
            "config",
            "--type=path",
            "--null",
            "--get-all",
            "core.hooksPath",
        ])?;
        let set = set.unwrap_or_default();
        let paths = set.split(|byte| *byte == 0).filter(|path| !path.is_empty());
        let configured = paths
            .map(|path| PathBuf::from(OsString::from_vec(path.to_vec())))
            .rfind(|path| !path.ends_with(OWN_FOLDER));
        Ok(Self {
            git,
            common,
            effective,
            bare,
            configured,
        })
    }

    /// The hooks that belong to the guard.
    fn guarded(&self, strict: bool) -> Vec<&'static str> {
        let client = CLIENT.into_iter().chain(strict.then_some(STRICT));
        match self.bare {
            // A bare repository may have worktrees to commit in.
            true if look::may_be_folder(&self.common.join("worktrees")) => {
                client.chain([SERVER]).collect()
            }
            true => vec![SERVER],
            false => client.collect(),
        }
    }

    fn plain(&self) -> PathBuf {
        self.common.join("hooks")
    }

    fn own(&self) -> PathBuf {
        self.common.join(OWN_FOLDER)
    }

    /// The folder that git would take hooks from without ours.
    fn others(&self) -> Result<PathBuf, GitError> {
        Ok(match &self.configured {
            Some(folder) => self.top()?.join(folder),
            None => self.plain(),
        })
    }

    /// The folder that hooks run in.
    fn top(&self) -> Result<PathBuf, GitError> {
        let top = self.git.top()?;
        Ok(top.unwrap_or_else(|| self.common.clone()))
    }

    /// Where the hook of this name goes in the plain folder: `None` if another one is there.
    fn place(&self, name: &str) -> Result<Option<PathBuf>, HookError> {
        let path = self.plain().join(name);
        match kind(&path)? {
            HookKind::Free | HookKind::Ours => Ok(Some(path)),
            HookKind::PreCommit => {
                let legacy = path.with_file_name(format!("{name}.legacy"));
                let usable = matches!(kind(&legacy)?, HookKind::Free | HookKind::Ours);
                Ok(usable.then_some(legacy))
            }
            HookKind::Other => Ok(None),
        }
    }
}

/// What is at the path of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookKind {
    Free,
    Ours,
    PreCommit,
    Other,
}

fn kind(path: &Path) -> Result<HookKind, HookError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HookKind::Free),
        Err(error) => return Err(failed(path, "read", error)),
        // Never through a link: what it leads to is another's.
        Ok(found) if !found.is_file() => return Ok(HookKind::Other),
        Ok(_) => {}
    }
    let text =
        beneath::read_following(path, LARGEST).map_err(|error| failed(path, "read", error))?;
    Ok(if is_ours(&text) {
        HookKind::Ours
    } else if is_pre_commit(&text) {
        HookKind::PreCommit
    } else {
        HookKind::Other
    })
}

fn failed(path: &Path, what: &'static str, error: io::Error) -> HookError {
    HookError::File {
        path: path.to_owned(),
        what,
        error,
    }
}

/// Where the guard's hooks are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The folder that git takes hooks from.
    pub folder: PathBuf,
    /// Each hook that belongs to the guard, and its file; `None` if git does not run it.
    pub hooks: Vec<(&'static str, Option<PathBuf>)>,
    /// The folder whose hooks ours run, too, if ours have a folder of their own.
    pub runs_also: Option<PathBuf>,
}

impl Status {
    /// Whether git runs all hooks of the guard.
    pub fn is_complete(&self) -> bool {
        self.hooks.iter().all(|(_, path)| path.is_some())
    }

    /// Whether git runs at least one of them.
    pub fn is_installed(&self) -> bool {
        self.hooks.iter().any(|(_, path)| path.is_some())
    }
}

/// Installs the hooks, or brings them up to date, and tells whether anything changed. `tenure` is the program that they run.
pub fn install(folder: &Path, tenure: &Path, strict: bool) -> Result<(Status, bool), HookError> {
    let repository = HookedRepository::find(folder)?;
    edit(&repository, config::drop_left_lock)?;
    let guarded = repository.guarded(strict);
    let script = Script { tenure, strict };
    let mut places = Vec::new();
    for name in &guarded {
        places.push(repository.place(name)?);
    }
    let plain: Option<Vec<PathBuf>> = places.into_iter().collect();
    let plain = plain.filter(|_| repository.configured.is_none());
    let mut changed = false;
    if let Some(plain) = &plain {
        for (name, path) in guarded.iter().zip(plain) {
            changed |= write(path, &script.alone(name), EXECUTABLE)?;
        }
    } else {
        changed |= install_own(&repository, &script, &guarded)?;
    }
    let own = plain.is_none();
    changed |= remove(&repository, plain.as_deref().unwrap_or_default(), own)?;
    let repository = HookedRepository::find(folder)?;
    let status = look(&repository, strict)?;
    if !status.is_complete() {
        remove(&repository, &[], false)?;
        return Err(HookError::Overridden(repository.effective));
    }
    Ok((status, changed))
}

/// Writes the folder of our own, and then makes git use it.
fn install_own(
    repository: &HookedRepository,
    script: &Script<'_>,
    guarded: &[&str],
) -> Result<bool, HookError> {
    let (own, others) = (repository.own(), repository.others()?);
    fs::create_dir_all(&own).map_err(|error| failed(&own, "created", error))?;
    let mut changed = hand_back(repository)?;
    let text = script.beside(guarded, repository.configured.as_deref());
    let there = ONLY_IF_THERE
        .into_iter()
        .filter(|name| look::may_be_there(&others.join(name)));
    for name in CLIENT.into_iter().chain(OTHERS).chain(there) {
        changed |= write(&own.join(name), &text, EXECUTABLE)?;
    }
    // Relative where it can be: a repository may be moved, or be at another path in a container.
    let top = repository.top()?;
    let relative = match own.strip_prefix(&top) {
        Ok(relative) if top.join(".git").is_dir() || repository.bare => relative,
        _ => &own,
    };
    let folder = repository.common.join(FOLDER);
    let linked = folder.join(INCLUDED_LINKED);
    changed |= write(&linked, &setting(&own, ""), PLAIN)?;
    // The folder of a linked worktree is elsewhere.
    let otherwise = format!("[includeIf \"gitdir:worktrees/\"]\n\tpath = {INCLUDED_LINKED}\n");
    changed |= write(
        &repository.common.join(config::INCLUDED),
        &setting(relative, &otherwise),
        PLAIN,
    )?;
    // It counts only if it is the last one.
    let is_used = repository.effective.ends_with(OWN_FOLDER);
    if !(is_used && included(repository)?) {
        exclude(repository)?;
        edit(repository, config::include)?;
        changed = true;
    }
    Ok(changed)
}

/// Moves the hooks that other tools installed in our folder to the one that git uses without it. A hook that is there stays
/// under the name `NAME.old`, as those tools do it themselves.
fn hand_back(repository: &HookedRepository) -> Result<bool, HookError> {
    let others = repository.others()?;
    let mut changed = false;
    let entries = fs::read_dir(repository.own()).into_iter().flatten();
    for entry in entries.flatten() {
        let (name, from) = (entry.file_name(), entry.path());
        if is_temporary(&name) {
            continue;
        }
        if kind(&from)? == HookKind::Ours {
            // Renamed to make room for another one.
            if from.extension().is_some() {
                fs::remove_file(&from).map_err(|error| failed(&from, "removed", error))?;
                changed = true;
            }
            continue;
        }
        let to = others.join(&name);
        let read = |path: &Path| beneath::read_following(path, LARGEST).ok();
        let same = || Some(read(&from)? == read(&to)?);
        if same() != Some(true) && !matches!(kind(&to)?, HookKind::Free | HookKind::Ours) {
            let mut old = to.clone().into_os_string();
            old.push(".old");
            if kind(Path::new(&old))? != HookKind::Free {
                return Err(HookError::TwoHooks {
                    one: from,
                    other: to,
                });
            }
            fs::rename(&to, &old).map_err(|error| failed(&to, "renamed", error))?;
        }
        let moved = || match fs::rename(&from, &to) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                fs::copy(&from, &to)?;
                fs::remove_file(&from)
            }
            moved => moved,
        };
        moved().map_err(|error| failed(&from, "moved", error))?;
        changed = true;
    }
    Ok(changed)
}

/// Changes the configuration that all worktrees share.
fn edit<T>(
    repository: &HookedRepository,
    how: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, HookError> {
    let config = repository.common.join("config");
    how(&config).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => HookError::ConfigLocked(config),
        _ => failed(&config, "changed", error),
    })
}

/// Takes the line that makes git use our folder out of the configuration, and tells whether it was there.
fn exclude(repository: &HookedRepository) -> Result<bool, HookError> {
    let mut changed = false;
    while edit(repository, config::exclude)? {
        changed = true;
    }
    // What another program has added to our section stays.
    if included(repository)? {
        let unset = ["config", "--local", "--fixed-value", "--unset-all"];
        let unset = [&unset[..], &["include.path", config::INCLUDED]].concat();
        repository.git.run(&unset)?;
        changed = true;
    }
    Ok(changed)
}

fn included(repository: &HookedRepository) -> Result<bool, HookError> {
    let paths = repository
        .git
        .ask(&["config", "--local", "--get-all", "include.path"])?;
    let paths = lines(&paths.unwrap_or_default());
    Ok(paths.iter().any(|path| path == config::INCLUDED))
}

/// A file for git's configuration.
fn setting(folder: &Path, more: &str) -> Vec<u8> {
    let mut quoted = Vec::new();
    for byte in folder.as_os_str().as_encoded_bytes() {
        if matches!(byte, b'"' | b'\\') {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    [
        b"# Written by tenure guard install.\n[core]\n\thooksPath = \"",
        &quoted[..],
        b"\"\n",
        more.as_bytes(),
    ]
    .concat()
}

/// Removes the hooks, and tells whether there were any.
pub fn uninstall(folder: &Path) -> Result<bool, HookError> {
    let repository = HookedRepository::find(folder)?;
    edit(&repository, config::drop_left_lock)?;
    let changed = remove(&repository, &[], false)?;
    // What an install that was killed had not renamed yet.
    let entries = fs::read_dir(repository.plain())
        .into_iter()
        .flatten()
        .flatten();
    for entry in entries {
        if is_temporary(&entry.file_name()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(changed)
}

/// Removes everything of ours but these files, and the folder of our own unless it is kept.
fn remove(
    repository: &HookedRepository,
    kept: &[PathBuf],
    keep_own: bool,
) -> Result<bool, HookError> {
    let mut changed = false;
    if !keep_own {
        changed |= exclude(repository)?;
        changed |= hand_back(repository)?;
        let folder = repository.common.join(FOLDER);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&folder, "removed", error));
            }
            removed => changed |= removed.is_ok(),
        }
    }
    // Under any name: pre-commit and lefthook rename what they find.
    let plain = fs::read_dir(repository.plain()).into_iter().flatten();
    for path in plain.flatten().map(|entry| entry.path()) {
        if !kept.contains(&path) && kind(&path).is_ok_and(|kind| kind == HookKind::Ours) {
            fs::remove_file(&path).map_err(|error| failed(&path, "removed", error))?;
            changed = true;
        }
    }
    Ok(changed)
}

/// Git's lock of the configuration, if an [`install`] or [`uninstall`] that was killed left it.
pub fn left_lock(folder: &Path) -> Result<Option<PathBuf>, HookError> {
    let repository = HookedRepository::find(folder)?;
    edit(&repository, config::left_lock)
}

/// Removes that lock, and tells whether it was there.
pub fn drop_left_lock(folder: &Path) -> Result<bool, HookError> {
    let repository = HookedRepository::find(folder)?;
    edit(&repository, config::drop_left_lock)
}

/// Where the guard's hooks are.
pub fn status(folder: &Path, strict: bool) -> Result<Status, HookError> {
    look(&HookedRepository::find(folder)?, strict)
}

/// Whether git runs a hook that was installed while the guard was strict.
pub fn are_strict(folder: &Path) -> bool {
    let Ok(repository) = HookedRepository::find(folder) else {
        return false;
    };
    repository.guarded(true).into_iter().any(|name| {
        let path = runs(&repository.effective.join(name)).ok().flatten();
        let text = path.and_then(|path| beneath::read_following(&path, LARGEST).ok());
        text.is_some_and(|text| is_strict(&text))
    })
}

/// The hooks in the folder that git ran one of ours from whose place another tool has taken.
pub fn replaced(folder: &Path) -> Vec<&'static str> {
    let is_replaced = |name: &&str| {
        let path = folder.join(name);
        matches!(kind(&path), Ok(HookKind::Other | HookKind::PreCommit))
            && runs(&path).is_ok_and(|it| it.is_none())
    };
    CLIENT.into_iter().filter(is_replaced).collect()
}

/// The file of ours that git runs for the hook at this path.
fn runs(path: &Path) -> Result<Option<PathBuf>, HookError> {
    let mut legacy = path.as_os_str().to_owned();
    legacy.push(".legacy");
    let legacy = PathBuf::from(legacy);
    Ok(match kind(path)? {
        HookKind::Ours => Some(path.to_owned()),
        HookKind::PreCommit if kind(&legacy)? == HookKind::Ours => Some(legacy),
        _ => None,
    })
}

fn look(repository: &HookedRepository, strict: bool) -> Result<Status, HookError> {
    let mut hooks = Vec::new();
    for name in repository.guarded(strict) {
        hooks.push((name, runs(&repository.effective.join(name))?));
    }
    let is_own = repository.effective.ends_with(OWN_FOLDER);
    Ok(Status {
        folder: repository.effective.clone(),
        hooks,
        runs_also: is_own.then(|| repository.others()).transpose()?,
    })
}

/// Before the pid in the name of a file that is not complete yet.
const TEMPORARY: &str = ".tenure-";

fn is_temporary(name: &OsStr) -> bool {
    let pid = name.to_str().and_then(|name| name.rsplit_once(TEMPORARY));
    pid.is_some_and(|(_, pid)| pid.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The largest hook that is read, in bytes. A larger one is not ours.
const LARGEST: u64 = 64 << 20;

const EXECUTABLE: u32 = 0o755;
const PLAIN: u32 = 0o644;

/// Writes a file that appears whole, and tells whether it has changed.
fn write(path: &Path, text: &[u8], mode: u32) -> Result<bool, HookError> {
    let has_mode = |found: fs::Metadata| found.permissions().mode() & mode == mode;
    let found = beneath::read_following(path, LARGEST);
    if found.is_ok_and(|found| found == text) && fs::metadata(path).is_ok_and(has_mode) {
        return Ok(false);
    }
    let written = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut temp = path.as_os_str().to_owned();
        temp.push(format!("{TEMPORARY}{}", std::process::id()));
        let temp = PathBuf::from(temp);
        // Executable before it has its name: git ignores a hook that is not, with a warning.
        atomic::write(&temp, text, Durability::PowerCut)?;
        fs::set_permissions(&temp, fs::Permissions::from_mode(mode))?;
        fs::rename(&temp, path)
    };
    written().map_err(|error| failed(path, "written", error))?;
    Ok(true)
}
