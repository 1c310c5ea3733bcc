//! The locks of a project's boards, watched between two cycles: [`BoardLocks`].
//!
//! The lock folder of a killed tenure keeps other programs out until a tenure removes it. (A helper process
//! makes it removable for them, but that one can be killed, too.) So the daemon watches for the exit of a
//! holder that is a tenure, and starts a cycle, which removes the lock.
//!
//! A lock that comes and goes costs a few system calls and no cycle.

use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags};
use tenure::project::StoreRole;
use tenure::{Project, StoreUrl};
use tenure_host::exit_watch::ExitWatch;
use tenure_host::files::lock_watch::{Listen, LockWatch};
use tenure_host::files::protocol::HolderProof;
use tenure_lockfile::{Access, MkdirStore, Options};

/// The locks of a project's boards.
#[derive(Debug, Default)]
pub(crate) struct BoardLocks(Vec<WatchedLock>);

#[derive(Debug)]
struct WatchedLock {
    path: PathBuf,
    changes: LockWatch,
    /// Whether `changes` are those of the lock, not of its folder, which does not exist yet.
    in_place: bool,
    holder: WatchedHolder,
}

/// What is known of the holder.
#[derive(Debug)]
enum WatchedHolder {
    /// There is none, or it is not a tenure, or it can't be watched.
    NotWatched,
    Runs(ExitWatch),
    HasExited,
}

impl BoardLocks {
    /// Watches the locks that are in the project now. One that can't be watched is looked at in every cycle.
    pub(crate) fn of(project: &Project) -> Self {
        let stores = project.stores().into_iter();
        let locks = stores.filter_map(|store| match (store.role, store.url) {
            (StoreRole::BoardLock, StoreUrl::Mkdir(path)) => {
                // Watched before it is looked at, so that no change goes unnoticed in between.
                let (changes, in_place) = match LockWatch::on(&path, Listen::Everything) {
                    Ok(changes) => (changes, true),
                    Err(_) => (
                        LockWatch::on(path.parent()?, Listen::Everything).ok()?,
                        false,
                    ),
                };
                let holder = holder(&path);
                Some(WatchedLock {
                    path,
                    changes,
                    in_place,
                    holder,
                })
            }
            _ => None,
        });
        Self(locks.collect())
    }

    /// What to poll.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        self.0.iter().flat_map(|lock| {
            let holder = match &lock.holder {
                WatchedHolder::Runs(exit) => Some(exit.poll_fd()),
                WatchedHolder::NotWatched | WatchedHolder::HasExited => None,
            };
            let changes = PollFd::new(&lock.changes, PollFlags::IN);
            std::iter::once(changes).chain(holder)
        })
    }

    /// Looks at the locks again, and tells whether a holder has exited without releasing its lock.
    pub(crate) fn has_dead_holder(&mut self) -> bool {
        for lock in &mut self.0 {
            let _ = lock.changes.take();
            if !lock.in_place
                && let Ok(changes) = LockWatch::on(&lock.path, Listen::Everything)
            {
                lock.changes = changes;
                lock.in_place = true;
            }
            lock.holder = holder(&lock.path);
        }
        let mut holders = self.0.iter().map(|lock| &lock.holder);
        holders.any(|holder| matches!(holder, WatchedHolder::HasExited))
    }
}

fn holder(path: &std::path::Path) -> WatchedHolder {
    let options = Options {
        access: Access::ReadOnly,
        ..Options::default()
    };
    let Ok(store) = MkdirStore::open(path, options) else {
        return WatchedHolder::NotWatched;
    };
    let Some(found) = store
        .found()
        .filter(|found| found.proof == HolderProof::Binding)
    else {
        return WatchedHolder::NotWatched;
    };
    let live = store.sidecar().liveness_folder();
    match ExitWatch::on(&live, &found.lease.holder.binding) {
        Ok(Some(exit)) => WatchedHolder::Runs(exit),
        Ok(None) => WatchedHolder::HasExited,
        Err(_) => WatchedHolder::NotWatched,
    }
}
