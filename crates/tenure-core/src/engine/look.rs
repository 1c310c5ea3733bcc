//! Reads a key: its queue, the view of a claim, snapshots, and the contents of a refusal.

use crate::claim::Claim;
use crate::decide::{Claimant, LeftOut, View, fits, waits_for};
use crate::holder::{Holder, HolderId};
use crate::key::Key;
use crate::lease::{Lease, Token};
use crate::mode::Mode;
use crate::queue::{Presence, Rank, Waiter};
use crate::store::{Busy, Fenced, QueuePosition, Revision, Snapshot};
use crate::verdict::{Liveness, Verdict};

use super::Look;

/// Whether a waiter's process may be running.
pub fn is_alive<L: Look>(look: &mut L, waiter: &Holder) -> bool {
    !matches!(look.probe(waiter), Liveness::Gone(_) | Liveness::Orphaned)
}

/// The waiter with the time at which it was last heard.
pub(super) fn heard_now<L: Look>(look: &mut L, waiter: &Waiter) -> Waiter {
    Waiter {
        seen: look.heard(waiter),
        ..waiter.clone()
    }
}

/// Whether a waiter could take its turn: it has not given it up, was heard lately, and may be running.
pub(super) fn is_here<L: Look>(look: &mut L, waiter: &Waiter) -> bool {
    waiter.presence == Presence::Here
        && heard_now(look, waiter).heard_lately(look.now())
        && is_alive(look, &waiter.holder)
}

/// The queue of a key, in order, with each waiter's presence. It probes only as many waiters as it takes to
/// find whose turn it is, and those with the claimant's name; the others count as present if they have
/// not given up their turn.
pub fn queue<L: Look>(
    look: &mut L,
    key: &Key,
    asker: Option<&HolderId>,
) -> Result<Vec<Waiter>, L::Error> {
    let mut queue = look.tickets(key)?;
    settle(look, &mut queue, asker, &Mode::Exclusive);
    Ok(queue)
}

/// Puts tickets in order, each once, and finds out which waiters are present, as far as a claim in this mode depends
/// on it: up to the first that conflicts with it, or as many as there are slots; for paths, all that conflict.
pub(super) fn settle<L: Look>(
    look: &mut L,
    queue: &mut Vec<Waiter>,
    asker: Option<&HolderId>,
    mode: &Mode,
) {
    queue.sort_by_key(Waiter::rank);
    queue.dedup_by_key(|waiter| waiter.ticket);
    let (mut alike, mut conflicting) = (0, 0);
    for waiter in queue {
        let admits = waiter.mode.admits(mode);
        let counted = if admits { &mut alike } else { &mut conflicting };
        let depends = if admits {
            mode.room() < usize::MAX && *counted < mode.room()
        } else {
            *counted == 0 || mode.paths().is_some() || waiter.mode.contradicts(mode)
        };
        let probed = depends || asker == Some(&waiter.holder.id);
        let here = if probed {
            is_here(look, waiter)
        } else {
            waiter.presence == Presence::Here && waiter.epoch.same(&look.now().epoch)
        };
        waiter.presence = if here { Presence::Here } else { Presence::Away };
        *counted += usize::from(here);
    }
}

/// Every lease that conflicts with a claim on this key, and the whole queue.
pub fn view<L: Look>(look: &mut L, key: &Key, asker: Option<&HolderId>) -> Result<View, L::Error> {
    Ok(View {
        leases: look.leases(key)?,
        queue: queue(look, key, asker)?,
        left_out: LeftOut::default(),
    })
}

/// The leases of a key, without its queue.
pub(super) fn leases<L: Look>(look: &mut L, key: &Key) -> Result<View, L::Error> {
    Ok(View {
        leases: look.leases(key)?,
        ..View::default()
    })
}

/// The verdicts on some leases.
pub(super) fn judged<L: Look>(
    look: &L,
    leases: impl IntoIterator<Item = (Lease, Liveness)>,
) -> Vec<(Lease, Verdict)> {
    let judge = |(lease, liveness): (Lease, Liveness)| {
        let verdict = Verdict::on(look.now(), &lease, &liveness);
        (lease, verdict)
    };
    leases.into_iter().map(judge).collect()
}

