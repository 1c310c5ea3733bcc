//! Starts the threads of guards that have been held for a moment.
//!
//! One thread serves all guards of the process. It sleeps until the oldest guard is due, and then forgets all that were
//! released meanwhile. So a process that takes and releases keys without a pause wakes it some fifty times a second, not
//! once for each.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use tenure_host::clock::since_boot;

use super::{Keeping, STACK};

/// After this time the threads start, or after a twentieth of the time to live.
const MOMENT: Duration = Duration::from_millis(20);

static WAITING: Mutex<Unstarted> = Mutex::new(Unstarted {
    guards: Vec::new(),
    wakes_at: None,
    runs: false,
});
static CHANGED: Condvar = Condvar::new();

struct Unstarted {
    /// When each is due, on the boot clock.
    guards: Vec<(Duration, Weak<Keeping>)>,
    /// When the thread wakes up by itself.
    wakes_at: Option<Duration>,
    /// Whether the thread runs.
    runs: bool,
}

/// Starts the threads of a guard in a moment, unless it is dropped before.
pub(super) fn start_soon(guard: &Arc<Keeping>) {
    let due = since_boot().saturating_add(MOMENT.min(guard.ttl / 20));
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    if !waiting.runs {
        let thread = std::thread::Builder::new().name("start-guards".into());
        if thread.stack_size(STACK).spawn(start_due).is_err() {
            drop(waiting);
            return Keeping::start(guard);
        }
        waiting.runs = true;
    }
    waiting.guards.push((due, Arc::downgrade(guard)));
    if waiting.wakes_at.is_none_or(|at| due < at) {
        CHANGED.notify_one();
    }
}

/// The thread.
fn start_due() {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = since_boot();
        let mut due = Vec::new();
        waiting.guards.retain(|(at, guard)| {
            if *at <= now {
                due.push(guard.clone());
            }
            *at > now && guard.strong_count() > 0
        });
        if !due.is_empty() {
            drop(waiting);
            for guard in due.iter().filter_map(Weak::upgrade) {
                Keeping::start(&guard);
            }
            waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        waiting.wakes_at = waiting.guards.iter().map(|(at, _)| *at).min();
        waiting = match waiting.wakes_at {
            Some(at) => {
                let left = at.saturating_sub(now);
                let woken = CHANGED.wait_timeout(waiting, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
            None => CHANGED
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner),
        };
    }
}
