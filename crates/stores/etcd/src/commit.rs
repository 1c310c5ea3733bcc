//! Makes the transaction of a step, and finds out what became of it.

use std::time::Instant;

use tenure_core::{ErrorKind, Key, StoreError};

use crate::client::Client;
use crate::cluster::{CallFailure, now};
use crate::layout::VERSION;
use crate::proto::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use crate::records::KeyRecords;
use crate::step::{EtcdStep, Seen, is_of_tasks};
use crate::store::EtcdStore;
use crate::tasks::SeenTasks;

impl EtcdStore {
    /// Makes the transaction of a step; its revision, and whether the step was overtaken although it was made. `Ok(Err(_))`:
    /// something had changed; what is there now.
    pub(crate) fn commit(
        &self,
        step: &mut EtcdStep<'_>,
        key: Option<&Key>,
        transaction: &TxnRequest,
        by: Instant,
    ) -> Result<Result<(i64, bool), Seen>, StoreError> {
        let began = now();
        let mut unanswered = None;
        loop {
            let until = self.cluster.asked_until(by, began);
            match self.cluster.ask_once(until, transaction, Client::txn) {
                Ok(answer) if answer.succeeded => {
                    self.answered_with(answer.header.as_ref());
                    let revision = answer.revision();
                    return Ok(Ok((revision, step.was_overtaken(Some(answer)))));
                }
                Ok(answer) => {
                    let seen = self.after_a_change(key, &step.waiters(key), answer, by)?;
                    if unanswered.is_some()
                        && let Some(revision) = self.was_carried_out(step, key, &seen, by)?
                    {
                        return Ok(Ok((revision, step.was_overtaken(None))));
                    }
                    return Ok(Err(seen));
                }
                Err(CallFailure::NoAnswer(error)) => {
                    // It may have been carried out. Making it once more is safe: its comparisons hold
                    // for one of the two only.
                    step.writes.may_be_made = true;
                    if !self.cluster.may_try_again(by, began) {
                        return Err(self.unknown_outcome(&error));
                    }
                    unanswered = Some(error);
                }
                // An etcd lease ended before the transaction was made.
                Err(CallFailure::LeaseEnded) => {
                    step.writes.begun.clear();
                    return Ok(Err(Seen::default()));
                }
                Err(other) => {
                    return Err(match unanswered {
                        Some(error) => self.unknown_outcome(&error),
                        None => other.into_error(),
                    });
                }
            }
        }
    }

    pub(crate) fn unknown_outcome(&self, error: &StoreError) -> StoreError {
        let what = format!(
            "{} did not answer in time: the change may or may not have been made",
            self.address()
        );
        StoreError::new(ErrorKind::OutcomeUnknown, what)
            .because(error.what.clone())
            .fix("look before you try again: tenure locks show KEY")
    }

    /// What is there now, from the answer to a transaction that was not made.
    fn after_a_change(
        &self,
        key: Option<&Key>,
        waiters: &[String],
        answer: TxnResponse,
        by: Instant,
    ) -> Result<Seen, StoreError> {
        self.answered_with(answer.header.as_ref());
        let revision = answer.revision();
        let mut found = answer.found();
        let version = found.next().unwrap_or_default();
        self.check_version(version.first())?;
        let origin = found.next().unwrap_or_default();
        self.read_origin(origin.first())?;
        let tasks = match is_of_tasks(key).then(|| found.next().unwrap_or_default()) {
            Some(guard) => SeenTasks::of(guard.first())?,
            None => SeenTasks::default(),
        };
        let records = key.map(|key| {
            let records = found.next().unwrap_or_default();
            (key.clone(), KeyRecords::read(&self.layout, &records))
        });
        if version.is_empty() || origin.is_empty() {
            self.write_version(by)?;
        }
        let mut seen = Seen {
            revision,
            keys: records.into_iter().collect(),
            tasks,
            ..Seen::default()
        };
        seen.add_sessions(waiters, found);
        Ok(seen)
    }

    /// Whether an earlier attempt of this very transaction was carried out although no answer arrived: its name is on
    /// the guard, a lease lives by what it began, or its event is on record.
    fn was_carried_out(
        &self,
        step: &EtcdStep<'_>,
        key: Option<&Key>,
        seen: &Seen,
        by: Instant,
    ) -> Result<Option<i64>, StoreError> {
        if let Some(revision) = self.was_carried_out_on_tasks(step, seen, by)? {
            return Ok(Some(revision));
        }
        let records = key.and_then(|key| seen.keys.get(key));
        let by_guard = records.filter(|now| now.request.as_ref() == Some(&step.writes.request));
        if let Some(records) = by_guard {
            return Ok(Some(records.guard));
        }
        if let Some(revision) = records.and_then(|records| begun_at(step, records)) {
            return Ok(Some(revision));
        }
        let Some(event) = step.proof().map(str::to_owned) else {
            return Ok(None);
        };
        let (found, _) = self.page(&RangeRequest::one(event), by)?;
        Ok(found.first().map(|kv| kv.create_revision))
    }

    /// Refuses what is not a store of this version. A store that does not exist yet is made by its first write.
    pub(crate) fn check_version(&self, found: Option<&KeyValue>) -> Result<(), StoreError> {
        let Some(found) = found else { return Ok(()) };
        let version = std::str::from_utf8(&found.value).ok();
        match version.and_then(|version| version.parse::<u32>().ok()) {
            Some(VERSION) => Ok(()),
            Some(newer) if newer > VERSION => {
                let what = format!(
                    "a newer tenure uses {}: its layout is {newer}, this tenure knows {VERSION}",
                    self.address()
                );
                Err(StoreError::new(ErrorKind::TooNew, what).fix("update tenure"))
            }
            _ => {
                let what = format!(
                    "{} holds something else: {} is not the version of a store",
                    self.address(),
                    found.name()
                );
                Err(StoreError::new(ErrorKind::NotAStore, what)
                    .fix("name another prefix: etcd://HOST/PREFIX"))
            }
        }
    }

    /// Makes the store, or what an older tenure did not make of it. Another process may do the same at the same time.
    pub(crate) fn write_version(&self, by: Instant) -> Result<(), StoreError> {
        let key = self.layout.version();
        let put = RequestOp::put(key.clone(), VERSION.to_string());
        let request = TxnRequest::only_if([Compare::missing(key)], [put]);
        let answer = self.txn(&request, by)?;
        self.answered_with(answer.header.as_ref());
        self.write_origin(answer.succeeded, by)
    }
}

/// When a lease was written whose life is tied to an etcd lease of this step, which no other step knows.
fn begun_at(step: &EtcdStep<'_>, records: &KeyRecords) -> Option<i64> {
    let begun = |id: i64| step.writes.begun.iter().any(|(_, one)| one.id == id);
    let (name, _) = records.alive.iter().find(|(_, id)| begun(**id))?;
    let mut leases = records.leases.iter();
    leases.find(|one| one.name == *name).map(|one| one.modified)
}
