//! G8, G10: the place of a waiter that was killed.

use tenure_core::{Acquired, Released, Store, Ticket};

use crate::ask::Ask;
use crate::limit::soon;
use crate::run::Run;
use crate::subject::Subject;

fn give_back(store: &dyn Store, key: &tenure_core::Key) {
    let (lease, _) = store.inspect(key, soon()).unwrap().leases.remove(0);
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
}

/// The first in the queue is killed: others are served meanwhile. It comes back in its name: it
/// has its old place, before one that came after it.
pub fn a_waiter_that_was_cut_off_keeps_its_place(subject: &Subject) {
    let run = Run::begin(subject, "a_waiter_that_was_cut_off_keeps_its_place");
    let store = run.open();
    let key = subject.key();
    let rounds = run.times(3);
    for _ in 0..rounds {
        Ask::new(key, "first").granted(&*store);
        let (mut unlucky, mut patient) = (run.puppet(), run.puppet());
        let (place, _) = unlucky.queued(&Ask::new(key, "unlucky"));
        let _ = patient.queued(&Ask::new(key, "patient"));
        unlucky.kill();
        give_back(&*store, key);
        let _ = patient.served();

        let (mut newcomer, mut again) = (run.puppet(), run.puppet());
        let _ = newcomer.queued_to_pass(&Ask::new(key, "newcomer"));
        let back = again.queued_to_pass(&Ask::new(key, "unlucky"));
        assert_eq!(back, (place, true), "the old ticket, and told so");
        give_back(&*store, key);
        assert!(again.served() < newcomer.served());
    }
    run.finish(rounds * 4);
}

/// The same for one that was killed while another stood before it: it comes back at once, and the
/// queue has not moved.
pub fn a_waiter_that_was_cut_off_in_the_middle_keeps_its_place(subject: &Subject) {
    let run = Run::begin(
        subject,
        "a_waiter_that_was_cut_off_in_the_middle_keeps_its_place",
    );
    let store = run.open();
    let key = subject.key();
    Ask::new(key, "first").granted(&*store);
    let (mut before, mut unlucky, mut behind) = (run.puppet(), run.puppet(), run.puppet());
    let _ = before.queued_to_pass(&Ask::new(key, "before"));
    let (place, _) = unlucky.queued(&Ask::new(key, "unlucky"));
    let _ = behind.queued_to_pass(&Ask::new(key, "behind"));
    unlucky.kill();

    let mut again = run.puppet();
    let back = again.queued_to_pass(&Ask::new(key, "unlucky"));
    assert_eq!(back, (place, true), "the old ticket, and told so");
    give_back(&*store, key);
    let (first, second, third) = (before.served(), again.served(), behind.served());
    assert!(first < second && second < third);
    run.finish(4);
}

/// A waiter that says that it will come back keeps its place too, and holds nobody up although its
/// process lives on.
pub fn a_waiter_that_steps_aside_keeps_its_place(subject: &Subject) {
    let run = Run::begin(subject, "a_waiter_that_steps_aside_keeps_its_place");
    let (store, aside) = (run.open(), run.open());
    let key = subject.key();
    Ask::new(key, "first").granted(&*store);
    let Acquired::Busy(busy) = Ask::new(key, "unlucky").waiting().once(&*aside) else {
        run.fail("the second one need not wait");
    };
    let place = busy.position.unwrap().ticket;
    let mut patient = run.puppet();
    let _ = patient.queued(&Ask::new(key, "patient"));
    aside.park(key, place, soon()).unwrap();
    give_back(&*store, key);
    let _ = patient.served();

    let (mut newcomer, mut again) = (run.puppet(), run.puppet());
    let _ = newcomer.queued_to_pass(&Ask::new(key, "newcomer"));
    let back = again.queued_to_pass(&Ask::new(key, "unlucky"));
    assert_eq!(back, (place, true), "the old ticket, and told so");
    give_back(&*store, key);
    assert!(again.served() < newcomer.served());
    run.finish(4);
}

/// A name that was made up means nobody: whoever has it too does not get the place.
pub fn a_made_up_name_does_not_get_its_place_back(subject: &Subject) {
    let run = Run::begin(subject, "a_made_up_name_does_not_get_its_place_back");
    let store = run.open();
    let key = subject.key();
    let mut places: Vec<Ticket> = vec![];
    Ask::new(key, "first").granted(&*store);
    let mut unlucky = run.puppet();
    places.push(unlucky.queued(&Ask::new(key, "pid-1").unnamed()).0);
    unlucky.kill();
    // Neither by the same made-up name, nor by one that was chosen and happens to be the same.
    for ask in [Ask::new(key, "pid-1").unnamed(), Ask::new(key, "pid-1")] {
        let mut again = run.puppet();
        let (place, resumed) = again.queued(&ask);
        assert!(!resumed && !places.contains(&place), "{ask:?}");
        places.push(place);
        again.kill();
    }
    run.finish(1);
}
