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
//!     TaskOutcome::Started(in_hand) => {
//!         assert_eq!(in_hand.task().title, "Fix bug");
//!         in_hand.finish(&Change::To(Status::Completed))?;
//!     }
//!     TaskOutcome::Missed(obstacle) => println!("none to be had: {:?}", obstacle.shortage),
//!     TaskOutcome::Deadlock(_) | TaskOutcome::Cancelled => {}
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::Arc;
use std::time::Duration;

use tenure_core::task::{Change, Changed, Proof, Runner, Shortage, Sought, Started, Starting};
use tenure_core::{Binding, Clock, Cycle, Reason, Status, Task, Token};
use tenure_sqlite::{Places, SqliteStore};

use crate::Error;
use crate::acquire::{
    self, Answer, Attempt, Cancel, Obstacle, OnTimeout, Progress, Quest, Surroundings,
};
use crate::ask::{Ask, Tie};
use crate::held::{Held, Loss};

/// What is wanted by somebody who works on tasks.
pub struct AnyTask {
    tasks: Arc<SqliteStore>,
    until_none_left: bool,
}

impl AnyTask {
    pub(crate) fn of(tasks: Arc<SqliteStore>) -> Self {
        Self {
            tasks,
            until_none_left: false,
        }
    }
}

/// What came of asking for a task.
#[must_use]
pub enum TaskOutcome {
    /// It is ours for as long as this is kept.
    Started(Box<InHand>),
    /// There is none to be had.
    Missed(Obstacle),
    /// Waiting would never have ended.
    Deadlock(Cycle),
    /// The wait was cancelled.
    Cancelled,
}

