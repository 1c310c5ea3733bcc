//! The contract of a store that only one process sees: its threads contend, each with a handle of its
//! own. A handle that is dropped stands for a process that exits.

use std::sync::mpsc;
use std::time::Duration;

use tenure_core::{
    Acquired, EventKind, Evidence, Fenced, Forced, HolderId, Key, Mode, Reason, Released, Renewed,
    Store, Token, Withdrawal,
};

use crate::ask::{Ask, HOUR};
use crate::checks::modes;
use crate::checks::one_holder::one_of;
use crate::history;
use crate::limit::{LIMIT, soon};
use crate::run::{Run, until};
use crate::subject::Subject;
use crate::waiting::{self, Outcome};
use crate::witness::{self, Admission, Witness};

/// Eight threads acquire and release one key: the witness never sees two holders.
pub fn eight_threads_never_hold_one_key_together(subject: &Subject) {
    let run = Run::begin(subject, "eight_threads_never_hold_one_key_together");
    let place = run.place().join("witness");
    let times = run.times(250);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (run, place) = (&run, &place);
            scope.spawn(move || {
                let store = run.open();
                let mut witness = Witness::at(place);
                let ask = Ask::new(subject.key(), &format!("thread-{number}"));
                for _ in 0..times {
                    let lease =
                        waiting::acquire(&*store, &ask.clone().waiting_at_most(LIMIT), |_| ())
                            .lease();
                    witness.observe(lease.token, std::thread::yield_now);
                    let released = store.release(&lease.grant(), soon()).unwrap();
                    assert!(matches!(released, Released::Freed(_)), "{released:?}");
                }
            });
        }
    });
    assert_eq!(witness::violations(&place), Vec::<String>::new());
    assert_eq!(witness::out_of_order(&witness::tokens(&place)), None);
    let events = run.history(&*run.open());
    let granted = history::tokens(&events, subject.key(), EventKind::Granted);
    assert!(granted.len() as u64 >= times, "the history is too short");
    run.finish(8 * times);
}

/// Starts a thread that waits for the key, and sends its name once it has it.
fn enqueue<'scope, 'env: 'scope>(
    scope: &'scope std::thread::Scope<'scope, 'env>,
    run: &'env Run<'_>,
    ask: Ask,
    served: &mpsc::Sender<(Token, HolderId)>,
) {
    let (queued, is_queued) = mpsc::channel();
    let served = served.clone();
    scope.spawn(move || {
        let store = run.open();
        let ask = ask.waiting_at_most(LIMIT);
        let lease = waiting::acquire(&*store, &ask, |_| queued.send(()).unwrap()).lease();
        served.send((lease.token, lease.holder.id.clone())).unwrap();
        let _ = store.release(&lease.grant(), soon()).unwrap();
    });
    is_queued.recv_timeout(LIMIT).unwrap();
}

/// Threads are served in the order in which they arrived, and a more urgent one first.
pub fn threads_are_served_in_order(subject: &Subject) {
    let run = Run::begin(subject, "threads_are_served_in_order");
    let store = run.open();
    let key = subject.key();
    let first = Ask::new(key, "first").granted(&*store);
    let (served, order) = mpsc::channel();
    std::thread::scope(|scope| {
        for number in 0..5 {
            enqueue(scope, &run, Ask::new(key, &format!("{number}")), &served);
        }
        enqueue(scope, &run, Ask::new(key, "urgent").priority(9), &served);
        let _ = store.release(&first.grant(), soon()).unwrap();
    });
    let mut order: Vec<(Token, HolderId)> = order.try_iter().collect();
    order.sort();
    let names: Vec<&str> = order.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["urgent", "0", "1", "2", "3", "4"]);
    run.finish(7);
}

/// A waiter that does not poll gets the key after a release, a force and the end of the holder's handle.
pub fn a_thread_is_woken_by_release_force_and_the_end_of_a_handle(subject: &Subject) {
    let run = Run::begin(
        subject,
        "a_thread_is_woken_by_release_force_and_the_end_of_a_handle",
    );
    let (store, key) = (run.open(), subject.key());
    let admin = HolderId::parse("admin").unwrap();
    for how in 0..3 {
        let holder = run.open();
        let lease = Ask::new(key, "holder").granted(&*holder);
        let (served, order) = mpsc::channel();
        std::thread::scope(|scope| {
            enqueue(scope, &run, Ask::new(key, "waiter"), &served);
            match how {
                0 => {
                    let _ = holder.release(&lease.grant(), soon()).unwrap();
                }
                1 => {
                    let forced = store.force(key, None, &admin, None, soon()).unwrap();
                    assert!(matches!(forced, Forced::Freed(_)));
                }
                _ => drop(holder),
            }
        });
        assert!(order.recv_timeout(LIMIT).unwrap().0 > lease.token);
    }
    let events = run.history(&*store);
    let dead = events.iter().find(|event| event.kind == EventKind::Dead);
    assert!(
        matches!(
            dead.and_then(|event| event.evidence.as_ref()),
            Some(Evidence::SessionEnded { .. })
        ),
        "{dead:?}"
    );
    run.finish(6);
}

