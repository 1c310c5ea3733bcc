//! The best ready task: dependencies done, not locked, its section free or the runner's.
//!
//! Ready tasks are walked in order, the most urgent first, then the oldest. Usually the first one is
//! free. If a few hundred in a row are taken (a large section that another runner holds), the search
//! looks at one task of each section instead, so its cost does not grow with the number of tasks.

use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure_core::claim::Patience;
use tenure_core::cycle::{Cycle, Wait};
use tenure_core::decide::{self, ClaimTicket, Decision, View};
use tenure_core::engine::{self, KeyDecision};
use tenure_core::holder::Holder;
use tenure_core::key::Key;
use tenure_core::lease::Lease;
use tenure_core::queue::{Presence, Waiter};
use tenure_core::store::{Acquired, QueuePosition, Reason};
use tenure_core::verdict::Verdict;

use super::check::check_id;
use super::flow::{begin, decide_key};
use super::sections::{has_ended, leave_idle_sections};
use super::step::{Candidate, ReadyPart, TaskStep, any_task, task_key};
use super::{LONGEST_BACKOFF, Offer, Picker, Runner, Shortage, Started, Task};

/// How many ready tasks are walked in order before the sections are looked at instead.
const WALK: usize = 256;

/// How many of them are read first. Usually the first one is free.
const FIRST: usize = 4;

/// A runner that looks for a task, and what it has seen so far.
struct TaskSearch<'a> {
    runner: &'a Runner,
    /// How many waiters go first.
    ahead: usize,
    picker: Picker,
    /// What each section is for the runner.
    sections: HashMap<String, Offer>,
    /// The leases in the way.
    in_the_way: Vec<(Lease, Verdict)>,
    /// Waiters that are first in the queue of a free key.
    called: Vec<Holder>,
    /// Whether a task is ready, but not for this runner.
    contended: bool,
    /// Whether a task was left to the waiters before.
    reserved: bool,
    /// Whether a ready task is one that the runner leaves to others.
    left: bool,
}

impl TaskSearch<'_> {
    /// The cycle that this wait would close: every lease in the way is one that the runner itself runs
    /// under.
    fn own_cycle(&self) -> Option<Cycle> {
        let steps = self.in_the_way.iter().map(|(lease, _)| {
            let own = self.runner.within.contains(&lease.token);
            own.then(|| Wait::on(&self.runner.holder.id, lease))
        });
        let steps: Vec<Wait> = steps.collect::<Option<_>>()?;
        (!steps.is_empty() && !self.reserved).then_some(Cycle(steps))
    }
}

/// Begins the best ready task.
pub fn next<S: TaskStep>(step: &mut S, runner: &Runner) -> Result<Acquired<Started>, S::Error> {
    end_pauses(step)?;
    let claim = runner.claim(any_task()?);
    let view = engine::view(step, &claim.key, Some(&claim.holder.id))?;
    let (ticket, ahead) = decide::position(step.now(), &view, &claim);
    let mut search = TaskSearch {
        runner,
        ahead,
        picker: Picker::behind(ahead),
        sections: HashMap::new(),
        in_the_way: Vec::new(),
        called: Vec::new(),
        contended: false,
        reserved: false,
        left: false,
    };
    if let Some(found) = find(step, &mut search)? {
        engine::drop_ticket(step, &claim.key, ticket)?;
        // There may be a task for the next waiter too, and it has to watch another one now.
        let sought = decide::since_ticket(step.now(), &view, ticket);
        let behind: Vec<Waiter> = view
            .queue
            .into_iter()
            .filter(|waiter| Some(waiter.ticket) != ticket.ticket())
            .collect();
        engine::wake_next(step, &behind);
        let started = begin(step, &found, runner, sought)?;
        leave_idle_sections(step, &runner.holder)?;
        return Ok(Acquired::Granted(started));
    }
    leave_idle_sections(step, &runner.holder)?;
    if runner.patience == Patience::Queue
        && let Some(cycle) = search.own_cycle()
    {
        engine::drop_ticket(step, &claim.key, ticket)?;
        return Ok(Acquired::Deadlock(cycle));
    }
    let mut position = None;
    let mut rank = None;
    if runner.patience == Patience::Queue {
        let (taken, at) = engine::settled(step, |step| {
            engine::take_ticket(step, &claim, &view, ticket)
        })?;
        rank = Some(at);
        position = Some(QueuePosition {
            ticket: taken,
            ahead,
            resumed: matches!(ticket, ClaimTicket::Resumed(_)),
        });
    }
    let mut busy = engine::busy(step, &claim, &view, position, rank);
    let (shortage, later) = shortage(step, &search)?;
    busy.shortage = Some(shortage);
    let expiry = search
        .in_the_way
        .iter()
        .filter_map(|(lease, _)| lease.remaining(step.now()))
        .min();
    busy.look_again = [expiry, later]
        .into_iter()
        .flatten()
        .min()
        .map(|left| step.now().deadline(left));
    if busy.behind.is_none() {
        let leases = search.in_the_way.iter();
        let holders = leases.map(|(lease, _)| lease.holder.clone());
        busy.watch = holders.chain(search.called).collect();
    }
    // The leases of other runners first: they say more than its own.
    busy.leases = search.in_the_way;
    busy.leases
        .sort_by_key(|(lease, _)| lease.holder.id == runner.holder.id);
    Ok(Acquired::Busy(Box::new(busy)))
}

