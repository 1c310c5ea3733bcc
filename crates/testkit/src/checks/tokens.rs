//! G2: tokens only grow, however a lease ends and whether or not a process has the store open.

use std::time::Duration;

use tenure_core::{Forced, HolderId, Released, Token};

use crate::ask::Ask;
use crate::limit::LIMIT;
use crate::limit::soon;
use crate::puppet::Puppet;
use crate::run::Run;
use crate::subject::Subject;
use crate::waiting;

/// Leases end by release, death, force and expiry, in random order, and no process has the store open in
/// between: every token is larger than the one before.
pub fn tokens_grow_over_restarts_release_and_force(subject: &Subject) {
    let mut run = Run::begin(subject, "tokens_grow_over_restarts_release_and_force");
    let capabilities = run.capabilities();
    let key = subject.key();
    let admin = HolderId::parse("admin").unwrap();
    let mut last = Token(0);
    let mut killed: Option<Puppet> = None;
    let rounds = run.times(40);
    for round in 0..rounds {
        // A new connection each time, which knows only what the store has recorded.
        let store = run.open();
        let ask = Ask::new(key, &format!("runner-{}", round % 3));
        let token = if run.chance.one_in(3) {
            let mut holder = run.puppet();
            let token = holder.gets(&ask);
            holder.process().kill();
            killed = Some(holder);
            token
        } else if capabilities.expiry && run.chance.one_in(3) {
            let brief = ask.ttl(Duration::from_millis(1)).detached();
            waiting::acquire(&*store, &brief.waiting_at_most(LIMIT), |_| ())
                .lease()
                .token
        } else {
            let lease = waiting::acquire(&*store, &ask.waiting_at_most(LIMIT), |_| ()).lease();
            if run.chance.one_in(2) {
                let released = store.release(&lease.grant(), soon()).unwrap();
                assert!(matches!(released, Released::Freed(_)), "{released:?}");
            } else {
                let forced = store
                    .force(key, None, &admin, Some("to see"), soon())
                    .unwrap();
                assert!(matches!(forced, Forced::Freed(_)), "{forced:?}");
            }
            lease.token
        };
        assert!(token > last, "{token} was granted after {last}");
        last = token;
    }
    drop(killed);
    run.finish(rounds);
}
