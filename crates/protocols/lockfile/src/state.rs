//! [`StateFile`]: what tenure records beside the lock, in the sidecar folder.
//!
//! | name | contents |
//! |---|---|
//! | `guard` | the file of the step lock (`flock`) |
//! | `state.a`, `state.b` | the grant, the queue, the newest token and a pending step: [`SidecarState`], a two-slot file of JSON |
//! | `ceiling` | an upper bound of all tokens granted so far; synced to disk before a token is used |
//! | `history` | one event per line |
//! | `next`, `aside` | a lock that is being put at its path or removed (for a lock folder: beside the sidecar) |
//! | `live/` | one named pipe for each process that holds or waits |
//! | `.gitignore` | excludes all of this from git |
//!
//! # Tokens (G2)
//!
//! The state is not synced: a power cut may bring back an old one or leave none. So the newest token
//! in it is trusted only in the boot that wrote it. After a reboot, and if the state can't be read,
//! tokens continue above the ceiling. Only the queue is lost with the state.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::{
    Epoch, ErrorKind, Evidence, Holder, Key, Lease, Reason, StoreError, Ticket, Token, Waiter,
};
use tenure_host::files::Sidecar;
use tenure_host::files::atomic::{self, Durability};
use tenure_host::files::beneath;
use tenure_host::files::fault::explain;
use tenure_host::files::protocol::Fingerprint;
use tenure_host::files::two_slot::TwoSlotFile;

use crate::foreign_holder::lease;

/// The largest ceiling that is read, in bytes: a number.
const LARGEST_CEILING: u64 = 64;

/// By how much the ceiling rises at a time. Each rise takes two syncs.
const CEILING_STEP: u64 = 1 << 16;

/// The format of `state`.
const FORMAT: u32 = 1;

/// The state of one lock, in its sidecar folder.
#[derive(Debug, Clone)]
pub(crate) struct StateFile {
    sidecar: Sidecar,
    slots: TwoSlotFile,
    ceiling: PathBuf,
}

impl StateFile {
    pub(crate) fn new(sidecar: Sidecar) -> Self {
        Self {
            slots: TwoSlotFile::new(&sidecar.path().join("state")),
            ceiling: sidecar.path().join("ceiling"),
            sidecar,
        }
    }

    pub(crate) fn sidecar(&self) -> &Sidecar {
        &self.sidecar
    }

    pub(crate) fn load(&self) -> Result<Loaded, StoreError> {
        let (newest, flaw) = self.slots.read()?;
        let Some((revision, slot, json)) = newest else {
            // A new folder (even if its first state is torn), or one that lost its state.
            return Ok(
                if self.ceiling.exists() || self.sidecar.history().exists() {
                    let why = flaw.unwrap_or_else(|| "it does not exist".into());
                    Loaded::Lost(SidecarState::default(), why)
                } else {
                    Loaded::Known(SidecarState::default())
                },
            );
        };
        match serde_json::from_slice::<Format>(&json) {
            Ok(Format { format }) if format > FORMAT => {
                let folder = self.sidecar.path().display();
                return Err(StoreError::new(
                    ErrorKind::TooNew,
                    format!("{folder} was written by a newer tenure"),
                )
                .fix("update this tenure"));
            }
            _ => {}
        }
        let why = match serde_json::from_slice::<SidecarState>(&json) {
            Ok(mut state) if state.newest <= Token::MAX.0 => {
                state.revision = revision;
                state.slot = slot;
                return Ok(Loaded::Known(state));
            }
            Ok(state) => format!("its newest token is {}", state.newest),
            Err(error) => error.to_string(),
        };
        let lost = SidecarState {
            revision,
            slot,
            ..SidecarState::default()
        };
        Ok(Loaded::Lost(lost, why))
    }

    /// The revision of the state. Needs no step lock.
    pub(crate) fn revision(&self) -> u64 {
        match self.load() {
            Ok(Loaded::Known(state) | Loaded::Lost(state, _)) => state.revision,
            Err(_) => 0,
        }
    }

    /// Writes the state as the next revision.
    pub(crate) fn save(&self, state: &mut SidecarState) -> Result<(), StoreError> {
        state.format = FORMAT;
        state.revision = state.revision.wrapping_add(1);
        let json = serde_json::to_vec(state)
            .map_err(|error| explain("written", self.sidecar.path(), error.into()))?;
        state.slot = self.slots.write(state.revision, state.slot, &json)?;
        Ok(())
    }

