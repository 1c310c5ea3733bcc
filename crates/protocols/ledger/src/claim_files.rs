//! Claims in files, `locks/*.lock`: read, honoured, and reaped.
//!
//! Reaping follows the documented order: the file is removed, then a `lock_reaped` event is appended.
//! It avoids the races of that order: the file is moved aside and compared with the one that was
//! judged, and a file that was refreshed meanwhile is put back. If the writer is killed between the
//! two steps, the next writer puts the file back, unless the event was appended; until then the file
//! counts as if it were in its place.
//!
//! | in the sidecar folder | what it is |
//! |---|---|
//! | `reaped` | the file, between the two steps |
//! | `reaping` | where the file was, and which event will report its end |

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::StoreError;

use super::{Appended, Ledger};
use crate::append::Writer;
use crate::lock::LedgerLockGuard;
use crate::node::NodeId;
use tenure_host::files::atomic;
use tenure_host::files::beneath;
use tenure_host::files::fault::explain;
use tenure_host::files::go_time;
use tenure_host::files::look::if_there;
use tenure_host::files::permissions::{OFlags, open_or_create};
use tenure_host::files::protocol::{Committed, Fingerprint, digest};
use tenure_host::time_limit::TimeLimit;

/// Larger files are not read.
const MAX_FILE: u64 = 1 << 20;

/// A claim in a file.
#[derive(Debug, Clone)]
pub(super) struct FileClaim {
    pub(super) path: PathBuf,
    pub(super) fingerprint: Fingerprint,
    /// The claimed node, from the content or else from the file's name; `None` if neither names one.
    pub(super) node: Option<NodeId>,
    /// The content, or why it can't be read.
    pub(super) content: Result<ClaimContent, String>,
}

impl FileClaim {
    pub(super) fn owner(&self) -> &str {
        self.content.as_ref().map_or("?", |content| &content.owner)
    }
}

/// A claim file that can't be read.
#[derive(Debug, Clone)]
pub struct MalformedClaimFile {
    /// Where it is.
    pub path: PathBuf,
    /// The node that it is named after, and that nobody can claim while it is there; `None` if its name is
    /// not that of a node.
    pub node: Option<NodeId>,
    /// Why it can't be read.
    pub why: String,
}

