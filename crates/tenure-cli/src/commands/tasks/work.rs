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
use signal_hook::consts::SIGINT;
use tenure::ask::made_up_name;
use tenure::core::task::{Change, Changed, Shortage};
use tenure::core::{Status, Task};
use tenure::host::Tied;
use tenure::{AnyTask, Ask, InHand, Loss, TaskOutcome, Tenure};

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

/// How long a runner waits for others: as long as they work.
const AS_LONG_AS_IT_TAKES: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub(crate) fn work(global: &Global, work: &Work) -> Result<Answer, Failure> {
    let program = Program::find(
        &work.command,
        "tenure tasks work --as agent-1 -- ./agent.sh",
    )?;
    let tenure = context::open(global)?;
    let mut runner = Runner {
        global,
        work,
        program,
        tenure: &tenure,
        signals: Signals::catch().map_err(broken)?,
        done: Tally::default(),
    };
    let ask = runner.ask()?;
    loop {
        let in_hand = match runner.next(&ask)? {
            Next::Task(in_hand) => in_hand,
            Next::None(failure) => return Ok(runner.end(&failure)),
            Next::Interrupted(failure) => {
                runner.tell();
                return Err(failure);
            }
        };
        if let Some(failure) = runner.run(*in_hand)? {
            runner.tell();
            return Err(failure);
        }
    }
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

enum Next {
    Task(Box<InHand>),
    None(Failure),
    Interrupted(Failure),
}

struct Runner<'a> {
    global: &'a Global,
    work: &'a Work,
    program: Program<'a>,
    tenure: &'a Tenure,
    signals: Signals,
    done: Tally,
}

