//! `tenure reservations` and `tenure check`: who has reserved what, and whether a file may be written.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use tenure::files::{Reservations, Target};
use tenure::store::{Holder, Lease, Presence, Waiter};
use tenure::wire::{CheckJson, CheckedPathJson, ErrorCode, ReservationJson, ReservationsJson};
use tenure_files::ruling::Ruling;

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::paths::Check;
use crate::commands::ask;
use crate::commands::reserve::{in_the_way, work_tree};
use crate::context;
use crate::table::Table;
use crate::words;

/// How many paths are printed that may not be written. JSON has all of them.
const SHOWN: usize = 20;

pub(crate) fn reservations(global: &Global) -> Result<Answer, Failure> {
    let Some(tenure) = context::open_to_read(global, tenure::Tenure::open_read_only)? else {
        return Ok(Answer::new(
            ReservationsJson::default(),
            "Nothing is reserved.",
        ));
    };
    let reservations = tenure.reservations()?;
    let now = reservations.now();
    let leases: Vec<&Lease> = reservations.standing().collect();
    let asked = ask::requests(&tenure, leases.iter().copied())?;
    let data = ReservationsJson {
        reservations: leases
            .iter()
            .map(|lease| ReservationJson::new(now, lease))
            .collect(),
        waiting: reservations.waiters().iter().map(Into::into).collect(),
        asked: asked.iter().map(Into::into).collect(),
    };
    let mut table = Table::new(&["PATHS", "HOLDER", "MODE", "SINCE", "REMAINING", "DETAIL"]);
    for lease in &leases {
        let (paths, mode) = match lease.mode.paths() {
            Some(paths) if paths.is_shared() => (paths.to_string(), "shared"),
            Some(paths) => (paths.to_string(), "write"),
            None => ("everything".to_owned(), "write"),
        };
        let left = lease.remaining(now);
        table.row([
            paths,
            lease.holder.id.to_string(),
            mode.to_owned(),
            words::ago_if_known(now, lease.since()),
            left.map_or_else(|| "-".to_owned(), words::elapsed),
            lease.holder.command.clone().unwrap_or_default(),
        ]);
    }
    let mut lines = if leases.is_empty() {
        vec!["Nothing is reserved.".to_owned()]
    } else {
        vec![table.text()]
    };
    let here = |waiter: &&Waiter| waiter.presence == Presence::Here;
    for waiter in reservations.waiters().iter().filter(here) {
        let paths = words::asked_mode(&waiter.mode);
        lines.push(format!("{} waits for {paths}", waiter.holder.id));
    }
    let told = asked.iter();
    lines.extend(told.map(|event| ask::told_with_paths(event, &leases)));
    Ok(Answer::new(data, lines.join("\n")))
}

/// The reservations that these files and folders are in; `None` if there is no store yet.
fn read(global: &Global, targets: &[Target]) -> Result<Option<Reservations>, Failure> {
    match context::open_to_read(global, tenure::Tenure::open_to_look)? {
        Some(tenure) => Ok(Some(tenure.reservations_of(targets)?)),
        None => Ok(None),
    }
}

pub(crate) fn check(global: &Global, check: &Check) -> Result<Answer, Failure> {
    let tree = work_tree(global)?;
    let mut given = check.paths.clone();
    if check.stdin {
        given.extend(from_stdin(check.nul)?);
    }
    let mut targets = Vec::new();
    for path in &given {
        targets.push(tree.target(Path::new(path))?);
    }
    let me = context::caller(global)?;
    let project = context::project_of(global)?;
    let require = context::config(project.as_ref())?.guard.require;
    let reservations = read(global, &targets)?;
    let is_ours = |holder: &Holder| holder.id == me;
    let rule = |target| {
        let reservations = reservations.as_ref();
        reservations.map(|it| (it.now(), Ruling::on(it, target, is_ours)))
    };
    let ruled: Vec<_> = targets
        .iter()
        .map(|target| (target.name(), rule(target)))
        .collect();
    let is_own = |ruling: &Option<(_, Ruling<'_>)>| {
        let ruling = ruling.as_ref();
        ruling.is_some_and(|(_, it)| it.own.is_some())
    };
    let unreserved = ruled.iter().filter(|(_, it)| require && !is_own(it));
    let unreserved: Vec<String> = unreserved.map(|(name, _)| (*name).to_owned()).collect();
    let mut refused = Vec::new();
    let mut lines = Vec::new();
    for (name, ruling) in &ruled {
        let Some((now, ruling)) = ruling else {
            break;
        };
        for lease in &ruling.against {
            refused.push(CheckedPathJson {
                path: (*name).to_owned(),
                reservation: ReservationJson::new(now, lease),
            });
            if lines.len() < SHOWN {
                lines.push(in_the_way(now, name, lease));
            }
        }
    }
    let number = refused.len();
    let data = CheckJson {
        holder: me.clone(),
        checked: targets.len(),
        refused,
        unreserved,
    };
    if number == 0 && !data.unreserved.is_empty() {
        let shown = data.unreserved.iter().take(SHOWN);
        let mut lines: Vec<String> = shown
            .map(|path| format!("{path} is not reserved by you, and guard.require is on"))
            .collect();
        if data.unreserved.len() > lines.len() {
            lines.push(format!(
                "and {} more: see --json",
                data.unreserved.len() - lines.len()
            ));
        }
        return Err(Failure::new(ErrorCode::PermissionDenied, lines.join("\n"))
            .hint("to reserve it: tenure reserve PATH")
            .details(data));
    }
    if number == 0 {
        let text = match ruled.as_slice() {
            _ if global.quiet => String::new(),
            [(name, ruling)] if is_own(ruling) => format!("you have reserved {name}"),
            [(name, _)] => format!("{name} is free: nobody has reserved it"),
            many => format!("all {} paths are free, or reserved by you", many.len()),
        };
        return Ok(Answer::new(data, text));
    }
    if number > lines.len() {
        lines.push(format!("and {} more: see --json", number - lines.len()));
    }
    Err(Failure::new(ErrorCode::Locked, lines.join("\n"))
        .hint("to wait for it: tenure reserve PATH --wait 10m; to ask for it: tenure ask PATH")
        .details(data))
}

fn from_stdin(nul: bool) -> Result<Vec<OsString>, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    let end = if nul { 0 } else { b'\n' };
    let parts = bytes.split(|byte| *byte == end);
    let parts = parts.filter(|part| !part.is_empty());
    Ok(parts
        .map(|part| OsString::from_vec(part.to_vec()))
        .collect())
}
