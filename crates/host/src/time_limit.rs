//! A limit for one wait, as a deadline by the clock: [`TimeLimit`].
//!
//! Adding up pauses or restarting a system call after a signal makes a wait last longer than it may.
//! A deadline does not. It is counted by the clock that also runs while the machine sleeps.

use std::time::{Duration, Instant};

use rustix::time::Timespec;

use crate::clock::since_boot;
use crate::interrupt::is_interrupted;

/// The first pause between two attempts of [`TimeLimit::poll`]. Later ones are longer.
const FIRST_PAUSE: Duration = Duration::from_micros(50);

/// How [`TimeLimit::poll`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Polled<T> {
    /// An attempt had this answer.
    Done(T),
    /// No time was left.
    TimedOut,
    /// The caller no longer waits; see [`crate::interrupt`].
    Interrupted,
}

/// When a wait ends.
///
/// ```
/// use std::time::Duration;
/// use tenure_host::time_limit::TimeLimit;
///
/// let limit = TimeLimit::after(Duration::from_secs(60));
/// assert!(!limit.has_passed());
/// assert!(limit.remaining() <= Duration::from_secs(60));
/// assert!(TimeLimit::after(Duration::ZERO).has_passed());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit(Duration);

impl TimeLimit {
    /// This long from now.
    pub fn after(limit: Duration) -> Self {
        Self(since_boot().saturating_add(limit))
    }

    /// The deadline of a call.
    #[expect(
        clippy::disallowed_methods,
        reason = "the deadline of a call is an Instant"
    )]
    pub fn until(by: Instant) -> Self {
        Self::after(by.saturating_duration_since(Instant::now()))
    }

    /// No limit.
    pub fn never() -> Self {
        Self(Duration::MAX)
    }

    /// The earlier of two limits.
    #[must_use]
    pub fn or_earlier(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }

    /// How much time is left.
    pub fn remaining(&self) -> Duration {
        self.0.saturating_sub(since_boot())
    }

    /// Whether no time is left.
    pub fn has_passed(&self) -> bool {
        self.remaining().is_zero()
    }

    /// Tries until there is an answer, at least once. The pauses between two attempts grow up to the longest one.
    pub fn poll<T, E>(
        self,
        longest_pause: Duration,
        mut attempt: impl FnMut() -> Result<Option<T>, E>,
    ) -> Result<Polled<T>, E> {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(answer) = attempt()? {
                return Ok(Polled::Done(answer));
            }
            let left = self.remaining();
            if left.is_zero() {
                return Ok(Polled::TimedOut);
            }
            // Not while the pauses are short: listening for signals takes a thread.
            if pause == longest_pause && is_interrupted() {
                return Ok(Polled::Interrupted);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 3 / 2).min(longest_pause);
        }
    }

    /// What is left, as `poll(2)` takes it.
    pub fn timespec(&self) -> Timespec {
        let left = self.remaining();
        Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        }
    }
}
