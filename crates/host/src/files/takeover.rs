//! Takes over or removes a stale lock, and never a live one (G4, G5).
//!
//! ```text
//!   swap      next (new lock)  <-- exchange -->  path (stale lock)
//!             Is the lock that came out the stale one?  yes: done
//!                                                       no: swap back and check again
//!   remove    path  -- rename -->  aside
//!             Is the lock that came out the stale one?  yes: discard it
//!                                                       no: put it back if the path is free
//! ```
//!
//! The caller holds the step lock, so only programs that do not use tenure can interfere.
//!
//! # Invariants
//!
//! 1. The caller names the lock to replace or remove by its fingerprint. Any other lock goes back.
//! 2. A process may be killed between any two system calls. The three names (`path`, `next`, `aside`)
//!    show how far it came; [`grant_happened`] and [`removal_happened`] finish or undo the rest.
//! 3. A lock that goes back may find its path free, because another program removed the lock that
//!    was there for a moment. It goes back all the same: if its holder meant to release it, it is
//!    stale once that process ends; dropping it could drop a live lock.

use std::io;
use std::path::Path;

use tenure_core::Lease;

use crate::files::atomic::{self, PutResult};
use crate::files::protocol::{Fingerprint, FoundLock, LockAtPath, LockProtocol};

/// The result of a swap or a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// The expected lock was replaced or removed.
    Done,
    /// Another lock was at the path, and still is.
    Different,
    /// Nothing was at the path.
    Missing,
}

/// Swaps the prepared lock `next` for the lock with the fingerprint `stale`, which is left at `next`.
pub fn swap(lock: &impl LockAtPath, next: &Path, stale: &Fingerprint) -> io::Result<Taken> {
    let Some(ours) = lock.fingerprint(next) else {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the prepared lock is gone",
        ));
    };
    // Check once more: a lock that is not moved need not be moved back.
    match lock.fingerprint(lock.path()) {
        None => return Ok(Taken::Missing),
        Some(there) if there != *stale => return Ok(Taken::Different),
        Some(_) => {}
    }
    if !atomic::exchange(next, lock.path())? {
        return Ok(Taken::Missing);
    }
    if lock.fingerprint(next).as_ref() == Some(stale) {
        return Ok(Taken::Done);
    }
    give_back(lock, next, ours)?;
    Ok(Taken::Different)
}

/// Swaps the lock at `next` back for `put`, the lock that took its path. If another lock comes out,
/// another program wrote it in between; that one goes back in turn.
fn give_back(lock: &impl LockAtPath, next: &Path, mut put: Fingerprint) -> io::Result<()> {
    while let Some(other) = lock.fingerprint(next) {
        if !atomic::exchange(next, lock.path())? {
            return put_back(lock, next);
        }
        match lock.fingerprint(next) {
            Some(out) if out != put => put = other,
            _ => break,
        }
    }
    lock.discard(next)
}

/// Puts a lock back at its path, unless another program has written a newer one there.
fn put_back(lock: &impl LockAtPath, from: &Path) -> io::Result<()> {
    // Occupied: that lock was written after this one was moved away.
    let (PutResult::Done | PutResult::Occupied) = lock.put(from)?;
    lock.discard(from)
}

/// Removes the lock with the fingerprint `stale`, by way of the private name `aside`.
pub fn remove(lock: &impl LockAtPath, aside: &Path, stale: &Fingerprint) -> io::Result<Taken> {
    // Check once more: a lock that is not moved need not be moved back.
    match lock.fingerprint(lock.path()) {
        None => return Ok(Taken::Missing),
        Some(there) if there != *stale => return Ok(Taken::Different),
        Some(_) => {}
    }
    let moved = match atomic::take_aside(lock.path(), aside) {
        // What a killed step left there was put back or removed before this step: another program's file is in the way.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            lock.discard(aside)
                .or_else(|error| atomic::remove_folder(aside).map_err(|_| error))?;
            atomic::take_aside(lock.path(), aside)?
        }
        moved => moved?,
    };
    if !moved {
        return Ok(Taken::Missing);
    }
    if lock.fingerprint(aside).as_ref() == Some(stale) {
        lock.discard(aside)?;
        return Ok(Taken::Done);
    }
    put_back(lock, aside)?;
    Ok(Taken::Different)
}

/// Whether an interrupted removal happened. Clears what it left behind.
pub fn removal_happened(
    lock: &impl LockAtPath,
    aside: &Path,
    stale: &Fingerprint,
) -> io::Result<bool> {
    match lock.fingerprint(aside) {
        Some(out) if out == *stale => {
            lock.discard(aside)?;
            Ok(true)
        }
        Some(_) => {
            put_back(lock, aside)?;
            Ok(false)
        }
        None => Ok(lock.fingerprint(lock.path()).as_ref() != Some(stale)),
    }
}

/// Whether an interrupted grant happened: the lock was swapped for `stale`, or put at a free path.
/// Clears what it left behind.
pub fn grant_happened(
    protocol: &impl LockProtocol,
    next: &Path,
    granted: &Lease,
    stale: Option<&Fingerprint>,
) -> io::Result<bool> {
    let there = protocol
        .read(protocol.path())
        .filter(|there| there.is(granted));
    let out = protocol.read(next);
    let came_out = |out: &FoundLock| Some(&out.fingerprint) == stale;
    let happened = match (there, out) {
        // Put, or swapped and cleaned up.
        (Some(_), None) => true,
        (Some(_), Some(out)) if out.is(granted) || came_out(&out) => true,
        // Swapped for another lock than `stale`.
        (Some(ours), Some(_)) => {
            give_back(protocol, next, ours.fingerprint)?;
            false
        }
        // Not yet put.
        (None, Some(out)) if out.is(granted) => false,
        // Swapped; then another program overwrote or removed the new lock.
        (None, Some(out)) if came_out(&out) => true,
        (None, Some(_)) => {
            put_back(protocol, next)?;
            false
        }
        (None, None) => false,
    };
    protocol.discard(next)?;
    Ok(happened)
}
