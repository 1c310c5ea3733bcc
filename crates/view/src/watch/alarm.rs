//! [`Alarm`]: when to look again, without asking again and again.
//!
//! | what | how it is noticed |
//! |---|---|
//! | a change in a local store | inotify on the folders of its files |
//! | a lock of git, a store or a folder that appears | inotify on the folders where they appear |
//! | the exit of a holder or a waiter | a pidfd of its process. A command that outlives it is looked at every [`TROUBLE`] |
//! | the end of a lease's time to live | [`Alarm::look_by`] |
//! | a change on a server | [`Alarm::look_by`]: a server is asked every [`SERVER`] |
//! | everything else, such as a change on a network file system | [`Alarm::look_by`]: every [`RARELY`] |
//!
//! 1. What is watched is watched before it is looked at, so that no change goes unnoticed in between.
//! 2. Reading a store causes no alarm: only writes, new names and removed names do.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tenure::StoreUrl;
use tenure_core::{Presence, Process};
use tenure_host::inotify::{FolderEvent, FolderWatch, ReadFlags, WatchFlags};
use tenure_host::pidfd::open_pidfd;

use super::change::Change;
use super::feed::Feed;

/// How often to look if nothing is reported: a safety net.
const RARELY: Duration = Duration::from_secs(30);

/// How often to look at a store on a server.
const SERVER: Duration = Duration::from_secs(2);

/// How often to look while a store can't be read, a folder is missing, or a command outlives its holder.
const TROUBLE: Duration = Duration::from_secs(1);

/// How many processes are watched. The end of others is noticed at the next look.
const MOST_PROCESSES: usize = 256;

/// What counts as a change in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interest {
    /// Everything that is written, made or removed, but the logs of the daemon and what SQLite shares in memory.
    Everything,
    /// Lock files.
    Locks,
    /// Folders and databases.
    Folders,
}

impl Interest {
    const ALL: [Self; 3] = [Self::Everything, Self::Locks, Self::Folders];

    fn flags(self) -> WatchFlags {
        let names = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        match self {
            Self::Everything => names | WatchFlags::MODIFY,
            Self::Locks | Self::Folders => names,
        }
    }

    fn is_met(self, event: &FolderEvent) -> bool {
        if event.overflowed() || event.folder_gone() {
            return true;
        }
        let name = event.name.as_deref().unwrap_or_default();
        let name = name.as_encoded_bytes();
        match self {
            Self::Everything => !name.ends_with(b"-shm") && !name.starts_with(b"daemon.log"),
            Self::Locks => name.ends_with(b".lock"),
            Self::Folders => event.flags.intersects(ReadFlags::ISDIR) || name == b"meta.json",
        }
    }
}

/// A folder that is watched, and which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    interest: Interest,
    path: PathBuf,
    id: (u64, u64),
}

/// What wakes a process that watches a project.
#[derive(Debug, Default)]
pub struct Alarm {
    places: Vec<Place>,
    watches: Vec<(Interest, FolderWatch)>,
    /// Whether a folder is missing or can't be watched, so that its changes are not reported.
    is_blind: bool,
    exits: Vec<(Process, OwnedFd)>,
    /// The processes that had ended already. Their commands may hold on.
    ended: Vec<Process>,
    has_new_end: bool,
}

impl Alarm {
    /// Looks, and watches what there is to be watched from before that on.
    pub fn look(&mut self, feed: &mut Feed) -> Vec<Change> {
        self.watch(feed);
        let mut changes = feed.look();
        if self.watch(feed) {
            // A store was found whose changes were not reported until now.
            changes.extend(feed.look());
        }
        self.watch_processes(feed);
        changes
    }

    /// Watches the folders that exist now. Returns whether they are others than before.
    fn watch(&mut self, feed: &Feed) -> bool {
        let mut wanted: Vec<(Interest, PathBuf)> = Vec::new();
        if let Some(project) = feed.project() {
            let root = project.root();
            wanted.push((Interest::Folders, root.to_owned()));
            wanted.push((Interest::Everything, project.folder()));
            wanted.push((Interest::Everything, project.state().to_owned()));
            wanted.push((Interest::Locks, root.join(".git")));
        }
        for view in &feed.overview().stores {
            wanted.extend(
                folders(&view.url)
                    .into_iter()
                    .map(|folder| (Interest::Everything, folder)),
            );
        }
        let mut places: Vec<Place> = Vec::new();
        self.is_blind = false;
        for (interest, path) in wanted {
            match fs::metadata(&path) {
                Ok(folder) if folder.is_dir() => {
                    let id = (folder.dev(), folder.ino());
                    let place = Place { interest, path, id };
                    if !places.contains(&place) {
                        places.push(place);
                    }
                }
                _ => self.is_blind |= interest == Interest::Folders,
            }
        }
        if places == self.places {
            return false;
        }
        self.watches.clear();
        for interest in Interest::ALL {
            let of_kind: Vec<&Place> = places
                .iter()
                .filter(|place| place.interest == interest)
                .collect();
            let watched = FolderWatch::new().and_then(|watch| {
                let mut added = of_kind.iter();
                added.try_for_each(|place| watch.add(&place.path, interest.flags()))?;
                Ok(watch)
            });
            match watched {
                Ok(watch) => self.watches.push((interest, watch)),
                // One was just removed, or the limits of this user are reached.
                Err(_) => self.is_blind = true,
            }
        }
        self.places = if self.is_blind { Vec::new() } else { places };
        !self.is_blind
    }

