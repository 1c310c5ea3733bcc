//! What happens in a story: a list of [`Act`]s, made up at random.
//!
//! Times are drawn from the edges that matter (a lapse, a level of priority, a grace, each a
//! millisecond short of it and exact), for a story of random times would hardly ever meet one.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::world::SLOTS;

/// What the asker wants its lease to be tied to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wish {
    Itself,
    /// The process of this slot.
    Process(usize),
    Nothing,
}

/// What is done to a grant before it is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Forgery {
    None,
    OtherName,
    OlderToken,
    NewerToken,
    OtherKey,
}

#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// The process of a slot asks for a key.
    Ask {
        slot: usize,
        key: usize,
        wish: Wish,
        /// Which of the names to ask in.
        name: usize,
        named: bool,
        patient: bool,
        priority: u8,
        ttl: i64,
        /// The grant it runs under, counted from the newest.
        within: Option<usize>,
    },
    /// It asks again for all that it waits for.
    AskAgain {
        slot: usize,
        key: usize,
    },
    /// It gives a place up.
    Leave {
        slot: usize,
        key: usize,
    },
    /// It stops waiting, and will come back for the place.
    Park {
        slot: usize,
        key: usize,
    },
    /// Somebody shows a grant, counted from the newest.
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
    Force(usize),
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

pub(crate) fn scripts() -> impl Strategy<Value = Vec<Act>> {
    vec(act(), 1..70)
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        24 => ask(),
        24 => (slot(), key()).prop_map(|(slot, key)| Act::AskAgain { slot, key }),
        2 => (slot(), key()).prop_map(|(slot, key)| Act::Leave { slot, key }),
        2 => (slot(), key()).prop_map(|(slot, key)| Act::Park { slot, key }),
        8 => (grant(), forgery(), ttl())
            .prop_map(|(grant, forgery, ttl)| Act::Renew { grant, forgery, ttl }),
        10 => (grant(), forgery()).prop_map(|(grant, forgery)| Act::Release { grant, forgery }),
        5 => (grant(), forgery()).prop_map(|(grant, forgery)| Act::Fence { grant, forgery }),
        2 => key().prop_map(Act::Force),
        3 => Just(Act::Reap),
        1 => key().prop_map(Act::Garble),
        20 => time().prop_map(Act::Pass),
        3 => jump().prop_map(Act::JumpWall),
        4 => slot().prop_map(Act::Die),
        2 => slot().prop_map(Act::Hide),
        1 => slot().prop_map(Act::Show),
        3 => slot().prop_map(Act::Orphan),
        1 => Just(Act::Reboot),
    ]
}

fn ask() -> impl Strategy<Value = Act> {
    let wish = prop_oneof![
        5 => Just(Wish::Itself),
        3 => Just(Wish::Nothing),
        2 => slot().prop_map(Wish::Process),
    ];
    let who = (slot(), wish, 0..3_usize, prop::bool::weighted(0.7));
    let what = (key(), prop::bool::weighted(0.7), priority(), ttl());
    let within = prop::option::weighted(0.1, 0..3_usize);
    (who, what, within).prop_map(
        |((slot, wish, name, named), (key, patient, priority, ttl), within)| Act::Ask {
            slot,
            key,
            wish,
            name,
            named,
            patient,
            priority,
            ttl,
            within,
        },
    )
}

fn slot() -> impl Strategy<Value = usize> {
    0..SLOTS
}

/// Mostly the first, so that many meet there.
fn key() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(0_usize), 1 => Just(1_usize)]
}

/// Mostly the newest grants: the oldest are all alike.
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

/// Mostly equal ones: first come, first served is the rule, priority the exception.
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
