//! Where a store's tokens come from, and how a cluster that was restored is noticed: [`Origin`].
//!
//! A token is the revision at which a lease was granted. A cluster that was restored from a backup counts its revisions from
//! the backup on, so it would give tokens out again that another holder had before. Two things tell:
//!
//! 1. The store names the cluster that it was made in. A backup that is restored in a new cluster, or a copy, names another
//!    one: every client refuses it.
//! 2. Each machine remembers how high the tokens were. A backup that is restored in its own cluster is lower: the clients
//!    of this machine refuse it, and tell the others by the record. A change of tasks is made, and tells the others, too:
//!    otherwise the revision could pass what the machine remembers.
//!
//! From then on nothing is granted until `tenure store repair` has raised the tokens: a number is added to each new one.
//! It is part of the record of a lease, so older tokens stay as they are.
//!
//! # Invariants
//!
//! 1. A transaction that grants compares the record, so no client grants with another number than is valid.
//! 2. Before it, the cluster was asked for an etcd lease, which is as new as any read. So what it says of its revision was
//!    said by the cluster that makes the transaction.
//! 3. What a machine remembers is never higher than what it has seen, and never lower than a token that it has given to a caller:
//!    it is written before the call returns. It is not synced, so a power cut may take the newest part away.
//! 4. A store is judged by what was remembered before it was asked. What others have seen since would make it look old.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tenure_core::{ErrorKind, StoreError};

use crate::proto::{Compare, KeyValue, RangeRequest, RequestOp, ResponseHeader, TxnRequest};
use crate::records::{json, number, parsed};
use crate::store::EtcdStore;
use tenure_host::lock;

/// How far the tokens are raised above the highest that is known. No cluster changes so often between a backup and its
/// restoration; etcd's documentation names the same number for `--bump-revision`.
pub(crate) const RAISE: u64 = 1_000_000_000;

/// How many clusters are remembered that had the same address.
const MOST_CLUSTERS: usize = 8;

/// What this machine remembers is kept under this name.
const TOPIC: &str = "tokens";

/// The record that says where a store's tokens come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The id of the cluster.
    cluster: String,
    /// What is added to the revision of a grant.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) raised: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for this signature"
)]
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a process knows of its store's tokens.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    answered: Answered,
    /// The record, as it was read last.
    read: Option<Origin>,
    marks: Marks,
}

/// Who answered last.
#[derive(Debug, Clone, Default)]
struct Answered {
    cluster: String,
    revision: u64,
}

/// What this machine remembers.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Marks {
    /// By cluster.
    seen: BTreeMap<String, Mark>,
}

/// The highest token that a cluster can have given out, as far as this machine knows.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Mark {
    height: u64,
    raised: u64,
}

impl Tokens {
    /// The record, or what it usually is.
    fn origin(&self) -> Origin {
        let cluster = &self.answered.cluster;
        self.read.clone().unwrap_or_else(|| Origin {
            cluster: cluster.clone(),
            raised: self.marks.of(cluster).raised,
        })
    }

    /// How high its tokens are now.
    fn height(&self, origin: &Origin) -> u64 {
        self.answered.revision.saturating_add(origin.raised)
    }

    /// The highest token that is known here.
    fn highest(&self, origin: &Origin) -> u64 {
        let marks = self.marks.seen.values();
        marks
            .map(|mark| mark.height)
            .fold(self.height(origin), u64::max)
    }

    /// Why the store must have been restored, if it was, and this was remembered before it answered.
    fn restored(&self, origin: &Origin, before: &Marks) -> Option<String> {
        let Answered { cluster, .. } = &self.answered;
        if origin.cluster != *cluster {
            let from = match origin.cluster.as_str() {
                RESTORED => "another machine has seen higher tokens".to_owned(),
                other => format!("it was made in the cluster {other}, this is {cluster}"),
            };
            return Some(from);
        }
        let (height, seen) = (self.height(origin), before.of(cluster).height);
        (height < seen)
            .then(|| format!("it is at token {height}, and this machine has seen {seen}"))
    }
}

/// Stands for the cluster of a store that a client has found to be restored.
const RESTORED: &str = "restored";

/// The id of a cluster, as `etcdctl` shows it.
fn shown(cluster: u64) -> String {
    format!("{cluster:x}")
}

