//! What tenure knows of one node beyond the ledger: [`NodeState`], in `keys/NODE.a` and `.b`.
//!
//! The ledger says who holds a node and until when. It can't say to which process the claim is tied,
//! when it expires by the clock that never jumps, and who waits. That is here.
//!
//! # Invariants
//!
//! 1. The note of a grant is saved before the event of the grant, and names that event by number and
//!    digest. If that event was never appended, or another one has its number, the note counts for
//!    nothing, and the ticket that the grant would have used up is still there. So a grant is tied to
//!    its process from its event on (G10).
//! 2. Without this state a claim lasts until it expires, as another program's claim does.
//!
//! The caller of every writing method has the writer lock.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::{Deadline, Epoch, Holder, Lease, Moment, StoreError, Ticket, Waiter};
use tenure_host::files::fault::explain;
use tenure_host::files::two_slot::TwoSlotFile;

use crate::Ledger;
use crate::node::NodeId;
use crate::replay::{NodeClaim, Replay};

/// How often to read again while another process writes.
const ATTEMPTS: usize = 16;

/// What is known of one node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NodeState {
    pub(super) grant: Option<GrantNote>,
    pub(super) tickets: Vec<Waiter>,
    pub(super) last_ticket: u64,
    #[serde(skip)]
    pub(super) revision: u64,
    #[serde(skip)]
    slot: usize,
    #[serde(skip)]
    on_disk: bool,
    /// Whether it has to be saved.
    #[serde(skip)]
    changed: bool,
}

/// What is known of a grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct GrantNote {
    /// The number and digest of the event that began the claim.
    token: u64,
    digest: u64,
    pub(super) holder: Holder,
    pub(super) ttl: Duration,
    /// The end that is in the ledger, and the one that is about to be.
    ends: Vec<End>,
    /// The ticket that the grant uses up.
    ticket: Option<Ticket>,
}

/// An end, on both clocks.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct End {
    wall: Timestamp,
    #[serde(rename = "since_boot")]
    ticks: Duration,
    #[serde(rename = "boot")]
    epoch: Epoch,
}

impl From<&Deadline> for End {
    fn from(deadline: &Deadline) -> Self {
        Self {
            wall: deadline.wall,
            ticks: deadline.ticks,
            epoch: deadline.epoch.clone(),
        }
    }
}

impl GrantNote {
    /// The note of a lease that begins with this event.
    pub(super) fn new(token: u64, digest: u64, lease: &Lease, ticket: Option<Ticket>) -> Self {
        Self {
            token,
            digest,
            holder: lease.holder.clone(),
            ttl: lease.ttl,
            ends: lease.expires.iter().map(End::from).collect(),
            ticket,
        }
    }

    /// Whether it is about this claim.
    pub(super) fn is_about(&self, claim: &NodeClaim) -> bool {
        self.token == claim.token && self.digest == claim.digest
    }

    /// The deadline of a claim that expires then by the wall clock.
    pub(super) fn deadline(&self, wall: Timestamp) -> Option<Deadline> {
        let end = self.ends.iter().rfind(|end| end.wall == wall)?;
        Some(Deadline {
            wall,
            ticks: end.ticks,
            epoch: end.epoch.clone(),
        })
    }
}

impl NodeState {
    fn slots(states: &Path, node: &NodeId) -> TwoSlotFile {
        TwoSlotFile::new(&states.join(node.to_string()))
    }

    /// The state of a node of which nothing is known.
    pub(super) fn empty(now: &Moment) -> Self {
        Self {
            // Tickets of earlier states have smaller numbers.
            last_ticket: u64::try_from(now.ticks.as_micros()).unwrap_or(0),
            ..Self::default()
        }
    }

