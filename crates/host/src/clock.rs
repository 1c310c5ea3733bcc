//! This machine's clocks: [`HostClock`].

use std::sync::OnceLock;
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

/// Time since boot, including the time asleep. The same in every time namespace of this machine.
pub fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let offset = boot_offset();
    duration(Timespec {
        tv_sec: time.tv_sec.saturating_sub(offset),
        ..time
    })
}

/// A time since boot, in a form that can be compared between fork and exec: that takes one system call, and no memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootTime {
    seconds: i64,
    nanos: i64,
}

impl BootTime {
    /// The time at which [`since_boot`] is this much.
    pub(crate) fn at(since_boot: Duration) -> Self {
        let seconds = i64::try_from(since_boot.as_secs()).unwrap_or(i64::MAX);
        Self {
            seconds: seconds.saturating_add(boot_offset()),
            nanos: since_boot.subsec_nanos().into(),
        }
    }

    /// Whether it is over.
    pub(crate) fn has_passed(self) -> bool {
        let now = clock_gettime(ClockId::Boottime);
        (now.tv_sec, now.tv_nsec) >= (self.seconds, self.nanos)
    }
}

/// How many seconds the boot clock of this process's time namespace is ahead of the machine's. (A
/// fraction of a second in the offset would make two processes disagree by that much; the usual tools set
/// whole seconds.)
pub(crate) fn boot_offset() -> i64 {
    /// The inode of the machine's own time namespace, in every kernel.
    const MACHINE: &str = "time:[4026531834]";
    static OFFSET: OnceLock<i64> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        let namespace = std::fs::read_link("/proc/self/ns/time");
        // A kernel without time namespaces has no such link.
        if namespace.is_ok_and(|namespace| namespace.as_os_str() != MACHINE) {
            let offsets = std::fs::read_to_string("/proc/self/timens_offsets");
            offsets.ok().and_then(|text| boottime(&text)).unwrap_or(0)
        } else {
            0
        }
    })
}

/// The seconds in the line `boottime SECONDS NANOSECONDS`.
fn boottime(offsets: &str) -> Option<i64> {
    let mut lines = offsets.lines().map(str::split_ascii_whitespace);
    let mut line = lines.find(|line| line.clone().next() == Some("boottime"))?;
    line.nth(1)?.parse().ok()
}

fn duration(time: Timespec) -> Duration {
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        let offsets = "monotonic           0         0\nboottime         -3600         0\n";
        assert_eq!(boottime(offsets), Some(-3600));
        assert_eq!(boottime(""), None);
    }

    #[test]
    fn a_time_since_boot_passes() {
        let now = since_boot();
        assert!(BootTime::at(now).has_passed());
        assert!(!BootTime::at(now + Duration::from_secs(3600)).has_passed());
    }

    #[test]
    fn the_boot_clock_only_goes_forward_and_has_an_epoch() {
        let clock = HostClock::new();
        let (a, b) = (clock.now(), clock.now());
        assert!(b.ticks >= a.ticks);
        assert!(a.epoch.same(&b.epoch), "this machine has a boot id");
    }
}
