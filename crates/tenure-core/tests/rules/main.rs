//! The rules of `tenure_core::decide`, put to the test as a whole: random stories are played
//! against a store in memory, and an oracle that shares no code with the rules judges each answer.
//!
//! | module | what it holds |
//! |---|---|
//! | `script` | what happens in a story, made up at random |
//! | `world` | clocks and processes |
//! | `machine` | a store in memory that follows the rules it is given |
//! | `ghost` | what is true, whatever the store says |
//! | `oracle`, `judgement` | who judges, and what is said |
//! | `story` | the four together |
//! | `broken` | rules that are broken on purpose, to put the oracle to the test |
//! | `found` | stories that our own rules once got wrong |
//!
//! A story that fails is shown as short as it can be made; copy its acts to `found` to keep it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that stumbles should fall"
)]

mod broken;
mod found;
mod ghost;
mod judgement;
mod machine;
mod oracle;
mod script;
mod story;
mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use machine::Rules;
use script::scripts;
use story::Story;

/// What random stories have to reach, for what they never meet they do not test.
const CORNERS: [&str; 28] = [
    "a dead lease is taken over",
    "a free key waits for the first in line",
    "a garbled lease is waited for",
    "a hidden holder is waited for",
    "a holder asks again",
    "a holder asks again after its time",
    "a late writer is refused",
    "a lease expires although the wall clock was set back",
    "a lease is reaped",
    "a lease is released",
    "a lease of an earlier boot is taken over",
    "a lease stands although the wall clock was set ahead",
    "a more urgent claim passes",
    "a place is resumed",
    "a place of an earlier boot is passed",
    "a renewal is late",
    "a stale renewal is refused",
    "a stranger's release is refused",
    "a try is refused",
    "a wait for itself is refused",
    "a waiter is served",
    "a writer is let through",
    "an equal is served first",
    "an expired lease is taken over",
    "an orphan outlives its time",
    "an unverifiable lease is taken over in the end",
    "one who is away is passed",
    "the newest grant is refused once it is over",
];

/// The same throws every time, for what must not depend on luck.
fn same_dice() -> TestRng {
    TestRng::deterministic_rng(RngAlgorithm::ChaCha)
}

/// `PROPTEST_CASES` makes this longer or shorter, as everywhere. Nothing is written to the tree:
/// a script of an earlier version of these stories would mean something else in a later one.
fn config(times: u32) -> Config {
    let default = Config::default();
    Config {
        cases: default.cases.saturating_mul(times),
        failure_persistence: None,
        ..default
    }
}

#[test]
fn no_story_breaks_a_guarantee() {
    let outcome = TestRunner::new(config(64)).run(&scripts(), |script| {
        Story::new(Rules::OURS)
            .play(&script)
            .map_err(|failed| TestCaseError::fail(failed.to_string()))
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn the_stories_reach_every_corner_of_the_rules() {
    let sights = RefCell::new(BTreeMap::<&str, u32>::new());
    TestRunner::new_with_rng(config(16), same_dice())
        .run(&scripts(), |script| {
            let mut story = Story::new(Rules::OURS);
            story
                .play(&script)
                .map_err(|failed| TestCaseError::fail(failed.to_string()))?;
            for (what, times) in story.oracle.sights {
                *sights.borrow_mut().entry(what).or_default() += times;
            }
            Ok(())
        })
        .unwrap();
    let sights = sights.into_inner();
    assert_eq!(sights.keys().copied().collect::<Vec<_>>(), CORNERS);
    for (what, times) in sights {
        assert!(times > 0, "never: {what}");
    }
}
