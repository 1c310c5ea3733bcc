//! Rule sets with one deliberate mistake each. The oracle must catch every one of them within [`CASES`]
//! simulations; otherwise its verdict on the standard rules would mean little.

use std::cell::RefCell;
use std::time::Duration;

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tenure_core::decide::{self, ClaimTicket, Decision, View};
use tenure_core::{
    Claim, Doubt, Epoch, Evidence, Lease, Liveness, Mode, Moment, Patience, Presence, Priority,
    Reason, Token, Waiter,
};

use crate::fixed_rng;
use crate::guarantee::Guarantee::{
    self, Fairness, OneHolder, OnlyHolderReleases, Progress, ProvenEnds, StaleGrantsRefused,
    TokensGrow, UnverifiableStays,
};
use crate::script::scripts;
use crate::simulation::Simulation;
use crate::store::Rules;

/// Some of these mistakes show only when several conditions coincide.
const CASES: u32 = 5_000;

/// Runs simulations with these rules until one violates one of these guarantees. A mistake may have other consequences,
/// too, and one of those may show first.
#[track_caller]
fn assert_caught(rules: Rules, as_one_of: &[Guarantee]) {
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    };
    let others = RefCell::new(Vec::new());
    let outcome = TestRunner::new_with_rng(config, fixed_rng()).run(&scripts(), |script| {
        let Err(failure) = Simulation::new(rules).play(&script) else {
            return Ok(());
        };
        let guarantee = failure.violation.guarantee;
        if as_one_of.contains(&guarantee) {
            return Err(TestCaseError::fail(failure.to_string()));
        }
        others.borrow_mut().push(guarantee);
        Ok(())
    });
    let others = others.into_inner();
    assert!(
        outcome.is_err(),
        "not caught as one of {as_one_of:?} in {CASES} simulations, but as {others:?}"
    );
}

type Acquire = fn(&Moment, &View, &Claim) -> Decision;

fn acquiring(acquire: Acquire) -> Rules {
    deciding(decide::Rules {
        acquire,
        ..decide::Rules::STANDARD
    })
}

fn deciding(decide: decide::Rules) -> Rules {
    Rules {
        decide,
        ..Rules::STANDARD
    }
}

/// The view with its leases, or what is known of their holders, changed.
fn with_leases(view: &View, change: impl Fn(&mut Lease, &mut Liveness)) -> View {
    let mut view = view.clone();
    for (lease, liveness) in &mut view.leases {
        change(lease, liveness);
    }
    view
}

/// The view with its waiters changed.
fn with_queue(view: &View, change: impl Fn(&mut Waiter)) -> View {
    let mut view = view.clone();
    view.queue.iter_mut().for_each(change);
    view
}

fn set_epoch(lease: &mut Lease, epoch: &Epoch) {
    if let Some(end) = &mut lease.expires {
        end.epoch = epoch.clone();
    }
}

fn dead() -> Liveness {
    Liveness::Gone(Evidence::ProcessGone { pid: 1 })
}

#[test]
fn taking_over_an_unverifiable_lease_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_leases(view, |lease, liveness| {
            if matches!(liveness, Liveness::Unverifiable(_)) && !lease.has_expired(now) {
                *liveness = dead();
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[UnverifiableStays]);
}

#[test]
fn taking_over_an_expired_lease_of_an_orphan_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_leases(view, |_, liveness| {
            if *liveness == Liveness::Orphaned {
                *liveness = Liveness::Running;
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[UnverifiableStays]);
}

#[test]
fn taking_over_a_malformed_lease_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_leases(view, |_, liveness| {
            if *liveness == Liveness::Unverifiable(Doubt::Malformed) {
                *liveness = Liveness::Unverifiable(Doubt::Unreadable);
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[UnverifiableStays]);
}

#[test]
fn taking_over_from_a_running_holder_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_leases(view, |_, liveness| {
            if *liveness == Liveness::Running {
                *liveness = dead();
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[OneHolder, UnverifiableStays]);
}

#[test]
fn measuring_a_lease_by_the_wall_clock_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_leases(view, |lease, _| set_epoch(lease, &Epoch::unknown()));
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[OneHolder, UnverifiableStays, ProvenEnds, Progress]);
}

#[test]
fn measuring_a_lease_by_the_clock_of_another_boot_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_leases(view, |lease, _| set_epoch(lease, &now.epoch));
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[UnverifiableStays, Progress, ProvenEnds]);
}

