//! Which process each session of a coding agent runs in: [`Sessions`], a folder beside the store.
//!
//! Not every agent tells the commands that it runs which session they belong to. But it runs its hooks and its
//! commands itself, so the hook records the agent's process, with its start time, and a command looks for it above
//! itself.
//!
//! 1. One small file for each process and session, replaced whole. Its time of change is when the session was last heard.
//! 2. A file counts only if it is our user's own: another user of the project can't give us a name.
//! 3. The files of processes that have ended are removed when a new one is written.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags};
use tenure_core::{Epoch, HolderId, Process};
use tenure_host::ancestors::ancestors;
use tenure_host::files::atomic::{self, Durability};
use tenure_host::files::look;
use tenure_host::files::permissions::create_folder;
use tenure_host::identity;

use crate::project::Project;

/// No file is larger.
const LARGEST: u64 = 4096;

/// What the private name of a new file begins with; the pid of its writer follows.
const NEXT: &str = "next-";

/// The shells that agents run a hook or a command with.
const SHELLS: [&str; 9] = [
    "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox", "fish",
];

/// The sessions of a project on this machine.
#[derive(Debug, Clone)]
pub struct Sessions(PathBuf);

/// One file.
struct SessionFile {
    path: PathBuf,
    process: Process,
    /// How many processes of the same program are between the agent's process and this one.
    distance: u32,
    holder: HolderId,
    heard: SystemTime,
}

impl Sessions {
    /// Those of a project.
    pub fn of(project: &Project) -> Self {
        Self(project.state().join("sessions"))
    }

    pub(super) fn exist(&self) -> bool {
        look::may_be_there(&self.0)
    }

    /// Records that the process that runs this hook is one of this session, and returns it.
    pub fn record(&self, holder: &HolderId) -> io::Result<Option<Process>> {
        let mut is_new = false;
        let found = agent(&ancestors());
        for (distance, process) in found.iter().enumerate() {
            let mut hasher = DefaultHasher::new();
            holder.as_str().hash(&mut hasher);
            let name = format!(
                "{}-{}-{distance}-{:016x}",
                process.pid,
                process.started,
                hasher.finish()
            );
            let path = self.0.join(name);
            let text = format!(
                "{holder}\n{}\n{}\n{}\n",
                process.boot.0, process.namespace, process.host
            );
            if !read(&path).is_ok_and(|(found, _)| found == text) {
                create_folder(&self.0)?;
                is_new = true;
            }
            // Also if it says this already: its time tells when the session was last heard.
            let next = self.0.join(format!("{NEXT}{}", std::process::id()));
            atomic::replace(&path, &next, text.as_bytes(), Durability::Crash)?;
        }
        if is_new {
            self.sweep();
        }
        Ok(found.into_iter().next())
    }

    /// Forgets a session that has ended.
    pub fn forget(&self, holder: &HolderId) -> io::Result<()> {
        let of_session = |entry: &SessionFile| entry.holder == *holder;
        for entry in self.entries()?.into_iter().filter(of_session) {
            atomic::unlink(&entry.path)?;
        }
        Ok(())
    }

    /// Removes what processes that have ended left.
    fn sweep(&self) {
        for file in self.0.read_dir().into_iter().flatten().flatten() {
            let name = file.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(NEXT));
            let pid = pid.and_then(|pid| pid.parse().ok());
            if pid.is_some_and(|pid| matches!(identity::process(pid), Ok(None))) {
                let _ = atomic::unlink(&file.path());
            }
        }
        for SessionFile { path, process, .. } in self.entries().into_iter().flatten() {
            let is_rebooted =
                process.host == identity::host() && !process.boot.same(identity::boot());
            if is_rebooted || identity::has_ended(&process) {
                // The next one tries again.
                let _ = atomic::unlink(&path);
            }
        }
    }

    /// The nearest of these processes that has a session, and its sessions: the nearest first, then that which was heard
    /// last.
    pub(super) fn above<'p>(
        &self,
        processes: &'p [Process],
    ) -> io::Result<Option<(&'p Process, Vec<HolderId>)>> {
        let entries = self.entries()?;
        for process in processes {
            let is_it = |entry: &&SessionFile| {
                entry.process.pid == process.pid
                    && entry.process.started == process.started
                    && entry.process.namespace == process.namespace
                    && entry.process.boot.same(&process.boot)
            };
            let mut found: Vec<&SessionFile> = entries.iter().filter(is_it).collect();
            let Some(nearest) = found.iter().map(|entry| entry.distance).min() else {
                continue;
            };
            found.retain(|entry| entry.distance == nearest);
            found.sort_by_key(|entry| std::cmp::Reverse(entry.heard));
            let holders = found.into_iter().map(|entry| entry.holder.clone());
            return Ok(Some((process, holders.collect())));
        }
        Ok(None)
    }

    /// All of our user's files that can be understood.
    fn entries(&self) -> io::Result<Vec<SessionFile>> {
        let mut entries = Vec::new();
        match fs::read_dir(&self.0) {
            Ok(files) => {
                for file in files {
                    entries.extend(entry(file?.path()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(look::unreadable(&self.0, &error)),
        }
        Ok(entries)
    }
}

fn entry(path: PathBuf) -> Option<SessionFile> {
    let name = path.file_name()?.to_str()?.to_owned();
    let mut parts = name.split('-');
    let (pid, started, distance) = (parts.next()?, parts.next()?, parts.next()?);
    let (text, heard) = read(&path).ok()?;
    let mut lines = text.lines();
    let mut line = || lines.next().map(str::to_owned);
    let (holder, boot, namespace, host) = (line()?, line()?, line()?, line()?);
    Some(SessionFile {
        process: Process {
            pid: pid.parse().ok()?,
            started: started.parse().ok()?,
            boot: Epoch(boot),
            namespace,
            host,
        },
        distance: distance.parse().ok()?,
        holder: HolderId::parse(holder).ok()?,
        heard,
        path,
    })
}

/// What one of our user's own files says, and when it was written.
fn read(path: &Path) -> io::Result<(String, SystemTime)> {
    let how = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, how, Mode::empty())?);
    let found = file.metadata()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_file() || !is_own || found.len() > LARGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = String::new();
    file.take(LARGEST).read_to_string(&mut text)?;
    Ok((text, found.modified()?))
}

/// The process of the agent that runs this hook, and those above it that run the same program: an editor has several
/// processes, and starts hooks and terminals from different ones.
fn agent(above: &[Process]) -> Vec<Process> {
    let event = input(std::process::id());
    let is_wrapper = |pid: u32| event.is_some() && input(pid) == event;
    let mut above = above
        .iter()
        .skip_while(|process| is_shell(process.pid) || is_wrapper(process.pid));
    let Some(agent) = above.next() else {
        return Vec::new();
    };
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = program(agent.pid);
    let same = above.take_while(|process| own.is_some() && program(process.pid) == own);
    std::iter::once(agent).chain(same).cloned().collect()
}

/// The pipe that a process reads. An agent makes one for each event, so what reads the same one as the hook was started
/// for this event: a script around the hook.
fn input(pid: u32) -> Option<PathBuf> {
    let input = fs::read_link(format!("/proc/{pid}/fd/0")).ok()?;
    let name = input.to_str()?;
    (name.starts_with("pipe:") || name.starts_with("socket:")).then_some(input)
}

/// Whether a process is a shell that was started for one command line, with `-c`.
fn is_shell(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0).skip(1);
    SHELLS.contains(&name.trim_end())
        && words
            .any(|word| word.starts_with(b"-") && !word.starts_with(b"--") && word.contains(&b'c'))
}
