//! `tenure tasks work`: a runner in one line.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGQUIT};
use tenure::ask::made_up_name;
use tenure::core::task::{Change, Changed};
use tenure::core::{Holder, Status, Task, Token};
use tenure::host::Tied;
use tenure::{AnyTask, Ask, Loss, TaskGuard, TaskOutcome, Tenure};

use super::next::{NextStory, none};
use crate::answer::{Answer, Failure, complain, remark};
use crate::args::Global;
use crate::args::tasks::Work;
use crate::commands::run::like_the_terminal;
use crate::context;
use crate::exit::Exit;
use crate::program::{Program, broken};
use crate::signals::Signals;
use crate::stderr::Tail;
use crate::supervise::{Ended, supervise};
use crate::terminal::Terminal;
use crate::waiting::{self, Show};
use crate::words;
use tenure::wire::ErrorCode;

/// How long a runner waits for others: as long as they work.
const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub(crate) fn work(global: &Global, work: &Work) -> Result<Answer, Failure> {
    let program = Program::find(
        &work.command,
        "tenure tasks work --as agent-1 -- ./agent.sh",
    )?;
    let tenure = context::open_to_change(global)?;
    let mut runner = Runner {
        holder: None,
        global,
        work,
        program,
        tenure: &tenure,
        signals: Signals::catch().map_err(broken)?,
        done: Tally::default(),
    };
    let ended = runner.work();
    runner.leave_sections();
    ended
}

/// What became of the tasks.
#[derive(Debug, Default)]
struct Tally {
    completed: u64,
    other: u64,
    retried: u64,
    failed: Vec<(Task, String)>,
    lost: Vec<(Task, String)>,
}

/// What to do after a task.
enum Then {
    /// The next one.
    Next,
    /// The next one, but not this one again: it was taken away, or put back.
    LeaveIt,
    /// Nothing.
    Stop(Failure),
}

enum Next {
    Task(Box<TaskGuard>),
    None(Failure),
    Interrupted(Failure),
}

struct Runner<'a> {
    /// As its last task was granted to it.
    holder: Option<Holder>,
    global: &'a Global,
    work: &'a Work,
    program: Program<'a>,
    tenure: &'a Tenure,
    signals: Signals,
    done: Tally,
}

impl<'a> Runner<'a> {
    fn work(&mut self) -> Result<Answer, Failure> {
        let mut ask = self.ask()?;
        loop {
            let task_guard = match self.next(&ask)? {
                Next::Task(task_guard) => task_guard,
                Next::None(failure) => return self.end(&failure),
                Next::Interrupted(failure) => {
                    self.tell();
                    return Err(failure.details(self.tally()));
                }
            };
            let id = task_guard.task().id.clone();
            match self.run(*task_guard)? {
                Then::Next => {}
                Then::LeaveIt => ask = ask.leave_to_others(&id),
                Then::Stop(failure) => {
                    self.tell();
                    return Err(failure.details(self.tally()));
                }
            }
        }
    }

    /// Gives back the sections it still has: it has no more use for them.
    fn leave_sections(&self) {
        if let (Some(holder), Ok(tasks)) = (&self.holder, self.tenure.tasks()) {
            let _ = tasks.leave_idle_sections(holder);
        }
    }

