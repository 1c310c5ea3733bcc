//! Rules that are broken on purpose: an oracle that lets one of them pass could not be trusted
//! with ours. Each is ours but for one thing, and has to be caught within [`CASES`] stories.

use std::cell::Cell;
use std::time::Duration;

use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tenure_core::decide::{self, ClaimTicket, Decision, View};
use tenure_core::{
    Claim, Doubt, Epoch, Evidence, Lease, Liveness, Moment, Patience, Presence, Priority, Reason,
    Waiter,
};

use crate::judgement::Guarantee::{
    self, Fairness, FourEnds, LateWriters, OneHolder, OnlyTheHolder, Progress, TokensGrow,
    UnknownStands,
};
use crate::machine::Rules;
use crate::same_dice;
use crate::script::scripts;
use crate::story::Story;

/// Some of these mistakes matter only when several things come together.
const CASES: u32 = 2_000;

/// Plays stories by these rules until one breaks a guarantee, and says which.
fn caught(rules: Rules) -> Option<Guarantee> {
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    };
    let broken = Cell::new(None);
    let outcome = TestRunner::new_with_rng(config, same_dice()).run(&scripts(), |script| {
        Story::new(rules).play(&script).map_err(|failed| {
            broken.set(Some(failed.broken.guarantee));
            TestCaseError::fail(failed.to_string())
        })
    });
    assert_eq!(outcome.is_err(), broken.get().is_some());
    broken.get()
}

#[track_caller]
fn assert_caught(rules: Rules, as_one_of: &[Guarantee]) {
    let caught = caught(rules);
    assert!(
        caught.is_some_and(|guarantee| as_one_of.contains(&guarantee)),
        "caught as {caught:?}, not as one of {as_one_of:?}"
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
        ..Rules::OURS
    }
}

/// Ours, but for what is known of the holder.
fn as_if(view: &View, believe: impl Fn(&mut Lease, &mut Liveness)) -> View {
    let mut view = view.clone();
    for (lease, liveness) in &mut view.leases {
        believe(lease, liveness);
    }
    view
}

/// Ours, but for what is known of those who wait.
fn lined_up(view: &View, believe: impl Fn(&mut Waiter)) -> View {
    let mut view = view.clone();
    view.queue.iter_mut().for_each(believe);
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
fn taking_over_from_the_unknown_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = as_if(view, |lease, liveness| {
            if matches!(liveness, Liveness::Unverifiable(_)) && !lease.has_expired(now) {
                *liveness = dead();
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[UnknownStands]);
}

#[test]
fn taking_over_from_an_orphan_after_its_time_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = as_if(view, |_, liveness| {
            if *liveness == Liveness::Orphaned {
                *liveness = Liveness::Running;
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[UnknownStands]);
}

#[test]
fn taking_over_what_cannot_be_understood_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = as_if(view, |_, liveness| {
            if *liveness == Liveness::Unverifiable(Doubt::Malformed) {
                *liveness = Liveness::Unverifiable(Doubt::Unreadable);
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[UnknownStands]);
}

#[test]
fn taking_over_from_the_living_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = as_if(view, |_, liveness| {
            if *liveness == Liveness::Running {
                *liveness = dead();
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[OneHolder]);
}

#[test]
fn believing_the_wall_clock_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = as_if(view, |lease, _| set_epoch(lease, &Epoch::unknown()));
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[OneHolder, UnknownStands, FourEnds, Progress]);
}

#[test]
fn believing_the_boot_clock_of_another_boot_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = as_if(view, |lease, _| set_epoch(lease, &now.epoch));
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[UnknownStands, Progress, FourEnds]);
}

#[test]
fn giving_a_token_again_is_caught() {
    let rules = Rules {
        mint: |newest| newest.max(tenure_core::Token(1)),
        ..Rules::OURS
    };
    assert_caught(rules, &[TokensGrow]);
}

#[test]
fn a_new_token_for_the_same_holding_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::Extend { mut lease, ticket } => {
            lease.token = lease.token.next();
            Decision::Extend { lease, ticket }
        }
        other => other,
    });
    assert_caught(rules, &[TokensGrow]);
}

fn proving_it_by(evidence: Option<Evidence>, decision: Decision) -> Decision {
    match decision {
        Decision::Grant {
            reason,
            ended,
            ticket,
        } => Decision::Grant {
            reason,
            ended: ended
                .into_iter()
                .filter_map(|(lease, _)| Some((lease, evidence.clone()?)))
                .collect(),
            ticket,
        },
        other => other,
    }
}