/// Those of some leases that have not ended.
pub(super) fn standing<'a, L: Look>(look: &L, leases: &'a [(Lease, Liveness)]) -> Vec<&'a Lease> {
    let ended = look.rules().ended;
    leases
        .iter()
        .filter(|(lease, liveness)| ended(look.now(), lease, liveness).is_none())
        .map(|(lease, _)| lease)
        .collect()
}

/// Whether the grant with this token may still write.
pub fn fence<L: Look>(look: &mut L, key: &Key, token: Token) -> Result<Fenced, L::Error> {
    let view = leases(look, key)?;
    Ok(match (look.rules().fence)(look.now(), &view, token) {
        Some(lease) => Fenced::Current(lease.clone()),
        None => Fenced::Stale(judged(look, view.leases)),
    })
}

/// The store's records of a key. The store fills in the revision.
pub fn inspect<L: Look>(look: &mut L, key: &Key) -> Result<Snapshot, L::Error> {
    let leases = look.leases(key)?;
    Ok(Snapshot {
        key: key.clone(),
        leases: judged(look, leases),
        queue: queue(look, key, None)?,
        problems: look.problems(key)?,
        revision: Revision::default(),
    })
}

/// The leases of a key whose mode is wanted.
pub fn some_leases<L: Look>(
    look: &mut L,
    key: &Key,
    wanted: &dyn Fn(&Mode) -> bool,
) -> Result<Vec<(Lease, Verdict)>, L::Error> {
    let leases = look.some_leases(key, wanted)?;
    Ok(judged(look, leases))
}

