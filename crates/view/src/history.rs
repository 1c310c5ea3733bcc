//! What the history of a store proves ([`verify`]), and who held what when ([`spans`]).
//!
//! A history is pruned, and other programs write none. What it can't prove is said.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use tenure_core::decide::{self, Claimant};
use tenure_core::{Event, EventKind, HolderId, Key, Mode, Snapshot, Token};

/// What a history proves.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Proof {
    /// How many events it has.
    pub events: usize,
    /// How many grants.
    pub grants: usize,
    /// How many keys.
    pub keys: usize,
    /// Where two holders overlapped, or a token did not grow.
    pub violations: Vec<String>,
    /// What it can't prove.
    pub unproven: Vec<String>,
}

/// Checks that no two holders of a key overlapped, unless their modes allow it, and that tokens grew: in `events`, in the
/// order in which they were recorded, and in the leases that are on record now.
pub fn verify(events: &[Event], locks: &[Snapshot]) -> Proof {
    let mut proof = Proof {
        events: events.len(),
        ..Proof::default()
    };
    // The newest event of each grant that has not ended.
    let mut open: BTreeMap<&Key, BTreeMap<Token, &Event>> = BTreeMap::new();
    let mut newest: BTreeMap<&Key, Token> = BTreeMap::new();
    let mut earlier: BTreeSet<&Key> = BTreeSet::new();
    let (mut without_token, mut without_grant) = (0_usize, 0_usize);
    for event in events {
        let (key, token, at) = (&event.key, event.token, event.at);
        if matches!(event.kind, EventKind::Deleted | EventKind::Asked) {
            continue;
        }
        if token == Token::NONE {
            without_token += 1;
            continue;
        }
        let is_first = !open.contains_key(key);
        let held = open.entry(key).or_default();
        match event.kind {
            EventKind::Granted => {
                // The same grant, extended by its holder.
                if held.contains_key(&token) {
                    continue;
                }
                proof.grants += 1;
                let full = held.len() >= event.mode.room();
                for (other, lease) in held.iter() {
                    let own_paths = lease.holder == event.holder
                        && lease.mode.paths().is_some()
                        && event.mode.paths().is_some();
                    if full || !own_paths && !lease.mode.admits(&event.mode) {
                        proof.violations.push(format!(
                            "{key}: event {} grants token {token} to {} at {at:.3}, while token {other} of {} has not ended",
                            event.id, event.holder, lease.holder
                        ));
                    }
                }
                if let Some(last) = newest.get(key).filter(|last| **last >= token) {
                    proof.violations.push(format!(
                        "{key}: event {} grants token {token} at {at:.3} after token {last}: tokens must grow",
                        event.id
                    ));
                }
                newest.insert(key, token);
                held.insert(token, event);
            }
            _ if is_first => {
                earlier.insert(key);
                newest.insert(key, token);
                if event.kind == EventKind::Renewed {
                    held.insert(token, event);
                }
            }
            EventKind::Renewed => {
                let overtaken = newest.get(key).is_some_and(|last| *last > token);
                if overtaken && !held.contains_key(&token) && !earlier.contains(key) {
                    proof.violations.push(format!(
                        "{key}: event {} renews token {token} at {at:.3}, after a newer one was granted",
                        event.id
                    ));
                }
                // A holder that admits others has another mode from here on.
                held.insert(token, event);
            }
            _ => {
                let was_granted = held.remove(&token).is_some();
                without_grant += usize::from(!was_granted && !earlier.contains(key));
            }
        }
    }
    proof.keys = open.len();
    together(locks, &mut proof.violations);
    let unknown = locks.iter().flat_map(|lock| &lock.leases);
    let unknown = unknown.filter(|(lease, _)| {
        let granted = open.get(&lease.key);
        lease.token != Token::NONE && granted.is_some_and(|open| !open.contains_key(&lease.token))
    });
    without_grant += unknown.count();
    if !earlier.is_empty() {
        proof.unproven.push(format!(
            "{} of {} keys were held before the first event that is kept",
            earlier.len(),
            proof.keys
        ));
    }
    if without_grant > 0 {
        proof.unproven.push(format!(
            "{without_grant} of the leases that ended or are held now have no grant in the history"
        ));
    }
    if without_token > 0 {
        proof.unproven.push(format!(
            "{without_token} events are about locks of other programs, which have no token"
        ));
    }
    proof
}

