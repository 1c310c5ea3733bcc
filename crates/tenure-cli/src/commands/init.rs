//! `tenure init`

use serde_json::json;
use tenure::wire::ErrorCode;
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
                "{} can't be made ({error}): check that {} may be written",
                root.join(".tenure").display(),
                root.display()
            ),
        )
    })?;
    let complete = !new && project.folder().join("tenure.db").exists();
    // Makes the database too, so that whatever is wrong with it is said now.
    Tenure::open(&project.store(), context::config(Some(&project))?)?;
    let folder = project.folder();
    let text = if new {
        format!(
            "Made {}.\nTry: tenure run build -- echo 'only one at a time'",
            folder.display()
        )
    } else if complete {
        format!(
            "{} is there already; nothing was changed.",
            folder.display()
        )
    } else {
        format!(
            "Made the database in {}, which was there already.",
            folder.display()
        )
    };
    let text = if global.quiet { String::new() } else { text };
    Ok(Answer::new(
        json!({ "folder": folder.display().to_string(), "created": new }),
        text,
    ))
}