impl EtcdStore {
    /// A cluster has answered.
    pub(crate) fn answered_with(&self, header: Option<&ResponseHeader>) {
        if let Some(header) = header {
            lock(&self.tokens).answered = Answered {
                cluster: shown(header.cluster_id),
                revision: number(header.revision),
            };
        }
    }

    /// The record was read.
    pub(crate) fn read_origin(&self, found: Option<&KeyValue>) -> Result<(), StoreError> {
        let read = found.map(|kv| parsed(kv.name(), &kv.value)).transpose()?;
        lock(&self.tokens).read = read;
        Ok(())
    }

    /// Learns what other processes of this machine have seen.
    pub(crate) fn recall_tokens(&self) {
        let others = self.memory().recall(TOPIC).unwrap_or_default();
        lock(&self.tokens).marks.merge(others);
    }

    /// What a grant has to compare, and to add to its revision. Refuses a store that was restored.
    pub(crate) fn origin(&self, by: Instant) -> Result<Origin, StoreError> {
        let tokens = lock(&self.tokens);
        let origin = tokens.origin();
        if tokens.restored(&origin, &tokens.marks).is_none() {
            return Ok(origin);
        }
        drop(tokens);
        // Another process may have seen more since, and what was assumed may be wrong: only a read tells.
        let (origin, problem) = self.examine_origin(by)?;
        match problem {
            None => Ok(origin),
            Some(problem) => {
                let marked = Origin {
                    cluster: RESTORED.to_owned(),
                    ..origin.clone()
                };
                if marked != origin {
                    // So that clients that remember less refuse it, too. Best effort.
                    let _ = self.replace_origin(&origin, &marked, by);
                }
                Err(problem)
            }
        }
    }

    /// Whether the store was restored, and its tokens have not been raised since.
    pub fn was_restored(&self, by: Instant) -> Result<Option<StoreError>, StoreError> {
        Ok(self.examine_origin(by)?.1)
    }

    /// Reads the record, and judges it.
    fn examine_origin(&self, by: Instant) -> Result<(Origin, Option<StoreError>), StoreError> {
        self.recall_tokens();
        let before = lock(&self.tokens).marks.clone();
        let found = self.read(&RangeRequest::one(self.layout.origin()), by)?;
        self.answered_with(found.header.as_ref());
        self.read_origin(found.kvs.first())?;
        // A store that does not exist yet is made above what is remembered.
        let is_new = found.kvs.is_empty()
            && self
                .page(&RangeRequest::one(self.layout.version()), by)?
                .0
                .is_empty();
        let tokens = lock(&self.tokens);
        let origin = tokens.origin();
        let why = tokens.restored(&origin, &before).filter(|_| !is_new);
        let problem = why.map(|why| {
            let what = format!(
                "{} was restored from a backup, or copied: {why}. Its next tokens would be lower than some that were given out, \
                 so nothing is granted",
                self.address()
            );
            StoreError::new(ErrorKind::Damaged, what).fix(
                "make sure that no holder from before still works, then raise the tokens: tenure store repair",
            )
        });
        Ok((origin, problem))
    }

    fn replace_origin(
        &self,
        before: &Origin,
        after: &Origin,
        by: Instant,
    ) -> Result<bool, StoreError> {
        let name = self.layout.origin();
        let is_read = lock(&self.tokens).read.is_some();
        let same = if is_read {
            Compare::value(name.clone(), json(before))
        } else {
            Compare::missing(name.clone())
        };
        let put = RequestOp::put(name, json(after));
        let request = TxnRequest::only_if([same], [put]);
        Ok(self.txn(&request, by)?.succeeded)
    }

    /// Writes the record of a store that has none. If the store `is_new`, its tokens begin above those that this machine
    /// knows of an earlier store at this address.
    pub(crate) fn write_origin(&self, is_new: bool, by: Instant) -> Result<(), StoreError> {
        self.recall_tokens();
        let origin = {
            let tokens = lock(&self.tokens);
            let cluster = tokens.answered.cluster.clone();
            let fresh = Origin { cluster, raised: 0 };
            let (highest, height) = (tokens.highest(&fresh), tokens.height(&fresh));
            let raised = if is_new && highest > height {
                highest - height + RAISE
            } else {
                0
            };
            Origin { raised, ..fresh }
        };
        let name = self.layout.origin();
        let put = RequestOp::put(name.clone(), json(&origin));
        self.txn(&TxnRequest::only_if([Compare::missing(name)], [put]), by)?;
        Ok(())
    }

