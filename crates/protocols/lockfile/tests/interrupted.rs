//! G4, G5, G10 for both protocols: every verb is interrupted before every access to the lock, another
//! program takes the lock before every access, and both.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use protocols::{NO_PROCESS, Protocol, Touched};
use tenure_core::{
    Acquired, Event, EventKind, Granted, HistoryQuery, HolderId, Key, Reap, Records, Store, Token,
    Verdict,
};
use tenure_host::files::permissions::create_pipe;
use tenure_lockfile::exclusive::Exclusive;
use tenure_lockfile::mkdir::Mkdir;
use tenure_testkit::{Ask, history, soon};

use crate::protocols;

/// What happens before which access to the lock; 0 is never.
#[derive(Debug, Clone, Copy, Default)]
struct Interruption {
    killed: usize,
    /// Another program takes the lock.
    intruder: usize,
    /// A second program takes it from the first.
    second: usize,
    /// In the end another program removes a lock of tenure's.
    swept: bool,
}

/// The lock before the verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Free,
    /// Another program's, and its process is gone.
    StaleOther,
    /// Tenure's, whose process dies with the verb.
    Tenures,
    /// Tenure's, and another program removed it.
    TenuresRemoved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Acquire,
    Release,
    Reap,
    Force,
    Renew,
}

const SCENES: [(Before, Verb); 9] = [
    (Before::Free, Verb::Acquire),
    (Before::StaleOther, Verb::Acquire),
    (Before::StaleOther, Verb::Reap),
    (Before::StaleOther, Verb::Force),
    (Before::Tenures, Verb::Release),
    (Before::Tenures, Verb::Force),
    (Before::Tenures, Verb::Renew),
    (Before::TenuresRemoved, Verb::Renew),
    (Before::TenuresRemoved, Verb::Release),
];

fn key<P: Protocol>(dir: &Path) -> Key {
    P::of_folder(dir).key().clone()
}

/// Runs one verb; `false` once it ended before the interruption came.
fn play<P: Protocol + 'static>(before: Before, verb: Verb, interruption: Interruption) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let key = key::<P>(dir);
    if before == Before::StaleOther {
        P::take_as_other_program(dir, "stale", NO_PROCESS);
    }
    // The first holder is granted the lock by another store object, which nothing interrupts.
    let first = P::open(dir);
    let held = matches!(before, Before::Tenures | Before::TenuresRemoved)
        .then(|| Ask::new(&key, "first").granted(&first));
    let touches = Arc::new(AtomicUsize::new(0));
    let folder = dir.to_owned();
    let store = Touched::<P>::store(dir, &touches, move |touch| {
        if touch == interruption.intruder {
            P::take_as_other_program(&folder, "intruder", std::process::id());
        }
        if touch == interruption.second {
            P::take_as_other_program(&folder, "second", std::process::id());
        }
        if touch == interruption.killed {
            // Unwinding releases the step lock, as the kernel would; nothing else is cleaned up.
            std::panic::resume_unwind(Box::new("killed"));
        }
    });
    if before == Before::TenuresRemoved {
        P::remove_as_other_program(dir);
    }
    let admin = HolderId::parse("admin").unwrap();
    let grant = || held.as_ref().unwrap().grant();
    let done = catch_unwind(AssertUnwindSafe(|| {
        match verb {
            Verb::Acquire => match Ask::new(&key, "second").once(&store) {
                Acquired::Granted(Granted { lease, .. }) => return Some(lease.token),
                _ => return None,
            },
            Verb::Release => drop(store.release(&grant(), soon()).unwrap()),
            Verb::Renew => drop(
                store
                    .renew(&grant(), Duration::from_secs(1), soon())
                    .unwrap(),
            ),
            Verb::Reap => drop(store.reap(Reap::Free, soon()).unwrap()),
            Verb::Force => drop(store.force(&key, None, &admin, None, soon()).unwrap()),
        }
        None
    }));
    let touches = touches.load(Ordering::SeqCst);
    let Interruption {
        killed,
        intruder,
        second,
        swept,
    } = interruption;
    let came = |at: usize, name: &'static str| (at > 0 && touches >= at).then_some(name);
    let holder = came(second, "second").or(came(intruder, "intruder"));
    let scene = format!("{before:?}, {verb:?}, {interruption:?}, {done:?}");
    // Leave the liveness locks behind without a process that holds them: all holders are dead now.
    let liveness = P::of_folder(dir).sidecar().path().join("live");
    let pipes: Vec<_> = fs::read_dir(liveness).map_or(vec![], |pipes| {
        pipes.map(|pipe| pipe.unwrap().path()).collect()
    });
    drop((first, store));
    for pipe in pipes {
        // Nothing is there, or it stays.
        let _ = create_pipe(&pipe);
    }
    if swept && P::is_tenures(dir) {
        P::remove_as_other_program(dir);
    }
    check::<P>(dir, &scene, holder);
    touches >= killed.max(intruder).max(second)
}