/// Makes failed tasks ready whose pause has passed. A task that is put off for longer than the
/// longest pause was put off by a wrong clock.
fn end_pauses<S: TaskStep>(step: &mut S) -> Result<(), S::Error> {
    let now = step.now().wall;
    let horizon = SignedDuration::try_from(LONGEST_BACKOFF * 2)
        .ok()
        .and_then(|longest| now.checked_add(longest).ok())
        .unwrap_or(Timestamp::MAX);
    step.end_pauses(now, horizon)
}

/// The task to take, if any.
fn find<S: TaskStep>(step: &mut S, search: &mut TaskSearch<'_>) -> Result<Option<Task>, S::Error> {
    let (mut skip, mut limit) = (0, FIRST);
    while skip < WALK {
        let part = ReadyPart {
            section: None,
            skip,
            limit,
        };
        let candidates = step.ready(part)?;
        for candidate in &candidates {
            if takes(step, search, candidate)?
                && let Some(task) = step.candidate(&candidate.id)?
            {
                return Ok(Some(task));
            }
        }
        if candidates.len() < limit {
            return Ok(None);
        }
        skip += limit;
        limit = WALK - skip;
    }
    find_by_section(step, search)
}

/// The same, section by section: the best unlocked task of each section that is free.
fn find_by_section<S: TaskStep>(
    step: &mut S,
    search: &mut TaskSearch<'_>,
) -> Result<Option<Task>, S::Error> {
    let mut candidates = BinaryHeap::from(step.best_of_each_section()?);
    candidates.extend(best_in(step, search, None, search.ahead + 1)?);
    // Offer again what the walk left to the waiters before, in order with the rest.
    search.picker = Picker::behind(search.ahead);
    while let Some(candidate) = candidates.pop() {
        if takes(step, search, &candidate)?
            && let Some(task) = step.candidate(&candidate.id)?
        {
            return Ok(Some(task));
        }
        // The best task of a section may be locked, and the second best not.
        let section = candidate.section.as_deref();
        let is_open = |id: &str| search.sections.get(id) != Some(&Offer::Taken);
        if section.is_some_and(is_open) && !is_available(step, search, &candidate.id)? {
            candidates.extend(best_in(step, search, section, 1)?);
        }
    }
    Ok(None)
}

/// The best `count` ready tasks of one section that are not locked.
fn best_in<S: TaskStep>(
    step: &mut S,
    search: &mut TaskSearch<'_>,
    section: Option<&str>,
    count: usize,
) -> Result<Vec<Candidate>, S::Error> {
    let mut best = Vec::new();
    let (mut skip, limit) = (0, 64);
    loop {
        let part = ReadyPart {
            section: Some(section),
            skip,
            limit,
        };
        let candidates = step.ready(part)?;
        let is_last = candidates.len() < limit;
        for candidate in candidates {
            if is_available(step, search, &candidate.id)? {
                best.push(candidate);
            }
            if best.len() >= count {
                return Ok(best);
            }
        }
        if is_last {
            return Ok(best);
        }
        skip += limit;
    }
}

