//! The messages of etcd's API that the store needs, with the field numbers of its protocol.
//!
//! They are written by hand, so that a build needs no `protoc`. A field that is not listed is not used; protobuf
//! skips it.

use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

impl KeyValue {
    /// The name of the key. This store's names are UTF-8.
    pub(crate) fn name(&self) -> &str {
        std::str::from_utf8(&self.key).unwrap_or_default()
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    #[prost(bool, tag = "9")]
    pub(crate) count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
}

/// The answer to a put or a delete: nothing of it is used.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Done {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Op", tags = "1, 2, 3")]
    pub(crate) request: Option<Op>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Op {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeRequest),
}

impl RequestOp {
    fn new(op: Op) -> Self {
        Self { request: Some(op) }
    }

    pub(crate) fn read(range: RangeRequest) -> Self {
        Self::new(Op::Range(range))
    }

    /// Writes a value that stays until it is deleted.
    pub(crate) fn put(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self::put_tied(key, value, 0)
    }

    /// Writes a value that goes with an etcd lease.
    pub(crate) fn put_tied(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>, lease: i64) -> Self {
        Self::new(Op::Put(PutRequest {
            key: key.into(),
            value: value.into(),
            lease,
        }))
    }

    pub(crate) fn delete(key: impl Into<Vec<u8>>) -> Self {
        Self::delete_range(key, Vec::new())
    }

    pub(crate) fn delete_range(key: impl Into<Vec<u8>>, range_end: Vec<u8>) -> Self {
        Self::new(Op::Delete(DeleteRangeRequest {
            key: key.into(),
            range_end,
        }))
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "OpAnswer", tags = "1, 2, 3")]
    pub(crate) response: Option<OpAnswer>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum OpAnswer {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(Done),
    #[prost(message, tag = "3")]
    Delete(Done),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Compared", tags = "5, 6, 7")]
    pub(crate) compared: Option<Compared>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Compared {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

const EQUAL: i32 = 0;
const GREATER: i32 = 1;
const LESS: i32 = 2;
const CREATE: i32 = 1;
const MOD: i32 = 2;
const VALUE: i32 = 3;

impl Compare {
    fn new(key: String, result: i32, target: i32, compared: Compared) -> Self {
        Self {
            result,
            target,
            key: key.into_bytes(),
            compared: Some(compared),
            range_end: Vec::new(),
        }
    }

    /// The key does not exist.
    pub(crate) fn missing(key: String) -> Self {
        Self::new(key, EQUAL, CREATE, Compared::CreateRevision(0))
    }

    /// The key exists.
    pub(crate) fn present(key: String) -> Self {
        Self::new(key, GREATER, CREATE, Compared::CreateRevision(0))
    }

    /// The key was created at this revision.
    pub(crate) fn created_at(key: String, revision: i64) -> Self {
        Self::new(key, EQUAL, CREATE, Compared::CreateRevision(revision))
    }

    /// The key was last written at this revision; at 0 if it does not exist.
    pub(crate) fn unchanged(key: String, revision: i64) -> Self {
        Self::new(key, EQUAL, MOD, Compared::ModRevision(revision))
    }

    /// The key has this value.
    pub(crate) fn value(key: String, value: Vec<u8>) -> Self {
        Self::new(key, EQUAL, VALUE, Compared::Value(value))
    }

    /// There is no key with this prefix.
    pub(crate) fn none_below(prefix: String) -> Self {
        let range_end = after(&prefix);
        Self {
            range_end,
            ..Self::missing(prefix)
        }
    }

    /// No key with this prefix was written after this revision.
    pub(crate) fn nothing_new_below(prefix: String, revision: i64) -> Self {
        let next = Compared::ModRevision(revision.saturating_add(1));
        let range_end = after(&prefix);
        Self {
            range_end,
            ..Self::new(prefix, LESS, MOD, next)
        }
    }
}

/// The end of the range of all names with this prefix.
pub(crate) fn after(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

impl RangeRequest {
    /// One key.
    pub(crate) fn one(key: String) -> Self {
        Self {
            key: key.into_bytes(),
            ..Self::default()
        }
    }

    /// Every key with this prefix.
    pub(crate) fn below(prefix: String) -> Self {
        Self {
            range_end: after(&prefix),
            ..Self::one(prefix)
        }
    }

    /// Without the values.
    pub(crate) fn keys_only(self) -> Self {
        Self {
            keys_only: true,
            ..self
        }
    }

    /// Only the first ones.
    pub(crate) fn limited(self, limit: i64) -> Self {
        Self { limit, ..self }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

impl TxnRequest {
    /// Does this, at once.
    pub(crate) fn always(success: impl Into<Vec<RequestOp>>) -> Self {
        Self::only_if([], success)
    }

    /// Does this if all of that is true, else nothing.
    pub(crate) fn only_if(
        compare: impl Into<Vec<Compare>>,
        success: impl Into<Vec<RequestOp>>,
    ) -> Self {
        Self {
            compare: compare.into(),
            success: success.into(),
            failure: Vec::new(),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

impl TxnResponse {
    /// The revision of the cluster after it.
    pub(crate) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }

    /// The results of its reads.
    pub(crate) fn found(self) -> impl Iterator<Item = Vec<KeyValue>> {
        self.responses
            .into_iter()
            .filter_map(|one| match one.response {
                Some(OpAnswer::Range(found)) => Some(found.kvs),
                _ => None,
            })
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

/// Revokes an etcd lease, or keeps it alive.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchOp", tags = "1")]
    pub(crate) request: Option<WatchOp>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WatchOp {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) filters: Vec<i32>,
}

/// [`WatchCreateRequest::filters`]: only that a key was removed.
pub(crate) const NO_PUT: i32 = 0;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<WatchEvent>,
}

/// A change. Which one does not matter.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchEvent {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(int64, tag = "3")]
    pub(crate) db_size: i64,
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
    #[prost(int64, tag = "9")]
    pub(crate) db_size_in_use: i64,
    #[prost(int64, tag = "12")]
    pub(crate) db_size_quota: i64,
}

/// The answer to a `MemberListRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct MemberListResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Done>,
}

/// The answer to an `AlarmRequest`, whose fields are all zero: it asks for all alarms.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AlarmResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) alarms: Vec<AlarmMember>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AlarmMember {
    #[prost(int32, tag = "2")]
    pub(crate) alarm: i32,
}

impl AlarmResponse {
    /// The names of the alarms, each once.
    pub(crate) fn names(&self) -> Vec<String> {
        let name = |member: &AlarmMember| match member.alarm {
            1 => Some("NOSPACE"),
            2 => Some("CORRUPT"),
            _ => None,
        };
        let mut names: Vec<&str> = self.alarms.iter().filter_map(name).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(str::to_owned).collect()
    }
}
