//! Reads and writes that may be made twice.

use std::time::Instant;

use tenure_core::{ErrorKind, StoreError};
use tenure_host::interrupt::is_interrupted;

use crate::client::Client;
use crate::cluster::{CallFailure, remaining};
use crate::proto::{KeyValue, RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use crate::store::EtcdStore;

/// Reads in several parts, and again if the revision was compacted away meanwhile.
pub(crate) fn whole<T>(
    by: Instant,
    read: impl Fn() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    loop {
        match read() {
            Err(error)
                if error.kind == ErrorKind::Contended
                    && !remaining(by).is_zero()
                    && !is_interrupted() => {}
            other => return other,
        }
    }
}

impl EtcdStore {
    /// A transaction that may be made twice.
    pub(crate) fn txn(&self, request: &TxnRequest, by: Instant) -> Result<TxnResponse, StoreError> {
        let answer = self.cluster.ask(by, request, Client::txn);
        answer.map_err(CallFailure::into_error)
    }

    /// One read.
    pub(crate) fn read(
        &self,
        range: &RangeRequest,
        by: Instant,
    ) -> Result<RangeResponse, StoreError> {
        let answer = self.cluster.ask(by, range, Client::range);
        answer.map_err(CallFailure::into_error)
    }

    /// What it finds, and the revision.
    pub(crate) fn page(
        &self,
        range: &RangeRequest,
        by: Instant,
    ) -> Result<(Vec<KeyValue>, i64), StoreError> {
        let found = self.read(range, by)?;
        Ok((found.kvs, found.header.map_or(0, |header| header.revision)))
    }

    /// Everything below a prefix, at one revision; 0 for the current one.
    pub(crate) fn range(
        &self,
        prefix: &str,
        revision: i64,
        by: Instant,
    ) -> Result<(Vec<KeyValue>, i64), StoreError> {
        self.pages(RangeRequest::below(prefix.to_owned()), revision, by)
    }

    /// The same for any range.
    pub(crate) fn pages(
        &self,
        mut range: RangeRequest,
        mut revision: i64,
        by: Instant,
    ) -> Result<(Vec<KeyValue>, i64), StoreError> {
        let mut all: Vec<KeyValue> = Vec::new();
        range.limit = PAGE;
        loop {
            range.revision = revision;
            let (found, at) = self.page(&range, by)?;
            if revision == 0 {
                revision = at;
            }
            let is_last = i64::try_from(found.len()).unwrap_or(range.limit) < range.limit;
            let size: usize = found.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
            range.limit = next_page(range.limit, size);
            all.extend(found);
            match all.last() {
                Some(last) if !is_last => {
                    range.key.clone_from(&last.key);
                    range.key.push(0);
                }
                _ => return Ok((all, revision)),
            }
        }
    }
}

/// How many records the first page of a read has, and the largest one.
const PAGE: i64 = 1000;
const LARGEST_PAGE: i64 = 16 * PAGE;

/// How many records the page after one of this size has. For each page, etcd counts all records that are left, so few large
/// pages are much faster than many small ones; but an answer must stay small enough to be sent.
fn next_page(limit: i64, size: usize) -> i64 {
    const SMALL: usize = 1024 * 1024;
    match size {
        0..SMALL => (2 * limit).min(LARGEST_PAGE),
        _ => (limit / 2).max(PAGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_while_they_are_small() {
        let pages = |size| {
            let next = move |limit: &i64| Some(next_page(*limit, size));
            std::iter::successors(Some(PAGE), next)
        };
        assert_eq!(pages(100_000).take(6).last(), Some(LARGEST_PAGE));
        // 77,000 keys that are held have three records each.
        assert!(pages(100_000).take(18).sum::<i64>() > 231_000);
        assert!(pages(5_000_000).take(9).all(|limit| limit == PAGE));
    }
}
