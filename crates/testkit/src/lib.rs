//! One battery that every store must pass, with real processes and an independent witness.
//!
//! A store's own test file is a few lines:
//!
//! ```text
//! use tenure_testkit::Subject;
//!
//! tenure_testkit::battery!(Subject::opened_by(|place| {
//!     Box::new(MyStore::open(&place.join("store")).unwrap())
//! }));
//! ```
//!
//! # Contents
//!
//! | module | contents |
//! |---|---|
//! | [`subject`] | [`Subject`]: the store under test, and what the battery may do to it |
//! | [`checks`] | the checks, one file for each guarantee or two |
//! | [`witness`] | [`Witness`]: detects two holders at once, without any code of tenure |
//! | [`history`] | checks a store's history for contradictions |
//! | [`run`] | [`Run`]: one check: its seed, its folder, its summary |
//! | [`process`] | [`Process`]: a real process that a test can kill, stop and continue |
//! | [`mod@default_signals`] | signal dispositions that do not depend on how the test was started |
//! | [`etcd`] | [`Etcd`]: a cluster on this machine |
//! | [`worker`] | the job of such a process: its [`worker::Task`] |
//! | `peers` | the connections between the members of a cluster |
//! | [`proxy`] | [`Proxy`]: a connection that a test can cut |
//! | [`puppet`] | [`Puppet`]: a process that runs one verb at a time, on command |
//! | [`ask`] | [`Ask`]: a short way to write a claim |
//! | [`waiting`] | the minimal loop of a waiting process |
//! | [`left_out()`] | says that a test can't run here, and why |
//! | [`lock_folder`] | what another program can do to a protected lock folder |
//! | [`limit`] | waiting for a condition, within a limit |
//! | [`scale`] | how long tests with random kills and races run |
//! | [`chance`] | [`Chance`]: reproducible random numbers |
//! | [`clock`] | [`FakeClock`]: both clocks and the epoch, set by the test |
//!
//! # How a check runs
//!
//! Real processes are made by starting the test binary again for its one test `worker`, with a
//! job in an environment variable. Without that variable, `worker` returns at once.
//!
//! | variable | meaning |
//! |---|---|
//! | `TENURE_BATTERY_SEED` | the seed of every random choice; each check prints the one it used |
//! | `TENURE_BATTERY_SCALE` | a factor for the number of rounds, also in tests outside the battery |
//!
//! # Limitations
//!
//! The seed does not control the kernel's scheduler: the same seed makes the same choices, but not the same
//! race. Linux only, like the local stores.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "this crate is test code: a check fails by panicking"
)]

pub mod ask;
pub mod chance;
pub mod checks;
pub mod clock;
pub mod default_signals;
pub mod etcd;
pub mod history;
mod left_out;
pub mod limit;
pub mod lock_folder;
mod peers;
pub mod process;
pub mod proxy;
pub mod puppet;
pub mod run;
pub mod scale;
pub mod subject;
pub mod task_battery;
pub mod waiting;
pub mod witness;
pub mod worker;

pub use ask::Ask;
pub use chance::Chance;
pub use clock::FakeClock;
pub use default_signals::default_signals;
pub use etcd::Etcd;
pub use left_out::left_out;
pub use limit::soon;
pub use process::Process;
pub use proxy::Proxy;
pub use puppet::{Answer, Puppet};
pub use run::Run;
pub use scale::scaled;
pub use subject::Subject;
pub use task_battery::TaskSubject;
pub use witness::Witness;

/// Makes one test for each check of the battery, and the `worker` that their processes run. With
/// `one_process`, the checks for a store that only one process sees.
#[macro_export]
macro_rules! battery {
    ($subject:expr) => {
        $crate::battery! { @checks $subject;
            one_holder::eight_processes_never_hold_one_key_together,
            takeover::exactly_one_of_many_waiters_takes_over_from_a_killed_holder,
            expired_holder::a_stopped_holder_whose_lease_expired_is_refused_by_every_verb,
            expired_holder::an_expired_lease_is_renewed_if_no_other_holder_took_the_key,
            order::first_come_first_served_among_equals,
            order::priority_overtakes_only_within_the_bound,
            interrupted::a_killed_waiter_resumes_its_ticket,
            interrupted::a_killed_waiter_in_the_middle_of_the_queue_resumes_its_ticket,
            interrupted::a_waiter_that_parks_resumes_its_ticket,
            interrupted::a_waiter_with_a_generated_name_does_not_resume_its_ticket,
            tokens::tokens_grow_over_restarts_release_and_force,
            release::only_the_holder_releases,
            release::another_name_in_the_same_process_is_another_holder,
            reaper::a_reaper_does_not_end_a_renewed_lease,
            reaper::an_expired_lease_is_reaped_once,
            crash::a_crash_at_any_step_leaves_a_usable_store,
            deadlock::a_wait_that_would_close_a_cycle_is_refused,
            deadlock::a_dead_waiter_closes_no_cycle,
            waking::a_waiter_is_woken_by_release_death_and_withdrawal,
            waking::a_waiter_is_woken_by_the_death_of_a_waiter_that_overtook_it,
            waking::a_waiter_behind_a_dead_waiter_does_not_poll,
            modes::eight_processes_share_a_key_only_as_their_modes_allow,
            modes::a_waiting_exclusive_claim_is_not_starved,
            modes::shared_waiters_are_woken_together,
            modes::slots_are_counted_and_given_once,
            modes::one_of_several_leases_ends_alone,
            modes::a_holder_changes_its_mode,
            modes::a_reader_is_woken_when_a_reservation_becomes_shared,
            modes::a_waiter_for_a_folder_is_not_starved_by_its_files,
            modes::parts_of_many_reservations_are_given_back_together,
            several::several_keys_are_granted_together_or_not_at_all,
            several::a_killed_waiter_for_several_keys_holds_up_none_of_them,
            several::a_holder_passes_a_waiter_that_waits_for_it,
            several::processes_that_want_several_keys_never_block_each_other,
            past_waits::a_grant_records_how_long_its_holder_waited,
        }
    };
    (one_process $subject:expr) => {
        $crate::battery! { @checks $subject;
            one_process::eight_threads_never_hold_one_key_together,
            one_process::threads_are_served_in_order,
            one_process::a_thread_is_woken_by_release_force_and_the_end_of_a_handle,
            one_process::a_thread_whose_lease_expired_is_refused,
            one_process::a_cycle_of_threads_is_refused,
            one_process::a_thread_that_parks_keeps_its_ticket,
            one_process::threads_share_a_key_only_as_their_modes_allow,
            modes::a_waiter_for_a_folder_is_not_starved_by_its_files,
            several::threads_that_want_several_keys_never_block_each_other,
            past_waits::a_grant_records_how_long_a_thread_waited,
            release::only_the_holder_releases,
            release::another_name_in_the_same_process_is_another_holder,
        }
    };
    (@checks $subject:expr; $($file:ident::$check:ident,)+) => {
        fn subject() -> $crate::Subject {
            $crate::Subject::tested_in($subject, module_path!())
        }

        /// Not a test: the entry point of the battery's processes. See `tenure_testkit::worker`.
        #[test]
        fn worker() {
            $crate::worker::work(&subject());
        }

        $(
            #[test]
            fn $check() {
                $crate::checks::$file::$check(&subject());
            }
        )+
    };
}