/// Leases that are on record together, although their modes do not allow it.
fn together(locks: &[Snapshot], violations: &mut Vec<String>) {
    for lock in locks {
        let standing = lock.leases.iter();
        let mut standing = standing.filter(|(_, verdict)| verdict.ended().is_none());
        while let Some((one, _)) = standing.next() {
            for (two, _) in standing.clone() {
                let claimant = Claimant {
                    mode: &two.mode,
                    holder: &two.holder.id,
                    named: true,
                };
                if !decide::compatible_with(one, claimant) {
                    violations.push(format!(
                        "{}: token {} of {} and token {} of {} are on record together",
                        lock.key, one.token, one.holder.id, two.token, two.holder.id
                    ));
                }
            }
        }
    }
}

/// Which events are not kept, where each has the next number.
pub fn missing(events: &[Event]) -> Option<String> {
    let (first, last) = (events.first()?.id, events.last()?.id);
    let kept = u64::try_from(events.len()).unwrap_or(u64::MAX);
    let missing = last.saturating_sub(kept);
    if missing == 0 {
        return None;
    }
    let before = first.saturating_sub(1);
    Some(if before == missing {
        format!("events 1 to {before} are no longer kept")
    } else {
        format!("{missing} of the events 1 to {last} are no longer kept")
    })
}

/// One grant, from its beginning to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The key.
    pub key: Key,
    /// The holder.
    pub holder: HolderId,
    /// The token.
    pub token: Token,
    /// How it was held, in the end.
    pub mode: Mode,
    /// Since when its holder waited for it; `None` if it did not, or if that is not in the history.
    pub waited_since: Option<Timestamp>,
    /// When it began; `None` if that is not in the history.
    pub from: Option<Timestamp>,
    /// When it ended; `None` if it has not.
    pub to: Option<Timestamp>,
    /// How it ended.
    pub end: Option<EventKind>,
    /// Whether it was taken over from another holder.
    pub taken_over: bool,
}

/// The grants in a history, in the order in which they began.
pub fn spans(events: &[Event]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    // The grants that have not ended, by their place in the list.
    let mut open: HashMap<(&Key, Token, &HolderId), usize> = HashMap::new();
    for event in events {
        let grant = (&event.key, event.token, &event.holder);
        let known = open.get(&grant).copied();
        match (event.kind, known) {
            (EventKind::Deleted | EventKind::Asked, _) => {}
            (EventKind::Granted | EventKind::Renewed, Some(known)) => {
                if let Some(span) = spans.get_mut(known) {
                    span.mode = event.mode.clone();
                }
            }
            (EventKind::Granted, None) => {
                open.insert(grant, spans.len());
                spans.push(Span {
                    waited_since: event.waited_since(),
                    from: Some(event.at),
                    taken_over: event
                        .reason
                        .as_deref()
                        .is_some_and(|why| why.starts_with("claimed")),
                    ..Span::of(event)
                });
            }
            (EventKind::Renewed, None) => {
                open.insert(grant, spans.len());
                spans.push(Span::of(event));
            }
            (kind, known) => {
                open.remove(&grant);
                let at = known.unwrap_or(spans.len());
                if known.is_none() {
                    spans.push(Span::of(event));
                }
                if let Some(span) = spans.get_mut(at) {
                    span.to = Some(event.at);
                    span.end = Some(kind);
                }
            }
        }
    }
    spans
}

