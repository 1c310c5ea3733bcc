//! The write-ahead log stays short: [`keep_short`].
//!
//! A process that opens the database while no other one has it open reads the whole log. SQLite's automatic
//! checkpoint copies the log into the database and leaves it to the next writer to start the log anew. What
//! was copied is noted in `-shm`, and a process that is alone begins with an empty `-shm`: it would copy
//! everything again, append its own pages, and exit. So the log would grow with every command, and every command
//! would be slower than the one before.
//!
//! Therefore the commit that takes the log over [`LIMIT`] does two steps:
//!
//! 1. It copies the log, as SQLite's automatic checkpoint does. Other processes read and write meanwhile.
//! 2. If nothing is left to copy, it empties the log, for which it needs the write lock and no reader in the
//!    log.
//!
//! # Invariants
//!
//! 1. Neither step waits for another process. If one is in the way, a later commit tries again.
//! 2. Neither step fails the commit, which has happened: a full disk only leaves the log as it is.
//! 3. The log is emptied after all of it is in the database file and that file is synced. SQLite sees to that,
//!    also in the database of another program that is attached.

use std::ffi::c_int;
use std::time::Instant;

use rusqlite::Connection;
use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;

use crate::call_deadline::CallDeadline;

/// Pages in the log before a commit copies it. Not more, because a process that is alone reads the whole
/// log; not fewer, because copying syncs twice.
pub(crate) const LIMIT: c_int = 400;

/// Keeps the log of every database of this connection short, in place of SQLite's automatic checkpoint.
pub(crate) fn keep_short(db: &mut Connection) -> rusqlite::Result<()> {
    db.wal_hook(Some(|log: &mut Wal, pages| {
        if pages >= LIMIT {
            shorten(log);
        }
        Ok(())
    }))
}

fn shorten(log: &mut Wal) {
    let copied_all = log
        .checkpoint_v2(CheckpointMode::PASSIVE)
        .is_ok_and(|(pages, copied)| pages == copied);
    if copied_all {
        let _no_wait = CallDeadline::until(now());
        let _ = log.checkpoint_v2(CheckpointMode::TRUNCATE);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a deadline that has passed, for a step that does not wait"
)]
fn now() -> Instant {
    Instant::now()
}
