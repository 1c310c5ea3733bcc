//! G4, G7: a holder that was stopped until its lease expired.

use std::time::Duration;

use tenure_core::{EventKind, Fenced, Grant, HolderId, Key, Reason, Token, Verdict};

use crate::ask::{Ask, HOUR};
use crate::limit::LIMIT;
use crate::limit::soon;
use crate::puppet::{Answer, Order, Puppet};
use crate::run::{Run, until};
use crate::subject::Subject;
use crate::waiting::{self, Outcome};

/// A time to live that expires soon.
const SHORT: Duration = Duration::from_millis(150);

fn grant(key: &Key, token: Token) -> crate::puppet::Named {
    let holder = HolderId::parse("sleeper").unwrap();
    Grant {
        key: key.clone(),
        holder,
        token,
    }
    .into()
}

/// A process that gets a short lease and is then stopped until the lease has expired.
fn sleeper(run: &Run<'_>, key: &Key) -> (Puppet, Token) {
    let mut sleeper = run.puppet();
    let token = sleeper.granted(&Ask::new(key, "sleeper").ttl(SHORT));
    sleeper.process().stop();
    (sleeper, token)
}

/// A holder is stopped, its lease expires and another holder takes over. Every verb refuses the old grant, and
/// the new lease does not change.
pub fn a_stopped_holder_whose_lease_expired_is_refused_by_every_verb(subject: &Subject) {
    let run = Run::begin(
        subject,
        "a_stopped_holder_whose_lease_expired_is_refused_by_every_verb",
    );
    if !run.needs("leases that expire", run.capabilities().expiry) {
        return;
    }
    let store = run.open();
    let key = subject.key();
    let rounds = run.times(5);
    for _ in 0..rounds {
        let (mut sleeper, old) = sleeper(&run, key);
        let next = Ask::new(key, "next").waiting_at_most(LIMIT);
        let outcome = waiting::acquire(&*store, &next, |_| ());
        let Outcome::Granted { lease, reason, .. } = outcome else {
            run.fail(&format!("the next claim got {outcome:?}"));
        };
        assert_eq!(reason, Reason::ClaimedExpired);
        let untouched = store.inspect(key, soon()).unwrap().leases;
        sleeper.process().go_on();
        let now = Some(lease.token);
        let renew = Order::Renew(grant(key, old), HOUR);
        assert_eq!(sleeper.does(&renew), Answer::Lost(now));
        let release = Order::Release(grant(key, old));
        assert_eq!(sleeper.does(&release), Answer::AlreadyGone(now));
        let fence = Order::Fence(key.clone(), old);
        assert_eq!(sleeper.does(&fence), Answer::Stale);
        let fenced = store.fence(key, lease.token, soon()).unwrap();
        assert!(matches!(fenced, Fenced::Current(_)), "{fenced:?}");
        assert_eq!(store.inspect(key, soon()).unwrap().leases, untouched);
        let events = run.history(&*store);
        let end = events.iter().find(|event| {
            event.token == old && event.key == *key && event.kind != EventKind::Granted
        });
        assert_eq!(end.map(|event| event.kind), Some(EventKind::Expired));
        let _ = store.release(&lease.grant(), soon()).unwrap();
    }
    run.finish(2 * rounds);
}

/// A holder whose lease expired while it was stopped can renew it if no other holder took the key.
pub fn an_expired_lease_is_renewed_if_no_other_holder_took_the_key(subject: &Subject) {
    let run = Run::begin(
        subject,
        "an_expired_lease_is_renewed_if_no_other_holder_took_the_key",
    );
    if !run.needs("leases that expire", run.capabilities().expiry) {
        return;
    }
    let store = run.open();
    let key = subject.key();
    let (mut sleeper, token) = sleeper(&run, key);
    until(&*store, key, "the time to run out", |known| {
        matches!(known.lease(), Some((_, Verdict::Expired(_))))
    });
    let stale = store.fence(key, token, soon()).unwrap();
    assert!(
        matches!(stale, Fenced::Stale(_)),
        "nobody may write on a lease that ran out: {stale:?}"
    );
    sleeper.process().go_on();
    let renew = Order::Renew(grant(key, token), HOUR);
    assert_eq!(sleeper.does(&renew), Answer::Extended);
    let fence = Order::Fence(key.clone(), token);
    assert_eq!(sleeper.does(&fence), Answer::Current);
    drop(sleeper);
    run.finish(1);
}
