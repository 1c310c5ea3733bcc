//! G1, G6: who is the holder, and who is not.

use std::time::Duration;

use tenure_core::{Acquired, Fenced, Grant, HistoryQuery, HolderId, Released, Renewed, Token};

use crate::ask::Ask;
use crate::run::Run;
use crate::subject::Subject;

/// A stranger with the right token, the holder with an old token, a token from the future: none of
/// them changes anything, in any process.
pub fn only_the_holder_releases(subject: &Subject) {
    let run = Run::begin(subject, "only_the_holder_releases");
    let capabilities = run.capabilities();
    let (store, elsewhere) = (run.open(), run.open());
    let key = subject.key();
    let old = Ask::new(key, "holder").granted(&*store);
    let _ = store.release(&old.grant()).unwrap();
    let lease = Ask::new(key, "holder").granted(&*store);
    let grant = |holder: &str, token: Token| Grant {
        key: key.clone(),
        holder: HolderId::parse(holder).unwrap(),
        token,
    };
    let mut wrong = vec![("stranger", lease.token), ("stranger", old.token)];
    if capabilities.fencing {
        wrong.extend([
            ("holder", old.token),
            ("holder", lease.token.next()),
            ("holder", Token(0)),
        ]);
    }
    let events = || store.history(&HistoryQuery::default()).unwrap().len();
    let (before, untouched) = (events(), store.inspect(key).unwrap().lease);
    for (holder, token) in wrong {
        let grant = grant(holder, token);
        for store in [&store, &elsewhere] {
            let released = store.release(&grant).unwrap();
            assert!(
                matches!(&released, Released::AlreadyGone(Some(now)) if now.token == lease.token),
                "{grant:?}: {released:?}"
            );
            let renewed = store.renew(&grant, Duration::from_millis(1)).unwrap();
            assert!(
                matches!(&renewed, Renewed::Lost(Some(now)) if now.token == lease.token),
                "{grant:?}: {renewed:?}"
            );
        }
    }
    assert_eq!(elsewhere.inspect(key).unwrap().lease, untouched);
    assert_eq!(events(), before, "and nothing was recorded");
    let released = elsewhere.release(&lease.grant()).unwrap();
    assert!(
        matches!(released, Released::Freed(_)),
        "whoever can prove the grant may give it back, from anywhere: {released:?}"
    );
    run.finish(2);
}

/// Two that have different names are two, though one process asks for both of them: a program
/// that runs several agents.
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
    let fenced = store.fence(key, lease.token).unwrap();
    assert!(matches!(fenced, Fenced::Current(_)), "{fenced:?}");
    let released = store.release(&lease.grant()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    run.finish(1);
}
