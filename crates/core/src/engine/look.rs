//! Reads a key: its queue, the view of a claim, snapshots, and the contents of a refusal.

use crate::claim::Claim;
use crate::decide::{Claimant, View, compatible_with, waits_for};
use crate::holder::{Holder, HolderId};
use crate::key::Key;
use crate::lease::{Lease, Token};
use crate::mode::Mode;
use crate::places::Places;
use crate::queue::{Presence, Rank, Waiter};
use crate::store::{Busy, Fenced, QueuePosition, Revision, Snapshot};
use crate::verdict::{Liveness, Verdict};

use super::{LeaseQuery, Look};

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

/// Whether a ticket no longer counts, and the next claim that queues drops it: its grace period has ended, or it can't be
/// resumed, because its waiter is dead and has a generated name. `waiter` is as [`queue`] returns it.
pub(super) fn is_forgotten<L: Look>(look: &mut L, waiter: &Waiter) -> bool {
    let grace = look.grace();
    let never_again =
        waiter.presence == Presence::Away && !waiter.named && !is_alive(look, &waiter.holder);
    never_again
        || waiter.forgotten(look.now(), grace)
            && heard_now(look, waiter).forgotten(look.now(), grace)
}

/// The queue of a key, in order, with each waiter's presence. It probes only as many waiters as it takes to
/// find whose turn it is, and those with the claimant's name; the others count as present if they have
/// not given up their turn.
pub fn queue<L: Look>(
    look: &mut L,
    key: &Key,
    asker: Option<&HolderId>,
) -> Result<Vec<Waiter>, L::Error> {
    let asker = asker.map(|holder| Claimant {
        mode: &Mode::Exclusive,
        holder,
        named: false,
    });
    let mut queue = look.tickets(key)?;
    resolve_presence(look, &mut queue, asker, &[]);
    Ok(queue)
}

/// Puts tickets in order, and finds out which waiters are present, as far as a claimant depends on it: those that conflict
/// with it, up to the first that goes before it, and those alike, up to as many as there are slots. Without a claimant, up
/// to the first.
pub(super) fn resolve_presence<L: Look>(
    look: &mut L,
    queue: &mut Vec<Waiter>,
    claimant: Option<Claimant<'_>>,
    leases: &[(Lease, Liveness)],
) {
    let mode = claimant.map_or(&Mode::Exclusive, |claimant| claimant.mode);
    let standing = standing(look, leases);
    queue.sort_by_key(Waiter::rank);
    let (mut alike, mut conflicting) = (0, 0);
    for waiter in queue {
        let admits = waiter.mode.admits(mode);
        let counted = if admits { &mut alike } else { &mut conflicting };
        let depends = if admits {
            mode.room() < usize::MAX && *counted < mode.room()
        } else {
            *counted == 0 || waiter.mode.contradicts(mode)
        };
        let is_own = claimant.is_some_and(|claimant| *claimant.holder == waiter.holder.id);
        let here = if depends || is_own {
            is_here(look, waiter)
        } else {
            waiter.presence == Presence::Here && waiter.epoch.same(&look.now().epoch)
        };
        // Reservations of one name do not conflict, so such a waiter does not go first, and neither does one that waits
        // for them.
        let goes_behind = claimant.is_some_and(|claimant| {
            let waits = waits_for(Claimant::waiting(waiter), claimant, &standing);
            waits || is_own && mode.paths().is_some()
        });
        *counted += usize::from(here && !goes_behind);
        waiter.presence = if here { Presence::Here } else { Presence::Away };
    }
}

/// Every lease that conflicts with a claim on this key, and the whole queue.
pub fn view<L: Look>(look: &mut L, key: &Key, asker: Option<&HolderId>) -> Result<View, L::Error> {
    Ok(View {
        leases: look.leases(key)?,
        queue: queue(look, key, asker)?,
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
    let fence = look.rules().fence;
    let found = lease_or_all(look, key, token, |look, view| {
        fence(look.now(), view, token).cloned()
    })?;
    Ok(match found {
        Ok(lease) => Fenced::Current(lease),
        Err(all) => Fenced::Stale(judged(look, all)),
    })
}

/// A lease, or else all those of the key.
pub(super) type LeaseOrAll = Result<Lease, Vec<(Lease, Liveness)>>;

/// The lease that a rule finds; otherwise all leases of the key. Those without this token are read, and their holders
/// probed, only in the second case.
pub(super) fn lease_or_all<L: Look>(
    look: &mut L,
    key: &Key,
    token: Token,
    rule: impl Fn(&L, &View) -> Option<Lease>,
) -> Result<LeaseOrAll, L::Error> {
    let mut view = View {
        leases: look.some_leases(key, LeaseQuery::Token(token))?,
        ..View::default()
    };
    if let Some(lease) = rule(look, &view) {
        return Ok(Ok(lease));
    }
    view.leases = look.leases(key)?;
    Ok(rule(look, &view).ok_or(view.leases))
}

/// The store's records of a key. The store fills in the revision.
pub fn inspect<L: Look>(look: &mut L, key: &Key) -> Result<Snapshot, L::Error> {
    let leases = look.leases(key)?;
    let (forgotten, queue) = queue(look, key, None)?
        .into_iter()
        .partition(|waiter| is_forgotten(look, waiter));
    Ok(Snapshot {
        key: key.clone(),
        leases: judged(look, leases),
        queue,
        forgotten,
        problems: look.problems(key)?,
        revision: Revision::default(),
    })
}

/// Some of the leases of a key.
pub fn some_leases<L: Look>(
    look: &mut L,
    key: &Key,
    query: LeaseQuery<'_>,
) -> Result<Vec<(Lease, Verdict)>, L::Error> {
    let leases = look.some_leases(key, query)?;
    Ok(judged(look, leases))
}

/// Adds leases that are not there yet, and keeps the order of the tokens.
pub(super) fn add_leases(leases: &mut Vec<(Lease, Liveness)>, more: Vec<(Lease, Liveness)>) {
    leases.extend(more);
    leases.sort_by_key(|(lease, _)| lease.token);
    leases.dedup_by_key(|(lease, _)| lease.token);
}

/// The leases that a holder in this mode can conflict with, and perhaps some more.
pub(super) fn leases_near<L: Look>(
    look: &mut L,
    key: &Key,
    mode: &Mode,
) -> Result<Vec<(Lease, Liveness)>, L::Error> {
    match Places::of(mode) {
        Some(places) => look.some_leases(key, LeaseQuery::Near(&places)),
        None => look.leases(key),
    }
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
        let fits = selects && claimant.compatible_with(Claimant::waiting(waiter));
        !fits && !waits_for(Claimant::waiting(waiter), claimant, &standing)
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
    let is_obstacle = |lease: &Lease| {
        !(changes && is_own(lease) || has_paths && compatible_with(lease, claimant))
    };
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
        waiting: present.len() + view.unread.ahead + view.unread.behind,
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

        fn grace(&self) -> Duration {
            Duration::from_secs(600)
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
