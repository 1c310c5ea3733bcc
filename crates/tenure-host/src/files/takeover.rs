//! How a stale lock is taken over or removed, and a live one never (G4, G5).
//!
//! ```text
//!   swap      next (ours)  <-- exchange -->  place (judged dead)
//!             look at what came out: the very one that was judged?  yes: done
//!                                                                   no: swap back, and look again
//!   remove    place  -- rename -->  aside
//!             look at what came out: the very one that was judged?  yes: unlink
//!                                                                   no: put back where it was free
//! ```
//!
//! All of it runs under the guard, so only programs that know nothing of tenure can come between.
//! Every state in which a process can be killed is told apart from the others by what stands at the
//! three names, and `*_happened` brings it to an end.
//!
//! A lock that is given back may find the place free: somebody removed what we had put there for a
//! moment. It is put back even so. If its holder meant to release it, it is stale once that
//! process ends; to drop it would be to drop a live lock.

use std::io;
use std::path::Path;

use tenure_core::Lease;

use crate::files::atomic::{self, Put};
use crate::files::protocol::{Fingerprint, LockProtocol};

/// What came of a swap or a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// It is done.
    Done,
    /// Something else stood there, and still does.
    Different,
    /// Nothing stood there.
    Missing,
}

/// Puts the lock that was prepared as `next` in the place of the one that was judged. What came out
/// is left as `next`.
pub fn swap(protocol: &impl LockProtocol, next: &Path, judged: &Fingerprint) -> io::Result<Taken> {
    let Some(ours) = protocol.read(next) else {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the prepared lock is gone",
        ));
    };
    // Once more at the last moment: what is not touched need not be given back.
    match protocol.read(protocol.path()) {
        None => return Ok(Taken::Missing),
        Some(there) if there.fingerprint != *judged => return Ok(Taken::Different),
        Some(_) => {}
    }
    if !atomic::exchange(next, protocol.path())? {
        return Ok(Taken::Missing);
    }
    if protocol
        .read(next)
        .is_some_and(|out| out.fingerprint == *judged)
    {
        return Ok(Taken::Done);
    }
    give_back(protocol, next, ours.fingerprint)?;
    Ok(Taken::Different)
}

/// Swaps back what came out in place of `put`, which we had put there. Whatever comes out now has
/// to be just that; if it is not, somebody put something newer there meanwhile, and that goes back.
fn give_back(protocol: &impl LockProtocol, next: &Path, mut put: Fingerprint) -> io::Result<()> {
    while let Some(theirs) = protocol.read(next) {
        if !atomic::exchange(next, protocol.path())? {
            return put_back(protocol, next);
        }
        match protocol.read(next) {
            Some(out) if out.fingerprint != put => put = theirs.fingerprint,
            _ => break,
        }
    }
    protocol.discard(next)
}

/// Puts something back where it was, unless there is something newer by now.
fn put_back(protocol: &impl LockProtocol, from: &Path) -> io::Result<()> {
    // Occupied: whoever put that there did so after this one was taken away.
    let (Put::Done | Put::Occupied) = protocol.put(from)?;
    protocol.discard(from)
}

/// Removes the lock that was judged, by way of the private name `aside`.
pub fn remove(
    protocol: &impl LockProtocol,
    aside: &Path,
    judged: &Fingerprint,
) -> io::Result<Taken> {
    // Once more at the last moment: what is not touched need not be put back.
    match protocol.read(protocol.path()) {
        None => return Ok(Taken::Missing),
        Some(there) if there.fingerprint != *judged => return Ok(Taken::Different),
        Some(_) => {}
    }
    if !atomic::take_aside(protocol.path(), aside)? {
        return Ok(Taken::Missing);
    }
    if protocol
        .read(aside)
        .is_some_and(|out| out.fingerprint == *judged)
    {
        protocol.discard(aside)?;
        return Ok(Taken::Done);
    }
    put_back(protocol, aside)?;
    Ok(Taken::Different)
}

/// Whether a removal that was cut off happened; what it left behind is cleared.
pub fn removal_happened(
    protocol: &impl LockProtocol,
    aside: &Path,
    judged: &Fingerprint,
) -> io::Result<bool> {
    match protocol.read(aside) {
        Some(out) if out.fingerprint == *judged => {
            protocol.discard(aside)?;
            Ok(true)
        }
        Some(_) => {
            put_back(protocol, aside)?;
            Ok(false)
        }
        None => Ok(protocol
            .read(protocol.path())
            .is_none_or(|there| there.fingerprint != *judged)),
    }
}

/// Whether a grant that was cut off happened: by a swap for the one that was judged, or by being put
/// where nothing was. What it left behind is cleared.
pub fn grant_happened(
    protocol: &impl LockProtocol,
    next: &Path,
    granted: &Lease,
    judged: Option<&Fingerprint>,
) -> io::Result<bool> {
    let there = protocol
        .read(protocol.path())
        .filter(|there| there.is(granted));
    let out = protocol.read(next);
    let came_out = |out: &crate::files::protocol::FoundLock| Some(&out.fingerprint) == judged;
    let happened = match (there, out) {
        // Put, or swapped and cleared.
        (Some(_), None) => true,
        (Some(_), Some(out)) if out.is(granted) || came_out(&out) => true,
        // Swapped for something that was not judged.
        (Some(ours), Some(_)) => {
            give_back(protocol, next, ours.fingerprint)?;
            false
        }
        // Not yet put.
        (None, Some(out)) if out.is(granted) => false,
        // Swapped, and then somebody else overwrote or removed it.
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
