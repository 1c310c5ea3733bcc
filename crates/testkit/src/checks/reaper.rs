//! G3, G5: reapers end each expired or dead lease exactly once, and no other lease.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{
    Acquired, Clock, EventKind, Granted, Lease, Moment, Reap, Reason, Released, Renewed, Store,
    Token,
};
use tenure_host::HostClock;

use crate::ask::Ask;
use crate::history;
use crate::limit::soon;
use crate::process::{self, Process};
use crate::run::{Run, until};
use crate::scale::scale;
use crate::subject::Subject;
use crate::worker::Task;

/// The number of reaping processes.
const REAPERS: usize = 4;

/// The job of a reaping process: it ends expired and dead leases until a file appears, then reports which.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reaping {
    until: PathBuf,
}

impl Reaping {
    /// In the process.
    pub(crate) fn reap(&self, store: &dyn Store) {
        process::report("ready");
        let mut tokens: Vec<Token> = vec![];
        while !self.until.exists() {
            let reaped = store.reap(Reap::Free, soon()).unwrap();
            tokens.extend(reaped.iter().map(|reaped| reaped.lease.token));
        }
        process::report(&serde_json::to_string(&tokens).unwrap());
    }
}

/// Several reaping processes.
struct Reapers {
    processes: Vec<Process>,
    until: PathBuf,
}

impl Reapers {
    fn start(run: &Run<'_>) -> Self {
        let until = run.place().join("enough");
        let task = Task::Reap(Reaping {
            until: until.clone(),
        });
        let processes: Vec<Process> = (0..REAPERS).map(|_| run.start(task.clone())).collect();
        for process in &processes {
            assert_eq!(process.report(), "ready");
        }
        Self { processes, until }
    }

    /// The leases that they ended.
    fn stop(mut self) -> Vec<Vec<Token>> {
        std::fs::write(&self.until, "").unwrap();
        let freed = self
            .processes
            .iter()
            .map(|process| serde_json::from_str(&process.report()).unwrap())
            .collect();
        for process in &mut self.processes {
            process.wait_for_end();
        }
        freed
    }
}

/// A holder that records how long its lease must last at least.
struct Renewer<'a> {
    store: &'a dyn Store,
    clock: HostClock,
    ask: Ask,
    lease: Lease,
    /// When the last successful renewal began.
    asked: Moment,
    granted: u64,
    lost: BTreeSet<Token>,
}

impl<'a> Renewer<'a> {
    fn new(store: &'a dyn Store, ask: Ask) -> Self {
        let clock = HostClock::new();
        let asked = clock.now();
        Self {
            lease: ask.granted(store),
            store,
            clock,
            ask,
            asked,
            granted: 1,
            lost: BTreeSet::new(),
        }
    }

    /// Renews. The lease may be lost only if it had expired; then the holder acquires the key again.
    fn renew(&mut self, run: &Run<'_>) {
        let asked = self.clock.now();
        match self
            .store
            .renew(&self.lease.grant(), self.ask.ttl, soon())
            .unwrap()
        {
            Renewed::Extended(_) => self.asked = asked,
            Renewed::Lost(by) => {
                let now = self.clock.now().ticks;
                let since = now.saturating_sub(self.asked.ticks);
                if since < self.ask.ttl {
                    run.fail(&format!(
                        "a lease of {:?} was taken away {since:?} after it was renewed; now {by:?}",
                        self.ask.ttl
                    ));
                }
                assert!(self.lost.insert(self.lease.token));
                self.acquire(run);
            }
        }
    }

    fn acquire(&mut self, run: &Run<'_>) {
        self.asked = self.clock.now();
        match self.ask.once(self.store) {
            Acquired::Granted(Granted {
                lease,
                reason: Reason::AcquiredNew,
            }) => self.lease = lease,
            other => run.fail(&format!("after the reaping there was {other:?}")),
        }
        self.granted += 1;
    }
}

fn can_run(run: &Run<'_>) -> bool {
    run.needs("leases that expire", run.capabilities().expiry)
}

/// While several processes reap without pause, a lease that is renewed in time stays.
pub fn a_reaper_does_not_end_a_renewed_lease(subject: &Subject) {
    let run = Run::begin(subject, "a_reaper_does_not_end_a_renewed_lease");
    if !can_run(&run) {
        return;
    }
    let store = run.open();
    let reapers = Reapers::start(&run);
    let ask = Ask::new(subject.key(), "holder").ttl(Duration::from_secs(1));
    let mut holder = Renewer::new(&*store, ask);
    for _ in 0..run.times(30) {
        // Ten renewals in one time to live.
        std::thread::sleep(Duration::from_millis(100));
        holder.renew(&run);
    }
    let freed: BTreeSet<Token> = reapers.stop().into_iter().flatten().collect();
    // Empty, unless the machine did not let the holder run for a second.
    assert_eq!(freed, holder.lost);
    let grants = holder.granted;
    run.finish(grants);
}

/// While several processes reap without pause, a holder renews sometimes in time and sometimes too late.
/// Exactly one reaper ends each expired lease, and the history records it once.
pub fn an_expired_lease_is_reaped_once(subject: &Subject) {
    let mut run = Run::begin(subject, "an_expired_lease_is_reaped_once");
    if !can_run(&run) {
        return;
    }
    let store = run.open();
    let reapers = Reapers::start(&run);
    let ttl = subject.brief_ttl();
    let mut holder = Renewer::new(&*store, Ask::new(subject.key(), "holder").ttl(ttl));
    until(
        &*store,
        subject.key(),
        "the first lease to be reaped",
        |known| known.leases.is_empty(),
    );
    // A store with a long time to live has fewer rounds.
    let most = u64::try_from(12_000 / ttl.as_millis()).unwrap() * scale();
    for _ in 0..run.times(300).min(most) {
        std::thread::sleep(run.chance.time(ttl * 2));
        holder.renew(&run);
        if run.chance.one_in(10) {
            // A release races with a reaper: one of them ends the lease.
            let token = holder.lease.token;
            match store.release(&holder.lease.grant(), soon()).unwrap() {
                Released::Freed(_) => {}
                Released::AlreadyGone(_) => assert!(holder.lost.insert(token)),
            }
            holder.acquire(&run);
        }
    }
    let _ = store.release(&holder.lease.grant(), soon()).unwrap();
    let (grants, mut lost) = (holder.granted, std::mem::take(&mut holder.lost));
    let freed: Vec<Token> = reapers.stop().into_iter().flatten().collect();
    let once: BTreeSet<Token> = freed.iter().copied().collect();
    assert_eq!(once.len(), freed.len(), "a lease was reaped twice");
    assert!(!once.is_empty(), "no lease expired: nothing was checked");
    // The last lease may have expired before it was released.
    lost.extend(
        once.contains(&holder.lease.token)
            .then_some(holder.lease.token),
    );
    assert_eq!(once, lost);
    let events = run.history(&*store);
    let recorded = events
        .iter()
        .filter(|event| event.kind == EventKind::Expired)
        .count();
    assert_eq!(recorded, once.len());
    assert_eq!(
        history::tokens(&events, subject.key(), EventKind::Expired),
        once
    );
    run.finish(grants);
}
