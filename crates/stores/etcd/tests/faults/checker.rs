//! Checks what the clients logged. It shares no code with the store.
//!
//! 1. No client used the key between the grant and the last use of another one.
//! 2. A grant that was asked for after another one was acknowledged has a larger token.
//! 3. What accepts writes only with the largest token so far refused every outdated one. A transaction that depends on a
//!    lease was refused after its end, and accepted while it was trusted.
//! 4. Every grant and release that was acknowledged is in the history of the store, which does not contradict itself.
//! 5. Every task that was added is there, once, also if an answer was lost. Every task that was ended is completed, and
//!    was ended by one client.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use tenure_core::{Event, EventKind};
use tenure_tasks::{Status, Task};
use tenure_testkit::history;

use super::client::{Line, When};
use super::key;

/// A grant, as its client saw it.
#[derive(Debug, Clone, Copy)]
struct Use {
    client: usize,
    asked: u64,
    from: u64,
    /// When it was used last; `None` for a grant that arrived too late to be trusted.
    until: Option<u64>,
    token: u64,
}

/// What was checked.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    grants: usize,
    uses: usize,
    renewals: usize,
    releases: usize,
    lost: usize,
    refused_writes: usize,
    accepted_transactions: usize,
    refused_transactions: usize,
    tasks_added: usize,
    tasks_done: usize,
    unknown: usize,
    failed: usize,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} grants, {} uses, {} renewals, {} releases, {} leases that were lost, {} outdated writes refused, {} transactions of \
             holders accepted, {} outdated ones refused, {} tasks added, {} tasks done, {} unknown outcomes, {} failed calls",
            self.grants,
            self.uses,
            self.renewals,
            self.releases,
            self.lost,
            self.refused_writes,
            self.accepted_transactions,
            self.refused_transactions,
            self.tasks_added,
            self.tasks_done,
            self.unknown,
            self.failed,
        )
    }
}

/// Checks the logs of all clients, the history of the store, its tasks, and what was written under the key in `place`.
pub(crate) fn check(logs: &[Vec<Line>], events: &[Event], tasks: &[Task], place: &Path) -> Checked {
    let mut checked = Checked::default();
    let mut uses: Vec<Use> = Vec::new();
    let mut released = BTreeSet::new();
    let (mut added, mut done) = (BTreeSet::new(), BTreeSet::new());
    for (client, log) in logs.iter().enumerate() {
        for line in log {
            match line {
                Line::Granted { asked, at, token } => uses.push(Use {
                    client,
                    asked: *asked,
                    from: *at,
                    until: None,
                    token: *token,
                }),
                Line::Used { at, token } => {
                    let used = uses.last_mut().unwrap();
                    assert_eq!(used.token, *token);
                    used.until = Some(*at);
                    checked.uses += 1;
                }
                Line::Renewed { .. } => checked.renewals += 1,
                Line::Refused { .. } => checked.refused_writes += 1,
                Line::Transaction { when, accepted } => match (when, accepted) {
                    (When::Outdated, true) => panic!("an outdated transaction was accepted"),
                    (When::Trusted, false) => panic!("the transaction of a holder was refused"),
                    (_, true) => checked.accepted_transactions += 1,
                    (_, false) => checked.refused_transactions += 1,
                },
                Line::Released { token } => assert!(released.insert(*token), "released twice"),
                Line::Gone { .. } => checked.lost += 1,
                Line::TaskAdded { title } => assert!(added.insert(title.as_str())),
                Line::TaskDone { id } => assert!(done.insert(id.as_str()), "{id} was done twice"),
                Line::Failed { unknown: true, .. } => checked.unknown += 1,
                Line::Failed { .. } => checked.failed += 1,
            }
        }
    }
    (checked.grants, checked.releases) = (uses.len(), released.len());
    let tokens: BTreeSet<u64> = uses.iter().map(|one| one.token).collect();
    assert_eq!(tokens.len(), uses.len(), "a token was granted twice");
    check_order(uses, logs.len());
    check_protected(place);
    check_history(events, &tokens, &released);
    check_tasks(tasks, &added, &done);
    (checked.tasks_added, checked.tasks_done) = (added.len(), done.len());
    checked
}

/// 1 and 2.
fn check_order(mut uses: Vec<Use>, clients: usize) {
    uses.sort_by_key(|one| one.from);
    let used: Vec<&Use> = uses.iter().filter(|one| one.until.is_some()).collect();
    for pair in used.windows(2) {
        let [before, after] = pair else { continue };
        assert!(
            before.until < Some(after.from),
            "both at once: {before:?}, {after:?}"
        );
    }
    let mut largest = 0;
    let mut acknowledged = uses.iter().peekable();
    let mut by_asked = uses.clone();
    by_asked.sort_by_key(|one| one.asked);
    for one in &by_asked {
        while let Some(earlier) = acknowledged.next_if(|earlier| earlier.from < one.asked) {
            largest = largest.max(earlier.token);
        }
        assert!(one.token > largest, "{one:?} came after token {largest}");
    }
    let served: BTreeSet<usize> = uses.iter().map(|one| one.client).collect();
    assert_eq!(served.len(), clients);
}

/// 3.
fn check_protected(place: &Path) {
    let accepted = std::fs::read_to_string(place.join("protected")).unwrap();
    let accepted: Vec<u64> = accepted.lines().map(|line| line.parse().unwrap()).collect();
    assert!(accepted.is_sorted(), "an outdated write was accepted");
}

/// 4.
fn check_history(events: &[Event], granted: &BTreeSet<u64>, released: &BTreeSet<u64>) {
    assert_eq!(history::contradictions(events), []);
    for (acknowledged, kind) in [
        (granted, EventKind::Granted),
        (released, EventKind::Released),
    ] {
        let recorded = history::tokens(events, &key(), kind);
        let is_missing = |token: &&u64| !recorded.iter().any(|one| one.0 == **token);
        let missing: Vec<&u64> = acknowledged.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "the history lacks {kind} {missing:?}");
    }
}

/// 5.
fn check_tasks(tasks: &[Task], added: &BTreeSet<&str>, done: &BTreeSet<&str>) {
    let titles: BTreeSet<&str> = tasks.iter().map(|task| task.title.as_str()).collect();
    assert_eq!(titles.len(), tasks.len(), "a task was added twice");
    let lost: Vec<_> = added.difference(&titles).collect();
    assert!(lost.is_empty(), "tasks were lost: {lost:?}");
    let completed = tasks.iter().filter(|task| task.status == Status::Completed);
    let completed: BTreeSet<&str> = completed.map(|task| task.id.as_str()).collect();
    let undone: Vec<_> = done.difference(&completed).collect();
    assert!(
        undone.is_empty(),
        "tasks were done, but are not: {undone:?}"
    );
}
