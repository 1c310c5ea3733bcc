//! The file systems of the project, tried out; who may write there; and temporary files that killed processes left.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};
use tenure::{Project, StoreUrl};
use tenure_git::folder::{self, GitEntry};
use tenure_host::files::{beneath, look};
use tenure_host::identity;
use tenure_host::record_lock::{RecordLocks, try_record_lock};

use super::{Finding, Remedy};
use crate::overview::Overview;
use crate::scan;

pub(super) fn examine(project: &Project, overview: &Overview, found: &mut Vec<Finding>) {
    let folders = folders(project, overview);
    for folder in &folders {
        match Lockable::at(folder) {
            Some(lockable) => found.extend(try_lock(folder, lockable)),
            // A folder that is not made yet.
            None if matches!(look::at(folder), Ok(None)) => {}
            None => {
                let what = format!("whether locks hold in {} can't be tried", folder.display());
                let why = "nothing in it can be opened or made by this user";
                found.push(Finding::unexamined(what, &why));
            }
        }
        if let Some(kind) = shared_file_system(folder) {
            found.push(
                Finding::note(
                    "network_file_system",
                    format!("{} is on {kind}", folder.display()),
                )
                .seen("locks of processes on this machine were tried")
                .means("Whether a lock reaches other machines depends on how it is mounted there. SQLite's log needs memory that all processes share, which no two machines do: use one machine, or a store on a server.")
                .remedy(Remedy::Advice(
                    "for many machines, use --store etcd://HOST:PORT/PREFIX".into(),
                )),
            );
        }
    }
    read_only(&folders, found);
    leftovers(project, overview, found);
    hooks(project.root(), found);
}

/// The folder with the project's state, and those of the project and its stores that are on another file system.
fn folders(project: &Project, overview: &Overview) -> Vec<PathBuf> {
    let own = project.state().to_owned();
    let device = |folder: &Path| fs::metadata(folder).ok().map(|at| at.dev());
    let mut devices = vec![device(&own)];
    let mut folders = vec![own];
    for store in &overview.stores {
        let folder = match &store.url {
            StoreUrl::Exclusive(folder) => Some(folder.as_path()),
            StoreUrl::Ledger(root) => Some(root.as_path()),
            StoreUrl::Sqlite(path) | StoreUrl::Steroids(path) | StoreUrl::Mkdir(path) => {
                path.parent()
            }
            StoreUrl::Etcd(_) | StoreUrl::Memory => None,
        };
        if let Some(folder) = folder.filter(|folder| look::may_be_folder(folder))
            && !devices.contains(&device(folder))
        {
            devices.push(device(folder));
            folders.push(folder.to_owned());
        }
    }
    folders
}

/// What a lock is tried on.
struct Lockable {
    /// Open twice, because the locks of one open file do not conflict.
    first: File,
    second: File,
    /// On NFS, a lock needs a file that is open for writing, and so do record locks everywhere.
    is_writable: bool,
}

impl Lockable {
    /// A file of ours that no process locks; or else a new one without a name; or else the folder.
    fn at(folder: &Path) -> Option<Self> {
        let ours = folder.join(".gitignore");
        let twice = |path: &Path, write| {
            let open = |how| beneath::open(path, how, Mode::empty()).ok();
            let how = if write { OFlags::RDWR } else { OFlags::RDONLY };
            let is_sound =
                |file: &File| file.metadata().is_ok_and(|at| at.is_file() || at.is_dir());
            Some(Self {
                first: open(how).filter(is_sound)?,
                second: open(how).filter(is_sound)?,
                is_writable: write,
            })
        };
        let nameless = || {
            let mode = Mode::RUSR | Mode::WUSR;
            let file = rustix::fs::open(folder, OFlags::TMPFILE | OFlags::RDWR, mode).ok()?;
            let again = Path::new("/proc/self/fd").join(file.as_raw_fd().to_string());
            let open = || OpenOptions::new().read(true).write(true).open(&again);
            Some(Self {
                first: open().ok()?,
                second: open().ok()?,
                is_writable: true,
            })
        };
        twice(&ours, true)
            .or_else(nameless)
            .or_else(|| twice(&ours, false))
            .or_else(|| twice(folder, false))
    }
}

