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
    Binding, Doubt, Evidence, Holder, HolderId, Key, Lease, LifeId, Liveness, Moment, Presence,
    Token, Verdict, Waiter,
};
use tenure_host::{LifeFolder, liveness};

use crate::side::{Ending, Kept, Queued, State};
use crate::slot::{Found, Mark, Proof, Removal};

/// Where the reader stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) lives: &'a LifeFolder,
    pub(crate) now: &'a Moment,
    /// Our own life, which needs no probing.
    pub(crate) us: Option<&'a LifeId>,
    /// What it means that somebody removed a lock of ours.
    pub(crate) removal: Removal,
}

/// What is at the place of the lease that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its lock.
    Lock(Mark),
    /// Nothing, although nobody ended it.
    Missing,
    /// Something that can't be understood.
    Hidden(Mark),
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
    pub(crate) over: Option<(Kept, Ending)>,
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

impl Reader<'_> {
    /// Puts both together.
    pub(crate) fn see(&self, key: &Key, state: &State, found: Option<Found>) -> Seen {
        let token = found.as_ref().map(|found| found.lease.token);
        let grant = state.grant.as_ref().map(|kept| (kept, kept.lease(key)));
        let (current, over) = match (grant, found) {
            (None, None) => (None, None),
            (None, Some(found)) => (Some(self.at_place(found)), None),
            (Some((_, lease)), Some(found)) if found.is(&lease) => {
                (Some(self.ours(lease, Standing::Lock(found.mark))), None)
            }
            (Some((_, lease)), Some(found)) if found.flaw.is_some() => {
                let mut ours = self.ours(lease, Standing::Hidden(found.mark));
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
                Binding::Life { .. } => (Some(self.ours(lease, Standing::Missing)), None),
                Binding::Process { .. } | Binding::Detached => {
                    (None, Some((kept.clone(), Ending::Released)))
                }
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
            liveness::probe(self.lives, &lease.holder.binding)
        };
        Current {
            lease,
            liveness,
            standing,
        }
    }

    fn at_place(&self, found: Found) -> Current {
        let standing = Standing::Lock(found.mark);
        match found.proof {
            Proof::Binding => self.ours(found.lease, standing),
            Proof::Judged(liveness) => Current {
                lease: found.lease,
                liveness,
                standing,
            },
        }
    }

    pub(crate) fn is_us(&self, holder: &Holder) -> bool {
        self.us.is_some() && holder.life() == self.us
    }

    /// Whether a waiter lives, as far as anybody can tell.
    pub(crate) fn lives(&self, holder: &Holder) -> bool {
        if self.is_us(holder) {
            return true;
        }
        let liveness = liveness::probe(self.lives, &holder.binding);
        !matches!(liveness, Liveness::Gone(_) | Liveness::Orphaned)
    }

    /// The queue, in order. Only as many are probed as it takes to know whose turn it is, and those
    /// of the asker's own name; of the others it is enough that they were heard lately.
    pub(crate) fn queue(&self, tickets: &[Queued], asker: Option<&HolderId>) -> Vec<Waiter> {
        let mut queue: Vec<Waiter> = tickets.iter().map(|place| place.waiter()).collect();
        queue.sort_by_key(Waiter::rank);
        let mut turn_known = false;
        for waiter in &mut queue {
            let probed = !turn_known || asker == Some(&waiter.holder.id);
            let here = waiter.presence == Presence::Here
                && waiter.heard_lately(self.now)
                && (!probed || self.lives(&waiter.holder));
            waiter.presence = if here { Presence::Here } else { Presence::Away };
            turn_known |= here;
        }
        queue
    }

    /// The judgement on a lease.
    pub(crate) fn verdict(&self, (lease, liveness): (Lease, Liveness)) -> (Lease, Verdict) {
        let verdict = Verdict::on(self.now, &lease, &liveness);
        (lease, verdict)
    }

    /// The lease that counts and the judgement on it.
    pub(crate) fn judged(&self, seen: &Seen) -> Option<(Lease, Verdict)> {
        let current = seen.current.clone()?;
        Some(self.verdict((current.lease, current.liveness)))
    }
}
