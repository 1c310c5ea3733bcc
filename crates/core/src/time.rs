//! Time, supplied by the caller: [`Clock`], [`Moment`], [`Deadline`].
//!
//! There are two clocks. The *wall* clock is what people read; it may jump. The other clock
//! belongs to a *clock domain* and counts ticks since the beginning of an [`Epoch`]: for a store on
//! one machine that is a boot (sleep included), for a store on a server it is the server's own
//! clock. Ticks never jump and are the same for every process in the domain. A deadline that was
//! set in the current epoch is compared by ticks, so a jump of the wall clock ends no lease. Across epochs,
//! only the wall clock can be compared.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// One epoch of a clock domain: a boot of a machine, or the lifetime of a server's clock.
///
/// An unknown epoch equals nothing, not even itself, so `Epoch` is [`PartialEq`] but not [`Eq`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub String);

impl Epoch {
    /// The epoch of a clock domain that does not name its epochs.
    pub fn unknown() -> Self {
        Self(String::new())
    }

    /// Whether the clock domain names its epochs.
    pub fn is_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether both are known to be the same epoch.
    pub fn same(&self, other: &Self) -> bool {
        !self.0.is_empty() && self.0 == other.0
    }

    /// Whether both are known and differ.
    pub fn differs(&self, other: &Self) -> bool {
        !self.0.is_empty() && !other.0.is_empty() && self.0 != other.0
    }
}

impl PartialEq for Epoch {
    fn eq(&self, other: &Self) -> bool {
        self.same(other)
    }
}

/// One instant, on both clocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Moment {
    /// The wall clock.
    pub wall: Timestamp,
    /// Time since the epoch began.
    pub ticks: Duration,
    /// The epoch.
    pub epoch: Epoch,
}

impl Moment {
    /// The instant `after` this one. Saturates far in the future.
    pub fn deadline(&self, after: Duration) -> Deadline {
        let wall = SignedDuration::try_from(after)
            .ok()
            .and_then(|after| self.wall.checked_add(after).ok())
            .unwrap_or(Timestamp::MAX);
        Deadline {
            wall,
            ticks: self.ticks.saturating_add(after),
            epoch: self.epoch.clone(),
        }
    }
}

/// When a lease expires.
#[derive(Debug, Clone, PartialEq)]
pub struct Deadline {
    /// On the wall clock.
    pub wall: Timestamp,
    /// In ticks of `epoch`.
    pub ticks: Duration,
    /// The epoch in which it was set.
    pub epoch: Epoch,
}

impl Deadline {
    /// The time that is left; `None` once it has passed.
    pub fn remaining(&self, now: &Moment) -> Option<Duration> {
        let left = if self.epoch.same(&now.epoch) {
            self.ticks.checked_sub(now.ticks)
        } else {
            Duration::try_from(self.wall.duration_since(now.wall)).ok()
        };
        left.filter(|left| !left.is_zero())
    }

    /// Whether it has passed.
    pub fn passed(&self, now: &Moment) -> bool {
        self.remaining(now).is_none()
    }

    /// The deadline by the current wall clock, even if that clock has jumped since the deadline was set.
    ///
    /// The two clocks of a moment are read one after the other, so the difference between them varies a little. One
    /// lease has one end: only a jump of a second or more moves it.
    pub fn shown(&self, now: &Moment) -> Timestamp {
        if !self.epoch.same(&now.epoch) {
            return self.wall;
        }
        let here = i128::try_from(self.ticks.as_nanos()).unwrap_or(i128::MAX);
        let there = i128::try_from(now.ticks.as_nanos()).unwrap_or(i128::MAX);
        let nanos = now.wall.as_nanosecond();
        let by_ticks = nanos.saturating_add(here.saturating_sub(there));
        if by_ticks.abs_diff(self.wall.as_nanosecond()) < 1_000_000_000 {
            return self.wall;
        }
        Timestamp::from_nanosecond(by_ticks).unwrap_or(self.wall)
    }
}

/// A source of time.
pub trait Clock: Send + Sync {
    /// The current moment.
    fn now(&self) -> Moment;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(wall: i64, ticks: u64, epoch: &str) -> Moment {
        Moment {
            wall: Timestamp::from_second(wall).unwrap(),
            ticks: Duration::from_secs(ticks),
            epoch: Epoch(epoch.into()),
        }
    }

    #[test]
    fn a_jump_of_the_wall_clock_ends_no_lease() {
        let deadline = moment(1_000_000, 100, "a").deadline(Duration::from_secs(60));
        let jumped = moment(9_000_000, 110, "a");
        assert_eq!(deadline.remaining(&jumped), Some(Duration::from_secs(50)));
        assert_eq!(deadline.shown(&jumped).as_second(), 9_000_050);
        assert!(deadline.passed(&moment(0, 160, "a")));
    }

    #[test]
    fn a_deadline_of_another_epoch_is_compared_by_the_wall_clock() {
        let deadline = moment(1000, 100, "a").deadline(Duration::from_secs(60));
        assert!(!deadline.passed(&moment(1059, 5, "b")));
        assert!(deadline.passed(&moment(1060, 5, "b")));
    }

    #[test]
    fn an_unknown_epoch_equals_nothing_not_even_itself() {
        assert!(!Epoch::unknown().same(&Epoch::unknown()));
        assert!(Epoch::unknown() != Epoch::unknown());
        assert!(Epoch("a".into()) == Epoch("a".into()));
        assert!(!Epoch::unknown().differs(&Epoch("a".into())));
    }

    #[test]
    fn the_end_that_is_shown_moves_only_with_a_jump_of_the_wall_clock() {
        let set = moment(1000, 10, "boot");
        let deadline = set.deadline(Duration::from_secs(60));
        let mut later = moment(1020, 30, "boot");
        later.ticks += Duration::from_millis(2);
        assert_eq!(deadline.shown(&later), deadline.wall);
        let jumped = moment(5020, 30, "boot");
        assert_eq!(
            deadline.shown(&jumped),
            Timestamp::from_second(5060).unwrap()
        );
    }

    #[test]
    fn an_absurd_duration_saturates() {
        let deadline = moment(1000, 100, "a").deadline(Duration::MAX);
        assert!(!deadline.passed(&moment(2000, 1100, "a")));
        assert!(!deadline.passed(&moment(2000, 1100, "b")));
    }
}
