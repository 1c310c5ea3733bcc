//! Claims as a store: [`LedgerStore`], `ledger:DIR`, for keys `node:1.2.3`.
//!
//! The ledger is the truth: who has a claim, since when and until when is what its events say, also
//! to programs that know nothing of tenure. Each verb is one compare-and-swap: read to event N,
//! decide, append only if N is still the newest, else look anew.
//!
//! | module | what it holds |
//! |---|---|
//! | `verbs` | the verbs of [`tenure_core::Store`] |
//! | `step` | a step under way: look, decide, write down, append |
//! | `look` | which claim on a node counts |
//! | `keyed` | what tenure knows beyond the ledger: ties, ends on the boot clock, the queue |
//! | `deed` | the events, in either dialect |
//! | `past` | the story, told by the ledger itself |
//!
//! A token is the number of the event that began the claim.

mod claim_event;
mod history;
mod look;
mod node_state;
mod step;
mod verbs;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tenure_core::{ErrorKind, Key, Lease, LivenessId, Moment, Revision, StoreError, Verdict};
use tenure_host::inotify::{FolderWatch, Listener, WatchFlags};
use tenure_host::watch::Watches;
use tenure_host::{Bell, LivenessFolder, LivenessLock, bell};

use self::look::{Counts, Sight};
use self::node_state::NodeState;
use self::step::Step;
use super::{Dialect, Ledger, MAX_TIMEOUT, MIN_TIMEOUT};
use crate::checkpoint;
use crate::claim_files::FileClaim;
use crate::node::NodeId;
use crate::replay::Replay;
use tenure_host::files::Options;
use tenure_host::files::fault::explain;
use tenure_host::files::protocol::Removal;
use tenure_host::files::reader::Reader;

/// How many events a reader replays before it leaves a checkpoint for the next.
const WORTH_KEEPING: u64 = 1024;

/// Claims on the nodes of a ledger.
pub struct LedgerStore {
    ledger: Ledger,
    keys: PathBuf,
    folder: LivenessFolder,
    /// Ours. Begun when a lease or a ticket first needs it.
    lock_cell: OnceLock<LivenessLock>,
    beginning: Mutex<()>,
    replay: Mutex<Option<Replay>>,
    watches: Watches,
    bell: Bell,
    /// Reports what other programs write. `None` if the folder can't be watched.
    listener: OnceLock<Option<Listener>>,
    ttl_limits: RangeInclusive<Duration>,
}

/// A claim as lists show it.
#[derive(Debug, Clone)]
pub struct ListedClaim {
    /// Which node.
    pub node: NodeId,
    /// Who has it, since when, until when.
    pub lease: Lease,
    /// What is known of its holder.
    pub verdict: Verdict,
    /// The file, for a claim that is one.
    pub file: Option<PathBuf>,
}

impl LedgerStore {
    /// Opens the claims of a ledger, which must be there.
    pub fn open(root: &Path, options: Options) -> Result<Self, StoreError> {
        Ok(Self::of(Ledger::open(root, options)?))
    }

    /// The claims of a ledger.
    pub fn of(ledger: Ledger) -> Self {
        Self {
            keys: ledger.sidecar.path().join("keys"),
            folder: ledger.sidecar.liveness_folder(),
            ledger,
            lock_cell: OnceLock::new(),
            beginning: Mutex::new(()),
            replay: Mutex::new(None),
            watches: Watches::default(),
            bell: Bell::default(),
            listener: OnceLock::new(),
            ttl_limits: MIN_TIMEOUT..=MAX_TIMEOUT,
        }
    }

    /// Accepts claims whose time to live is in this range, instead of the range that the protocol
    /// allows. Tests use it to see claims expire soon.
    #[must_use]
    pub fn with_ttl_limits(mut self, limits: RangeInclusive<Duration>) -> Self {
        self.ttl_limits = limits;
        self
    }

    fn check_ttl(&self, ttl: Duration) -> Result<(), StoreError> {
        if self.ttl_limits.contains(&ttl) {
            return Ok(());
        }
        let what = format!(
            "a claim in {} can't last {ttl:?}: the protocol allows from 1s to 1h",
            self.ledger.root.display()
        );
        Err(StoreError::new(ErrorKind::Unsupported, what)
            .fix("choose a time to live in that range, for example --ttl 10m"))
    }

