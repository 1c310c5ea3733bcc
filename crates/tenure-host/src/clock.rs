//! This machine's clocks: [`HostClock`].

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, Timespec, clock_gettime};
use tenure_core::{Clock, Epoch, Moment};

use crate::identity;

/// The wall clock, and the clock that counts from boot and includes sleep.
///
/// `std::time::Instant` stops while the machine sleeps, so it can't measure the age of a lease.
#[derive(Debug, Clone)]
pub struct HostClock {
    epoch: Epoch,
}

impl HostClock {
    /// The clocks of this boot.
    pub fn new() -> Self {
        Self {
            epoch: identity::boot().clone(),
        }
    }
}

impl Default for HostClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for HostClock {
    fn now(&self) -> Moment {
        let wall = clock_gettime(ClockId::Realtime);
        let wall = i32::try_from(wall.tv_nsec)
            .ok()
            .and_then(|nanos| Timestamp::new(wall.tv_sec, nanos).ok());
        Moment {
            wall: wall.unwrap_or(Timestamp::UNIX_EPOCH),
            ticks: since_boot(),
            epoch: self.epoch.clone(),
        }
    }
}

/// Time since boot, including the time asleep.
pub(crate) fn since_boot() -> Duration {
    duration(clock_gettime(ClockId::Boottime))
}

fn duration(time: Timespec) -> Duration {
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_only_goes_forward_and_has_an_epoch() {
        let clock = HostClock::new();
        let (a, b) = (clock.now(), clock.now());
        assert!(b.ticks >= a.ticks);
        assert!(a.epoch.same(&b.epoch), "this machine has a boot id");
    }
}
