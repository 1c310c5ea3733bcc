//! Both clocks and the boot, moved by hand: [`FakeClock`].

use std::sync::Mutex;
use std::time::Duration;

use tenure_core::{Clock, Epoch, Moment};
use tenure_host::HostClock;

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct FakeClock(Mutex<Moment>);

impl FakeClock {
    /// A clock that starts at this machine's wall time, an hour after a boot of this name.
    pub fn booted(boot: &str) -> Self {
        Self(Mutex::new(Moment {
            wall: HostClock::new().now().wall,
            ticks: Duration::from_secs(3600),
            epoch: Epoch(boot.into()),
        }))
    }

    /// Lets time pass on both clocks.
    pub fn pass(&self, time: Duration) {
        let mut now = self.0.lock().unwrap();
        now.ticks += time;
        now.wall = now.wall.checked_add(time).unwrap();
    }

    /// Sets the wall clock forward; no time passes.
    pub fn jump_forward(&self, by: Duration) {
        let mut now = self.0.lock().unwrap();
        now.wall = now.wall.checked_add(by).unwrap();
    }

    /// Sets the wall clock back; no time passes.
    pub fn jump_back(&self, by: Duration) {
        let mut now = self.0.lock().unwrap();
        now.wall = now.wall.checked_sub(by).unwrap();
    }

    /// Restarts the machine: another boot, whose clock begins at nothing.
    pub fn reboot(&self, boot: &str) {
        let mut now = self.0.lock().unwrap();
        now.epoch = Epoch(boot.into());
        now.ticks = Duration::from_secs(1);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Moment {
        self.0.lock().unwrap().clone()
    }
}
