//! Tests the rules of `tenure_core::decide` and the engine as a whole: random simulations run against a
//! store in memory, and an oracle that shares no code with the rules checks every answer.
//!
//! | module | contents |
//! |---|---|
//! | `script` | generates the actions of a simulation |
//! | `world` | simulated clocks and processes |
//! | `store` | a store in memory that follows the rules it is given |
//! | `model` | the true state of every key, independent of the store |
//! | `oracle`, `guarantee` | checks each answer against the model, and names the guarantee that it violates |
//! | `simulation` | runs a script with all of them |
//! | `broken_rules` | rule sets with one deliberate mistake each, which the oracle must catch |
//! | `several` | claims on several keys, with a simulation and an oracle of their own |
//! | `regressions` | scripts that the rules once got wrong |
//!
//! Proptest shrinks a script that fails. Copy its actions to `regressions` to keep it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic fails the test"
)]

mod broken_rules;
mod guarantee;
mod model;
mod oracle;
mod regressions;
mod script;
mod several;
mod simulation;
mod store;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use script::scripts;
use simulation::Simulation;
use store::Rules;

/// The cases that random simulations must reach: a case that never occurs is not tested.
const REQUIRED_CASES: [&str; 41] = [
    "a claim in a contradicting mode is refused",
    "a claim is granted before another of the same priority",
    "a claim that could be admitted waits for an earlier one",
    "a claim that does not wait is refused",
    "a claim that would close a cycle is refused",
    "a claim that would wait for itself is refused",
    "a current token is accepted",
    "a dead lease is taken over",
    "a free key waits for the first waiter",
    "a garbled lease is waited for",
    "a holder admits others",
    "a holder changes to another mode",
    "a holder claims again",
    "a holder claims again after its lease expired",
    "a holder reserves more paths",
    "a holder reserves more paths before a waiter for its own",
    "a holder that can't be probed is waited for",
    "a key has several holders",
    "a lease expires although the wall clock was set back",
    "a lease is reaped",
    "a lease is released",
    "a lease of an earlier boot is taken over",
    "a lease stays although the wall clock was set ahead",
    "a more urgent claim passes an earlier one",
    "a nested shared claim passes a waiter",
    "a release by another holder is refused",
    "a stale renewal is refused",
    "a stale token is refused",
    "a ticket is resumed",
    "a ticket of an earlier boot is passed",
    "a wait that a grant put into a cycle ends",
    "a waiter is granted the key beside another",
    "a waiter is served",
    "an absent waiter is passed",
    "an expired lease is renewed",
    "an expired lease is taken over",
    "an orphan keeps its lease after it expired",
    "an unverifiable lease is taken over once it expires",
    "one of several leases is released",
    "paths are reserved beside another holder's",
    "the newest token is refused once its lease has ended",
];

/// The same random numbers in every run, so that the result does not depend on luck.
fn fixed_rng() -> TestRng {
    TestRng::deterministic_rng(RngAlgorithm::ChaCha)
}

/// `PROPTEST_CASES` changes the number of cases. Failing scripts are not saved: the seed of an earlier version
/// of the generator would produce another script in a later one.
fn config(times: u32) -> Config {
    let default = Config::default();
    Config {
        cases: default.cases.saturating_mul(times),
        failure_persistence: None,
        ..default
    }
}

#[test]
fn no_simulation_violates_a_guarantee() {
    for rules in [Rules::STANDARD, Rules::IN_PARTS] {
        let outcome = TestRunner::new(config(48)).run(&scripts(), |script| {
            Simulation::new(rules)
                .play(&script)
                .map_err(|failure| TestCaseError::fail(failure.to_string()))
        });
        if let Err(error) = outcome {
            panic!("{error}");
        }
    }
}

#[test]
fn the_simulations_reach_every_required_case() {
    let cases = RefCell::new(BTreeMap::<&str, u32>::new());
    TestRunner::new_with_rng(config(16), fixed_rng())
        .run(&scripts(), |script| {
            let mut simulation = Simulation::new(Rules::STANDARD);
            simulation
                .play(&script)
                .map_err(|failure| TestCaseError::fail(failure.to_string()))?;
            for (what, times) in simulation.oracle.cases {
                *cases.borrow_mut().entry(what).or_default() += times;
            }
            Ok(())
        })
        .unwrap();
    let cases = cases.into_inner();
    assert_eq!(cases.keys().copied().collect::<Vec<_>>(), REQUIRED_CASES);
    for (what, times) in cases {
        assert!(times > 0, "never: {what}");
    }
}
