//! `tenure tasks work`: run a command for one task after another.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use signal_hook::consts::{SIGINT, SIGQUIT};
use tenure::ask::generated_name;
use tenure::guard::Loss;
use tenure::store::{Event, EventKind, HistoryQuery, Holder, Lease, Token, call_deadline};
use tenure::tasks::{AnyTask, Change, Changed, Status, Task, TaskError, TaskGuard};
use tenure::wire::{ErrorCode, TaskEndedJson, TaskInputJson, WorkJson};
use tenure::{Ask, Tenure};
use tenure_host::Tied;

use super::next;
use crate::answer::{Answer, Failure, complain, remark};
use crate::args::Global;
use crate::args::tasks::Work;
use crate::commands::run::{repeat_terminal_signal, taken};
use crate::context;
use crate::exit::Exit;
use crate::program::Program;
use crate::signals::Signals;
use crate::stderr::StderrTee;
use crate::supervise::{Ended, Supervised, supervise};
use crate::terminal::Terminal;
use crate::waiting;
use crate::words;

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
        signals: Signals::catch()?,
        summary: WorkJson::default(),
    };
    let ended = runner.work();
    runner.release_sections();
    ended
}

/// What the runner does after a task.
enum AfterTask {
    /// Starts the next one.
    Continue,
    /// Starts the next one, and not the one with this id again: it was taken over, or put back.
    Exclude(String),
    /// Ends.
    Stop(Failure),
}

struct Runner<'a> {
    /// The holder of its last task's lease.
    holder: Option<Holder>,
    global: &'a Global,
    work: &'a Work,
    program: Program<'a>,
    tenure: &'a Tenure,
    signals: Signals,
    /// How the tasks ended.
    summary: WorkJson,
}

impl<'a> Runner<'a> {
    fn work(&mut self) -> Result<Answer, Failure> {
        let mut ask = self.ask()?;
        loop {
            let next = next::wait(self.global, self.tenure, &mut self.signals, &ask)?;
            let after = match next {
                Ok(task_guard) => self.run(task_guard)?,
                Err(failure) if failure.code == ErrorCode::Interrupted => AfterTask::Stop(failure),
                Err(none) => return self.end(none),
            };
            match after {
                AfterTask::Continue => {}
                AfterTask::Exclude(id) => ask = ask.leave_to_others(&id),
                AfterTask::Stop(failure) => {
                    self.print_summary();
                    return Err(failure.details(&self.summary));
                }
            }
        }
    }

    /// Releases the sections that it still holds.
    fn release_sections(&self) {
        if let (Some(holder), Ok(tasks)) = (&self.holder, self.tenure.tasks()) {
            let _ = tasks.leave_idle_sections(holder, call_deadline());
        }
    }