#[test]
fn issuing_the_same_token_twice_is_caught() {
    let rules = Rules {
        mint: |newest| newest.max(tenure_core::Token(1)),
        ..Rules::STANDARD
    };
    assert_caught(rules, &[TokensGrow]);
}

#[test]
fn a_new_token_for_an_extended_lease_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::Extend { mut lease, ticket } => {
            lease.token = lease.token.next().unwrap();
            Decision::Extend { lease, ticket }
        }
        other => other,
    });
    assert_caught(rules, &[TokensGrow]);
}

fn with_evidence(evidence: Option<&Evidence>, decision: Decision) -> Decision {
    match decision {
        Decision::Grant {
            reason,
            ended,
            instead_of,
            slot,
            ticket,
        } => Decision::Grant {
            instead_of,
            slot,
            reason,
            ended: ended
                .into_iter()
                .filter_map(|(lease, _)| Some((lease, evidence?.clone())))
                .collect(),
            ticket,
        },
        other => other,
    }
}

#[test]
fn taking_over_without_evidence_is_caught() {
    let rules =
        acquiring(|now, view, claim| with_evidence(None, decide::acquire(now, view, claim)));
    assert_caught(rules, &[ProvenEnds]);
}

#[test]
fn taking_over_with_made_up_evidence_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let evidence = Evidence::ProcessGone { pid: 1 };
        with_evidence(Some(&evidence), decide::acquire(now, view, claim))
    });
    assert_caught(rules, &[ProvenEnds]);
}

#[test]
fn never_taking_over_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::Grant { ended, ticket, .. } if !ended.is_empty() => {
            Decision::Wait { ticket, ahead: 0 }
        }
        other => other,
    });
    assert_caught(rules, &[Progress]);
}

#[test]
fn granting_a_free_key_to_any_claim_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::Wait { ticket, .. } if view.leases.is_empty() => Decision::Grant {
            reason: Reason::AcquiredNew,
            ended: vec![],
            instead_of: None,
            slot: None,
            ticket,
        },
        other => other,
    });
    assert_caught(rules, &[Fairness, OneHolder]);
}

#[test]
fn a_try_that_jumps_the_queue_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let mut view = view.clone();
        if claim.patience == Patience::Try {
            view.queue
                .retain(|waiter| waiter.holder.liveness_lock() == claim.asker.liveness_lock());
        }
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness]);
}

#[test]
fn waiting_for_absent_waiters_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_queue(view, |waiter| waiter.presence = Presence::Here);
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness, Progress]);
}

#[test]
fn using_a_ticket_of_another_waiter_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_queue(view, |waiter| {
            if waiter.holder.id == claim.holder.id {
                waiter.presence = Presence::Away;
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness]);
}

#[test]
fn not_resuming_a_ticket_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::Wait {
            ticket: ClaimTicket::Resumed(_),
            ahead,
        } => Decision::Wait {
            ticket: ClaimTicket::New,
            ahead,
        },
        other => other,
    });
    assert_caught(rules, &[Fairness]);
}

#[test]
fn resuming_a_ticket_after_a_reboot_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_queue(view, |waiter| waiter.epoch = now.epoch.clone());
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness, Progress]);
}

#[test]
fn a_waiter_that_counts_by_its_latest_priority_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_queue(view, |waiter| {
            if waiter.holder.liveness_lock() == claim.asker.liveness_lock() {
                waiter.priority = claim.priority;
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness, Progress]);
}

#[test]
fn priority_that_does_not_age_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_queue(view, |waiter| waiter.arrived = now.ticks);
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness, Progress]);
}

#[test]
fn priority_that_does_not_count_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_queue(view, |waiter| waiter.priority = Priority::default());
        let mut claim = claim.clone();
        claim.priority = Priority::default();
        decide::acquire(now, &view, &claim)
    });
    assert_caught(rules, &[Fairness, Progress]);
}

#[test]
fn counting_a_late_arrival_as_early_is_caught() {
    let rules = deciding(decide::Rules {
        arrival: |_, _| Duration::ZERO,
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[Fairness, Progress]);
}

#[test]
fn sharing_a_made_up_name_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let mut claim = claim.clone();
        claim.named = true;
        decide::acquire(now, view, &claim)
    });
    assert_caught(rules, &[OneHolder, Fairness, Progress]);
}

