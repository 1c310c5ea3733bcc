//! G9: waiters are woken, not left polling.
//!
//! These waiters poll once an hour. Anything that ends their wait earlier is a wake-up.

use std::time::Duration;

use tenure_core::{HolderId, Key, Store};

use crate::ask::Ask;
use crate::limit::soon;
use crate::puppet::{Answer, Order, Puppet};
use crate::run::{Run, until};
use crate::subject::Subject;

fn waiter(run: &Run<'_>, ask: &Ask) -> Puppet {
    let mut waiter = run.puppet();
    let _ = waiter.queued(ask);
    waiter
}

fn holder(run: &Run<'_>, key: &Key) -> Puppet {
    let mut holder = run.puppet();
    let _ = holder.granted(&Ask::new(key, "holder"));
    holder
}

fn give_back(store: &dyn Store, key: &Key) {
    let (lease, _) = store.inspect(key, soon()).unwrap().leases.remove(0);
    let _ = store.release(&lease.grant(), soon()).unwrap();
}

/// A wait ends when the holder releases, dies or loses its lease by force, and when the waiter ahead
/// withdraws or dies.
pub fn a_waiter_is_woken_by_release_death_and_withdrawal(subject: &Subject) {
    let run = Run::begin(subject, "a_waiter_is_woken_by_release_death_and_withdrawal");
    let store = run.open();
    let key = subject.key();
    let rounds = run.times(5);
    for _ in 0..rounds {
        // By release, from another process than the holder's.
        let first = holder(&run, key);
        let next = waiter(&run, &Ask::new(key, "next"));
        give_back(&*store, key);
        let _ = next.served();
        drop(first);
        // By death, with a zombie left.
        let mut holder = next;
        let next = waiter(&run, &Ask::new(key, "after"));
        holder.process().kill_and_leave();
        let _ = next.served();
        // By force.
        let last = waiter(&run, &Ask::new(key, "last"));
        let admin = HolderId::parse("admin").unwrap();
        let _ = store.force(key, None, &admin, None, soon()).unwrap();
        let _ = last.served();
        last.kill();
        the_one_before_leaves(&run, &*store, key);
        the_one_before_dies(&run, &*store, key);
    }
    run.finish(rounds * 8);
}

/// The waiter behind one that withdraws is woken, and then watches the holder, which dies.
fn the_one_before_leaves(run: &Run<'_>, store: &dyn Store, key: &Key) {
    let holder = holder(run, key);
    let mut hasty = run.puppet();
    let brief = Ask::new(key, "hasty").waiting_at_most(Duration::from_millis(100));
    hasty.order(&Order::Acquire(brief));
    let queued = hasty.answer();
    let Answer::Queued { ticket, .. } = queued else {
        run.fail(&format!("the withdrawing waiter got {queued:?}"));
    };
    let next = waiter(run, &Ask::new(key, "next"));
    assert_eq!(hasty.answer(), Answer::Busy);
    until(store, key, "the place to be given up", |known| {
        known.queue.iter().all(|waiter| waiter.ticket != ticket)
    });
    holder.kill();
    let _ = next.served();
    next.kill();
}

/// The first waiter is woken, but dies before it takes the key: the second one is woken.
fn the_one_before_dies(run: &Run<'_>, store: &dyn Store, key: &Key) {
    let holder = holder(run, key);
    let mut first = waiter(run, &Ask::new(key, "first"));
    let next = waiter(run, &Ask::new(key, "next"));
    first.process().stop();
    give_back(store, key);
    first.kill();
    let _ = next.served();
    next.kill();
    drop(holder);
}

/// An urgent claim overtakes a waiter. It is woken, but dies before it takes the key: the waiter is woken.
pub fn a_waiter_is_woken_by_the_death_of_a_waiter_that_overtook_it(subject: &Subject) {
    let run = Run::begin(
        subject,
        "a_waiter_is_woken_by_the_death_of_a_waiter_that_overtook_it",
    );
    let store = run.open();
    let key = subject.key();
    let holder = holder(&run, key);
    let early = waiter(&run, &Ask::new(key, "early"));
    let mut urgent = waiter(&run, &Ask::new(key, "urgent").priority(9));
    urgent.process().stop();
    give_back(&*store, key);
    urgent.kill();
    let _ = early.served();
    drop(holder);
    run.finish(2);
}

/// The waiter ahead was killed, and another one is ahead of both. The last waiter can only wait; asking again
/// and again would be polling.
pub fn a_waiter_behind_a_dead_waiter_does_not_poll(subject: &Subject) {
    let run = Run::begin(subject, "a_waiter_behind_a_dead_waiter_does_not_poll");
    let store = run.open();
    let key = subject.key();
    let holder = holder(&run, key);
    let first = waiter(&run, &Ask::new(key, "first"));
    let middle = waiter(&run, &Ask::new(key, "middle").unnamed());
    let last = waiter(&run, &Ask::new(key, "last"));
    middle.kill();
    // The second in which it must not poll.
    std::thread::sleep(Duration::from_secs(1));
    give_back(&*store, key);
    let _ = first.served();
    first.kill();
    let answer = last.answer();
    let Answer::Granted { rounds, .. } = answer else {
        run.fail(&format!("the last waiter got {answer:?}"));
    };
    // A few rounds are expected: for one or two deaths and a release.
    assert!(rounds < 50, "it asked {rounds} times within a second");
    drop(holder);
    run.finish(3);
}
