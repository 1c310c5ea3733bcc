//! The guarantees that the oracle checks, and the [`Violation`] of one.

use std::fmt;

/// The guarantees of `docs/guarantees.md` that depend on the rules, and progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guarantee {
    /// G1: at most one live lease for a key.
    OneHolder,
    /// G2: every grant has a larger token than all before it.
    TokensGrow,
    /// G3: a lease ends in one of four ways, with true evidence for three of them.
    ProvenEnds,
    /// G4: a lease whose holder can't be probed stays until it expires.
    UnverifiableStays,
    /// G6: only the holder releases a lease.
    OnlyHolderReleases,
    /// G7: an older grant can neither write nor renew.
    StaleGrantsRefused,
    /// G8: first come, first served, and priority ages.
    Fairness,
    /// A claim is granted if nothing conflicts with it.
    Progress,
}

/// A guarantee that was violated, and how.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) guarantee: Guarantee,
    pub(crate) how: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.guarantee, self.how)
    }
}

pub(crate) type Checked = Result<(), Violation>;

pub(crate) fn ensure(holds: bool, guarantee: Guarantee, how: impl FnOnce() -> String) -> Checked {
    if holds {
        return Ok(());
    }
    Err(Violation {
        guarantee,
        how: how(),
    })
}
