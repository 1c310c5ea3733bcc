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

/// How many claims of a sound script are refused because they would close a cycle.
#[track_caller]
fn refused_for_a_cycle(script: &[Action]) -> u32 {
    let mut simulation = Simulation::new(Rules::STANDARD);
    if let Err(failure) = simulation.play(script) {
        panic!("{failure}");
    }
    let case = "a claim that would close a cycle is refused";
    simulation
        .oracle
        .cases
        .get(case)
        .copied()
        .unwrap_or_default()
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

/// The process of this slot claims a key in a mode, under a name that it made up.
fn ask_unnamed(slot: usize, name: usize, key: usize, patient: bool, mode: Mode) -> Action {
    Action::Ask {
        slot,
        key,
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

fn slots(number: u32) -> Mode {
    Mode::Slots(number.try_into().unwrap())
}

#[test]
fn a_cycle_through_one_of_many_shared_holders_is_found() {
    assert_sound(&[
        ask_unnamed(0, 0, 0, ONCE, Mode::Shared),
        ask_unnamed(1, 1, 0, ONCE, Mode::Shared),
        ask_unnamed(2, 2, 0, ONCE, Mode::Shared),
        ask_unnamed(2, 2, 0, PATIENT, Mode::Exclusive),
        ask_unnamed(0, 0, 0, PATIENT, Mode::Shared),
    ]);
}

/// An exclusive waiter keeps a shared one from the key of the first holder, which then asks for the key of the shared
/// waiter.
fn a_shared_waiter_behind_an_exclusive_one(gone: &[Action]) -> Vec<Action> {
    let mut script = vec![
        ask_unnamed(0, 0, 0, ONCE, Mode::Shared),
        ask_unnamed(1, 1, 1, ONCE, Mode::Exclusive),
        ask_unnamed(2, 2, 0, PATIENT, Mode::Exclusive),
        ask_unnamed(1, 1, 0, PATIENT, Mode::Shared),
    ];
    script.extend_from_slice(gone);
    script.push(ask_unnamed(0, 0, 1, PATIENT, Mode::Exclusive));
    script
}

#[test]
fn a_shared_waiter_waits_for_what_the_exclusive_one_ahead_waits_for() {
    let script = a_shared_waiter_behind_an_exclusive_one(&[]);
    assert_eq!(refused_for_a_cycle(&script), 1);
}

#[test]
fn a_shared_waiter_behind_a_dead_or_parked_one_waits_for_no_shared_holder() {
    for gone in [Action::Die(2), Action::Park { slot: 2, key: 0 }] {
        let script = a_shared_waiter_behind_an_exclusive_one(&[gone]);
        assert_eq!(refused_for_a_cycle(&script), 0);
    }
}

#[test]
fn a_cycle_through_all_holders_of_slots_is_found_when_the_last_of_them_waits() {
    let script = [
        ask_unnamed(0, 0, 0, ONCE, slots(2)),
        ask_unnamed(1, 1, 0, ONCE, slots(2)),
        ask_unnamed(2, 2, 1, ONCE, Mode::Exclusive),
        ask_unnamed(0, 0, 1, PATIENT, Mode::Exclusive),
        ask_unnamed(2, 2, 0, PATIENT, slots(2)),
        ask_unnamed(1, 1, 1, PATIENT, Mode::Exclusive),
    ];
    assert_eq!(refused_for_a_cycle(&script), 1);
}

/// The exclusive waiter ahead needs the slots of all, not of any.
#[test]
fn a_waiter_for_a_slot_behind_an_exclusive_one_waits_for_every_slot() {
    let script = [
        ask_unnamed(0, 0, 0, ONCE, slots(2)),
        ask_unnamed(1, 1, 0, ONCE, slots(2)),
        ask_unnamed(2, 2, 0, PATIENT, Mode::Exclusive),
        ask_unnamed(4, 1, 1, ONCE, Mode::Exclusive),
        ask_unnamed(0, 0, 1, PATIENT, Mode::Exclusive),
        ask_unnamed(4, 1, 0, PATIENT, slots(2)),
    ];
    assert_eq!(refused_for_a_cycle(&script), 1);
}

#[test]
fn a_waiter_for_a_slot_does_not_wait_for_a_holder_while_another_slot_is_free() {
    let script = [
        ask_unnamed(0, 0, 0, ONCE, slots(2)),
        ask_unnamed(2, 2, 1, ONCE, Mode::Exclusive),
        ask_unnamed(4, 1, 0, PATIENT, Mode::Exclusive),
        ask_unnamed(1, 1, 0, PATIENT, slots(2)),
        Action::Leave { slot: 4, key: 0 },
        ask_unnamed(0, 0, 1, PATIENT, Mode::Exclusive),
        ask_unnamed(2, 2, 0, PATIENT, slots(2)),
    ];
    assert_eq!(refused_for_a_cycle(&script), 0);
}
