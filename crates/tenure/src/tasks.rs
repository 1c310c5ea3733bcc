//! Working on tasks: begin one, keep it, end it.
//!
//! ```
//! use tenure::core::task::{Change, NewTask};
//! use tenure::core::{Priority, Status};
//! use tenure::{Config, StoreUrl, TaskOutcome, Tenure};
//!
//! # let dir = tempfile::tempdir().unwrap();
//! # let url = format!("sqlite:{}", dir.path().join("tenure.db").display());
//! let tenure = Tenure::open(&StoreUrl::parse(&url)?, Config::default())?;
//! tenure.tasks()?.add_task(&NewTask {
//!     title: "Fix bug".into(),
//!     description: None,
//!     section: None,
//!     priority: Priority::default(),
//!     depends_on: vec![],
//! })?;
//! match tenure.ask_for_task()?.named("agent-1")?.next()? {
//!     TaskOutcome::Started(task_guard) => {
//!         assert_eq!(task_guard.task().title, "Fix bug");
//!         task_guard.finish(&Change::To(Status::Completed))?;
//!     }
//!     TaskOutcome::Missed(obstacle) => println!("none to be had: {:?}", obstacle.shortage),
//!     TaskOutcome::Deadlock(_) | TaskOutcome::Cancelled => {}
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::task::{Change, Changed, Proof, Runner, Shortage, Sought, Started, Starting};
use tenure_core::{Binding, Clock, Cycle, Lease, Reason, Status, Task, Token};
use tenure_sqlite::{Places, SqliteStore};

use crate::Error;
use crate::acquire::{
    self, Answer, Attempt, Cancel, Obstacle, OnTimeout, Progress, Request, WaitContext,
};
use crate::ask::{Ask, Tie};
use crate::held::{Held, Loss};

/// What is wanted by somebody who works on tasks.
pub struct AnyTask {
    tasks: Arc<SqliteStore>,
    /// How long to wait when nothing is left that others could make ready.
    idle_for: Option<Duration>,
    leaves: Vec<String>,
}

impl AnyTask {
    pub(crate) fn of(tasks: Arc<SqliteStore>) -> Self {
        Self {
            tasks,
            idle_for: None,
            leaves: Vec::new(),
        }
    }
}

/// What came of asking for a task.
#[must_use]
pub enum TaskOutcome {
    /// It is ours for as long as this is kept.
    Started(Box<TaskGuard>),
    /// There is none to be had.
    Missed(Obstacle),
    /// Waiting would never have ended.
    Deadlock(Cycle),
    /// The wait was cancelled.
    Cancelled,
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

    /// Begins the task with this id: takes its section's and its own lease, or neither.
    pub fn start(&self, id: &str) -> Result<TaskOutcome, Error> {
        self.start_watched(id, &Cancel::default(), &mut |_| {})
    }

