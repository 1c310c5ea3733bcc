//! Record locks (`fcntl`), which SQLite uses: do they hold on a file system?

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

/// What was found out about the record locks of a file system.
#[derive(Debug)]
pub enum RecordLocks {
    /// A lock keeps another one out. On a kernel without locks of open files, it could only be taken.
    Hold,
    /// A second lock was granted beside the first.
    DoNotExclude,
    /// A lock can't be taken, or the second one fails in another way than the first one's being there.
    Fail(io::Error),
}

/// Tries them on a file that is open twice, for writing.
///
/// The record locks of one process do not conflict with each other, so the second lock is one of the open file, which
/// does. Closing any of a process's files releases its record locks on it: the file must not be one that this process
/// has locked.
pub fn try_record_lock(first: &File, second: &File) -> RecordLocks {
    match fcntl_lock(first, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        // Another process tries at the same moment: then locks hold.
        Err(Errno::AGAIN | Errno::ACCESS) => return RecordLocks::Hold,
        Err(error) => return RecordLocks::Fail(error.into()),
    }
    let tried = match lock_open_file(second) {
        Ok(()) => RecordLocks::DoNotExclude,
        Err(error) => match Errno::from_io_error(&error) {
            // A kernel that does not know the second kind says that the argument is invalid.
            Some(Errno::AGAIN | Errno::ACCESS | Errno::INVAL) => RecordLocks::Hold,
            _ => RecordLocks::Fail(error),
        },
    };
    let _ = fcntl_lock(first, FlockOperation::Unlock);
    tried
}

/// Takes a record lock that belongs to the open file, on all of it.
#[expect(unsafe_code, reason = "rustix has no F_OFD_SETLK")]
fn lock_open_file(file: &File) -> io::Result<()> {
    // SAFETY: all fields of a flock may be zero.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = i16::try_from(libc::F_WRLCK).unwrap_or_default();
    lock.l_whence = i16::try_from(libc::SEEK_SET).unwrap_or_default();
    // SAFETY: the descriptor is open, and the lock lives until the call returns.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
