//! G1, G6: only the holder of a grant can release it.

use std::time::Duration;

use tenure_core::{Acquired, Fenced, Grant, HistoryQuery, HolderId, Released, Renewed, Token};

use crate::ask::Ask;
use crate::limit::soon;
use crate::run::Run;
use crate::subject::Subject;

/// Another holder with the right token, the holder with an old token, and a token that was never granted
/// change nothing, in any process.
pub fn only_the_holder_releases(subject: &Subject) {
    let run = Run::begin(subject, "only_the_holder_releases");
    let (store, elsewhere) = (run.open(), run.open());
    let key = subject.key();
    let old = Ask::new(key, "holder").granted(&*store);
    let _ = store.release(&old.grant(), soon()).unwrap();
    let lease = Ask::new(key, "holder").granted(&*store);
    let grant = |holder: &str, token: Token| Grant {
        key: key.clone(),
        holder: HolderId::parse(holder).unwrap(),
        token,
    };
    let wrong = [
        ("stranger", lease.token),
        ("stranger", old.token),
        ("holder", old.token),
        ("holder", lease.token.next().unwrap()),
        ("holder", Token(0)),
    ];
    let events = || {
        store
            .history(&HistoryQuery::default(), soon())
            .unwrap()
            .len()
    };
    let (before, untouched) = (events(), store.inspect(key, soon()).unwrap().leases);
    for (holder, token) in wrong {
        let grant = grant(holder, token);
        for store in [&store, &elsewhere] {
            let released = store.release(&grant, soon()).unwrap();
            assert!(
                matches!(&released, Released::AlreadyGone(now) if now[0].token == lease.token),
                "{grant:?}: {released:?}"
            );
            let renewed = store
                .renew(&grant, Duration::from_millis(1), soon())
                .unwrap();
            assert!(
                matches!(&renewed, Renewed::Lost(now) if now[0].token == lease.token),
                "{grant:?}: {renewed:?}"
            );
        }
    }
    assert_eq!(elsewhere.inspect(key, soon()).unwrap().leases, untouched);
    assert_eq!(events(), before, "and nothing was recorded");
    let released = elsewhere.release(&lease.grant(), soon()).unwrap();
    assert!(
        matches!(released, Released::Freed(_)),
        "any process with the grant can release it: {released:?}"
    );
    run.finish(2);
}

/// Two names are two holders, even in one process: a program may run several agents.
pub fn another_name_in_the_same_process_is_another_holder(subject: &Subject) {
    let run = Run::begin(
        subject,
        "another_name_in_the_same_process_is_another_holder",
    );
    let store = run.open();
    let key = subject.key();
    let lease = Ask::new(key, "agent-1").granted(&*store);
    let asked = Ask::new(key, "agent-2").once(&*store);
    assert!(
        matches!(asked, Acquired::Busy(_)),
        "agent-1 has it: {asked:?}"
    );
    let fenced = store.fence(key, lease.token, soon()).unwrap();
    assert!(matches!(fenced, Fenced::Current(_)), "{fenced:?}");
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    run.finish(1);
}