/// An expired lease is taken over, and every verb refuses its former holder.
pub fn a_thread_whose_lease_expired_is_refused(subject: &Subject) {
    let run = Run::begin(subject, "a_thread_whose_lease_expired_is_refused");
    let (store, other, key) = (run.open(), run.open(), subject.key());
    let old = Ask::new(key, "old")
        .ttl(Duration::from_millis(1))
        .granted(&*store);
    let next = Ask::new(key, "next").waiting_at_most(LIMIT);
    let Outcome::Granted { lease, reason, .. } = waiting::acquire(&*other, &next, |_| ()) else {
        run.fail("the next claim was not granted");
    };
    assert_eq!(reason, Reason::ClaimedExpired);
    assert!(lease.token > old.token);
    let renewed = store.renew(&old.grant(), HOUR, soon()).unwrap();
    assert!(matches!(&renewed, Renewed::Lost(now) if now[0].token == lease.token));
    let released = store.release(&old.grant(), soon()).unwrap();
    assert!(matches!(released, Released::AlreadyGone(_)));
    let fenced = store.fence(key, old.token, soon()).unwrap();
    assert!(matches!(fenced, Fenced::Stale(_)));
    let current = store.fence(key, lease.token, soon()).unwrap();
    assert!(matches!(current, Fenced::Current(_)));
    run.finish(2);
}

/// Two threads would wait for each other: the second wait is refused with a message that names both.
pub fn a_cycle_of_threads_is_refused(subject: &Subject) {
    let run = Run::begin(subject, "a_cycle_of_threads_is_refused");
    let (a, b) = (run.open(), run.open());
    let (x, y) = (&subject.all_keys()[0], &subject.all_keys()[1]);
    let _ = Ask::new(x, "a").granted(&*a);
    let _ = Ask::new(y, "b").granted(&*b);
    let waits = Ask::new(y, "a").waiting().once(&*a);
    assert!(matches!(waits, Acquired::Busy(_)), "{waits:?}");
    let refused = Ask::new(x, "b").waiting().once(&*b);
    let Acquired::Deadlock(cycle) = refused else {
        run.fail(&format!("b got {refused:?}"));
    };
    assert_eq!(
        cycle.to_string(),
        format!("b waits for {x} which a holds, a waits for {y} which b holds")
    );
    run.finish(2);
}

/// A waiter that parks its ticket lets the others pass, and can resume it later.
pub fn a_thread_that_parks_keeps_its_ticket(subject: &Subject) {
    let run = Run::begin(subject, "a_thread_that_parks_keeps_its_ticket");
    let key: &Key = subject.key();
    let (holder, early, late) = (run.open(), run.open(), run.open());
    let lease = Ask::new(key, "holder").granted(&*holder);
    let queue = |store: &dyn Store, name: &str| match Ask::new(key, name).waiting().once(store) {
        Acquired::Busy(busy) => busy.position.unwrap(),
        other => run.fail(&format!("{name} got {other:?}")),
    };
    let ticket = queue(&*early, "early").ticket;
    assert_eq!(queue(&*late, "late").ahead, 1);
    Ask::new(key, "early").withdraw(&*early, Withdrawal::Park);
    assert_eq!(queue(&*late, "late").ahead, 0, "its turn has passed");
    drop(early);
    let again = run.open();
    let resumed = queue(&*again, "early");
    assert!(resumed.resumed && resumed.ticket == ticket, "{resumed:?}");
    assert_eq!(resumed.ahead, 0);
    assert_eq!(queue(&*late, "late").ahead, 1);
    let _ = holder.release(&lease.grant(), soon()).unwrap();
    until(&*holder, key, "the queue to be there", |known| {
        known.queue.len() == 2
    });
    run.finish(1);
}

/// Eight threads claim a key in different modes, which the witness checks with the kernel's locks.
pub fn threads_share_a_key_only_as_their_modes_allow(subject: &Subject) {
    let run = Run::begin(subject, "threads_share_a_key_only_as_their_modes_allow");
    let times = run.times(100);
    for (index, mode) in modes::beside().iter().enumerate() {
        let place = run.place().join(format!("witness-{index}"));
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (run, place) = (&run, &place);
                scope.spawn(move || {
                    let store = run.open();
                    let witness = Witness::at(place);
                    let mut admission = Admission::at(place);
                    let ask = Ask::new(subject.key(), &format!("thread-{number}"));
                    for round in 0..times {
                        let exclusive = (round + number).is_multiple_of(4);
                        let mode = if exclusive {
                            Mode::Exclusive
                        } else {
                            one_of(mode, round * 3 + number)
                        };
                        let ask = ask.clone().mode(mode).waiting_at_most(LIMIT);
                        let lease = waiting::acquire(&*store, &ask, |_| ()).lease();
                        admission.observe(&witness, &lease, std::thread::yield_now);
                        let released = store.release(&lease.grant(), soon()).unwrap();
                        assert!(matches!(released, Released::Freed(_)), "{released:?}");
                    }
                });
            }
        });
        assert_eq!(witness::violations(&place), Vec::<String>::new());
    }
    run.finish(16 * times);
}
