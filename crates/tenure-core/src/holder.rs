//! Who holds a key: [`Holder`], and what its lease is tied to: [`Binding`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::{BadName, check_name};
use crate::time::BootId;

/// The name of a holder, as given with `--as` or made up for a process.
///
/// ```
/// use tenure_core::HolderId;
/// assert_eq!(HolderId::parse("agent-1").unwrap().as_str(), "agent-1");
/// assert!(HolderId::parse("").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HolderId(String);

impl HolderId {
    /// Takes a text as a holder's name, if it can be one.
    pub fn parse(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        check_name(&text, "holder", "--as agent-1")?;
        Ok(Self(text))
    }

    /// The name of somebody who has none, or none that can be read.
    pub fn unreadable() -> Self {
        Self("?".into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HolderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for HolderId {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        Self::parse(text)
    }
}

impl From<HolderId> for String {
    fn from(id: HolderId) -> Self {
        id.0
    }
}

/// The name of a life lock: a file that a process, and all that inherit it, keep locked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LifeId(pub String);

/// One process, told apart from every other that ever had its pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number, as seen in its own pid namespace.
    pub pid: u32,
    /// When it started, in the kernel's ticks since boot. Another start time is another process.
    pub started: u64,
    /// The boot it runs in.
    pub boot: BootId,
    /// Its pid namespace: the same number in another one is another process.
    pub namespace: String,
    /// The name of the machine or container.
    pub host: String,
}

/// What a lease is tied to, besides its time to live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Binding {
    /// Nothing: it lives by its time to live alone.
    Detached,
    /// It ends with this process, which knows nothing of it (`acquire --pid`).
    Process {
        /// The process.
        process: Process,
    },
    /// It ends when the last process that inherited the life lock is gone.
    Life {
        /// The life lock.
        life: LifeId,
        /// The process that took it.
        process: Process,
    },
}

impl Binding {
    /// The process, if any.
    pub fn process(&self) -> Option<&Process> {
        match self {
            Self::Detached => None,
            Self::Process { process } | Self::Life { process, .. } => Some(process),
        }
    }

    /// The life lock, if any. It is also a doorbell.
    pub fn life(&self) -> Option<&LifeId> {
        match self {
            Self::Life { life, .. } => Some(life),
            Self::Detached | Self::Process { .. } => None,
        }
    }
}

/// Who holds a key, or asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its name.
    pub id: HolderId,
    /// Where it is.
    pub host: String,
    /// What it runs, for people.
    pub command: Option<String>,
    /// What its lease is tied to.
    pub binding: Binding,
}

impl Holder {
    /// The process the lease is tied to, if any.
    pub fn process(&self) -> Option<&Process> {
        self.binding.process()
    }

    /// The life lock that proves this holder, if any.
    pub fn life(&self) -> Option<&LifeId> {
        self.binding.life()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        match self.process() {
            Some(process) => write!(f, " (pid {} on {})", process.pid, self.host),
            None => write!(f, " (on {})", self.host),
        }
    }
}
