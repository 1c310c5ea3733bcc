//! Protection against a test that hangs: [`LIMIT`], [`within_limit`], [`Stopwatch`].
//!
//! Nothing here is a claim about speed: the limit is far beyond what anything takes.

use std::time::{Duration, Instant};

use tenure_core::Clock;
use tenure_host::HostClock;

/// Longer than anything here can take: who waits for so long waits for ever.
pub const LIMIT: Duration = Duration::from_secs(60);

/// How long something takes. Deadlines are for the stores to judge by, and to be judged.
#[derive(Debug)]
pub struct Stopwatch {
    clock: HostClock,
    started: Duration,
}

impl Stopwatch {
    /// From now on.
    pub fn start() -> Self {
        let clock = HostClock::new();
        Self {
            started: clock.now().ticks,
            clock,
        }
    }

    /// Since then.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().ticks.saturating_sub(self.started)
    }
}

/// Looks again and again, with pauses, until `done`; fails after [`LIMIT`].
pub fn within_limit(what: &str, mut done: impl FnMut() -> bool) {
    let watch = Stopwatch::start();
    let mut pause = Duration::from_micros(100);
    while !done() {
        assert!(watch.elapsed() < LIMIT, "{what}: not in {LIMIT:?}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

/// A deadline for one call of a store: no check waits longer for it.
pub fn soon() -> Instant {
    Instant::now() + LIMIT
}
