//! G8, G10: a waiter that was killed or parked resumes its ticket.

use tenure_core::{Acquired, Released, Store, Ticket, Withdrawal};

use crate::ask::Ask;
use crate::limit::soon;
use crate::run::Run;
use crate::subject::Subject;

fn release(store: &dyn Store, key: &tenure_core::Key) {
    let (lease, _) = store.inspect(key, soon()).unwrap().leases.remove(0);
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
}

/// The holder "interrupted" asks again while the key is held: it has its old ticket, is told so, and is
/// served before a waiter that arrived before it came back.
fn it_resumes_its_ticket(run: &Run<'_>, store: &dyn Store, ticket: Ticket) {
    let key = run.subject.key();
    let (mut newcomer, mut again) = (run.puppet(), run.puppet());
    let _ = newcomer.queued_to_pass(&Ask::new(key, "newcomer"));
    let back = again.queued_to_pass(&Ask::new(key, "interrupted"));
    assert_eq!(
        back,
        (ticket, true),
        "it must resume its ticket, and be told so"
    );
    release(store, key);
    assert!(again.served() < newcomer.served());
}

/// The first waiter is killed, and the others are served. When it asks again under its name, it has its old
/// ticket and is served before a waiter that arrived after it.
pub fn a_killed_waiter_resumes_its_ticket(subject: &Subject) {
    let run = Run::begin(subject, "a_killed_waiter_resumes_its_ticket");
    let store = run.open();
    let key = subject.key();
    let rounds = run.times(3);
    for _ in 0..rounds {
        Ask::new(key, "first").granted(&*store);
        let (mut interrupted, mut patient) = (run.puppet(), run.puppet());
        let (ticket, _) = interrupted.queued(&Ask::new(key, "interrupted"));
        let _ = patient.queued(&Ask::new(key, "patient"));
        interrupted.kill();
        release(&*store, key);
        let _ = patient.served();

        it_resumes_its_ticket(&run, &*store, ticket);
    }
    run.finish(rounds * 4);
}

/// The same for a waiter that is killed while another one is ahead of it: it asks again at once, before the
/// queue has moved.
pub fn a_killed_waiter_in_the_middle_of_the_queue_resumes_its_ticket(subject: &Subject) {
    let run = Run::begin(
        subject,
        "a_killed_waiter_in_the_middle_of_the_queue_resumes_its_ticket",
    );
    let store = run.open();
    let key = subject.key();
    Ask::new(key, "first").granted(&*store);
    let (mut before, mut interrupted, mut behind) = (run.puppet(), run.puppet(), run.puppet());
    let _ = before.queued_to_pass(&Ask::new(key, "before"));
    let (ticket, _) = interrupted.queued(&Ask::new(key, "interrupted"));
    let _ = behind.queued_to_pass(&Ask::new(key, "behind"));
    interrupted.kill();

    let mut again = run.puppet();
    let back = again.queued_to_pass(&Ask::new(key, "interrupted"));
    assert_eq!(
        back,
        (ticket, true),
        "it must resume its ticket, and be told so"
    );
    release(&*store, key);
    let (first, second, third) = (before.served(), again.served(), behind.served());
    assert!(first < second && second < third);
    run.finish(4);
}

/// A waiter that parks keeps its ticket too, and does not delay other waiters although its process runs on.
pub fn a_waiter_that_parks_resumes_its_ticket(subject: &Subject) {
    let run = Run::begin(subject, "a_waiter_that_parks_resumes_its_ticket");
    let (store, parked) = (run.open(), run.open());
    let key = subject.key();
    Ask::new(key, "first").granted(&*store);
    let Acquired::Busy(busy) = Ask::new(key, "interrupted").waiting().once(&*parked) else {
        run.fail("the second claim was not queued");
    };
    let ticket = busy.position.unwrap().ticket;
    let mut patient = run.puppet();
    let _ = patient.queued(&Ask::new(key, "patient"));
    Ask::new(key, "interrupted").withdraw(&*parked, Withdrawal::Park);
    release(&*store, key);
    let _ = patient.served();

    it_resumes_its_ticket(&run, &*store, ticket);
    run.finish(4);
}

/// A generated name does not identify a holder: another claim under the same name does not resume the ticket.
pub fn a_waiter_with_a_generated_name_does_not_resume_its_ticket(subject: &Subject) {
    let run = Run::begin(
        subject,
        "a_waiter_with_a_generated_name_does_not_resume_its_ticket",
    );
    let store = run.open();
    let key = subject.key();
    let mut tickets: Vec<Ticket> = vec![];
    Ask::new(key, "first").granted(&*store);
    let mut interrupted = run.puppet();
    tickets.push(interrupted.queued(&Ask::new(key, "pid-1").unnamed()).0);
    interrupted.kill();
    // Neither under the same generated name, nor under a chosen name that happens to be the same.
    for ask in [Ask::new(key, "pid-1").unnamed(), Ask::new(key, "pid-1")] {
        let mut again = run.puppet();
        let (ticket, resumed) = again.queued(&ask);
        assert!(!resumed && !tickets.contains(&ticket), "{ask:?}");
        tickets.push(ticket);
        again.kill();
    }
    run.finish(1);
}