    /// The ledger itself.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn liveness_lock(&self) -> Result<&LivenessLock, StoreError> {
        if let Some(life) = self.lock_cell.get() {
            return Ok(life);
        }
        let _one_at_a_time = lock(&self.beginning);
        if let Some(life) = self.lock_cell.get() {
            return Ok(life);
        }
        self.ledger.sidecar.make()?;
        let life = LivenessLock::begin(&self.folder)
            .map_err(|error| explain("written", self.folder.path(), error))?;
        Ok(self.lock_cell.get_or_init(|| life))
    }

    fn reader<'a>(&'a self, now: &'a Moment) -> Reader<'a> {
        Reader {
            folder: &self.folder,
            now,
            us: self.lock_cell.get().map(LivenessLock::id),
            removal: Removal::Loss,
        }
    }

    /// Begins to hear what other programs do: whatever it is rings our bell.
    fn listen(&self, life: &LivenessLock) {
        self.listener.get_or_init(|| {
            let (folder, lock) = (self.folder.clone(), life.id().clone());
            let watch = self.ledger.watch_other_programs().ok()?;
            Listener::start(watch, move |_| {
                bell::ring(&folder, &lock);
                ControlFlow::Continue(())
            })
            .ok()
        });
    }

    /// The node of a key; refuses every other key.
    fn node(&self, key: &Key) -> Result<NodeId, StoreError> {
        NodeId::of(key).map_err(|error| {
            let what = format!(
                "{} holds claims on nodes only, and {error}",
                self.ledger.root.display()
            );
            StoreError::new(ErrorKind::Unsupported, what)
                .fix("ask for a node, for example node:1.2.3, or name another store")
        })
    }

    /// One step that may change something about one node. Bells are rung after it.
    fn write<T>(
        &self,
        key: &Key,
        verb: impl FnOnce(&mut Step<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        self.write_node(self.node(key)?, verb)
    }

    fn write_node<T>(
        &self,
        node: NodeId,
        verb: impl FnOnce(&mut Step<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        let (answer, revision, appended, rings) = self.in_turn(node, verb)?;
        let synced = if appended { self.ledger.sync() } else { Ok(()) };
        for lock in rings {
            bell::ring(&self.folder, &lock);
        }
        let answer = answer?;
        synced?;
        Ok((answer, revision))
    }

    fn in_turn<T>(
        &self,
        node: NodeId,
        verb: impl FnOnce(&mut Step<'_>) -> Result<T, StoreError>,
    ) -> Result<Stepped<T>, StoreError> {
        let writing = self.ledger.writer()?;
        let mut replay = lock(&self.replay);
        let replay = replay.get_or_insert_with(|| self.ledger.resume());
        let mut step = Step {
            store: self,
            writing: &writing,
            now: self.ledger.options.clock.now(),
            node,
            keyed: NodeState::default(),
            files: Vec::new(),
            dirty: false,
            appended: false,
            rings: Vec::new(),
            replay,
        };
        let answer = step
            .look()
            .and_then(|()| verb(&mut step))
            .and_then(|answer| step.flush().map(|()| answer));
        let revision = self.revision(step.replay, &step.node, &step.keyed);
        let (appended, rings) = (step.appended, std::mem::take(&mut step.rings));
        if appended {
            self.leave_checkpoint(step.replay);
        }
        Ok((answer, revision, appended, rings))
    }

    /// Every so often. In our turn.
    fn leave_checkpoint(&self, replay: &Replay) {
        // One or two events at a time.
        if replay.seq % checkpoint::EVERY < 2 {
            // Only a short cut: without it the next one takes longer.
            let _ = self.ledger.save(replay);
        }
    }

    /// All claims, as the ledger and the files have them. Needs no turn.
    fn read<T>(
        &self,
        look: impl FnOnce(&Glance<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (answer, keep) = self.glance(look)?;
        // Whoever may not write goes without.
        if let Some(replay) = keep
            && self.ledger.sidecar.make().is_ok()
            && let Ok(_turn) = self.ledger.writers.take(&*self.ledger.options.clock)
        {
            let _ = self.ledger.save(&replay);
        }
        answer
    }

    fn glance<T>(
        &self,
        look: impl FnOnce(&Glance<'_>) -> Result<T, StoreError>,
    ) -> Result<(Result<T, StoreError>, Option<Replay>), StoreError> {
        let mut replay = lock(&self.replay);
        let fresh = replay.is_none();
        let replay = replay.get_or_insert_with(|| self.ledger.resume());
        let from = replay.seq;
        self.ledger.catch_up(replay)?;
        let new = replay.seq.saturating_sub(from);
        let keep = (fresh && new >= WORTH_KEEPING).then(|| replay.clone());
        let now = self.ledger.options.clock.now();
        let answer = look(&Glance {
            store: self,
            replay,
            files: self.ledger.file_claims()?,
            now,
        });
        Ok((answer, keep))
    }

    /// Changes whenever something about the node has changed, or the bell was rung.
    fn revision(&self, replay: &Replay, node: &NodeId, keyed: &NodeState) -> Revision {
        let mut hasher = DefaultHasher::new();
        let claim = replay.claims.get(node);
        let claim = claim.map(|claim| (claim.token, claim.expires.as_nanosecond()));
        (claim, keyed.revision, self.bell.generation()).hash(&mut hasher);
        Revision(hasher.finish())
    }

    /// Every claim that nobody ended, by node; also those whose time has run out.
    pub fn claims(&self) -> Result<Vec<ListedClaim>, StoreError> {
        self.read(|glance| {
            let mut nodes: Vec<NodeId> = glance.replay.claims.keys().cloned().collect();
            nodes.extend(glance.files.iter().filter_map(|file| file.node.clone()));
            nodes.sort();
            nodes.dedup();
            let known: HashSet<NodeId> = NodeState::nodes(&self.keys)?.into_iter().collect();
            let mut listed = Vec::new();
            for node in nodes {
                // Of most, among many, nothing more is known.
                let keyed = if known.contains(&node) {
                    glance.keyed(&node)?
                } else {
                    NodeState::default()
                };
                let Some(counts) = glance.counts(&node, &keyed) else {
                    continue;
                };
                let (lease, verdict) = glance.reader().verdict((counts.lease, counts.liveness));
                let file = match counts.source {
                    look::Source::Ledger => None,
                    look::Source::File(file) => Some(file.path),
                };
                listed.push(ListedClaim {
                    node,
                    lease,
                    verdict,
                    file,
                });
            }
            Ok(listed)
        })
    }

    /// How the ledger is written.
    pub fn dialect(&self) -> Dialect {
        self.ledger.dialect
    }
}

impl Ledger {
    /// Watches for events and claim files that other programs write. Tenure links its events and
    /// other programs rename theirs, so waiters sleep through the appends of other tenure
    /// processes, which wake exactly the waiter that can proceed.
    fn watch_other_programs(&self) -> std::io::Result<FolderWatch> {
        let watch = FolderWatch::new()?;
        watch.add(&self.path, WatchFlags::MOVED_TO)?;
        // Most ledgers have no claim files.
        let written = WatchFlags::MOVED_TO | WatchFlags::DELETE | WatchFlags::CLOSE_WRITE;
        let _ = watch.add(&self.root.join("locks"), written);
        Ok(watch)
    }
}

/// What a step leaves to be done after the turn: the answer, whether to sync, whom to wake.
type Stepped<T> = (Result<T, StoreError>, Revision, bool, Vec<LivenessId>);

/// A look at everything.
struct Glance<'a> {
    store: &'a LedgerStore,
    replay: &'a Replay,
    files: Vec<FileClaim>,
    now: Moment,
}

impl Glance<'_> {
    fn reader(&self) -> Reader<'_> {
        self.store.reader(&self.now)
    }

    fn keyed(&self, node: &NodeId) -> Result<NodeState, StoreError> {
        let mut keyed = NodeState::load(&self.store.keys, node, &self.now)?;
        resolve(&self.store.ledger, self.replay, node, &mut keyed)?;
        Ok(keyed)
    }

    fn counts(&self, node: &NodeId, keyed: &NodeState) -> Option<Counts> {
        Sight {
            reader: self.reader(),
            node,
            claim: self.replay.claims.get(node),
            keyed,
            files: &self.files,
        }
        .counts()
    }
}

/// Puts what is known of a grant to the test: did its event come? Says whether something is out of
/// date.
fn resolve(
    ledger: &Ledger,
    replay: &Replay,
    node: &NodeId,
    keyed: &mut NodeState,
) -> Result<bool, StoreError> {
    let Some(note) = &keyed.grant else {
        return Ok(false);
    };
    let stands = replay
        .claims
        .get(node)
        .is_some_and(|claim| note.is_about(claim));
    let came = stands
        || (note.token <= replay.seq
            && ledger
                .read(note.token)?
                .is_some_and(|event| event.digest() == note.digest));
    if came {
        let used = note.ticket;
        keyed.tickets.retain(|place| Some(place.ticket) != used);
    }
    if !stands {
        keyed.grant = None;
    }
    Ok(!stands)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
