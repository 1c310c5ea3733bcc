//! The verbs of the store, each one compare-and-swap: read, decide, append. Hops three and five of an
//! acquisition.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use tenure_core::cycle::{self, Held, Step as CycleStep};
use tenure_core::decide::{self, ClaimTicket, Decision, View};
use tenure_core::{
    Acquired, Binding, Capabilities, Claim, ClockOwner, Cycle, ErrorKind, Event, Evidence, Fenced,
    Forced, Grant, HistoryQuery, HolderId, Key, LivenessId, Patience, Place, Presence, Reap,
    Reaped, Reason, Released, Renewed, Snapshot, Store, StoreError, Ticket, Token, Verdict, Waited,
    Waiter, Wakeup, Watched,
};
use tenure_host::{LivenessLock, bell, identity};

use super::look::{Counts, Source};
use super::node_state::NodeState;
use super::step::Step;
use super::{Glance, LedgerStore};
use crate::dialect::Dialect;
use crate::node::NodeId;
use tenure_host::files::places::Places;

impl Store for LedgerStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            any_key: false,
            leases: true,
            fencing: true,
            queue: true,
            history: true,
            shared: false,
            clock: ClockOwner::Host,
            wakeup: Wakeup::Push,
        }
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        Ok(Binding::LivenessLock {
            lock: self.liveness_lock()?.id().clone(),
            process: identity::this_process(),
        })
    }

    fn inherited_fd(&self) -> Option<BorrowedFd<'_>> {
        self.lock_cell.get().map(LivenessLock::as_fd)
    }

    fn acquire(&self, claim: &Claim) -> Result<Acquired, StoreError> {
        self.check_ttl(claim.ttl)?;
        let (mut answer, revision) = self.write(&claim.key, |step| {
            step.persevere(|step| {
                step.can_be_claimed()?;
                step.reap_file_of_node()?;
                let view = step.view(Some(claim));
                let decision = decide::acquire(&step.now, &view, claim);
                step.carry_out(claim, &view, &decision)
            })
        })?;
        if let Acquired::Busy(busy) = &mut answer {
            busy.revision = revision;
        }
        Ok(answer)
    }

    fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Renewed, StoreError> {
        self.check_ttl(ttl)?;
        let (answer, _) = self.write(&grant.key, |step| {
            step.persevere(|step| {
                let view = step.view(None);
                if decide::renew(&view, grant) {
                    return Ok(step.refresh(None, ttl)?.map(Renewed::Extended));
                }
                Ok(Some(Renewed::Lost(view.lease.map(|(lease, _)| lease))))
            })
        })?;
        Ok(answer)
    }

    fn release(&self, grant: &Grant) -> Result<Released, StoreError> {
        let (answer, _) = self.write(&grant.key, |step| {
            step.persevere(|step| {
                let view = step.view(None);
                let may = decide::release(&view, grant);
                match step.counts() {
                    Some(counts) if may => {
                        if !step.end(&counts, None)? {
                            return Ok(None);
                        }
                        step.ring_next(&view.queue);
                        Ok(Some(Released::Freed(counts.lease)))
                    }
                    other => Ok(Some(Released::AlreadyGone(other.map(|other| other.lease)))),
                }
            })
        })?;
        Ok(answer)
    }

    fn leave(&self, key: &Key, ticket: Ticket) -> Result<(), StoreError> {
        self.write(key, |step| {
            step.withdraw(ticket, |step| step.drop_ticket(Some(ticket)));
            Ok(())
        })?;
        Ok(())
    }

    fn park(&self, key: &Key, ticket: Ticket) -> Result<(), StoreError> {
        self.write(key, |step| {
            step.withdraw(ticket, |step| step.park_ticket(ticket));
            Ok(())
        })?;
        Ok(())
    }

    fn force(&self, key: &Key, by: &HolderId, reason: Option<&str>) -> Result<Forced, StoreError> {
        let (answer, _) = self.write(key, |step| {
            step.persevere(|step| {
                let Some(counts) = step.counts() else {
                    return Ok(Some(Forced::NotHeld));
                };
                let queue = step.queue(None);
                let evidence = Evidence::Forced {
                    by: by.clone(),
                    reason: reason.map(str::to_owned),
                };
                if !step.end(&counts, Some(&evidence))? {
                    return Ok(None);
                }
                step.ring_next(&queue);
                Ok(Some(Forced::Freed(counts.lease)))
            })
        })?;
        Ok(answer)
    }

    fn fence(&self, key: &Key, token: Token) -> Result<Fenced, StoreError> {
        let node = self.node(key)?;
        self.read(|glance| {
            let keyed = glance.keyed(&node)?;
            let view = glance.view(&node, &keyed);
            let current = decide::fence(&glance.now, &view, token);
            Ok(match view.lease {
                Some((lease, _)) if current => Fenced::Current(lease),
                other => Fenced::Stale(other.map(|lease| glance.reader().verdict(lease))),
            })
        })
    }

    fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        let node = self.node(key)?;
        self.read(|glance| glance.snapshot(&node))
    }

    fn list(&self) -> Result<Vec<Snapshot>, StoreError> {
        self.read(|glance| glance.all())
    }

    fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError> {
        let snapshots = self.list()?;
        if reap == Reap::DryRun {
            let over = |snapshot: Snapshot| {
                let (lease, verdict) = snapshot.lease?;
                let evidence = verdict.over()?.clone();
                Some(Reaped { lease, evidence })
            };
            return Ok(snapshots.into_iter().filter_map(over).collect());
        }
        let mut reaped = Vec::new();
        let mut needed: HashSet<LivenessId> = HashSet::new();
        let nodes = snapshots.into_iter().map(|snapshot| snapshot.key);
        let known = NodeState::nodes(&self.keys)?;
        let mut nodes: Vec<NodeId> = nodes
            .filter_map(|key| NodeId::of(&key).ok())
            .chain(known)
            .collect();
        nodes.sort();
        nodes.dedup();
        for node in nodes {
            let (one, _) = self.write_node(node, |step| {
                let one = step.persevere(|step| step.reap())?;
                let queue = step.queue(None);
                step.drop_forgotten(&queue);
                needed.extend(step.lives_needed());
                Ok(one)
            })?;
            reaped.extend(one);
        }
        // Nobody can come to need a life that is over: it is only told of while it beats.
        let _ = self.folder.sweep(|life| needed.contains(life));
        Ok(reaped)
    }

    fn history(&self, query: &HistoryQuery) -> Result<Vec<Event>, StoreError> {
        self.ledger.claim_history(query)
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        let life = self.liveness_lock()?;
        self.listen(life);
        // In this order: whatever happens after `seen` either changes the revision or rings.
        let generation = self.bell.generation();
        if self.inspect(watched.key)?.revision != watched.seen {
            return Ok(Waited::Changed);
        }
        for ahead in &watched.ahead {
            let (folder, lock) = (self.folder.clone(), life.id().clone());
            self.watches.add(&self.folder, &ahead.binding, move || {
                bell::ring(&folder, &lock);
            });
        }
        match self.bell.wait(life.as_fd(), generation, timeout) {
            Ok(true) => Ok(Waited::Changed),
            Ok(false) => Ok(Waited::TimedOut),
            Err(error) => {
                Err(StoreError::new(ErrorKind::Io, "waiting to be woken failed").because(error))
            }
        }
    }

    fn wake(&self) {
        self.bell.stir();
        if let Some(life) = self.lock_cell.get() {
            life.ring();
        }
    }
}