/// The next process finds a usable store, and the lock of the other program that took it.
fn check<P: Protocol>(dir: &Path, scene: &str, other: Option<&str>) {
    let store = P::open(dir);
    let key = key::<P>(dir);
    let mut newest = Token(0);
    if let Some(other) = other {
        let pid = std::process::id();
        let (lease, verdict) = store
            .inspect(&key, soon())
            .unwrap()
            .lease()
            .cloned()
            .expect(scene);
        assert_eq!(
            lease.holder.id.as_str(),
            P::other_holder(other, pid),
            "{scene}"
        );
        assert_eq!(verdict, Verdict::Alive, "{scene}");
        assert!(P::is_other_programs(dir, other, pid), "{scene}");
        let asked = Ask::new(&key, "next").once(&store);
        assert!(matches!(asked, Acquired::Busy(_)), "{scene}: {asked:?}");
        assert!(
            store.reap(Reap::Free, soon()).unwrap().is_empty(),
            "{scene}"
        );
        P::remove_as_other_program(dir);
    } else {
        let events = store.history(&HistoryQuery::default(), soon()).unwrap();
        // Tenure never granted what another program held.
        let granted_here = |event: &&Event| event.token != Token::NONE;
        let ours: Vec<_> = events.iter().filter(granted_here).cloned().collect();
        let grants = ours.iter().filter(|event| event.kind == EventKind::Granted);
        newest = grants.map(|event| event.token).max().unwrap_or(newest);
        if ours.len() == events.len() {
            let flaws = history::contradictions(&ours);
            assert!(flaws.is_empty(), "{scene}: {flaws:?}");
        }
    }
    let lease = Ask::new(&key, "next").granted(&store);
    assert!(lease.token > newest, "{scene}");
    assert!(lease.token > Token::NONE, "{scene}");
    let _ = store.release(&lease.grant(), soon()).unwrap();
    assert!(!P::lock_path(dir).exists(), "{scene}");
    assert!(!P::has_leftovers(dir), "{scene}");
}

fn killed_anywhere<P: Protocol + 'static>() {
    let mut played = 0;
    for (before, verb) in SCENES {
        for killed in 1.. {
            played += 1;
            let interruption = Interruption {
                killed,
                ..Interruption::default()
            };
            if !play::<P>(before, verb, interruption) {
                break;
            }
        }
    }
    assert!(played > 40, "only {played}");
}

fn intruded_upon_anywhere<P: Protocol + 'static>() {
    let mut played = 0;
    for (before, verb) in SCENES {
        // Force removes any lock, the intruder's as well.
        if verb == Verb::Force {
            continue;
        }
        for intruder in 1.. {
            let alone = Interruption {
                intruder,
                ..Interruption::default()
            };
            if !play::<P>(before, verb, alone) {
                break;
            }
            for killed in intruder.. {
                played += 1;
                let killed = Interruption { killed, ..alone };
                let swept = Interruption {
                    swept: true,
                    ..killed
                };
                if !play::<P>(before, verb, killed) || !play::<P>(before, verb, swept) {
                    break;
                }
            }
            for second in intruder + 1.. {
                played += 1;
                if !play::<P>(before, verb, Interruption { second, ..alone }) {
                    break;
                }
            }
        }
    }
    assert!(played > 100, "only {played}");
}

#[test]
fn a_verb_of_the_exclusive_lock_that_is_killed_anywhere_is_finished_or_dropped() {
    killed_anywhere::<Exclusive>();
}

#[test]
fn a_verb_of_the_mkdir_lock_that_is_killed_anywhere_is_finished_or_dropped() {
    killed_anywhere::<Mkdir>();
}

#[test]
fn a_live_lock_file_that_appears_at_any_time_is_left_alone() {
    intruded_upon_anywhere::<Exclusive>();
}

#[test]
fn a_live_lock_folder_that_appears_at_any_time_is_left_alone() {
    intruded_upon_anywhere::<Mkdir>();
}
