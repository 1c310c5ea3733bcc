//! G1, G8, G9 for keys that several holders may have: shared, and with slots.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use tenure_core::{
    Acquired, ErrorKind, Fenced, Forced, HolderId, Key, Mode, PathPattern, PathSet, Reap, Reason,
    Released, Store, Token,
};

use super::one_holder::{ContestSettings, contest};
use crate::ask::{Ask, HOUR};
use crate::limit::soon;
use crate::puppet::{Answer, Named, Order, Puppet};
use crate::run::{Run, until};
use crate::subject::Subject;

/// The modes that are mixed with exclusive claims.
pub(crate) fn beside() -> [Mode; 3] {
    let paths = PathSet::parse(["**"]).unwrap();
    [Mode::Shared, slots(3), paths.into()]
}

const fn slots(number: u32) -> Mode {
    match NonZeroU32::new(number) {
        Some(number) => Mode::Slots(number),
        None => Mode::Exclusive,
    }
}

/// Whether the store has modes. One that has none must say so.
fn can_run(run: &Run<'_>) -> bool {
    let store = run.open();
    if store.capabilities().modes {
        return true;
    }
    let claim = Ask::new(run.subject.key(), "a")
        .mode(Mode::Shared)
        .claim(&*store);
    let refused = store.acquire(&claim, soon()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unsupported, "{refused}");
    assert!(refused.to_string().contains("only one holder"), "{refused}");
    run.needs("modes", false)
}

fn shared(key: &Key, name: &str) -> Ask {
    Ask::new(key, name).mode(Mode::Shared)
}

fn puppets<const N: usize>(run: &Run<'_>) -> [Puppet; N] {
    std::array::from_fn(|_| run.puppet())
}

fn release(store: &dyn Store, key: &Key, holder: &str) {
    let leases = store.inspect(key, soon()).unwrap().leases;
    let mut leases = leases.into_iter().map(|(lease, _)| lease);
    let lease = leases.find(|lease| lease.holder.id.as_str() == holder);
    let _ = store.release(&lease.unwrap().grant(), soon()).unwrap();
}

/// Eight processes, some of which are killed and stopped, claim a key in different modes. The witness uses the
/// kernel's own shared and exclusive locks.
pub fn eight_processes_share_a_key_only_as_their_modes_allow(subject: &Subject) {
    for mode in beside() {
        let mut run = Run::begin(
            subject,
            "eight_processes_share_a_key_only_as_their_modes_allow",
        );
        if !can_run(&run) {
            return;
        }
        let settings = ContestSettings {
            processes: 8,
            times: run.times(150),
            kills_and_stops: true,
            beside: Some(mode.clone()),
        };
        let result = contest(&mut run, settings);
        if !result.violations.is_empty() {
            run.fail(&result.violations.join("\n"));
        }
        println!("{mode}: {} kills, {} stops", result.kills, result.stops);
        run.finish(result.grants);
    }
}

/// Shared claims that come after a waiting exclusive one wait behind it.
pub fn a_waiting_exclusive_claim_is_not_starved(subject: &Subject) {
    let run = Run::begin(subject, "a_waiting_exclusive_claim_is_not_starved");
    if !can_run(&run) {
        return;
    }
    let (store, key) = (run.open(), subject.key());
    let [mut one, mut two, mut alone, mut late] = puppets(&run);
    let first = one.granted(&shared(key, "one"));
    let second = two.granted(&shared(key, "two"));
    assert!(first < second);
    let busy = alone.does(&Order::Acquire(Ask::new(key, "alone")));
    assert_eq!(busy, Answer::Busy);
    let _ = alone.queued(&Ask::new(key, "alone"));
    let behind = late.does(&Order::Acquire(shared(key, "late")));
    assert_eq!(
        behind,
        Answer::Busy,
        "a shared claim passed an exclusive one"
    );
    let _ = late.queued(&shared(key, "late"));
    release(&*store, key, "one");
    two.process().kill_and_leave();
    let third = alone.served();
    assert!(second < third);
    release(&*store, key, "alone");
    assert!(third < late.served());
    run.finish(4);
}

