//! Locks a mutex of this process: [`lock`].

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. What it holds can be used as it is even if a thread panicked while it had the lock.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
