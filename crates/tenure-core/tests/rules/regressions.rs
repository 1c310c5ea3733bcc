//! Stories that our rules once got wrong, as short as they could be made.

use crate::machine::Rules;
use crate::script::{Act, Forgery, Wish};
use crate::story::Story;

const PATIENT: bool = true;
const ONCE: bool = false;

/// The process of this slot asks for the first key, in a name chosen on purpose.
fn ask(slot: usize, wish: Wish, name: usize, patient: bool, priority: u8) -> Act {
    Act::Ask {
        slot,
        key: 0,
        wish,
        name,
        named: true,
        patient,
        priority,
        ttl: 30_000,
        within: None,
    }
}

/// The same for a lease of its own, with the ordinary priority.
fn wait(slot: usize, name: usize) -> Act {
    ask(slot, Wish::Itself, name, PATIENT, 5)
}

fn again(slot: usize) -> Act {
    Act::AskAgain { slot, key: 0 }
}

const RELEASE: Act = Act::Release {
    grant: 0,
    forgery: Forgery::None,
};

#[track_caller]
fn assert_sound(script: &[Act]) {
    if let Err(failed) = Story::new(Rules::OURS).play(script) {
        panic!("{failed}");
    }
}

#[test]
fn a_name_with_two_tied_processes_is_two_holders() {
    assert_sound(&[
        ask(0, Wish::Process(0), 0, ONCE, 5),
        ask(1, Wish::Process(1), 0, ONCE, 5),
    ]);
}

#[test]
fn a_lease_whose_process_died_ends_also_for_its_own_name() {
    assert_sound(&[
        ask(0, Wish::Process(1), 0, ONCE, 5),
        Act::Die(1),
        ask(0, Wish::Nothing, 0, ONCE, 5),
    ]);
}

#[test]
fn a_wait_for_a_process_that_died_does_not_extend_its_lease() {
    assert_sound(&[
        ask(0, Wish::Itself, 0, ONCE, 5),
        ask(2, Wish::Process(1), 0, PATIENT, 5),
        RELEASE,
        ask(4, Wish::Process(1), 0, ONCE, 6),
        Act::Die(1),
        again(2),
    ]);
}

#[test]
fn a_process_that_asks_in_a_second_name_does_not_lose_its_first_grant() {
    assert_sound(&[
        ask(0, Wish::Itself, 0, ONCE, 5),
        ask(0, Wish::Itself, 1, ONCE, 5),
        RELEASE,
    ]);
}

#[test]
fn a_waiter_that_lowers_its_priority_does_not_stop_the_queue() {
    assert_sound(&[
        ask(0, Wish::Itself, 0, ONCE, 5),
        ask(1, Wish::Itself, 1, PATIENT, 9),
        wait(2, 2),
        ask(1, Wish::Itself, 1, PATIENT, 0),
        RELEASE,
        again(1),
        again(2),
    ]);
}

#[test]
fn a_place_of_an_earlier_boot_is_not_taken_for_one_of_this() {
    assert_sound(&[
        ask(0, Wish::Itself, 0, ONCE, 5),
        wait(4, 2),
        Act::Reboot,
        ask(0, Wish::Itself, 0, ONCE, 5),
        wait(4, 2),
        wait(1, 1),
        again(4),
    ]);
}