#[test]
fn sharing_a_lease_with_a_second_process_of_the_same_name_is_caught() {
    let rules = acquiring(|now, view, claim| match view.leases.first() {
        Some((lease, _)) if claim.named && lease.holder.id == claim.holder.id => Decision::Extend {
            lease: Box::new(lease.clone()),
            ticket: ClaimTicket::New,
        },
        _ => decide::acquire(now, view, claim),
    });
    assert_caught(rules, &[OneHolder]);
}

#[test]
fn sharing_a_lease_with_a_second_claim_of_the_same_process_is_caught() {
    let rules = acquiring(|now, view, claim| match view.leases.first() {
        Some((lease, Liveness::Running)) if lease.holder.binding == claim.holder.binding => {
            Decision::Extend {
                lease: Box::new(lease.clone()),
                ticket: ClaimTicket::New,
            }
        }
        _ => decide::acquire(now, view, claim),
    });
    assert_caught(rules, &[OneHolder]);
}

#[test]
fn extending_the_lease_of_a_dead_process_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_leases(view, |lease, liveness| {
            if matches!(liveness, Liveness::Gone(_)) && lease.holder.id == claim.holder.id {
                *liveness = Liveness::Running;
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[ProvenEnds, Progress]);
}

#[test]
fn extending_a_malformed_lease_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_leases(view, |lease, liveness| {
            if *liveness == Liveness::Unverifiable(Doubt::Malformed) && !lease.has_expired(now) {
                *liveness = Liveness::Running;
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[UnverifiableStays]);
}

#[test]
fn letting_a_claim_wait_for_itself_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let mut claim = claim.clone();
        claim.within.clear();
        decide::acquire(now, view, &claim)
    });
    assert_caught(rules, &[Progress]);
}

#[test]
fn a_release_by_an_earlier_grant_is_caught() {
    let rules = deciding(decide::Rules {
        release: |view, grant| {
            let mut leases = view.leases.iter().map(|(lease, _)| lease);
            leases.find(|lease| lease.holder.id == grant.holder)
        },
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[OnlyHolderReleases]);
}

#[test]
fn a_release_by_another_holder_is_caught() {
    let rules = deciding(decide::Rules {
        release: |view, grant| {
            let mut leases = view.leases.iter().map(|(lease, _)| lease);
            leases.find(|lease| lease.token == grant.token)
        },
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[OnlyHolderReleases]);
}

#[test]
fn a_renewal_by_an_earlier_grant_is_caught() {
    let rules = deciding(decide::Rules {
        renew: |view, grant| {
            let mut leases = view.leases.iter().map(|(lease, _)| lease);
            leases.find(|lease| lease.holder.id == grant.holder)
        },
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[StaleGrantsRefused]);
}

#[test]
fn a_fence_that_lets_older_tokens_through_is_caught() {
    let rules = deciding(decide::Rules {
        fence: |now, view, token| {
            let newest = view.leases.first().map(|(lease, _)| lease.token)?;
            decide::fence(now, view, newest).filter(|_| token <= newest)
        },
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[StaleGrantsRefused]);
}

#[test]
fn a_fence_that_ignores_expiry_is_caught() {
    let rules = deciding(decide::Rules {
        fence: |_, view, token| {
            let mut leases = view.leases.iter().map(|(lease, _)| lease);
            leases.find(|lease| lease.token == token)
        },
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[StaleGrantsRefused]);
}

#[test]
fn reaping_an_expired_lease_of_an_orphan_is_caught() {
    let rules = deciding(decide::Rules {
        ended: |now, lease, liveness| match liveness {
            Liveness::Orphaned => decide::ended(now, lease, &Liveness::Running),
            other => decide::ended(now, lease, other),
        },
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[UnverifiableStays]);
}

#[test]
fn reaping_nothing_is_caught() {
    let rules = deciding(decide::Rules {
        ended: |_, _, _| None,
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[Progress]);
}

#[test]
fn checking_only_new_claims_for_a_cycle_is_caught() {
    let rules = deciding(decide::Rules {
        may_close_cycle: |_, ticket| !matches!(ticket, ClaimTicket::Own(_)),
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[Progress]);
}

#[test]
fn checking_no_claim_for_a_cycle_is_caught() {
    let rules = deciding(decide::Rules {
        may_close_cycle: |_, _| false,
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[Progress]);
}

#[test]
fn admitting_a_shared_holder_beside_any_other_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = with_leases(view, |lease, _| {
            if claim.mode == Mode::Shared && lease.mode.is_exclusive() {
                lease.mode = Mode::Shared;
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[OneHolder, UnverifiableStays]);
}

#[test]
fn admitting_shared_holders_before_a_waiting_exclusive_one_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let mut view = view.clone();
        if claim.mode == Mode::Shared {
            view.queue.retain(|waiter| !waiter.mode.is_exclusive());
        }
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness]);
}

#[test]
fn admitting_one_holder_more_than_there_are_slots_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let mut view = view.clone();
        if matches!(claim.mode, Mode::Slots(_)) {
            view.leases.pop();
        }
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[OneHolder, UnverifiableStays]);
}

#[test]
fn giving_a_slot_to_two_holders_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::Grant {
            reason,
            ended,
            instead_of,
            slot,
            ticket,
        } => Decision::Grant {
            slot: slot.map(|_| 0),
            reason,
            ended,
            instead_of,
            ticket,
        },
        other => other,
    });
    assert_caught(rules, &[OneHolder]);
}

#[test]
fn giving_the_last_slot_to_a_later_waiter_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let mut view = view.clone();
        if matches!(claim.mode, Mode::Slots(_)) {
            let ours = |waiter: &Waiter| waiter.holder.id == claim.holder.id;
            view.queue.retain(|it| it.mode != claim.mode || ours(it));
        }
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness]);
}