/// Tries whether a kernel lock keeps a second one out: `flock`, which tenure uses, and then a record lock, which SQLite
/// uses.
fn try_lock(folder: &Path, on: Lockable) -> Option<Finding> {
    let Lockable {
        first,
        second,
        is_writable,
    } = on;
    let is_folder = first.metadata().is_ok_and(|at| at.is_dir());
    let failed = |why: String| {
        Finding::problem(
            "no_locks",
            format!(
                "locks do not hold on the file system of {}",
                folder.display()
            ),
        )
        .seen(why)
        .means("Two processes could be granted the same key. tenure must not be used here.")
        .remedy(Remedy::Advice(
            "move it to a local file system, or use a store on a server".into(),
        ))
    };
    match first.try_lock() {
        Ok(()) => {}
        // Another doctor tries at the same moment: then locks hold.
        Err(TryLockError::WouldBlock) => return None,
        // Some file systems lock only files.
        Err(TryLockError::Error(_)) if is_folder => return None,
        Err(TryLockError::Error(error)) => {
            return Some(failed(format!("a lock can't be taken: {error}")));
        }
    }
    match second.try_lock() {
        Ok(()) => {
            return Some(failed(
                "a second lock on what was locked already was granted".to_owned(),
            ));
        }
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => {
            return Some(failed(format!(
                "a second lock fails in another way: {error}"
            )));
        }
    }
    if !is_writable {
        return None;
    }
    match try_record_lock(&first, &second) {
        RecordLocks::Hold => None,
        RecordLocks::DoNotExclude => Some(failed(
            "a second record lock (fcntl), as SQLite takes them, was granted beside the first"
                .to_owned(),
        )),
        RecordLocks::Fail(error) => Some(failed(format!(
            "a record lock (fcntl), as SQLite takes them, fails: {error}"
        ))),
    }
}

/// Folders in which this user can't write, so that it can only look.
fn read_only(folders: &[PathBuf], found: &mut Vec<Finding>) {
    for folder in folders {
        if rustix::fs::access(folder, Access::WRITE_OK).is_ok() {
            continue;
        }
        let shown = folder.display();
        let at = match look::at(folder) {
            Ok(Some(at)) => at,
            Ok(None) => continue,
            Err(error) => {
                let what = format!("whether this user can write in {shown} can't be told");
                found.push(Finding::unexamined(what, &error));
                continue;
            }
        };
        found.push(
            Finding::note(
                "read_only",
                format!("this user can't write in {shown}, and takes no lock there"),
            )
            .seen(format!(
                "its mode is {:o}, its owner {} and its group {}",
                at.mode() & 0o7777,
                at.uid(),
                at.gid()
            ))
            .means("Every command that only looks works. The others fail.")
            .remedy(Remedy::Advice(format!(
                "if it is to be shared, its owner runs: chgrp -R GROUP {shown} && chmod -R g+rwX {shown}"
            ))),
        );
    }
}

/// The kind of a file system that other machines may reach, too.
fn shared_file_system(folder: &Path) -> Option<&'static str> {
    let at = rustix::fs::statfs(folder).ok()?;
    let magic = u64::try_from(at.f_type).ok()? & 0xffff_ffff;
    Some(match magic {
        0x6969 => "NFS",
        0xff53_4d42 | 0xfe53_4d42 | 0x517b => "a Windows share (SMB)",
        0x0102_1997 => "a 9p file system",
        0x00c3_6400 => "Ceph",
        0x6573_5546 => "a FUSE file system",
        0x786f_4256 => "a shared folder of VirtualBox",
        _ => return None,
    })
}

