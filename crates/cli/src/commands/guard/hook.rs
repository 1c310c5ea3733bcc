//! What each hook checks.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

use tenure::wire::ErrorCode;
use tenure::{Config, Project};
use tenure_files::guard::hooks;
use tenure_files::guard::push;
use tenure_files::guard::records::How;
use tenure_files::guard::touched::{self, RefChange, Side, Touched};

use super::refusal;
use super::scene::Scene;
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::context;
use crate::exit::Exit;

/// Why a hook does not simply let git go on.
enum Stop {
    /// It may not.
    Refused(Failure),
    /// It could not be checked.
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Runs a hook. `strict` is what `guard.strict` was when it was installed: it counts if the settings can't be read.
pub(super) fn hook(
    global: &Global,
    mut strict: bool,
    name: &str,
    args: &[OsString],
) -> Result<Answer, Failure> {
    match check(global, &mut strict, name, args) {
        Ok(()) => Ok(Answer::silent(Exit::Done)),
        Err(Stop::Refused(failure)) => Err(failure),
        Err(Stop::Failed(failure)) if strict && !name.starts_with("post-") => {
            Err(failure.hint("the guard is strict, so nothing passes that it can't check"))
        }
        Err(Stop::Failed(failure)) => {
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

fn check(global: &Global, strict: &mut bool, name: &str, args: &[OsString]) -> Result<(), Stop> {
    let first = args.first().map(|arg| arg.to_string_lossy());
    if name == "reference-transaction" && first.as_deref() != Some("prepared") {
        return Ok(());
    }
    let mut input = Vec::new();
    if matches!(name, "pre-push" | "pre-receive" | "reference-transaction") {
        std::io::stdin().lock().read_to_end(&mut input)?;
    }
    let changes = RefChange::parse(&input);
    if matches!(name, "pre-receive" | "reference-transaction")
        && !changes.iter().any(RefChange::is_branch)
    {
        return Ok(());
    }
    let start = context::start()?;
    let project = context::find_project()?;
    let config = context::config(project.as_ref()).inspect_err(|_| {
        let settings = project.as_ref().map(Project::settings_folder);
        *strict = Config::is_strict(context::home().as_deref(), settings.as_deref(), || *strict);
    })?;
    *strict = config.guard.strict;
    let require = config.guard.require;
    let scene = Scene::open(global, &start, project.as_ref(), config)?;
    match name {
        "pre-commit" | "pre-merge-commit" => {
            let paths = scene.reserved.names(touched::staged(&scene.git)?);
            let what = if name == "pre-commit" {
                "commit"
            } else {
                "merge"
            };
            refusal::judged(&scene, require, what, &paths)
                .map_or(Ok(()), |it| Err(Stop::Refused(it)))
        }
        "reference-transaction" | "pre-receive" => {
            let (sides, what) = if name == "pre-receive" {
                (&[Side::Server][..], "push")
            } else {
                let sides = &[Side::Local, Side::LocalWithReflogs][..];
                (sides, "change of a branch")
            };
            // The next one is asked only if this one would refuse.
            let mut refused = None;
            for side in sides {
                let new = touched::new_on_branches(&scene.git, *side, &changes)?;
                let mut new = scene.reserved.named(new).into_iter();
                let judged = |it: Touched| refusal::judged(&scene, require, what, &it.paths);
                refused = new.find_map(judged);
                if refused.is_none() {
                    break;
                }
            }
            refused.map_or(Ok(()), |it| Err(Stop::Refused(it)))
        }
        "post-commit" | "post-merge" => record(global, &scene, name == "post-commit"),
        "pre-push" => push(global, &scene, first.as_deref().unwrap_or_default(), &input),
        _ => {
            let message = format!("{name} is not a hook of the guard");
            Err(Stop::Failed(Failure::new(ErrorCode::Usage, message)))
        }
    }
}

/// Records the newest commit, and those before it that no hook saw. One that was just made is recorded again: the same
/// content, amended in the same second, has the same id.
fn record(global: &Global, scene: &Scene, is_new: bool) -> Result<(), Stop> {
    let (known, mut missing) = scene.missing()?;
    let newest = touched::own_commits(&scene.git, 1)?;
    let Some(commit) = newest.into_iter().flatten().next() else {
        return Ok(());
    };
    if known.has(&commit) && !is_new {
        return Ok(());
    }
    missing.retain(|missing| *missing != commit);
    let known = scene.record(known, &missing, How::Late)?;
    let known = scene.record(known, std::slice::from_ref(&commit), How::Commit)?;
    if let Some(record) = known.get(&commit)?
        && !record.against.is_empty()
    {
        remark(global, &refusal::against(&record));
    }
    Ok(())
}

/// Refuses a push of commits that were made against reservations.
fn push(global: &Global, scene: &Scene, remote: &str, input: &[u8]) -> Result<(), Stop> {
    let families = touched::pushed(&scene.git, remote, input)?;
    if families.is_empty() {
        return Ok(());
    }
    let known = scene.records.read()?;
    // What came from a remote was not made here.
    let late = touched::not_on_remotes(&scene.git, known.missing(&families)?)?;
    if !late.is_empty() {
        remark(global, &refusal::unseen(&late));
    }
    let known = scene.record(known, &late, How::Late)?;
    let has_merges = families.iter().any(|family| family.len() > 2);
    let commits = families.into_iter().filter_map(|it| it.into_iter().next());
    let commits: Vec<String> = commits.collect();
    let refused = push::refused(&scene.git, &scene.reserved, &known, &commits)?;
    refusal::pushed(scene, &refused, has_merges).map_or(Ok(()), |it| Err(Stop::Refused(it)))
}
