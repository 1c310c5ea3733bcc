//! The best ready task: dependencies done, not locked, its section free or the runner's.
//!
//! Ready tasks are walked in order, the most urgent first, then the oldest. Usually the first one is
//! free. If a few hundred in a row are taken (a large section that another runner holds), the search
//! looks at one task of each section instead, so its cost does not grow with the number of tasks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Row, params};
use tenure_core::cycle::Wait;
use tenure_core::decide::{self, ClaimTicket, Decision, View};
use tenure_core::engine::{self, Look as _};
use tenure_core::task::{self, LONGEST_BACKOFF, Offer, Picker, Runner, Shortage, Started};
use tenure_core::{
    Acquired, Cycle, Holder, Key, Lease, Patience, Presence, QueuePosition, Reason, Task, Verdict,
    Waiter,
};

use super::bad_id;
use super::flow::{KeyDecision, any_task};
use super::rows::by_id;
use crate::lock_tables::instant;
use crate::rows::time;
use crate::write::{TransactionError, WriteTransaction};

/// How many ready tasks are walked in order before the sections are looked at instead.
const WALK: usize = 256;

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

/// A ready task. The larger one goes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    priority: i64,
    created_at: Reverse<String>,
    id: String,
    section: Option<String>,
}

impl Candidate {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: row.get(0)?,
            section: row.get(1)?,
            priority: row.get(2)?,
            created_at: Reverse(row.get(3)?),
        })
    }
}

