//! Which lease counts, from the lock and the state together: [`LockView`].
//!
//! | state | lock | what counts |
//! |---|---|---|
//! | a grant | its lock | the grant |
//! | a grant with a liveness lock | none | the grant, while its process is alive: the holder puts the lock back |
//! | a grant for a process that does not use tenure (`--pid`) | none | nothing: the process released it |
//! | a grant of a protocol where a removal is a loss ([`Removal::Loss`]) | none | nothing: the grant was ended by force |
//! | a grant | a malformed one | the grant; malformed once its holder is dead |
//! | a grant | another one | that lock: the grant was ended by force |
//! | no grant | a lock | the lock |
//!
//! Beside it, a lease that another program ended counts while its command still runs
//! ([`LockView::robbed`]): no claim is granted, but its holder can't renew, release or use it any more.

use std::time::Duration;

use tenure_core::engine::Look;
use tenure_core::{
    Binding, Doubt, Evidence, Holder, HolderId, Key, Lease, Liveness, Mode, Moment, Revision,
    StoreError, Token, Waiter,
};
use tenure_host::LocalPresence;
use tenure_host::files::protocol::{Fingerprint, FoundLock, HolderProof, LockProtocol, Removal};

use crate::state::{Ending, GrantRecord, Loaded, SidecarState};
use crate::store::FileStore;

/// What is at the lock's path while a lease counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AtPath {
    /// The lock of the lease.
    ItsLock(Fingerprint),
    /// Nothing, although the lease has not ended.
    Nothing,
    /// A malformed lock.
    Malformed(Fingerprint),
}

/// The lease that counts.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    pub(crate) lease: Lease,
    pub(crate) liveness: Liveness,
    pub(crate) at_path: AtPath,
}

/// The lock and the state together.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockView {
    pub(crate) current: Option<Current>,
    /// A lease that tenure granted and another program ended.
    pub(crate) ended_outside: Option<(GrantRecord, Ending)>,
    /// Leases that another program ended and whose commands still run.
    pub(crate) robbed: Vec<(GrantRecord, Liveness)>,
    /// The token in the lock.
    token: Option<Token>,
}

impl LockView {
    /// Reads the lock.
    fn read<P: LockProtocol>(store: &FileStore<P>, state: &SidecarState) -> Self {
        let (presence, removal) = (&store.presence, store.protocol().removal());
        let found = store.found();
        let token = found.as_ref().map(|found| found.lease.token);
        let grant = state.grant.as_ref();
        let grant = grant.map(|record| (record, record.lease(store.key())));
        let (current, ended_outside) = match (grant, found) {
            (None, None) => (None, None),
            (None, Some(found)) => (Some(Current::of_lock(presence, found)), None),
            (Some((_, lease)), Some(found)) if found.is(&lease) => {
                let at_path = AtPath::ItsLock(found.fingerprint);
                (Some(Current::of_grant(presence, lease, at_path)), None)
            }
            (Some((_, lease)), Some(found)) if found.flaw.is_some() => {
                let at_path = AtPath::Malformed(found.fingerprint);
                let mut current = Current::of_grant(presence, lease, at_path);
                if matches!(current.liveness, Liveness::Gone(_)) {
                    current.liveness = Liveness::Unverifiable(Doubt::Malformed);
                }
                (Some(current), None)
            }
            (Some((record, _)), Some(found)) => {
                let by = found.lease.holder.id.clone();
                let how = match removal {
                    Removal::Mistake => "by writing the lock file outside tenure",
                    Removal::Loss => "by putting another lock in its place",
                };
                (
                    Some(Current::of_lock(presence, found)),
                    Some((record.clone(), forced(by, how))),
                )
            }
            (Some((record, _)), None) if removal == Removal::Loss => {
                let how = "by removing the lock outside tenure";
                let ending = forced(HolderId::unreadable(), how);
                (None, Some((record.clone(), ending)))
            }
            (Some((record, lease)), None) => match lease.holder.binding {
                Binding::LivenessLock { .. } => {
                    let current = Current::of_grant(presence, lease, AtPath::Nothing);
                    (Some(current), None)
                }
                _ => (None, Some((record.clone(), Ending::Released))),
            },
        };
        let just_ended = match &ended_outside {
            Some((record, Ending::Proven(_))) => Some(record),
            Some((_, Ending::Released)) | None => None,
        };
        let robbed = state.robbed.iter().chain(just_ended);
        Self {
            robbed: robbed
                .filter_map(|record| Some((record.clone(), still_runs(presence, record)?)))
                .collect(),
            current,
            ended_outside,
            token,
        }
    }

    /// Whether another program removed the lock of the lease that counts.
    pub(crate) fn lock_is_missing(&self) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| current.at_path == AtPath::Nothing)
    }
}

