//! A hook of git: what it answers.

use std::ffi::OsString;
use std::path::Path;

use tenure::{Config, Project};
use tenure_files::guard::hooks;
use tenure_files::guard::run::Event;
use tenure_files::guard::scene::Scene;

use super::refusal;
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::context;
use crate::exit::Exit;

/// Runs a hook. `strict` is what `guard.strict` was when it was installed: it counts if the settings can't be read.
pub(super) fn hook(
    global: &Global,
    mut strict: bool,
    name: &str,
    args: &[OsString],
) -> Result<Answer, Failure> {
    match check(global, &mut strict, name, args) {
        Ok(None) => Ok(Answer::silent(Exit::Done)),
        Ok(Some(refused)) => Err(refused),
        Err(failure) if strict && !name.starts_with("post-") => {
            Err(failure.hint("the guard is strict, so nothing passes that it can't check"))
        }
        Err(failure) => {
            let message = format!("the guard checked nothing: {}", failure.message());
            remark(global, &message);
            Ok(Answer::silent(Exit::Done))
        }
    }
}

/// Says if another tool has taken the place of a hook of the guard, as `lefthook install` does.
pub(super) fn look_beside(global: &Global, folder: &Path) {
    let replaced = hooks::replaced(folder);
    if !replaced.is_empty() {
        let message = format!(
            "another tool has replaced {} of the guard, so git does not run it any more; put the guard beside it with: tenure guard install",
            replaced.join(", ")
        );
        remark(global, &message);
    }
}

/// Why git may not go on, if it may not.
fn check(
    global: &Global,
    strict: &mut bool,
    name: &str,
    args: &[OsString],
) -> Result<Option<Failure>, Failure> {
    let Some(event) = Event::read(name, args, std::io::stdin().lock())? else {
        return Ok(None);
    };
    let start = context::start()?;
    let project = context::find_project()?;
    let config = context::config(project.as_ref()).inspect_err(|_| {
        let settings = project.as_ref().map(Project::settings_folder);
        *strict = Config::is_strict(std::env::home_dir().as_deref(), settings.as_deref(), || {
            *strict
        });
    })?;
    *strict = config.guard.strict;
    let scene = scene(global, &start, project.as_ref(), config)?;
    let judged = scene.judge(&event)?;
    if let Some(record) = &judged.against {
        remark(global, &refusal::against(record));
    }
    if !judged.unseen.is_empty() {
        remark(global, &refusal::unseen(&judged.unseen));
    }
    Ok(judged.refusal.map(|it| refusal::refused(&scene, &it)))
}

/// What a hook works with that git runs in this folder.
pub(super) fn scene(
    global: &Global,
    top: &Path,
    project: Option<&Project>,
    config: Config,
) -> Result<Scene, Failure> {
    let store = context::chosen_by(global, &config)?;
    let name = context::named(global)?;
    Ok(Scene::open(top, project, config, store.as_ref(), name)?)
}
