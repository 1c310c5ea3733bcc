//! `tenure reserve`: reserve paths, extend reservations and give them back.

use std::ffi::OsString;

use serde_json::json;
use tenure::ask::Tie;
use tenure::files::{PathPattern, PathSet, WorkTree};
use tenure::store::{HolderId, Lease, Moment, Released, Renewed, call_deadline};
use tenure::wire::{AcquiredJson, ErrorCode, ExtendedJson, ReservationJson, UnreservedJson};
use tenure::{Busy, Mode, Tenure};
use tenure_files::agents::session;

use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::paths::{Reserve, Unreserve};
use crate::commands::acquire::hand_over;
use crate::commands::ask;
use crate::context;
use crate::signals::Signals;
use crate::waiting;
use crate::words;

pub(crate) fn reserve(global: &Global, reserve: &Reserve) -> Result<Answer, Failure> {
    if reserve.extend {
        return extend(global, reserve);
    }
    let paths = PathSet::new(patterns(global, &reserve.patterns)?)?;
    let paths = if reserve.shared {
        paths.shared()
    } else {
        paths
    };
    let mode = Mode::from(paths.clone());
    let tenure = context::open_for_locks(global)?;
    let me = context::caller(global)?;
    let ask = tenure.reserve(paths);
    let project = context::find_project().ok().flatten();
    let of_session = project.and_then(|project| session::begin_command(&project, &tenure, &me));
    // In the session of a coding agent, a reservation ends with the agent, and without --for also with its turn.
    let ask = match (reserve.pid, of_session) {
        (Some(pid), _) => ask.tied_to(Tie::Process(pid)),
        (None, Some(process)) => ask.tied_to(Tie::Process(process.pid)).ttl(session::TURN),
        (None, None) => ask.tied_to(Tie::Nothing),
    };
    let mut ask =
        waiting::complete(global, &tenure, ask, &reserve.request())?.named(me.as_str())?;
    if let Some(why) = &reserve.why {
        ask = ask.command(why.clone());
    }
    let mut signals = Signals::catch()?;
    let wanted = words::asked_mode(&mode);
    let guard = waiting::acquire_or(global, &tenure, &wanted, ask, &mut signals, |busy| {
        refusal(global, &tenure, &mode, busy)
    })?;
    let now = tenure.clock().now();
    let lease = guard.lease();
    let (lasts, paths) = (words::lasts(&now, lease), words::asked_mode(&lease.mode));
    remark(
        global,
        &format!(
            "{me} has reserved {paths} {lasts}; to give it back: tenure unreserve{}{}",
            words::named(global),
            words::in_store(global.store.as_deref())
        ),
    );
    let data = AcquiredJson::new(&now, lease, guard.reason());
    Ok(hand_over(&tenure, guard, data))
}

/// Why a reservation was not granted, with a path that it has in common with another one.
fn refusal(global: &Global, tenure: &Tenure, mode: &Mode, busy: &Busy) -> Failure {
    let wanted = words::asked_mode(mode);
    let look = format!(
        "tenure reservations{}",
        words::in_store(global.store.as_deref())
    );
    let (mut message, details) = waiting::busy_report(global, tenure, &wanted, busy, &look);
    let in_both = |lease: &Lease| mode.paths()?.conflict(lease.mode.paths()?);
    let in_both = busy.leases.iter().find_map(|(lease, _)| in_both(lease));
    if let Some(path) = in_both.filter(|path| *path != wanted) {
        message = format!("{message}\n  {wanted} includes {path}, for example");
    }
    Failure::new(ErrorCode::Locked, message).details(details)
}

/// The patterns of a command line, from the top of the work tree.
pub(crate) fn patterns(global: &Global, texts: &[OsString]) -> Result<Vec<PathPattern>, Failure> {
    let tree = work_tree(global)?;
    let mut patterns = Vec::new();
    for text in texts {
        patterns.extend(tree.patterns(text)?);
    }
    Ok(patterns)
}

/// The work tree that the command is in.
pub(crate) fn work_tree(global: &Global) -> Result<WorkTree, Failure> {
    let start = context::start()?;
    let project = match context::chosen_url(global)? {
        None => Some(context::existing_project(&start)?),
        Some(_) => context::project_of(global)?,
    };
    WorkTree::find(&start, project.as_ref())?.ok_or_else(|| {
        let message = format!(
            "{} is in no git repository and no project, so nothing says where paths begin: change to one",
            start.display()
        );
        Failure::new(ErrorCode::NotInitialised, message)
    })
}

