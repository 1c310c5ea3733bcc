//! Claims as a store: [`LedgerStore`], `ledger:DIR`, for keys `node:1.2.3`.
//!
//! The ledger is the truth: its events say who holds a node, since when and until when, to tenure and
//! to every other program. Each verb of the [`tenure_core::engine`] is one compare-and-swap:
//! read up to event N, decide, append only if N is still the newest event, else run the verb again.
//!
//! | module | what it holds |
//! |---|---|
//! | `view` | what a verb sees: [`view::ClaimsView`] |
//! | `step` | what a verb changes, and how it is committed: [`step::LedgerStep`] |
//! | `node_state` | what the ledger can't say: processes, ends on the boot clock, tickets |
//! | `claim_event` | the events, in either dialect |
//! | `history` | the history of claims, from the events |
//!
//! A token is the number of the event that began the claim.
//!
//! # Lock order
//!
//! The writer lock, the mutex of the replayed claims, then the ledger lock.

mod claim_event;
mod history;
mod node_state;
pub mod step;
pub mod view;

use std::collections::HashSet;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use tenure_core::engine::{self, EngineStore, Sweep};
use tenure_core::{
    Binding, Capabilities, Claim, ErrorKind, Event, HistoryQuery, Key, Lease, LivenessId, Reaped,
    Records, Revision, Snapshot, StoreError, Verdict, Waited, Watched,
};
use tenure_host::files::Options;
use tenure_host::files::fault::explain;
use tenure_host::inotify::{FolderWatch, Listener, WatchFlags};
use tenure_host::presence::wait_failed;
use tenure_host::time_limit::TimeLimit;
use tenure_host::{LocalPresence, LocalStore, lock};

use self::node_state::NodeState;
use self::step::LedgerStep;
use self::view::ClaimsView;
use super::{Dialect, Ledger, MAX_TIMEOUT, MIN_TIMEOUT};
use crate::checkpoint;
use crate::node::NodeId;
use crate::replay::Replay;

/// How many events a reader replays before it leaves a checkpoint for the next one.
const WORTH_SAVING: u64 = 1024;

/// Claims on the nodes of a ledger.
pub struct LedgerStore {
    ledger: Ledger,
    /// The folder of the node states.
    states: PathBuf,
    presence: LocalPresence,
    replay: Mutex<Option<Replay>>,
    /// Wakes this process when other programs write; `None` if the folders can't be watched.
    listener: OnceLock<Option<Listener>>,
    ttl_limits: RangeInclusive<Duration>,
}

/// A claim in a list.
#[derive(Debug, Clone)]
pub struct ListedClaim {
    /// The node.
    pub node: NodeId,
    /// Who holds it, since when, until when.
    pub lease: Lease,
    /// What is known of the holder.
    pub verdict: Verdict,
    /// The file of the claim, if it is in a file.
    pub file: Option<PathBuf>,
}

impl LedgerStore {
    /// Opens the claims of an existing ledger.
    pub fn open(root: &Path, options: Options) -> Result<Self, StoreError> {
        Ok(Self::of(Ledger::open(root, options)?))
    }