    /// The upper bound of all tokens granted so far; `None` if it is unknown.
    pub(crate) fn ceiling(&self) -> Option<Token> {
        let text = beneath::read_text(&self.ceiling, LARGEST_CEILING).ok()?;
        let ceiling = text.trim().parse().ok().map(Token);
        ceiling.filter(|ceiling| *ceiling <= Token::MAX)
    }

    /// Makes sure that `token` is not above the ceiling, so that tokens continue above it even if
    /// the state is lost.
    pub(crate) fn raise_ceiling(&self, token: Token) -> Result<(), StoreError> {
        if self.ceiling().is_some_and(|ceiling| token <= ceiling) {
            return Ok(());
        }
        let raised = token.0.saturating_add(CEILING_STEP).min(Token::MAX.0);
        let raised = format!("{raised}\n");
        let temp = self.sidecar.path().join("ceiling.new");
        atomic::replace(
            &self.ceiling,
            &temp,
            raised.as_bytes(),
            Durability::PowerCut,
        )
        .map_err(|error| explain("written", &self.ceiling, error))
    }
}

/// The part of the state that every format has.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// The result of loading the state.
pub(crate) enum Loaded {
    Known(SidecarState),
    /// The state can't be read, and why.
    Lost(SidecarState, String),
}

/// What tenure knows beyond what the lock itself states.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SidecarState {
    pub(crate) format: u32,
    /// Grows with every save.
    #[serde(skip)]
    pub(crate) revision: u64,
    /// The slot that it was read from.
    #[serde(skip)]
    pub(crate) slot: usize,
    /// The boot in which `newest` was last raised.
    pub(crate) boot: Option<Epoch>,
    /// At least as large as every token ever granted.
    pub(crate) newest: u64,
    pub(crate) last_ticket: u64,
    /// The id of the newest event, and the length of the history file.
    pub(crate) last_event: u64,
    pub(crate) history_bytes: u64,
    /// The lease that tenure granted and that has not ended.
    pub(crate) grant: Option<GrantRecord>,
    pub(crate) tickets: Vec<Waiter>,
    /// Leases that another program ended while their commands ran. No other lease is granted before
    /// those commands have ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) robbed: Vec<GrantRecord>,
    /// A step that has begun and not ended.
    pub(crate) pending: Option<Pending>,
}

/// A lease that tenure granted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GrantRecord {
    pub(crate) token: Token,
    pub(crate) holder: Holder,
    pub(crate) acquired_at: Timestamp,
    pub(crate) heartbeat_at: Timestamp,
    /// What the claim asked for. The lease has no end all the same.
    pub(crate) ttl: Duration,
}

impl From<&Lease> for GrantRecord {
    fn from(lease: &Lease) -> Self {
        Self {
            token: lease.token,
            holder: lease.holder.clone(),
            acquired_at: lease.acquired_at,
            heartbeat_at: lease.heartbeat_at,
            ttl: lease.ttl,
        }
    }
}

impl GrantRecord {
    /// The lease, which has no end.
    pub(crate) fn lease(&self, key: &Key) -> Lease {
        Lease {
            heartbeat_at: self.heartbeat_at,
            ttl: self.ttl,
            ..lease(key, self.holder.clone(), self.token, self.acquired_at)
        }
    }
}

/// How a lease ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    Released,
    Proven(Evidence),
}

/// A step that is written down before the lock is touched: all of it happens, or none of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pending {
    /// The lease that ends, and how.
    pub(crate) ended: Option<(GrantRecord, Ending)>,
    /// The lease that begins, and why.
    pub(crate) granted: Option<(GrantRecord, Reason)>,
    /// The renewed lease.
    pub(crate) renewed: Option<GrantRecord>,
    /// The lock that is swapped out or removed. Without one, the path is free or the step does not
    /// touch it.
    #[serde(rename = "judged")]
    pub(crate) replaced: Option<Fingerprint>,
    /// The waiter's ticket, which the grant uses up.
    pub(crate) ticket: Option<Ticket>,
    /// How long that waiter had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waited: Option<Duration>,
}

impl Pending {
    /// Whether no lease changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_none() && self.granted.is_none() && self.renewed.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use tenure_host::files::protocol::digest;

