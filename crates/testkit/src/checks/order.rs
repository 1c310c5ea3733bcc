//! G8: waiting is fair.

use tenure_core::{HolderId, Key, Store, Token};

use crate::ask::Ask;
use crate::limit::soon;
use crate::puppet::Puppet;
use crate::run::Run;
use crate::subject::Subject;

fn names(queue: &[tenure_core::Waiter]) -> Vec<HolderId> {
    queue
        .iter()
        .map(|waiter| waiter.holder.id.clone())
        .collect()
}

/// Starts a process that waits for the key and releases it at once.
fn enqueue(run: &Run<'_>, store: &dyn Store, ask: &Ask) -> Puppet {
    let mut waiter = run.puppet();
    let (ticket, resumed) = waiter.queued_to_pass(ask);
    assert!(!resumed);
    let known = store.inspect(&ask.key, soon()).unwrap();
    assert!(
        known.queue.iter().any(|waiter| waiter.ticket == ticket),
        "{ticket:?} is not in the queue: {:?}",
        known.queue
    );
    waiter
}

/// Releases the key, and returns the order in which the waiters got it: by their tokens, which do not depend
/// on the speed of their reports.
fn served(
    store: &dyn Store,
    key: &Key,
    first: Token,
    waiters: Vec<(String, Puppet)>,
) -> Vec<String> {
    let holder = store.inspect(key, soon()).unwrap().leases.remove(0).0;
    assert_eq!(holder.token, first);
    let _ = store.release(&holder.grant(), soon()).unwrap();
    let mut tokens: Vec<(Token, String)> = waiters
        .into_iter()
        .map(|(name, waiter)| (waiter.served(), name))
        .collect();
    tokens.sort();
    tokens.into_iter().map(|(_, name)| name).collect()
}

/// Processes are served in the order in which they arrived.
pub fn first_come_first_served_among_equals(subject: &Subject) {
    let mut run = Run::begin(subject, "first_come_first_served_among_equals");
    let store = run.open();
    let key = subject.key();
    let rounds = run.times(4);
    for _ in 0..rounds {
        let first = Ask::new(key, "first").granted(&*store).token;
        let mut come: Vec<String> = (0..6).map(|number| format!("runner-{number}")).collect();
        run.chance.shuffle(&mut come);
        let waiters = come
            .iter()
            .map(|name| {
                let mut ask = Ask::new(key, name);
                ask.named = run.chance.one_in(2);
                (name.clone(), enqueue(&run, &*store, &ask))
            })
            .collect();
        assert_eq!(served(&*store, key, first, waiters), come);
    }
    run.finish(rounds * 7);
}

/// A claim of priority 9 is served before one of 5 that arrived just before it, and one of 0 after both. The
/// limit of overtaking is tested in `tenure_core::queue`.
pub fn priority_overtakes_only_within_the_bound(subject: &Subject) {
    let run = Run::begin(subject, "priority_overtakes_only_within_the_bound");
    let store = run.open();
    let key = subject.key();
    let first = Ask::new(key, "first").granted(&*store).token;
    let waiters: Vec<(String, Puppet)> = [
        ("early", 5),
        ("idle", 0),
        ("urgent", 9),
        ("late", 5),
        ("urgent too", 9),
    ]
    .into_iter()
    .map(|(name, level)| {
        let ask = Ask::new(key, name).priority(level);
        (name.to_owned(), enqueue(&run, &*store, &ask))
    })
    .collect();
    let wanted = ["urgent", "urgent too", "early", "late", "idle"];
    let queue = names(&store.inspect(key, soon()).unwrap().queue);
    let shown: Vec<&str> = queue.iter().map(HolderId::as_str).collect();
    assert_eq!(
        shown, wanted,
        "the queue must show the order in which waiters will be served"
    );
    assert_eq!(served(&*store, key, first, waiters), wanted);
    run.finish(6);
}
