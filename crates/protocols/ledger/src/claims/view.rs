//! What a verb sees of a ledger's claims: [`ClaimsView`].
//!
//! Two kinds of claims conflict with a claim on a node: the claim in the ledger, and claims in files
//! (`locks/*.lock`). An expired file is not reported while the ledger has a claim on the same node that
//! has not ended: it is in no holder's way, and a `lock_reaped` event for it would end the ledger's
//! claim for every program that follows the documented rule.

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use tenure_core::engine::Look;
use tenure_core::{
    Binding, Deadline, Doubt, Epoch, Holder, HolderId, Key, Lease, Liveness, Mode, Moment,
    Revision, StoreError, Token, Waiter,
};

use super::{LedgerStore, NodeState};
use crate::claim_files::FileClaim;
use crate::node::NodeId;
use crate::replay::{NodeClaim, Replay};

/// The claims of a ledger as of one moment.
pub struct ClaimsView<'a> {
    pub(super) store: &'a LedgerStore,
    pub(super) replay: &'a mut Replay,
    pub(super) now: Moment,
    files: Vec<FileClaim>,
    /// The states that have been read.
    states: BTreeMap<NodeId, NodeState>,
    /// The nodes that have a state, if they have been listed.
    listed: Option<HashSet<NodeId>>,
}

/// A claim on a node.
pub(super) struct FoundClaim {
    pub(super) lease: Lease,
    pub(super) liveness: Liveness,
    /// The file, if it is in a file and not in the ledger.
    pub(super) file: Option<FileClaim>,
}

impl<'a> ClaimsView<'a> {
    /// Replays the new events and reads the claim files.
    pub(super) fn new(store: &'a LedgerStore, replay: &'a mut Replay) -> Result<Self, StoreError> {
        let mut view = Self {
            now: store.ledger.options.clock.now(),
            store,
            replay,
            files: Vec::new(),
            states: BTreeMap::new(),
            listed: None,
        };
        view.refresh()?;
        Ok(view)
    }

    /// Looks again.
    pub(super) fn refresh(&mut self) -> Result<(), StoreError> {
        let ledger = &self.store.ledger;
        ledger.catch_up(self.replay)?;
        // After the events: a claim must not look older than it is.
        self.now = ledger.options.clock.now();
        self.files = ledger.file_claims()?;
        self.states.clear();
        self.listed = None;
        Ok(())
    }

    /// Every node with a claim or a state.
    pub(super) fn all_nodes(&mut self) -> Result<Vec<NodeId>, StoreError> {
        let with_state = NodeState::nodes(&self.store.states)?;
        let mut nodes: Vec<NodeId> = self.replay.claims.keys().cloned().collect();
        nodes.extend(self.files.iter().filter_map(|file| file.node.clone()));
        nodes.extend(with_state.iter().cloned());
        nodes.sort();
        nodes.dedup();
        self.listed = Some(with_state.into_iter().collect());
        Ok(nodes)
    }

    /// What is known of a node beyond the ledger.
    pub(super) fn state(&mut self, node: &NodeId) -> Result<&mut NodeState, StoreError> {
        if !self.states.contains_key(node) {
            let has_none = |listed: &HashSet<NodeId>| !listed.contains(node);
            let state = if self.listed.as_ref().is_some_and(has_none) {
                NodeState::empty(&self.now)
            } else {
                let mut state = NodeState::load(&self.store.states, node, &self.now)?;
                state.settle(&self.store.ledger, self.replay, node)?;
                state
            };
            self.states.insert(node.clone(), state);
        }
        // Just inserted.
        Ok(self.states.entry(node.clone()).or_default())
    }

    /// The claim in the ledger.
    pub(super) fn in_ledger(&self, node: &NodeId) -> Option<&NodeClaim> {
        self.replay.claims.get(node)
    }