    fn ask(&self) -> Result<Ask<'a, AnyTask>, Failure> {
        let mut ask = waiting::with_name(self.global, self.tenure, self.tenure.ask_for_task()?)?
            .command(self.program.shown());
        if self.global.holder.is_none() {
            ask = ask.called(made_up_name(std::process::id()));
        }
        if let Some(ttl) = self.work.ttl {
            ask = ask.ttl(ttl);
        }
        if self.work.no_wait {
            return Ok(ask);
        }
        let limit = self.work.wait.unwrap_or_default();
        Ok(waiting::wait_for(ask, AS_LONG_AS_IT_TAKES).until_none_left_for(limit))
    }

    fn next(&mut self, ask: &Ask<'_, AnyTask>) -> Result<Next, Failure> {
        let story = NextStory {
            tenure: self.tenure,
        };
        let mut show = Show::new(self.global, self.tenure.clock(), story);
        let (outcome, signal) = waiting::watched(
            self.tenure,
            &mut self.signals,
            &mut show,
            |cancel, observer| ask.next_watched(cancel, observer),
        )?;
        show.done(matches!(outcome, TaskOutcome::Started(_)));
        let stop = |signal: Option<i32>, then: &str| {
            let signal = signal.unwrap_or(SIGINT);
            Next::Interrupted(waiting::interrupted("a task", &show, signal, then))
        };
        Ok(match outcome {
            TaskOutcome::Started(task_guard) if signal.is_some() => {
                task_guard.finish(&Change::GiveBack)?;
                stop(signal, "gave it back")
            }
            TaskOutcome::Started(task_guard) => Next::Task(task_guard),
            TaskOutcome::Missed(obstacle) => Next::None(none(self.global, self.tenure, &obstacle)?),
            TaskOutcome::Deadlock(cycle) => Next::None(waiting::deadlock("a task", &cycle)),
            TaskOutcome::Cancelled => {
                let place =
                    waiting::place_after(self.global, self.tenure, signal.unwrap_or(SIGINT));
                stop(signal, &place)
            }
        })
    }

    /// Runs the command for one task.
    fn run(&mut self, mut task_guard: TaskGuard) -> Result<Then, Failure> {
        let task = task_guard.task().clone();
        self.holder = Some(task_guard.lease().holder.clone());
        remark(
            self.global,
            &format!("started \"{}\" ({})", task.title, words::short(&task.id)),
        );
        let mut command = self.program.command();
        let section: Vec<Token> = task_guard.section_token().into_iter().collect();
        let lease = task_guard.lease();
        command
            .envs(context::environment(
                self.global,
                self.tenure,
                lease,
                &section,
            ))
            .env("TENURE_TASK_TOKEN", lease.token.to_string())
            .env("TENURE_TASK_ID", &task.id)
            .env("TENURE_TASK_TITLE", &task.title)
            .env("TENURE_TASK_ATTEMPT", (task.attempts + 1).to_string())
            .stdin(Stdio::from(as_input(&task_guard).map_err(broken)?));
        if self.global.json {
            // What is on our own output is the answer alone.
            let stderr = std::io::stderr().as_fd().try_clone_to_owned();
            command.stdout(Stdio::from(stderr.map_err(broken)?));
        }
        let tail = Tail::of(&mut command).map_err(broken)?;
        let terminal = Terminal::find();
        let lent = terminal.filter(|terminal| terminal.is_for_us_alone());
        let lent = lent.as_ref().map(Terminal::as_fd);
        let tied = match Tied::spawn(&mut command, self.tenure.store().inherited_fd(), lent) {
            Ok(tied) => tied,
            Err(error) => {
                let failure = self.program.not_started(error);
                task_guard.finish(&Change::GiveBack)?;
                return Ok(Then::Stop(failure));
            }
        };
        // Ours ends with the command's own.
        drop(command);
        let lost = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| broken(error.into()))?;
        let tell = Arc::new(lost.try_clone().map_err(broken)?);
        let keep_alive = || {
            task_guard.keep_alive(move || {
                let _ = rustix::io::write(&*tell, &1u64.to_ne_bytes());
            });
        };
        let grace = self.tenure.config().run.kill_grace;
        let ended = supervise(&tied, &mut self.signals, terminal, &lost, grace, keep_alive)
            .map_err(broken)?;
        // What it left behind ends with it: the next to work on this must be alone.
        drop(tied);
        let last_line = tail.and_then(Tail::last_line);
        self.finish(task_guard, &task, ended, last_line)
    }

    /// Writes down what became of a task.
    fn finish(
        &mut self,
        mut task_guard: TaskGuard,
        task: &Task,
        ended: Ended,
        last_line: Option<String>,
    ) -> Result<Then, Failure> {
        let mut then = Then::Next;
        // What is typed at a terminal reaches the command alone.
        let typed = ended.status.signal().filter(|signal| {
            ended.had_terminal && !ended.lost && [SIGINT, SIGQUIT].contains(signal)
        });
        let interrupted = ended.told.or(typed);
        let error = words_of(ended.status, last_line);
        let change = if ended.status.success() && !ended.lost {
            Change::To(Status::Completed)
        } else if interrupted.is_some() || ended.lost {
            Change::GiveBack
        } else if task.attempts < self.work.retries {
            Change::Retry {
                error: error.clone(),
            }
        } else {
            Change::Failed {
                error: error.clone(),
            }
        };
        let now = self.tenure.tasks()?.find_task(&task.id)?;
        if now.token == task_guard.token() && now.status == Status::Pending && !ended.lost {
            // Its own command put it back, and would again.
            task_guard.leave_standing();
            self.note(&now, &Change::GiveBack, &error);
            then = Then::LeaveIt;
        } else if let Some(said) = task_guard.ended_by_token()? {
            task_guard.leave_standing();
            self.note(&said, &Change::To(said.status), &error);
        } else {
            let loss = task_guard.take_loss();
            match task_guard.finish(&change) {
                // If the lease was lost when the command was done, nobody else was faster.
                Ok(Changed { task, .. }) if !ended.lost => self.note(&task, &change, &error),
                Ok(Changed { task, .. }) => {
                    self.lose(&task, loss.as_ref(), ended);
                    then = Then::LeaveIt;
                }
                Err(tenure::Error::Task(tenure::core::TaskError::Superseded { task, lease })) => {
                    let by = lease.map(|lease| *lease);
                    self.lose(&task, Some(&loss.unwrap_or(Loss::Taken(by))), ended);
                    then = Then::LeaveIt;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if typed.is_some() {
            // This may be the end of us.
            self.leave_sections();
            self.tell();
            like_the_terminal(ended);
        }
        Ok(match interrupted {
            Some(signal) => {
                let message = format!("stopped by a signal while \"{}\" was worked on", task.title);
                Then::Stop(Failure::new(ErrorCode::Interrupted, message).exit(Exit::signal(signal)))
            }
            None => then,
        })
    }

    fn note(&mut self, task: &Task, change: &Change, error: &str) {
        let what = match change {
            Change::To(Status::Completed) => {
                self.done.completed += 1;
                "completed".to_owned()
            }
            Change::To(Status::Failed) | Change::Failed { .. } => {
                let error = task.last_error.as_deref().unwrap_or(error).to_owned();
                let words = format!("failed: {error}");
                self.done.failed.push((task.clone(), error));
                words
            }
            Change::Retry { .. } => {
                self.done.retried += 1;
                let at = task.not_before.map_or_else(String::new, words::time);
                format!("failed ({error}), to be tried again at {at}")
            }
            Change::GiveBack => "was given back".to_owned(),
            Change::To(status) => {
                self.done.other += 1;
                format!("was left as {status}")
            }
        };
        remark(self.global, &format!("\"{}\" {what}", task.title));
    }

    fn lose(&mut self, task: &Task, loss: Option<&Loss>, ended: Ended) {
        let why = match loss {
            Some(Loss::Taken(Some(by))) => format!("{} has it now", by.holder),
            Some(Loss::Taken(None)) | None => "it was taken away".to_owned(),
            Some(Loss::Unrenewed(error)) => format!("it could not be renewed: {error}"),
        };
        let stopped = if ended.lost {
            "its command was stopped"
        } else {
            "its command had ended"
        };
        if !self.global.json {
            complain(&format!(
                "the lease on task \"{}\" was lost: {why}; {stopped}",
                task.title
            ));
        }
        self.done.lost.push((task.clone(), why));
    }

    fn tally(&self) -> Value {
        let list = |tasks: &[(Task, String)]| {
            let items = tasks.iter();
            let items = items
                .map(|(task, why)| json!({ "id": task.id, "title": task.title, "error": why }));
            items.collect::<Vec<_>>()
        };
        json!({
            "completed": self.done.completed,
            "failed": list(&self.done.failed),
            "lost": list(&self.done.lost),
            "retried": self.done.retried,
            "other": self.done.other,
        })
    }

    fn tell(&self) {
        let mut parts = vec![format!("{} completed", self.done.completed)];
        let failed = u64::try_from(self.done.failed.len()).unwrap_or(u64::MAX);
        let lost = u64::try_from(self.done.lost.len()).unwrap_or(u64::MAX);
        for (count, word) in [
            (failed, "failed"),
            (lost, "lost"),
            (self.done.retried, "put off"),
            (self.done.other, "left otherwise"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        }
        remark(self.global, &parts.join(", "));
    }

    /// None is left.
    fn end(&self, none: &Failure) -> Result<Answer, Failure> {
        self.tell();
        if none.code != ErrorCode::NoTaskLeft {
            remark(self.global, none.message());
        }
        let exit = if !self.done.failed.is_empty() {
            Exit::Runtime
        } else if !self.done.lost.is_empty() {
            Exit::Lost
        } else {
            Exit::Done
        };
        let mut data = self.tally();
        if let Value::Object(fields) = &mut data {
            fields.insert("ended".into(), json!(none.code));
        }
        if exit == Exit::Done {
            return Ok(Answer::new(data, String::new()));
        }
        let troubles = self.done.failed.iter().chain(&self.done.lost);
        let troubles = troubles.map(|(task, why)| format!("\n  \"{}\": {why}", task.title));
        let (code, what) = if exit == Exit::Lost {
            (ErrorCode::LeaseLost, "not all tasks could be kept:")
        } else {
            (ErrorCode::TasksFailed, "not all tasks were completed:")
        };
        let message = format!("{what}{}", troubles.collect::<String>());
        Err(Failure::new(code, message).details(data))
    }
}

/// The task as JSON, to be read from the command's standard input.
fn as_input(task_guard: &TaskGuard) -> std::io::Result<File> {
    let mut data = words::task_json(task_guard.task());
    if let Value::Object(fields) = &mut data {
        fields.insert("token".into(), json!(task_guard.token()));
    }
    let mut file = File::from(memfd_create("task", MemfdFlags::CLOEXEC)?);
    writeln!(file, "{data}")?;
    file.rewind()?;
    Ok(file)
}

/// What a command ended with.
fn words_of(status: ExitStatus, last_line: Option<String>) -> String {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    };
    match last_line {
        Some(line) => format!("{how}: {line}"),
        None => how,
    }
}
