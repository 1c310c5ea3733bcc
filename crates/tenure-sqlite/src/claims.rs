//! One claim inside a write transaction: what a decision gives, and what it refuses.

use std::time::Duration;

use tenure_core::cycle::Step;
use tenure_core::decide::{self, ClaimTicket, Decision, View};
use tenure_core::{Acquired, Claim, Cycle, ErrorKind, Lease, Patience, Place, Reason, StoreError};

use crate::write::{Failure, Write};

/// Whether there is room for the tokens of this boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    AsItIs,
    Made,
}

impl Write<'_> {
    /// Whether room for the tokens of this boot has to be made before anything is granted.
    pub(crate) fn lacks_room(&self, room: Room) -> Result<bool, Failure> {
        Ok(room == Room::AsItIs && self.reader.is_new_boot()?)
    }

    /// Does what a decision says that gives the key; `None` if it gives nothing.
    pub(crate) fn give(
        &mut self,
        claim: &Claim,
        view: &View,
        decision: &Decision,
    ) -> Result<Option<(Lease, Reason)>, Failure> {
        match decision {
            Decision::Grant {
                token,
                reason,
                ended,
                claim_ticket,
            } => {
                if let Some((lease, proof)) = ended {
                    self.record_end(lease, proof)?;
                }
                self.drop_ticket(*claim_ticket)?;
                Ok(Some((self.grant(claim, *token, *reason)?, *reason)))
            }
            Decision::Extend { claim_ticket, .. } => {
                self.drop_ticket(*claim_ticket)?;
                let Some((lease, _)) = &view.lease else {
                    let what = "a lease to extend is not there";
                    return Err(StoreError::new(ErrorKind::Damaged, what).into());
                };
                let lease = self.extend(lease, &claim.holder, claim.ttl)?;
                Ok(Some((lease, Reason::AlreadyOwned)))
            }
            Decision::Wait { .. } | Decision::WaitForSelf => Ok(None),
        }
    }

    /// Does what a decision says that does not give the key: takes a place, or says why not.
    pub(crate) fn refuse(
        &mut self,
        claim: &Claim,
        view: &View,
        decision: &Decision,
        grace: Duration,
    ) -> Result<Acquired, Failure> {
        let (claim_ticket, ahead) = match decision {
            Decision::Wait {
                claim_ticket,
                ahead,
            } => (*claim_ticket, *ahead),
            Decision::WaitForSelf if claim.patience == Patience::Queue => {
                let holder = view.lease.as_ref().map(|(lease, _)| &lease.holder.id);
                let step = Step {
                    waiter: claim.holder.id.clone(),
                    key: claim.key.clone(),
                    holder: holder.unwrap_or(&claim.holder.id).clone(),
                };
                return Ok(Acquired::Deadlock(Cycle(vec![step])));
            }
            Decision::WaitForSelf | Decision::Grant { .. } | Decision::Extend { .. } => {
                return Ok(Acquired::Busy(Box::new(self.busy(view, None, None))));
            }
        };
        if decide::reap(self.now(), view).is_some() || view.lease.is_none() {
            // Somebody else is first, and may have missed its call.
            self.ring_next(&view.queue);
        }
        if claim.patience == Patience::Try {
            return Ok(Acquired::Busy(Box::new(self.busy(view, None, None))));
        }
        if !matches!(claim_ticket, ClaimTicket::Own(_))
            && let Some(cycle) = self.cycle(claim, view)?
        {
            return Ok(Acquired::Deadlock(cycle));
        }
        let (ticket, rank) = self.queue_up(claim, view, claim_ticket, grace)?;
        let place = Place {
            ticket,
            ahead,
            resumed: matches!(claim_ticket, ClaimTicket::Resumed(_)),
        };
        Ok(Acquired::Busy(Box::new(self.busy(
            view,
            Some(place),
            Some(rank),
        ))))
    }
}