    /// Watches the processes that hold or wait now.
    fn watch_processes(&mut self, feed: &Feed) {
        let mut wanted: Vec<&Process> = Vec::new();
        for lock in feed.overview().stores.iter().flat_map(|view| &view.locks) {
            let holders = lock.leases.iter();
            let holders = holders.filter(|(_, verdict)| verdict.ended().is_none());
            let holders = holders.map(|(lease, _)| &lease.holder);
            let waiters = lock.queue.iter();
            let waiters = waiters.filter(|waiter| waiter.presence == Presence::Here);
            let waiters = waiters.map(|waiter| &waiter.holder);
            for process in holders.chain(waiters).filter_map(|holder| holder.process()) {
                if wanted.len() < MOST_PROCESSES && !wanted.contains(&process) {
                    wanted.push(process);
                }
            }
        }
        self.exits.retain(|(process, _)| wanted.contains(&process));
        self.ended.retain(|process| wanted.contains(&process));
        for process in wanted {
            let is_known = self.exits.iter().any(|(known, _)| known == process);
            if is_known || self.ended.contains(process) {
                continue;
            }
            match open_pidfd(process) {
                Ok(Some(exit)) => self.exits.push((process.clone(), exit)),
                Ok(None) => {
                    self.ended.push(process.clone());
                    self.has_new_end = true;
                }
                // Of another container or machine: the next look tells.
                Err(_) => {}
            }
        }
    }

    /// Readable when there is a reason to look again.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let folders = self.watches.iter().map(|(_, watch)| watch.as_fd());
        folders.chain(self.exits.iter().map(|(_, exit)| exit.as_fd()))
    }

    /// Whether there was a reason since the last call. Each is reported once.
    pub fn take(&mut self) -> bool {
        let mut rang = false;
        for (interest, watch) in &self.watches {
            let Ok(events) = watch.take() else {
                // Everything is watched anew before the next look.
                self.places.clear();
                rang = true;
                continue;
            };
            rang |= events.iter().any(|event| interest.is_met(event));
        }
        let is_over = |(_, exit): &mut (Process, OwnedFd)| is_readable(exit.as_fd());
        for (process, _) in self.exits.extract_if(.., is_over) {
            self.ended.push(process);
            rang = true;
        }
        rang
    }

    /// How long the next look can wait at most, if nothing happens.
    pub fn look_by(&mut self, feed: &Feed) -> Duration {
        let overview = feed.overview();
        let mut by = RARELY;
        if std::mem::take(&mut self.has_new_end) {
            return Duration::ZERO;
        }
        // A process that has ended, but whose lease has not: its command holds on.
        if self.is_blind
            || !self.ended.is_empty()
            || overview.stores.iter().any(|view| view.error.is_some())
        {
            by = by.min(TROUBLE);
        }
        if overview
            .stores
            .iter()
            .any(|view| matches!(view.url, StoreUrl::Etcd(_)))
        {
            by = by.min(SERVER);
        }
        let locks = overview.stores.iter().flat_map(|view| &view.locks);
        let leases = locks.flat_map(|lock| &lock.leases);
        let held = leases.filter(|(_, verdict)| verdict.ended().is_none());
        let ends = held.filter_map(|(lease, _)| lease.remaining(&overview.now));
        // One that its holder does not renew in time has expired just after its end.
        let soonest = ends.min().map(|end| end + Duration::from_millis(10));
        by.min(soonest.unwrap_or(by))
    }
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// The folders in which a store changes.
fn folders(url: &StoreUrl) -> Vec<PathBuf> {
    let parent = |path: &Path| {
        // A database may be a symbolic link.
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        real.parent().map(Path::to_owned)
    };
    match url {
        StoreUrl::Sqlite(path) | StoreUrl::Steroids(path) => parent(path).into_iter().collect(),
        StoreUrl::Exclusive(dir) => {
            vec![dir.clone(), dir.join(tenure_lockfile::exclusive::SIDECAR)]
        }
        StoreUrl::Mkdir(lock) => {
            let mut folders = vec![lock.clone()];
            if let (Some(parent), Some(name)) = (lock.parent(), lock.file_name()) {
                folders.push(parent.to_owned());
                folders.push(parent.join(format!(".{}-tenure", name.to_string_lossy())));
            }
            folders
        }
        StoreUrl::Ledger(root) => tenure_ledger::folders_of_claims(root).into(),
        StoreUrl::Etcd(_) | StoreUrl::Memory => Vec::new(),
    }
}
