//! What tenure knows of one node beyond the ledger: [`NodeState`], in `keys/NODE.a` and `.b`.
//!
//! The ledger says who holds a node and until when. It can't say to which process the claim is tied,
//! when it expires by the clock that never jumps, and who waits. That is here.
//!
//! # Invariants
//!
//! 1. The note of a grant or renewal is saved before its event, and names that event by number and
//!    digest. So a grant is tied to its process from its event on (G10).
//! 2. The note of an event that is about to be appended stands beside the note of the present claim. If
//!    the event was never appended, or another one has its number, that note counts for nothing: the
//!    present holder's process is still known, and the ticket that the grant would have used up is still
//!    there.
//! 3. Without this state a claim lasts until it expires, as another program's claim does.
//!
//! The caller of every writing method has the writer lock.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::{Deadline, Epoch, Holder, Lease, Moment, StoreError, Ticket, Waiter};
use tenure_host::files::fault::explain;
use tenure_host::files::look::if_there;
use tenure_host::files::permissions::create_folder;
use tenure_host::files::protocol::digest;
use tenure_host::files::two_slot::TwoSlotFile;

use crate::Ledger;
use crate::node::NodeId;
use crate::replay::{NodeClaim, Replay};

/// How often to read again while another process writes.
const ATTEMPTS: usize = 16;

/// Longer nodes are too long for a file's name: their file is named after a digest.
const MAX_NAME: usize = 200;

/// What is known of one node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NodeState {
    /// The node, if the file is not named after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeId>,
    pub(super) grant: Option<GrantNote>,
    /// The note of an event that is about to be appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<NextNote>,
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
    end: Option<GrantEnd>,
}

/// What will be known of a grant once an event is appended.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct NextNote {
    /// The number and digest of the event.
    seq: u64,
    digest: u64,
    grant: GrantNote,
    /// The ticket that a grant uses up.
    ticket: Option<Ticket>,
}

/// An end, on both clocks.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct GrantEnd {
    wall: Timestamp,
    #[serde(rename = "since_boot")]
    ticks: Duration,
    #[serde(rename = "boot")]
    epoch: Epoch,
}

impl From<&Deadline> for GrantEnd {
    fn from(deadline: &Deadline) -> Self {
        Self {
            wall: deadline.wall,
            ticks: deadline.ticks,
            epoch: deadline.epoch.clone(),
        }
    }
}

impl GrantNote {
    /// Whether it is about this claim.
    pub(super) fn is_about(&self, claim: &NodeClaim) -> bool {
        self.token == claim.token && self.digest == claim.digest
    }

    /// The deadline of a claim that expires then by the wall clock.
    pub(super) fn deadline(&self, wall: Timestamp) -> Option<Deadline> {
        let end = self.end.as_ref().filter(|end| end.wall == wall)?;
        Some(Deadline {
            wall,
            ticks: end.ticks,
            epoch: end.epoch.clone(),
        })
    }
}

impl NodeState {
    fn slots(states: &Path, node: &NodeId) -> TwoSlotFile {
        let mut name = node.to_string();
        if name.len() > MAX_NAME {
            name = format!("~{:016x}", digest(name.as_bytes()));
        }
        TwoSlotFile::new(&states.join(name))
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
                let mut state: Self = serde_json::from_slice(&json).unwrap_or_default();
                if state.node.as_ref().is_some_and(|of| of != node) {
                    // Two nodes have the same digest. This one has no state.
                    state = Self::empty(now);
                }
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

    /// Compares the notes with the ledger. The next note takes effect if its event was appended, and is
    /// dropped if it was not. The note of a claim that has ended is dropped.
    pub(super) fn settle(
        &mut self,
        ledger: &Ledger,
        replay: &Replay,
        node: &NodeId,
    ) -> Result<(), StoreError> {
        let claim = replay.claims.get(node);
        if let Some(next) = &self.next {
            let began =
                claim.is_some_and(|claim| (claim.token, claim.digest) == (next.seq, next.digest));
            let was_appended = began
                || next.seq <= replay.seq
                    && ledger
                        .read(next.seq)?
                        .is_some_and(|event| event.digest() == next.digest);
            if was_appended {
                self.advance();
            } else {
                self.next = None;
                self.changed = true;
            }
        }
        let is_current = |note: &GrantNote| claim.is_some_and(|claim| note.is_about(claim));
        if !self.grant.as_ref().is_some_and(is_current) {
            self.end_grant();
        }
        Ok(())
    }

    /// Drops the note of the grant.
    pub(super) fn end_grant(&mut self) {
        self.changed |= self.grant.take().is_some();
    }

    /// Notes a grant, or a renewal of this claim, whose event is about to get this number and digest, and use up this
    /// ticket.
    pub(super) fn begin(
        &mut self,
        seq: u64,
        digest: u64,
        lease: &Lease,
        renewed: Option<&NodeClaim>,
        ticket: Option<Ticket>,
    ) {
        let began = renewed.map_or((seq, digest), |claim| (claim.token, claim.digest));
        self.next = Some(NextNote {
            seq,
            digest,
            grant: GrantNote {
                token: began.0,
                digest: began.1,
                holder: lease.holder.clone(),
                ttl: lease.ttl,
                end: lease.expires.as_ref().map(GrantEnd::from),
            },
            ticket,
        });
        self.changed = true;
    }

    /// The event of the next note was appended.
    pub(super) fn advance(&mut self) {
        if let Some(next) = self.next.take() {
            let used = next.ticket;
            self.tickets
                .retain(|waiter| used.is_none_or(|used| waiter.ticket != used));
            self.grant = Some(next.grant);
            self.changed = true;
        }
    }

    pub(super) fn set_tickets(&mut self, tickets: Vec<Waiter>) {
        self.tickets = tickets;
        self.changed = true;
    }

    /// Writes the state if it changed, or removes it if it says nothing.
    pub(super) fn save(&mut self, states: &Path, node: &NodeId) -> Result<(), StoreError> {
        if !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        let slots = Self::slots(states, node);
        if self.grant.is_none() && self.next.is_none() && self.tickets.is_empty() {
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
        self.node = (node.to_string().len() > MAX_NAME).then(|| node.clone());
        let json =
            serde_json::to_vec(self).map_err(|error| explain("written", states, error.into()))?;
        let revision = self.revision.wrapping_add(1);
        self.slot = match slots.write(revision, self.slot, &json) {
            Err(_) if !states.exists() => {
                create_folder(states).map_err(|error| explain("made", states, error))?;
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
        let entries = if_there(std::fs::read_dir(states));
        let entries = entries.map_err(|error| explain("read", states, error))?;
        let mut nodes: Vec<NodeId> = entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let stem = name
                    .strip_suffix(".a")
                    .or_else(|| name.strip_suffix(".b"))?;
                if stem.starts_with('~') {
                    let (newest, _) = TwoSlotFile::new(&states.join(stem)).read().ok()?;
                    let state: Self = serde_json::from_slice(&newest?.2).ok()?;
                    return state.node;
                }
                NodeId::parse(stem).ok()
            })
            .collect();
        nodes.sort();
        nodes.dedup();
        Ok(nodes)
    }
}
