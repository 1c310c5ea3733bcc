//! `tenure init`

use std::time::Duration;

use tenure::text::{duration, plural};
use tenure::wire::{ErrorCode, ProjectJson};
use tenure::{Project, Tenure};
use tenure_host::time_limit::TimeLimit;
use tenure_sync::{Direction, SyncEvent, SyncOutcome, sync};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::context;

/// How long the fetch may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn init(global: &Global, here: bool) -> Result<Answer, Failure> {
    let why = "init makes a project, which has a store of its own: leave --store out; a store that \
               --store names is made by the first command that changes it";
    context::refuse_option(global, why)?;
    let start = context::start()?;
    let project = Project::at(&start)?;
    let around = context::find_project()?.filter(|around| around.root() != project.root());
    if let Some(around) = around.filter(|_| !here) {
        let message = format!(
            "{} is in the project {}, and every command here uses its .tenure\n  to make a second project in \
             this folder: tenure init --here",
            start.display(),
            around.root().display()
        );
        return Err(Failure::new(ErrorCode::Usage, message));
    }
    let new = project.create().map_err(|error| {
        let root = project.root().display();
        let message = match error.kind() {
            std::io::ErrorKind::PermissionDenied => {
                format!("no permission to write to {root}: the project would be {root}/.tenure")
            }
            _ => format!("{} can't be created ({error})", project.folder().display()),
        };
        Failure::new(ErrorCode::Io, message)
    })?;
    let complete = !new && project.has_store();
    // Creates the database now, so that a problem with it is reported by this command.
    let tenure = project.open_store(context::config(Some(&project))?, Tenure::open_for_locks)?;
    let folder = project.folder().display().to_string();
    let mut data = ProjectJson {
        folder: folder.clone(),
        created: new,
        tasks: 0,
        from: None,
    };
    let fetched = if complete {
        Vec::new()
    } else {
        fetch(&project, &tenure, &mut data)
    };
    let mut text = if new {
        format!("Created {folder}.\nTry: tenure run build -- echo 'only one at a time'")
    } else if complete {
        format!("{folder} exists already; nothing was changed.")
    } else {
        format!("Created the database in {folder}, which existed already.")
    };
    if project.is_shared() {
        text.push_str("\nAll worktrees of this git repository share it.");
    }
    let chosen = context::chosen_url(global);
    if !matches!(chosen, Ok(None)) {
        let chosen = chosen.ok().flatten();
        let by = match tenure.config().store_url() {
            Some(configured) if Some(&configured) == chosen.as_ref() => "store.url",
            _ => "TENURE_STORE",
        };
        let store = chosen.map_or_else(|| "that store".to_owned(), |url| url.to_string());
        text = format!("{text}\nBut {by} is set: commands use {store} instead.");
    }
    for line in fetched {
        text = format!("{text}\n{line}");
    }
    Ok(Answer::confirmed(global, data, text))
}

/// Fetches the tasks that the remote has, and says so in lines. A remote that can't be reached is no reason to fail.
fn fetch(project: &Project, tenure: &Tenure, data: &mut ProjectJson) -> Vec<String> {
    let mut lines = Vec::new();
    let limit = TimeLimit::after(PATIENCE);
    let stop = || limit.has_passed();
    let outcome = sync(project, tenure, Direction::Fetch, &stop, &mut |event| {
        if let SyncEvent::Merged { from, changes } = event {
            let tasks = plural::count(changes.added, "task");
            lines.push(format!("{tasks} from {from}."));
            data.tasks = changes.added;
            data.from = Some(from);
        } else {
            lines.push(event.to_string());
        }
    });
    match outcome {
        SyncOutcome::PutOff(_) if limit.has_passed() => {
            let patience = duration::format(PATIENCE);
            lines.push(format!(
                "The remote did not answer within {patience}: tenure sync gets its tasks later."
            ));
        }
        SyncOutcome::PutOff(_) | SyncOutcome::Failed(_) => lines.push(format!("{outcome}.")),
        SyncOutcome::Off | SyncOutcome::UpToDate | SyncOutcome::Synced(_) => {}
    }
    lines
}
