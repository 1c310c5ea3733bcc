//! The history: what is recorded of it, and how it stays short.

use std::time::Instant;

use tenure_core::{Event, HistoryQuery, StoreError};

use crate::client::Client;
use crate::cluster::Failure;
use crate::proto::{DeleteRangeRequest, KeyValue, Op, RangeRequest, TxnRequest};
use crate::read::whole;
use crate::records::EventRecord;
use crate::store::EtcdStore;

impl EtcdStore {
    /// The events that match, oldest first.
    pub(crate) fn recorded(
        &self,
        query: &HistoryQuery,
        by: Instant,
    ) -> Result<Vec<Event>, StoreError> {
        let all = RangeRequest::below(self.layout.events());
        // The names sort by time.
        let since = query.since.map(|since| RangeRequest {
            key: self.layout.event(since, "", 0).into_bytes(),
            ..all.clone()
        });
        let range = since.unwrap_or(all);
        let (found, _) = whole(by, || self.pages(range.clone(), 0, by))?;
        let mut events: Vec<Event> = found.iter().filter_map(EventRecord::read).collect();
        events.sort_by_key(|event| event.id);
        Ok(query.select(events))
    }

    /// Removes the oldest events, if there are too many or they are too old. Best effort.
    pub(crate) fn trim_history(&self, by: Instant) -> Result<(), StoreError> {
        let all = RangeRequest::below(self.layout.events());
        let count = RangeRequest {
            count_only: true,
            ..all.clone()
        };
        let job = move |client: Client| {
            let count = count.clone();
            async move { client.range(count).await }
        };
        let count = self
            .cluster
            .ask(by, job)
            .map_err(Failure::into_error)?
            .count;
        let most = i64::try_from(self.options.history_events).unwrap_or(i64::MAX);
        let mut end = self.layout.event(
            self.options.clock.now().wall - self.options.history_age,
            "",
            0,
        );
        if count > most {
            let oldest = RangeRequest {
                limit: count - most + 1,
                keys_only: true,
                ..all
            };
            let (oldest, _) = self.page(oldest, by)?;
            let kept = oldest.last().map_or("", KeyValue::name);
            end = end.max(kept.to_owned());
        }
        let delete = Op::Delete(DeleteRangeRequest {
            key: self.layout.events().into_bytes(),
            range_end: end.into_bytes(),
        });
        let request = TxnRequest {
            success: vec![delete.into()],
            ..TxnRequest::default()
        };
        self.txn(request, by)?;
        Ok(())
    }
}