    /// Begins a task; `cancel` ends a wait, `observer` sees how it goes.
    pub fn start_watched(
        &self,
        id: &str,
        cancel: &Cancel,
        observer: &mut dyn FnMut(Progress<'_>),
    ) -> Result<TaskOutcome, Error> {
        let request = OneTask {
            tasks: &self.wanted.tasks,
            clock: &*self.tenure.clock,
            runner: self.runner()?,
            id,
        };
        self.go(&request, cancel, observer)
    }

    /// Begins the best task that is ready.
    pub fn next(&self) -> Result<TaskOutcome, Error> {
        self.next_watched(&Cancel::default(), &mut |_| {})
    }

    /// Begins the best task that is ready; `cancel` ends a wait, `observer` sees how it goes.
    pub fn next_watched(
        &self,
        cancel: &Cancel,
        observer: &mut dyn FnMut(Progress<'_>),
    ) -> Result<TaskOutcome, Error> {
        let request = NextTask {
            tasks: &self.wanted.tasks,
            clock: &*self.tenure.clock,
            runner: self.runner()?,
            idle_for: self.wanted.idle_for,
            idle_since: Cell::new(None),
        };
        self.go(&request, cancel, observer)
    }

    fn go<Q: Request<Got = Started>>(
        &self,
        request: &Q,
        cancel: &Cancel,
        observer: &mut dyn FnMut(Progress<'_>),
    ) -> Result<TaskOutcome, Error> {
        let answer = acquire::acquire(
            request,
            &mut WaitContext {
                store: &*self.tenure.store,
                clock: &*self.tenure.clock,
                waiting: self.waiting(),
                cancel,
                observer,
            },
        )?;
        Ok(match answer {
            Answer::Got { got, asked } => {
                let hold = |lease, reason| Held::new(self.tenure, lease, reason, &asked, self.tie);
                TaskOutcome::Started(Box::new(TaskGuard {
                    tasks: Arc::clone(&self.wanted.tasks),
                    task: got.task,
                    was: got.was,
                    lease: got.lease.clone(),
                    leases: Some(Leases {
                        held: hold(got.lease, got.reason),
                        section: got.section.map(|lease| hold(lease, Reason::AlreadyOwned)),
                        tie: self.tie,
                    }),
                }))
            }
            Answer::Missed(obstacle) => TaskOutcome::Missed(obstacle),
            Answer::Deadlock(cycle) => TaskOutcome::Deadlock(cycle),
            Answer::Cancelled => TaskOutcome::Cancelled,
            Answer::TiedProcessEnded(pid) => return Err(Error::NoProcess(pid)),
        })
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
                // Whoever holds a task holds its section at least as long.
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
        })
    }
}

/// A certain task.
struct OneTask<'a> {
    tasks: &'a SqliteStore,
    clock: &'a dyn Clock,
    runner: Runner,
    id: &'a str,
}

impl Request for OneTask<'_> {
    type Got = Started;

    fn ask(&self) -> Result<Attempt<Started>, Error> {
        let asked = self.clock.now();
        Ok(match self.tasks.start(self.id, &self.runner)? {
            Starting::Started(started) => Attempt::Got(*started),
            Starting::Busy { key, busy } => Attempt::Missed(Obstacle::key(key, busy, &asked)),
            Starting::Deadlock(cycle) => Attempt::Deadlock(cycle),
        })
    }

    fn withdraw(&self, then: OnTimeout) -> Result<(), Error> {
        let places = places(then);
        Ok(self
            .tasks
            .stop_waiting(Some(self.id), &self.runner, places)?)
    }

    fn binding(&self) -> &Binding {
        &self.runner.holder.binding
    }
}

/// Any task.
struct NextTask<'a> {
    tasks: &'a SqliteStore,
    clock: &'a dyn Clock,
    runner: Runner,
    idle_for: Option<Duration>,
    /// Since when, on the boot clock, nothing could become ready.
    idle_since: Cell<Option<Duration>>,
}

impl NextTask<'_> {
    /// How long it is still worth waiting.
    fn left(&self, shortage: Shortage) -> Duration {
        let now = self.clock.now().ticks;
        let moves = matches!(shortage, Shortage::Locked | Shortage::Later { .. });
        let since = match self.idle_since.get() {
            Some(since) if !moves => since,
            _ => now,
        };
        self.idle_since.set((!moves).then_some(since));
        match self.idle_for {
            Some(limit) if !moves => limit.saturating_sub(now.saturating_sub(since)),
            _ => Duration::MAX,
        }
    }
}

impl Request for NextTask<'_> {
    type Got = Started;

    fn ask(&self) -> Result<Attempt<Started>, Error> {
        let want = match self.tasks.next(&self.runner)? {
            Sought::Found(started) => return Ok(Attempt::Got(*started)),
            Sought::Deadlock(cycle) => return Ok(Attempt::Deadlock(cycle)),
            Sought::None(want) => want,
        };
        let left = self.left(want.shortage);
        Ok(Attempt::Missed(Obstacle {
            key: tenure_core::task::key_of(tenure_core::task::ANY)?,
            busy: Box::new(want.busy),
            shortage: Some(want.shortage),
            watch: want.watch,
            until: Some(want.until.unwrap_or(Duration::MAX).min(left)),
            hopeless: left.is_zero(),
        }))
    }

    fn withdraw(&self, then: OnTimeout) -> Result<(), Error> {
        let places = places(then);
        Ok(self.tasks.stop_waiting(None, &self.runner, places)?)
    }

    fn binding(&self) -> &Binding {
        &self.runner.holder.binding
    }
}

