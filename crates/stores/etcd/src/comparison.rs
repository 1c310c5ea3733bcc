//! How a user's own etcd transaction depends on a lease: [`Comparison`].
//!
//! A holder that checks its lease and writes afterwards may be stopped in between. If it writes to the same cluster, the
//! check and the write can be one transaction: that is the only way in which no late write is ever accepted.

use std::fmt;
use std::time::Instant;

use tenure_core::{Key, StoreError, Token};

use crate::proto::RangeRequest;
use crate::records::KeyRecords;
use crate::store::EtcdStore;

/// A condition of an etcd transaction: the revision at which a key of etcd was created. A key that does not exist has
/// the create revision 0.
///
/// [`fmt::Display`] writes it as `etcdctl txn` reads it: `create("team/k/build/l/0") = "71"`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Comparison {
    /// The key of etcd.
    pub key: String,
    /// How its create revision must compare.
    pub relation: Relation,
    /// With what.
    pub create_revision: u64,
}

/// How the create revision of a key must compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// It is the given one.
    Equal,
    /// It is larger.
    Greater,
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.replace('\\', "\\\\").replace('"', "\\\"");
        let relation = match self.relation {
            Relation::Equal => '=',
            Relation::Greater => '>',
        };
        let revision = self.create_revision;
        write!(f, "create(\"{key}\") {relation} \"{revision}\"")
    }
}

impl EtcdStore {
    /// What a transaction must compare to be carried out only while a lease has neither ended nor expired: that the
    /// record of the lease is the one with this token, and that its life is there. `None` if there is no such lease any
    /// more.
    ///
    /// They are the same for as long as the lease is held, however often it is renewed: ask once, after the grant.
    pub fn comparisons(
        &self,
        key: &Key,
        token: Token,
        by: Instant,
    ) -> Result<Option<[Comparison; 2]>, StoreError> {
        let (found, _) = self.page(&RangeRequest::below(self.layout.lease(key, "")), by)?;
        let records = KeyRecords::read(&self.layout, &found);
        Ok(records.lease(token).map(|lease| {
            let name = &lease.name;
            [
                Comparison {
                    key: self.layout.lease(key, name),
                    relation: Relation::Equal,
                    create_revision: lease.created(),
                },
                Comparison {
                    key: self.layout.life(key, name),
                    relation: Relation::Greater,
                    create_revision: 0,
                },
            ]
        }))
    }
}
