//! The folder beside the lock: what tenure knows beyond the protocol.
//!
//! | name | what it is |
//! |---|---|
//! | `guard` | locked with `flock` by whoever works here |
//! | `state.a`, `state.b` | the grant, the queue, the newest token, a step that is under way |
//! | `ceiling` | a number that no token given so far exceeds; on disk before it is used |
//! | `history` | one event a line |
//! | `next`, `aside` | a lock on its way to or from its place (of one that is a folder: beside this) |
//! | `live/` | one named pipe for each process that holds or waits |
//! | `.gitignore` | nothing here is ever committed |
//!
//! # The state
//!
//! It is JSON, kept in two halves: see `halves`.
//!
//! # Tokens (G2)
//!
//! The state is not synced: a power cut may bring back an old one, or leave none. So it counts only in
//! the boot in which it was written; after that, and when it can't be read, tokens go on above the
//! ceiling. Nothing but the order of the queue, and a note in the history, is lost with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::{
    Epoch, ErrorKind, Evidence, Holder, Key, Lease, Presence, Priority, Reason, StoreError, Ticket,
    Token, Waiter,
};
pub(crate) use tenure_host::files::sidecar::{Sidecar, TicketRecord};

use tenure_host::files::atomic::{self, Sync};
use tenure_host::files::fault::explain;
use tenure_host::files::protocol::Fingerprint;
use tenure_host::files::two_slot::TwoSlotFile;

/// By how much the ceiling is raised at a time: raising it takes two syncs.
const BLOCK: u64 = 1 << 16;

/// The format of `state`.
const FORMAT: u32 = 1;

/// A lease that never runs out by itself.
pub const NEVER: Timestamp = Timestamp::MAX;

/// What the state file adds to the sidecar folder.
pub(crate) trait StateFile {
    fn halves(&self) -> TwoSlotFile;
    fn ceiling(&self) -> PathBuf;
    fn load(&self) -> Result<Loaded, StoreError>;
    fn revision(&self) -> u64;
    fn save(&self, state: &mut State) -> Result<(), StoreError>;
    fn read_ceiling(&self) -> Option<Token>;
    fn make_room(&self, token: Token) -> Result<(), StoreError>;
}

impl StateFile for Sidecar {
    fn halves(&self) -> TwoSlotFile {
        TwoSlotFile::new(&self.path().join("state"))
    }

    fn ceiling(&self) -> PathBuf {
        self.path().join("ceiling")
    }

    /// Reads the state.
    fn load(&self) -> Result<Loaded, StoreError> {
        let (newest, flaw) = self.halves().read()?;
        let Some((revision, half, json)) = newest else {
            // A new folder (also if its very first state was torn), or one whose state was lost.
            return Ok(if self.ceiling().exists() || self.history().exists() {
                let why = flaw.unwrap_or_else(|| "it is not there".into());
                Loaded::Lost(State::default(), why)
            } else {
                Loaded::Known(State::default())
            });
        };
        match serde_json::from_slice::<Format>(&json) {
            Ok(Format { format }) if format > FORMAT => {
                return Err(StoreError::new(
                    ErrorKind::TooNew,
                    format!("{} was written by a newer tenure", self.path().display()),
                )
                .fix("update this tenure"));
            }
            _ => {}
        }
        Ok(match serde_json::from_slice::<State>(&json) {
            Ok(mut state) => {
                state.revision = revision;
                state.half = half;
                Loaded::Known(state)
            }
            Err(error) => {
                let lost = State {
                    revision,
                    half,
                    ..State::default()
                };
                Loaded::Lost(lost, error.to_string())
            }
        })
    }

    /// Which state is on record, without the guard.
    fn revision(&self) -> u64 {
        match self.load() {
            Ok(Loaded::Known(state) | Loaded::Lost(state, _)) => state.revision,
            Err(_) => 0,
        }
    }

    /// Writes the state into the older half.
    fn save(&self, state: &mut State) -> Result<(), StoreError> {
        state.format = FORMAT;
        state.revision = state.revision.wrapping_add(1);
        let json = serde_json::to_vec(state)
            .map_err(|error| explain("written", self.path(), error.into()))?;
        state.half = self.halves().write(state.revision, state.half, &json)?;
        Ok(())
    }

    /// The number that no token given so far exceeds; `None` if it is not known.
    fn read_ceiling(&self) -> Option<Token> {
        let text = fs::read_to_string(self.ceiling()).ok()?;
        text.trim().parse().ok().map(Token)
    }

    /// Makes sure that `token` may be given: that whoever loses the state goes on above it.
    fn make_room(&self, token: Token) -> Result<(), StoreError> {
        if self.read_ceiling().is_some_and(|ceiling| token <= ceiling) {
            return Ok(());
        }
        let path = self.ceiling();
        let raised = format!("{}\n", token.0.saturating_add(BLOCK));
        let temp = self.path().join("ceiling.new");
        atomic::replace(&path, &temp, raised.as_bytes(), Sync::ToDisk)
            .map_err(|error| explain("written", &path, error))
    }
}

