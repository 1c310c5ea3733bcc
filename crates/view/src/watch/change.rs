//! What changed between two looks: [`Index::changes_to`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use tenure::StoreUrl;
use tenure_core::{Event, HolderId, Key, Lease, Presence, Ticket, Token, Verdict, Waiter};
use tenure_tasks::{Status, Task};

use super::feed::{Feed, Gap, daemon_in_words};
use crate::foreign::ForeignLock;

/// Something that changed.
#[derive(Debug, Clone)]
pub enum Change {
    /// Something in a store.
    In(StoreUrl, StoreChange),
    /// A lock file of another tool appeared, or what is known of its holder changed.
    Foreign(ForeignLock),
    /// A lock file of another tool is gone.
    ForeignGone(PathBuf),
    /// The daemon started, stopped, or skips its cycles.
    Daemon(String),
    /// Something could not be looked at, as a sentence.
    LeftOut(String),
}

/// Something that changed in a store.
#[derive(Debug, Clone)]
pub enum StoreChange {
    /// An event was recorded.
    Event(Event),
    /// Events can't be reported.
    Gap(Gap),
    /// A holder waits for a key.
    Waits(Key, Waiter),
    /// A waiter is in the queue no more: it was served, or gave up.
    LeftQueue(Key, Waiter),
    /// The verdict on a lease changed, for example because its holder died.
    Judged(Lease, Verdict),
    /// Another program holds a key, by its own protocol. The lease has no token.
    HeldByOther(Lease),
    /// Another program holds a key no more.
    FreedByOther(Key, HolderId),
    /// A task was added, or has another status.
    Task {
        /// The task.
        task: Box<Task>,
        /// Its status before; `None` if it is new.
        was: Option<Status>,
    },
    /// The task with this id was deleted.
    TaskGone(String),
    /// The store appeared, or can be read or not, other than before: why it can't be read; `None` if it can.
    Readable(Option<String>),
    /// The store is gone.
    Gone,
}

/// A state, in a form that can be compared.
#[derive(Debug, Default)]
pub struct Index {
    stores: Vec<(StoreUrl, StoreIndex)>,
    foreign: BTreeMap<PathBuf, &'static str>,
    daemon: String,
    left_out: Vec<String>,
}

#[derive(Debug, Default, Clone)]
struct StoreIndex {
    error: Option<String>,
    waiters: BTreeMap<(Key, Ticket), Waiter>,
    verdicts: BTreeMap<(Key, Token, HolderId), &'static str>,
    tasks: BTreeMap<String, Status>,
}

impl Index {
    /// The state at the last look of a feed.
    pub fn of(feed: &Feed) -> Self {
        let overview = feed.overview();
        let mut stores = Vec::new();
        for view in &overview.stores {
            let mut index = StoreIndex {
                error: view.error.as_ref().map(ToString::to_string),
                ..StoreIndex::default()
            };
            for lock in &view.locks {
                let here = lock
                    .queue
                    .iter()
                    .filter(|waiter| waiter.presence == Presence::Here);
                let here = here.map(|waiter| ((lock.key.clone(), waiter.ticket), waiter.clone()));
                index.waiters.extend(here);
                index
                    .verdicts
                    .extend(lock.leases.iter().map(|(lease, verdict)| {
                        let grant = (lease.key.clone(), lease.token, lease.holder.id.clone());
                        (grant, verdict.word())
                    }));
            }
            let tasks = feed.tasks().iter().find(|(url, _)| *url == view.url);
            let tasks = tasks.into_iter().flat_map(|(_, tasks)| tasks);
            index.tasks = tasks.map(|task| (task.id.clone(), task.status)).collect();
            stores.push((view.url.clone(), index));
        }
        let foreign = overview.foreign.iter();
        Self {
            stores,
            foreign: foreign
                .map(|lock| (lock.path.clone(), lock.verdict.word()))
                .collect(),
            daemon: daemon_in_words(feed.daemon()),
            left_out: overview.left_out.clone(),
        }
    }