/// A release and a death wake every shared waiter; a withdrawal of the exclusive waiter ahead does, too.
pub fn shared_waiters_are_woken_together(subject: &Subject) {
    let run = Run::begin(subject, "shared_waiters_are_woken_together");
    if !can_run(&run) {
        return;
    }
    let (store, key) = (run.open(), subject.key());
    for how in 0..3 {
        let [mut holder, mut hasty, mut one, mut two, mut three] = puppets(&run);
        if how < 2 {
            let _ = holder.granted(&Ask::new(key, "holder"));
        } else {
            let _ = holder.granted(&shared(key, "holder"));
            let _ = hasty.queued(&Ask::new(key, "hasty").unnamed());
        }
        for (name, waiter) in [("one", &mut one), ("two", &mut two), ("three", &mut three)] {
            let _ = waiter.queued(&shared(key, name));
        }
        match how {
            0 => release(&*store, key, "holder"),
            1 => holder.process().kill_and_leave(),
            _ => hasty.process().kill_and_leave(),
        }
        // None of them has released it.
        for waiter in [&one, &two, &three] {
            let _ = waiter.served();
        }
        for waiter in [holder, hasty, one, two, three] {
            waiter.kill();
        }
        until(&*store, key, "the holders to be gone", |known| {
            known
                .leases
                .iter()
                .all(|(_, verdict)| verdict.ended().is_some())
        });
        let _ = store.reap(Reap::Free, soon()).unwrap();
    }
    run.finish(12);
}

fn slots_in_use(store: &dyn Store, key: &Key) -> Vec<u32> {
    let leases = store.inspect(key, soon()).unwrap().leases;
    let mut slots: Vec<u32> = leases.iter().filter_map(|(lease, _)| lease.slot).collect();
    slots.sort_unstable();
    slots
}

/// There are never more holders than slots, no two have the same, and a dead holder's slot is given again.
/// Another number of slots is refused.
pub fn slots_are_counted_and_given_once(subject: &Subject) {
    let run = Run::begin(subject, "slots_are_counted_and_given_once");
    if !can_run(&run) {
        return;
    }
    let (store, key) = (run.open(), subject.key());
    let two = |name: &str| Ask::new(key, name).mode(slots(2));
    let [mut a, mut b, mut c, mut d] = puppets(&run);
    let _ = a.granted(&two("a"));
    let _ = b.granted(&two("b"));
    assert_eq!(slots_in_use(&*store, key), [0, 1]);
    let _ = c.queued(&two("c"));
    for mode in [slots(3), Mode::Shared] {
        let claim = Ask::new(key, "d").mode(mode.clone()).claim(&*store);
        let refused = store.acquire(&claim, soon()).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::OtherMode, "{refused}");
        let words = refused.to_string();
        assert!(
            words.contains("slots:2") && words.contains(&mode.to_string()),
            "{words}"
        );
    }
    a.process().kill_and_leave();
    let _ = c.served();
    assert_eq!(slots_in_use(&*store, key), [0, 1]);
    // Alone: after both.
    let _ = d.queued(&Ask::new(key, "d"));
    release(&*store, key, "b");
    assert_eq!(slots_in_use(&*store, key), [0]);
    release(&*store, key, "c");
    let _ = d.served();
    release(&*store, key, "d");
    // The number belongs to the key only while it is held or waited for.
    let _ = a_new_process(&run).granted(&Ask::new(key, "e").mode(slots(3)));
    run.finish(5);
}

fn a_new_process(run: &Run<'_>) -> Puppet {
    run.puppet()
}

/// One of several holders is killed, forced, or releases: the others keep their leases.
pub fn one_of_several_leases_ends_alone(subject: &Subject) {
    let run = Run::begin(subject, "one_of_several_leases_ends_alone");
    if !can_run(&run) {
        return;
    }
    let (store, key) = (run.open(), subject.key());
    let [mut a, mut b, mut c, mut d] = puppets(&run);
    let tokens: Vec<Token> = [("a", &mut a), ("b", &mut b), ("c", &mut c), ("d", &mut d)]
        .into_iter()
        .map(|(name, puppet)| puppet.granted(&shared(key, name)))
        .collect();
    let current = |token| matches!(store.fence(key, token, soon()).unwrap(), Fenced::Current(_));
    a.process().kill_and_leave();
    until(&*store, key, "the death to show", |known| {
        known
            .leases
            .iter()
            .any(|(_, verdict)| verdict.ended().is_some())
    });
    let reaped = store.reap(Reap::Free, soon()).unwrap();
    let reaped: Vec<Token> = reaped.iter().map(|reaped| reaped.lease.token).collect();
    assert_eq!(reaped, [tokens[0]]);
    let admin = HolderId::parse("admin").unwrap();
    let (of_b, of_a) = (HolderId::parse("b").unwrap(), HolderId::parse("a").unwrap());
    let forced = store.force(key, Some(&of_b), &admin, None, soon()).unwrap();
    let Forced::Freed(forced) = forced else {
        run.fail("b did not hold it");
    };
    assert_eq!(forced.len(), 1, "{forced:?}");
    assert_eq!(forced[0].token, tokens[1]);
    let again = store.force(key, Some(&of_a), &admin, None, soon()).unwrap();
    assert!(matches!(again, Forced::NotHeld), "{again:?}");
    let kept: Vec<bool> = tokens.iter().map(|token| current(*token)).collect();
    assert_eq!(kept, [false, false, true, true]);
    let renewed = c.does(&Order::Renew(grant(key, "c", tokens[2]), HOUR));
    assert_eq!(renewed, Answer::Extended);
    let freed = c.does(&Order::Release(grant(key, "c", tokens[2])));
    assert_eq!(freed, Answer::Freed);
    assert!(current(tokens[3]));
    let rest = store.force(key, None, &admin, None, soon()).unwrap();
    assert!(matches!(rest, Forced::Freed(rest) if rest.len() == 1));
    run.finish(4);
}