/// What every format begins with.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// The state as it was found.
pub(crate) enum Loaded {
    Known(State),
    /// It can't be understood; why.
    Lost(State, String),
}

/// What tenure knows beyond the protocol.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    pub(crate) format: u32,
    /// Grows with every change.
    #[serde(skip)]
    pub(crate) revision: u64,
    /// In which half it is.
    #[serde(skip)]
    pub(crate) half: usize,
    /// The boot in which `newest` was last raised.
    pub(crate) boot: Option<Epoch>,
    /// At least every token ever given.
    pub(crate) newest: u64,
    pub(crate) last_ticket: u64,
    /// The newest event in the history, and how long that is.
    pub(crate) last_event: u64,
    pub(crate) history_bytes: u64,
    /// The lease that we granted and nobody ended.
    pub(crate) grant: Option<LeaseRecord>,
    pub(crate) tickets: Vec<TicketRecord>,
    /// What is about to happen.
    pub(crate) pending: Option<Pending>,
}

/// A lease of ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeaseRecord {
    pub(crate) token: Token,
    pub(crate) holder: Holder,
    pub(crate) acquired_at: Timestamp,
    pub(crate) heartbeat_at: Timestamp,
    pub(crate) ttl: Duration,
}

impl From<&Lease> for LeaseRecord {
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

impl LeaseRecord {
    /// The lease itself, which never runs out.
    pub(crate) fn lease(&self, key: &Key) -> Lease {
        Lease {
            key: key.clone(),
            holder: self.holder.clone(),
            token: self.token,
            acquired_at: self.acquired_at,
            expires: never(),
            heartbeat_at: self.heartbeat_at,
            ttl: self.ttl,
        }
    }
}

/// The end of a lease that has none: a boot that is never ours leaves the wall clock to judge.
pub(crate) fn never() -> tenure_core::Deadline {
    tenure_core::Deadline {
        wall: NEVER,
        ticks: Duration::ZERO,
        epoch: Epoch::unknown(),
    }
}

/// How a lease ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    Released,
    Proven(Evidence),
}

/// What is about to happen, all of it or nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Pending {
    /// The lease that ends, and how.
    pub(crate) ended: Option<(LeaseRecord, Ending)>,
    /// The lease that begins, and why.
    pub(crate) granted: Option<(LeaseRecord, Reason)>,
    /// The lease that goes on, as it will be.
    pub(crate) renewed: Option<LeaseRecord>,
    /// The lock that was judged: it is swapped out or removed. The place is free without it, or is
    /// not touched.
    pub(crate) judged: Option<Fingerprint>,
    /// The ticket that is used up.
    pub(crate) ticket: Option<Ticket>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_host::files::protocol::digest;

    #[test]
    fn a_token_has_room_only_below_the_ceiling() {
        let dir = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::new(dir.path().join("sidecar"));
        sidecar.make().unwrap();
        assert_eq!(sidecar.read_ceiling(), None);
        sidecar.make_room(Token(1)).unwrap();
        assert_eq!(sidecar.read_ceiling(), Some(Token(BLOCK + 1)));
        sidecar.make_room(Token(BLOCK + 1)).unwrap();
        assert_eq!(sidecar.read_ceiling(), Some(Token(BLOCK + 1)));
        sidecar.make_room(Token(BLOCK + 2)).unwrap();
        assert_eq!(sidecar.read_ceiling(), Some(Token(2 * BLOCK + 2)));
    }

    #[test]
    fn a_state_of_a_newer_tenure_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::new(dir.path());
        let json = r#"{"format": 2, "tickets": "elsewhere"}"#;
        let head = format!("1 {:016x} {}\n", digest(json.as_bytes()), json.len());
        fs::write(dir.path().join("state.a"), head + json).unwrap();
        let error = sidecar.load().err().unwrap();
        assert_eq!(error.kind, ErrorKind::TooNew);
    }

    #[test]
    fn a_half_that_was_torn_anywhere_leaves_the_state_before() {
        let dir = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::new(dir.path());
        let mut state = State::default();
        for newest in 1..=3 {
            state.newest = newest;
            sidecar.save(&mut state).unwrap();
        }
        let halves = sidecar.halves();
        let path = &halves.paths()[state.half];
        let good = fs::read(path).unwrap();
        for cut in 0..good.len() {
            let torn = [&good[..cut], &vec![b'0'; good.len() - cut]].concat();
            for bytes in [&good[..cut], &torn[..]] {
                fs::write(path, bytes).unwrap();
                let Ok(Loaded::Known(found)) = sidecar.load() else {
                    panic!("cut at {cut}");
                };
                let whole = if bytes == good { 3 } else { 2 };
                assert_eq!(found.newest, whole, "cut at {cut}");
            }
        }
    }
}
