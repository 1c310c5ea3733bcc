//! Why a commit or a push is refused, in words.

use tenure::Mode;
use tenure::files::PathPattern;
use tenure::store::Lease;
use tenure::text::{flat, plural, visible};
use tenure::wire::{ErrorCode, GuardProblemJson, GuardRefusedJson};
use tenure_files::guard::judge::Objection;
use tenure_files::guard::push::Refused;
use tenure_files::guard::records::CommitRecord;
use tenure_files::guard::run::{GitChange, Refusal};
use tenure_files::guard::scene::Scene;

use crate::answer::Failure;
use crate::words;

/// How many paths a message names.
const SHOWN: usize = 8;

/// What a reservation without patterns covers.
const ALL: &str = "all paths";

/// Why git may not go on.
pub(super) fn refused(scene: &Scene, refusal: &Refusal) -> Failure {
    match refusal {
        Refusal::Paths(change, problems) => judged(scene, *change, problems),
        Refusal::Commits {
            refused,
            has_merges,
            parent,
        } => pushed(scene, refused, *has_merges, parent),
    }
}

/// Why these paths may not be changed.
fn judged(scene: &Scene, change: GitChange, problems: &[(String, Objection)]) -> Failure {
    let what = match change {
        GitChange::Commit => "commit",
        GitChange::Merge => "merge",
        GitChange::Branch => "change of a branch",
        GitChange::Push => "push",
    };
    let is_held = problems
        .iter()
        .any(|(_, problem)| matches!(problem, Objection::Held(_)));
    let first = problems.first().map_or("", |(first, _)| first);
    let (reserve, git) = typed(scene, first);
    let now = scene.tenure.clock().now();
    let lines = problems.iter().map(|(path, problem)| match problem {
        Objection::Held(lease) => format!(
            "{}: {} {} {} {}{}",
            shown(path),
            lease.holder.id,
            has(lease),
            pattern(&lease.mode, path),
            words::lasts(&now, lease),
            why(lease)
        ),
        Objection::NotReserved => format!("{}: not reserved by you", shown(path)),
    });
    let lines = shortened(lines.collect());
    let details = problems.iter().map(|(path, problem)| {
        let held = match problem {
            Objection::Held(lease) => Some(lease),
            Objection::NotReserved => None,
        };
        GuardProblemJson {
            path: path.clone(),
            commit: None,
            holder: held.map(|lease| lease.holder.id.to_string()),
            pattern: held.map(|lease| pattern(&lease.mode, path)),
            token: held.map(|lease| lease.token.0),
            expires_at: held.and_then(|lease| Some(lease.expires.as_ref()?.shown(&now).into())),
        }
    });
    let details = GuardRefusedJson {
        problems: details.collect(),
    };
    let failure = if is_held {
        let message = format!("this {what} changes what other holders have reserved:\n{lines}");
        Failure::new(ErrorCode::Locked, message).hint(format!(
            "wait until it is free and reserve it: tenure reserve {reserve}"
        ))
    } else {
        let message = format!(
            "this {what} changes what you have not reserved, and guard.require is on:\n{lines}"
        );
        Failure::new(ErrorCode::PermissionDenied, message)
            .hint(format!("reserve it: tenure reserve {reserve}"))
    };
    let failure = match change {
        GitChange::Commit => failure.hint(format!("leave it out: git restore --staged -- {git}")),
        GitChange::Merge => failure.hint("end the merge: git merge --abort"),
        GitChange::Branch | GitChange::Push => failure,
    };
    failure.hint(who(scene)).details(details)
}

/// A path in a line of a message.
fn shown(path: &str) -> String {
    if visible(path) == path && !path.contains('\n') {
        return path.to_owned();
    }
    words::quoted(path)
}

/// What the person who runs git types for a path, as a pattern to reserve and as a path for git. Git runs hooks at the top
/// of the work tree, wherever that person is.
fn typed(scene: &Scene, path: &str) -> (String, String) {
    let path = scene.reserved.in_repository(path);
    let prefix = std::env::var("GIT_PREFIX").unwrap_or_default();
    let up = "../".repeat(prefix.split('/').filter(|part| !part.is_empty()).count());
    let typed = match path.strip_prefix(prefix.as_str()) {
        Some(below) => below.to_owned(),
        None => format!("{up}{path}"),
    };
    let pattern = PathPattern::escaped(&typed);
    (words::quoted(&pattern), words::quoted(&typed))
}

