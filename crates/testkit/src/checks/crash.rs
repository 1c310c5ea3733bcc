//! G10: a crash at any step leaves a usable store.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{Acquired, HolderId, Key, Lease, Reap, Store, Withdrawal};

use crate::ask::Ask;
use crate::chance::Chance;
use crate::limit::LIMIT;
use crate::limit::soon;
use crate::process;
use crate::run::Run;
use crate::subject::Subject;
use crate::waiting;
use crate::worker::Task;

/// The longest time from the start of a process to its crash.
const LIFETIME: Duration = Duration::from_millis(30);

/// How often the whole history is checked: it grows with every crash.
const LOOK_BACK_EVERY: u64 = 30;

/// The job of a process that will be killed: every verb, in random order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Crash {
    seed: u64,
}

impl Crash {
    /// In the process.
    pub(crate) fn go_on_until_killed(&self, subject: &Subject, place: &Path) {
        // Before the store is opened, so that the kill may come during that.
        process::report("ready");
        let mut chance = Chance::from_seed(self.seed);
        // Two threads, so that one can wait for a key that the other holds.
        let mut actors = ["one", "two"].map(|name| Actor {
            store: subject.open(place),
            name,
            leases: vec![],
            waits: vec![],
        });
        loop {
            let actor = &mut actors[chance.index(2)];
            let key = &subject.all_keys()[chance.index(subject.all_keys().len())];
            actor.act(&mut chance, key);
        }
    }
}

/// One thread that runs random verbs.
struct Actor {
    store: Box<dyn Store>,
    name: &'static str,
    leases: Vec<Lease>,
    waits: Vec<Ask>,
}

impl Actor {
    fn act(&mut self, chance: &mut Chance, key: &Key) {
        match chance.below(12) {
            0..4 => self.acquire(chance, key),
            4..7 => {
                if let Some(lease) = self.leases.pop() {
                    let _ = self.store.release(&lease.grant(), soon()).unwrap();
                }
            }
            7..9 => {
                if let Some(lease) = self.leases.last() {
                    let _ = self.store.renew(&lease.grant(), lease.ttl, soon()).unwrap();
                }
            }
            9 => {
                if let Some(ask) = self.waits.pop() {
                    ask.withdraw(&*self.store, Withdrawal::Leave);
                }
            }
            10 => {
                let by = HolderId::parse("admin").unwrap();
                let _ = self
                    .store
                    .force(key, None, &by, Some("at random"), soon())
                    .unwrap();
            }
            _ => {
                self.store.reap(Reap::Free, soon()).unwrap();
            }
        }
    }

    fn acquire(&mut self, chance: &mut Chance, key: &Key) {
        let mut ask = Ask::new(key, self.name);
        ask.named = chance.one_in(2);
        if chance.one_in(4) {
            ask = ask.ttl(Duration::from_millis(1));
        }
        if chance.one_in(2) {
            ask = ask.waiting();
        }
        match ask.once(&*self.store) {
            Acquired::Granted(granted) => self.leases.push(granted.lease),
            Acquired::Busy(busy) => self.waits.extend(busy.position.map(|_| ask)),
            Acquired::Deadlock(_) | Acquired::Cancelled => {}
        }
    }
}

/// Processes that use every verb are killed at random moments. After each kill, the next process can use the
/// store and gets every key.
pub fn a_crash_at_any_step_leaves_a_usable_store(subject: &Subject) {
    let mut run = Run::begin(subject, "a_crash_at_any_step_leaves_a_usable_store");
    let crashes = run.times(150);
    for crash in 1..=crashes {
        let seed = run.chance.next();
        let mut process = run.start(Task::Crash(Crash { seed }));
        assert_eq!(process.report(), "ready");
        std::thread::sleep(run.chance.time(LIFETIME));
        process.kill();
        let store = run.open();
        for key in subject.all_keys() {
            let next = Ask::new(key, "next").waiting_at_most(LIMIT);
            let lease = waiting::acquire(&*store, &next, |_| ()).lease();
            let (found, _) = store.inspect(key, soon()).unwrap().leases.remove(0);
            assert_eq!(found.grant(), lease.grant());
            let _ = store.release(&lease.grant(), soon()).unwrap();
        }
        if let Err(what) = subject.check_soundness(&run.store_place()) {
            run.fail(&format!("after crash {crash}: {what}"));
        }
        let left = store.list(soon()).unwrap();
        if let Some(known) = left.iter().find(|known| !known.leases.is_empty()) {
            run.fail(&format!("after crash {crash}: still held: {known:?}"));
        }
        if crash % LOOK_BACK_EVERY == 0 {
            run.history(&*store);
        }
    }
    let events = run.history(&*run.open());
    let kind = tenure_core::EventKind::Granted;
    let grants = events.iter().filter(|event| event.kind == kind).count();
    run.finish(u64::try_from(grants).unwrap());
}
