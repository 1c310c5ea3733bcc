//! Scripts that the rules once got wrong, shrunk.

use tenure_core::Mode;

use crate::script::{Action, Forgery, RequestedBinding};
use crate::simulation::Simulation;
use crate::store::Rules;

const PATIENT: bool = true;
const ONCE: bool = false;

/// The process of this slot claims the first key, under a name that it chose.
fn ask(slot: usize, binding: RequestedBinding, name: usize, patient: bool, priority: u8) -> Action {
    Action::Ask {
        slot,
        key: 0,
        binding,
        name,
        named: true,
        patient,
        priority,
        ttl: 30_000,
        mode: Mode::Exclusive,
        within: None,
    }
}

/// The same, waiting for a lease with a liveness lock and the default priority.
fn wait(slot: usize, name: usize) -> Action {
    ask(slot, RequestedBinding::LivenessLock, name, PATIENT, 5)
}

fn again(slot: usize) -> Action {
    Action::AskAgain { slot, key: 0 }
}

const RELEASE: Action = Action::Release {
    grant: 0,
    forgery: Forgery::None,
};

#[track_caller]
fn assert_sound(script: &[Action]) {
    if let Err(failure) = Simulation::new(Rules::STANDARD).play(script) {
        panic!("{failure}");
    }
}

#[test]
fn a_name_with_two_tied_processes_is_two_holders() {
    assert_sound(&[
        ask(0, RequestedBinding::Process(0), 0, ONCE, 5),
        ask(1, RequestedBinding::Process(1), 0, ONCE, 5),
    ]);
}

#[test]
fn a_lease_whose_process_died_ends_even_for_a_claim_under_the_same_name() {
    assert_sound(&[
        ask(0, RequestedBinding::Process(1), 0, ONCE, 5),
        Action::Die(1),
        ask(0, RequestedBinding::Detached, 0, ONCE, 5),
    ]);
}

#[test]
fn a_wait_for_a_process_that_died_does_not_extend_its_lease() {
    assert_sound(&[
        ask(0, RequestedBinding::LivenessLock, 0, ONCE, 5),
        ask(2, RequestedBinding::Process(1), 0, PATIENT, 5),
        RELEASE,
        ask(4, RequestedBinding::Process(1), 0, ONCE, 6),
        Action::Die(1),
        again(2),
    ]);
}

#[test]
fn a_process_that_claims_under_a_second_name_keeps_its_first_grant() {
    assert_sound(&[
        ask(0, RequestedBinding::LivenessLock, 0, ONCE, 5),
        ask(0, RequestedBinding::LivenessLock, 1, ONCE, 5),
        RELEASE,
    ]);
}

#[test]
fn a_waiter_that_lowers_its_priority_does_not_block_the_queue() {
    assert_sound(&[
        ask(0, RequestedBinding::LivenessLock, 0, ONCE, 5),
        ask(1, RequestedBinding::LivenessLock, 1, PATIENT, 9),
        wait(2, 2),
        ask(1, RequestedBinding::LivenessLock, 1, PATIENT, 0),
        RELEASE,
        again(1),
        again(2),
    ]);
}

#[test]
fn a_ticket_of_an_earlier_boot_is_not_resumed() {
    assert_sound(&[
        ask(0, RequestedBinding::LivenessLock, 0, ONCE, 5),
        wait(4, 2),
        Action::Reboot,
        ask(0, RequestedBinding::LivenessLock, 0, ONCE, 5),
        wait(4, 2),
        wait(1, 1),
        again(4),
    ]);
}

/// The process of this slot claims the first key in a mode, under a name that it made up.
fn ask_unnamed(slot: usize, name: usize, patient: bool, mode: Mode) -> Action {
    Action::Ask {
        slot,
        key: 0,
        binding: RequestedBinding::LivenessLock,
        name,
        named: false,
        patient,
        priority: 5,
        ttl: 30_000,
        mode,
        within: None,
    }
}

#[test]
fn a_cycle_through_one_of_many_shared_holders_is_found() {
    assert_sound(&[
        ask_unnamed(0, 0, ONCE, Mode::Shared),
        ask_unnamed(1, 1, ONCE, Mode::Shared),
        ask_unnamed(2, 2, ONCE, Mode::Shared),
        ask_unnamed(2, 2, PATIENT, Mode::Exclusive),
        ask_unnamed(0, 0, PATIENT, Mode::Shared),
    ]);
}