    #[test]
    fn the_ceiling_rises_only_for_a_token_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::new(dir.path().join("sidecar"));
        sidecar.make().unwrap();
        let file = StateFile::new(sidecar);
        assert_eq!(file.ceiling(), None);
        file.raise_ceiling(Token(1)).unwrap();
        assert_eq!(file.ceiling(), Some(Token(CEILING_STEP + 1)));
        file.raise_ceiling(Token(CEILING_STEP + 1)).unwrap();
        assert_eq!(file.ceiling(), Some(Token(CEILING_STEP + 1)));
        file.raise_ceiling(Token(CEILING_STEP + 2)).unwrap();
        assert_eq!(file.ceiling(), Some(Token(2 * CEILING_STEP + 2)));
    }

    #[test]
    fn a_state_of_a_newer_tenure_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::new(Sidecar::new(dir.path()));
        let json = r#"{"format": 2, "tickets": "elsewhere"}"#;
        let head = format!("1 {:016x} {}\n", digest(json.as_bytes()), json.len());
        fs::write(dir.path().join("state.a"), head + json).unwrap();
        let error = file.load().err().unwrap();
        assert_eq!(error.kind, ErrorKind::TooNew);
    }

    #[test]
    fn a_slot_that_is_torn_anywhere_leaves_the_previous_state() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::new(Sidecar::new(dir.path()));
        let mut state = SidecarState::default();
        for newest in 1..=3 {
            state.newest = newest;
            file.save(&mut state).unwrap();
        }
        let path = &file.slots.paths()[state.slot];
        let good = fs::read(path).unwrap();
        for cut in 0..good.len() {
            let torn = [&good[..cut], &vec![b'0'; good.len() - cut]].concat();
            for bytes in [&good[..cut], &torn[..]] {
                fs::write(path, bytes).unwrap();
                let Ok(Loaded::Known(found)) = file.load() else {
                    panic!("cut at {cut}");
                };
                let whole = if bytes == good { 3 } else { 2 };
                assert_eq!(found.newest, whole, "cut at {cut}");
            }
        }
    }

    /// As version 0.1.0 wrote it, in the middle of a takeover.
    #[test]
    fn a_state_of_the_first_version_is_read() {
        let holder = |id: &str| {
            format!(
                r#"{{"id":"{id}","host":"h","command":null,"binding":{{"kind":"life","life":"21f5260aef7c45b1a37c3fcfc5e88ae2","process":{{"pid":7,"started":5,"boot":"b","namespace":"pid:[1]","host":"h"}}}}}}"#
            )
        };
        let lease = |token: u64, id: &str| {
            format!(
                r#"{{"token":{token},"holder":{},"acquired_at":"2026-11-16T07:24:17Z","heartbeat_at":"2026-11-16T07:24:17Z","ttl":{{"secs":300,"nanos":0}}}}"#,
                holder(id)
            )
        };
        let json = format!(
            r#"{{"format":1,"boot":"b","newest":2,"last_ticket":1,"last_event":1,"history_bytes":131,"grant":{first},"tickets":[{{"ticket":1,"holder":{waiter},"named":true,"priority":5,"arrived":{{"secs":9,"nanos":0}},"seen":{{"secs":9,"nanos":0}},"boot":"b","parked":true}}],"pending":{{"ended":[{first},{{"proven":{{"proof":"life_lock_free","pid":7}}}}],"granted":[{second},"claimed_dead"],"renewed":null,"judged":{{"file":[1,2],"digest":3}},"ticket":1}}}}"#,
            first = lease(1, "first"),
            second = lease(2, "second"),
            waiter = holder("second"),
        );
        let state: SidecarState = serde_json::from_str(&json).unwrap();
        assert_eq!(state.tickets[0].presence, tenure_core::Presence::Away);
        assert_eq!(state.grant.as_ref().unwrap().holder.id.as_str(), "first");
        let pending = state.pending.as_ref().unwrap();
        assert_eq!(pending.ticket, Some(Ticket(1)));
        assert_eq!(pending.replaced.as_ref().unwrap().file, (1, 2));
        assert!(matches!(pending.ended, Some((_, Ending::Proven(_)))));
        let (granted, reason) = pending.granted.as_ref().unwrap();
        assert_eq!((granted.token, *reason), (Token(2), Reason::ClaimedDead));
        // The older version reads what this one writes.
        assert_eq!(serde_json::to_string(&state).unwrap(), json);
    }
}
