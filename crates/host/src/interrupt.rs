//! Ends a call of a store that waits for its turn: [`Interrupt`].
//!
//! Every verb of a store has a deadline. A caller that no longer wants the answer, because a signal
//! arrived, should not have to wait until then. A store that waits for other processes before it begins
//! asks [`is_interrupted`] now and then, and gives up: nothing was changed. A verb that has begun is
//! completed.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::lock;

thread_local! {
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// A request to give up, made from any thread.
///
/// ```
/// use tenure_host::interrupt::{Interrupt, is_interrupted};
///
/// let interrupt = Interrupt::default();
/// interrupt.request();
/// assert!(interrupt.during(is_interrupted));
/// assert!(!is_interrupted());
/// ```
#[derive(Clone, Default)]
pub struct Interrupt(Arc<SharedRequest>);

#[derive(Default)]
struct SharedRequest {
    requested: AtomicBool,
    on_wait: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Interrupt {
    /// Makes calls give up that wait for their turn.
    pub fn request(&self) {
        self.0.requested.store(true, Ordering::SeqCst);
    }

    /// Whether that was requested.
    pub fn is_requested(&self) -> bool {
        self.0.requested.load(Ordering::SeqCst)
    }

    /// Calls `act` once, as soon as something waits: from then on it is worth a thread to listen for what
    /// could end the wait.
    pub fn on_wait(&self, act: impl FnOnce() + Send + 'static) {
        *lock(&self.0.on_wait) = Some(Box::new(act));
    }

    /// Says that something waits.
    pub fn waits(&self) {
        let act = lock(&self.0.on_wait).take();
        if let Some(act) = act {
            act();
        }
    }

    /// Runs calls of this thread that this interrupt can end.
    pub fn during<T>(&self, act: impl FnOnce() -> T) -> T {
        let _restored = Restored(CURRENT.replace(Some(self.clone())));
        act()
    }
}

/// Puts the interrupt of an outer call back.
struct Restored(Option<Interrupt>);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Whether the call that this thread makes should give up. A call that asks has not begun, and waits.
pub fn is_interrupted() -> bool {
    let current = CURRENT.with_borrow(Clone::clone);
    current.is_some_and(|interrupt| {
        interrupt.waits();
        interrupt.is_requested()
    })
}
