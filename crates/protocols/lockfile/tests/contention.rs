//! Claims that meet another program's lock or each other, for both protocols.

use std::sync::{Barrier, Mutex};
use std::time::Duration;

use protocols::{Protocol, Sleeper};
use tenure_core::cycle::Wait;
use tenure_core::{Acquired, Busy, Claim, Granted, Reason, Records, Store, Waited};
use tenure_lockfile::FileStore;
use tenure_lockfile::exclusive::Exclusive;
use tenure_lockfile::mkdir::Mkdir;
use tenure_testkit::{Ask, soon};

use crate::protocols;

const LONG: Duration = Duration::from_secs(60);

fn queued<P: Protocol>(store: &FileStore<P>) -> Box<Busy> {
    match Ask::new(store.key(), "waiter").waiting().once(store) {
        Acquired::Busy(busy) => busy,
        other => panic!("{other:?}"),
    }
}

/// The waiter is woken when the other program's process ends, or removes the lock.
fn woken_when<P: Protocol>(dies: bool, wanted: Reason) {
    let dir = tempfile::tempdir().unwrap();
    let store = P::open(dir.path());
    let mut tool = Sleeper::start();
    P::take_as_other_program(dir.path(), "tool", tool.id());
    let busy = queued(&store);
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| store.wait(&busy.watched(), LONG));
        // Most likely the waiter sleeps by now. If not, it must notice the change before it does.
        std::thread::sleep(Duration::from_millis(20));
        if dies {
            tool.end();
        } else {
            P::remove_as_other_program(dir.path());
        }
        assert_eq!(wait.join().unwrap().unwrap(), Waited::Changed);
    });
    let (_, reason) = Ask::new(store.key(), "waiter").granted_for(&store);
    assert_eq!(reason, wanted);
}

fn sleeps_behind_a_live_holder<P: Protocol>() {
    let dir = tempfile::tempdir().unwrap();
    let store = P::open(dir.path());
    P::take_as_other_program(dir.path(), "tool", std::process::id());
    let busy = queued(&store);
    // What the tests beside this one do may wake this process now and then: it looks again, and sleeps on.
    let slept = (0..20).any(|_| {
        let waited = store.wait(&busy.watched(), Duration::from_millis(90));
        waited.unwrap() == Waited::TimedOut
    });
    assert!(slept);
}

fn one_of_many_is_granted<P: Protocol>() {
    let dir = tempfile::tempdir().unwrap();
    let all = 12;
    let (begin, end) = (Barrier::new(all), Barrier::new(all));
    let granted = Mutex::new(vec![]);
    std::thread::scope(|scope| {
        for number in 0..all {
            let (begin, end, granted, dir) = (&begin, &end, &granted, dir.path());
            scope.spawn(move || {
                let store = P::open(dir);
                for round in 0..60 {
                    begin.wait();
                    let asked = Ask::new(store.key(), &format!("tool-{number}")).once(&store);
                    if let Acquired::Granted(Granted { lease, .. }) = &asked {
                        granted.lock().unwrap().push((round, lease.token));
                    }
                    end.wait();
                    if let Acquired::Granted(Granted { lease, .. }) = asked {
                        let _ = store.release(&lease.grant(), soon()).unwrap();
                    }
                }
            });
        }
    });
    let granted = granted.into_inner().unwrap();
    let rounds: Vec<_> = granted.iter().map(|(round, _)| *round).collect();
    assert_eq!(rounds, (0..60).collect::<Vec<_>>());
    assert!(granted.is_sorted_by(|(_, one), (_, next)| one < next));
}

/// A command that runs under the lock claims it again, in another name.
fn deadlock_names_the_holder<P: Protocol>() {
    let dir = tempfile::tempdir().unwrap();
    let store = P::open(dir.path());
    let lease = Ask::new(store.key(), "holder").granted(&store);
    let nested = Claim {
        within: vec![lease.token],
        ..Ask::new(store.key(), "nested").waiting().claim(&store)
    };
    let asked = store.acquire(&nested, soon()).unwrap();
    let Acquired::Deadlock(cycle) = asked else {
        panic!("{asked:?}");
    };
    assert_eq!(cycle.0, [Wait::on(&nested.holder.id, &lease)]);
    assert_eq!(cycle.0[0].holder.as_str(), "holder");
    assert!(store.inspect(store.key(), soon()).unwrap().queue.is_empty());
}

#[test]
fn a_deadlock_names_the_claimant_and_the_holder() {
    deadlock_names_the_holder::<Exclusive>();
    deadlock_names_the_holder::<Mkdir>();
}

#[test]
fn a_waiter_is_woken_when_another_program_removes_its_lock() {
    woken_when::<Exclusive>(false, Reason::AcquiredNew);
    woken_when::<Mkdir>(false, Reason::AcquiredNew);
}

#[test]
fn a_waiter_is_woken_when_another_program_dies() {
    woken_when::<Exclusive>(true, Reason::ClaimedDead);
    woken_when::<Mkdir>(true, Reason::ClaimedDead);
}

#[test]
fn a_waiter_sleeps_while_another_program_holds_the_lock() {
    sleeps_behind_a_live_holder::<Exclusive>();
    sleeps_behind_a_live_holder::<Mkdir>();
}

#[test]
fn exactly_one_of_many_claims_at_once_is_granted() {
    one_of_many_is_granted::<Exclusive>();
    one_of_many_is_granted::<Mkdir>();
}