impl<'a> Runner<'a> {
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
        Ok(match self.work.wait {
            Some(limit) => waiting::wait_for(ask, limit),
            None => waiting::wait_for(ask, AS_LONG_AS_IT_TAKES).until_none_left(),
        })
    }

    fn next(&mut self, ask: &Ask<'_, AnyTask>) -> Result<Next, Failure> {
        let mut show = Show::new(self.global, self.tenure.clock(), NextStory);
        let (outcome, signal) = waiting::watched(
            self.tenure,
            &mut self.signals,
            &mut show,
            |cancel, onlooker| ask.next_watched(cancel, onlooker),
        )?;
        show.done(matches!(outcome, TaskOutcome::Started(_)));
        let stop = |signal: Option<i32>, then: &str| {
            let signal = signal.unwrap_or(SIGINT);
            Next::Interrupted(waiting::interrupted("a task", &show, signal, then))
        };
        Ok(match outcome {
            TaskOutcome::Started(in_hand) if signal.is_some() => {
                in_hand.finish(&Change::GiveBack)?;
                stop(signal, "gave it back")
            }
            TaskOutcome::Started(in_hand) => Next::Task(in_hand),
            TaskOutcome::Missed(obstacle)
                if self.work.wait.is_some()
                    && matches!(
                        obstacle.shortage,
                        Some(Shortage::Locked | Shortage::Later { .. })
                    ) =>
            {
                // The wait was for new ones; as long as others work, there is something to wait for.
                return self.next(ask);
            }
            TaskOutcome::Missed(obstacle) => Next::None(none(self.tenure, &obstacle)?),
            TaskOutcome::Deadlock(cycle) => Next::None(waiting::deadlock("a task", &cycle)),
            TaskOutcome::Cancelled => stop(signal, "left the queue"),
        })
    }

    /// Runs the command for one task. A failure ends the runner.
    fn run(&mut self, mut in_hand: InHand) -> Result<Option<Failure>, Failure> {
        let task = in_hand.task().clone();
        remark(
            self.global,
            &format!("started \"{}\" ({})", task.title, words::short(&task.id)),
        );
        let mut command = self.program.command();
        let others = in_hand.tokens();
        let lease = in_hand.held().lease();
        command
            .envs(context::environment(
                self.global,
                self.tenure,
                lease,
                others.split_last().map_or(&[], |(_, others)| others),
            ))
            .env("TENURE_TASK_ID", &task.id)
            .env("TENURE_TASK_TITLE", &task.title)
            .env("TENURE_TASK_ATTEMPT", (task.attempts + 1).to_string())
            .stdin(Stdio::from(as_input(&in_hand).map_err(broken)?));
        if self.global.json {
            // What is on our own output is the answer alone.
            let stderr = std::io::stderr().as_fd().try_clone_to_owned();
            command.stdout(Stdio::from(stderr.map_err(broken)?));
        }
        let tail = Tail::of(&mut command).map_err(broken)?;
        let terminal = Terminal::find();
        let lent = terminal.filter(|terminal| terminal.is_for_us_alone());
        let lent = lent.as_ref().map(Terminal::as_fd);
        let tied = match Tied::spawn(&mut command, self.tenure.store().heirloom(), lent) {
            Ok(tied) => tied,
            Err(error) => {
                let failure = self.program.not_started(error);
                in_hand.finish(&Change::GiveBack)?;
                return Ok(Some(failure));
            }
        };
        // Ours ends with the command's own.
        drop(command);
        let lost = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| broken(error.into()))?;
        let tell = Arc::new(lost.try_clone().map_err(broken)?);
        let keep_alive = || {
            in_hand.keep_alive(move || {
                let _ = rustix::io::write(&*tell, &1u64.to_ne_bytes());
            });
        };
        let grace = self.tenure.config().run.kill_grace;
        let ended = supervise(&tied, &mut self.signals, terminal, &lost, grace, keep_alive)
            .map_err(broken)?;
        // What it left behind ends with it: the next to work on this must be alone.
        drop(tied);
        let last_line = tail.and_then(Tail::last_line);
        self.finish(in_hand, &task, ended, last_line)
    }

    /// Writes down what became of a task.
    fn finish(
        &mut self,
        in_hand: InHand,
        task: &Task,
        ended: Ended,
        last_line: Option<String>,
    ) -> Result<Option<Failure>, Failure> {
        let interrupted = ended.told.or_else(|| {
            let signal = ended.status.signal();
            signal.filter(|_| ended.had_terminal && !ended.lost)
        });
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
        if let Some(said) = in_hand.said_itself()? {
            in_hand.leave_standing();
            self.note(&said, &Change::To(said.status), &error);
        } else {
            let loss = in_hand.take_loss();
            match in_hand.finish(&change) {
                // If the lease was lost when the command was done, nobody else was faster.
                Ok(Changed { task, .. }) if !ended.lost => self.note(&task, &change, &error),
                Ok(Changed { task, .. }) => self.lose(&task, loss.as_ref()),
                Err(tenure::Error::Task(tenure::core::TaskError::Superseded { task, lease })) => {
                    let by = lease.map(|lease| *lease);
                    self.lose(&task, Some(&loss.unwrap_or(Loss::Taken(by))));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if ended.had_terminal {
            like_the_terminal(ended);
        }
        Ok(interrupted.map(|signal| {
            let message = format!("stopped by a signal while \"{}\" was worked on", task.title);
            Failure::new(Exit::signal(signal), "INTERRUPTED", message)
        }))
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
            Change::GiveBack => "gave back".to_owned(),
            Change::To(status) => {
                self.done.other += 1;
                format!("left as {status}:")
            }
        };
        remark(self.global, &format!("\"{}\" {what}", task.title));
    }

    fn lose(&mut self, task: &Task, loss: Option<&Loss>) {
        let why = match loss {
            Some(Loss::Taken(Some(by))) => format!("{} has it now", by.holder),
            Some(Loss::Taken(None)) | None => "it was taken away".to_owned(),
            Some(Loss::Unrenewed(error)) => format!("it could not be renewed: {error}"),
        };
        complain(&format!(
            "the lease on task \"{}\" was lost: {why}; its command was stopped",
            task.title
        ));
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
            (self.done.retried, "failed attempts tried again"),
            (self.done.other, "left otherwise"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        }
        remark(self.global, &parts.join(", "));
    }

    /// None is left.
    fn end(&self, none: &Failure) -> Answer {
        self.tell();
        if none.code != "NO_TASK_LEFT" {
            remark(self.global, &none.message);
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
        Answer::new(data, String::new()).exit(exit)
    }
}

/// The task as JSON, to be read from the command's standard input.
fn as_input(in_hand: &InHand) -> std::io::Result<File> {
    let mut data = words::task_json(in_hand.task());
    if let Value::Object(fields) = &mut data {
        fields.insert("token".into(), json!(in_hand.held().token()));
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