/// The grants of a key in rows, each with the wait before it, so that none in a row overlaps another one in it. Each is in
/// the first row that has room.
pub fn rows(spans: Vec<Span>) -> Vec<Vec<Span>> {
    let mut rows: Vec<Vec<Span>> = Vec::new();
    for span in spans {
        let has_room = |row: &&mut Vec<Span>| {
            let last = row.last().and_then(|last| last.to);
            last.is_some_and(|end| span.begin().is_some_and(|begin| end <= begin))
        };
        match rows.iter_mut().find(has_room) {
            Some(row) => row.push(span),
            None => rows.push(vec![span]),
        }
    }
    rows
}

impl Span {
    fn of(event: &Event) -> Self {
        Self {
            key: event.key.clone(),
            holder: event.holder.clone(),
            token: event.token,
            mode: event.mode.clone(),
            waited_since: None,
            from: None,
            to: None,
            end: None,
            taken_over: false,
        }
    }

    /// When it began, with the wait before it.
    pub fn begin(&self) -> Option<Timestamp> {
        self.waited_since.or(self.from)
    }

    /// How long its holder waited for it.
    pub fn waited(&self) -> Option<Duration> {
        let waited = self.from?.duration_since(self.waited_since?);
        Duration::try_from(waited).ok()
    }