/// What a reservation is for, in parentheses.
fn why(lease: &Lease) -> String {
    let why = lease.holder.command.as_deref();
    why.map_or_else(String::new, |why| format!(" ({})", flat(why)))
}

/// Who the caller is taken for.
fn who(scene: &Scene) -> String {
    match scene.me.names() {
        [name, ..] if !scene.me.is_shell() => format!("you are {name}"),
        _ => "git can't tell which agent you are: if one of these holders is you, set TENURE_HOLDER for git"
            .to_owned(),
    }
}

fn has(lease: &Lease) -> &'static str {
    match lease.mode.paths() {
        Some(paths) if paths.is_shared() => "reads",
        _ => "has",
    }
}

/// The pattern of a reservation that covers a path.
fn pattern(mode: &Mode, path: &str) -> String {
    let pattern = mode.paths().and_then(|paths| paths.covers(path));
    pattern.map_or(ALL, PathPattern::as_str).to_owned()
}

/// The first lines, and how many more there are.
fn shortened(mut lines: Vec<String>) -> String {
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    if more > 0 {
        lines.push(format!("and {} more", plural::count(more, "path")));
    }
    format!("  {}", lines.join("\n  "))
}

/// That a commit was made against a reservation.
pub(super) fn against(record: &CommitRecord) -> String {
    let each = record.against.iter().map(|held| {
        let paths = held.mode.paths().map(ToString::to_string);
        format!("{} has {}", held.holder, paths.unwrap_or(ALL.to_owned()))
    });
    let each = each.collect::<Vec<_>>().join("; ");
    format!(
        "commit {} changes what other holders have reserved, which is recorded, and it can't be pushed: {each}",
        short(&record.commit)
    )
}

/// That commits were made while no hook ran.
pub(super) fn unseen(commits: &[String]) -> String {
    let ids = commits.iter().take(SHOWN).map(|commit| short(commit));
    let ids = ids.collect::<Vec<_>>().join(", ");
    let were = match commits.len() {
        1 => "1 commit was".to_owned(),
        many => format!("{many} commits were"),
    };
    format!("{were} made without the guard, which is recorded: {ids}")
}

/// Why a push is refused: `refused` is in the order of the commits, the newest first.
fn pushed(scene: &Scene, refused: &[Refused], has_merges: bool, parent: &str) -> Failure {
    let lines = refused.iter().map(|it| {
        format!(
            "{}: {} had {} when commit {} was made (token {})",
            shown(&it.path),
            it.held.holder,
            pattern(&it.held.mode, &it.path),
            short(&it.record.commit),
            it.held.token
        )
    });
    let lines = shortened(lines.collect());
    let problems = refused.iter().map(|it| GuardProblemJson {
        path: it.path.clone(),
        commit: Some(it.record.commit.clone()),
        holder: Some(it.held.holder.to_string()),
        pattern: Some(pattern(&it.held.mode, &it.path)),
        token: Some(it.held.token),
        expires_at: None,
    });
    let details = GuardRefusedJson {
        problems: problems.collect(),
    };
    let mut paths: Vec<String> = Vec::new();
    for it in refused {
        let path = typed(scene, &it.path).0;
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let message = format!(
        "this push has commits that were made while other holders had reserved what they change:\n{lines}"
    );
    let merges = if has_merges { " --rebase-merges" } else { "" };
    Failure::new(ErrorCode::Locked, message)
        .hint(format!(
            "reserve it, which waits until it is free: tenure reserve {}",
            paths.join(" ")
        ))
        .hint(format!(
            "then make the commits again, on the branch that you push, and push: git rebase --no-ff{merges} {parent}"
        ))
        .hint(who(scene))
        .details(details)
}

/// The first characters of a commit's id.
fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}
