//! Working on tasks: begin one, keep it, end it.
//!
//! ```
//! use tenure::tasks::{Change, NewTask};
//! use tenure::store::Priority;
//! use tenure::tasks::Status;
//! use tenure::{Acquired, Config, StoreUrl, Tenure};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let url = format!("sqlite:{}", dir.path().join("tenure.db").display());
//! let tenure = Tenure::open_with(&StoreUrl::parse(&url)?, Config::default())?;
//! let task = NewTask {
//!     title: "Fix bug".into(),
//!     description: None,
//!     section: None,
//!     priority: Priority::default(),
//!     depends_on: vec![],
//! };
//! tenure.tasks()?.add_task(&task, tenure::store::call_deadline())?;
//! match tenure.ask_for_task()?.named("agent-1")?.next()? {
//!     Acquired::Granted(guard) => {
//!         assert_eq!(guard.task().title, "Fix bug");
//!         guard.finish(&Change::To(Status::Completed))?;
//!     }
//!     Acquired::Busy(busy) => println!("no task is ready: {:?}", busy.shortage),
//!     Acquired::Deadlock(_) | Acquired::Cancelled => {}
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::{Acquired, Binding, Busy, Clock, Granted, Lease, Reason, Token};
pub use tenure_tasks::find::is_by_prefix;
pub use tenure_tasks::{
    BadLine, BadStatus, Cause, Change, Changed, DeletedSection, DeletedTask, Edit, ImportSummary,
    NewTask, Past, Proof, Runner, Section, SectionSummary, Shortage, Started, Status, Task,
    TaskError, TaskQuery, TaskStore, Withdrawal,
};

use crate::Error;
use crate::acquire::{self, Cancel, Progress, Request, call_deadline, deadline_in};
use crate::ask::{Ask, Tie};
use crate::guard::{Guard, Loss};

/// What a runner requests.
pub struct AnyTask {
    tasks: Arc<dyn TaskStore>,
    /// How long to wait when nothing is left that others could make ready.
    idle_for: Option<Duration>,
    leaves: Vec<String>,
    reopens: bool,
}

impl AnyTask {
    pub(crate) fn of(tasks: Arc<dyn TaskStore>) -> Self {
        Self {
            tasks,
            idle_for: None,
            leaves: Vec::new(),
            reopens: true,
        }
    }
}

impl Ask<'_, AnyTask> {
    /// Stops waiting when, for so long, nothing has been left that could become ready by what
    /// others do now.
    pub fn until_none_left_for(mut self, idle: Duration) -> Self {
        self.wanted.idle_for = Some(idle);
        self
    }

    /// Leaves the task with this id to others when it looks for any.
    pub fn leave_to_others(mut self, id: &str) -> Self {
        self.wanted.leaves.push(id.to_owned());
        self
    }

    /// Does not begin a certain task that is done by then, because another runner finished it meanwhile:
    /// [`start`](Self::start) fails with [`TaskError::Done`] instead.
    pub fn unless_done(mut self) -> Self {
        self.wanted.reopens = false;
        self
    }

    /// Begins the task with this id: takes its section's and its own lease, or neither.
    pub fn start(&self, id: &str) -> Result<Acquired<TaskGuard>, Error> {
        self.start_watched(id, &Cancel::default(), &mut |_| {})
    }

    /// Begins a task; `cancel` ends a wait, `observer` sees how it goes.
    pub fn start_watched(
        &self,
        id: &str,
        cancel: &Cancel,
        observer: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Acquired<TaskGuard>, Error> {
        self.begin(Some(id), cancel, observer)
    }

    /// Begins the best task that is ready.
    pub fn next(&self) -> Result<Acquired<TaskGuard>, Error> {
        self.next_watched(&Cancel::default(), &mut |_| {})
    }

    /// Begins the best task that is ready; `cancel` ends a wait, `observer` sees how it goes.
    pub fn next_watched(
        &self,
        cancel: &Cancel,
        observer: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Acquired<TaskGuard>, Error> {
        self.begin(None, cancel, observer)
    }

    fn begin(
        &self,
        id: Option<&str>,
        cancel: &Cancel,
        observer: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Acquired<TaskGuard>, Error> {
        let request = TaskRequest {
            tasks: &*self.wanted.tasks,
            clock: &*self.tenure.clock,
            runner: self.runner()?,
            id,
            idle_for: self.wanted.idle_for,
            idle_since: Cell::new(None),
        };
        let answer = acquire::acquire(&request, &mut self.context(cancel, observer))?;
        Ok(answer.map(|(started, asked)| {
            let (lease, reason) = (started.lease, started.reason);
            let section = started.section.map(|lease| Granted {
                lease,
                reason: Reason::AlreadyOwned,
            });
            let granted = (Granted { lease, reason }, section.into_iter().collect());
            TaskGuard {
                tasks: Arc::clone(&self.wanted.tasks),
                task: started.task,
                was: started.was,
                guard: Guard::new(self.tenure, granted, &asked, self.tie, self.renewal),
                ended: false,
            }
        }))
    }

    fn runner(&self) -> Result<Runner, Error> {
        let locking = &self.tenure.config.locking;
        let (task_ttl, section_ttl) = match self.tie {
            Tie::ThisProcess => {
                let ttl = self.ttl_or(locking.run_timeout)?;
                (ttl, ttl)
            }
            Tie::Nothing | Tie::Process(_) => {
                let ttl = self.ttl_or(locking.task_timeout)?;
                // The holder of a task holds its section at least as long.
                (ttl, locking.section_timeout.max(ttl))
            }
        };
        let (holder, asker) = self.who()?;
        Ok(Runner {
            holder,
            asker,
            named: self.named,
            task_ttl,
            section_ttl,
            priority: self.priority,
            patience: self.patience(),
            within: self.within.clone(),
            leaves: self.wanted.leaves.clone(),
            reopens: self.wanted.reopens,
        })
    }
}

/// A certain task, or any.
struct TaskRequest<'a> {
    tasks: &'a dyn TaskStore,
    clock: &'a dyn Clock,
    runner: Runner,
    id: Option<&'a str>,
    idle_for: Option<Duration>,
    /// Since when, on the boot clock, nothing could become ready.
    idle_since: Cell<Option<Duration>>,
}

impl Request for TaskRequest<'_> {
    type Granted = Started;

    fn ask(&self, by: Instant) -> Result<Acquired<Started>, Error> {
        Ok(match self.id {
            Some(id) => self.tasks.start(id, &self.runner, by)?,
            None => self.tasks.next(&self.runner, by)?,
        })
    }

    /// Where nothing that others do now could make a task ready, waiting for any has an end.
    fn patience(&self, busy: &Busy) -> Duration {
        let now = self.clock.now().ticks;
        let moves = matches!(
            busy.shortage,
            Some(Shortage::Locked | Shortage::Later { .. })
        );
        let since = match self.idle_since.get() {
            Some(since) if !moves => since,
            _ => now,
        };
        self.idle_since.set((!moves).then_some(since));
        match self.idle_for {
            Some(limit) if !moves && self.id.is_none() => {
                limit.saturating_sub(now.saturating_sub(since))
            }
            _ => Duration::MAX,
        }
    }

    fn withdraw(&self, then: Withdrawal, by: Instant) -> Result<(), Error> {
        Ok(self.tasks.stop_waiting(self.id, &self.runner, then, by)?)
    }

    fn binding(&self) -> &Binding {
        &self.runner.holder.binding
    }
}