    fn ask(&self) -> Result<Ask<'a, AnyTask>, Failure> {
        let mut ask = waiting::with_name(self.global, self.tenure, self.tenure.ask_for_task()?)?
            .command(self.program.shown())
            .renew_later();
        if self.global.holder.is_none() {
            ask = ask.called(generated_name(std::process::id()));
        }
        if let Some(ttl) = self.work.ttl {
            ask = ask.ttl(ttl);
        }
        let usual = self.tenure.config().locking.wait_timeout;
        let limit = self.work.wait.unwrap_or(usual);
        if self.work.no_wait || limit.is_zero() {
            return Ok(ask);
        }
        // Without --wait it does not wait for tasks that nobody has added yet.
        let idle = self.work.wait.unwrap_or_default();
        Ok(waiting::wait_for(ask, limit).until_none_left_for(idle))
    }

    /// Runs the command for one task.
    fn run(&mut self, mut task_guard: TaskGuard) -> Result<AfterTask, Failure> {
        let task = task_guard.task().clone();
        self.holder = Some(task_guard.lease().holder.clone());
        remark(
            self.global,
            &format!(
                "started {} ({})",
                words::title(&task),
                words::short(&task.id)
            ),
        );
        let mut command = self.program.command();
        let section: Vec<Token> = task_guard.section_token().into_iter().collect();
        let lease = task_guard.lease();
        command
            .envs(context::environment(
                self.global,
                self.tenure,
                &[lease],
                &section,
            ))
            .env("TENURE_TASK_TOKEN", lease.token.to_string())
            .env("TENURE_TASK_ID", &task.id)
            .env("TENURE_TASK_TITLE", &task.title)
            .env("TENURE_TASK_ATTEMPT", (task.attempts + 1).to_string())
            .stdin(Stdio::from(as_input(&task_guard)?));
        if self.global.json {
            // Standard output is for the answer.
            let stderr = std::io::stderr().as_fd().try_clone_to_owned();
            command.stdout(Stdio::from(stderr?));
        }
        let stderr = StderrTee::attach(&mut command)?;
        let terminal = Terminal::find();
        let lent = terminal.filter(|terminal| terminal.is_ours_alone());
        let lent = lent.as_ref().map(Terminal::as_fd);
        let start_by = task_guard.trusted_until();
        let tied = match Tied::spawn(&mut command, self.tenure.inherited_fd(), lent, start_by) {
            Ok(tied) => tied,
            Err(_) if task_guard.lost_by_now().is_some() => {
                let (loss, lease) = (task_guard.loss(), task_guard.lease().clone());
                let given_back = task_guard.finish(&Change::GiveBack);
                let stopped = "its command was not started";
                self.record_loss(given_back, &lease, loss.as_deref(), stopped)?;
                return Ok(AfterTask::Exclude(task.id));
            }
            Err(error) => {
                let failure = self.program.not_started(error);
                task_guard.finish(&Change::GiveBack)?;
                return Ok(AfterTask::Stop(failure));
            }
        };
        // Closes our ends of its pipes.
        drop(command);
        let lost = eventfd(0, EventfdFlags::CLOEXEC)?;
        let report_loss = Arc::new(lost.try_clone()?);
        task_guard.on_lost(move || {
            let _ = rustix::io::write(&*report_loss, &1u64.to_ne_bytes());
        });
        let command = Supervised {
            tied: &tied,
            terminal,
            lost: &lost,
            rest: None,
            grace: self.tenure.config().run.kill_grace,
        };
        let ended = supervise(self.global, &mut self.signals, &command, || {
            task_guard.start_renewal();
        })?;
        // Ends the processes that the command left behind: they must not work on the task any more.
        drop(tied);
        let last_line = stderr.and_then(StderrTee::last_line);
        // A cluster that does not answer is not waited for against a person's will.
        let signals = self.signals.share();
        let (after, signal) = waiting::until_signal(&signals, || {
            self.finish(task_guard, &task, ended, last_line)
        });
        match signal {
            Some(signal) => after.map_err(|failure| failure.exit(Exit::signal(signal))),
            None => after,
        }
    }

    /// Records how a task ended.
    fn finish(
        &mut self,
        task_guard: TaskGuard,
        task: &Task,
        ended: Ended,
        last_line: Option<String>,
    ) -> Result<AfterTask, Failure> {
        let mut after = AfterTask::Continue;
        // Ctrl+C at a lent terminal reaches only the command.
        let typed = ended.status.signal().filter(|signal| {
            ended.had_terminal && !ended.lost && [SIGINT, SIGQUIT].contains(signal)
        });
        let interrupted = ended.stop_signal.or(typed);
        let error = describe_end(ended.status, last_line);
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
        let now = self.tenure.tasks()?.find_task(&task.id, call_deadline())?;
        if now.token == task_guard.token()
            && now.status == Status::Pending
            && (!ended.lost || self.was_released(task_guard.lease())?)
        {
            // The command itself put the task back, and would do so again.
            task_guard.leave_standing();
            self.record(&now, &Change::GiveBack, &error);
            after = AfterTask::Exclude(task.id.clone());
        } else if let Some(changed) = task_guard.ended_by_token()? {
            task_guard.leave_standing();
            self.record(&changed, &Change::To(changed.status), &error);
        } else {
            let (loss, lease) = (task_guard.loss(), task_guard.lease().clone());
            let stopped = if ended.lost {
                "its command was stopped"
            } else {
                "its command had ended"
            };
            match task_guard.finish(&change) {
                // The change was accepted, so no other runner took the task over.
                Ok(Changed { task, .. }) if !ended.lost => self.record(&task, &change, &error),
                finished => {
                    self.record_loss(finished, &lease, loss.as_deref(), stopped)?;
                    after = AfterTask::Exclude(task.id.clone());
                }
            }
        }
        if typed.is_some() {
            // The signal below may end this process.
            self.release_sections();
            self.print_summary();
            repeat_terminal_signal(ended);
        }
        Ok(match interrupted {
            Some(signal) => {
                let message = format!(
                    "stopped by a signal while working on {}",
                    words::title(task)
                );
                AfterTask::Stop(
                    Failure::new(ErrorCode::Interrupted, message).exit(Exit::signal(signal)),
                )
            }
            None => after,
        })
    }

    /// Whether the holder itself released this lease, so that it was not taken away.
    fn was_released(&self, lease: &Lease) -> Result<bool, Failure> {
        let query = HistoryQuery {
            key: Some(lease.key.clone()),
            limit: Some(1),
            ..HistoryQuery::default()
        };
        let events = self.tenure.store().history(&query, call_deadline())?;
        let released =
            |event: &Event| event.kind == EventKind::Released && event.token == lease.token;
        Ok(events.last().is_some_and(released))
    }

    fn record(&mut self, task: &Task, change: &Change, error: &str) {
        let what = match change {
            Change::To(Status::Completed) => {
                self.summary.completed += 1;
                "completed".to_owned()
            }
            Change::To(Status::Failed) | Change::Failed { .. } => {
                let error = task.last_error.as_deref().unwrap_or(error).to_owned();
                let words = format!("failed: {error}");
                self.summary.failed.push(ended(task, error));
                words
            }
            Change::Retry { .. } => {
                self.summary.retried += 1;
                match task.not_before {
                    Some(at) => format!("failed ({error}), retried at {}", words::time(at)),
                    None => format!("failed ({error}), will be retried"),
                }
            }
            Change::GiveBack => "was put back".to_owned(),
            Change::To(status) => {
                self.summary.other += 1;
                format!("was set to {status}")
            }
        };
        remark(self.global, &format!("{} {what}", words::title(task)));
    }

    /// Records that the lease of a task was lost. `finished` is what came of ending the work on it.
    fn record_loss(
        &mut self,
        finished: Result<Changed, tenure::Error>,
        lease: &Lease,
        loss: Option<&Loss>,
        stopped: &str,
    ) -> Result<(), Failure> {
        // The new holder says more than that the lease was not renewed.
        let (task, new_holder) = match finished {
            Ok(Changed { task, .. }) => (task, None),
            Err(tenure::Error::Task(TaskError::Superseded { task, lease })) => {
                (*task, lease.map(|lease| Loss::Taken(vec![*lease])))
            }
            Err(error) => return Err(error.into()),
        };
        let why = match new_holder.as_ref().or(loss) {
            Some(Loss::Taken(leases)) => taken(self.global, self.tenure, lease, leases),
            Some(Loss::NotRenewed(Some(error))) => format!("it could not be renewed: {error}"),
            Some(Loss::NotRenewed(None)) => "it could not be renewed in time".to_owned(),
            _ => taken(self.global, self.tenure, lease, &[]),
        };
        if !self.global.json {
            complain(&format!(
                "the lease on task {} was lost: {why}; {stopped}",
                words::title(&task)
            ));
        }
        self.summary.lost.push(ended(&task, why));
        Ok(())
    }

    fn print_summary(&self) {
        let mut parts = vec![format!("{} completed", self.summary.completed)];
        let failed = u64::try_from(self.summary.failed.len()).unwrap_or(u64::MAX);
        let lost = u64::try_from(self.summary.lost.len()).unwrap_or(u64::MAX);
        for (count, word) in [
            (failed, "failed"),
            (lost, "lost"),
            (self.summary.retried, "retried"),
            (self.summary.other, "set to another status"),
        ] {
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        }
        remark(self.global, &parts.join(", "));
    }

    /// Reports the end: no task is left, or none of those that are left can be started.
    fn end(&mut self, none: Failure) -> Result<Answer, Failure> {
        self.print_summary();
        self.summary.ended = Some(none.code);
        let data = &self.summary;
        let (code, what) = if !self.summary.failed.is_empty() {
            (ErrorCode::TasksFailed, "some tasks were not completed:")
        } else if !self.summary.lost.is_empty() {
            (ErrorCode::LeaseLost, "the leases on some tasks were lost:")
        } else if none.code == ErrorCode::NoTaskLeft {
            return Ok(Answer::new(data, String::new()));
        } else {
            return Err(none.details(data));
        };
        if none.code != ErrorCode::NoTaskLeft {
            remark(self.global, none.message());
        }
        let problems = data.failed.iter().chain(&data.lost).map(|task| {
            let title = words::titled(&task.id, &task.title);
            format!("\n  {title}: {}", task.error)
        });
        let message = format!("{what}{}", problems.collect::<String>());
        Err(Failure::new(code, message).details(data))
    }
}

fn ended(task: &Task, error: String) -> TaskEndedJson {
    TaskEndedJson {
        id: task.id.clone(),
        title: task.title.clone(),
        error,
    }
}

/// The task as JSON, for the command's standard input.
fn as_input(task_guard: &TaskGuard) -> std::io::Result<File> {
    let input = TaskInputJson {
        task: task_guard.task().into(),
        token: task_guard.token(),
    };
    let input = serde_json::to_string(&input)?;
    let mut file = File::from(memfd_create("task", MemfdFlags::CLOEXEC)?);
    writeln!(file, "{input}")?;
    file.rewind()?;
    Ok(file)
}

/// How a command ended.
fn describe_end(status: ExitStatus, last_line: Option<String>) -> String {
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
