//! A waiter that stays away for longer than its grace period is no longer shown and counted.

use std::time::Duration;

use tenure_core::{Acquired, Key, Reap, Store, Withdrawal};

use crate::ask::Ask;
use crate::clock::FakeClock;
use crate::limit::soon;

/// The grace period of every store, unless it is set.
const GRACE: Duration = Duration::from_secs(600);

/// How many tickets of a key are shown, and by every read alike.
fn shown(store: &dyn Store, key: &Key) -> usize {
    let one = store.inspect(key, soon()).unwrap().queue.len();
    let all = store.list(soon()).unwrap();
    let listed = all.iter().find(|snapshot| snapshot.key == *key);
    assert_eq!(one, listed.map_or(0, |snapshot| snapshot.queue.len()));
    one
}

/// A waiter parks. Within its grace period its ticket is shown; after it, no read shows it, although no claim has queued
/// since, and a cleanup removes it. `store` and `waiter` are the same one, opened twice with this clock.
pub fn reads_leave_out_a_waiter_after_its_grace(
    store: &dyn Store,
    waiter: &dyn Store,
    key: &Key,
    clock: &FakeClock,
) {
    let held = Ask::new(key, "first").ttl(GRACE * 4).granted(store);
    let interrupted = Ask::new(key, "interrupted").waiting();
    let Acquired::Busy(_) = interrupted.once(waiter) else {
        panic!("the second claim was not queued");
    };
    interrupted.withdraw(waiter, Withdrawal::Park);
    clock.pass(GRACE.saturating_sub(Duration::from_secs(1)));
    assert_eq!(shown(store, key), 1, "it may come back");
    clock.pass(Duration::from_secs(2));
    assert_eq!(shown(store, key), 0, "its grace period has ended");
    let _freed = store.release(&held.grant(), soon()).unwrap();
    assert_eq!(shown(store, key), 0);
    let all = store.list(soon()).unwrap();
    assert!(!all.iter().any(|snapshot| snapshot.key == *key), "{all:?}");
    store.reap(Reap::Free, soon()).unwrap();
    let known = store.inspect(key, soon()).unwrap();
    assert!(!known.is_on_record(), "{known:?}");
}
