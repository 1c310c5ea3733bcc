//! A process that runs one verb at a time, on command: [`Puppet`].

use std::io::BufRead;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{
    Fenced, Grant, HolderId, Key, Lease, QueuePosition, Reason, Released, Renewed, Store, Ticket,
    Token,
};

use crate::ask::Ask;
use crate::limit::soon;
use crate::process::{self, Process};
use crate::waiting::{self, Outcome};

/// One verb to run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// Claim a key, and keep it.
    Acquire(Ask),
    /// Claim a key, and release it at once.
    Pass(Ask),
    /// Renew a grant.
    Renew(Named, Duration),
    /// Release a key.
    Release(Named),
    /// Check whether a grant may still write.
    Fence(Key, Token),
}

/// A grant that can be sent to another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Named {
    key: Key,
    holder: HolderId,
    token: Token,
}

impl From<Grant> for Named {
    fn from(grant: Grant) -> Self {
        Self {
            key: grant.key,
            holder: grant.holder,
            token: grant.token,
        }
    }
}

impl From<Named> for Grant {
    fn from(named: Named) -> Self {
        Self {
            key: named.key,
            holder: named.holder,
            token: named.token,
        }
    }
}

/// A report of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub enum Answer {
    /// It waits now. The verb has not finished.
    Queued {
        /// The ticket.
        ticket: Ticket,
        /// Whether the ticket was resumed.
        resumed: bool,
    },
    /// It has the key.
    Granted {
        /// The token.
        token: Token,
        /// The reason.
        reason: Reason,
        /// How often it asked.
        rounds: u64,
    },
    /// It does not have the key.
    Busy,
    /// The wait would never have ended.
    Deadlock(String),
    /// The lease was renewed.
    Extended,
    /// The lease has ended. The token of the lease on record, if there is one.
    Lost(Option<Token>),
    /// The key is free.
    Freed,
    /// The lease had ended before. The token of the lease on record, if there is one.
    AlreadyGone(Option<Token>),
    /// The grant may write.
    Current,
    /// It may not.
    Stale,
}

impl Answer {
    /// The token of a grant. Fails if this is another answer.
    pub fn token(self) -> Token {
        match self {
            Self::Granted { token, .. } => token,
            other => panic!("it should be granted: {other:?}"),
        }
    }
}

/// A process that runs one verb at a time.
#[derive(Debug)]
pub struct Puppet {
    process: Process,
}

impl Puppet {
    /// Controls a process that was started for this.
    pub fn new(process: Process) -> Self {
        Self { process }
    }

    /// The process, to stop or kill it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Sends it an order, and does not wait for the answer.
    pub fn order(&mut self, order: &Order) {
        self.process.tell(&serde_json::to_string(order).unwrap());
    }

    /// Its next answer.
    pub fn answer(&self) -> Answer {
        serde_json::from_str(&self.process.report()).unwrap()
    }

    /// Its next answer, if there is one already.
    pub fn try_answer(&self) -> Option<Answer> {
        self.process
            .try_report()
            .map(|report| serde_json::from_str(&report).unwrap())
    }

    /// Lets it claim a key that it must get at once.
    pub fn granted(&mut self, ask: &Ask) -> Token {
        self.order(&Order::Acquire(ask.clone()));
        self.answer().token()
    }

    /// Lets it claim a key, and wait if necessary.
    pub fn gets(&mut self, ask: &Ask) -> Token {
        self.order(&Order::Acquire(ask.clone().waiting()));
        match self.answer() {
            Answer::Queued { .. } => self.served(),
            other => other.token(),
        }
    }

    /// Lets it claim a key that it must wait for. Returns the ticket, and whether it was resumed.
    pub fn queued(&mut self, ask: &Ask) -> (Ticket, bool) {
        self.order(&Order::Acquire(ask.clone().waiting()));
        self.has_queued()
    }

    /// Lets it claim a key that it must wait for, and then releases at once.
    pub fn queued_to_pass(&mut self, ask: &Ask) -> (Ticket, bool) {
        self.order(&Order::Pass(ask.clone().waiting()));
        self.has_queued()
    }

    fn has_queued(&self) -> (Ticket, bool) {
        match self.answer() {
            Answer::Queued { ticket, resumed } => (ticket, resumed),
            other => panic!("it should have to wait: {other:?}"),
        }
    }

    /// The token that it gets at the end of its wait.
    pub fn served(&self) -> Token {
        self.answer().token()
    }

    /// Sends it an order, and returns the answer.
    pub fn does(&mut self, order: &Order) -> Answer {
        self.order(order);
        self.answer()
    }
}

/// In the process: runs orders until its input ends.
pub(crate) fn follow_orders(store: &dyn Store) {
    for line in std::io::stdin().lock().lines() {
        let answer = act(store, serde_json::from_str(&line.unwrap()).unwrap());
        say(&answer);
    }
}

fn say(answer: &Answer) {
    process::report(&serde_json::to_string(answer).unwrap());
}

fn act(store: &dyn Store, order: Order) -> Answer {
    let token = |leases: Vec<Lease>| leases.first().map(|lease| lease.token);
    match order {
        Order::Acquire(ask) => acquire(store, &ask, false),
        Order::Pass(ask) => acquire(store, &ask, true),
        Order::Renew(grant, ttl) => match store.renew(&grant.into(), ttl, soon()).unwrap() {
            Renewed::Extended(_) => Answer::Extended,
            Renewed::Lost(now) => Answer::Lost(token(now)),
        },
        Order::Release(grant) => match store.release(&grant.into(), soon()).unwrap() {
            Released::Freed(_) => Answer::Freed,
            Released::AlreadyGone(now) => Answer::AlreadyGone(token(now)),
        },
        Order::Fence(key, token) => match store.fence(&key, token, soon()).unwrap() {
            Fenced::Current(_) => Answer::Current,
            Fenced::Stale(_) => Answer::Stale,
        },
    }
}

fn acquire(store: &dyn Store, ask: &Ask, pass: bool) -> Answer {
    let queued = |position: &QueuePosition| {
        say(&Answer::Queued {
            ticket: position.ticket,
            resumed: position.resumed,
        });
    };
    match waiting::acquire(store, ask, queued) {
        Outcome::Granted {
            lease,
            others,
            reason,
            rounds,
        } => {
            if pass {
                let all = std::iter::once(&lease).chain(&others);
                let grants: Vec<Grant> = all.map(Lease::grant).collect();
                for released in store.release_all(&grants, soon()).unwrap() {
                    assert!(matches!(released, Released::Freed(_)), "{released:?}");
                }
            }
            Answer::Granted {
                token: lease.token,
                reason,
                rounds,
            }
        }
        Outcome::Busy(_) => Answer::Busy,
        Outcome::Deadlock(cycle) => Answer::Deadlock(cycle.to_string()),
    }
}