/// The pid in the name of a temporary file of tenure: `.gitignore.4711`, `.meta-4711.tmp`, or
/// `.01-a.md.4711-0.tenure-tmp`.
fn writer(name: &str) -> Option<u32> {
    let edited = || {
        let (_, end) = name.strip_suffix(".tenure-tmp")?.rsplit_once('.')?;
        end.split_once('-').map(|(pid, _)| pid)
    };
    let made = || name.strip_prefix(".meta-")?.strip_suffix(".tmp");
    let replaced = || name.strip_prefix(".gitignore.");
    let pid = edited().or_else(made).or_else(replaced)?;
    pid.parse().ok()
}

/// Temporary files of processes that have exited.
fn leftovers(project: &Project, overview: &Overview, found: &mut Vec<Finding>) {
    let mut folders = vec![project.folder()];
    if project.state() != project.folder() {
        folders.push(project.state().to_owned());
    }
    for board in project.board_folders() {
        folders.extend([board.join("tasks"), board]);
    }
    folders.extend(overview.stores.iter().filter_map(|store| match &store.url {
        StoreUrl::Ledger(root) => Some(root.clone()),
        _ => None,
    }));
    for folder in folders {
        let mut left_out = Vec::new();
        let entries = scan::entries(&folder, "temporary files", &mut left_out);
        found.extend(
            left_out
                .into_iter()
                .map(|what| Finding::note("left_out", what)),
        );
        for entry in entries {
            let pid = entry.file_name().to_str().and_then(writer);
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            let Some(pid) = pid.filter(|_| is_file) else {
                continue;
            };
            if matches!(identity::start_time(pid), Ok(None)) {
                let path = entry.path();
                found.push(
                    Finding::note(
                        "leftover",
                        format!("{} was left by a killed process", path.display()),
                    )
                    .seen(format!("pid {pid} has exited"))
                    .means("It is never read and only takes up space.")
                    .remedy(Remedy::Remove(path)),
                );
            }
        }
    }
}

/// Hooks that the repository's settings name and that do not exist.
fn hooks(root: &Path, found: &mut Vec<Finding>) {
    // A linked worktree has its hooks from the main one, and a submodule from its own folder.
    let core = match folder::entry(root) {
        Ok(GitEntry::Folder(git)) => folder::core(&git),
        Ok(_) => return,
        Err(error) => Err(error),
    };
    let hooks = match core {
        Ok(core) => core.hooks,
        Err(error) => {
            found.push(Finding::unexamined("git's settings can't be read", &error));
            return;
        }
    };
    if let Some(hooks) = hooks
        && !hooks.starts_with("~")
        && !look::may_be_folder(&root.join(&hooks))
    {
        found.push(
            Finding::problem(
                "hooks",
                "git is configured to run hooks from a folder that does not exist",
            )
            .seen(format!("core.hooksPath is {}", hooks.display()))
            .means("No hook runs, whatever it should check.")
            .remedy(Remedy::Command("git config --unset core.hooksPath".into())),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writer_of_a_temporary_file_is_in_its_name() {
        assert_eq!(writer(".gitignore.4711"), Some(4711));
        assert_eq!(writer(".meta-4711.tmp"), Some(4711));
        assert_eq!(writer(".01-a.md.4711-0.tenure-tmp"), Some(4711));
        for other in [
            "01-a.md",
            "tenure.db.4711",
            ".event-x.tmp",
            ".x.tenure-tmp",
            "",
        ] {
            assert_eq!(writer(other), None, "{other}");
        }
    }

    #[test]
    fn a_lock_is_tried_on_a_file_and_on_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        let tried = || try_lock(dir.path(), Lockable::at(dir.path()).unwrap());
        assert_eq!(tried(), None);
        fs::write(dir.path().join(".gitignore"), "*").unwrap();
        assert_eq!(tried(), None);
    }
}