impl fmt::Display for MalformedClaimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} can't be read ({})", self.path.display(), self.why)?;
        match &self.node {
            Some(node) => write!(
                f,
                ": node {node} counts as claimed until the file is removed"
            ),
            None => write!(f, ": it claims no node"),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct ClaimContent {
    pub(super) owner: String,
    pub(super) since: Timestamp,
    pub(super) expires: Timestamp,
}

#[derive(Deserialize)]
struct ClaimFileFields {
    node_id: String,
    owner: String,
    acquired_at: String,
    expires_at: String,
}

#[derive(Serialize, Deserialize)]
struct PendingReap {
    place: PathBuf,
    seq: u64,
    digest: u64,
}

impl Ledger {
    /// Every claim in a file.
    pub(super) fn file_claims(&self) -> Result<Vec<FileClaim>, StoreError> {
        let folder = self.claim_folder();
        let fault = |error: io::Error| explain("read", &folder, error);
        let Some(entries) = if_there(fs::read_dir(&folder)).map_err(fault)? else {
            return Ok(Vec::new());
        };
        let mut claims = Vec::new();
        for entry in entries {
            let path = entry.map_err(fault)?.path();
            if path.extension().is_some_and(|end| end == "lock") {
                claims.extend(read_claim(&path));
            }
        }
        // After the folder: a file that is moved aside meanwhile is seen here.
        if let Some(place) = self.unreported_reap()?
            && claims.iter().all(|claim| claim.path != place)
        {
            claims.extend(read_moved_claim(&self.reaped(), &place));
        }
        claims.sort_by(|a, b| (&a.node, &a.path).cmp(&(&b.node, &b.path)));
        Ok(claims)
    }

    /// The claim files that can't be read.
    pub fn malformed_claim_files(&self) -> Result<Vec<MalformedClaimFile>, StoreError> {
        let all = self.file_claims()?.into_iter();
        Ok(all
            .filter_map(|claim| {
                Some(MalformedClaimFile {
                    why: claim.content.err()?,
                    path: claim.path,
                    node: claim.node,
                })
            })
            .collect())
    }

    fn claim_folder(&self) -> PathBuf {
        self.root.join("locks")
    }

    fn reaped(&self) -> PathBuf {
        self.sidecar.path().join("reaped")
    }

    fn reaping(&self) -> PathBuf {
        self.sidecar.path().join("reaping")
    }

    /// Where the file was that a writer has moved aside without reporting its end so far.
    fn unreported_reap(&self) -> Result<Option<PathBuf>, StoreError> {
        if self.reaped().symlink_metadata().is_err() {
            return Ok(None);
        }
        let path = self.reaping();
        let known = if_there(beneath::read(&path, MAX_FILE));
        let known = known.map_err(|error| explain("read", &path, error))?;
        // Torn: the writer was killed before it moved the file.
        let known = known.and_then(|known| serde_json::from_slice::<PendingReap>(&known).ok());
        let Some(known) = known else { return Ok(None) };
        let event = self.read(known.seq)?;
        let reported = event.is_some_and(|event| event.digest() == known.digest);
        // The killed writer may have reached the ledger by another path.
        let name = known.place.file_name().filter(|_| !reported);
        Ok(name.map(|name| self.claim_folder().join(name)))
    }
}

/// Reads the claim in a file; `None` if the file was removed.
fn read_claim(path: &Path) -> Option<FileClaim> {
    read_moved_claim(path, path)
}

/// Reads the claim in a file that was moved here from its place.
fn read_moved_claim(path: &Path, place: &Path) -> Option<FileClaim> {
    let at = path.symlink_metadata().ok()?;
    let bytes = if at.is_file() {
        beneath::read_linked(path, MAX_FILE).unwrap_or_default()
    } else {
        Vec::new()
    };
    let fingerprint = Fingerprint {
        file: (at.dev(), at.ino()),
        digest: digest(&bytes),
    };
    let named = place.file_stem().and_then(|stem| stem.to_str());
    let (node, content) = match parse(&bytes) {
        Ok((node, content)) => (Some(node), Ok(content)),
        // A file that can't be read still claims the node that it is named after.
        Err(why) => (named.and_then(|stem| NodeId::parse(stem).ok()), Err(why)),
    };
    Some(FileClaim {
        path: place.to_owned(),
        fingerprint,
        node,
        content,
    })
}

fn parse(bytes: &[u8]) -> Result<(NodeId, ClaimContent), String> {
    let fields: ClaimFileFields =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let node = NodeId::parse(&fields.node_id).map_err(|error| error.to_string())?;
    let time = |text: &str, name: &str| {
        go_time::parse(text.as_bytes())
            .ok_or_else(|| format!("{name} {text:?} is not an RFC 3339 time"))
    };
    let content = ClaimContent {
        since: time(&fields.acquired_at, "acquired_at")?,
        expires: time(&fields.expires_at, "expires_at")?,
        owner: fields.owner,
    };
    Ok((node, content))
}

impl Writer<'_> {
    /// Puts back a file that a killed writer had moved aside, unless the event that reports its end was
    /// appended.
    pub(super) fn finish_reaping(&self) -> Result<(), StoreError> {
        let ledger = self.ledger();
        let (reaped, reaping) = (ledger.reaped(), ledger.reaping());
        if reaped.symlink_metadata().is_err() {
            return Ok(());
        }
        if let Some(place) = ledger.unreported_reap()? {
            put_back(&reaped, &place)?;
        }
        atomic::unlink(&reaped).map_err(|error| explain("removed", &reaped, error))?;
        atomic::unlink(&reaping).map_err(|error| explain("removed", &reaping, error))
    }

    /// Removes the file of a claim that has ended and appends the event, in that order, if the newest
    /// event is the expected one. Without an event, the end is recorded in the sidecar's history.
    pub(super) fn reap_file(
        &self,
        claim: &FileClaim,
        expected: u64,
        event: Option<&[u8]>,
        limit: TimeLimit,
        lock: Option<&LedgerLockGuard<'_>>,
    ) -> Result<Committed, StoreError> {
        let ledger = self.ledger();
        let (reaped, reaping) = (ledger.reaped(), ledger.reaping());
        let pending = PendingReap {
            place: claim.path.clone(),
            seq: expected.saturating_add(1),
            digest: digest(event.unwrap_or_default()),
        };
        let record = serde_json::to_vec(&pending).unwrap_or_default();
        open_or_create(&reaping, OFlags::WRONLY | OFlags::TRUNC)
            .and_then(|mut file| file.write_all(&record))
            .map_err(|error| explain("written", &reaping, error))?;
        let fault = |error: io::Error| explain("removed", &claim.path, error);
        if read_claim(&claim.path).is_none_or(|now| now.fingerprint != claim.fingerprint)
            || !atomic::take_aside(&claim.path, &reaped).map_err(fault)?
        {
            return Ok(Committed::Conflict);
        }
        let same = read_claim(&reaped).is_some_and(|moved| moved.fingerprint == claim.fingerprint);
        let done = match event {
            Some(event) if same => self.append(expected, &[event.to_vec()], limit, lock),
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
            Appended::Done { .. } => Ok(Committed::Yes),
            Appended::Mismatch { .. } => Ok(Committed::Conflict),
            Appended::Locked(by) => Err(crate::append::blocked(by)),
        }
    }

    fn note_reaped(&self, claim: &FileClaim) -> Result<(), StoreError> {
        let ledger = self.ledger();
        let (owner, path) = (claim.owner(), claim.path.display());
        let words = format!("reaped the claim of {owner} in {path}");
        ledger.sidecar.note(ledger.options.clock.now().wall, &words)
    }
}

/// Gives a file its name back, unless a newer file has it.
fn put_back(from: &Path, place: &Path) -> Result<(), StoreError> {
    atomic::put(from, place)
        .map(|_| ())
        .map_err(|error| explain("written", place, error))
}