#[test]
fn changing_to_exclusive_beside_other_holders_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let mut view = view.clone();
        let ours = |lease: &Lease| lease.holder.id == claim.holder.id;
        if view.leases.iter().any(|(lease, _)| ours(lease)) {
            view.leases.retain(|(lease, _)| ours(lease));
        }
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[OneHolder, UnverifiableStays, Fairness]);
}

#[test]
fn changing_to_exclusive_under_the_same_token_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::Grant {
            instead_of: Some(mut lease),
            slot,
            ticket,
            ..
        } => {
            lease.mode = claim.mode.clone();
            lease.slot = slot;
            Decision::Extend { lease, ticket }
        }
        other => other,
    });
    assert_caught(rules, &[OneHolder]);
}

#[test]
fn waiting_in_the_queue_to_change_the_mode_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::Grant {
            instead_of: Some(_),
            ticket,
            ..
        } if !view.queue.is_empty() => Decision::Wait { ticket, ahead: 1 },
        other => other,
    });
    assert_caught(rules, &[Progress, Fairness]);
}

#[test]
fn waiting_in_a_contradicting_mode_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::OtherMode { .. } => Decision::Wait {
            ticket: ClaimTicket::New,
            ahead: 0,
        },
        other => other,
    });
    assert_caught(rules, &[Progress, Fairness]);
}

/// The leases beside the one that a claim takes over, each with the proof of that one.
fn ending_more(
    view: &View,
    decision: Decision,
    also: impl Fn(&Lease, &Liveness) -> bool,
) -> Decision {
    match decision {
        Decision::Grant {
            reason,
            mut ended,
            instead_of,
            slot,
            ticket,
        } => {
            let proof = ended.first().map(|(_, proof)| proof.clone());
            let known: Vec<Token> = ended.iter().map(|(lease, _)| lease.token).collect();
            let others = view.leases.iter().filter(|(lease, liveness)| {
                let replaced = instead_of.as_ref().map(|lease| lease.token);
                !known.contains(&lease.token)
                    && replaced != Some(lease.token)
                    && also(lease, liveness)
            });
            let others = others.map(|(lease, _)| lease.clone());
            ended.extend(others.filter_map(|lease| Some((lease, proof.clone()?))));
            Decision::Grant {
                reason,
                ended,
                instead_of,
                slot,
                ticket,
            }
        }
        other => other,
    }
}

#[test]
fn ending_the_leases_of_all_holders_because_one_has_died_is_caught() {
    let rules = acquiring(|now, view, claim| {
        ending_more(view, decide::acquire(now, view, claim), |_, _| true)
    });
    assert_caught(rules, &[ProvenEnds, OneHolder, UnverifiableStays]);
}