#[test]
fn taking_over_without_evidence_is_caught() {
    let rules =
        acquiring(|now, view, claim| proving_it_by(None, decide::acquire(now, view, claim)));
    assert_caught(rules, &[FourEnds]);
}

#[test]
fn taking_over_with_made_up_evidence_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let evidence = Evidence::ProcessGone { pid: 1 };
        proving_it_by(Some(evidence), decide::acquire(now, view, claim))
    });
    assert_caught(rules, &[FourEnds]);
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
fn giving_a_free_key_to_any_claim_is_caught() {
    let rules = acquiring(|now, view, claim| match decide::acquire(now, view, claim) {
        Decision::Wait { ticket, .. } if view.leases.is_empty() => Decision::Grant {
            reason: Reason::AcquiredNew,
            ended: vec![],
            ticket,
        },
        other => other,
    });
    assert_caught(rules, &[Fairness]);
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
fn waiting_for_those_who_are_away_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = lined_up(view, |waiter| waiter.presence = Presence::Here);
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness, Progress]);
}

#[test]
fn using_a_ticket_of_another_waiter_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = lined_up(view, |waiter| {
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
        let view = lined_up(view, |waiter| waiter.epoch = now.epoch.clone());
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness, Progress]);
}

#[test]
fn a_waiter_that_counts_by_its_latest_priority_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = lined_up(view, |waiter| {
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
        let view = lined_up(view, |waiter| waiter.arrived = now.ticks);
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[Fairness, Progress]);
}

#[test]
fn priority_that_does_not_count_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = lined_up(view, |waiter| waiter.priority = Priority::default());
        let mut claim = claim.clone();
        claim.priority = Priority::default();
        decide::acquire(now, &view, &claim)
    });
    assert_caught(rules, &[Fairness, Progress]);
}

#[test]
fn late_comers_who_count_as_early_are_caught() {
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
fn sharing_a_lease_with_a_second_process_of_the_name_is_caught() {
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
fn sharing_a_lease_with_a_second_asking_of_the_process_is_caught() {
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
fn going_on_with_a_dead_lease_in_its_name_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = as_if(view, |lease, liveness| {
            if matches!(liveness, Liveness::Gone(_)) && lease.holder.id == claim.holder.id {
                *liveness = Liveness::Running;
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[FourEnds, Progress]);
}

#[test]
fn making_sense_of_what_cannot_be_understood_is_caught() {
    let rules = acquiring(|now, view, claim| {
        let view = as_if(view, |lease, liveness| {
            if *liveness == Liveness::Unverifiable(Doubt::Malformed) && !lease.has_expired(now) {
                *liveness = Liveness::Running;
            }
        });
        decide::acquire(now, &view, claim)
    });
    assert_caught(rules, &[UnknownStands]);
}

#[test]
fn waiting_for_oneself_is_caught() {
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
    assert_caught(rules, &[OnlyTheHolder]);
}

#[test]
fn a_release_by_a_stranger_is_caught() {
    let rules = deciding(decide::Rules {
        release: |view, grant| {
            let mut leases = view.leases.iter().map(|(lease, _)| lease);
            leases.find(|lease| lease.token == grant.token)
        },
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[OnlyTheHolder]);
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
    assert_caught(rules, &[LateWriters]);
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
    assert_caught(rules, &[LateWriters]);
}

#[test]
fn a_fence_that_forgets_the_time_is_caught() {
    let rules = deciding(decide::Rules {
        fence: |_, view, token| {
            let mut leases = view.leases.iter().map(|(lease, _)| lease);
            leases.find(|lease| lease.token == token)
        },
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[LateWriters]);
}

#[test]
fn reaping_an_orphan_after_its_time_is_caught() {
    let rules = deciding(decide::Rules {
        ended: |now, lease, liveness| match liveness {
            Liveness::Orphaned => decide::ended(now, lease, &Liveness::Running),
            other => decide::ended(now, lease, other),
        },
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[UnknownStands]);
}

#[test]
fn reaping_nothing_is_caught() {
    let rules = deciding(decide::Rules {
        ended: |_, _, _| None,
        ..decide::Rules::STANDARD
    });
    assert_caught(rules, &[Progress]);
}
