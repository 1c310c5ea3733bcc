//! Checks a store's history for contradictions.
//!
//! For every key separately:
//!
//! 1. A lease is granted only when no other is live, unless both are shared or have a slot (G1).
//! 2. Every token is larger than all earlier ones (G2).
//! 3. A renewal or an end names the live lease: same token, same holder (G6).
//! 4. Every end except a release has evidence of the right kind (G3).
//! 5. A grant that took over a dead or expired lease directly follows that end, and others of the same step.
//!
//! A pruned history can't be checked, because its beginning is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tenure_core::{Event, EventKind, HolderId, Key, Mode, Token};

/// A contradiction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    /// The event that contradicts the earlier ones.
    pub event: u64,
    /// The key.
    pub key: Key,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {} of {}: {}", self.event, self.key, self.what)
    }
}

/// The state of a key at one point of its history.
#[derive(Default)]
struct KeyState<'a> {
    leases: BTreeMap<Token, (&'a HolderId, &'a Mode)>,
    newest: Option<Token>,
    /// How leases have ended since the last grant, renewal or release.
    ends: Vec<EventKind>,
}

/// The contradictions in a complete history, oldest event first.
pub fn contradictions(events: &[Event]) -> Vec<Contradiction> {
    let mut keys: BTreeMap<&Key, KeyState<'_>> = BTreeMap::new();
    let mut contradictions = Vec::new();
    let mut last_id = 0;
    for event in events {
        let mut say = |what: String| {
            contradictions.push(Contradiction {
                event: event.id,
                key: event.key.clone(),
                what,
            });
        };
        if event.id <= last_id {
            say(format!("it comes after event {last_id}"));
        }
        last_id = event.id;
        if event.kind == EventKind::Asked {
            continue;
        }
        let state = keys.entry(&event.key).or_default();
        if event.kind == EventKind::Granted {
            grant(state, event, &mut say);
        } else {
            renew_or_end(state, event, &mut say);
        }
        match event.kind {
            EventKind::Dead | EventKind::Expired => state.ends.push(event.kind),
            _ => state.ends.clear(),
        }
    }
    contradictions
}

fn grant<'a>(state: &mut KeyState<'a>, event: &'a Event, say: &mut impl FnMut(String)) {
    let room = match event.mode {
        Mode::Exclusive => 0,
        Mode::Shared | Mode::Paths(_) => usize::MAX,
        Mode::Slots(slots) => slots.get() as usize - 1,
    };
    for (token, (holder, mode)) in &state.leases {
        let together = match (*mode, &event.mode) {
            (Mode::Paths(one), Mode::Paths(other)) => {
                **holder == event.holder || one.conflict(other).is_none()
            }
            (mode, asked) => mode == asked,
        };
        if !together || state.leases.len() > room {
            say(format!(
                "granted to {} ({}) while {holder} holds it with token {token} ({mode})",
                event.holder, event.mode
            ));
        }
    }
    if let Some(newest) = state.newest.filter(|newest| event.token <= *newest) {
        say(format!("token {} after {newest}", event.token));
    }
    let follows = match event.reason.as_deref() {
        Some("acquired_new" | "upgraded") => None,
        Some("claimed_dead") => Some(EventKind::Dead),
        Some("claimed_expired") => Some(EventKind::Expired),
        other => return say(format!("granted for the reason {other:?}")),
    };
    if follows.is_some_and(|follows| !state.ends.contains(&follows)) {
        say(format!(
            "{:?} does not follow on {:?}",
            event.reason, state.ends
        ));
    }
    let lease = (&event.holder, &event.mode);
    state.leases.insert(event.token, lease);
    state.newest = Some(event.token);
}

fn renew_or_end<'a>(state: &mut KeyState<'a>, event: &'a Event, say: &mut impl FnMut(String)) {
    let kind = event.kind;
    if kind == EventKind::Deleted && state.leases.is_empty() {
        return;
    }
    match state.leases.get(&event.token) {
        Some((holder, _)) if **holder == event.holder => {}
        _ if state.leases.is_empty() => say(format!("{kind}, but nobody holds it")),
        _ => say(format!(
            "{kind} of {} with token {}, but it is held by {:?}",
            event.holder, event.token, state.leases
        )),
    }
    match (kind, &event.evidence) {
        (EventKind::Released | EventKind::Renewed, None) => {}
        (EventKind::Released | EventKind::Renewed, Some(evidence)) => {
            say(format!("{kind} needs no evidence: {evidence}"));
        }
        (_, None) => say(format!("{kind} without evidence")),
        (_, Some(evidence)) if EventKind::of(evidence) != kind => {
            say(format!("{kind} does not follow from: {evidence}"));
        }
        (_, Some(_)) => {}
    }
    state.leases.remove(&event.token);
    if kind == EventKind::Renewed {
        // A holder that admits others keeps its lease.
        let lease = (&event.holder, &event.mode);
        state.leases.insert(event.token, lease);
    }
}

