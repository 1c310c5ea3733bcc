//! G1, G8, G9, G10 for claims on several keys: all of them are granted together, or none.

use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::{Acquired, ErrorKind, Grant, Key, Lease, Released, Store};

use crate::ask::Ask;
use crate::chance::Chance;
use crate::limit::{LIMIT, soon};
use crate::puppet::{Answer, Order, Puppet};
use crate::run::{Run, until};
use crate::subject::Subject;
use crate::waiting::{self, Outcome};

/// Three keys of a store that grants several at once. One that does not must say so.
fn keys(run: &Run<'_>) -> Option<[Key; 3]> {
    let store = run.open();
    let [a, b, c] = ["together-a", "together-b", "together-c"].map(|key| Key::parse(key).unwrap());
    if store.capabilities().several {
        return Some([a, b, c]);
    }
    let mut claims = Ask::new(run.subject.key(), "a").claims(&*store);
    claims.extend(claims.clone());
    let refused = store.acquire_all(&claims, soon()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unsupported, "{refused}");
    run.needs("claims on several keys", false);
    None
}

fn held(store: &dyn Store, key: &Key) -> Vec<Lease> {
    let leases = store.inspect(key, soon()).unwrap().leases;
    let live = leases
        .into_iter()
        .filter(|(_, verdict)| verdict.ended().is_none());
    live.map(|(lease, _)| lease).collect()
}

fn holders(store: &dyn Store, key: &Key) -> Vec<String> {
    let held = held(store, key);
    held.iter()
        .map(|lease| lease.holder.id.to_string())
        .collect()
}

fn release(store: &dyn Store, keys: &[&Key]) {
    let leases = keys.iter().flat_map(|key| held(store, key));
    let grants: Vec<Grant> = leases.map(|lease| lease.grant()).collect();
    for released in store.release_all(&grants, soon()).unwrap() {
        assert!(matches!(released, Released::Freed(_)), "{released:?}");
    }
}

/// A claim whose keys are not all free holds none of them, but later claims on the free ones wait behind it. A killed
/// holder is taken over on all of its keys at once.
pub fn several_keys_are_granted_together_or_not_at_all(subject: &Subject) {
    let run = Run::begin(subject, "several_keys_are_granted_together_or_not_at_all");
    let Some([a, b, c]) = keys(&run) else { return };
    let store = run.open();
    let [mut one, mut all, mut late] = std::array::from_fn(|_| run.puppet());
    let first = one.granted(&Ask::new(&b, "one"));
    let refused = all.does(&Order::Acquire(Ask::all(&[&a, &b, &c], "all")));
    assert_eq!(refused, Answer::Busy);
    for key in [&a, &c] {
        assert!(held(&*store, key).is_empty(), "{key} is held");
        let _ = late.granted(&Ask::new(key, "late"));
        release(&*store, &[key]);
    }
    let _ = all.queued(&Ask::all(&[&a, &b, &c], "all"));
    for key in [&a, &c] {
        assert!(held(&*store, key).is_empty(), "{key} is held");
        let busy = late.does(&Order::Acquire(Ask::new(key, "late")));
        assert_eq!(busy, Answer::Busy, "a later claim passed");
    }
    let _ = late.queued(&Ask::all(&[&c, &a], "late"));
    release(&*store, &[&b]);
    let _ = all.served();
    for key in [&a, &b, &c] {
        assert_eq!(holders(&*store, key), ["all"]);
        let waits = store.inspect(key, soon()).unwrap().queue;
        assert!(
            waits
                .iter()
                .all(|waiter| waiter.holder.id.as_str() != "all")
        );
    }
    let taken: Vec<_> = [&a, &b, &c].map(|key| held(&*store, key)[0].token).into();
    assert!(first < taken[1], "{first} {taken:?}");
    // Its death wakes the next one, which takes over two of the keys in one step.
    all.process().kill_and_leave();
    let _ = late.served();
    for (key, before) in [(&a, taken[0]), (&c, taken[2])] {
        assert_eq!(holders(&*store, key), ["late"]);
        assert!(before < held(&*store, key)[0].token);
    }
    release(&*store, &[&a, &c]);
    let both = Ask::all(&[&b, &a], "next").granted_all(&*store);
    assert!(taken[1] < both[0].token);
    run.finish(6);
}

/// A waiter that is killed passes its turn in every queue, and so does one that gives up.
pub fn a_killed_waiter_for_several_keys_holds_up_none_of_them(subject: &Subject) {
    let run = Run::begin(
        subject,
        "a_killed_waiter_for_several_keys_holds_up_none_of_them",
    );
    let Some([a, b, _]) = keys(&run) else { return };
    let store = run.open();
    let mut holder = run.puppet();
    let _ = holder.granted(&Ask::new(&a, "holder"));
    let mut doomed = run.puppet();
    let _ = doomed.queued(&Ask::all(&[&a, &b], "doomed"));
    let mut next = run.puppet();
    let _ = next.queued(&Ask::new(&b, "next"));
    doomed.process().kill_and_leave();
    let _ = next.served();
    release(&*store, &[&b]);
    // One that gives up leaves no ticket.
    let brief = Ask::all(&[&b, &a], "brief").waiting_at_most(std::time::Duration::from_millis(50));
    let mut gives_up = run.puppet();
    gives_up.order(&Order::Acquire(brief));
    assert!(matches!(gives_up.answer(), Answer::Queued { .. }));
    assert_eq!(gives_up.answer(), Answer::Busy);
    for key in [&a, &b] {
        until(&*store, key, "the tickets to be gone", |known| {
            let mut queue = known.queue.iter();
            queue.all(|waiter| waiter.holder.id.as_str() != "brief")
        });
    }
    let _ = next.granted(&Ask::new(&b, "next"));
    // The interrupted wait goes on in its place, in both queues.
    let mut again = run.puppet();
    let (_, resumed) = again.queued(&Ask::all(&[&a, &b], "doomed"));
    assert!(resumed, "the tickets were not resumed");
    release(&*store, &[&a, &b]);
    let _ = again.served();
    assert_eq!(holders(&*store, &b), ["doomed"]);
    run.finish(4);
}

