//! Puts right what was removed, damaged or restored: `tenure store repair`.
//!
//! # Invariants
//!
//! 1. A lease is never removed here: one that can't be understood may be in use until its life has ended. Then it is ended
//!    like every other that has expired.
//! 2. A key is changed only while it is as it was read.

use std::collections::BTreeSet;
use std::time::Instant;

use tenure_core::engine::EngineStore as _;
use tenure_core::repaired::Ends;
use tenure_core::{Key, KeyKind, Repaired, StoreError};

use crate::cluster::remaining;
use crate::layout::encoded;
use crate::proto::{Compare, RangeRequest, RequestOp, TxnRequest};
use crate::records::{KeyGuard, KeyRecords, json};
use crate::store::{EtcdStore, only_store, request, starved};

/// What to repair.
#[derive(Debug, Clone, Copy)]
pub enum Repair<'a> {
    /// The records of one key, and if it is that of a task or section, the task or section.
    Key(&'a Key),
    /// Everything. The tokens are raised if the store was restored from a backup; if the caller knows that it was, even if
    /// nothing else tells.
    All {
        /// Whether the caller knows it.
        restored: bool,
    },
}

/// How much of a damaged record is shown, so that a person can use it.
pub(crate) const SHOWN: usize = 300;

/// How many records one transaction removes.
const AT_ONCE: usize = 100;

impl EtcdStore {
    /// Puts right what was removed or damaged by hand, and raises the tokens of a store that was restored.
    pub fn repair(&self, what: Repair<'_>, by: Instant) -> Result<Repaired, StoreError> {
        self.admit_change()?;
        let mut repaired = Repaired::default();
        match what {
            Repair::Key(key) => {
                if let KeyKind::Task(id) | KeyKind::Section(id) = key.kind() {
                    self.repair_tasks(Some(id), &mut repaired, by)?;
                }
                self.repair_key(key, &mut repaired, by)?;
            }
            Repair::All { restored } => {
                repaired.raised_above = self.raise_tokens(restored, by)?;
                self.repair_tasks(None, &mut repaired, by)?;
                let (records, _) = self.range(&self.layout.keys(), 0, by)?;
                let keys = records.iter().filter_map(|kv| self.layout.parse(kv.name()));
                let keys: BTreeSet<Key> = keys.map(|(key, _)| key).collect();
                for key in keys {
                    self.repair_key(&key, &mut repaired, by)?;
                }
                self.repair_events(&mut repaired, by)?;
            }
        }
        Ok(repaired)
    }

    fn repair_key(
        &self,
        key: &Key,
        repaired: &mut Repaired,
        by: Instant,
    ) -> Result<(), StoreError> {
        loop {
            let (found, revision) = self.page(&RangeRequest::below(self.layout.key(key)), by)?;
            let records = KeyRecords::read(&self.layout, &found);
            let gone = |name: &String| !records.alive.contains_key(name);
            if records
                .leases
                .iter()
                .any(|one| one.is_damaged && gone(&one.name))
            {
                self.end_some(&BTreeSet::from([key.clone()]), by)
                    .map_err(only_store)?;
                repaired.ended(key);
                continue;
            }
            let (success, done) = self.repairs_of(key, &records, by)?;
            if success.is_empty() {
                let damaged = records.leases.iter().filter(|one| one.is_damaged);
                for one in damaged {
                    repaired.left_lease(key, one.token, Ends::ByItself);
                }
                return Ok(());
            }
            let unchanged = [
                Compare::unchanged(self.layout.guard(key), records.guard),
                Compare::nothing_new_below(self.layout.key(key), revision),
            ];
            let request = TxnRequest::only_if(unchanged, success);
            if self.txn(&request, by)?.succeeded {
                repaired.done.extend(done);
            } else if remaining(by).is_zero() {
                return Err(starved(Some(key)));
            }
        }
    }

    /// What puts a key right, and what that is called.
    fn repairs_of(
        &self,
        key: &Key,
        records: &KeyRecords,
        by: Instant,
    ) -> Result<(Vec<RequestOp>, Vec<String>), StoreError> {
        let layout = &self.layout;
        let (mut names, mut done) = (Vec::new(), Vec::new());
        for name in records.damaged_tickets.iter().take(AT_ONCE / 4) {
            names.push(layout.ticket(key, name));
            names.extend(self.waits_named(key, name, by)?);
            done.push(format!("{key}: removed a ticket that can't be understood"));
        }
        let held = |name: &&String| records.leases.iter().any(|one| one.name == **name);
        for name in records
            .alive
            .keys()
            .filter(|name| !held(name))
            .take(AT_ONCE / 4)
        {
            names.push(layout.life(key, name));
            done.push(format!(
                "{key}: removed the life of a lease that is not there"
            ));
        }
        let is_used = !records.leases.is_empty() || !records.tickets.is_empty();
        let is_whole = records.guard > 0 && records.request.is_some();
        names.truncate(AT_ONCE);
        let mut success: Vec<RequestOp> = names.into_iter().map(RequestOp::delete).collect();
        if is_used && !is_whole {
            done.push(format!(
                "{key}: wrote its guard, which was missing or damaged"
            ));
        }
        if is_used && (!is_whole || !success.is_empty()) {
            let guard = KeyGuard { request: request() };
            success.push(RequestOp::put(layout.guard(key), json(&guard)));
        } else if !is_used && records.guard > 0 {
            done.push(format!(
                "{key}: removed the guard of a key that is not used"
            ));
            success.push(RequestOp::delete(layout.guard(key)));
        }
        Ok((success, done))
    }

    /// The indexes of a ticket whose owner can't be known.
    fn waits_named(&self, key: &Key, name: &str, by: Instant) -> Result<Vec<String>, StoreError> {
        let all = RangeRequest::below(self.layout.waits()).keys_only();
        let (found, _) = self.pages(all, 0, by)?;
        let end = format!("/{}/{name}", encoded(key.as_str()));
        let names = found.iter().map(|kv| kv.name().to_owned());
        Ok(names.filter(|name| name.ends_with(&end)).collect())
    }
}