impl Glance<'_> {
    fn view(&self, node: &NodeId, keyed: &NodeState) -> View {
        View {
            lease: self
                .counts(node, keyed)
                .map(|counts| (counts.lease, counts.liveness)),
            queue: self.reader().queue(&keyed.tickets, None),
            newest: Token(self.replay.seq),
        }
    }

    fn snapshot(&self, node: &NodeId) -> Result<Snapshot, StoreError> {
        let keyed = self.keyed(node)?;
        let View { lease, queue, .. } = self.view(node, &keyed);
        Ok(Snapshot {
            key: node.key().clone(),
            lease: lease.map(|lease| self.reader().verdict(lease)),
            queue,
            revision: self.store.revision(self.replay, node, &keyed),
        })
    }

    fn all(&self) -> Result<Vec<Snapshot>, StoreError> {
        let mut nodes: Vec<NodeId> = self.replay.claims.keys().cloned().collect();
        nodes.extend(self.files.iter().filter_map(|file| file.node.clone()));
        nodes.extend(NodeState::nodes(&self.store.keys)?);
        nodes.sort();
        nodes.dedup();
        let mut all = Vec::new();
        for node in nodes {
            let one = self.snapshot(&node)?;
            if one.lease.is_some() || !one.queue.is_empty() {
                all.push(one);
            }
        }
        Ok(all)
    }
}

