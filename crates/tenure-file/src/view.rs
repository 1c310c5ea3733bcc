//! What the lock and the side folder say together.
//!
//! | on record | at the place | what counts |
//! |---|---|---|
//! | a grant | its lock | the grant |
//! | a grant kept by a process that runs it (a life) | nothing | the grant, while that life beats: its holder puts the lock back |
//! | a grant tied to a process that knows nothing of it | nothing | it was released outside tenure |
//! | a grant of a protocol where a removal is a loss ([`Removal::Loss`]) | nothing | nothing; ours was ended by force |
//! | a grant | something that can't be understood | the grant; once it is dead, malformed |
//! | a grant | somebody else's lock | that; ours was ended by force |
//! | none | a lock | that |

use tenure_core::decide::View;
use tenure_core::{
    Binding, Doubt, Evidence, HolderId, Key, Lease, Liveness, Token, Verdict, Waiter,
};
use tenure_host::files::reader::Reader;
use tenure_host::liveness;

use crate::state::{Ending, LeaseRecord, State};
use tenure_host::files::protocol::{Fingerprint, FoundLock, HolderProof, Removal};

/// What is at the place of the lease that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its lock.
    Lock(Fingerprint),
    /// Nothing, although nobody ended it.
    Missing,
    /// Something that can't be understood.
    Hidden(Fingerprint),
}

/// The lease that counts.
#[derive(Debug, Clone)]
pub(crate) struct Current {
    pub(crate) lease: Lease,
    pub(crate) liveness: Liveness,
    pub(crate) standing: Standing,
}

/// What was seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) current: Option<Current>,
    /// A lease of ours that somebody ended without asking.
    pub(crate) over: Option<(LeaseRecord, Ending)>,
    /// The token at the place, whoever wrote it.
    pub(crate) token: Option<Token>,
}

impl Seen {
    /// Whether there is something to put right before it is told: an end to record, or a lock of
    /// our own to put back.
    pub(crate) fn needs_mending(&self, reader: &Reader<'_>) -> bool {
        let ours_is_missing = |current: &Current| {
            current.standing == Standing::Missing && reader.is_us(&current.lease.holder)
        };
        self.over.is_some() || self.current.as_ref().is_some_and(ours_is_missing)
    }

    /// What is to be decided on.
    pub(crate) fn view(&self, state: &State, queue: Vec<Waiter>) -> View {
        View {
            lease: self
                .current
                .as_ref()
                .map(|current| (current.lease.clone(), current.liveness.clone())),
            queue,
            newest: Token(state.newest).max(self.token.unwrap_or(Token::NONE)),
        }
    }
}

/// What a reader of a lock sees.
pub(crate) trait See {
    fn see(&self, key: &Key, state: &State, found: Option<FoundLock>) -> Seen;
    fn ours(&self, lease: Lease, standing: Standing) -> Current;
    fn at_place(&self, found: FoundLock) -> Current;
    fn judged(&self, seen: &Seen) -> Option<(Lease, Verdict)>;
}

impl See for Reader<'_> {
    /// Puts both together.
    fn see(&self, key: &Key, state: &State, found: Option<FoundLock>) -> Seen {
        let token = found.as_ref().map(|found| found.lease.token);
        let grant = state.grant.as_ref().map(|kept| (kept, kept.lease(key)));
        let (current, over) = match (grant, found) {
            (None, None) => (None, None),
            (None, Some(found)) => (Some(self.at_place(found)), None),
            (Some((_, lease)), Some(found)) if found.is(&lease) => (
                Some(self.ours(lease, Standing::Lock(found.fingerprint))),
                None,
            ),
            (Some((_, lease)), Some(found)) if found.flaw.is_some() => {
                let mut ours = self.ours(lease, Standing::Hidden(found.fingerprint));
                if matches!(ours.liveness, Liveness::Gone(_)) {
                    ours.liveness = Liveness::Unverifiable(Doubt::Malformed);
                }
                (Some(ours), None)
            }
            (Some((kept, _)), Some(found)) => {
                let evidence = Evidence::Forced {
                    by: found.lease.holder.id.clone(),
                    reason: Some(match self.removal {
                        Removal::Mistake => "by writing the lock file outside tenure".into(),
                        Removal::Loss => "by putting another lock in its place".into(),
                    }),
                };
                let over = Some((kept.clone(), Ending::Proven(evidence)));
                (Some(self.at_place(found)), over)
            }
            (Some((kept, _)), None) if self.removal == Removal::Loss => {
                let evidence = Evidence::Forced {
                    by: HolderId::unreadable(),
                    reason: Some("by removing the lock outside tenure".into()),
                };
                (None, Some((kept.clone(), Ending::Proven(evidence))))
            }
            (Some((kept, lease)), None) => match lease.holder.binding {
                Binding::LivenessLock { .. } => (Some(self.ours(lease, Standing::Missing)), None),
                _ => (None, Some((kept.clone(), Ending::Released))),
            },
        };
        Seen {
            current,
            over,
            token,
        }
    }

    fn ours(&self, lease: Lease, standing: Standing) -> Current {
        let liveness = if self.is_us(&lease.holder) {
            Liveness::Running
        } else {
            liveness::probe(self.folder, &lease.holder.binding)
        };
        Current {
            lease,
            liveness,
            standing,
        }
    }

    fn at_place(&self, found: FoundLock) -> Current {
        let standing = Standing::Lock(found.fingerprint);
        match found.proof {
            HolderProof::Binding => self.ours(found.lease, standing),
            HolderProof::Protocol(liveness) => Current {
                lease: found.lease,
                liveness,
                standing,
            },
        }
    }

    /// The lease that counts and the judgement on it.
    fn judged(&self, seen: &Seen) -> Option<(Lease, Verdict)> {
        let current = seen.current.clone()?;
        Some(self.verdict((current.lease, current.liveness)))
    }
}