fn grant(key: &Key, holder: &str, token: Token) -> Named {
    tenure_core::Grant {
        key: key.clone(),
        holder: HolderId::parse(holder).unwrap(),
        token,
    }
    .into()
}

/// A shared holder becomes the only one once the others have ended, with a new token, before the waiters that came
/// earlier; a second one that tries is refused. It admits others again under the same token.
pub fn a_holder_changes_its_mode(subject: &Subject) {
    let run = Run::begin(subject, "a_holder_changes_its_mode");
    if !can_run(&run) {
        return;
    }
    let (store, key) = (run.open(), subject.key());
    let [mut ann, mut bob, mut waits, mut other] = puppets(&run);
    let detached = |name: &str| Ask::new(key, name).detached();
    let first = ann.granted(&detached("ann").mode(Mode::Shared));
    let second = bob.granted(&detached("bob").mode(Mode::Shared));
    let _ = waits.queued(&Ask::new(key, "waits"));
    let _ = ann.queued(&detached("ann"));
    let refused = bob.does(&Order::Acquire(detached("bob").waiting()));
    let Answer::Deadlock(words) = refused else {
        run.fail(&format!("the second one got {refused:?}"));
    };
    assert!(
        words.contains(&format!("bob waits for {key} which ann holds"))
            && words.contains(&format!("ann waits for {key} which bob holds")),
        "{words}"
    );
    // So that it sleeps, and has to be woken.
    std::thread::sleep(Duration::from_millis(50));
    release(&*store, key, "bob");
    let answer = ann.answer();
    let Answer::Granted { token, reason, .. } = answer else {
        run.fail(&format!("ann got {answer:?}"));
    };
    assert_eq!(reason, Reason::Upgraded);
    assert!(second < token);
    let fenced = store.fence(key, first, soon()).unwrap();
    assert!(matches!(fenced, Fenced::Stale(_)), "{fenced:?}");
    let again = ann.granted(&detached("ann").mode(Mode::Shared));
    assert_eq!(again, token, "it keeps its token");
    // The exclusive waiter is still first.
    let busy = other.does(&Order::Acquire(shared(key, "other")));
    assert_eq!(busy, Answer::Busy);
    waits.process().kill_and_leave();
    let brief = shared(key, "other").waiting_at_most(Duration::from_secs(60));
    let admitted = other.does(&Order::Acquire(brief));
    let admitted = match admitted {
        Answer::Queued { .. } => other.answer(),
        answer => answer,
    };
    assert!(token < admitted.token());
    // The death of the other holder wakes it, too, although another waiter is ahead.
    let mut third = run.puppet();
    let _ = third.queued(&Ask::new(key, "third"));
    let _ = ann.queued(&detached("ann"));
    std::thread::sleep(Duration::from_millis(50));
    other.process().kill_and_leave();
    assert!(token < ann.served());
    release(&*store, key, "ann");
    let _ = third.served();
    run.finish(7);
}