impl Step<'_> {
    /// Does what a decision says; `None` if somebody else wrote meanwhile.
    fn carry_out(
        &mut self,
        claim: &Claim,
        view: &View,
        decision: &Decision,
    ) -> Result<Option<Acquired>, StoreError> {
        match decision {
            Decision::Grant {
                reason,
                claim_ticket,
                ..
            } => {
                let (reason, granted) = (*reason, self.grant(claim, *claim_ticket)?);
                Ok(granted.map(|lease| Acquired::Granted { lease, reason }))
            }
            Decision::Extend { claim_ticket, .. } => {
                self.drop_ticket(claim_ticket.ticket());
                let lease = self.refresh(Some(&claim.holder), claim.ttl)?;
                let reason = Reason::AlreadyOwned;
                Ok(lease.map(|lease| Acquired::Granted { lease, reason }))
            }
            Decision::Wait {
                claim_ticket,
                ahead,
            } => self.refuse(claim, view, *claim_ticket, *ahead).map(Some),
            Decision::WaitForSelf if claim.patience == Patience::Queue => {
                let holder = view.lease.as_ref().map(|(lease, _)| &lease.holder.id);
                Ok(Some(Acquired::Deadlock(Cycle(vec![CycleStep {
                    waiter: claim.holder.id.clone(),
                    key: claim.key.clone(),
                    holder: holder.unwrap_or(&claim.holder.id).clone(),
                }]))))
            }
            Decision::WaitForSelf => {
                let busy = self.busy(view, None, None);
                Ok(Some(Acquired::Busy(Box::new(busy))))
            }
        }
    }

    /// Takes a place, or says who stands in the way.
    fn refuse(
        &mut self,
        claim: &Claim,
        view: &View,
        claim_ticket: ClaimTicket,
        ahead: usize,
    ) -> Result<Acquired, StoreError> {
        if decide::reap(&self.now, view).is_some() || view.lease.is_none() {
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
        let (ticket, rank) = self.queue_up(claim, view, claim_ticket);
        if !claim.within.is_empty() && !matches!(claim_ticket, ClaimTicket::Own(_)) {
            self.keyed.within.retain(|(of, _)| *of != ticket);
            self.keyed.within.push((ticket, claim.within.clone()));
            self.dirty = true;
        }
        let place = Place {
            ticket,
            ahead,
            resumed: matches!(claim_ticket, ClaimTicket::Resumed(_)),
        };
        let busy = self.busy(view, Some(place), Some(rank));
        Ok(Acquired::Busy(Box::new(busy)))
    }

    /// The cycle that this wait would close. A claim that is over stands in nobody's way.
    fn cycle(&self, claim: &Claim, view: &View) -> Result<Option<Cycle>, StoreError> {
        let Some((lease, _)) = &view.lease else {
            return Ok(None);
        };
        if decide::reap(&self.now, view).is_some() {
            return Ok(None);
        }
        let holder = (lease.holder.id.clone(), lease.token);
        let ours =
            |(holder, token): &Held| *holder == claim.holder.id || claim.within.contains(token);
        let glance = Glance {
            store: self.store,
            replay: self.replay,
            files: self.files.clone(),
            now: self.now.clone(),
        };
        cycle::find(&claim.holder.id, &claim.key, &holder, ours, |held| {
            glance.waits_of(held)
        })
    }

    /// In an `af` ledger, whether the node is there: a claim on any other makes all of it unreadable to
    /// the real tool.
    fn can_be_claimed(&self) -> Result<(), StoreError> {
        let ledger = &self.store.ledger;
        if ledger.dialect() != Dialect::Af || self.replay.nodes.contains(&self.node) {
            return Ok(());
        }
        let what = format!(
            "there is no node {} in {}",
            self.node,
            ledger.root().display()
        );
        Err(StoreError::new(ErrorKind::NotFound, what)
            .fix("see which there are: tenure ledger log --type node_created; nothing was changed"))
    }

    /// Frees a claim that is a file and is over, so that the node can be claimed in the ledger.
    fn reap_file_of_node(&mut self) -> Result<(), StoreError> {
        while let Some(counts) = self.counts() {
            let verdict = Verdict::on(&self.now, &counts.lease, &counts.liveness);
            let (Source::File(_), Some(evidence)) = (&counts.source, verdict.over()) else {
                break;
            };
            if !self.end(&counts, Some(evidence))? {
                self.look()?;
            }
        }
        Ok(())
    }

    /// Frees the claim if it is over: nothing or one. `None` if somebody else wrote meanwhile.
    fn reap(&mut self) -> Result<Option<Vec<Reaped>>, StoreError> {
        let Some(counts) = self.counts() else {
            return Ok(Some(Vec::new()));
        };
        let queue = self.queue(None);
        let Counts {
            lease, liveness, ..
        } = &counts;
        let verdict = Verdict::on(&self.now, lease, liveness);
        let Some(evidence) = verdict.over().cloned() else {
            return Ok(Some(Vec::new()));
        };
        if !self.end(&counts, Some(&evidence))? {
            return Ok(None);
        }
        self.ring_next(&queue);
        let lease = counts.lease;
        Ok(Some(vec![Reaped { lease, evidence }]))
    }

    /// The lives of those who have and want the node.
    fn lives_needed(&self) -> Vec<LivenessId> {
        let holder = self.keyed.grant.as_ref().map(|note| &note.holder);
        let waiting = self.keyed.tickets.iter().map(|place| &place.holder);
        let all = holder.into_iter().chain(waiting);
        all.filter_map(|holder| holder.liveness_lock().cloned())
            .collect()
    }
}

impl Glance<'_> {
    /// What the holder of a grant waits for, by its name or in a command that runs under the grant,
    /// and who holds that.
    fn waits_of(&self, (holder, token): &Held) -> Result<Vec<(Key, Held)>, StoreError> {
        let mut waits = Vec::new();
        for node in NodeState::nodes(&self.store.keys)? {
            let keyed = self.keyed(&node)?;
            let within = |ticket: Ticket| {
                let mut all = keyed.within.iter();
                all.any(|(of, tokens)| *of == ticket && tokens.contains(token))
            };
            // One that is gone waits for nothing.
            let waits_here = |waiter: &Waiter| {
                (waiter.holder.id == *holder || within(waiter.ticket))
                    && waiter.presence == Presence::Here
                    && self.reader().is_alive(&waiter.holder)
            };
            let View { lease, queue, .. } = self.view(&node, &keyed);
            if !queue.iter().any(waits_here) {
                continue;
            }
            if let Some(lease) = lease {
                let (lease, verdict) = self.reader().verdict(lease);
                if verdict.over().is_none() && lease.holder.id != *holder {
                    waits.push((node.key().clone(), (lease.holder.id, lease.token)));
                }
            }
        }
        Ok(waits)
    }
}
