//! A ledger lock that stands in the way, in words: [`Standing`].

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use tenure_core::Process;

use tenure_host::files::protocol::Fingerprint;

/// What a lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A file that says who holds it.
    Record,
    /// An empty file: somebody was killed while taking it, or is just taking it.
    Empty,
    /// A file that can't be understood.
    Malformed,
    /// A folder, as the seed's shell example makes it.
    Folder,
    /// A link, a pipe or the like.
    Strange,
}

/// A lock that stands.
#[derive(Debug, Clone)]
pub struct Standing {
    /// Where.
    pub place: PathBuf,
    /// What it is.
    pub what: What,
    /// Who holds it, if it says so.
    pub agent: Option<String>,
    /// Which process, if it says so.
    pub process: Option<Process>,
    /// Since when: what it says, or when it was last changed.
    pub since: Timestamp,
    /// How long that is.
    pub age: Duration,
    /// Whether its holder is proven dead.
    pub dead: bool,
    pub(super) mark: Fingerprint,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.agent, self.what) {
            (Some(agent), _) => write!(f, "{agent}")?,
            (None, What::Folder) => write!(f, "somebody who made a folder of that name")?,
            (None, What::Empty) => write!(f, "somebody who left the file empty")?,
            (None, _) => write!(f, "somebody who can't be told from what is there")?,
        }
        if let Some(process) = &self.process {
            write!(f, " (pid {} on {})", process.pid, process.host)?;
        }
        write!(f, " since {:.3}", self.since)
    }
}
