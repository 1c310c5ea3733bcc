//! Which holder a process acts for: [`name`], [`Who`] and, for the hook of a coding agent, [`of_hook`].
//!
//! | the first of these that there is | the holder |
//! |---|---|
//! | a name that was given: by the caller, or [by the environment](given_in_environment) | that name |
//! | in a hook of git on a server: the push option `tenure-holder` | that name |
//! | in the hook of a coding agent: what the agent says | that session |
//! | the session of a coding agent in the environment; of several, the nearest | that session |
//! | a process above this one that a hook of a coding agent recorded ([`Sessions`]) | the session of that hook |
//! | otherwise | the process that called this one, most often a shell, under a generated name |

mod environment;
mod sessions;

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

use tenure_core::{BadName, Binding, Holder, HolderId, Process};
use tenure_host::ancestors::ancestors;
use tenure_host::{caller, identity};

use crate::ask::generated_name;
use crate::project::Project;

pub use environment::{GENERATED, given_in_environment};
pub use sessions::Sessions;

/// The session of a coding agent that runs a hook. The name of a CI job does not count: several agents may work in one.
pub fn of_hook(given: Option<&str>, agent: &str, id: &str) -> Result<HolderId, BadName> {
    match given.filter(|name| environment::ci_job().as_deref() != Some(name)) {
        Some(name) => HolderId::parse_new(name),
        None => session(agent, id),
    }
}

/// The name of an agent's session as a holder.
fn session(agent: &str, id: &str) -> Result<HolderId, BadName> {
    HolderId::parse_new(format!("{agent}-{id}"))
}

/// The name of the caller of a command that ends before its lease does. One that is generated from the calling shell
/// makes `acquire` and `release` in one script the same holder. No other shell gets the same name, not even in another
/// container or after a restart, so equal names are the same holder.
pub fn name(given: Option<HolderId>, project: Option<&Project>) -> Result<HolderId, NoName> {
    if let Some(name) = given {
        return Ok(name);
    }
    let session = session_of(project, ancestors)?.and_then(|it| it.into_iter().next());
    Ok(session.map_or_else(|| called_by(caller::parent().unwrap_or(0)), Ok)?)
}

/// The sessions of a coding agent that this process may belong to, the likeliest first: those in the environment, or those of
/// a process above.
fn session_of(
    project: Option<&Project>,
    above: impl FnOnce() -> Vec<Process>,
) -> Result<Option<Vec<HolderId>>, NoName> {
    let told = environment::sessions();
    if let [_only] = told.as_slice() {
        return Ok(Some(told));
    }
    let sessions = project.map(Sessions::of).filter(Sessions::exist);
    let above = sessions.map_or(Ok(None), |sessions| {
        let above = above();
        let found = sessions.above(&above)?;
        Ok::<_, io::Error>(found.map(|(_, holders)| holders))
    })?;
    // An agent that runs another one passes its own variable on: the nearest process tells which it is.
    Ok(match above {
        Some(above) if told.is_empty() || above.iter().any(|it| told.contains(it)) => Some(above),
        _ => Some(told).filter(|told| !told.is_empty()),
    })
}

/// The session of a coding agent that this process belongs to, and the process above this one that it runs in: both as its
/// hook recorded them. `None` if that process has several sessions, and the environment does not tell which it is.
pub fn recorded_session(project: &Project) -> Option<(HolderId, Process)> {
    let sessions = Sessions::of(project);
    if !sessions.exist() {
        return None;
    }
    let above = ancestors();
    let (process, mut of) = sessions.above(&above).ok()??;
    if of.len() > 1 {
        let told = environment::sessions();
        of.retain(|session| told.contains(session));
    }
    match of.as_slice() {
        [session] => Some((session.clone(), process.clone())),
        _ => None,
    }
}

/// Why the name of a process can't be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoName {
    /// It would be no name.
    #[error(transparent)]
    Bad(#[from] BadName),
    /// The name in the environment is no text.
    #[error("TENURE_HOLDER={} is not UTF-8 text: name the holder with --as", .0.display())]
    NotText(OsString),
    /// The sessions of coding agents can't be read.
    #[error(
        "it can't be told whether this is a session of a coding agent: {0}\n  name the holder with --as or TENURE_HOLDER"
    )]
    Sessions(#[from] io::Error),
}

/// The name of the caller if the calling process has this pid.
fn called_by(pid: u32) -> Result<HolderId, BadName> {
    let name = generated_name(pid);
    let tag = identity::process(pid).ok().flatten().map_or(0, |process| {
        let mut hasher = DefaultHasher::new();
        (process.started, &process.boot.0, &process.namespace).hash(&mut hasher);
        hasher.finish() & 0xffff_ffff
    });
    HolderId::parse(format!("{name}-{tag:08x}"))
}

/// The holder that a process acts for which git or another program started, so that the shell may be any process above it.
#[derive(Debug, Clone)]
pub struct Who {
    names: Vec<HolderId>,
    above: Vec<Process>,
    is_shell: bool,
}

impl Who {
    /// A holder with a name.
    pub fn named(name: HolderId) -> Self {
        Self {
            names: vec![name],
            above: Vec::new(),
            is_shell: false,
        }
    }

    /// The holder that this process acts for, which may be the hook of a server.
    pub fn find(given: Option<HolderId>, project: Option<&Project>) -> Result<Self, NoName> {
        if given.is_none()
            && let Some(name) = environment::pusher()?
        {
            return Ok(Self::named(name));
        }
        let mut above = ancestors();
        let sessions = session_of(project, || above.clone())?;
        let recorded = project.and_then(|project| Sessions::of(project).above(&above).ok()?);
        if let Some((process, of)) = recorded
            && of.len() > 1
        {
            // What is tied to it may be another session's.
            let process = process.clone();
            above.retain(|it| *it != process);
        }
        // In a session, a name that is given is another name of that session.
        if let Some(name) = given {
            return Ok(match sessions {
                Some(sessions) => Self {
                    names: std::iter::once(name).chain(sessions).collect(),
                    above,
                    is_shell: false,
                },
                None => Self::named(name),
            });
        }
        Ok(Self {
            is_shell: sessions.is_none(),
            names: sessions.unwrap_or_else(|| {
                let pids = above.iter().map(|process| process.pid);
                pids.filter_map(|pid| called_by(pid).ok()).collect()
            }),
            above,
        })
    }

    /// Whether it has no name but those of the shells that it may have been started from.
    pub fn is_shell(&self) -> bool {
        self.is_shell
    }

    /// Whether a lease of this holder is ours: it has one of our names, or is tied to a process above this one.
    pub fn is(&self, holder: &Holder) -> bool {
        self.names.contains(&holder.id)
            || matches!(&holder.binding, Binding::Process { process } if self.above.contains(process))
    }

    /// Our names, the likeliest first. A process of an agent may have several sessions.
    pub fn names(&self) -> &[HolderId] {
        &self.names
    }
}
