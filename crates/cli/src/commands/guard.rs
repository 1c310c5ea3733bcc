//! `tenure guard`
//!
//! | module | contents |
//! |---|---|
//! | `hook` | a hook of git: what it answers |
//! | `refusal` | why a commit or a push is refused, in words |

mod hook;
mod refusal;

use std::path::Path;

use tenure::Config;
use tenure::text::plural;
use tenure::wire::{ErrorCode, GuardBypassJson, GuardHookJson, GuardJson};
use tenure_files::guard::here;
use tenure_files::guard::hooks::{self, HookError, Status};
use tenure_files::guard::records::{CommitRecord, How, Records};
use tenure_files::setup::target::shown;
use tenure_git::GitError;

use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::guard::GuardCommand;
use crate::context;
use crate::exit::Exit;
use crate::words;

/// How many commits `status` shows.
const SHOWN: usize = 10;

pub(crate) fn guard(global: &Global, guard: GuardCommand) -> Result<Answer, Failure> {
    match guard {
        GuardCommand::Install => install(global),
        GuardCommand::Uninstall => uninstall(global),
        GuardCommand::Status => status(global),
        GuardCommand::Receive => hook::hook(global, false, "pre-receive", &[]),
        GuardCommand::Hook {
            strict,
            folder,
            name,
            args,
        } => {
            let answer = hook::hook(global, strict, &name, &args);
            if let Some(folder) = folder.filter(|_| name == "post-commit") {
                hook::look_beside(global, &folder);
            }
            answer
        }
    }
}

fn install(global: &Global) -> Result<Answer, Failure> {
    let start = context::start()?;
    // Makes the store, so that a hook that finds none reports a loss.
    let tenure = context::open_for_locks(global)?;
    let config = tenure.config().clone();
    let program = std::env::current_exe()?;
    let (status, changed) = hooks::install(&start, &program, config.guard.strict)?;
    let records = Records::of(&start, context::find_project()?.as_ref())?;
    records.begin(&here(&start), tenure.clock().now().wall)?;
    let hooks = described(&status);
    let mut text = if changed {
        format!("Installed {hooks}.")
    } else {
        format!("Installed already: {hooks}; nothing was changed.")
    };
    if let Some(others) = &status.runs_also {
        let others = shown(others).display();
        text = format!("{text}\nThe hooks in {others} are left as they are, and run as before.");
    }
    let data = json(&config, &status, changed, &[]);
    Ok(Answer::confirmed(global, data, text))
}

fn uninstall(global: &Global) -> Result<Answer, Failure> {
    let start = context::start()?;
    let project = context::find_project()?;
    let changed = hooks::uninstall(&start)?;
    Records::of(&start, project.as_ref())?.remove()?;
    let text = if changed {
        "Removed the hooks of the guard: commits are not checked any more."
    } else {
        "There are no hooks of the guard here; nothing was changed."
    };
    let config = context::config(project.as_ref())?;
    let status = hooks::status(&start, config.guard.strict)?;
    let data = json(&config, &status, changed, &[]);
    Ok(Answer::confirmed(global, data, text))
}

fn status(global: &Global) -> Result<Answer, Failure> {
    let start = context::start()?;
    let project = context::find_project()?;
    let config = context::config(project.as_ref())?;
    let status = hooks::status(&start, config.guard.strict)?;
    let records = Records::of(&start, project.as_ref())?;
    if status.is_installed() {
        // Without the store, it can't be told what the commits were made against.
        let top = here(&start).top()?.unwrap_or(start.clone());
        let noticed = hook::scene(global, &top, project.as_ref(), config.clone())
            .and_then(|scene| Ok(scene.notice()?));
        if let Err(failure) = noticed {
            remark(global, failure.message());
        }
    }
    let bypasses = records.read()?.bypasses()?;
    let mut lines = vec![if status.is_complete() {
        format!("Installed: {}.", described(&status))
    } else if status.is_installed() {
        let missing = status.hooks.iter().filter(|(_, path)| path.is_none());
        let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
        format!(
            "Installed in part: git does not run {}. Repair it with: tenure guard install",
            missing.join(", ")
        )
    } else {
        "Not installed; install it with: tenure guard install".to_owned()
    }];
    if let Some(others) = &status.runs_also {
        let others = shown(others).display();
        lines.push(format!("The hooks in {others} run, too."));
    }
    let on = |on: bool| if on { "on" } else { "off" };
    lines.push(format!(
        "guard.strict is {}, guard.require is {}.",
        on(config.guard.strict),
        on(config.guard.require)
    ));
    if !bypasses.is_empty() {
        let many = plural::count(bypasses.len(), "commit");
        lines.push(format!(
            "{many} made in spite of the guard, the newest last:"
        ));
        let skipped = bypasses.len().saturating_sub(SHOWN);
        lines.extend(bypasses.iter().skip(skipped).map(bypass));
    }
    let data = json(&config, &status, false, &bypasses);
    let mut answer = Answer::confirmed(global, data, lines.join("\n"));
    if !status.is_complete() {
        answer.exit = Exit::NotFound;
    }
    Ok(answer)
}

/// A commit made in spite of the guard, in a line.
fn bypass(record: &CommitRecord) -> String {
    let commit = record.commit.get(..12).unwrap_or(&record.commit);
    let at = words::time(record.at);
    let holders = record.against.iter().map(|held| held.holder.as_str());
    let holders: Vec<&str> = holders.collect();
    let changes = format!("it changes what {} had reserved", holders.join(", "));
    let how = match record.how {
        How::Late if holders.is_empty() => "no hook ran when it was made".to_owned(),
        How::Late => format!("no hook ran when it was made; {changes}"),
        _ => changes,
    };
    format!("  {commit}  {at}  {how}")
}

/// The hooks and their folder.
fn described(status: &Status) -> String {
    let names: Vec<&str> = status.hooks.iter().map(|(name, _)| *name).collect();
    let folder = shown(&status.folder).display();
    format!("{} in {folder}", names.join(", "))
}

fn json(config: &Config, status: &Status, changed: bool, bypasses: &[CommitRecord]) -> GuardJson {
    let text = |path: &Path| path.display().to_string();
    let hooks = status.hooks.iter().map(|(name, path)| GuardHookJson {
        name: (*name).to_owned(),
        path: path.as_deref().map(text),
    });
    let bypasses = bypasses.iter().map(|record| GuardBypassJson {
        commit: record.commit.clone(),
        at: record.at.into(),
        seen_at_commit: record.how != How::Late,
        against: (record.against.iter())
            .map(|held| held.holder.to_string())
            .collect(),
    });
    GuardJson {
        installed: status.is_complete(),
        changed,
        folder: text(&status.folder),
        hooks: hooks.collect(),
        runs_also: status.runs_also.as_deref().map(text),
        strict: config.guard.strict,
        require: config.guard.require,
        bypasses: bypasses.collect(),
    }
}

impl From<GitError> for Failure {
    fn from(error: GitError) -> Self {
        Self::new(ErrorCode::Io, error.to_string())
    }
}

impl From<HookError> for Failure {
    fn from(error: HookError) -> Self {
        let code = match error {
            HookError::NoRepository(_) => ErrorCode::NotFound,
            _ => ErrorCode::Io,
        };
        Self::new(code, error.to_string())
    }
}