/// A holder that asks for more goes before a waiter that needs what it holds: that waiter can't proceed first.
pub fn a_holder_passes_a_waiter_that_waits_for_it(subject: &Subject) {
    let run = Run::begin(subject, "a_holder_passes_a_waiter_that_waits_for_it");
    let Some([a, b, c]) = keys(&run) else { return };
    let store = run.open();
    let [mut holder, mut waits, mut behind, mut other] = std::array::from_fn(|_| run.puppet());
    let _ = holder.granted(&Ask::new(&a, "holder").detached());
    let _ = waits.queued(&Ask::all(&[&a, &b], "waits"));
    // Through another waiter, which waits for the first one only.
    let _ = behind.queued(&Ask::all(&[&b, &c], "behind"));
    let _ = holder.granted(&Ask::new(&b, "holder").detached());
    let _ = holder.granted(&Ask::new(&c, "holder").detached());
    release(&*store, &[&b, &c]);
    // Another claim does not.
    let busy = other.does(&Order::Acquire(Ask::new(&b, "other")));
    assert_eq!(busy, Answer::Busy);
    // A key that it waits for, behind that waiter, is not handed to the waiter: the holder is woken.
    release(&*store, &[&a]);
    let _ = waits.served();
    behind.process().kill_and_leave();
    let mut third = run.puppet();
    let _ = third.granted(&Ask::new(&c, "third"));
    let mut both = run.puppet();
    let _ = both.queued(&Ask::all(&[&c, &a], "both"));
    let _ = waits.queued(&Ask::new(&c, "waits"));
    release(&*store, &[&c]);
    let _ = waits.served();
    assert_eq!(holders(&*store, &c), ["waits"]);
    release(&*store, &[&a, &b, &c]);
    let _ = both.served();
    run.finish(6);
}

/// Six processes claim random sets of three keys, in any order, and rely on wake-ups: all of them are served.
pub fn processes_that_want_several_keys_never_block_each_other(subject: &Subject) {
    let mut run = Run::begin(
        subject,
        "processes_that_want_several_keys_never_block_each_other",
    );
    let Some(keys) = keys(&run) else { return };
    let rounds = run.times(20);
    let mut puppets: Vec<Puppet> = (0..6).map(|_| run.puppet()).collect();
    for _ in 0..rounds {
        for (number, puppet) in puppets.iter_mut().enumerate() {
            let wanted = some_of(&keys, &mut run.chance);
            let ask = Ask::all(&wanted, &format!("process-{number}"));
            puppet.order(&Order::Pass(ask.waiting()));
        }
        for puppet in &puppets {
            let _ = match puppet.answer() {
                Answer::Queued { .. } => puppet.served(),
                answer => answer.token(),
            };
        }
    }
    run.finish(rounds * 6);
}

/// The same for threads, each with a handle of its own. A flag for each key is the witness.
pub fn threads_that_want_several_keys_never_block_each_other(subject: &Subject) {
    let run = Run::begin(
        subject,
        "threads_that_want_several_keys_never_block_each_other",
    );
    let Some(keys) = keys(&run) else { return };
    let taken: [AtomicBool; 3] = Default::default();
    let rounds = run.times(50);
    std::thread::scope(|scope| {
        for number in 0..6 {
            let (run, keys, taken) = (&run, &keys, &taken);
            scope.spawn(move || {
                let store = run.open();
                let mut chance = Chance::from_seed(number);
                for _ in 0..rounds {
                    let wanted = some_of(keys, &mut chance);
                    let ask = Ask::all(&wanted, &format!("thread-{number}"));
                    let outcome = waiting::acquire(&*store, &ask.waiting_at_most(LIMIT), |_| ());
                    let Outcome::Granted { lease, others, .. } = outcome else {
                        panic!("{outcome:?}");
                    };
                    let flags = keys.iter().zip(taken);
                    let flags: Vec<_> = flags.filter(|(key, _)| wanted.contains(key)).collect();
                    for (key, flag) in &flags {
                        assert!(!flag.swap(true, Ordering::SeqCst), "{key} has two holders");
                    }
                    std::thread::yield_now();
                    for (_, flag) in &flags {
                        flag.store(false, Ordering::SeqCst);
                    }
                    let all = std::iter::once(&lease).chain(&others);
                    let grants: Vec<Grant> = all.map(Lease::grant).collect();
                    for released in store.release_all(&grants, soon()).unwrap() {
                        assert!(matches!(released, Released::Freed(_)), "{released:?}");
                    }
                }
            });
        }
    });
    run.finish(rounds * 6);
}

/// One to three keys, in any order.
fn some_of<'a>(keys: &'a [Key; 3], chance: &mut Chance) -> Vec<&'a Key> {
    let mut left: Vec<&Key> = keys.iter().collect();
    let mut wanted = Vec::new();
    for _ in 0..=chance.index(3) {
        wanted.push(left.swap_remove(chance.index(left.len())));
    }
    wanted
}

impl Ask {
    /// Asks once, and must be granted all keys.
    pub fn granted_all(&self, store: &dyn Store) -> Vec<Lease> {
        match store.acquire_all(&self.claims(store), soon()).unwrap() {
            Acquired::Granted(granted) => granted.into_iter().map(|it| it.lease).collect(),
            other => panic!("all should be granted to {}: {other:?}", self.holder),
        }
    }
}