fn places(then: OnTimeout) -> Places {
    match then {
        OnTimeout::Leave => Places::Leave,
        OnTimeout::KeepPlace => Places::Keep,
    }
}

/// A task that is worked on. Dropped unfinished, and tied to this process, its leases are given
/// back, and somebody else may take it.
#[must_use]
pub struct TaskGuard {
    tasks: Arc<SqliteStore>,
    task: Task,
    was: Status,
    /// `None` once it is over.
    leases: Option<Leases>,
    lease: Lease,
}

/// What a task is worked on under.
struct Leases {
    held: Held,
    section: Option<Held>,
    tie: Tie,
}

impl Leases {
    fn all(&mut self) -> impl Iterator<Item = &mut Held> {
        self.section.iter_mut().chain([&mut self.held])
    }

    /// Stops renewing, and leaves them as they are.
    fn let_go(self) {
        self.held.leave_standing();
        if let Some(section) = self.section {
            section.leave_standing();
        }
    }
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
        &self.lease
    }

    /// The fencing number: pass it on to whatever is written.
    pub fn token(&self) -> Token {
        self.lease.token
    }

    /// Why the task was granted.
    pub fn reason(&self) -> Option<Reason> {
        self.leases.as_ref().map(|leases| leases.held.reason())
    }

    /// The token of its section's lease.
    pub fn section_token(&self) -> Option<Token> {
        let leases = self.leases.as_ref()?;
        leases.section.as_ref().map(Held::token)
    }

    /// Starts renewing both leases. `on_lost` is called from another thread when one is lost, but
    /// not when the task was ended by its own token (see [`Self::ended_by_token`]).
    pub fn keep_alive(&mut self, on_lost: impl Fn() + Clone + Send + 'static) {
        let token = self.lease.token;
        for held in self.leases.iter_mut().flat_map(Leases::all) {
            let (tasks, on_lost) = (Arc::clone(&self.tasks), on_lost.clone());
            let id = self.task.id.clone();
            held.keep_alive(move || {
                if !matches!(tasks.ended_by(&id, token), Ok(Some(_))) {
                    on_lost();
                }
            });
        }
    }

    /// The task as it is now, if whoever works on it has ended it by this grant's token.
    pub fn ended_by_token(&self) -> Result<Option<Task>, Error> {
        Ok(self.tasks.ended_by(&self.task.id, self.lease.token)?)
    }

    /// How a lease was lost, if one was. Takes the answer out.
    pub fn take_loss(&mut self) -> Option<Loss> {
        let mut leases = self.leases.iter_mut().flat_map(Leases::all);
        leases.find_map(|held| held.take_loss())
    }

    /// Ends the work, if nobody else has got the task meanwhile (G7), and gives back what was held
    /// for it: the section too, when nothing is left to be done in it.
    pub fn finish(mut self, change: &Change) -> Result<Changed, Error> {
        let proof = Proof::Token(self.lease.token);
        if let Some(leases) = self.leases.take() {
            leases.let_go();
        }
        let changed = self.tasks.change(&self.task.id, &proof, change);
        if changed.is_err() {
            // Whoever is refused has nothing more to do there.
            let _ = self.tasks.abandon(&self.lease);
        }
        Ok(changed?)
    }

    /// Lets go of this object without giving anything back: for leases that live by themselves.
    pub fn leave_standing(mut self) {
        if let Some(leases) = self.leases.take() {
            leases.let_go();
        }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        let Some(leases) = self.leases.take() else {
            return;
        };
        let ours = leases.tie == Tie::ThisProcess;
        leases.let_go();
        if ours {
            // Nobody to tell: if it fails, the leases end with this process.
            let _ = self.tasks.abandon(&self.lease);
        }
    }
}
