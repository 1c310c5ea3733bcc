//! What tenure knows of one node beyond the ledger: [`NodeState`], in `keys/NODE.a` and `.b`.
//!
//! The ledger says who has a claim and until when. What it can't say is here: to which process the
//! claim is tied, when it ends on the clock that never jumps, and who waits.
//!
//! # Invariants
//!
//! 1. It is written before the event of a grant, and names that event by number and digest. If that
//!    event never came, or another has its number, what is said of the grant counts for nothing, and
//!    the ticket that it would have used up is still there. So there is no moment in which a grant
//!    is not tied to its process (G10).
//! 2. Without it a claim stands until its time runs out, as another program's does.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::{Deadline, Epoch, Holder, Moment, StoreError, Ticket, Token};

use crate::node::NodeId;
use crate::replay::NodeClaim;
use tenure_host::files::fault::explain;
use tenure_host::files::sidecar::TicketRecord;
use tenure_host::files::two_slot::TwoSlotFile;

/// How often to read again what was written meanwhile.
const TRIES: usize = 16;

/// What is known of one node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NodeState {
    pub(super) grant: Option<GrantNote>,
    pub(super) tickets: Vec<TicketRecord>,
    pub(super) last_ticket: u64,
    /// Under which grants those who wait run.
    pub(super) within: Vec<(Ticket, Vec<Token>)>,
    #[serde(skip)]
    pub(super) revision: u64,
    #[serde(skip)]
    half: usize,
    #[serde(skip)]
    on_disk: bool,
}

/// What is known of a grant.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct GrantNote {
    /// The event that gave it.
    pub(super) token: u64,
    pub(super) digest: u64,
    pub(super) holder: Holder,
    pub(super) ttl: Duration,
    /// The end that is in the ledger, and the one that is about to be.
    pub(super) ends: Vec<End>,
    /// The ticket that it uses up.
    pub(super) ticket: Option<Ticket>,
}

/// An end, on both clocks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct End {
    wall: Timestamp,
    #[serde(rename = "since_boot")]
    ticks: Duration,
    boot: Epoch,
}

impl From<&Deadline> for End {
    fn from(deadline: &Deadline) -> Self {
        Self {
            wall: deadline.wall,
            ticks: deadline.ticks,
            boot: deadline.epoch.clone(),
        }
    }
}

impl GrantNote {
    /// Whether this claim is the one that it is about.
    pub(super) fn is_about(&self, claim: &NodeClaim) -> bool {
        self.token == claim.token && self.digest == claim.digest
    }

    /// When a claim that ends then ends on the clock of its boot.
    pub(super) fn deadline(&self, wall: Timestamp) -> Option<Deadline> {
        let end = self.ends.iter().rfind(|end| end.wall == wall)?;
        Some(Deadline {
            wall,
            ticks: end.ticks,
            epoch: end.boot.clone(),
        })
    }

    /// Says when it will end, too. `current` is the end that is in the ledger.
    pub(super) fn ends_at(&mut self, current: Timestamp, deadline: &Deadline) {
        self.ends.retain(|end| end.wall == current);
        self.ends.push(deadline.into());
    }
}

impl NodeState {
    fn halves(keys: &Path, node: &NodeId) -> TwoSlotFile {
        TwoSlotFile::new(&keys.join(node.to_string()))
    }

    /// Reads it. What can't be understood is as if it were not there.
    pub(super) fn load(keys: &Path, node: &NodeId, now: &Moment) -> Result<Self, StoreError> {
        let halves = Self::halves(keys, node);
        for _ in 0..TRIES {
            let (newest, flaw) = halves.read()?;
            if let Some((revision, half, json)) = newest {
                let keyed: Self = serde_json::from_slice(&json).unwrap_or_default();
                return Ok(Self {
                    revision,
                    half,
                    on_disk: true,
                    ..keyed
                });
            }
            if flaw.is_none() {
                break;
            }
            // Somebody wrote both while we read, or a power cut tore them.
            std::thread::yield_now();
        }
        Ok(Self {
            // Tickets of an earlier time have smaller numbers.
            last_ticket: u64::try_from(now.ticks.as_micros()).unwrap_or(0),
            ..Self::default()
        })
    }

    /// Writes it, or removes it if there is nothing to say. In our turn.
    pub(super) fn save(&mut self, keys: &Path, node: &NodeId) -> Result<(), StoreError> {
        let halves = Self::halves(keys, node);
        let waits = |ticket| self.tickets.iter().any(|place| place.ticket == ticket);
        let within = std::mem::take(&mut self.within);
        self.within = within
            .into_iter()
            .filter(|(ticket, _)| waits(*ticket))
            .collect();
        if self.grant.is_none() && self.tickets.is_empty() {
            if self.on_disk {
                halves.remove(self.half)?;
            }
            *self = Self {
                last_ticket: self.last_ticket,
                revision: self.revision.wrapping_add(1),
                ..Self::default()
            };
            return Ok(());
        }
        let json =
            serde_json::to_vec(self).map_err(|error| explain("written", keys, error.into()))?;
        let revision = self.revision.wrapping_add(1);
        self.half = match halves.write(revision, self.half, &json) {
            Err(_) if !keys.exists() => {
                std::fs::create_dir_all(keys).map_err(|error| explain("made", keys, error))?;
                halves.write(revision, self.half, &json)?
            }
            written => written?,
        };
        self.revision = revision;
        self.on_disk = true;
        Ok(())
    }

    /// Every node of which something is known.
    pub(super) fn nodes(keys: &Path) -> Result<Vec<NodeId>, StoreError> {
        let entries = match std::fs::read_dir(keys) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(explain("read", keys, error)),
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
