//! [`Lease`], its fencing token [`Token`], and the holder's proof of it, [`Grant`].

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, StoreError};
use crate::holder::{Holder, HolderId};
use crate::key::Key;
use crate::mode::Mode;
use crate::time::{Deadline, Moment};

/// The fencing token. It strictly grows with every grant of a key (G2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Token(pub u64);

impl Token {
    /// The token of a lease that another program wrote. No grant has it.
    pub const NONE: Self = Self(0);

    /// The largest token that is granted. A larger one in a store is damage, or was planted. Every reader of JSON can
    /// represent the tokens up to here exactly.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The next larger token; an error if there is none, so that no two grants ever share a token (G2).
    pub fn next(self) -> Result<Self, StoreError> {
        self.raised(1)
    }

    /// A token that is larger by this much.
    pub fn raised(self, by: u64) -> Result<Self, StoreError> {
        let raised = self.0.checked_add(by).map(Self);
        raised.filter(|token| token.may_be_granted()).ok_or_else(|| {
            let what = format!(
                "no token can follow {self} (the largest is {}): nothing was granted",
                Self::MAX
            );
            StoreError::new(ErrorKind::Damaged, what).fix(
                "tenure never counts that far, so another program wrote this number or the store is damaged: \
                 restore a backup of it, or move it away while nothing is held and begin with an empty one",
            )
        })
    }

    /// Whether a grant can have this token: it is neither [`Token::NONE`] nor absurdly large.
    pub fn may_be_granted(self) -> bool {
        self != Self::NONE && self <= Self::MAX
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lease, as the store records it.
#[derive(Debug, Clone, PartialEq)]
pub struct Lease {
    /// The key.
    pub key: Key,
    /// The holder.
    pub holder: Holder,
    /// How the key is held.
    pub mode: Mode,
    /// Which slot it has, from 0, if the mode is [`Mode::Slots`]. No other lease of the key has it.
    pub slot: Option<u32>,
    /// The fencing token.
    pub token: Token,
    /// When it was granted; [`Lease::UNKNOWN_TIME`] if the record does not tell. [`Lease::since`] is for
    /// output.
    pub acquired_at: Timestamp,
    /// When it expires unless it is renewed; `None` for a lock of a protocol whose locks do not expire.
    pub expires: Option<Deadline>,
    /// When the holder last renewed it; [`Lease::UNKNOWN_TIME`] if the record does not tell.
    pub heartbeat_at: Timestamp,
    /// How long each renewal lasts.
    pub ttl: Duration,
}

/// A holder's proof of its lease, which renewals, releases and fenced writes name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The key.
    pub key: Key,
    /// The holder.
    pub holder: HolderId,
    /// The token.
    pub token: Token,
}

impl Lease {
    /// Stands for a time that the record of another program does not tell. It is never shown.
    pub const UNKNOWN_TIME: Timestamp = Timestamp::UNIX_EPOCH;

    /// When it was granted, if the record tells.
    pub fn since(&self) -> Option<Timestamp> {
        Some(self.acquired_at).filter(|at| *at != Self::UNKNOWN_TIME)
    }

    /// When the holder last renewed it, if the record tells.
    pub fn heard(&self) -> Option<Timestamp> {
        Some(self.heartbeat_at).filter(|at| *at != Self::UNKNOWN_TIME)
    }

    /// When it ends, or ended, by the current wall clock, if it has an end and the record tells.
    pub fn end(&self, now: &Moment) -> Option<Timestamp> {
        let end = self.expires.as_ref()?.shown(now);
        Some(end).filter(|at| *at != Self::UNKNOWN_TIME)
    }

    /// The grant that this lease proves.
    pub fn grant(&self) -> Grant {
        Grant {
            key: self.key.clone(),
            holder: self.holder.id.clone(),
            token: self.token,
        }
    }

    /// Whether `grant` is this lease, and not an earlier one of the same holder.
    pub fn is(&self, grant: &Grant) -> bool {
        self.token != Token::NONE
            && self.token == grant.token
            && self.key == grant.key
            && self.holder.id == grant.holder
    }

    /// Whether it has expired. A lease without an end never expires.
    pub fn has_expired(&self, now: &Moment) -> bool {
        self.expires.as_ref().is_some_and(|end| end.passed(now))
    }

    /// How long until it expires; `None` if it has expired or never does.
    pub fn remaining(&self, now: &Moment) -> Option<Duration> {
        self.expires.as_ref()?.remaining(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_follows_the_largest_one() {
        assert_eq!(Token(7).next().unwrap(), Token(8));
        assert_eq!(Token(Token::MAX.0 - 1).next().unwrap(), Token::MAX);
        for full in [Token::MAX, Token(u64::MAX - 1), Token(u64::MAX)] {
            assert_eq!(full.next().unwrap_err().kind, ErrorKind::Damaged);
        }
        assert!(Token(1).raised(Token::MAX.0).is_err());
    }
}
