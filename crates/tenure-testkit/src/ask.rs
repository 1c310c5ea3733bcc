//! A claim in few words: [`Ask`].

use std::time::Duration;

use crate::limit::soon;
use serde::{Deserialize, Serialize};
use tenure_core::{
    Acquired, Binding, Claim, Granted, Holder, HolderId, Key, Lease, Patience, Priority, Reason,
    Store,
};

/// Longer than any test: whoever waits for this to pass waits for something else.
pub const HOUR: Duration = Duration::from_secs(3600);

/// What is asked for. Can be told to another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[must_use]
pub struct Ask {
    /// What.
    pub key: Key,
    /// In whose name.
    pub holder: HolderId,
    /// Whether that name was chosen on purpose.
    pub named: bool,
    /// For how long.
    pub ttl: Duration,
    /// How urgently.
    pub priority: Priority,
    /// Whether the lease is tied to nothing, instead of the process that asks.
    pub detached: bool,
    /// How long to wait for it, if at all.
    pub limit: Option<Duration>,
    /// How often to look again while waiting, should nobody call.
    pub poll: Duration,
}

impl Ask {
    /// A key in a name, for an hour.
    pub fn new(key: &Key, holder: &str) -> Self {
        Self {
            key: key.clone(),
            holder: HolderId::parse(holder).unwrap(),
            named: true,
            ttl: HOUR,
            priority: Priority::default(),
            detached: false,
            limit: None,
            poll: HOUR,
        }
    }

    /// For so long.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// So urgently, from 0 to 9.
    pub fn priority(mut self, level: u8) -> Self {
        self.priority = Priority::new(level).unwrap();
        self
    }

    /// In a name that was made up.
    pub fn unnamed(mut self) -> Self {
        self.named = false;
        self
    }

    /// Tied to nothing but its time.
    pub fn detached(mut self) -> Self {
        self.detached = true;
        self
    }

    /// Waits for it, for ever, and looks again only when called.
    pub fn waiting(mut self) -> Self {
        self.limit = Some(HOUR);
        self
    }

    /// Waits for it for so long, and then gives its place up.
    pub fn waiting_at_most(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Looks again at least so often.
    pub fn polling(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// The claim, by the process that has `store` open.
    pub fn claim(&self, store: &dyn Store) -> Claim {
        let asker = store.this_process().unwrap();
        let host = asker.process().map_or("here", |process| &process.host);
        Claim {
            key: self.key.clone(),
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

    /// Asks once.
    pub fn once(&self, store: &dyn Store) -> Acquired {
        store.acquire(&self.claim(store), soon()).unwrap()
    }

    /// Asks once, and must get it.
    pub fn granted(&self, store: &dyn Store) -> Lease {
        self.granted_for(store).0
    }

    /// Asks once, and must get it: with the reason.
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
