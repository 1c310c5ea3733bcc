//! The file system of the project, tried out; and temporary files that killed processes left.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::Path;

use tenure::Project;
use tenure_host::identity;

use super::{Finding, Remedy};

pub(super) fn examine(project: &Project, found: &mut Vec<Finding>) {
    let folder = project.folder();
    if let Some(finding) = try_lock(&folder) {
        found.push(finding);
    }
    if let Some(kind) = shared_file_system(&folder) {
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
    leftovers(&folder, found);
    hooks(project.root(), found);
}

/// Tries whether a kernel lock on a file keeps a second one out. The file is one of ours that no process locks.
fn try_lock(folder: &Path) -> Option<Finding> {
    let path = folder.join(".gitignore");
    let open = || OpenOptions::new().read(true).open(&path);
    let (first, second): (File, File) = (open().ok()?, open().ok()?);
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
            "move the project to a local file system, or use a store on a server".into(),
        ))
    };
    match first.try_lock() {
        Ok(()) => {}
        // Another doctor tries at the same moment: then locks hold.
        Err(TryLockError::WouldBlock) => return None,
        Err(TryLockError::Error(error)) => {
            return Some(failed(format!("a lock can't be taken: {error}")));
        }
    }
    match second.try_lock() {
        Ok(()) => Some(failed(
            "a second lock on a locked file was granted".to_owned(),
        )),
        Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(error)) => Some(failed(format!(
            "a second lock fails in another way: {error}"
        ))),
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

/// Temporary files, named after the pid that wrote them, of processes that have exited.
fn leftovers(folder: &Path, found: &mut Vec<Finding>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let pid = path
            .extension()
            .and_then(|end| end.to_str()?.parse::<u32>().ok());
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if let Some(pid) = pid.filter(|_| is_file)
            && matches!(identity::start_time(pid), Ok(None))
        {
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

/// Hooks that the repository's settings name and that do not exist.
fn hooks(root: &Path, found: &mut Vec<Finding>) {
    let text = fs::read_to_string(root.join(".git/config")).unwrap_or_default();
    let setting = text.lines().find_map(|line| {
        let (name, value) = line.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("hooksPath")
            .then(|| value.trim().to_owned())
    });
    if let Some(hooks) = setting
        && !hooks.starts_with('~')
        && !root.join(&hooks).is_dir()
    {
        found.push(
            Finding::problem(
                "hooks",
                "git is configured to run hooks from a folder that does not exist",
            )
            .seen(format!("core.hooksPath is {hooks}"))
            .means("No hook runs, whatever it should check.")
            .remedy(Remedy::Command("git config --unset core.hooksPath".into())),
        );
    }
}