    /// The claims that conflict with a claim on this node, those that have not ended first.
    pub(super) fn claims_on(&mut self, node: &NodeId) -> Result<Vec<FoundClaim>, StoreError> {
        let mut claims = Vec::new();
        if let Some(claim) = self.in_ledger(node).cloned() {
            let note = self.state(node)?.grant.clone();
            let note = note.filter(|note| note.is_about(&claim));
            let by_the_wall = || wall_deadline(claim.expires);
            let lasts = || Duration::try_from(claim.expires.duration_since(claim.heard));
            let lease = Lease {
                mode: Mode::Exclusive,
                slot: None,
                key: node.key().clone(),
                holder: note
                    .as_ref()
                    .map_or_else(|| known_by_name(&claim.owner), |note| note.holder.clone()),
                token: Token(claim.token),
                acquired_at: claim.since,
                expires: note
                    .as_ref()
                    .and_then(|note| note.deadline(claim.expires))
                    .or_else(|| Some(by_the_wall())),
                heartbeat_at: claim.heard,
                ttl: note.map_or_else(|| lasts().unwrap_or_default(), |note| note.ttl),
            };
            claims.push(FoundClaim {
                liveness: self.store.presence.probe_lease(&lease),
                lease,
                file: None,
            });
        }
        let is_held = claims.iter().any(|claim| !self.has_ended(claim));
        let files = self.files.iter();
        let files = files.filter(|file| file.node.as_ref() == Some(node));
        let files = files.map(|file| in_file(node, file));
        claims.extend(files.filter(|claim| !(is_held && self.has_ended(claim))));
        claims.sort_by_key(|claim| self.has_ended(claim));
        Ok(claims)
    }

    fn has_ended(&self, claim: &FoundClaim) -> bool {
        (self.rules().ended)(&self.now, &claim.lease, &claim.liveness).is_some()
    }

    /// Changes with every change of the claims and tickets of a node, and when this process is woken.
    pub(super) fn revision(&mut self, node: &NodeId) -> Result<Revision, StoreError> {
        let claim = self.in_ledger(node);
        let claim = claim.map(|claim| (claim.token, claim.expires.as_nanosecond()));
        let state = self.state(node)?.revision;
        let mut hasher = DefaultHasher::new();
        (claim, state, self.store.presence.generation()).hash(&mut hasher);
        Ok(Revision(hasher.finish()))
    }
}

impl Look for ClaimsView<'_> {
    type Error = StoreError;

    fn now(&self) -> &Moment {
        &self.now
    }

    fn leases(&mut self, key: &Key) -> Result<Vec<(Lease, Liveness)>, StoreError> {
        let claims = self.claims_on(&self.store.node(key)?)?;
        Ok(claims
            .into_iter()
            .map(|claim| (claim.lease, claim.liveness))
            .collect())
    }

    fn tickets(&mut self, key: &Key) -> Result<Vec<Waiter>, StoreError> {
        let node = self.store.node(key)?;
        Ok(self.state(&node)?.tickets.clone())
    }

    fn probe(&mut self, waiter: &Holder) -> Liveness {
        self.store.presence.probe(waiter)
    }

    fn heard(&mut self, waiter: &Waiter) -> Duration {
        self.store.presence.heard(waiter, self.now())
    }

    fn grace(&self) -> Duration {
        self.store.ledger.options.queue_grace
    }
}

/// A claim in a file. It has no token, and its holder no process.
fn in_file(node: &NodeId, file: &FileClaim) -> FoundClaim {
    let (owner, since, expires, doubt) = match &file.content {
        Ok(content) => (
            content.owner.as_str(),
            content.since,
            Some(content.expires),
            Doubt::Detached,
        ),
        Err(_) => ("", Timestamp::UNIX_EPOCH, None, Doubt::Malformed),
    };
    let lasts = |end: Timestamp| Duration::try_from(end.duration_since(since)).ok();
    FoundClaim {
        lease: Lease {
            mode: Mode::Exclusive,
            slot: None,
            key: node.key().clone(),
            holder: known_by_name(owner),
            token: Token::NONE,
            acquired_at: since,
            ttl: expires.and_then(lasts).unwrap_or_default(),
            expires: expires.map(wall_deadline),
            heartbeat_at: since,
        },
        liveness: Liveness::Unverifiable(doubt),
        file: Some(file.clone()),
    }
}

/// A deadline of which only the wall clock's time is known.
fn wall_deadline(wall: Timestamp) -> Deadline {
    Deadline {
        wall,
        ticks: Duration::ZERO,
        epoch: Epoch::unknown(),
    }
}

/// A holder of which only the name is known.
fn known_by_name(owner: &str) -> Holder {
    Holder {
        id: HolderId::parse(owner).unwrap_or_else(|_| HolderId::unreadable()),
        host: Holder::UNKNOWN_HOST.into(),
        command: None,
        binding: Binding::Detached,
    }
}