/// A task that is worked on. If it is dropped unfinished, and tied to this process, its leases are given
/// back, and another runner may take it.
#[must_use]
pub struct TaskGuard {
    tasks: Arc<dyn TaskStore>,
    task: Task,
    was: Status,
    /// Of the task, and then of its section.
    guard: Guard,
    /// Whether the work has ended.
    ended: bool,
}

impl TaskGuard {
    /// The task, as it was when it was begun.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The status it had before.
    pub fn was(&self) -> Status {
        self.was
    }

    /// The task's lease as it was granted.
    pub fn lease(&self) -> &Lease {
        self.guard.lease()
    }

    /// The fencing token: pass it on to whatever is written.
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    /// Why the task was granted.
    pub fn reason(&self) -> Reason {
        self.guard.reason()
    }

    /// The token of its section's lease.
    pub fn section_token(&self) -> Option<Token> {
        self.guard.leases().nth(1).map(|lease| lease.token)
    }

    /// Starts to renew both leases, if [`Ask::renew_later`] put it off.
    pub fn start_renewal(&mut self) {
        self.guard.start_renewal();
    }

    /// Calls `tell` from another thread when a lease is lost, but not when the task was ended by its
    /// own token (see [`Self::ended_by_token`]).
    pub fn on_lost(&self, tell: impl FnOnce() + Send + 'static) {
        let (tasks, id, token) = (Arc::clone(&self.tasks), self.task.id.clone(), self.token());
        let limit = self.guard.time_to_react();
        self.guard.on_lost(move || {
            // The question must not hold up the loss where the database is busy.
            if !matches!(tasks.ended_by(&id, token, deadline_in(limit)), Ok(Some(_))) {
                tell();
            }
        });
    }

    /// The task as it is now, if the worker itself has ended it by this grant's token.
    pub fn ended_by_token(&self) -> Result<Option<Task>, Error> {
        let by = call_deadline();
        Ok(self.tasks.ended_by(&self.task.id, self.token(), by)?)
    }

    /// How a lease was lost, if one was.
    pub fn loss(&self) -> Option<Arc<Loss>> {
        self.guard.loss()
    }

    /// Until when its leases may be trusted; see [`Guard::trusted_until`].
    pub fn trusted_until(&self) -> Option<Duration> {
        self.guard.trusted_until()
    }

    /// How a lease was lost, if one was, or if one can't be trusted any more; see [`Guard::lost_by_now`].
    pub fn lost_by_now(&self) -> Option<Arc<Loss>> {
        self.guard.lost_by_now()
    }

    /// Ends the work, if no other runner got the task meanwhile (G7), and gives back what was held for
    /// it: the section too, when nothing is left to do in it.
    pub fn finish(mut self, change: &Change) -> Result<Changed, Error> {
        self.stop();
        let changed = self.tasks.change(
            &self.task.id,
            &Proof::Token(self.token()),
            change,
            &Edit::default(),
            call_deadline(),
        );
        if changed.is_err() {
            // A worker that is refused has nothing more to do there.
            let _ = self.tasks.abandon(self.lease(), call_deadline());
        }
        Ok(changed?)
    }

    /// Drops the guard without giving anything back: for leases that end by their time to live or with
    /// another process.
    pub fn leave_standing(mut self) {
        self.stop();
    }

    /// Stops renewing, and leaves the leases as they are.
    fn stop(&mut self) {
        self.ended = true;
        self.guard.disarm();
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if !self.ended {
            self.stop();
            if self.guard.tie == Tie::ThisProcess {
                // Nobody to tell: if it fails, the leases end with this process.
                let _ = self.tasks.abandon(self.lease(), call_deadline());
            }
        }
    }
}
