//! Time, for measuring.

use std::time::Duration;

use tenure::store::Clock;
use tenure_host::HostClock;

/// Now, on the clock that all processes of this machine share.
pub(crate) fn now() -> Duration {
    thread_local!(static CLOCK: HostClock = HostClock::new());
    CLOCK.with(|clock| clock.now().ticks)
}

/// How long it takes.
pub(crate) fn time(act: impl FnOnce()) -> Duration {
    let began = now();
    act();
    now().saturating_sub(began)
}

/// The value below which so many of a hundred lie.
pub(crate) fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

pub(crate) fn ratio(ours: Duration, theirs: Duration) -> f64 {
    ours.as_secs_f64() / theirs.as_secs_f64()
}
