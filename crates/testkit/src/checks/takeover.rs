//! G3, G5: exactly one waiter takes over from a dead holder, and the history records the proof.

use tenure_core::{EventKind, Reason};

use crate::ask::Ask;
use crate::puppet::{Answer, Puppet};
use crate::run::{Run, until};
use crate::subject::Subject;

/// The number of waiters.
const WAITERS: usize = 8;

/// A holder is killed while eight processes wait and its lease lasts for another hour. Exactly one waiter takes
/// over, at once. It is the next to be killed.
pub fn exactly_one_of_many_waiters_takes_over_from_a_killed_holder(subject: &Subject) {
    let run = Run::begin(
        subject,
        "exactly_one_of_many_waiters_takes_over_from_a_killed_holder",
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
    first.unwrap_or_else(|| run.fail("no waiter took over"))
}
