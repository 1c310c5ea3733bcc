//! Committing the shared file to the local branch, and pushing it.

use super::git::{Git, GitError, Oid, words};
use super::repository::{Repository, Upstream, short};
use super::{SUBJECT, TASKS};

/// The local branch and the remote one, and the shared file in each.
pub(super) struct Branches {
    pub(super) head: Option<Oid>,
    pub(super) tip: Option<Oid>,
    pub(super) head_blob: Option<Oid>,
    pub(super) tip_blob: Option<Oid>,
}

/// Where the local branch should go.
pub(super) struct Plan {
    /// The commit, with the file in it; `None` if the branch stays where it is.
    pub(super) target: Option<Oid>,
    /// Whether it includes the remote branch.
    joined: bool,
}

/// The result of a push.
pub(super) enum Push {
    /// The remote has the file now.
    Pushed,
    /// The remote had it before.
    Unneeded,
    /// The remote branch moved meanwhile.
    Outdated,
    /// It was not pushed, and why.
    Refused(String),
}

/// Makes the commit that brings the file into the local branch, together with the remote commits if they
/// touch nothing else. If they do, the local branch is left to the user, who will pull: a commit here would
/// make it diverge.
pub(super) fn plan(
    git: &Git<'_>,
    repository: &Repository,
    branches: &Branches,
    blob: &Oid,
) -> Result<Plan, GitError> {
    let path = &repository.path;
    let make =
        |tree: Option<&Oid>, parents: &[&Oid]| git.commit(tree, path, blob, parents, SUBJECT);
    let base = match (&branches.head, &branches.tip) {
        (Some(head), Some(tip)) => git.base(head, tip)?,
        _ => None,
    };
    let base = base.as_ref();
    let (target, joined) = match (&branches.head, &branches.tip) {
        (_, Some(tip)) if base != Some(tip) && git.others(base, tip, path)? > 0 => (None, false),
        (head, Some(tip)) if base != Some(tip) => match head {
            Some(head) if base != Some(head) => {
                if is_ours(git, base, head, path)? {
                    (Some(make(Some(tip), &[head, tip])?), true)
                } else {
                    (Some(alone(branches, head, blob, make)?), false)
                }
            }
            _ if branches.tip_blob.as_ref() == Some(blob) => (Some(tip.clone()), true),
            _ => (Some(make(Some(tip), &[tip])?), true),
        },
        (Some(head), _) => (Some(alone(branches, head, blob, make)?), true),
        (None, _) => (Some(make(None, &[])?), true),
    };
    Ok(Plan { target, joined })
}

/// The local branch with the file, without the remote commits.
fn alone(
    branches: &Branches,
    head: &Oid,
    blob: &Oid,
    make: impl Fn(Option<&Oid>, &[&Oid]) -> Result<Oid, GitError>,
) -> Result<Oid, GitError> {
    if branches.head_blob.as_ref() == Some(blob) {
        return Ok(head.clone());
    }
    make(Some(head), &[head])
}

/// Whether only syncs made the commits between two.
fn is_ours(git: &Git<'_>, base: Option<&Oid>, tip: &Oid, path: &str) -> Result<bool, GitError> {
    Ok(git.others(base, tip, path)? == 0 && git.by_hand(base, tip, SUBJECT)? == 0)
}

/// Pushes the file: with the local branch, if that publishes nothing else.
pub(super) fn push(
    git: &Git<'_>,
    repository: &Repository,
    upstream: &Upstream,
    branches: &Branches,
    plan: &Plan,
    blob: &Oid,
) -> Result<Push, GitError> {
    let path = &repository.path;
    let tip = branches.tip.as_ref();
    let ours = match &plan.target {
        Some(head) if plan.joined && is_ours(git, tip, head, path)? => Some(head),
        _ => None,
    };
    let target = if let Some(head) = ours {
        head.clone()
    } else if let Some(tip) = tip {
        if branches.tip_blob.as_ref() == Some(blob) {
            return Ok(Push::Unneeded);
        }
        git.commit(Some(tip), path, blob, &[tip], SUBJECT)?
    } else {
        return Ok(Push::Refused(format!(
            "{} has no branch {} yet, and pushing it would publish commits of yours: git push it once yourself; \
             {TASKS} is committed here",
            upstream.remote,
            short(&upstream.branch)
        )));
    };
    if Some(&target) == tip {
        return Ok(Push::Unneeded);
    }
    let refspec = format!("{target}:{}", upstream.branch);
    let output = git.call_remote(&[
        "push",
        "--quiet",
        "--no-verify",
        // Whatever the settings say: nothing is signed, and no tag or submodule is pushed.
        "--no-signed",
        "--no-follow-tags",
        "--recurse-submodules=no",
        "--end-of-options",
        &upstream.remote,
        &refspec,
    ]);
    let output = match output {
        Ok(output) => output,
        Err(GitError::TimedOut) => {
            return Ok(Push::Refused(refused(
                upstream,
                &GitError::TimedOut.to_string(),
            )));
        }
        Err(other) => return Err(other),
    };
    if output.status.success() {
        return Ok(Push::Pushed);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let outdated = [
        "[rejected]",
        "cannot lock ref",
        "failed to update ref",
        "reference already exists",
    ];
    if outdated.iter().any(|words| said.contains(words)) {
        return Ok(Push::Outdated);
    }
    let rejected = said.lines().find(|line| line.contains("[remote rejected]"));
    let why = rejected.map_or_else(|| words(&output.stderr), |line| line.trim().to_owned());
    Ok(Push::Refused(refused(upstream, &why)))
}

fn refused(upstream: &Upstream, why: &str) -> String {
    format!(
        "{} did not accept the push ({why}); new changes stay here until the next sync",
        upstream.name()
    )
}
