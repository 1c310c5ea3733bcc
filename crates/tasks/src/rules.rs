//! The rules for working on tasks. Like those of [`tenure_core::decide`], they are pure.

use std::collections::HashSet;
use std::time::Duration;

use tenure_core::holder::HolderId;
use tenure_core::lease::{Lease, Token};
use tenure_core::verdict::Verdict;

/// How a caller proves that it may change a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// By the token of a grant.
    Token(Token),
    /// By the holder's name.
    Name(HolderId),
}

/// Whether a caller may change a task's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Yes.
    Granted,
    /// No: another holder has it.
    Locked,
    /// No: another holder took it over from the caller (G7).
    Superseded,
}

/// What is known of the task that a caller wants to change.
#[derive(Debug, Clone, Copy)]
pub struct TaskState<'a> {
    /// The lease on record, and the verdict on it.
    pub lease: Option<(&'a Lease, &'a Verdict)>,
    /// The token of its newest grant.
    pub newest: Token,
    /// The holder of that grant.
    pub runner: Option<&'a HolderId>,
    /// The holders from whom it was taken over.
    pub lost: &'a [HolderId],
}

/// Whether a caller may change a task's status.
///
/// A token proves the newest grant, even if its lease has expired, as long as the task was not granted
/// to another holder and not taken away by force: finished work is not discarded because a lease expired
/// that no other runner wanted. A name is enough for a task that is not held, unless the task was taken
/// over from that name.
pub fn may_change(state: &TaskState<'_>, proof: &Proof) -> Permission {
    let held = state
        .lease
        .filter(|(_, verdict)| verdict.ended().is_none())
        .map(|(lease, _)| lease);
    match proof {
        Proof::Token(token) => {
            let by_another = held.is_some_and(|lease| lease.token != *token);
            let taken_away = state
                .runner
                .is_some_and(|runner| held.is_none() && state.lost.contains(runner));
            if by_another || taken_away || *token != state.newest || *token == Token::NONE {
                Permission::Superseded
            } else {
                Permission::Granted
            }
        }
        Proof::Name(name) => match held {
            Some(lease) if lease.holder.id == *name => Permission::Granted,
            _ if state.lost.contains(name) => Permission::Superseded,
            Some(_) => Permission::Locked,
            None => Permission::Granted,
        },
    }
}

/// Which runners can take a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Only the asking runner, which has its section.
    Mine,
    /// Any runner.
    Free,
    /// Only the runner that holds it already.
    Taken,
}

/// Chooses among ready tasks, offered best first, and leaves the best ones to earlier waiters (G8): one
/// for each, each in a section of its own, because a runner that takes a task also takes its section.
#[derive(Debug)]
pub struct Picker {
    ahead: usize,
    reserved: HashSet<String>,
}

impl Picker {
    /// For a runner with this many waiters ahead of it.
    pub fn behind(ahead: usize) -> Self {
        Self {
            ahead,
            reserved: HashSet::new(),
        }
    }

    /// Whether the runner takes this task.
    pub fn takes(&mut self, section: Option<&str>, offer: Offer) -> bool {
        match offer {
            Offer::Taken => false,
            Offer::Mine => true,
            Offer::Free => {
                if section.is_some_and(|section| self.reserved.contains(section)) {
                    return false;
                }
                if self.ahead == 0 {
                    return true;
                }
                self.ahead -= 1;
                self.reserved.extend(section.map(str::to_owned));
                false
            }
        }
    }
}

/// How long to wait after this many failed attempts: twice as long each time, one minute at most.
pub fn backoff(attempts: u64) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    let seconds = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
    Duration::from_secs(seconds).min(LONGEST_BACKOFF)
}

/// The longest wait before another attempt.
pub const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_and_stops_at_a_minute() {
        let seconds: Vec<u64> = [0, 1, 2, 3, 6, 7, 8, 70, u64::MAX]
            .into_iter()
            .map(|attempts| backoff(attempts).as_secs())
            .collect();
        assert_eq!(seconds, [1, 1, 2, 4, 32, 60, 60, 60, 60]);
    }

    #[test]
    fn the_best_tasks_are_left_to_earlier_waiters() {
        let mut picker = Picker::behind(2);
        assert!(!picker.takes(Some("a"), Offer::Free), "for the first");
        assert!(
            !picker.takes(Some("a"), Offer::Free),
            "in the first's section"
        );
        assert!(!picker.takes(None, Offer::Free), "for the second");
        assert!(!picker.takes(Some("b"), Offer::Taken));
        assert!(picker.takes(Some("c"), Offer::Free));
    }

    #[test]
    fn a_task_that_only_the_asking_runner_can_take_is_not_reserved() {
        let mut picker = Picker::behind(9);
        assert!(picker.takes(Some("a"), Offer::Mine));
    }

    #[test]
    fn tasks_without_a_section_are_reserved_one_by_one() {
        let mut picker = Picker::behind(1);
        assert!(!picker.takes(None, Offer::Free));
        assert!(picker.takes(None, Offer::Free));
    }
}
