//! What the oracle says: that all is well, or which guarantee was [`Broken`].

use std::fmt;

/// The guarantees of `docs/guarantees.md` that the rules decide on, and one more: progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guarantee {
    /// G1: at most one live lease for a key.
    OneHolder,
    /// G2: every grant has a larger token than all before it.
    TokensGrow,
    /// G3: a lease ends in one of four ways, with true evidence for three of them.
    FourEnds,
    /// G4: doubt is no proof.
    UnknownStands,
    /// G6: nobody but the holder releases.
    OnlyTheHolder,
    /// G7: an older grant neither writes nor renews.
    LateWriters,
    /// G8: first come, first served, and priority ages.
    Fairness,
    /// A claim that nothing stands in the way of is granted.
    Progress,
}

/// A guarantee that did not hold.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) guarantee: Guarantee,
    pub(crate) how: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.guarantee, self.how)
    }
}

pub(crate) type Judgement = Result<(), Broken>;

pub(crate) fn ensure(holds: bool, guarantee: Guarantee, how: impl FnOnce() -> String) -> Judgement {
    if holds {
        return Ok(());
    }
    Err(Broken {
        guarantee,
        how: how(),
    })
}
