//! The history of claims, from the ledger's own events.
//!
//! In the documented dialect an event that takes a claim away carries the evidence. In the `af`
//! dialect it can't: there the evidence is a line of the file `endings` in the sidecar folder, which
//! names the event by number and digest and is written before it. How long the holder waited for a grant is such a
//! line, too, in both dialects.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{
    Event, EventKind, Evidence, HistoryQuery, HolderId, Key, Mode, Reason, StoreError, Token,
};

use crate::Ledger;
use crate::replay::{ChangeKind, ClaimChange, Replay};
use tenure_host::files::beneath;
use tenure_host::files::fault::explain;
use tenure_host::files::look::if_there;
use tenure_host::files::permissions::{OFlags, open_or_create};

/// The largest file of endings that is read, in bytes.
const LARGEST: u64 = 256 << 20;

/// What is known of an event beyond the ledger. It is noted before the event is written.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct EventNote {
    /// The number and digest of the event.
    pub(super) seq: u64,
    pub(super) digest: u64,
    /// Why it takes a claim away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) evidence: Option<Evidence>,
    /// How long the holder waited for the claim that it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) waited: Option<Duration>,
}

impl Ledger {
    /// Records what an event that is about to be written does not say.
    pub(super) fn note(&self, note: &EventNote) -> Result<(), StoreError> {
        let path = self.sidecar.path().join("endings");
        let write = || {
            let mut line = serde_json::to_vec(note)?;
            line.push(b'\n');
            open_or_create(&path, OFlags::WRONLY | OFlags::APPEND)?.write_all(&line)
        };
        write().map_err(|error| explain("written", &path, error))
    }

    fn notes(&self) -> Result<HashMap<(u64, u64), EventNote>, StoreError> {
        let path = self.sidecar.path().join("endings");
        let bytes = if_there(beneath::read(&path, LARGEST));
        let bytes = bytes.map_err(|error| explain("read", &path, error))?;
        let bytes = bytes.unwrap_or_default();
        Ok(bytes
            .split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<EventNote>(line).ok())
            .map(|note| ((note.seq, note.digest), note))
            .collect())
    }

    /// What happened to claims, oldest first.
    pub(super) fn claim_history(&self, query: &HistoryQuery) -> Result<Vec<Event>, StoreError> {
        let notes = self.notes()?;
        let mut replay = Replay::default();
        let mut events = Vec::new();
        let mut id = 0;
        // The nodes whose claims the previous event took away.
        let mut taken: HashSet<Key> = HashSet::new();
        for event in self.events(1)? {
            let event = event?;
            let (_, at) = event.head();
            let note = notes.get(&(event.seq, event.digest()));
            let proof = note.and_then(|note| note.evidence.as_ref());
            let waited = note.and_then(|note| note.waited);
            let applied = replay.apply(self.dialect, &event).unwrap_or_default();
            let changes = applied.changes;
            let mut ended = HashSet::new();
            let next = changes
                .iter()
                .rfind(|change| change.kind == ChangeKind::Began);
            let next = next.map(|change| change.claim.owner.clone());
            for change in changes {
                let Some((kind, evidence)) = event_kind(&change, proof, next.as_deref()) else {
                    continue;
                };
                let key = change.node.key().clone();
                let reason = (kind == EventKind::Granted).then(|| match events.last() {
                    Some(Event { kind, key: of, .. }) if taken.contains(&key) && *of == key => {
                        match kind {
                            EventKind::Dead => Reason::ClaimedDead,
                            EventKind::Expired => Reason::ClaimedExpired,
                            _ => Reason::AcquiredNew,
                        }
                    }
                    _ => Reason::AcquiredNew,
                });
                if evidence.is_some() {
                    ended.insert(key.clone());
                    taken.insert(key.clone());
                }
                id += 1;
                events.push(Event {
                    id,
                    at: at.unwrap_or(change.claim.heard),
                    key,
                    kind,
                    mode: Mode::Exclusive,
                    token: Token(change.claim.token),
                    holder: HolderId::parse(change.claim.owner.as_str())
                        .unwrap_or_else(|_| HolderId::unreadable()),
                    times: 1,
                    reason: reason.map(|reason| reason.word().to_owned()),
                    evidence,
                    waited: waited.filter(|_| kind == EventKind::Granted),
                });
            }
            taken = ended;
        }
        Ok(query.select(events))
    }
}

fn event_kind(
    change: &ClaimChange,
    proof: Option<&Evidence>,
    next: Option<&str>,
) -> Option<(EventKind, Option<Evidence>)> {
    let proven = |evidence: Evidence| (EventKind::of(&evidence), Some(evidence));
    Some(match &change.kind {
        ChangeKind::Began => (EventKind::Granted, None),
        ChangeKind::Renewed => (EventKind::Renewed, None),
        ChangeKind::Ended(evidence) => match evidence.as_ref().or(proof) {
            Some(evidence) => proven(evidence.clone()),
            None => (EventKind::Released, None),
        },
        ChangeKind::Expired => proven(Evidence::TimeRanOut {
            expired_at: change.claim.expires,
        }),
        ChangeKind::Overlapped => proven(Evidence::Forced {
            by: next
                .and_then(|next| HolderId::parse(next).ok())
                .unwrap_or_else(HolderId::unreadable),
            reason: Some("another program claimed the node".into()),
        }),
        ChangeKind::Unmatched => return None,
    })
}
