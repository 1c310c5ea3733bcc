//! What a store has put right of itself: [`Repaired`].

use crate::holder::HolderId;
use crate::key::Key;
use crate::lease::Token;

/// What was repaired.
#[derive(Debug, Clone, Default)]
pub struct Repaired {
    /// The number that every new token is above, if tokens were raised.
    pub raised_above: Option<u64>,
    /// What was done, as sentences.
    pub done: Vec<String>,
    /// What is left to do, as sentences.
    pub left: Vec<String>,
}

impl Repaired {
    /// Notes that a lease was ended whose record can't be understood.
    pub fn ended(&mut self, key: &Key) {
        let what = format!("{key}: ended a lease whose record can't be understood");
        self.done.push(what);
    }

    /// Notes that a lease is left whose record can't be understood: it may be in use.
    pub fn left_lease(&mut self, key: &Key, token: Token, ends: Ends) {
        let ends = match ends {
            Ends::ByItself => "It ends by itself when its holder does not renew it; at once with:",
            Ends::ByForce => "It ends only with:",
        };
        self.left.push(format!(
            "{key}: the record of the lease with token {token} can't be understood, and it may be in use. {ends} tenure \
             force {key} --holder '{}'",
            HolderId::unreadable()
        ));
    }
}

/// How a lease ends whose record can't be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// At its end, unless its holder renews it.
    ByItself,
    /// By force only: its end can't be understood.
    ByForce,
}
