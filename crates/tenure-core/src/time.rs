//! Time, handed in: [`Clock`], [`Moment`], [`Deadline`].
//!
//! Two clocks are kept apart. The *wall* clock is what people read; it may jump. The *boot* clock
//! counts from the machine's start, also while it sleeps, never jumps, and is the same for every
//! process of one boot. A deadline set in this boot is judged by the boot clock, so a jump of the
//! wall clock ends no lease; across boots only the wall clock is left.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

/// One boot of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

impl BootId {
    /// The boot of a machine that does not tell: equal to nothing, not even to itself.
    pub fn unknown() -> Self {
        Self(String::new())
    }

    /// Whether both are known to be the same boot.
    pub fn same(&self, other: &Self) -> bool {
        !self.0.is_empty() && self == other
    }

    /// Whether both are known and differ.
    pub fn differs(&self, other: &Self) -> bool {
        !self.0.is_empty() && !other.0.is_empty() && self != other
    }
}

/// One instant, on both clocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// What people read.
    pub wall: Timestamp,
    /// Time since boot, sleep included.
    pub since_boot: Duration,
    /// Which boot.
    pub boot: BootId,
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
            since_boot: self.since_boot.saturating_add(after),
            boot: self.boot.clone(),
        }
    }
}

/// When a lease ends by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadline {
    /// On the wall clock.
    pub wall: Timestamp,
    /// On the boot clock of `boot`.
    pub since_boot: Duration,
    /// The boot in which it was set.
    pub boot: BootId,
}

impl Deadline {
    /// How long until then; `None` once it has passed.
    pub fn remaining(&self, now: &Moment) -> Option<Duration> {
        let left = if self.boot.same(&now.boot) {
            self.since_boot.checked_sub(now.since_boot)
        } else {
            Duration::try_from(self.wall.duration_since(now.wall)).ok()
        };
        left.filter(|left| !left.is_zero())
    }

    /// Whether it has passed.
    pub fn passed(&self, now: &Moment) -> bool {
        self.remaining(now).is_none()
    }

    /// The instant on today's wall clock, even if that clock jumped since it was set.
    pub fn shown(&self, now: &Moment) -> Timestamp {
        if !self.boot.same(&now.boot) {
            return self.wall;
        }
        let here = i128::try_from(self.since_boot.as_nanos()).unwrap_or(i128::MAX);
        let there = i128::try_from(now.since_boot.as_nanos()).unwrap_or(i128::MAX);
        Timestamp::from_nanosecond(
            now.wall
                .as_nanosecond()
                .saturating_add(here.saturating_sub(there)),
        )
        .unwrap_or(self.wall)
    }
}

/// Where time comes from.
pub trait Clock: Send + Sync {
    /// This instant.
    fn now(&self) -> Moment;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(wall: i64, since_boot: u64, boot: &str) -> Moment {
        Moment {
            wall: Timestamp::from_second(wall).unwrap(),
            since_boot: Duration::from_secs(since_boot),
            boot: BootId(boot.into()),
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
    fn another_boot_is_judged_by_the_wall_clock() {
        let deadline = moment(1000, 100, "a").deadline(Duration::from_secs(60));
        assert!(!deadline.passed(&moment(1059, 5, "b")));
        assert!(deadline.passed(&moment(1060, 5, "b")));
    }

    #[test]
    fn an_unknown_boot_is_never_the_same() {
        assert!(!BootId::unknown().same(&BootId::unknown()));
        assert!(!BootId::unknown().differs(&BootId("a".into())));
    }

    #[test]
    fn an_absurd_duration_saturates() {
        let deadline = moment(1000, 100, "a").deadline(Duration::MAX);
        assert!(!deadline.passed(&moment(2000, 1100, "a")));
        assert!(!deadline.passed(&moment(2000, 1100, "b")));
    }
}