    /// What changed from this state to that of the feed's last look, besides events; and that state.
    pub fn changes_to(&self, feed: &Feed) -> (Vec<Change>, Self) {
        let mut next = Self::of(feed);
        let mut changes = Vec::new();
        for (url, index) in &mut next.stores {
            let before = self.stores.iter().find(|(known, _)| known == url);
            let before = before.map(|(_, index)| index);
            if before.is_none_or(|before| before.error != index.error) {
                let readable = StoreChange::Readable(index.error.clone());
                changes.push(Change::In(url.clone(), readable));
            }
            let nothing = StoreIndex::default();
            let before = before.unwrap_or(&nothing);
            if index.error.is_some() {
                // What was known of it counts until it can be read again.
                *index = StoreIndex {
                    error: index.error.take(),
                    ..before.clone()
                };
            } else {
                let within = before.compare(index, url, feed).into_iter();
                changes.extend(within.map(|change| Change::In(url.clone(), change)));
            }
        }
        let gone = self.stores.iter().filter(|(url, _)| {
            let mut now = next.stores.iter();
            !now.any(|(known, _)| known == url)
        });
        changes.extend(gone.map(|(url, _)| Change::In(url.clone(), StoreChange::Gone)));
        for lock in &feed.overview().foreign {
            if self.foreign.get(&lock.path) != Some(&lock.verdict.word()) {
                changes.push(Change::Foreign(lock.clone()));
            }
        }
        let gone = self.foreign.keys();
        let gone = gone.filter(|path| !next.foreign.contains_key(*path));
        changes.extend(gone.cloned().map(Change::ForeignGone));
        if self.daemon != next.daemon {
            changes.push(Change::Daemon(next.daemon.clone()));
        }
        let left_out = next.left_out.iter();
        let new = left_out.filter(|what| !self.left_out.contains(what));
        changes.extend(new.cloned().map(Change::LeftOut));
        (changes, next)
    }
}

impl StoreIndex {
    fn compare(&self, next: &Self, url: &StoreUrl, feed: &Feed) -> Vec<StoreChange> {
        let mut changes = Vec::new();
        let views = feed.overview().stores.iter();
        let locks = views
            .filter(|view| view.url == *url)
            .flat_map(|view| &view.locks);
        for lock in locks {
            for waiter in &lock.queue {
                let ticket = (lock.key.clone(), waiter.ticket);
                if next.waiters.contains_key(&ticket) && !self.waiters.contains_key(&ticket) {
                    changes.push(StoreChange::Waits(lock.key.clone(), waiter.clone()));
                }
            }
            for (lease, verdict) in &lock.leases {
                let grant = (lease.key.clone(), lease.token, lease.holder.id.clone());
                let before = self.verdicts.get(&grant);
                if before.is_none() && lease.token == Token::NONE {
                    changes.push(StoreChange::HeldByOther(lease.clone()));
                }
                // One that is new and has ended already did so since the look before.
                let is_other = before.map_or(verdict.ended().is_some(), |before| {
                    *before != verdict.word()
                });
                if is_other {
                    changes.push(StoreChange::Judged(lease.clone(), verdict.clone()));
                }
            }
        }
        let left = self.waiters.iter();
        let left = left.filter(|(ticket, _)| !next.waiters.contains_key(ticket));
        changes.extend(
            left.map(|((key, _), waiter)| StoreChange::LeftQueue(key.clone(), waiter.clone())),
        );
        let freed = self.verdicts.keys();
        let freed = freed.filter(|grant| grant.1 == Token::NONE);
        let freed = freed.filter(|grant| !next.verdicts.contains_key(*grant));
        changes.extend(
            freed.map(|(key, _, holder)| StoreChange::FreedByOther(key.clone(), holder.clone())),
        );
        let tasks = feed.tasks().iter().filter(|(of, _)| of == url);
        for task in tasks.flat_map(|(_, tasks)| tasks) {
            let was = self.tasks.get(&task.id).copied();
            if was != Some(task.status) {
                let task = Box::new(task.clone());
                changes.push(StoreChange::Task { task, was });
            }
        }
        let gone = self.tasks.keys().filter(|id| !next.tasks.contains_key(*id));
        changes.extend(gone.cloned().map(StoreChange::TaskGone));
        changes
    }
}
