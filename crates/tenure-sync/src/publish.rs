//! The file's way into the branch here, and to the others.

use super::git::{Git, Oid, Trouble, words};
use super::repository::{Repository, Upstream, short};
use super::{SUBJECT, TASKS};

/// The branch here and the one there.
pub(super) struct Sides {
    pub(super) head: Option<Oid>,
    pub(super) tip: Option<Oid>,
    pub(super) head_blob: Option<Oid>,
    pub(super) tip_blob: Option<Oid>,
}

/// Where the branch here is to be.
pub(super) struct Plan {
    /// With the file in it; `None` if it is left where it is.
    pub(super) target: Option<Oid>,
    /// Whether all that the others have is in it.
    joined: bool,
}

/// What came of a push.
pub(super) enum Push {
    /// The others have it.
    Done,
    /// They had it before.
    Nothing,
    /// Somebody else was faster.
    Outrun,
    /// It was not pushed, and why.
    No(String),
}

/// Makes the commit that brings the file into the branch, and the others' commits if they touch nothing
/// else. If they touch more, the branch here is left to the user, who will pull: a commit of ours would
/// make it diverge.
pub(super) fn plan(
    git: &Git<'_>,
    repository: &Repository,
    sides: &Sides,
    blob: &Oid,
) -> Result<Plan, Trouble> {
    let path = &repository.path;
    let make =
        |tree: Option<&Oid>, parents: &[&Oid]| git.commit(tree, path, blob, parents, SUBJECT);
    let base = match (&sides.head, &sides.tip) {
        (Some(head), Some(tip)) => git.base(head, tip)?,
        _ => None,
    };
    let base = base.as_ref();
    let (target, joined) = match (&sides.head, &sides.tip) {
        (_, Some(tip)) if base != Some(tip) && git.others(base, tip, path)? > 0 => (None, false),
        (head, Some(tip)) if base != Some(tip) => match head {
            Some(head) if base != Some(head) => {
                if is_ours(git, base, head, path)? {
                    (Some(make(Some(tip), &[head, tip])?), true)
                } else {
                    (Some(alone(sides, head, blob, make)?), false)
                }
            }
            _ if sides.tip_blob.as_ref() == Some(blob) => (Some(tip.clone()), true),
            _ => (Some(make(Some(tip), &[tip])?), true),
        },
        (Some(head), _) => (Some(alone(sides, head, blob, make)?), true),
        (None, _) => (Some(make(None, &[])?), true),
    };
    Ok(Plan { target, joined })
}

/// The branch with the file, and nothing of the others.
fn alone(
    sides: &Sides,
    head: &Oid,
    blob: &Oid,
    make: impl Fn(Option<&Oid>, &[&Oid]) -> Result<Oid, Trouble>,
) -> Result<Oid, Trouble> {
    if sides.head_blob.as_ref() == Some(blob) {
        return Ok(head.clone());
    }
    make(Some(head), &[head])
}

/// Whether syncs alone made what lies between two commits.
fn is_ours(git: &Git<'_>, base: Option<&Oid>, tip: &Oid, path: &str) -> Result<bool, Trouble> {
    Ok(git.others(base, tip, path)? == 0 && git.by_hand(base, tip, SUBJECT)? == 0)
}

/// Hands the file to the others: with the branch, if nothing else would go with it.
pub(super) fn push(
    git: &Git<'_>,
    repository: &Repository,
    upstream: &Upstream,
    sides: &Sides,
    plan: &Plan,
    blob: &Oid,
) -> Result<Push, Trouble> {
    let path = &repository.path;
    let tip = sides.tip.as_ref();
    let ours = match &plan.target {
        Some(head) if plan.joined && is_ours(git, tip, head, path)? => Some(head),
        _ => None,
    };
    let target = if let Some(head) = ours {
        head.clone()
    } else if let Some(tip) = tip {
        if sides.tip_blob.as_ref() == Some(blob) {
            return Ok(Push::Nothing);
        }
        git.commit(Some(tip), path, blob, &[tip], SUBJECT)?
    } else {
        return Ok(Push::No(format!(
            "{} has no branch {} yet, and pushing it would publish commits of yours: git push it once yourself; \
             {TASKS} is committed here",
            upstream.remote,
            short(&upstream.branch)
        )));
    };
    if Some(&target) == tip {
        return Ok(Push::Nothing);
    }
    let refspec = format!("{target}:{}", upstream.branch);
    let output = git.call(&[
        "push",
        "--quiet",
        "--no-verify",
        // Whatever the settings say: nothing is signed, and no tag or submodule goes with it.
        "--no-signed",
        "--no-follow-tags",
        "--recurse-submodules=no",
        "--end-of-options",
        &upstream.remote,
        &refspec,
    ]);
    let output = match output {
        Ok(output) => output,
        Err(Trouble::TimedOut) => {
            return Ok(Push::No(refused(upstream, &Trouble::TimedOut.to_string())));
        }
        Err(other) => return Err(other),
    };
    if output.status.success() {
        return Ok(Push::Done);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let outrun = [
        "[rejected]",
        "cannot lock ref",
        "failed to update ref",
        "reference already exists",
    ];
    if outrun.iter().any(|words| said.contains(words)) {
        return Ok(Push::Outrun);
    }
    let rejected = said.lines().find(|line| line.contains("[remote rejected]"));
    let why = rejected.map_or_else(|| words(&output.stderr), |line| line.trim().to_owned());
    Ok(Push::No(refused(upstream, &why)))
}

fn refused(upstream: &Upstream, why: &str) -> String {
    format!(
        "{} did not take it ({why}); what is new is kept here",
        upstream.name()
    )
}
