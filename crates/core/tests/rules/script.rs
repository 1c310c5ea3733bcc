//! Generates scripts: lists of random [`Action`]s.
//!
//! Times are drawn from the limits that matter (the lapse of a waiter, one level of priority, the grace of a
//! ticket), exactly and one millisecond less. Uniformly random times would almost never hit one.

use std::num::NonZeroU32;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use tenure_core::Mode;

use crate::model::RESERVATIONS;
use crate::world::SLOTS;

/// What the claimant wants its lease to be tied to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestedBinding {
    /// The claiming process, by its liveness lock.
    LivenessLock,
    /// The process of this slot.
    Process(usize),
    Detached,
}

/// How a grant is falsified before it is used.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Forgery {
    None,
    OtherName,
    OlderToken,
    NewerToken,
    OtherKey,
}

#[derive(Debug, Clone)]
pub(crate) enum Action {
    /// The process of a slot claims a key.
    Ask {
        slot: usize,
        key: usize,
        binding: RequestedBinding,
        /// The index of the claimant's name.
        name: usize,
        named: bool,
        patient: bool,
        priority: u8,
        ttl: i64,
        mode: Mode,
        /// The grant that the claimant runs under, counted from the newest.
        within: Option<usize>,
    },
    /// It repeats the claims that it waits with.
    AskAgain {
        slot: usize,
        key: usize,
    },
    /// It withdraws from the queue.
    Leave {
        slot: usize,
        key: usize,
    },
    /// It stops waiting, but keeps its ticket for later.
    Park {
        slot: usize,
        key: usize,
    },
    /// Uses a grant, counted from the newest.
    Renew {
        grant: usize,
        forgery: Forgery,
        ttl: i64,
    },
    Release {
        grant: usize,
        forgery: Forgery,
    },
    Fence {
        grant: usize,
        forgery: Forgery,
    },
    Force {
        key: usize,
        /// The index of the only holder to end, if not all.
        of: Option<usize>,
    },
    Reap,
    /// The record of a lease becomes unreadable.
    Garble(usize),
    Pass(i64),
    JumpWall(i64),
    Die(usize),
    Hide(usize),
    Show(usize),
    Orphan(usize),
    Reboot,
}

pub(crate) fn scripts() -> impl Strategy<Value = Vec<Action>> {
    vec(action(), 1..70)
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        24 => ask(),
        24 => (slot(), key()).prop_map(|(slot, key)| Action::AskAgain { slot, key }),
        2 => (slot(), key()).prop_map(|(slot, key)| Action::Leave { slot, key }),
        2 => (slot(), key()).prop_map(|(slot, key)| Action::Park { slot, key }),
        8 => (grant(), forgery(), ttl())
            .prop_map(|(grant, forgery, ttl)| Action::Renew { grant, forgery, ttl }),
        10 => (grant(), forgery()).prop_map(|(grant, forgery)| Action::Release { grant, forgery }),
        5 => (grant(), forgery()).prop_map(|(grant, forgery)| Action::Fence { grant, forgery }),
        2 => (key(), prop::option::weighted(0.3, 0..3_usize))
            .prop_map(|(key, of)| Action::Force { key, of }),
        3 => Just(Action::Reap),
        1 => key().prop_map(Action::Garble),
        20 => time().prop_map(Action::Pass),
        3 => jump().prop_map(Action::JumpWall),
        4 => slot().prop_map(Action::Die),
        2 => slot().prop_map(Action::Hide),
        1 => slot().prop_map(Action::Show),
        3 => slot().prop_map(Action::Orphan),
        1 => Just(Action::Reboot),
    ]
}

fn ask() -> impl Strategy<Value = Action> {
    let binding = prop_oneof![
        5 => Just(RequestedBinding::LivenessLock),
        3 => Just(RequestedBinding::Detached),
        2 => slot().prop_map(RequestedBinding::Process),
    ];
    let who = (slot(), binding, 0..3_usize, prop::bool::weighted(0.7));
    let what = (key_and_mode(), prop::bool::weighted(0.7), priority(), ttl());
    let within = prop::option::weighted(0.1, 0..3_usize);
    (who, what, within).prop_map(
        |((slot, binding, name, named), ((key, mode), patient, priority, ttl), within)| {
            Action::Ask {
                slot,
                key,
                binding,
                name,
                named,
                patient,
                priority,
                ttl,
                mode,
                within,
            }
        },
    )
}

/// Mostly one kind of each, so that holders are admitted together.
fn mode() -> impl Strategy<Value = Mode> {
    let slots = |number| Mode::Slots(NonZeroU32::new(number).unwrap());
    prop_oneof![
        12 => Just(Mode::Exclusive),
        4 => Just(Mode::Shared),
        3 => Just(slots(2)),
        1 => Just(slots(3)),
    ]
}

fn slot() -> impl Strategy<Value = usize> {
    0..SLOTS
}

/// Mostly the first, so that claims conflict.
fn key() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0_usize), 1 => Just(1_usize), 3 => Just(2_usize)]
}

/// The third key is that of reservations.
fn key_and_mode() -> impl Strategy<Value = (usize, Mode)> {
    (key(), mode(), path_mode())
        .prop_map(|(key, mode, paths)| (key, if key == 2 { paths } else { mode }))
}

fn path_mode() -> impl Strategy<Value = Mode> {
    let paths = RESERVATIONS.map(|(text, _)| text.parse::<Mode>().unwrap());
    prop_oneof![20 => select(paths.to_vec()), 1 => Just(Mode::Exclusive)]
}

/// Mostly the newest grants: old ones all behave alike.
fn grant() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..2_usize, 1 => 0..12_usize]
}

fn forgery() -> impl Strategy<Value = Forgery> {
    prop_oneof![
        8 => Just(Forgery::None),
        1 => Just(Forgery::OtherName),
        1 => Just(Forgery::OlderToken),
        1 => Just(Forgery::NewerToken),
        1 => Just(Forgery::OtherKey),
    ]
}

/// Mostly equal priorities, so that the order of arrival counts.
fn priority() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(5_u8), 1 => Just(6_u8), 1 => Just(4_u8), 1 => 0..=9_u8]
}

fn ttl() -> impl Strategy<Value = i64> {
    select(vec![1_000, 10_000, 30_000, 120_000, 3_600_000])
}

fn time() -> impl Strategy<Value = i64> {
    let short = select(vec![0, 1, 1_000, 4_000, 9_999, 10_000, 14_999]);
    let long = select(vec![
        15_000, 29_999, 30_000, 59_999, 60_000, 61_000, 120_000, 240_000, 599_999, 600_000,
    ]);
    prop_oneof![4 => short, 1 => long]
}

fn jump() -> impl Strategy<Value = i64> {
    select(vec![1_000, 30_000, 3_600_000, 365 * 86_400_000])
        .prop_flat_map(|by| prop_oneof![Just(by), Just(-by)])
}
