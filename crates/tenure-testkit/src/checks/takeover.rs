//! G3, G5: a dead holder is followed by exactly one, and the proof is on record.

use tenure_core::{EventKind, Reason};

use crate::ask::Ask;
use crate::puppet::{Answer, Puppet};
use crate::run::{Run, until};
use crate::subject::Subject;

/// How many wait.
const WAITERS: usize = 8;

/// A holder is killed while eight wait, its lease good for an hour yet: exactly one of them
/// follows, at once. It is the next to be killed.
pub fn a_killed_holder_is_followed_by_exactly_one_of_many_waiters(subject: &Subject) {
    let run = Run::begin(
        subject,
        "a_killed_holder_is_followed_by_exactly_one_of_many_waiters",
    );
    let store = run.open();
    let key = subject.key();
    let mut names = (0..).map(|number| format!("runner-{number}"));
    let mut holder = run.puppet();
    let mut token = holder.granted(&Ask::new(key, &names.next().unwrap()));
    let mut waiters: Vec<Puppet> = Vec::new();
    let rounds = run.times(50);
    for _ in 0..rounds {
        while waiters.len() < WAITERS {
            let mut waiter = run.puppet();
            let ask = Ask::new(key, &names.next().unwrap());
            let _ = waiter.queued(&ask);
            waiters.push(waiter);
        }
        until(&*store, key, "every process to wait", |known| {
            known.queue.len() >= WAITERS
        });
        holder.kill();
        let (winner, answer) = first_answer(&run, &waiters);
        let Answer::Granted {
            token: next,
            reason,
            ..
        } = answer
        else {
            run.fail(&format!("a waiter was answered {answer:?}"));
        };
        assert_eq!(reason, Reason::ClaimedDead);
        assert!(next > token, "{next} after {token}");
        let events = run.history(&*store);
        let last: Vec<_> = events[events.len() - 2..]
            .iter()
            .map(|event| (event.kind, event.token, event.evidence.is_some()))
            .collect();
        assert_eq!(
            last,
            [
                (EventKind::Dead, token, true),
                (EventKind::Granted, next, false)
            ]
        );
        (holder, token) = (waiters.swap_remove(winner), next);
        if let Some(answer) = waiters.iter().find_map(Puppet::try_answer) {
            run.fail(&format!("a second waiter was answered {answer:?}"));
        }
    }
    drop((holder, waiters));
    run.finish(rounds + 1);
}

fn first_answer(run: &Run<'_>, waiters: &[Puppet]) -> (usize, Answer) {
    let mut first = None;
    crate::limit::within_limit("one of the waiters to follow", || {
        first = waiters
            .iter()
            .enumerate()
            .find_map(|(index, waiter)| Some((index, waiter.try_answer()?)));
        first.is_some()
    });
    first.unwrap_or_else(|| run.fail("nobody followed"))
}
