//! G9: a wait that would never end is refused.

use tenure_core::Acquired;

use crate::ask::Ask;
use crate::limit::soon;
use crate::puppet::{Answer, Order};
use crate::run::Run;
use crate::subject::Subject;

fn can_run(run: &Run<'_>) -> bool {
    run.needs("second key", run.subject.all_keys().len() > 1)
}

/// `a` holds one key and waits for a second one. When the holder `b` of the second key claims the first, it is
/// refused with a message that names both, and gets no ticket.
pub fn a_wait_that_would_close_a_cycle_is_refused(subject: &Subject) {
    let run = Run::begin(subject, "a_wait_that_would_close_a_cycle_is_refused");
    if !can_run(&run) {
        return;
    }
    let store = run.open();
    let (x, y) = (&subject.all_keys()[0], &subject.all_keys()[1]);
    let (mut a, mut b) = (run.puppet(), run.puppet());
    let _ = a.granted(&Ask::new(x, "a"));
    let _ = b.granted(&Ask::new(y, "b"));
    let _ = a.queued(&Ask::new(y, "a"));
    let refused = b.does(&Order::Acquire(Ask::new(x, "b").waiting()));
    let Answer::Deadlock(words) = refused else {
        run.fail(&format!("b got {refused:?}"));
    };
    for step in [
        format!("b waits for {x} which a holds"),
        format!("a waits for {y} which b holds"),
    ] {
        assert!(words.contains(&step), "{words}");
    }
    let known = store.inspect(x, soon()).unwrap();
    assert!(known.queue.is_empty(), "{:?}", known.queue);
    let only_asked = b.does(&Order::Acquire(Ask::new(x, "b")));
    assert_eq!(
        only_asked,
        Answer::Busy,
        "a claim that does not wait closes no cycle"
    );
    b.kill();
    let _ = a.served();
    run.finish(3);
}

/// A chain of waits that includes a killed waiter is no cycle.
pub fn a_dead_waiter_closes_no_cycle(subject: &Subject) {
    let run = Run::begin(subject, "a_dead_waiter_closes_no_cycle");
    if !can_run(&run) {
        return;
    }
    let store = run.open();
    let (x, y) = (&subject.all_keys()[0], &subject.all_keys()[1]);
    let (mut a, mut early, mut second) = (run.puppet(), run.puppet(), run.puppet());
    let _ = a.granted(&Ask::new(x, "a"));
    Ask::new(y, "b").granted(&*store);
    let _ = early.queued(&Ask::new(y, "early"));
    // Another process of the same name, which is not first in the queue.
    let _ = second.queued(&Ask::new(y, "a"));
    second.kill();
    let asked = Ask::new(x, "b").waiting().once(&*store);
    assert!(
        matches!(asked, Acquired::Busy(_)),
        "nobody waits for {y} in the name of a: {asked:?}"
    );
    run.finish(2);
}