    /// Reads the state. One that can't be read counts as empty.
    pub(super) fn load(states: &Path, node: &NodeId, now: &Moment) -> Result<Self, StoreError> {
        let slots = Self::slots(states, node);
        for _ in 0..ATTEMPTS {
            let (newest, flaw) = slots.read()?;
            if let Some((revision, slot, json)) = newest {
                let state: Self = serde_json::from_slice(&json).unwrap_or_default();
                return Ok(Self {
                    revision,
                    slot,
                    on_disk: true,
                    ..state
                });
            }
            if flaw.is_none() {
                break;
            }
            // Another process wrote both slots during the read, or a power cut tore them.
            std::thread::yield_now();
        }
        Ok(Self::empty(now))
    }

    /// Compares the note of the grant with the ledger. If its event was appended, the ticket is used
    /// up. If its claim has ended or never began, the note is dropped.
    pub(super) fn settle(
        &mut self,
        ledger: &Ledger,
        replay: &Replay,
        node: &NodeId,
    ) -> Result<(), StoreError> {
        let Some(note) = &self.grant else {
            return Ok(());
        };
        let claim = replay.claims.get(node);
        let is_current = claim.is_some_and(|claim| note.is_about(claim));
        let was_appended = is_current
            || (note.token <= replay.seq
                && ledger
                    .read(note.token)?
                    .is_some_and(|event| event.digest() == note.digest));
        if was_appended {
            let used = note.ticket;
            self.tickets.retain(|waiter| Some(waiter.ticket) != used);
        }
        if !is_current {
            self.end_grant();
        }
        Ok(())
    }

    /// Drops the note of the grant.
    pub(super) fn end_grant(&mut self) {
        self.changed |= self.grant.take().is_some();
    }

    pub(super) fn set_grant(&mut self, note: GrantNote) {
        self.grant = Some(note);
        self.changed = true;
    }

    pub(super) fn set_tickets(&mut self, tickets: Vec<Waiter>) {
        self.tickets = tickets;
        self.changed = true;
    }

    /// Adds the new end of a lease to the note about its claim.
    pub(super) fn renew_grant(&mut self, claim: &NodeClaim, lease: &Lease) {
        let known = self.grant.take().filter(|note| note.is_about(claim));
        let mut note = known.unwrap_or_else(|| GrantNote {
            ends: Vec::new(),
            ..GrantNote::new(claim.token, claim.digest, lease, None)
        });
        note.holder = lease.holder.clone();
        note.ttl = lease.ttl;
        note.ends.retain(|end| end.wall == claim.expires);
        note.ends.extend(lease.expires.iter().map(End::from));
        self.set_grant(note);
    }

    /// Writes the state if it changed, or removes it if it says nothing.
    pub(super) fn save(&mut self, states: &Path, node: &NodeId) -> Result<(), StoreError> {
        if !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        let slots = Self::slots(states, node);
        if self.grant.is_none() && self.tickets.is_empty() {
            if self.on_disk {
                slots.remove(self.slot)?;
            }
            *self = Self {
                last_ticket: self.last_ticket,
                revision: self.revision.wrapping_add(1),
                ..Self::default()
            };
            return Ok(());
        }
        let json =
            serde_json::to_vec(self).map_err(|error| explain("written", states, error.into()))?;
        let revision = self.revision.wrapping_add(1);
        self.slot = match slots.write(revision, self.slot, &json) {
            Err(_) if !states.exists() => {
                std::fs::create_dir_all(states).map_err(|error| explain("made", states, error))?;
                slots.write(revision, self.slot, &json)?
            }
            written => written?,
        };
        self.revision = revision;
        self.on_disk = true;
        Ok(())
    }

    /// Every node that has a state.
    pub(super) fn nodes(states: &Path) -> Result<Vec<NodeId>, StoreError> {
        let entries = match std::fs::read_dir(states) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(explain("read", states, error)),
        };
        let mut nodes: Vec<NodeId> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let stem = name
                    .strip_suffix(".a")
                    .or_else(|| name.strip_suffix(".b"))?;
                NodeId::parse(stem).ok()
            })
            .collect();
        nodes.sort();
        nodes.dedup();
        Ok(nodes)
    }
}
