//! The rules for working on tasks. Pure, as those of [`crate::decide`] are.

use std::collections::HashSet;
use std::time::Duration;

use crate::holder::HolderId;
use crate::lease::{Lease, Token};
use crate::verdict::Verdict;

/// Who wants to change a task, and how that is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// By the token of a grant.
    Token(Token),
    /// By name.
    Name(HolderId),
}

/// Whether somebody may change a task's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Yes.
    Granted,
    /// No: another holds it.
    Locked,
    /// No: it was theirs, and was taken over since (G7).
    Superseded,
}

/// What is known of a task when somebody wants to change it.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// The lease on record, and the judgement on it.
    pub lease: Option<(&'a Lease, &'a Verdict)>,
    /// The token of its newest grant.
    pub newest: Token,
    /// Who had that.
    pub runner: Option<&'a HolderId>,
    /// From whom it was taken over.
    pub lost: &'a [HolderId],
}

/// Whether somebody may change a task's status.
///
/// A token proves the newest grant, whether or not its lease still stands, as long as nobody else
/// got the task since, and it was not taken away by force: what was worked for is not thrown away
/// because a lease ran out that nobody wanted. A name is enough for a task that nobody holds,
/// unless it was taken over from that name.
pub fn may_change(standing: &Standing<'_>, proof: &Proof) -> Permission {
    let held = standing
        .lease
        .filter(|(_, verdict)| verdict.ended().is_none())
        .map(|(lease, _)| lease);
    match proof {
        Proof::Token(token) => {
            let by_another = held.is_some_and(|lease| lease.token != *token);
            let taken_away = standing
                .runner
                .is_some_and(|runner| held.is_none() && standing.lost.contains(runner));
            if by_another || taken_away || *token != standing.newest || *token == Token::NONE {
                Permission::Superseded
            } else {
                Permission::Granted
            }
        }
        Proof::Name(name) => match held {
            Some(lease) if lease.holder.id == *name => Permission::Granted,
            _ if standing.lost.contains(name) => Permission::Superseded,
            Some(_) => Permission::Locked,
            None => Permission::Granted,
        },
    }
}

/// How a task and its section stand for somebody who looks for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// Only for them: they have its section.
    Mine,
    /// For anybody.
    Free,
    /// For nobody else than who holds it.
    Taken,
}

/// Chooses among ready tasks, offered best first, and leaves the best to those who came before:
/// one for each of them, each in a section of its own, since whoever takes a task takes its
/// section too (G8).
#[derive(Debug)]
pub struct Picker {
    ahead: usize,
    reserved: HashSet<String>,
}

impl Picker {
    /// For somebody with so many before them.
    pub fn behind(ahead: usize) -> Self {
        Self {
            ahead,
            reserved: HashSet::new(),
        }
    }

    /// Whether to take this one.
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

/// How long to wait after so many failed attempts: twice as long each time, a minute at most.
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
    fn the_best_tasks_are_left_to_those_who_came_before() {
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
    fn what_only_we_can_take_is_left_to_nobody() {
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