impl Ask<'_, AnyTask> {
    /// Stops waiting when nothing is left that could become ready by what others do now.
    pub fn until_none_left(mut self) -> Self {
        self.wanted.until_none_left = true;
        self
    }

    /// Begins the task with this id: takes its section's and its own lease, or neither.
    pub fn start(&self, id: &str) -> Result<TaskOutcome, Error> {
        self.start_watched(id, &Cancel::default(), &mut |_| {})
    }

    /// Begins a task; `cancel` ends a wait, `onlooker` sees how it goes.
    pub fn start_watched(
        &self,
        id: &str,
        cancel: &Cancel,
        onlooker: &mut dyn FnMut(Progress<'_>),
    ) -> Result<TaskOutcome, Error> {
        let quest = OneTask {
            tasks: &self.wanted.tasks,
            clock: &*self.tenure.clock,
            runner: self.runner()?,
            id,
        };
        self.go(&quest, cancel, onlooker)
    }

    /// Begins the best task that is ready.
    pub fn next(&self) -> Result<TaskOutcome, Error> {
        self.next_watched(&Cancel::default(), &mut |_| {})
    }

    /// Begins the best task that is ready; `cancel` ends a wait, `onlooker` sees how it goes.
    pub fn next_watched(
        &self,
        cancel: &Cancel,
        onlooker: &mut dyn FnMut(Progress<'_>),
    ) -> Result<TaskOutcome, Error> {
        let quest = NextTask {
            tasks: &self.wanted.tasks,
            runner: self.runner()?,
            until_none_left: self.wanted.until_none_left,
        };
        self.go(&quest, cancel, onlooker)
    }

    fn go<Q: Quest<Got = Started>>(
        &self,
        quest: &Q,
        cancel: &Cancel,
        onlooker: &mut dyn FnMut(Progress<'_>),
    ) -> Result<TaskOutcome, Error> {
        let answer = acquire::acquire(
            quest,
            &mut Surroundings {
                store: &*self.tenure.store,
                clock: &*self.tenure.clock,
                waiting: self.waiting(),
                cancel,
                onlooker,
            },
        )?;
        Ok(match answer {
            Answer::Got { got, asked } => {
                let hold = |lease, reason| Held::new(self.tenure, lease, reason, &asked, self.tie);
                TaskOutcome::Started(Box::new(InHand {
                    tasks: Arc::clone(&self.wanted.tasks),
                    task: got.task,
                    held: hold(got.lease, got.reason),
                    section: got.section.map(|lease| hold(lease, Reason::AlreadyOwned)),
                }))
            }
            Answer::Missed(obstacle) => TaskOutcome::Missed(obstacle),
            Answer::Deadlock(cycle) => TaskOutcome::Deadlock(cycle),
            Answer::Cancelled => TaskOutcome::Cancelled,
            Answer::Bereaved(pid) => return Err(Error::NoProcess(pid)),
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

impl Quest for OneTask<'_> {
    type Got = Started;

    fn ask(&self) -> Result<Attempt<Started>, Error> {
        let asked = self.clock.now();
        Ok(match self.tasks.start(self.id, &self.runner)? {
            Starting::Started(started) => Attempt::Got(*started),
            Starting::Busy { key, busy } => Attempt::Missed(Obstacle::key(key, busy, &asked)),
            Starting::Deadlock(cycle) => Attempt::Deadlock(cycle),
        })
    }

    fn step_aside(&self, then: OnTimeout) -> Result<(), Error> {
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
    runner: Runner,
    until_none_left: bool,
}

impl Quest for NextTask<'_> {
    type Got = Started;

    fn ask(&self) -> Result<Attempt<Started>, Error> {
        let want = match self.tasks.next(&self.runner)? {
            Sought::Found(started) => return Ok(Attempt::Got(*started)),
            Sought::None(want) => want,
        };
        let moves = matches!(want.shortage, Shortage::Locked | Shortage::Later { .. });
        Ok(Attempt::Missed(Obstacle {
            key: tenure_core::task::key_of(tenure_core::task::ANY)?,
            busy: Box::new(want.busy),
            shortage: Some(want.shortage),
            watch: want.watch,
            until: want.until,
            hopeless: self.until_none_left && !moves,
        }))
    }

    fn step_aside(&self, then: OnTimeout) -> Result<(), Error> {
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

/// A task that is not in progress any more, although nobody else was granted it.
fn ended_by_token(tasks: &SqliteStore, id: &str, token: Token) -> Result<Option<Task>, Error> {
    let task = tasks.find_task(id)?;
    let ended = task.token == token && task.status != Status::InProgress;
    Ok(ended.then_some(task))
}

/// A task that is worked on. Dropped unfinished, its leases are given back as those of [`Held`]
/// are, and somebody else may take it.
#[must_use]
pub struct InHand {
    tasks: Arc<SqliteStore>,
    task: Task,
    held: Held,
    section: Option<Held>,
}

impl InHand {
    /// The task, as it was when it was begun.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The task's lease.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// The tokens of all the leases it is worked on under.
    pub fn tokens(&self) -> Vec<Token> {
        let section = self.section.iter().map(Held::token);
        section.chain([self.held.token()]).collect()
    }

    /// Starts renewing both leases. `on_lost` is called from another thread when one is lost, but
    /// not when the task was ended in its own name (see [`Self::said_itself`]).
    pub fn keep_alive(&mut self, on_lost: impl Fn() + Clone + Send + 'static) {
        let token = self.held.token();
        for held in self.section.iter_mut().chain([&mut self.held]) {
            let (tasks, on_lost) = (Arc::clone(&self.tasks), on_lost.clone());
            let id = self.task.id.clone();
            held.keep_alive(move || {
                if !matches!(ended_by_token(&tasks, &id, token), Ok(Some(_))) {
                    on_lost();
                }
            });
        }
    }

    /// The task as it is now, if whoever works on it has set its status by this grant's token.
    pub fn said_itself(&self) -> Result<Option<Task>, Error> {
        ended_by_token(&self.tasks, &self.task.id, self.held.token())
    }

    /// How a lease was lost, if one was. Takes the answer out.
    pub fn take_loss(&self) -> Option<Loss> {
        let section = self.section.as_ref().and_then(Held::take_loss);
        self.held.take_loss().or(section)
    }

    /// Ends the work, if nobody else has got the task meanwhile (G7), and gives back what was held
    /// for it: the section too, when nothing is left to be done in it.
    pub fn finish(self, change: &Change) -> Result<Changed, Error> {
        let proof = Proof::Token(self.held.token());
        let (tasks, id) = (Arc::clone(&self.tasks), self.task.id.clone());
        self.leave_standing();
        Ok(tasks.change(&id, &proof, change)?)
    }

    /// Lets go of this object without giving anything back: for leases that live by themselves.
    pub fn leave_standing(self) {
        self.held.leave_standing();
        if let Some(section) = self.section {
            section.leave_standing();
        }
    }

    /// How long the task's lease lasts unless it is renewed.
    pub fn ttl(&self) -> Duration {
        self.held.lease().ttl
    }
}
