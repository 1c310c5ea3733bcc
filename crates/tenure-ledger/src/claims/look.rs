//! Which claim on a node counts, and what is known of its holder.
//!
//! | ledger | file | what counts |
//! |---|---|---|
//! | stands | anything | the ledger's |
//! | none, or over | stands, or can't be understood | the file's |
//! | over | none, or over | the ledger's, which may be taken over |
//! | none | over | the file's, which may be reaped |

use std::time::Duration;

use jiff::Timestamp;
use tenure_core::{
    Binding, Deadline, Doubt, Epoch, Holder, HolderId, Lease, Liveness, Token, Verdict,
};
use tenure_host::liveness;

use super::node_state::NodeState;
use crate::claim_files::FileClaim;
use crate::node::NodeId;
use crate::replay::NodeClaim;
use tenure_host::files::reader::Reader;

/// Where a claim is written down.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Ledger,
    File(FileClaim),
}

/// The claim that counts.
#[derive(Debug, Clone)]
pub(super) struct Counts {
    pub(super) lease: Lease,
    pub(super) liveness: Liveness,
    pub(super) source: Source,
}

/// What is looked at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight<'a> {
    pub(super) reader: Reader<'a>,
    pub(super) node: &'a NodeId,
    pub(super) claim: Option<&'a NodeClaim>,
    pub(super) keyed: &'a NodeState,
    pub(super) files: &'a [FileClaim],
}

impl Sight<'_> {
    /// The claim that counts, if any.
    pub(super) fn counts(&self) -> Option<Counts> {
        let ledger = self.claim.map(|claim| self.in_ledger(claim));
        if let Some(ledger) = ledger.clone().filter(|claim| self.stands(claim)) {
            return Some(ledger);
        }
        let mut files = self
            .files
            .iter()
            .filter(|file| file.node.as_ref() == Some(self.node));
        let standing = files
            .clone()
            .map(|file| self.in_file(file))
            .find(|claim| self.stands(claim));
        standing
            .or(ledger)
            .or_else(|| files.next().map(|file| self.in_file(file)))
    }

    fn stands(&self, claim: &Counts) -> bool {
        Verdict::on(self.reader.now, &claim.lease, &claim.liveness)
            .over()
            .is_none()
    }

    /// A claim in the ledger.
    pub(super) fn in_ledger(&self, claim: &NodeClaim) -> Counts {
        let note = self
            .keyed
            .grant
            .as_ref()
            .filter(|note| note.is_about(claim));
        let by_the_wall = Deadline {
            wall: claim.expires,
            ticks: Duration::ZERO,
            epoch: Epoch::unknown(),
        };
        let lasts = || Duration::try_from(claim.expires.duration_since(claim.heard));
        let lease = Lease {
            key: self.node.key().clone(),
            holder: note.map_or_else(|| stranger(&claim.owner), |note| note.holder.clone()),
            token: Token(claim.token),
            acquired_at: claim.since,
            expires: note
                .and_then(|note| note.deadline(claim.expires))
                .unwrap_or(by_the_wall),
            heartbeat_at: claim.heard,
            ttl: note.map_or_else(|| lasts().unwrap_or_default(), |note| note.ttl),
        };
        let liveness = if self.reader.is_us(&lease.holder) {
            Liveness::Running
        } else {
            liveness::probe(self.reader.folder, &lease.holder.binding)
        };
        Counts {
            lease,
            liveness,
            source: Source::Ledger,
        }
    }

    fn in_file(&self, file: &FileClaim) -> Counts {
        let (owner, since, expires, doubt) = match &file.content {
            Ok(says) => (
                says.owner.as_str(),
                says.since,
                says.expires,
                Doubt::Detached,
            ),
            Err(_) => ("", Timestamp::UNIX_EPOCH, Timestamp::MAX, Doubt::Malformed),
        };
        let lease = Lease {
            key: self.node.key().clone(),
            holder: stranger(owner),
            token: Token::NONE,
            acquired_at: since,
            expires: Deadline {
                wall: expires,
                ticks: Duration::ZERO,
                epoch: Epoch::unknown(),
            },
            heartbeat_at: since,
            ttl: Duration::try_from(expires.duration_since(since)).unwrap_or_default(),
        };
        Counts {
            lease,
            liveness: Liveness::Unverifiable(doubt),
            source: Source::File(file.clone()),
        }
    }
}

/// Somebody of whom only the name is known.
fn stranger(owner: &str) -> Holder {
    Holder {
        id: HolderId::parse(owner).unwrap_or_else(|_| HolderId::unreadable()),
        host: "?".into(),
        command: None,
        binding: Binding::Detached,
    }
}