    /// The claims of a ledger.
    pub fn of(ledger: Ledger) -> Self {
        Self {
            states: ledger.sidecar.path().join(crate::CLAIMS),
            presence: LocalPresence::new(
                ledger.sidecar.liveness_folder(),
                Arc::clone(&ledger.options.clock),
            ),
            ledger,
            replay: Mutex::new(None),
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

    /// The ledger itself.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The dialect of the ledger.
    pub fn dialect(&self) -> Dialect {
        self.ledger.dialect
    }

    /// Every claim that no event has ended, by node; also expired ones.
    pub fn claims(&self) -> Result<Vec<ListedClaim>, StoreError> {
        self.read(|view| {
            let mut listed = Vec::new();
            for node in view.all_nodes()? {
                for found in view.claims_on(&node)? {
                    listed.push(ListedClaim {
                        node: node.clone(),
                        verdict: Verdict::on(&view.now, &found.lease, &found.liveness),
                        lease: found.lease,
                        file: found.file.map(|file| file.path),
                    });
                }
            }
            Ok(listed)
        })
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

    /// The node of a key; refuses every other key.
    fn node(&self, key: &Key) -> Result<NodeId, StoreError> {
        NodeId::of(key).map_err(|error| {
            let root = self.ledger.root.display();
            let what = format!("{root} holds claims on nodes only: {error}");
            StoreError::new(ErrorKind::Unsupported, what)
                .fix("claim a node, for example node:1.2.3, or use another store")
        })
    }

    /// Runs `look` on the claims as they are now. It waits for no lock.
    fn read<T>(
        &self,
        look: impl FnOnce(&mut ClaimsView<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.ledger.remove_dead_lock();
        let (answer, checkpoint) = {
            let mut replay = lock(&self.replay);
            let is_first = replay.is_none();
            let replay = replay.get_or_insert_with(|| self.ledger.resume());
            let before = replay.seq;
            let mut view = ClaimsView::new(self, replay)?;
            let answer = look(&mut view);
            let new = replay.seq.saturating_sub(before);
            (
                answer,
                (is_first && new >= WORTH_SAVING).then(|| replay.clone()),
            )
        };
        // Best effort: a reader without write permission leaves no checkpoint.
        if let Some(replay) = checkpoint
            && self.ledger.check_access().is_ok()
            && self.ledger.sidecar.make().is_ok()
            && let Ok(_writer) = self.ledger.writers.take(
                &*self.ledger.options.clock,
                TimeLimit::after(Duration::ZERO),
            )
        {
            let _ = self.ledger.save(&replay);
        }
        answer
    }

    /// Runs a verb in one step, as the only tenure process that writes. Afterwards it syncs what was
    /// appended and wakes waiters.
    fn write<T>(
        &self,
        node: NodeId,
        limit: TimeLimit,
        verb: impl FnMut(&mut LedgerStep<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        let writer = self.ledger.writer(limit)?;
        let mut replay = lock(&self.replay);
        let replay_now = replay.get_or_insert_with(|| self.ledger.resume());
        let mut step = LedgerStep::begin(self, &writer, replay_now, node)?;
        let answer = step.run(limit, verb);
        let appended = std::mem::take(&mut step.appended);
        let wakes = std::mem::take(&mut step.wakes);
        let revision = step.revision()?;
        if !appended.is_empty() && replay_now.seq % checkpoint::EVERY < 2 {
            // A verb appends one or two events. Best effort: without it the next replay takes longer.
            let _ = self.ledger.save(replay_now);
        }
        drop(replay);
        drop(writer);
        let synced = if appended.is_empty() {
            Ok(())
        } else {
            self.ledger.sync()
        };
        if synced.is_ok() {
            for (seq, digest) in appended {
                self.ledger.acknowledge(seq, &[digest]);
            }
        }
        self.presence.ring(wakes);
        let answer = answer?;
        synced?;
        Ok((answer, revision))
    }

    /// Starts to wake this process when other programs write.
    fn listen(&self) -> std::io::Result<()> {
        let ring = self.presence.ringer()?;
        self.listener.get_or_init(|| {
            let watch = self.ledger.watch_other_programs().ok()?;
            Listener::start(watch, move |_| {
                ring();
                ControlFlow::Continue(())
            })
            .ok()
        });
        Ok(())
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

impl Records for LedgerStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL.only_some_keys().only_exclusive()
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        self.ledger.check_access()?;
        self.ledger.sidecar.make()?;
        let folder = self.presence.folder();
        self.presence
            .binding()
            .map_err(|error| explain("written", folder.path(), error))
    }

    fn on_record(&self, _by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        self.read(|view| {
            let mut all = Vec::new();
            for node in view.all_nodes()? {
                let snapshot = engine::inspect(view, node.key())?;
                if snapshot.is_on_record() {
                    let revision = view.revision(&node)?;
                    all.push(Snapshot {
                        revision,
                        ..snapshot
                    });
                }
            }
            Ok(all)
        })
    }

    fn history(&self, query: &HistoryQuery, _by: Instant) -> Result<Vec<Event>, StoreError> {
        self.ledger.claim_history(query)
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        self.ledger.check_access()?;
        self.ledger.sidecar.make()?;
        self.listen().map_err(wait_failed)?;
        let node = self.node(watched.key)?;
        let has_changed = || Ok(self.read(|view| view.revision(&node))? != watched.seen);
        self.presence
            .wait_unless_changed(watched, timeout, has_changed)
    }

    fn wake(&self) {
        self.presence.wake();
    }
}

impl EngineStore for LedgerStore {
    type LookError = StoreError;
    type StepError = StoreError;
    type Looking<'a> = ClaimsView<'a>;
    type Stepping<'a> = LedgerStep<'a>;

    fn admit_change(&self) -> Result<(), StoreError> {
        self.ledger.check_access()
    }

    fn admit(&self, key: &Key) -> Result<(), StoreError> {
        self.node(key).map(|_| ())
    }

    fn admit_claim(&self, claim: &Claim) -> Result<(), StoreError> {
        self.admit(&claim.key)?;
        self.check_ttl(claim.ttl)
    }

    fn look<T>(
        &self,
        key: &Key,
        _by: Instant,
        mut verb: impl FnMut(&mut ClaimsView<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        let node = self.node(key)?;
        self.read(|view| Ok((verb(view)?, view.revision(&node)?)))
    }

    fn step<T>(
        &self,
        keys: &[Key],
        by: Instant,
        verb: impl FnMut(&mut LedgerStep<'_>) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        let [key] = keys else {
            let what = "a step of a ledger is about one node";
            return Err(StoreError::new(ErrorKind::Unsupported, what));
        };
        self.write(self.node(key)?, TimeLimit::until(by), verb)
    }

    /// Also visits the nodes of which only an outdated state is left, and removes that.
    fn reap_ended(&self, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        let dead = self.dead_locks(Sweep::Whole);
        let (mut reaped, mut needed) = (Vec::new(), HashSet::new());
        for node in self.read(|view| view.all_nodes())? {
            let key = node.key().clone();
            let (one, _) = self.step(slice::from_ref(&key), by, |step| engine::reap(step, &key))?;
            reaped.extend(one.reaped);
            needed.extend(one.needed);
        }
        self.remove_locks(&dead, &needed);
        Ok(reaped)
    }

    fn dead_locks(&self, sweep: Sweep) -> Vec<LivenessId> {
        self.presence.dead_locks(sweep)
    }

    fn remove_locks(&self, dead: &[LivenessId], needed: &HashSet<LivenessId>) {
        self.presence.remove_locks(dead, needed);
    }
}

impl LocalStore for LedgerStore {
    fn presence(&self) -> &LocalPresence {
        &self.presence
    }
}