/// The answer to a claim that was not granted. The store fills in the revision.
pub fn busy<L: Look>(
    look: &mut L,
    claim: &Claim,
    view: &View,
    position: Option<QueuePosition>,
    rank: Option<Rank>,
) -> Busy {
    let own = position.map(|position| position.ticket);
    let present: Vec<&Waiter> = view
        .queue
        .iter()
        .filter(|waiter| waiter.presence == Presence::Here && Some(waiter.ticket) != own)
        .collect();
    let claimant = Claimant::of(claim);
    let standing = standing(look, &view.leases);
    // Among any number of holders, only those that conflict are in the way.
    let selects = claim.mode.room() == usize::MAX;
    let is_in_the_way = |waiter: &&&Waiter| {
        let fits = selects && claimant.fits(Claimant::waiting(waiter));
        !fits && !waits_for(waiter, claimant, &standing)
    };
    let in_the_way: Vec<&Waiter> = present.iter().filter(is_in_the_way).copied().collect();
    // Watching a dead waiter would wake the caller again and again, watching a stopped one never. But the
    // first of them was there when the view was read, and the decision depends on it: if it has exited
    // since, the watch ends at once. Without it there might be nothing to watch.
    let first = in_the_way.first().map(|waiter| waiter.ticket);
    // One of several holders may have died, and its lease need not have ended.
    let is_own = |lease: &Lease| {
        claim.named && lease.holder.id == claim.holder.id && lease.mode != claim.mode
    };
    let (own, others): (Vec<&Lease>, Vec<&Lease>) =
        standing.iter().partition(|lease| is_own(lease));
    // A holder that changes its mode waits for the other holders only.
    let changes = own
        .iter()
        .any(|lease| !lease.mode.is_additional(&claim.mode));
    let behind = in_the_way
        .iter()
        .rev()
        .filter(|_| !changes)
        .filter(|waiter| rank.is_none_or(|rank| waiter.rank() < rank))
        .find(|waiter| Some(waiter.ticket) == first || is_here(look, waiter))
        .map(|waiter| waiter.holder.clone());
    let has_paths = claim.mode.paths().is_some();
    let is_obstacle =
        |lease: &Lease| !(changes && is_own(lease) || has_paths && fits(lease, claimant));
    let holders = others
        .iter()
        .filter(|lease| is_obstacle(lease))
        .map(|lease| lease.holder.clone());
    let obstacles = view.leases.iter().filter(|(lease, _)| is_obstacle(lease));
    Busy {
        key: claim.key.clone(),
        watch: match &behind {
            // The waiter ahead need not wait for what this claim waits for.
            Some(waiter) if has_paths => holders.chain([waiter.clone()]).collect(),
            Some(waiter) => vec![waiter.clone()],
            None => holders.collect(),
        },
        // The waiters behind the first are woken by it, or poll.
        look_again: obstacles
            .clone()
            .filter(|_| behind.is_none() || has_paths)
            .filter_map(|(lease, _)| lease.expires.clone())
            .filter_map(|end| end.remaining(look.now()).map(|left| (left, end)))
            .min_by_key(|(left, _)| *left)
            .map(|(_, end)| end),
        leases: judged(look, obstacles.cloned()),
        behind,
        position,
        waiting: present.len() + view.left_out.ahead + view.left_out.behind,
        shortage: None,
        revision: Revision::default(),
        others: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use super::*;
    use crate::claim::{Patience, Priority};
    use crate::engine::Look;
    use crate::holder::{Binding, LivenessId, Process};
    use crate::queue::Ticket;
    use crate::time::{Epoch, Moment};
    use crate::verdict::Evidence;

    /// A free key with one waiter, whose process runs for this many probes.
    struct DyingWaiter {
        now: Moment,
        probes_left: u32,
    }

    fn waiter() -> Waiter {
        let process = Process {
            pid: 7,
            started: 1,
            boot: Epoch("boot".into()),
            namespace: "pid:[1]".into(),
            host: "here".into(),
        };
        Waiter {
            ticket: Ticket(1),
            holder: Holder {
                id: HolderId::parse("first").unwrap(),
                host: "here".into(),
                command: None,
                binding: Binding::LivenessLock {
                    lock: LivenessId("1".into()),
                    process,
                },
            },
            mode: Mode::Exclusive,
            named: true,
            priority: Priority::default(),
            arrived: Duration::ZERO,
            seen: Duration::ZERO,
            epoch: Epoch("boot".into()),
            presence: Presence::Here,
            within: Vec::new(),
            with: Vec::new(),
        }
    }

    impl Look for DyingWaiter {
        type Error = Infallible;

        fn now(&self) -> &Moment {
            &self.now
        }

        fn leases(&mut self, _key: &Key) -> Result<Vec<(Lease, Liveness)>, Infallible> {
            Ok(Vec::new())
        }

        fn tickets(&mut self, _key: &Key) -> Result<Vec<Waiter>, Infallible> {
            Ok(vec![waiter()])
        }

        fn probe(&mut self, _waiter: &Holder) -> Liveness {
            let Some(left) = self.probes_left.checked_sub(1) else {
                return Liveness::Gone(Evidence::LivenessLockFree { pid: 7 });
            };
            self.probes_left = left;
            Liveness::Running
        }
    }

    #[test]
    fn a_waiter_that_exits_after_the_decision_is_still_watched() {
        let claim = Claim {
            key: Key::parse("k").unwrap(),
            mode: Mode::Exclusive,
            asker: Binding::Detached,
            holder: waiter().holder,
            named: true,
            ttl: Duration::from_secs(60),
            priority: Priority::default(),
            patience: Patience::Try,
            within: Vec::new(),
        };
        for (probes_left, watched) in [(0, 0), (1, 1), (2, 1)] {
            let now = Moment {
                ticks: Duration::ZERO,
                wall: jiff::Timestamp::UNIX_EPOCH,
                epoch: Epoch("boot".into()),
            };
            let mut look = DyingWaiter { now, probes_left };
            let view = view(&mut look, &claim.key, None).unwrap();
            let busy = busy(&mut look, &claim, &view, None, None);
            assert_eq!(busy.watch.len(), watched, "{probes_left} probes");
        }
    }
}
