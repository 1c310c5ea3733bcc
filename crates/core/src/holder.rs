//! Who holds a key: [`Holder`], and what its lease is tied to: [`Binding`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::{BadName, check_name, check_visible};
use crate::text::flat;
use crate::time::Epoch;

/// The name of a holder: given with `--as`, or generated for a process.
///
/// ```
/// use tenure_core::HolderId;
/// assert_eq!(HolderId::parse("agent-1").unwrap().as_str(), "agent-1");
/// assert!(HolderId::parse("").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct HolderId(String);

impl HolderId {
    /// Parses a holder's name.
    pub fn parse(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        check_name(&text, "holder", "--as agent-1")?;
        Ok(Self(text))
    }

    /// Parses the name of a new holder, which can be told from every other by looking at it.
    pub fn parse_new(text: impl Into<String>) -> Result<Self, BadName> {
        let id = Self::parse(text)?;
        check_visible(&id.0, "holder")?;
        Ok(id)
    }

    /// Stands for a holder without a readable name.
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

/// The id of a liveness lock: a file that a process, and every process that inherits it, keeps locked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LivenessId(pub String);

/// The id of a session on a server. It proves that its holder is alive: the server ends it when the holder
/// stops renewing it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub String);

/// One process, distinguished from every other process that had its pid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Its pid in its own pid namespace.
    pub pid: u32,
    /// When it started, in the kernel's ticks since boot. A different start time means another process.
    pub started: u64,
    /// The boot it runs in.
    pub boot: Epoch,
    /// Its pid namespace. The same pid in another namespace is another process.
    pub namespace: String,
    /// The name of the machine or container.
    pub host: String,
}

/// What a lease is tied to, besides its time to live.
///
/// Its JSON form is stored by every local store; the names in it are part of their formats.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Binding {
    /// Nothing: it ends when its time to live has passed.
    Detached,
    /// It ends with this process, which knows nothing of it (`acquire --pid`).
    Process {
        /// The process.
        process: Process,
    },
    /// It ends when the last process that inherited the liveness lock has exited.
    #[serde(rename = "life")]
    LivenessLock {
        /// The liveness lock.
        #[serde(rename = "life")]
        lock: LivenessId,
        /// The process that took it.
        process: Process,
    },
    /// It ends with this session. Only the server knows whether the session has ended.
    Session {
        /// The session.
        session: SessionId,
    },
}

impl Binding {
    /// The process, if any.
    pub fn process(&self) -> Option<&Process> {
        match self {
            Self::Detached | Self::Session { .. } => None,
            Self::Process { process } | Self::LivenessLock { process, .. } => Some(process),
        }
    }

    /// The liveness lock, if any. It is also a doorbell.
    pub fn liveness_lock(&self) -> Option<&LivenessId> {
        match self {
            Self::LivenessLock { lock, .. } => Some(lock),
            Self::Detached | Self::Process { .. } | Self::Session { .. } => None,
        }
    }

    /// Whether the holder itself maintains the binding, by a liveness lock or a session.
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::LivenessLock { .. } | Self::Session { .. })
    }

    /// Whether both are the same liveness lock or session.
    pub fn same_proof(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::LivenessLock { lock: ours, .. }, Self::LivenessLock { lock: theirs, .. }) => {
                ours == theirs
            }
            (Self::Session { session: ours }, Self::Session { session: theirs }) => ours == theirs,
            _ => false,
        }
    }
}

/// The holder of a key, or a claimant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// Its name.
    pub id: HolderId,
    /// The host that it runs on.
    pub host: String,
    /// The command that it runs, for display.
    pub command: Option<String>,
    /// What its lease is tied to.
    pub binding: Binding,
}

impl Holder {
    /// Stands for the host of a holder whose record does not tell it.
    pub const UNKNOWN_HOST: &str = "an unknown host";

    /// Stands for a holder whose record can't be understood.
    pub fn unreadable() -> Self {
        Self {
            id: HolderId::unreadable(),
            host: Self::UNKNOWN_HOST.into(),
            command: None,
            binding: Binding::Detached,
        }
    }

    /// The process the lease is tied to, if any.
    pub fn process(&self) -> Option<&Process> {
        self.binding.process()
    }

    /// The liveness lock that proves this holder, if any.
    pub fn liveness_lock(&self) -> Option<&LivenessId> {
        self.binding.liveness_lock()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)?;
        let host = flat(&self.host);
        match self.process() {
            Some(process) => write!(f, " (pid {} on {host})", process.pid),
            None => write!(f, " (on {host})"),
        }
    }
}
