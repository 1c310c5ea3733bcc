//! Reads and writes that may be made twice.

use std::time::Instant;

use tenure_core::{ErrorKind, StoreError};
use tenure_host::interrupt::is_interrupted;

use crate::client::Client;
use crate::cluster::{Failure, remaining};
use crate::proto::{KeyValue, RangeRequest, TxnRequest, TxnResponse};
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
    pub(crate) fn txn(&self, request: TxnRequest, by: Instant) -> Result<TxnResponse, StoreError> {
        let job = move |client: Client| {
            let request = request.clone();
            async move { client.txn(request).await }
        };
        self.cluster.ask(by, job).map_err(Failure::into_error)
    }

    /// One read.
    pub(crate) fn page(
        &self,
        range: RangeRequest,
        by: Instant,
    ) -> Result<(Vec<KeyValue>, i64), StoreError> {
        let job = move |client: Client| {
            let range = range.clone();
            async move { client.range(range).await }
        };
        let found = self.cluster.ask(by, job).map_err(Failure::into_error)?;
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
        const PAGE: i64 = 1000;
        let mut all: Vec<KeyValue> = Vec::new();
        range.limit = PAGE;
        loop {
            range.revision = revision;
            let (found, at) = self.page(range.clone(), by)?;
            if revision == 0 {
                revision = at;
            }
            let is_last = i64::try_from(found.len()).unwrap_or(PAGE) < PAGE;
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