    /// Whether its holder lost it: it ended without a release.
    pub fn was_lost(&self) -> bool {
        matches!(
            self.end,
            Some(EventKind::Expired | EventKind::Dead | EventKind::Forced)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: u64, kind: EventKind, key: &str, token: u64, holder: &str) -> Event {
        Event {
            id,
            at: Timestamp::from_second(i64::try_from(id).unwrap()).unwrap(),
            key: Key::parse(key).unwrap(),
            kind,
            mode: Mode::Exclusive,
            token: Token(token),
            holder: HolderId::parse(holder).unwrap(),
            times: 1,
            reason: None,
            evidence: None,
            waited: None,
        }
    }

    #[test]
    fn a_proper_history_is_sound() {
        use EventKind::{Dead, Granted, Released, Renewed};
        let proof = verify(
            &[
                event(1, Granted, "a", 1, "x"),
                event(2, Granted, "b", 2, "x"),
                event(3, Renewed, "a", 1, "x"),
                event(4, Released, "a", 1, "x"),
                event(5, Granted, "a", 3, "y"),
                event(6, Dead, "b", 2, "x"),
                event(7, Granted, "b", 4, "y"),
            ],
            &[],
        );
        assert_eq!(proof.violations, Vec::<String>::new());
        assert_eq!(proof.unproven, Vec::<String>::new());
        assert_eq!((proof.grants, proof.keys), (4, 2));
    }

    #[test]
    fn an_overlap_a_token_that_shrinks_and_a_late_renewal_are_violations() {
        use EventKind::{Granted, Released, Renewed};
        let overlap = verify(
            &[
                event(1, Granted, "a", 1, "x"),
                event(2, Granted, "a", 2, "y"),
            ],
            &[],
        );
        assert!(
            overlap.violations[0].contains("has not ended"),
            "{overlap:?}"
        );
        let shrinks = verify(
            &[
                event(1, Granted, "a", 2, "x"),
                event(2, Released, "a", 2, "x"),
                event(3, Granted, "a", 2, "y"),
            ],
            &[],
        );
        assert!(shrinks.violations[0].contains("must grow"), "{shrinks:?}");
        let late = verify(
            &[
                event(1, Granted, "a", 1, "x"),
                event(2, Released, "a", 1, "x"),
                event(3, Granted, "a", 2, "y"),
                event(4, Renewed, "a", 1, "x"),
            ],
            &[],
        );
        assert!(late.violations[0].contains("after a newer one"), "{late:?}");
    }

    #[test]
    fn holders_overlap_only_as_their_modes_allow() {
        use EventKind::{Granted, Released};
        let two = "slots:2".parse().unwrap();
        let as_mode = |mode: Mode, event: Event| Event { mode, ..event };
        for (mode, allowed) in [(Mode::Shared, 3), (two, 2), (Mode::Exclusive, 1)] {
            let grants: Vec<Event> = (1..=3)
                .map(|id| as_mode(mode.clone(), event(id, Granted, "a", id, "x")))
                .collect();
            let proof = verify(&grants, &[]);
            assert_eq!(proof.violations.is_empty(), allowed == 3, "{proof:?}");
            assert!(verify(&grants[..allowed], &[]).violations.is_empty());
        }
        let mixed = verify(
            &[
                as_mode(Mode::Shared, event(1, Granted, "a", 1, "x")),
                event(2, Granted, "a", 2, "y"),
                event(3, Released, "a", 1, "x"),
            ],
            &[],
        );
        assert_eq!(mixed.violations.len(), 1, "{mixed:?}");
    }

    #[test]
    fn what_was_pruned_is_said() {
        use EventKind::{Granted, Released};
        let proof = verify(
            &[
                event(8, Released, "a", 1, "x"),
                event(9, Granted, "a", 2, "y"),
            ],
            &[],
        );
        assert_eq!(proof.violations, Vec::<String>::new());
        assert_eq!(proof.unproven.len(), 1);
    }

    #[test]
    fn grants_that_overlap_are_in_rows_of_their_own() {
        use EventKind::{Granted, Released};
        let found = spans(&[
            event(1, Granted, "a", 1, "x"),
            event(2, Granted, "a", 2, "y"),
            event(3, Released, "a", 1, "x"),
            event(4, Granted, "a", 3, "z"),
            event(5, Released, "a", 3, "z"),
            event(5, Granted, "a", 4, "x"),
        ]);
        let tokens: Vec<Vec<u64>> = rows(found)
            .iter()
            .map(|row| row.iter().map(|span| span.token.0).collect())
            .collect();
        assert_eq!(tokens, [vec![1, 3, 4], vec![2]]);
    }

    #[test]
    fn a_grant_that_was_waited_for_is_in_a_row_below_the_holder_before_it() {
        use EventKind::{Granted, Released};
        let waited = |seconds, event| Event {
            waited: Some(Duration::from_secs(seconds)),
            ..event
        };
        let found = spans(&[
            event(1, Granted, "a", 1, "x"),
            event(5, Released, "a", 1, "x"),
            waited(3, event(6, Granted, "a", 2, "y")),
            event(7, Released, "a", 2, "y"),
            event(8, Granted, "a", 3, "x"),
        ]);
        assert_eq!(found[1].waited(), Some(Duration::from_secs(3)));
        assert_eq!(found[1].begin(), Some(Timestamp::from_second(3).unwrap()));
        assert_eq!((found[0].waited(), found[2].waited()), (None, None));
        let rows = rows(found);
        let tokens = |row: &Vec<Span>| row.iter().map(|span| span.token.0).collect::<Vec<_>>();
        assert_eq!(
            rows.iter().map(tokens).collect::<Vec<_>>(),
            [vec![1, 3], vec![2]]
        );
    }

    #[test]
    fn grants_become_spans_that_end_as_they_did() {
        use EventKind::{Dead, Granted, Released, Renewed};
        let found = spans(&[
            event(1, Released, "a", 1, "x"),
            event(2, Granted, "a", 2, "y"),
            event(3, Renewed, "a", 2, "y"),
            event(4, Dead, "a", 2, "y"),
            event(5, Granted, "a", 3, "z"),
        ]);
        let ends: Vec<_> = found
            .iter()
            .map(|span| (span.from.is_some(), span.end))
            .collect();
        assert_eq!(
            ends,
            [(false, Some(Released)), (true, Some(Dead)), (true, None)]
        );
        assert!(found[1].was_lost());
    }
}
