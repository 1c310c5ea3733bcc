//! The history: what is recorded of it, and how it stays short.

use std::time::Instant;

use tenure_core::text::flat;
use tenure_core::{HistoryQuery, Repaired, StoreError};

use crate::proto::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest};
use crate::read::whole;
use crate::records::EventRecord;
use crate::repair::SHOWN;
use crate::store::EtcdStore;

impl EtcdStore {
    /// The records of the events of a query's time.
    pub(crate) fn event_records(
        &self,
        query: &HistoryQuery,
        by: Instant,
    ) -> Result<Vec<KeyValue>, StoreError> {
        // The names sort by time.
        let since = query.since.map(|since| self.layout.event(since, "", 0));
        let range = self.events_from(since.unwrap_or_else(|| self.layout.events()).into_bytes());
        Ok(whole(by, || self.pages(range.clone(), 0, by))?.0)
    }

    /// Removes events that can't be understood.
    pub(crate) fn repair_events(
        &self,
        repaired: &mut Repaired,
        by: Instant,
    ) -> Result<(), StoreError> {
        for kv in self.event_records(&HistoryQuery::default(), by)? {
            let Err(what) = EventRecord::read(&kv) else {
                continue;
            };
            let name = kv.name().to_owned();
            let unchanged = Compare::unchanged(name.clone(), kv.mod_revision);
            let request = TxnRequest::only_if([unchanged], [RequestOp::delete(name)]);
            if self.txn(&request, by)?.succeeded {
                let was = String::from_utf8_lossy(&kv.value);
                let was: String = was.chars().take(SHOWN).collect();
                let was = flat(&was);
                repaired.done.push(format!("removed: {what}: {was}"));
            }
        }
        Ok(())
    }

    /// Removes the oldest events, if there are too many or they are too old. Best effort.
    pub(crate) fn trim_history(&self, extent: TrimExtent, by: Instant) -> Result<(), StoreError> {
        let begins = self.layout.history_begins();
        let (mark, _) = self.page(&RangeRequest::one(begins.clone()), by)?;
        let mark = mark.into_iter().next().unwrap_or_default();
        let first = self.layout.events().into_bytes();
        let begin = match extent {
            TrimExtent::SinceLast if mark.value.starts_with(&first) => mark.value,
            TrimExtent::SinceLast | TrimExtent::Whole => first,
        };
        let count = RangeRequest {
            count_only: true,
            ..self.events_from(begin.clone())
        };
        let count = self.read(&count, by)?.count;
        let most = i64::try_from(self.options.history_events).unwrap_or(i64::MAX);
        let oldest = self.options.clock.now().wall - self.options.history_age;
        let mut end = self.layout.event(oldest, "", 0).into_bytes();
        if count > most {
            let oldest = self.events_from(begin.clone()).keys_only();
            let (oldest, _) = self.page(&oldest.limited(count - most + 1), by)?;
            end = end.max(oldest.into_iter().last().unwrap_or_default().key);
        }
        if end <= begin {
            return Ok(());
        }
        let delete = RequestOp::delete_range(begin, end.clone());
        let put = RequestOp::put(begins.clone(), end);
        // If another process was faster, this one has nothing left to do.
        let unchanged = Compare::unchanged(begins, mark.mod_revision);
        self.txn(&TxnRequest::only_if([unchanged], [delete, put]), by)?;
        Ok(())
    }

    fn events_from(&self, key: Vec<u8>) -> RangeRequest {
        RangeRequest {
            key,
            ..RangeRequest::below(self.layout.events())
        }
    }
}

/// What a step trims of the history, now and then, so that it costs nothing.
///
/// The cluster walks through the names of all events that were removed since it was last compacted, so a step begins
/// where the history was trimmed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrimExtent {
    /// From where it was trimmed last.
    SinceLast,
    /// All of it: a machine whose clock is slow may have written before that, and one whose clock is fast may have trimmed
    /// too much.
    Whole,
}

impl TrimExtent {
    /// What the step with this random name trims.
    pub(crate) fn of(request: &str) -> Option<Self> {
        if request.starts_with("0000") {
            return Some(Self::Whole);
        }
        request.starts_with("00").then_some(Self::SinceLast)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tenure_core::{Key, Records, Store};
    use tenure_testkit::{Ask, Etcd, FakeClock, soon};

    use super::*;
    use crate::address::Address;
    use crate::store::EtcdOptions;

    const MOST: usize = 10;

    const HOUR: Duration = Duration::from_secs(3600);

    struct Machine {
        store: EtcdStore,
        clock: Arc<FakeClock>,
        _folder: tempfile::TempDir,
    }

    impl Machine {
        fn new(prefix: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let clock = Arc::new(FakeClock::booted(prefix));
            let options = EtcdOptions {
                clock: Arc::clone(&clock) as _,
                history_events: MOST as u64,
                ..EtcdOptions::default()
            };
            let address = Address::parse(&Etcd::shared().address(prefix)).unwrap();
            Self {
                store: EtcdStore::open(address, folder.path(), options).unwrap(),
                clock,
                _folder: folder,
            }
        }

        /// Makes so many pairs of events, and returns their last token.
        fn uses_a_key(&self, times: usize) -> u64 {
            let key = Key::parse("k").unwrap();
            let mut last = 0;
            for _ in 0..times {
                self.clock.pass(Duration::from_millis(1));
                let lease = Ask::new(&key, "me").granted(&self.store);
                last = lease.token.0;
                self.clock.pass(Duration::from_millis(1));
                let _freed = self.store.release(&lease.grant(), soon()).unwrap();
            }
            last
        }

        fn trim(&self, extent: TrimExtent) {
            self.store.trim_history(extent, soon()).unwrap();
        }

        fn recorded(&self) -> Vec<u64> {
            let query = HistoryQuery::default();
            let events = self.store.history(&query, soon()).unwrap();
            events.iter().map(|event| event.token.0).collect()
        }
    }

    #[test]
    fn events_of_a_slow_clock_are_trimmed_with_the_whole_history() {
        let [right, slow] = [(); 2].map(|()| Machine::new("slow-clock"));
        let last = right.uses_a_key(20);
        right.trim(TrimExtent::SinceLast);
        assert_eq!(right.recorded().len(), MOST);
        assert_eq!(right.recorded().last(), Some(&last));
        slow.clock.jump_back(HOUR);
        let late = slow.uses_a_key(1);
        right.trim(TrimExtent::SinceLast);
        // It began where the history was trimmed last.
        assert_eq!(right.recorded().len(), MOST + 2);
        right.trim(TrimExtent::Whole);
        assert_eq!(right.recorded().len(), MOST);
        assert!(!right.recorded().contains(&late));
    }

    #[test]
    fn a_machine_with_a_fast_clock_hides_no_later_event() {
        let [right, fast] = [(); 2].map(|()| Machine::new("fast-clock"));
        right.uses_a_key(3);
        fast.clock.jump_forward(24 * 60 * HOUR);
        fast.trim(TrimExtent::SinceLast);
        let last = right.uses_a_key(20);
        assert_eq!(right.recorded().last(), Some(&last));
        right.trim(TrimExtent::Whole);
        assert_eq!(right.recorded().len(), MOST);
        right.uses_a_key(20);
        right.trim(TrimExtent::SinceLast);
        assert_eq!(right.recorded().len(), MOST);
    }
}