#[test]
fn admitting_others_under_a_new_token_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::Extend { lease, ticket }
            if view
                .leases
                .iter()
                .any(|(it, _)| it.token == lease.token && it.mode != lease.mode) =>
        {
            Decision::Grant {
                reason: Reason::Upgraded,
                ended: Vec::new(),
                slot: lease.slot,
                instead_of: Some(lease),
                ticket,
            }
        }
        other => other,
    });
    assert_caught(rules, &[ProvenEnds, TokensGrow, OneHolder]);
}

#[test]
fn a_fence_that_lets_only_the_newest_of_several_tokens_through_is_caught() {
    let rules = deciding(decide::Rules {
        fence: |now, view, token| {
            let newest = view.leases.iter().map(|(lease, _)| lease.token).max();
            decide::fence(now, view, token).filter(|lease| Some(lease.token) == newest)
        },
        ..decide::Rules::STANDARD
    });
    let rules = Rules {
        shows_all: true,
        ..rules
    };
    assert_caught(rules, &[StaleGrantsRefused, Progress]);
}

#[test]
fn renewing_the_lease_of_another_shared_holder_is_caught() {
    let rules = deciding(decide::Rules {
        renew: |view, grant| {
            let other = |(lease, _): &&(Lease, Liveness)| lease.token != grant.token;
            match decide::renew(view, grant) {
                Some(own) => view
                    .leases
                    .iter()
                    .find(other)
                    .map(|(it, _)| it)
                    .or(Some(own)),
                None => None,
            }
        },
        ..decide::Rules::STANDARD
    });
    let rules = Rules {
        shows_all: true,
        ..rules
    };
    assert_caught(rules, &[StaleGrantsRefused, OneHolder, ProvenEnds]);
}

#[test]
fn a_second_holder_that_waits_to_have_the_key_alone_is_caught() {
    // Whether such a claim closes a cycle is not asked if its holder has the key.
    let rules = deciding(decide::Rules {
        may_close_cycle: |claim, ticket| {
            !claim.mode.is_exclusive() && decide::may_close_cycle(claim, ticket)
        },
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[Progress]);
}

#[test]
fn a_nested_shared_claim_that_waits_for_a_waiter_behind_itself_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let mut claim = claim.clone();
        if claim.mode == Mode::Shared && view.leases.iter().all(|(it, _)| it.mode == Mode::Shared) {
            claim.within.clear();
        }
        decide::acquire(now, view, &claim)
    });
    assert_caught(rules, &[Progress]);
}

/// A claim in which the paths of others are replaced by these, so that they are not what the store recorded.
fn with_paths_of_others(view: &View, claim: &Claim, paths: &str) -> View {
    let other: Mode = paths.parse().unwrap();
    let mut view = view.clone();
    if claim.mode.paths().is_some() {
        let leases = view
            .leases
            .iter_mut()
            .map(|(it, _)| (&mut it.mode, &it.holder));
        let waiters = view.queue.iter_mut().map(|it| (&mut it.mode, &it.holder));
        for (mode, holder) in leases.chain(waiters) {
            if mode.paths().is_some() && holder.id != claim.holder.id {
                *mode = other.clone();
            }
        }
    }
    view
}

#[test]
fn reserving_paths_that_another_holder_has_is_caught() {
    let rules = acquiring(|now, view, claim| {
        decide::acquire(
            now,
            &with_paths_of_others(view, claim, "paths:elsewhere"),
            claim,
        )
    });
    assert_caught(rules, &[OneHolder, UnverifiableStays, Fairness]);
}

#[test]
fn refusing_paths_that_no_other_holder_has_is_caught() {
    let rules = acquiring(|now, view, claim| {
        decide::acquire(now, &with_paths_of_others(view, claim, "paths:**"), claim)
    });
    assert_caught(rules, &[Progress, Fairness]);
}

#[test]
fn reserving_a_file_before_a_waiter_for_its_folder_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let mut view = view.clone();
        if claim.mode.paths().is_some() {
            let ours = |waiter: &Waiter| waiter.holder.id == claim.holder.id;
            view.queue.retain(ours);
        }
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness]);
}

#[test]
fn waiting_for_a_waiter_that_waits_for_the_claimant_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let mut view = view.clone();
        if claim.mode.paths().is_some() {
            view.leases
                .retain(|(it, _)| it.holder.id != claim.holder.id || it.mode == claim.mode);
        }
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Progress, ProvenEnds]);
}
