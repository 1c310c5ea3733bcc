//! Waiting for a condition, and never for a time: [`within_limit`], [`until_asleep`].
//!
//! The limit protects against a test that hangs. It is no claim about speed: it is far beyond what
//! anything here takes.

use std::sync::mpsc::channel;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::gettid;
use tenure_core::Clock;
use tenure_host::HostClock;

/// Longer than anything here takes: a wait that reaches it would last for ever.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Measures how long something takes, by the clock that the stores' deadlines use.
#[derive(Debug)]
pub struct Stopwatch {
    clock: HostClock,
    started: Duration,
}

impl Stopwatch {
    /// Starts to measure.
    pub fn start() -> Self {
        let clock = HostClock::new();
        Self {
            started: clock.now().ticks,
            clock,
        }
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().ticks.saturating_sub(self.started)
    }
}

/// Polls until `done`; fails after [`LIMIT`].
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
#[expect(
    clippy::disallowed_methods,
    reason = "the deadline of a call is an Instant"
)]
pub fn soon() -> Instant {
    Instant::now() + LIMIT
}

/// How many looks in a row must find a thread asleep.
const LOOKS: u32 = 8;

/// Runs `wait` in a thread of the scope, and returns when that thread sleeps in the kernel: for a
/// test of a wake-up, which a waiter that does not sleep yet would not need.
///
/// A thread that has ended counts as asleep; its result then says what went wrong.
pub fn spawn_until_asleep<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    wait: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let (tell, told) = channel();
    let thread = scope.spawn(move || {
        tell.send(gettid()).unwrap();
        wait()
    });
    until_asleep(told.recv().unwrap());
    thread
}

/// Waits until a thread of this process sleeps in the kernel, or has ended.
pub fn until_asleep(thread: Pid) {
    let status = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
    // Asleep, and not woken between the looks: not just a moment in a lock or on the disk.
    let (mut switches, mut looks) = (String::new(), 0);
    within_limit("the thread to fall asleep", || {
        let Ok(status) = std::fs::read_to_string(&status) else {
            return true;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let now = field("voluntary_ctxt_switches:");
        let is_asleep = field("State:").starts_with('S') && now == switches;
        looks = if is_asleep { looks + 1 } else { 0 };
        switches = now;
        looks >= LOOKS
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_handed_back_once_it_sleeps_or_has_ended() {
        let (wake, woken) = channel();
        std::thread::scope(|scope| {
            let sleeper = spawn_until_asleep(scope, move || woken.recv().unwrap());
            assert!(!sleeper.is_finished());
            wake.send(7).unwrap();
            assert_eq!(sleeper.join().unwrap(), 7);
            assert_eq!(spawn_until_asleep(scope, || 8).join().unwrap(), 8);
        });
    }
}
