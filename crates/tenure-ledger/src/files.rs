//! Claims that are files, `locks/*.lock`: read, honoured, and reaped.
//!
//! The seed's order is kept: the file is removed, then a `lock_reaped` event is appended. Its races are
//! not: the file is taken aside and compared with the one that was judged (one that was refreshed
//! meanwhile is put back), and what was on its way when somebody was killed is put back by the next.
//!
//! | in the side folder | what it is |
//! |---|---|
//! | `reaped` | the file, between the two steps |
//! | `reaping` | where it was, and which event is to tell of it |

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::StoreError;

use super::{Appended, Ledger};
use crate::append::Writing;
use crate::node::NodeId;
use tenure_host::files::atomic;
use tenure_host::files::fault::explain;
use tenure_host::files::protocol::{Fingerprint, digest};
use tenure_host::files::rfc3339;

/// The largest file that is read.
const MAX_FILE: u64 = 1 << 20;

/// A claim that is a file.
#[derive(Debug, Clone)]
pub(super) struct FileClaim {
    pub(super) path: PathBuf,
    pub(super) mark: Fingerprint,
    /// Which node; `None` if nothing tells.
    pub(super) node: Option<NodeId>,
    /// What it says; why it can't be understood otherwise.
    pub(super) says: Result<Says, String>,
}

#[derive(Debug, Clone)]
pub(super) struct Says {
    pub(super) owner: String,
    pub(super) since: Timestamp,
    pub(super) expires: Timestamp,
}

#[derive(Deserialize)]
struct Fields {
    node_id: String,
    owner: String,
    acquired_at: String,
    expires_at: String,
}

#[derive(Serialize, Deserialize)]
struct Reaping {
    place: PathBuf,
    seq: u64,
    digest: u64,
}

/// What came of reaping a file.
#[derive(Debug)]
pub(super) enum FileReaped {
    /// It is gone, and the event there.
    Done,
    /// It is another one by now, or somebody wrote to the ledger: look anew.
    Changed,
}

impl Ledger {
    /// Every claim that is a file.
    pub(super) fn file_claims(&self) -> Result<Vec<FileClaim>, StoreError> {
        let folder = self.root.join("locks");
        let fault = |error: io::Error| explain("read", &folder, error);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(fault(error)),
        };
        let mut claims = Vec::new();
        for entry in entries {
            let path = entry.map_err(fault)?.path();
            if path.extension().is_some_and(|end| end == "lock") {
                claims.extend(look(&path));
            }
        }
        claims.sort_by(|a, b| (&a.node, &a.path).cmp(&(&b.node, &b.path)));
        Ok(claims)
    }

    fn reaped(&self) -> PathBuf {
        self.side.path().join("reaped")
    }

    fn reaping(&self) -> PathBuf {
        self.side.path().join("reaping")
    }
}

/// What is at a path; `None` if it went away.
fn look(path: &Path) -> Option<FileClaim> {
    let at = path.symlink_metadata().ok()?;
    let bytes = if at.is_file() && at.len() <= MAX_FILE {
        fs::read(path).unwrap_or_default()
    } else {
        Vec::new()
    };
    let mark = Fingerprint {
        file: (at.dev(), at.ino()),
        digest: digest(&bytes),
    };
    let says = understand(&bytes);
    let named = path.file_stem().and_then(|stem| stem.to_str());
    let (node, says) = match says {
        Ok((node, says)) => (Some(node), Ok(says)),
        // Its name may tell which node it is about, and then it stands.
        Err(why) => (named.and_then(|stem| NodeId::parse(stem).ok()), Err(why)),
    };
    Some(FileClaim {
        path: path.to_owned(),
        mark,
        node,
        says,
    })
}

fn understand(bytes: &[u8]) -> Result<(NodeId, Says), String> {
    let fields: Fields = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let node = NodeId::parse(&fields.node_id).map_err(|error| error.to_string())?;
    let time = |text: &str, name: &str| {
        rfc3339::parse(text).ok_or_else(|| format!("its {name} {text:?} is no RFC 3339 time"))
    };
    let says = Says {
        since: time(&fields.acquired_at, "acquired_at")?,
        expires: time(&fields.expires_at, "expires_at")?,
        owner: fields.owner,
    };
    Ok((node, says))
}

impl Writing<'_> {
    /// Puts back a file that was on its way out when somebody was killed, unless the event that
    /// tells of it is there.
    pub(super) fn finish_reaping(&self) -> Result<(), StoreError> {
        let ledger = self.ledger();
        let (reaped, reaping) = (ledger.reaped(), ledger.reaping());
        if reaped.symlink_metadata().is_err() {
            return Ok(());
        }
        let known = fs::read(&reaping).ok();
        let known = known.and_then(|bytes| serde_json::from_slice::<Reaping>(&bytes).ok());
        if let Some(known) = known {
            let event = ledger.read(known.seq)?;
            let told = event.is_some_and(|event| event.digest() == known.digest);
            if !told {
                put_back(&reaped, &known.place)?;
            }
        }
        atomic::unlink(&reaped).map_err(|error| explain("removed", &reaped, error))?;
        atomic::unlink(&reaping).map_err(|error| explain("removed", &reaping, error))
    }

    /// Removes the file of a claim that is over and appends the event, in that order, if the newest
    /// event is the one that is expected. Where no event may tell of it, the history does.
    pub(super) fn reap_file(
        &self,
        claim: &FileClaim,
        expected: u64,
        event: Option<&[u8]>,
    ) -> Result<FileReaped, StoreError> {
        let ledger = self.ledger();
        let (reaped, reaping) = (ledger.reaped(), ledger.reaping());
        let note = Reaping {
            place: claim.path.clone(),
            seq: expected.saturating_add(1),
            digest: digest(event.unwrap_or_default()),
        };
        fs::write(&reaping, serde_json::to_vec(&note).unwrap_or_default())
            .map_err(|error| explain("written", &reaping, error))?;
        let fault = |error: io::Error| explain("removed", &claim.path, error);
        if look(&claim.path).is_none_or(|there| there.mark != claim.mark)
            || !atomic::take_aside(&claim.path, &reaped).map_err(fault)?
        {
            return Ok(FileReaped::Changed);
        }
        let same = look(&reaped).is_some_and(|out| out.mark == claim.mark);
        let done = match event {
            Some(event) if same => self.append(Some(expected), &[event.to_vec()]),
            None if same => self.note_reaped(claim).map(|()| Appended::Done {
                first: expected,
                last: expected,
            }),
            _ => Ok(Appended::Mismatch {
                expected,
                found: expected,
            }),
        };
        if !matches!(done, Ok(Appended::Done { .. })) {
            put_back(&reaped, &claim.path)?;
        }
        atomic::unlink(&reaped).map_err(fault)?;
        match done? {
            Appended::Done { .. } => Ok(FileReaped::Done),
            Appended::Mismatch { .. } => Ok(FileReaped::Changed),
            Appended::Locked(standing) => Err(crate::append::busy(&standing)),
        }
    }
}

impl Writing<'_> {
    fn note_reaped(&self, claim: &FileClaim) -> Result<(), StoreError> {
        let ledger = self.ledger();
        let owner = claim.says.as_ref().map_or("?", |says| &says.owner);
        let words = format!("the claim of {owner} in {} was over", claim.path.display());
        ledger.side.note(ledger.options.clock.now().wall, &words)
    }
}

/// Gives a file its name back, unless something newer has it.
fn put_back(from: &Path, place: &Path) -> Result<(), StoreError> {
    atomic::put(from, place)
        .map(|_| ())
        .map_err(|error| explain("written", place, error))
}