/// How the command of a lease that has ended still runs, if it does.
fn still_runs(presence: &LocalPresence, record: &GrantRecord) -> Option<Liveness> {
    // Only a liveness lock tells that what runs belongs to the lease.
    record.holder.liveness_lock()?;
    let liveness = presence.probe(&record.holder);
    matches!(liveness, Liveness::Running | Liveness::Orphaned).then_some(liveness)
}

fn forced(by: HolderId, how: &str) -> Ending {
    Ending::Proven(Evidence::Forced {
        by,
        reason: Some(how.into()),
    })
}

impl Current {
    fn of_grant(presence: &LocalPresence, lease: Lease, at_path: AtPath) -> Self {
        Self {
            liveness: presence.probe_lease(&lease),
            lease,
            at_path,
        }
    }

    fn of_lock(presence: &LocalPresence, found: FoundLock) -> Self {
        let at_path = AtPath::ItsLock(found.fingerprint);
        match found.proof {
            HolderProof::Binding => Self::of_grant(presence, found.lease, at_path),
            HolderProof::Protocol(liveness) => Self {
                lease: found.lease,
                liveness,
                at_path,
            },
        }
    }
}

/// Everything that a step reads: the time, the state and the lock.
pub struct Picture<'a, P> {
    pub(crate) store: &'a FileStore<P>,
    pub(crate) now: Moment,
    pub(crate) state: SidecarState,
    /// Why the state can't be read, if it can't.
    pub(crate) state_flaw: Option<String>,
    pub(crate) lock: LockView,
    /// See [`FileStore::stamp`].
    stamp: u64,
}

impl<'a, P: LockProtocol> Picture<'a, P> {
    /// Loads the state. The lock is not read yet.
    pub(crate) fn load(store: &'a FileStore<P>) -> Result<Self, StoreError> {
        let (state, state_flaw) = match store.state_file.load()? {
            Loaded::Known(state) => (state, None),
            Loaded::Lost(state, why) => (state, Some(why)),
        };
        Ok(Self {
            store,
            now: store.options.clock.now(),
            state,
            state_flaw,
            lock: LockView::default(),
            stamp: 0,
        })
    }

    /// Reads the lock.
    pub(crate) fn read_lock(&mut self) {
        self.stamp = self.store.stamp();
        self.lock = LockView::read(self.store, &self.state);
    }

    /// The revision of what was read.
    pub(crate) fn revision(&self) -> Revision {
        FileStore::<P>::revision(self.state.revision, self.stamp)
    }

    /// Whether this process holds the lease that counts, and another program removed its lock.
    pub(crate) fn own_lock_is_missing(&self) -> bool {
        let current = self.lock.current.as_ref();
        self.lock.lock_is_missing()
            && current.is_some_and(|current| self.store.presence.is_us(&current.lease.holder))
    }

    /// Whether a step has to write something before the picture can be shown: recover the state,
    /// finish an interrupted step, clear what it left, record an end, or put back a lock of this process.
    pub(crate) fn needs_repair(&self) -> bool {
        self.state_flaw.is_some()
            || self.state.pending.is_some()
            || self.store.has_leftover()
            || self.lock.ended_outside.is_some()
            || self.own_lock_is_missing()
    }

    /// The newest token: of the state, or of the lock if the state is older.
    pub(crate) fn newest_token(&self) -> Token {
        Token(self.state.newest).max(self.lock.token.unwrap_or(Token::NONE))
    }
}

impl<P: LockProtocol> Look for Picture<'_, P> {
    type Error = StoreError;

    fn now(&self) -> &Moment {
        &self.now
    }

    fn leases(&mut self, _key: &Key) -> Result<Vec<(Lease, Liveness)>, StoreError> {
        let current = self.lock.current.iter();
        let current = current.map(|current| (current.lease.clone(), current.liveness.clone()));
        // This process knows that its own lease has ended.
        let us = |record: &GrantRecord| self.store.presence.is_us(&record.holder);
        let robbed = self.lock.robbed.iter().filter(|(record, _)| !us(record));
        let robbed = robbed.map(|(record, liveness)| {
            // Without its token: for its holder it has ended.
            let lease = Lease {
                mode: Mode::Exclusive,
                slot: None,
                token: Token::NONE,
                ..record.lease(self.store.key())
            };
            (lease, liveness.clone())
        });
        Ok(current.chain(robbed).collect())
    }

    fn tickets(&mut self, _key: &Key) -> Result<Vec<Waiter>, StoreError> {
        Ok(self.state.tickets.clone())
    }

    fn probe(&mut self, waiter: &Holder) -> Liveness {
        self.store.presence.probe(waiter)
    }

    fn heard(&mut self, waiter: &Waiter) -> Duration {
        self.store.presence.heard(waiter, self.now())
    }

    fn grace(&self) -> Duration {
        self.store.options.queue_grace
    }
}