    /// Raises the tokens of a store that was restored. `anyway`: even if nothing tells that it was. Returns the number
    /// that the next tokens are above.
    pub(crate) fn raise_tokens(
        &self,
        anyway: bool,
        by: Instant,
    ) -> Result<Option<u64>, StoreError> {
        let (origin, problem) = match self.examine_origin(by) {
            Ok(examined) => examined,
            // What was there can't be known.
            Err(error) if error.kind == ErrorKind::Damaged => {
                return self.make_origin(by).map(Some);
            }
            Err(error) => return Err(error),
        };
        if problem.is_none() && !anyway {
            return Ok(None);
        }
        let (after, highest) = {
            let tokens = lock(&self.tokens);
            let highest = tokens.highest(&origin);
            let raised = highest
                .saturating_sub(tokens.answered.revision)
                .saturating_add(RAISE);
            let cluster = tokens.answered.cluster.clone();
            (Origin { cluster, raised }, highest.saturating_add(RAISE))
        };
        if !self.replace_origin(&origin, &after, by)? {
            let what = "another process has changed the tokens at the same time";
            return Err(StoreError::new(ErrorKind::Contended, what).fix("try again"));
        }
        lock(&self.tokens).read = Some(after);
        Ok(Some(highest))
    }

    /// Writes a record in the place of one that can't be understood: the tokens may have been raised before, perhaps often.
    fn make_origin(&self, by: Instant) -> Result<u64, StoreError> {
        let (after, highest) = {
            let mut tokens = lock(&self.tokens);
            tokens.read = None;
            let origin = tokens.origin();
            let highest = tokens
                .highest(&origin)
                .saturating_add(RAISE.saturating_mul(RAISE / 1_000_000));
            let raised = highest.saturating_sub(tokens.answered.revision);
            (Origin { raised, ..origin }, highest)
        };
        let put = RequestOp::put(self.layout.origin(), json(&after));
        self.txn(&TxnRequest::always([put]), by)?;
        lock(&self.tokens).read = Some(after);
        Ok(highest)
    }

    /// A step was made at this revision that changed tasks, or gave a token out, to which this was added. Keeps that this machine
    /// has seen it.
    pub(crate) fn note_step(&self, revision: i64, raised: Option<u64>, by: Instant) {
        let raised = raised.map_or_else(
            || {
                self.recall_tokens();
                self.origin(by).map(|origin| origin.raised)
            },
            Ok,
        );
        // Restored: what was seen before is higher.
        let Ok(raised) = raised else { return };
        let mark = Mark {
            height: number(revision).saturating_add(raised),
            raised,
        };
        let mut tokens = lock(&self.tokens);
        let cluster = tokens.answered.cluster.clone();
        tokens.marks.merge(Marks::only(cluster.clone(), mark));
        drop(tokens);
        self.memory().change(TOPIC, |others: Option<Marks>| {
            let mut marks = others.unwrap_or_default();
            let is_higher = mark.height > marks.of(&cluster).height;
            marks.merge(Marks::only(cluster, mark));
            is_higher.then_some(marks)
        });
    }
}

impl Marks {
    fn only(cluster: String, mark: Mark) -> Self {
        Self {
            seen: BTreeMap::from([(cluster, mark)]),
        }
    }

    fn of(&self, cluster: &str) -> Mark {
        self.seen.get(cluster).copied().unwrap_or_default()
    }

    /// Takes over what is higher.
    fn merge(&mut self, others: Self) {
        for (cluster, mark) in others.seen {
            let own = self.seen.entry(cluster).or_default();
            if mark.height > own.height {
                *own = mark;
            }
        }
        while self.seen.len() > MOST_CLUSTERS {
            let lowest = self.seen.iter().min_by_key(|(_, mark)| mark.height);
            let Some(lowest) = lowest.map(|(cluster, _)| cluster.clone()) else {
                break;
            };
            self.seen.remove(&lowest);
        }
    }
}