impl WriteTransaction<'_> {
    /// Begins the best ready task.
    pub(super) fn next(&mut self, runner: &Runner) -> Result<Acquired<Started>, TransactionError> {
        self.end_pauses()?;
        let claim = runner.claim(any_task()?);
        let view = engine::view(self, &claim.key, Some(&claim.holder.id))?;
        let (ticket, ahead) = decide::position(self.now(), &view, &claim);
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
        if let Some(found) = self.search(&mut search)? {
            engine::drop_ticket(self, &claim.key, ticket)?;
            // There may be a task for the next waiter too, and it has to watch another one now.
            let behind: Vec<Waiter> = view
                .queue
                .into_iter()
                .filter(|waiter| Some(waiter.ticket) != ticket.ticket())
                .collect();
            engine::wake_next(self, &behind);
            let started = self.begin(&found, runner)?;
            self.leave_idle_sections(&runner.holder)?;
            return Ok(Acquired::Granted(started));
        }
        self.leave_idle_sections(&runner.holder)?;
        if runner.patience == Patience::Queue
            && let Some(cycle) = search.own_cycle()
        {
            engine::drop_ticket(self, &claim.key, ticket)?;
            return Ok(Acquired::Deadlock(cycle));
        }
        let mut position = None;
        let mut rank = None;
        if runner.patience == Patience::Queue {
            let (taken, at) = engine::take_ticket(self, &claim, &view, ticket)?;
            rank = Some(at);
            position = Some(QueuePosition {
                ticket: taken,
                ahead,
                resumed: matches!(ticket, ClaimTicket::Resumed(_)),
            });
        }
        let mut busy = engine::busy(self, &claim.key, &view, position, rank);
        let (shortage, later) = self.shortage(&search)?;
        busy.shortage = Some(shortage);
        let expiry = search
            .in_the_way
            .iter()
            .filter_map(|(lease, _)| lease.remaining(self.now()))
            .min();
        busy.look_again = [expiry, later]
            .into_iter()
            .flatten()
            .min()
            .map(|left| self.now().deadline(left));
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
    fn end_pauses(&mut self) -> Result<(), TransactionError> {
        let now = self.now().wall;
        let horizon = SignedDuration::try_from(LONGEST_BACKOFF * 2)
            .ok()
            .and_then(|longest| now.checked_add(longest).ok())
            .unwrap_or(Timestamp::MAX);
        let sql = "UPDATE tasks SET not_before = NULL
                   WHERE not_before IS NOT NULL AND (not_before <= ?1 OR not_before > ?2)";
        self.reader
            .db
            .prepare_cached(sql)?
            .execute(params![time(now), time(horizon)])?;
        Ok(())
    }

    /// The task to take, if any.
    fn search(&mut self, search: &mut TaskSearch<'_>) -> Result<Option<Task>, TransactionError> {
        let db = self.reader.db;
        let mut statement = db.prepare_cached(
            "SELECT id, section_id, priority, created_at FROM tasks INDEXED BY tasks_ready
             WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0
             ORDER BY priority DESC, created_at",
        )?;
        let mut rows = statement.query([])?;
        for _ in 0..WALK {
            let Some(row) = rows.next()? else {
                return Ok(None);
            };
            let candidate = Candidate::of(row)?;
            if self.takes(search, &candidate)? {
                return Ok(by_id(db, &candidate.id)?);
            }
        }
        self.search_sections(search)
    }

    /// The same, section by section: the best unlocked task of each section that is free.
    fn search_sections(
        &mut self,
        search: &mut TaskSearch<'_>,
    ) -> Result<Option<Task>, TransactionError> {
        let mut candidates = BinaryHeap::from(self.best_of_each_section()?);
        candidates.extend(self.best_in(search, None, search.ahead + 1)?);
        // Offer again what the walk left to the waiters before, in order with the rest.
        search.picker = Picker::behind(search.ahead);
        while let Some(candidate) = candidates.pop() {
            if self.takes(search, &candidate)? {
                return Ok(by_id(self.reader.db, &candidate.id)?);
            }
            // The best task of a section may be locked, and the second best not.
            let section = candidate.section.as_deref();
            let is_open = |id: &str| search.sections.get(id) != Some(&Offer::Taken);
            if section.is_some_and(is_open) && !self.is_available(search, &candidate.id)? {
                candidates.extend(self.best_in(search, section, 1)?);
            }
        }
        Ok(None)
    }

    /// The best ready task of each section, locked or not: a few steps in the index for each section,
    /// however many tasks there are.
    fn best_of_each_section(&self) -> Result<Vec<Candidate>, TransactionError> {
        let sql = "WITH RECURSIVE section(id) AS (
                SELECT (SELECT section_id FROM tasks INDEXED BY tasks_ready_in
                    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0
                    AND section_id > '' ORDER BY section_id LIMIT 1)
                UNION ALL
                SELECT (SELECT section_id FROM tasks INDEXED BY tasks_ready_in
                    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0
                    AND section_id > section.id ORDER BY section_id LIMIT 1)
                FROM section WHERE section.id IS NOT NULL
            )
            SELECT id, section_id, priority, created_at FROM tasks WHERE rowid IN (
                SELECT (SELECT rowid FROM tasks INDEXED BY tasks_ready_in
                    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0
                    AND section_id = section.id ORDER BY priority DESC, created_at LIMIT 1)
                FROM section WHERE section.id IS NOT NULL
            )";
        let mut statement = self.reader.db.prepare_cached(sql)?;
        let rows = statement.query_map([], Candidate::of)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The best `count` ready tasks of one section that are not locked.
    fn best_in(
        &mut self,
        search: &mut TaskSearch<'_>,
        section: Option<&str>,
        count: usize,
    ) -> Result<Vec<Candidate>, TransactionError> {
        let db = self.reader.db;
        let mut statement = db.prepare_cached(
            "SELECT id, section_id, priority, created_at FROM tasks INDEXED BY tasks_ready_in
             WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0
             AND section_id IS ?1 ORDER BY priority DESC, created_at",
        )?;
        let mut rows = statement.query([section])?;
        let mut best = Vec::new();
        while best.len() < count {
            let Some(row) = rows.next()? else { break };
            let candidate = Candidate::of(row)?;
            if self.is_available(search, &candidate.id)? {
                best.push(candidate);
            }
        }
        Ok(best)
    }

    /// Whether the runner takes this task.
    fn takes(
        &mut self,
        search: &mut TaskSearch<'_>,
        candidate: &Candidate,
    ) -> Result<bool, TransactionError> {
        if search.runner.leaves.contains(&candidate.id) {
            search.left = true;
            return Ok(false);
        }
        let section = candidate.section.as_deref();
        let offer = match section {
            Some(section) => self.section_offer(search, section)?,
            None => Offer::Free,
        };
        if offer == Offer::Taken || !self.is_available(search, &candidate.id)? {
            return Ok(false);
        }
        let takes = search.picker.takes(section, offer);
        search.contended |= !takes;
        search.reserved |= !takes;
        Ok(takes)
    }

    /// What a section is for the runner.
    fn section_offer(
        &mut self,
        search: &mut TaskSearch<'_>,
        id: &str,
    ) -> Result<Offer, TransactionError> {
        if let Some(known) = search.sections.get(id) {
            return Ok(*known);
        }
        let key = Key::parse(format!("section:{id}")).map_err(|error| bad_id(id, &error))?;
        let KeyDecision { view, decision, .. } = self.decide_key(search.runner, key)?;
        let offer = match decision {
            Decision::Extend { .. }
            | Decision::Grant {
                reason: Reason::AlreadyOwned,
                ..
            } => Offer::Mine,
            Decision::Grant { .. } => Offer::Free,
            Decision::Wait { .. } | Decision::WaitForSelf { .. } => {
                self.note_obstacle(search, view);
                Offer::Taken
            }
        };
        search.sections.insert(id.to_owned(), offer);
        Ok(offer)
    }

    /// Whether no runner holds a task or waits for it, this one included.
    fn is_available(
        &mut self,
        search: &mut TaskSearch<'_>,
        id: &str,
    ) -> Result<bool, TransactionError> {
        let key = task::key_of(id).map_err(|error| bad_id(id, &error))?;
        let KeyDecision { view, decision, .. } = self.decide_key(search.runner, key)?;
        // An expired lease of its own is as free as any other.
        let over = self.has_ended(&view);
        let gives = match decision {
            Decision::Grant { reason, .. } => reason != Reason::AlreadyOwned,
            Decision::Extend { .. } => over,
            Decision::Wait { .. } | Decision::WaitForSelf { .. } => false,
        };
        if gives {
            return Ok(true);
        }
        self.note_obstacle(search, view);
        Ok(false)
    }

    /// Records what is in the way.
    fn note_obstacle(&self, search: &mut TaskSearch<'_>, view: View) {
        search.contended = true;
        let leases = view.leases.into_iter();
        let standing: Vec<_> = leases
            .map(|lease| self.reader.verdict(lease))
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
    fn shortage(
        &self,
        search: &TaskSearch<'_>,
    ) -> Result<(Shortage, Option<Duration>), TransactionError> {
        let db = self.reader.db;
        let later: Option<String> = db
            .prepare_cached(
                "SELECT min(not_before) FROM tasks WHERE not_before IS NOT NULL
                 AND status IN ('pending', 'in_progress') AND blockers = 0",
            )?
            .query_row([], |row| row.get(0))?;
        let later = later.as_deref().and_then(instant);
        let until = later
            .map(|at| Duration::try_from(at.duration_since(self.now().wall)).unwrap_or_default());
        let open = "SELECT 1 FROM tasks WHERE status IN ('pending', 'in_progress') AND elsewhere = 0 LIMIT 1";
        let shortage = match later {
            _ if search.contended => Shortage::Locked,
            Some(at) => Shortage::Later { at },
            None if search.left => Shortage::LeftToOthers,
            None if db.prepare_cached(open)?.exists([])? => Shortage::Blocked,
            None => Shortage::NothingLeft,
        };
        Ok((shortage, until))
    }
}