/// A holder that reserved paths to write them goes on to read them only: a reader that waits is woken, a writer is not.
pub fn a_reader_is_woken_when_a_reservation_becomes_shared(subject: &Subject) {
    let run = Run::begin(
        subject,
        "a_reader_is_woken_when_a_reservation_becomes_shared",
    );
    if !can_run(&run) {
        return;
    }
    let (store, key) = (run.open(), subject.key());
    let paths = |name: &str, mode: &str| Ask::new(key, name).mode(mode.parse().unwrap());
    let writes = paths("ann", "paths:src/**").detached();
    let first = writes.granted(&*store);
    let [mut reader, mut writer] = puppets(&run);
    let _ = reader.queued(&paths("reader", "shared-paths:src/a.rs"));
    let _ = writer.queued(&paths("writer", "paths:src/b.rs"));
    let reads = paths("ann", "shared-paths:src/**").detached();
    let (second, reason) = reads.granted_for(&*store);
    assert_eq!(reason, Reason::Upgraded);
    assert!(first.token < second.token);
    assert!(second.token < reader.served());
    release(&*store, key, "ann");
    let _ = writer.served();
    run.finish(3);
}

/// A claim for a file waits behind a waiter for its folder, and one for another file does not. The path of a file, which
/// ends with `/.`, is beside a pattern of other files.
pub fn a_waiter_for_a_folder_is_not_starved_by_its_files(subject: &Subject) {
    let run = Run::begin(subject, "a_waiter_for_a_folder_is_not_starved_by_its_files");
    if !can_run(&run) {
        return;
    }
    let (store, key) = (run.open(), subject.key());
    let paths = |name: &str, paths: &str| Ask::new(key, name).mode(paths.parse().unwrap());
    let _first = paths("first", "paths:src/a.rs/.").granted(&*store);
    let queue = |ask: &Ask| match ask.clone().waiting().once(&*store) {
        Acquired::Busy(busy) => busy,
        other => run.fail(&format!("{} got {other:?}", ask.holder)),
    };
    let folder = paths("folder", "paths:src/**");
    assert_eq!(queue(&folder).position.unwrap().ahead, 0);
    let stream: Vec<Ask> = (0..5)
        .map(|number| {
            paths(
                &format!("late-{number}"),
                &format!("paths:src/{number}.rs/."),
            )
        })
        .collect();
    for late in &stream {
        let busy = queue(late);
        assert_eq!(busy.behind.unwrap().id.as_str(), "folder");
        assert!(busy.leases.is_empty(), "{:?}", busy.leases);
    }
    let _ = paths("other", "paths:README.md/. docs/**/*.css").granted(&*store);
    release(&*store, key, "first");
    for late in &stream {
        let _ = queue(late);
    }
    let _ = folder.clone().waiting().granted(&*store);
    for late in &stream {
        let _ = queue(late);
    }
    release(&*store, key, "folder");
    // They are files of their own, so all of them.
    for late in &stream {
        let _ = late.clone().waiting().granted(&*store);
    }
    run.finish(8);
}

/// A holder gives back all of some reservations and a part of others in one call. Every rest has a token of its own.
pub fn parts_of_many_reservations_are_given_back_together(subject: &Subject) {
    let run = Run::begin(
        subject,
        "parts_of_many_reservations_are_given_back_together",
    );
    if !can_run(&run) {
        return;
    }
    let (store, key) = (run.open(), subject.key());
    let parse = |text: String| PathPattern::parse(&text).unwrap();
    let mut parts = Vec::new();
    for number in 0..40 {
        let mode = format!("paths:{number}/a {number}/b").parse().unwrap();
        let lease = Ask::new(key, "ann").mode(mode).detached().granted(&*store);
        let mut given_back = vec![parse(format!("{number}/a"))];
        if number % 10 != 0 {
            given_back.push(parse(format!("{number}/b")));
        }
        parts.push((lease.grant(), given_back));
    }
    let released = store.release_paths(&parts, soon()).unwrap();
    assert_eq!(released.len(), parts.len());
    let is_freed = |answer: &Released| matches!(answer, Released::Freed(_));
    assert!(released.iter().all(is_freed), "{released:?}");
    let left = store.inspect(key, soon()).unwrap().leases;
    let left: BTreeMap<Token, String> = left
        .iter()
        .map(|(lease, _)| (lease.token, lease.mode.to_string()))
        .collect();
    let left: Vec<&str> = left.values().map(String::as_str).collect();
    assert_eq!(
        left,
        ["paths:0/b", "paths:10/b", "paths:20/b", "paths:30/b"]
    );
    let again = store.release_paths(&parts, soon()).unwrap();
    let is_gone = |answer: &Released| matches!(answer, Released::AlreadyGone(_));
    assert!(again.iter().all(is_gone), "{again:?}");
}
