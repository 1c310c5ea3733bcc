//! A short way to write a claim in a test: [`Ask`].

use std::time::Duration;

use crate::limit::soon;
use serde::{Deserialize, Serialize};
use tenure_core::{
    Acquired, Binding, Claim, Granted, Holder, HolderId, Key, Lease, Mode, Patience, Priority,
    Reason, Store, Withdrawal,
};

/// Longer than any test, so no wait ends because this time has passed.
pub const HOUR: Duration = Duration::from_secs(3600);

/// A claim that can be sent to another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[must_use]
pub struct Ask {
    /// The key.
    pub key: Key,
    /// Other keys that are claimed together with it.
    pub also: Vec<Key>,
    /// The holder's name.
    pub holder: HolderId,
    /// Whether the caller chose that name.
    pub named: bool,
    /// The time to live.
    pub ttl: Duration,
    /// The priority.
    pub priority: Priority,
    /// How the key is to be held.
    pub mode: Mode,
    /// Whether the lease is detached instead of tied to the claiming process.
    pub detached: bool,
    /// How long to wait, if at all.
    pub limit: Option<Duration>,
    /// How often to poll during the wait.
    pub poll: Duration,
}

impl Ask {
    /// A claim on a key under this name, for one hour.
    pub fn new(key: &Key, holder: &str) -> Self {
        Self {
            key: key.clone(),
            also: Vec::new(),
            holder: HolderId::parse(holder).unwrap(),
            named: true,
            ttl: HOUR,
            priority: Priority::default(),
            mode: Mode::Exclusive,
            detached: false,
            limit: None,
            poll: HOUR,
        }
    }

    /// A claim on several keys, all of them or none.
    pub fn all(keys: &[&Key], holder: &str) -> Self {
        Self {
            also: keys.iter().skip(1).map(|key| (*key).clone()).collect(),
            ..Self::new(keys[0], holder)
        }
    }

    /// With this time to live.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// With this priority, from 0 to 9.
    pub fn priority(mut self, level: u8) -> Self {
        self.priority = Priority::new(level).unwrap();
        self
    }

    /// In this mode.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Under a generated name.
    pub fn unnamed(mut self) -> Self {
        self.named = false;
        self
    }

    /// Detached: the lease ends only when it expires.
    pub fn detached(mut self) -> Self {
        self.detached = true;
        self
    }

    /// Waits forever, and relies on wake-ups.
    pub fn waiting(mut self) -> Self {
        self.limit = Some(HOUR);
        self
    }

    /// Waits at most this long, and then withdraws its ticket.
    pub fn waiting_at_most(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Polls at least this often.
    pub fn polling(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// The claim, made by the process that has `store` open.
    pub fn claim(&self, store: &dyn Store) -> Claim {
        let asker = store.this_process().unwrap();
        let host = asker.process().map_or("here", |process| &process.host);
        Claim {
            key: self.key.clone(),
            mode: self.mode.clone(),
            holder: Holder {
                id: self.holder.clone(),
                host: host.to_owned(),
                command: None,
                binding: if self.detached {
                    Binding::Detached
                } else {
                    asker.clone()
                },
            },
            asker,
            named: self.named,
            ttl: self.ttl,
            priority: self.priority,
            patience: match self.limit {
                Some(_) => Patience::Queue,
                None => Patience::Try,
            },
            within: vec![],
        }
    }

    /// The claims on all keys.
    pub fn claims(&self, store: &dyn Store) -> Vec<Claim> {
        let first = self.claim(store);
        let like = |key: &Key| Claim {
            key: key.clone(),
            ..first.clone()
        };
        let others: Vec<Claim> = self.also.iter().map(like).collect();
        std::iter::once(first).chain(others).collect()
    }

    /// Asks once.
    pub fn once(&self, store: &dyn Store) -> Acquired {
        store.acquire(&self.claim(store), soon()).unwrap()
    }

    /// Withdraws its tickets, or parks them.
    pub fn withdraw(&self, store: &dyn Store, then: Withdrawal) {
        let claims = self.claims(store);
        store.withdraw_all(&claims, then, soon()).unwrap();
    }

    /// Asks once, and must be granted the key.
    pub fn granted(&self, store: &dyn Store) -> Lease {
        self.granted_for(store).0
    }

    /// Asks once, and must be granted the key. Also returns the reason.
    pub fn granted_for(&self, store: &dyn Store) -> (Lease, Reason) {
        match self.once(store) {
            Acquired::Granted(Granted { lease, reason }) => (lease, reason),
            other => panic!(
                "{} should be granted to {}: {other:?}",
                self.key, self.holder
            ),
        }
    }
}
