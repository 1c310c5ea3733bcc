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

/// Starts a process that waits for the key and, once it has it, gives it back.
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

/// Frees the key, and tells in which order the waiters got it: by their tokens, which no slow
/// report can mix up.
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

/// Processes that came one after the other are served one after the other.
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

/// A claim of priority 9 goes before one of 5 that came a moment earlier, and one of 0 after both.
/// How far that goes is for the rules to tell: `tenure_core::queue` has the bound and its tests.
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
    assert_eq!(shown, wanted, "what is shown is the order to come");
    assert_eq!(served(&*store, key, first, waiters), wanted);
    run.finish(6);
}