/// The caller's reservations, each with those of its patterns that are among the given ones, or all of them.
fn mine(
    tenure: &Tenure,
    me: &HolderId,
    wanted: &[PathPattern],
) -> Result<Vec<(Lease, Vec<PathPattern>)>, Failure> {
    let reservations = tenure.reservations_by(me)?;
    let mut found = Vec::new();
    for lease in reservations.of(me) {
        let Some(paths) = lease.mode.paths() else {
            continue;
        };
        let named = paths.patterns().iter();
        let named = named.filter(|pattern| wanted.is_empty() || has(wanted, pattern));
        let named: Vec<PathPattern> = named.cloned().collect();
        if !named.is_empty() {
            found.push((lease.clone(), named));
        }
    }
    let is_found = |pattern: &PathPattern| found.iter().any(|(_, named)| has(named, pattern));
    let missing: Vec<String> = wanted
        .iter()
        .filter(|pattern| !is_found(pattern))
        .map(ToString::to_string)
        .collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        let message = format!(
            "{me} has not reserved {missing}: give the patterns as they were reserved; to see them: tenure reservations"
        );
        return Err(Failure::new(ErrorCode::LockNotFound, message)
            .details(json!({ "holder": me, "missing": missing })));
    }
    Ok(found)
}

/// Whether this pattern is among others. What was a file may be a folder by now, or nothing.
fn has(patterns: &[PathPattern], pattern: &PathPattern) -> bool {
    patterns.iter().any(|it| it.as_str() == pattern.as_str())
}

/// `tenure unreserve`: gives reservations back.
pub(crate) fn unreserve(global: &Global, unreserve: &Unreserve) -> Result<Answer, Failure> {
    let wanted = patterns(global, &unreserve.patterns)?;
    let tenure = context::open_existing_for_locks(global)?;
    let me = context::caller(global)?;
    let parts = mine(&tenure, &me, &wanted)?.into_iter();
    let parts: Vec<_> = parts.map(|(lease, named)| (lease.grant(), named)).collect();
    let answers = tenure.store().release_paths(&parts, call_deadline())?;
    // A reservation that ended meanwhile is given back already.
    let freed = parts.iter().zip(answers);
    let freed = freed.filter(|(_, answer)| matches!(answer, Released::Freed(_)));
    let released = freed.flat_map(|((_, named), _)| named);
    let released: Vec<String> = released.map(ToString::to_string).collect();
    let text = match released.as_slice() {
        _ if global.quiet => String::new(),
        [] => format!("{me} has reserved nothing."),
        some => format!("{me} gave back {}", some.join(", ")),
    };
    let data = UnreservedJson {
        holder: me,
        released,
    };
    Ok(Answer::new(data, text))
}

fn extend(global: &Global, reserve: &Reserve) -> Result<Answer, Failure> {
    let wanted = patterns(global, &reserve.patterns)?;
    let tenure = context::open_existing_for_locks(global)?;
    let me = context::caller(global)?;
    let mut extended: Vec<Lease> = Vec::new();
    for (lease, _) in mine(&tenure, &me, &wanted)? {
        let ttl = reserve.lasts().unwrap_or(lease.ttl);
        match tenure.store().renew(&lease.grant(), ttl, call_deadline())? {
            Renewed::Extended(lease) => extended.push(lease),
            Renewed::Lost(_) => {
                let paths = words::asked_mode(&lease.mode);
                let message = format!("the reservation of {paths} has ended: reserve it again");
                return Err(Failure::new(ErrorCode::LeaseLost, message)
                    .details(json!({ "holder": me, "token": lease.token })));
            }
        }
    }
    if extended.is_empty() {
        let message = format!("{me} has reserved nothing that could be extended");
        return Err(Failure::new(ErrorCode::LockNotFound, message).details(json!({ "holder": me })));
    }
    let now = tenure.clock().now();
    let line = |lease: &Lease| {
        let paths = words::asked_mode(&lease.mode);
        format!("{paths} is yours {}", words::lasts(&now, lease))
    };
    let asked = ask::requests_afterwards(&tenure, &extended);
    let leases: Vec<&Lease> = extended.iter().collect();
    let told = |event| ask::told_with_paths(event, &leases);
    let text = if global.quiet {
        String::new()
    } else {
        let lines = extended.iter().map(line).chain(asked.iter().map(told));
        lines.collect::<Vec<_>>().join("\n")
    };
    let data = ExtendedJson {
        extended: extended
            .iter()
            .map(|lease| ReservationJson::new(&now, lease))
            .collect(),
        asked: asked.iter().map(Into::into).collect(),
    };
    Ok(Answer::new(data, text))
}

/// Why a path can't be written: one reservation of another holder.
pub(crate) fn in_the_way(now: &Moment, path: &str, lease: &Lease) -> String {
    let paths = words::asked_mode(&lease.mode);
    let what = if paths == path {
        paths
    } else {
        format!("{path} (by {paths})")
    };
    words::reserved(now, &what, lease).join("\n")
}
