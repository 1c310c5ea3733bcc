//! Reads the queue and judges holders: shared by the stores until they run on the engine.

use tenure_core::{
    Holder, HolderId, Lease, Liveness, LivenessId, Moment, Presence, Verdict, Waiter,
};

use crate::files::protocol::Removal;
use crate::files::sidecar::TicketRecord;
use crate::{LivenessFolder, liveness};

/// Where the reader stands.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    /// The liveness locks.
    pub folder: &'a LivenessFolder,
    /// The time.
    pub now: &'a Moment,
    /// Our own life, which needs no probing.
    pub us: Option<&'a LivenessId>,
    /// What it means that somebody removed a lock of ours.
    pub removal: Removal,
}

impl Reader<'_> {
    /// Whether this process is the holder.
    pub fn is_us(&self, holder: &Holder) -> bool {
        self.us.is_some() && holder.liveness_lock() == self.us
    }

    /// Whether a waiter lives, as far as anybody can tell.
    pub fn is_alive(&self, holder: &Holder) -> bool {
        if self.is_us(holder) {
            return true;
        }
        let liveness = liveness::probe(self.folder, &holder.binding);
        !matches!(liveness, Liveness::Gone(_) | Liveness::Orphaned)
    }

    /// The queue, in order. Only as many are probed as it takes to know whose turn it is, and those
    /// of the asker's own name; of the others it is enough that they were heard lately.
    pub fn queue(&self, tickets: &[TicketRecord], asker: Option<&HolderId>) -> Vec<Waiter> {
        let mut queue: Vec<Waiter> = tickets.iter().map(|place| place.waiter()).collect();
        queue.sort_by_key(Waiter::rank);
        let mut turn_known = false;
        for waiter in &mut queue {
            let probed = !turn_known || asker == Some(&waiter.holder.id);
            let here = waiter.presence == Presence::Here
                && waiter.heard_lately(self.now)
                && (!probed || self.is_alive(&waiter.holder));
            waiter.presence = if here { Presence::Here } else { Presence::Away };
            turn_known |= here;
        }
        queue
    }

    /// The judgement on a lease.
    pub fn verdict(&self, (lease, liveness): (Lease, Liveness)) -> (Lease, Verdict) {
        let verdict = Verdict::on(self.now, &lease, &liveness);
        (lease, verdict)
    }
}