/// Whether the runner takes this task.
fn takes<S: TaskStep>(
    step: &mut S,
    search: &mut TaskSearch<'_>,
    candidate: &Candidate,
) -> Result<bool, S::Error> {
    if search.runner.leaves.contains(&candidate.id) {
        search.left = true;
        return Ok(false);
    }
    let section = candidate.section.as_deref();
    let offer = match section {
        Some(section) => section_offer(step, search, section)?,
        None => Offer::Free,
    };
    if offer == Offer::Taken || !is_available(step, search, &candidate.id)? {
        return Ok(false);
    }
    let takes = search.picker.takes(section, offer);
    search.contended |= !takes;
    search.reserved |= !takes;
    Ok(takes)
}

/// What a section is for the runner.
fn section_offer<S: TaskStep>(
    step: &mut S,
    search: &mut TaskSearch<'_>,
    id: &str,
) -> Result<Offer, S::Error> {
    if let Some(known) = search.sections.get(id) {
        return Ok(*known);
    }
    let Ok(key) = Key::parse(format!("section:{id}")) else {
        return Ok(Offer::Taken);
    };
    let KeyDecision { view, decision, .. } = decide_key(step, search.runner, key)?;
    let offer = match decision {
        Decision::Extend { .. }
        | Decision::Grant {
            reason: Reason::AlreadyOwned,
            ..
        } => Offer::Mine,
        Decision::Grant { .. } => Offer::Free,
        Decision::Wait { .. } | Decision::WaitForSelf { .. } | Decision::OtherMode { .. } => {
            note_obstacle(step, search, view);
            Offer::Taken
        }
    };
    search.sections.insert(id.to_owned(), offer);
    Ok(offer)
}

/// Whether no runner holds a task or waits for it, this one included.
fn is_available<S: TaskStep>(
    step: &mut S,
    search: &mut TaskSearch<'_>,
    id: &str,
) -> Result<bool, S::Error> {
    // Another program wrote it. Nobody can hold such a task, so no runner gets it, and the others are not kept waiting.
    if check_id("id", id).is_err() {
        return Ok(false);
    }
    let KeyDecision { view, decision, .. } = decide_key(step, search.runner, task_key(id)?)?;
    // An expired lease of its own is as free as any other.
    let over = has_ended(step, &view);
    let gives = match decision {
        Decision::Grant { reason, .. } => reason != Reason::AlreadyOwned,
        Decision::Extend { .. } => over,
        Decision::Wait { .. } | Decision::WaitForSelf { .. } | Decision::OtherMode { .. } => false,
    };
    if gives {
        return Ok(true);
    }
    note_obstacle(step, search, view);
    Ok(false)
}

/// Records what is in the way.
fn note_obstacle<S: TaskStep>(step: &S, search: &mut TaskSearch<'_>, view: View) {
    search.contended = true;
    let judge = |(lease, liveness)| {
        let verdict = Verdict::on(step.now(), &lease, &liveness);
        (lease, verdict)
    };
    let standing: Vec<_> = view
        .leases
        .into_iter()
        .map(judge)
        .filter(|(_, verdict)| verdict.ended().is_none())
        .collect();
    if standing.is_empty() {
        // The first waiter in its queue is about to take it.
        let first = view
            .queue
            .into_iter()
            .find(|waiter| waiter.presence == Presence::Here);
        search.called.extend(first.map(|waiter| waiter.holder));
    }
    search.in_the_way.extend(standing);
}

/// Why no task was found, and how long until the first pause ends.
fn shortage<S: TaskStep>(
    step: &mut S,
    search: &TaskSearch<'_>,
) -> Result<(Shortage, Option<Duration>), S::Error> {
    let later = step.first_pause()?;
    let until =
        later.map(|at| Duration::try_from(at.duration_since(step.now().wall)).unwrap_or_default());
    let shortage = match later {
        _ if search.contended => Shortage::Locked,
        Some(at) => Shortage::Later { at },
        None if search.left => Shortage::LeftToOthers,
        None if step.any_open()? => Shortage::Blocked,
        None => Shortage::NothingLeft,
    };
    Ok((shortage, until))
}
