//! `tenure init`

use tenure::wire::{ErrorCode, ProjectJson};
use tenure::{Project, Tenure};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::context;

pub(crate) fn init(global: &Global) -> Result<Answer, Failure> {
    let root = context::start()?;
    let (project, new) = Project::init(&root).map_err(|error| {
        Failure::new(
            ErrorCode::Io,
            format!(
                "{} cannot be created ({error}): check that you may write to {}",
                root.join(".tenure").display(),
                root.display()
            ),
        )
    })?;
    let complete = !new && project.folder().join("tenure.db").exists();
    // Creates the database now, so that a problem with it is reported by this command.
    Tenure::open(&project.store(), context::config(Some(&project))?)?;
    let folder = project.folder();
    let text = if new {
        format!(
            "Created {}.\nTry: tenure run build -- echo 'only one at a time'",
            folder.display()
        )
    } else if complete {
        format!("{} exists already; nothing was changed.", folder.display())
    } else {
        format!(
            "Created the database in {}, which existed already.",
            folder.display()
        )
    };
    let text = if global.quiet { String::new() } else { text };
    let data = ProjectJson {
        folder: folder.display().to_string(),
        created: new,
    };
    Ok(Answer::new(data, text))
}
