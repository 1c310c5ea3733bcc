//! Tests the rules for working on tasks against an independent implementation of them.
#![allow(clippy::unwrap_used, reason = "test code fails by panicking")]

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use tenure_core::{Binding, Doubt, Evidence, Holder, HolderId, Lease, Mode, Token, Verdict};
use tenure_tasks::{
    LONGEST_BACKOFF, Offer, Permission, Picker, Proof, TaskState, backoff, key_of, may_change,
};

fn name(number: u8) -> HolderId {
    HolderId::parse(format!("runner {number}")).unwrap()
}

fn lease(holder: u8, token: u64) -> Lease {
    Lease {
        mode: Mode::Exclusive,
        slot: None,
        key: key_of("t").unwrap(),
        holder: Holder {
            id: name(holder),
            host: "here".into(),
            command: None,
            binding: Binding::Detached,
        },
        token: Token(token),
        acquired_at: Timestamp::UNIX_EPOCH,
        heartbeat_at: Timestamp::UNIX_EPOCH,
        expires: None,
        ttl: Duration::from_secs(60),
    }
}

/// A verdict, and whether a lease with that verdict is still held.
fn verdicts() -> impl Strategy<Value = (Verdict, bool)> {
    let expired = Evidence::TimeRanOut {
        expired_at: Timestamp::UNIX_EPOCH,
    };
    prop_oneof![
        Just((Verdict::Alive, true)),
        Just((Verdict::Unknown(Doubt::Detached), true)),
        Just((Verdict::Unknown(Doubt::OtherHost), true)),
        Just((Verdict::Malformed, true)),
        Just((Verdict::Dead(Evidence::ProcessGone { pid: 7 }), false)),
        Just((Verdict::Expired(expired), false)),
    ]
}

#[derive(Debug, Clone)]
struct Case {
    lease: Option<(u8, u64, (Verdict, bool))>,
    newest: u64,
    runner: Option<u8>,
    lost: Vec<u8>,
}

fn cases() -> impl Strategy<Value = Case> {
    (
        proptest::option::of((0..3_u8, 0..4_u64, verdicts())),
        0..4_u64,
        proptest::option::of(0..3_u8),
        proptest::collection::vec(0..3_u8, 0..3),
    )
        .prop_map(|(lease, newest, runner, lost)| Case {
            lease,
            newest,
            runner,
            lost,
        })
}

fn permission(case: &Case, proof: &Proof) -> Permission {
    let held = case
        .lease
        .as_ref()
        .map(|(holder, token, (verdict, _))| (lease(*holder, *token), verdict.clone()));
    let runner = case.runner.map(name);
    let lost: Vec<HolderId> = case.lost.iter().map(|&lost| name(lost)).collect();
    may_change(
        &TaskState {
            lease: held.as_ref().map(|(lease, verdict)| (lease, verdict)),
            newest: Token(case.newest),
            runner: runner.as_ref(),
            lost: &lost,
        },
        proof,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// By name: the holder may. If the task is not held, every name may from which it was not taken over.
    /// Any other caller is refused, and learns whether it had the task before.
    #[test]
    fn a_name_is_enough_for_the_holder_and_for_a_task_that_is_not_held(case in cases(), who in 0..3_u8) {
        let holder = case.lease.iter().find(|(_, _, (_, stands))| *stands).map(|(holder, ..)| *holder);
        let lost = case.lost.contains(&who);
        let wanted = match (holder, lost) {
            (Some(holder), _) if holder == who => Permission::Granted,
            (None, false) => Permission::Granted,
            (_, true) => Permission::Superseded,
            (Some(_), false) => Permission::Locked,
        };
        prop_assert_eq!(permission(&case, &Proof::Name(name(who))), wanted);
    }

    /// By token: only that of the newest grant, and only while no other lease is live and the task was not
    /// taken away from its holder. Never [`Token::NONE`].
    #[test]
    fn a_token_is_enough_while_it_is_the_newest(case in cases(), token in 0..5_u64) {
        let another_stands = case
            .lease
            .iter()
            .any(|(_, held, (_, stands))| *stands && *held != token);
        let stands = case.lease.iter().any(|(_, _, (_, stands))| *stands);
        let taken_away = !stands && case.runner.is_some_and(|runner| case.lost.contains(&runner));
        let may = token > 0 && token == case.newest && !another_stands && !taken_away;
        let wanted = if may { Permission::Granted } else { Permission::Superseded };
        prop_assert_eq!(permission(&case, &Proof::Token(Token(token))), wanted);
    }

    /// A runner takes the best task that is left when each waiter ahead of it has taken the best free
    /// task with its section, or an earlier task of its own section.
    #[test]
    fn the_picker_leaves_the_best_tasks_to_earlier_waiters(
        ahead in 0..4_usize,
        tasks in proptest::collection::vec((proptest::option::of(0..4_u8), 0..3_u8), 0..12),
    ) {
        // A section as a whole is free, held by the asking runner, or held by another.
        let offer = |(section, kind): &(Option<u8>, u8)| match section {
            None if *kind == 2 => Offer::Taken,
            Some(0) => Offer::Mine,
            Some(1) => Offer::Taken,
            Some(_) | None => Offer::Free,
        };
        let mut picker = Picker::behind(ahead);
        let taken = tasks.iter().position(|task| {
            let section = task.0.map(|section| format!("s{section}"));
            picker.takes(section.as_deref(), offer(task))
        });

        let mut gone: BTreeSet<usize> = BTreeSet::new();
        let mut sections: BTreeSet<u8> = BTreeSet::new();
        let free = |index: usize, gone: &BTreeSet<usize>, sections: &BTreeSet<u8>| {
            offer(&tasks[index]) == Offer::Free
                && !gone.contains(&index)
                && tasks[index].0.is_none_or(|section| !sections.contains(&section))
        };
        for _ in 0..ahead {
            if let Some(index) = (0..tasks.len()).find(|&index| free(index, &gone, &sections)) {
                gone.insert(index);
                sections.extend(tasks[index].0);
            }
        }
        let wanted = (0..tasks.len()).find(|&index| {
            offer(&tasks[index]) == Offer::Mine || free(index, &gone, &sections)
        });
        prop_assert_eq!(taken, wanted);
    }

    #[test]
    fn the_backoff_doubles_and_has_a_limit(attempts in 0..200_u64) {
        let pause = backoff(attempts);
        prop_assert!(pause >= Duration::from_secs(1) && pause <= LONGEST_BACKOFF);
        let after = backoff(attempts + 1);
        let doubled = (pause * 2).min(LONGEST_BACKOFF);
        prop_assert_eq!(after, if attempts == 0 { pause } else { doubled });
    }
}