/// The tokens of a key's events of one kind.
pub fn tokens(events: &[Event], key: &Key, kind: EventKind) -> BTreeSet<Token> {
    events
        .iter()
        .filter(|event| event.kind == kind && event.key == *key)
        .map(|event| event.token)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use tenure_core::Evidence;

    fn event(id: u64, kind: EventKind, token: u64, holder: &str) -> Event {
        let evidence = match kind {
            EventKind::Granted | EventKind::Renewed | EventKind::Released => None,
            EventKind::Expired => Some(Evidence::TimeRanOut {
                expired_at: Timestamp::UNIX_EPOCH,
            }),
            EventKind::Dead => Some(Evidence::ProcessGone { pid: 1 }),
            EventKind::Forced => Some(Evidence::Forced {
                by: HolderId::parse("admin").unwrap(),
                reason: None,
            }),
            other => panic!("no evidence is known for {other}"),
        };
        Event {
            id,
            at: Timestamp::UNIX_EPOCH,
            key: Key::parse("build").unwrap(),
            kind,
            mode: Mode::Exclusive,
            token: Token(token),
            holder: HolderId::parse(holder).unwrap(),
            times: 1,
            reason: (kind == EventKind::Granted).then(|| "acquired_new".into()),
            evidence,
            waited: None,
        }
    }

    fn words(events: &[Event]) -> String {
        let contradictions: Vec<String> = contradictions(events)
            .iter()
            .map(ToString::to_string)
            .collect();
        contradictions.join("; ")
    }

    use EventKind::{Dead, Expired, Forced, Granted, Released, Renewed};

    fn because(reason: &str, event: Event) -> Event {
        Event {
            reason: Some(reason.into()),
            ..event
        }
    }

    #[test]
    fn a_consistent_history_has_no_contradiction() {
        let other_key = Event {
            key: Key::parse("docs").unwrap(),
            ..event(3, Granted, 1, "b")
        };
        let events = [
            event(1, Granted, 1, "a"),
            event(2, Renewed, 1, "a"),
            other_key,
            event(4, Released, 1, "a"),
            event(5, Granted, 2, "b"),
            event(6, Dead, 2, "b"),
            because("claimed_dead", event(7, Granted, 3, "c")),
            event(8, Expired, 3, "c"),
            because("claimed_expired", event(9, Granted, 7, "a")),
            event(10, Forced, 7, "a"),
            event(11, Granted, 8, "a"),
        ];
        assert_eq!(words(&events), "");
    }

    #[test]
    fn two_holders_at_once_are_a_contradiction() {
        let found = words(&[event(1, Granted, 1, "a"), event(2, Granted, 2, "b")]);
        assert_eq!(
            found,
            "event 2 of build: granted to b (exclusive) while a holds it with token 1 (exclusive)"
        );
    }

    #[test]
    fn a_token_that_does_not_grow_is_a_contradiction() {
        for token in [4, 5] {
            let found = words(&[
                event(1, Granted, 5, "a"),
                event(2, Released, 5, "a"),
                event(3, Granted, token, "b"),
            ]);
            assert_eq!(found, format!("event 3 of build: token {token} after 5"));
        }
    }

    #[test]
    fn an_end_without_evidence_or_with_the_wrong_evidence_is_a_contradiction() {
        for kind in [Expired, Dead, Forced] {
            let bare = Event {
                evidence: None,
                ..event(2, kind, 1, "a")
            };
            let found = words(&[event(1, Granted, 1, "a"), bare]);
            assert_eq!(found, format!("event 2 of build: {kind} without evidence"));
        }
        let wrong = Event {
            kind: Expired,
            ..event(2, Dead, 1, "a")
        };
        let found = words(&[event(1, Granted, 1, "a"), wrong]);
        assert!(
            found.contains("expired does not follow from: pid 1 has exited"),
            "{found}"
        );
    }

    #[test]
    fn an_end_of_another_lease_or_of_none_is_a_contradiction() {
        for (token, holder) in [(2, "a"), (1, "b")] {
            let found = words(&[event(1, Granted, 1, "a"), event(2, Released, token, holder)]);
            assert!(
                found.contains("but it is held by {Token(1)"),
                "{token} {holder}: {found}"
            );
        }
        let twice = [
            event(1, Granted, 1, "a"),
            event(2, Released, 1, "a"),
            event(3, Expired, 1, "a"),
        ];
        assert_eq!(
            words(&twice),
            "event 3 of build: expired, but nobody holds it"
        );
    }

    #[test]
    fn a_takeover_from_a_dead_holder_follows_its_death() {
        let found = words(&[
            event(1, Granted, 1, "a"),
            event(2, Released, 1, "a"),
            because("claimed_dead", event(3, Granted, 2, "b")),
        ]);
        assert!(found.contains("does not follow on"), "{found}");
    }

    #[test]
    fn events_out_of_order_are_a_contradiction() {
        let found = words(&[event(2, Granted, 1, "a"), event(1, Released, 1, "a")]);
        assert_eq!(found, "event 1 of build: it comes after event 2");
    }
}
