//! A grant's event says how long its holder waited, and nothing if it did not wait.

use std::time::Duration;

use tenure_core::{Acquired, Event, EventKind, Grant, Key, Mode, Store, Token, Withdrawal};

use crate::ask::Ask;
use crate::limit::{Stopwatch, soon};
use crate::puppet::Puppet;
use crate::run::Run;
use crate::subject::Subject;

/// Long enough to tell a wait from none.
const WAIT: Duration = Duration::from_millis(20);

/// A wait, measured from outside.
struct Measured {
    /// Started before the claim.
    longest: Stopwatch,
    /// Started when the ticket was there.
    shortest: Stopwatch,
}

impl Measured {
    fn begin<T>(queue: impl FnOnce() -> T) -> (Self, T) {
        let longest = Stopwatch::start();
        let answer = queue();
        let shortest = Stopwatch::start();
        (Self { longest, shortest }, answer)
    }

    fn queued(puppet: &mut Puppet, ask: &Ask) -> Self {
        Self::begin(|| puppet.queued(ask)).0
    }

    /// Lets the wait go on for a while. Returns how long it lasted, at least.
    fn lasts(&self) -> Duration {
        std::thread::sleep(WAIT);
        self.shortest.elapsed()
    }

    /// Checks the event of the grant that ended the wait.
    fn is_in(&self, run: &Run<'_>, at_least: Duration, event: &Event) {
        let longest = self.longest.elapsed();
        match event.waited {
            Some(waited) if waited >= at_least && waited <= longest => {}
            other => run.fail(&format!(
                "{} waited for {} for {at_least:?} to {longest:?}, and its event says {other:?}",
                event.holder, event.key
            )),
        }
    }
}

/// The event of a grant.
fn grant(events: &[Event], key: &Key, token: Token) -> Event {
    let is_it = |event: &&Event| {
        event.kind == EventKind::Granted && event.key == *key && event.token == token
    };
    events
        .iter()
        .find(is_it)
        .expect("the grant's event")
        .clone()
}

fn held(store: &dyn Store, key: &Key, holder: &str) -> Grant {
    let leases = store.inspect(key, soon()).unwrap().leases;
    let mut leases = leases.into_iter().map(|(lease, _)| lease);
    let of_holder = leases.find(|lease| lease.holder.id.as_str() == holder);
    of_holder.expect("a lease of this holder").grant()
}

fn release(store: &dyn Store, key: &Key, holder: &str) {
    let _ = store.release(&held(store, key, holder), soon()).unwrap();
}

/// Waits that end by a release, by the death of the holder, and after the waiter was killed and came back; then waits
/// for a slot and for several keys.
pub fn a_grant_records_how_long_its_holder_waited(subject: &Subject) {
    let run = Run::begin(subject, "a_grant_records_how_long_its_holder_waited");
    let (store, key) = (run.open(), subject.key());
    let [mut first, mut second, mut third] = std::array::from_fn(|_| run.puppet());
    let token = first.granted(&Ask::new(key, "first"));
    if run.history_if_any(&*store).is_none() {
        run.needs("history", false);
        return;
    }
    let event = |key: &Key, token| grant(&run.history(&*store), key, token);
    assert_eq!(event(key, token).waited, None, "it did not wait");

    let wait = Measured::queued(&mut second, &Ask::new(key, "second"));
    let lasted = wait.lasts();
    release(&*store, key, "first");
    wait.is_in(&run, lasted, &event(key, second.served()));

    let wait = Measured::queued(&mut third, &Ask::new(key, "third"));
    let lasted = wait.lasts();
    second.process().kill_and_leave();
    wait.is_in(&run, lasted, &event(key, third.served()));

    // The wait of a ticket that is resumed began when the ticket was taken.
    let mut interrupted = run.puppet();
    let wait = Measured::queued(&mut interrupted, &Ask::new(key, "back"));
    interrupted.kill();
    let mut back = run.puppet();
    let (_, resumed) = back.queued(&Ask::new(key, "back"));
    assert!(resumed, "the ticket was not resumed");
    let lasted = wait.lasts();
    release(&*store, key, "third");
    wait.is_in(&run, lasted, &event(key, back.served()));
    release(&*store, key, "back");

    if run.capabilities().modes {
        waits_for_a_slot(&run, &*store);
    }
    if run.capabilities().several {
        waits_for_several(&run, &*store, &mut first, &mut run.puppet());
    }
    run.finish(4);
}

fn waits_for_a_slot(run: &Run<'_>, store: &dyn Store) {
    let key = run.subject.key();
    let slot = |name: &str| Ask::new(key, name).mode("slots:2".parse::<Mode>().unwrap());
    let [mut one, mut two, mut three] = std::array::from_fn(|_| run.puppet());
    let at_once = [one.granted(&slot("one")), two.granted(&slot("two"))];
    let wait = Measured::queued(&mut three, &slot("three"));
    let lasted = wait.lasts();
    release(store, key, "one");
    let after_wait = three.served();
    let events = run.history(store);
    for token in at_once {
        assert_eq!(grant(&events, key, token).waited, None, "it did not wait");
    }
    wait.is_in(run, lasted, &grant(&events, key, after_wait));
    release(store, key, "two");
    release(store, key, "three");
}

/// One of the keys was free all the time: the claim waited for it all the same.
fn waits_for_several(run: &Run<'_>, store: &dyn Store, first: &mut Puppet, both: &mut Puppet) {
    let [a, b] = ["waited-a", "waited-b"].map(|key| Key::parse(key).unwrap());
    let _ = first.granted(&Ask::new(&b, "first"));
    let wait = Measured::queued(both, &Ask::all(&[&a, &b], "both"));
    let lasted = wait.lasts();
    release(store, &b, "first");
    let _ = both.served();
    let events = run.history(store);
    for key in [&a, &b] {
        wait.is_in(
            run,
            lasted,
            &grant(&events, key, held(store, key, "both").token),
        );
    }
}

/// The same for the threads of a store that only one process sees.
pub fn a_grant_records_how_long_a_thread_waited(subject: &Subject) {
    let run = Run::begin(subject, "a_grant_records_how_long_a_thread_waited");
    let (store, waiter, key) = (run.open(), run.open(), subject.key());
    let first = Ask::new(key, "first").granted(&*store);
    let second = Ask::new(key, "second").waiting();
    let queue = || match second.once(&*waiter) {
        Acquired::Busy(busy) => busy.position.unwrap(),
        other => run.fail(&format!("it got {other:?}")),
    };
    let (wait, position) = Measured::begin(queue);
    second.withdraw(&*waiter, Withdrawal::Park);
    assert!(queue().ticket == position.ticket);
    let lasted = wait.lasts();
    let _ = store.release(&first.grant(), soon()).unwrap();
    let second = Ask::new(key, "second").waiting().granted(&*waiter);
    let events = run.history(&*store);
    assert_eq!(grant(&events, key, first.token).waited, None);
    wait.is_in(&run, lasted, &grant(&events, key, second.token));
    run.finish(2);
}
