//! Which holder a process acts for: [`name`], [`Who`] and, for the hook of a coding agent, [`of_hook`].
//!
//! | the first of these that there is | the holder |
//! |---|---|
//! | a name that was given: by the caller, or [by the environment](given_in_environment) | that name |
//! | in a hook of git on a server: the push option `tenure-holder` | that name |
//! | in the hook of a coding agent: what the agent says | that session |
//! | the session of a coding agent in the environment | that session |
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
    if let Some(name) = given.or_else(environment::session) {
        return Ok(name);
    }
    let sessions = project.map(Sessions::of).filter(Sessions::exist);
    let above = sessions.map(|sessions| sessions.above(&ancestors()));
    let session = above.transpose()?.and_then(|it| it.into_iter().next());
    Ok(session.map_or_else(|| called_by(caller::parent().unwrap_or(0)), Ok)?)
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
        let given = match given {
            Some(name) => Some(name),
            None => environment::pusher()?,
        };
        if let Some(name) = given.or_else(environment::session) {
            return Ok(Self::named(name));
        }
        let above = ancestors();
        let sessions = project.map(|project| Sessions::of(project).above(&above));
        let sessions = sessions
            .transpose()?
            .filter(|sessions| !sessions.is_empty());
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
