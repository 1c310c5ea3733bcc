//! A process that does one verb at a time, as it is told: [`Puppet`].

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

/// One verb to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Order {
    /// Ask for a key, and keep it.
    Acquire(Ask),
    /// Ask for a key, and give it back at once.
    Pass(Ask),
    /// Renew a grant.
    Renew(Named, Duration),
    /// Give a key back.
    Release(Named),
    /// Ask whether a grant may still write.
    Fence(Key, Token),
}

/// A grant that can be told to another process.
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

/// What the process says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[must_use]
pub enum Answer {
    /// It waits now. The verb goes on.
    Queued {
        /// With this ticket.
        ticket: Ticket,
        /// Whether it is an old one.
        resumed: bool,
    },
    /// It has the key.
    Granted {
        /// With this number.
        token: Token,
        /// For this reason.
        reason: Reason,
        /// After asking so often.
        rounds: u64,
    },
    /// It does not have the key.
    Busy,
    /// It would have waited for ever.
    Deadlock(String),
    /// The lease goes on.
    Extended,
    /// The lease is over; which grant stands now.
    Lost(Option<Token>),
    /// The key is free.
    Freed,
    /// The lease was over before; which grant stands now.
    AlreadyGone(Option<Token>),
    /// The grant may write.
    Current,
    /// It may not.
    Stale,
}

impl Answer {
    /// The token of a grant, which it must be.
    pub fn token(self) -> Token {
        match self {
            Self::Granted { token, .. } => token,
            other => panic!("it should be granted: {other:?}"),
        }
    }
}

/// A process that does one verb at a time.
#[derive(Debug)]
pub struct Puppet {
    process: Process,
}

impl Puppet {
    /// Leads a process that was started for this.
    pub fn new(process: Process) -> Self {
        Self { process }
    }

    /// The process, to be stopped and killed.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.process.kill();
    }

    /// Tells it what to do, and does not wait for the answer.
    pub fn order(&mut self, order: &Order) {
        self.process.tell(&serde_json::to_string(order).unwrap());
    }

    /// What it says next.
    pub fn answer(&self) -> Answer {
        serde_json::from_str(&self.process.report()).unwrap()
    }

    /// What it has said by now, if anything.
    pub fn try_answer(&self) -> Option<Answer> {
        self.process
            .try_report()
            .map(|report| serde_json::from_str(&report).unwrap())
    }

    /// Has it ask for a key that it must get at once.
    pub fn granted(&mut self, ask: &Ask) -> Token {
        self.order(&Order::Acquire(ask.clone()));
        self.answer().token()
    }

    /// Has it ask for a key, and wait for it if need be.
    pub fn gets(&mut self, ask: &Ask) -> Token {
        self.order(&Order::Acquire(ask.clone().waiting()));
        match self.answer() {
            Answer::Queued { .. } => self.served(),
            other => other.token(),
        }
    }

    /// Has it ask for a key that it must wait for; the ticket, and whether it is an old one.
    pub fn queued(&mut self, ask: &Ask) -> (Ticket, bool) {
        self.order(&Order::Acquire(ask.clone().waiting()));
        self.has_queued()
    }

    /// Has it ask for a key that it must wait for, and then give back at once.
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

    /// The token that it gets after having waited for it.
    pub fn served(&self) -> Token {
        self.answer().token()
    }

    /// Has it do something else, and takes the answer.
    pub fn does(&mut self, order: &Order) -> Answer {
        self.order(order);
        self.answer()
    }
}

/// In the process: does what it is told until there is nothing more.
pub(crate) fn dance(store: &dyn Store) {
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
            reason,
            rounds,
        } => {
            if pass {
                let released = store.release(&lease.grant(), soon()).unwrap();
                assert!(matches!(released, Released::Freed(_)), "{released:?}");
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
