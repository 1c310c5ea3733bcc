//! `tenure sync`: one cycle of the daemon, in the foreground; the status, the log, and a restore.

use tenure::text::{flat, plural};
use tenure::wire::{ErrorCode, SyncJson, SyncLogJson, SyncRestoreJson, SyncStatusJson};
use tenure::{Config, Project, Tenure};
use tenure_daemon::{CycleEvent, CycleOutcome, CycleResult, run_once};
use tenure_sync::{Restore, SyncError, SyncEvent};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::sync::{Sync, SyncCommand};
use crate::{context, terminal};

pub(crate) fn sync(global: &Global, args: &Sync) -> Result<Answer, Failure> {
    context::refuse_store(global, "only the project's own store can be synced")?;
    let project = context::project(&context::start()?)?;
    let config = context::config(Some(&project))?;
    let open = || project.open_store(config.clone(), Tenure::open_with);
    match &args.command {
        None => cycle(global, &project, &config),
        Some(SyncCommand::Status) => status(&project, &open()?),
        Some(SyncCommand::Log { limit }) => log(&project, &open()?, (*limit > 0).then_some(*limit)),
        Some(SyncCommand::Restore { commit, yes }) => {
            restore(global, &project, &open()?, commit, *yes)
        }
    }
}

fn cycle(global: &Global, project: &Project, config: &Config) -> Result<Answer, Failure> {
    let mut lines: Vec<String> = Vec::new();
    let result = run_once(project, config, &|| false, &mut |event| match event {
        // Printed at once, so that the user knows what the command waits for.
        CycleEvent::Sync(SyncEvent::Waiting) => {
            if !global.quiet && !global.json {
                anstream::eprintln!("{event}");
            }
        }
        other => lines.push(other.to_string()),
    });
    let message = match &result {
        CycleResult::Finished { reaped, sync } if reaped.failures.is_empty() => sync.to_string(),
        other => other.to_string(),
    };
    let outcome = result.outcome();
    let data = SyncJson {
        outcome: outcome.name().to_owned(),
        message: message.clone(),
        lines: lines.clone(),
        holder: result.skipped_for().map(ToString::to_string),
    };
    match outcome {
        CycleOutcome::Done => {
            lines.push(format!("{message}."));
            Ok(Answer::confirmed(global, data, lines.join("\n")))
        }
        // The protocol prescribes this line.
        CycleOutcome::Skipped => Err(Failure::new(ErrorCode::ExclusiveLocked, message.clone())
            .verbatim(message)
            .details(data)),
        CycleOutcome::PutOff => Err(Failure::new(ErrorCode::SyncPutOff, message).details(data)),
        CycleOutcome::Failed | CycleOutcome::CutShort => {
            Err(Failure::new(ErrorCode::SyncFailed, message).details(data))
        }
    }
}

impl From<SyncError> for Failure {
    fn from(error: SyncError) -> Self {
        Self::new(ErrorCode::SyncFailed, error.to_string())
    }
}

fn status(project: &Project, tenure: &Tenure) -> Result<Answer, Failure> {
    let status = tenure_sync::status(project, tenure)?;
    let text = status_text(&status);
    Ok(Answer::new(status, text))
}

fn status_text(status: &SyncStatusJson) -> String {
    let mut lines = vec![format!(
        "Not shared yet: {}",
        plural::count(status.unshared, "changed task")
    )];
    for remote in &status.remotes {
        let commits = |count| plural::count(count, "commit");
        let now = match &remote.error {
            Some(error) => format!(" when it was last asked; now: {error}"),
            None => String::new(),
        };
        lines.push(format!(
            "{} ({}): {} ahead, {} behind{now}",
            remote.name,
            status.r#ref,
            commits(remote.ahead),
            commits(remote.behind)
        ));
    }
    if status.remotes.is_empty() {
        lines.push("No remote: the tasks are recorded in this repository only".into());
    }
    lines.push(match status.last_sync {
        Some(at) => format!("Last sync: {at}"),
        None => "Last sync: none".into(),
    });
    if let (Some(error), Some(at)) = (&status.last_error, status.failed_at) {
        lines.push(format!("Last error: {at} {}", flat(error)));
    }
    lines.join("\n")
}

fn log(project: &Project, tenure: &Tenure, limit: Option<usize>) -> Result<Answer, Failure> {
    let commits = tenure_sync::log(project, tenure, limit)?;
    let mut lines: Vec<String> = Vec::new();
    for commit in &commits {
        let id = commit.commit.get(..10).unwrap_or(&commit.commit);
        lines.push(format!("{id}  {}  {}", commit.at, flat(&commit.author)));
        for change in &commit.changes {
            let id = change.id.get(..8).unwrap_or(&change.id);
            let (title, what) = (flat(&change.title), flat(&change.what.join(", ")));
            lines.push(format!("    {id}  {title}: {what}"));
        }
    }
    let text = if lines.is_empty() {
        "No task was shared yet.".to_owned()
    } else {
        lines.join("\n")
    };
    Ok(Answer::new(SyncLogJson { commits }, text))
}

fn restore(
    global: &Global,
    project: &Project,
    tenure: &Tenure,
    commit: &str,
    yes: bool,
) -> Result<Answer, Failure> {
    let plan = tenure_sync::plan_restore(project, tenure, commit)
        .map_err(|error| Failure::new(ErrorCode::NotFound, error.to_string()))?;
    let nothing = plan.changed + plan.deleted == 0;
    let what = words(&plan);
    if !nothing && !yes {
        match terminal::confirm(global, &format!("Restore ({what})?"))? {
            Some(true) => {}
            Some(false) => {
                return Err(Failure::new(ErrorCode::Interrupted, "nothing was restored"));
            }
            None => {
                let message = format!("this would restore tasks ({what}): confirm with --yes");
                return Err(Failure::new(ErrorCode::Usage, message));
            }
        }
    }
    if !nothing {
        plan.apply(tenure)?;
    }
    let short = plan.commit.get(..10).unwrap_or(&plan.commit);
    let text = if nothing {
        format!("All tasks of {short} are as they were then.")
    } else {
        format!("Restored {short}: {what}. tenure sync shares that.")
    };
    let data = SyncRestoreJson {
        changed: number(plan.changed),
        added: number(plan.deleted),
        newer: number(plan.newer),
        commit: plan.commit,
    };
    Ok(Answer::confirmed(global, data, text))
}

fn words(plan: &Restore) -> String {
    let count = |count: usize| plural::count(count, "task");
    let mut parts = vec![
        format!("{} set back", count(plan.changed)),
        format!(
            "{} that had been deleted added again with new ids",
            count(plan.deleted)
        ),
    ];
    if plan.newer > 0 {
        parts.push(format!("{} newer than that kept", count(plan.newer)));
    }
    parts.join(", ")
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
