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
    BootId, ErrorKind, Evidence, Holder, Key, Lease, Presence, Priority, Reason, StoreError,
    Ticket, Token, Waiter,
};
use tenure_host::LifeFolder;

use crate::atomic::{self, Sync};
use crate::fault::explain;
use crate::halves::Halves;
use crate::slot::Mark;

/// By how much the ceiling is raised at a time: raising it takes two syncs.
const BLOCK: u64 = 1 << 16;

/// The format of `state`.
const FORMAT: u32 = 1;

/// A lease that never runs out by itself.
pub const NEVER: Timestamp = Timestamp::MAX;

/// The side folder.
#[derive(Debug, Clone)]
pub struct Side(PathBuf, Transit);

/// Where a lock is on its way to or from its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transit {
    Inside,
    Beside,
}

impl Side {
    /// The folder at this path. It is made when something is first written.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into(), Transit::Inside)
    }

    /// The same for a lock that is a folder: it is prepared and taken away under names beside the
    /// side folder (`SIDE-next`, `SIDE-aside`), in the folder of its place. A folder that may not be
    /// written into can be renamed only there.
    pub fn of_folder(path: impl Into<PathBuf>) -> Self {
        Self(path.into(), Transit::Beside)
    }

    fn transit(&self, name: &str) -> PathBuf {
        match self.1 {
            Transit::Inside => self.0.join(name),
            Transit::Beside => {
                let mut path = self.0.clone().into_os_string();
                path.push("-");
                path.push(name);
                path.into()
            }
        }
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes the folder, if it is not there.
    pub fn make(&self) -> Result<(), StoreError> {
        let ignore = self.0.join(".gitignore");
        if ignore.metadata().is_ok_and(|there| there.len() > 0) {
            return Ok(());
        }
        fs::create_dir_all(&self.0)
            .and_then(|()| fs::write(&ignore, "*\n"))
            .map_err(|error| explain("written", &self.0, error))
    }

    /// The file that the guard locks.
    pub fn guard(&self) -> PathBuf {
        self.0.join("guard")
    }

    /// A lock on its way to its place, or swapped out of it.
    pub fn next(&self) -> PathBuf {
        self.transit("next")
    }

    /// A lock that was taken from its place.
    pub fn aside(&self) -> PathBuf {
        self.transit("aside")
    }

    /// The lives of those who hold and wait.
    pub fn lives(&self) -> LifeFolder {
        LifeFolder::new(self.0.join("live"))
    }

    pub(crate) fn history(&self) -> PathBuf {
        self.0.join("history")
    }

    fn halves(&self) -> Halves {
        Halves::new(&self.0.join("state"))
    }

    fn ceiling(&self) -> PathBuf {
        self.0.join("ceiling")
    }

    /// Reads the state.
    pub(crate) fn load(&self) -> Result<Loaded, StoreError> {
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
                    format!("{} was written by a newer tenure", self.0.display()),
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
    pub(crate) fn revision(&self) -> u64 {
        match self.load() {
            Ok(Loaded::Known(state) | Loaded::Lost(state, _)) => state.revision,
            Err(_) => 0,
        }
    }

    /// Writes the state into the older half.
    pub(crate) fn save(&self, state: &mut State) -> Result<(), StoreError> {
        state.format = FORMAT;
        state.revision = state.revision.wrapping_add(1);
        let json =
            serde_json::to_vec(state).map_err(|error| explain("written", &self.0, error.into()))?;
        state.half = self.halves().write(state.revision, state.half, &json)?;
        Ok(())
    }

    /// The number that no token given so far exceeds; `None` if it is not known.
    pub(crate) fn read_ceiling(&self) -> Option<Token> {
        let text = fs::read_to_string(self.ceiling()).ok()?;
        text.trim().parse().ok().map(Token)
    }

    /// Makes sure that `token` may be given: that whoever loses the state goes on above it.
    pub(crate) fn make_room(&self, token: Token) -> Result<(), StoreError> {
        if self.read_ceiling().is_some_and(|ceiling| token <= ceiling) {
            return Ok(());
        }
        let path = self.ceiling();
        let raised = format!("{}\n", token.0.saturating_add(BLOCK));
        let temp = self.0.join("ceiling.new");
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
    pub(crate) boot: Option<BootId>,
    /// At least every token ever given.
    pub(crate) newest: u64,
    pub(crate) last_ticket: u64,
    /// The newest event in the history, and how long that is.
    pub(crate) last_event: u64,
    pub(crate) history_bytes: u64,
    /// The lease that we granted and nobody ended.
    pub(crate) grant: Option<Kept>,
    pub(crate) tickets: Vec<Queued>,
    /// What is about to happen.
    pub(crate) pending: Option<Pending>,
}

/// A lease of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) token: Token,
    pub(crate) holder: Holder,
    pub(crate) acquired_at: Timestamp,
    pub(crate) heartbeat_at: Timestamp,
    pub(crate) ttl: Duration,
}

impl From<&Lease> for Kept {
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

impl Kept {
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
        since_boot: Duration::ZERO,
        boot: BootId::unknown(),
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
    pub(crate) ended: Option<(Kept, Ending)>,
    /// The lease that begins, and why.
    pub(crate) granted: Option<(Kept, Reason)>,
    /// The lease that goes on, as it will be.
    pub(crate) renewed: Option<Kept>,
    /// The lock that was judged: it is swapped out or removed. The place is free without it, or is
    /// not touched.
    pub(crate) judged: Option<Mark>,
    /// The ticket that is used up.
    pub(crate) ticket: Option<Ticket>,
}

/// A ticket.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Queued {
    pub(crate) ticket: Ticket,
    pub(crate) holder: Holder,
    pub(crate) named: bool,
    pub(crate) priority: Priority,
    pub(crate) arrived: Duration,
    pub(crate) seen: Duration,
    pub(crate) boot: BootId,
    /// It stepped aside, and keeps its place.
    pub(crate) parked: bool,
}

impl Queued {
    /// One that stepped aside is away; of the others it is for the reader to find out.
    pub(crate) fn waiter(&self) -> Waiter {
        Waiter {
            ticket: self.ticket,
            holder: self.holder.clone(),
            named: self.named,
            priority: self.priority,
            arrived: self.arrived,
            seen: self.seen,
            boot: self.boot.clone(),
            presence: if self.parked {
                Presence::Away
            } else {
                Presence::Here
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::digest;

    #[test]
    fn a_token_has_room_only_below_the_ceiling() {
        let dir = tempfile::tempdir().unwrap();
        let side = Side::new(dir.path().join("side"));
        side.make().unwrap();
        assert_eq!(side.read_ceiling(), None);
        side.make_room(Token(1)).unwrap();
        assert_eq!(side.read_ceiling(), Some(Token(BLOCK + 1)));
        side.make_room(Token(BLOCK + 1)).unwrap();
        assert_eq!(side.read_ceiling(), Some(Token(BLOCK + 1)));
        side.make_room(Token(BLOCK + 2)).unwrap();
        assert_eq!(side.read_ceiling(), Some(Token(2 * BLOCK + 2)));
    }

    #[test]
    fn a_state_of_a_newer_tenure_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let side = Side::new(dir.path());
        let json = r#"{"format": 2, "tickets": "elsewhere"}"#;
        let head = format!("1 {:016x} {}\n", digest(json.as_bytes()), json.len());
        fs::write(dir.path().join("state.a"), head + json).unwrap();
        let error = side.load().err().unwrap();
        assert_eq!(error.kind, ErrorKind::TooNew);
    }

    #[test]
    fn a_half_that_was_torn_anywhere_leaves_the_state_before() {
        let dir = tempfile::tempdir().unwrap();
        let side = Side::new(dir.path());
        let mut state = State::default();
        for newest in 1..=3 {
            state.newest = newest;
            side.save(&mut state).unwrap();
        }
        let halves = side.halves();
        let path = &halves.paths()[state.half];
        let good = fs::read(path).unwrap();
        for cut in 0..good.len() {
            let torn = [&good[..cut], &vec![b'0'; good.len() - cut]].concat();
            for bytes in [&good[..cut], &torn[..]] {
                fs::write(path, bytes).unwrap();
                let Ok(Loaded::Known(found)) = side.load() else {
                    panic!("cut at {cut}");
                };
                let whole = if bytes == good { 3 } else { 2 };
                assert_eq!(found.newest, whole, "cut at {cut}");
            }
        }
    }
}
