//! `tenure exclusive`: the lock file that makes daemons skip a database.

use std::path::{Path, PathBuf};

use serde_json::json;
use tenure::ask::Tie;
use tenure::project::FOLDER;
use tenure::protocols::exclusive::{Check, should_skip_database};
use tenure::store::{HolderId, Key, Lease, Token, Verdict, call_deadline};
use tenure::wire::{ErrorCode, ExclusiveAcquiredJson, ExclusiveReleasedJson, LockJson};
use tenure::{Ask, StoreUrl, Tenure};
use tenure_host::caller::{self, Caller};

use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::exclusive::{Acquire, Exclusive, Place, Run, Who};
use crate::commands::release::{not_held, release_grant};
use crate::commands::run;
use crate::context;
use crate::program::Program;
use crate::signals::Signals;
use crate::waiting;
use crate::words;

/// The only key.
const KEY: &str = "database";

/// The name of the lock file.
const LOCK_FILE: &str = ".exclusive-lock";

pub(crate) fn exclusive(global: &Global, exclusive: Exclusive) -> Result<Answer, Failure> {
    match exclusive {
        Exclusive::Acquire(asked) => acquire(global, &asked),
        Exclusive::Release { holder, place } => release(global, holder, &where_held(place)?),
        Exclusive::Status { place } => {
            let place = where_held(place)?;
            status(&open(global, &place, None)?, &folder(&place)?)
        }
        Exclusive::Run(asked) => run_under(global, &asked),
    }
}

/// The folder of the lock: `--dir`; in a project, `.beads` if it exists and otherwise `.tenure`; without a
/// project, the nearest `.beads`. The daemon of `.beads` looks at no other folder, and ours looks at both.
fn folder(place: &Place) -> Result<PathBuf, Failure> {
    let start = context::start()?;
    if let Some(dir) = &place.folder {
        return Ok(start.join(dir));
    }
    if let Some(project) = context::find_project()? {
        let [own, beads] = project.exclusive_lock_folders();
        return Ok(if beads.is_dir() { beads } else { own });
    }
    let beads = |root: &Path| root.join(".beads");
    let found = start.ancestors().map(beads).find(|beads| beads.is_dir());
    found.ok_or_else(|| {
        let message = format!(
            "no {FOLDER} and no .beads in {} or any folder above it: run tenure init, or name the folder with --dir",
            start.display()
        );
        Failure::new(ErrorCode::NotInitialised, message)
    })
}

/// The folder in which the project's lock is held, for a command that names none.
fn where_held(place: Place) -> Result<Place, Failure> {
    let folders = context::find_project()?.map(|project| project.exclusive_lock_folders());
    let is_held = |dir: &PathBuf| dir.join(LOCK_FILE).symlink_metadata().is_ok();
    let held = folders.into_iter().flatten().rev().find(is_held);
    Ok(Place {
        folder: place.folder.or(held),
    })
}

/// Refuses to take the lock in one folder of the project while another program holds it in the other.
fn refuse_second(place: &Place) -> Result<(), Failure> {
    let project = context::find_project()?;
    let Some(project) = project.filter(|_| place.folder.is_none()) else {
        return Ok(());
    };
    let ours = folder(place)?;
    for other in project.exclusive_lock_folders() {
        // Not ours: the check removes a stale lock, and the claim swaps it for its own instead.
        if other == ours {
            continue;
        }
        let check = should_skip_database(&other);
        if !check.skips() {
            continue;
        }
        let by = match &check {
            Check::CheckFailed { reason } => format!("can't be checked: {reason}"),
            _ => match check.holder() {
                Some(holder) => format!("is held by {holder}"),
                None => "is held".to_owned(),
            },
        };
        let dir = words::quoted_bytes(other.as_os_str());
        let message = format!(
            "the project's other exclusive lock {} {by}\n  to look: tenure exclusive status --dir {dir}",
            other.join(LOCK_FILE).display()
        );
        return Err(Failure::new(ErrorCode::Locked, message));
    }
    Ok(())
}

fn open(global: &Global, place: &Place, version: Option<&str>) -> Result<Tenure, Failure> {
    let why = "tenure exclusive has its own store: name its folder with --dir";
    context::refuse_option(global, why)?;
    let project = context::find_project()?;
    let config = context::config(project.as_ref())?;
    Ok(Tenure::open_exclusive(&folder(place)?, version, config)?)
}

/// The name that the lock is held under.
fn name<'a>(global: &'a Global, who: &'a Who) -> Result<&'a str, Failure> {
    let name = who.tool.as_deref().or(global.holder.as_deref());
    name.ok_or_else(|| {
        let message = "the lock file names its holder: give --holder NAME, or --as NAME";
        Failure::new(ErrorCode::Usage, message)
    })
}

fn ask<'a>(global: &Global, tenure: &'a Tenure, who: &Who) -> Result<Ask<'a>, Failure> {
    let ask = tenure
        .ask(KEY)?
        .named(name(global, who)?)?
        .within(tenure.parent_leases());
    Ok(match who.wait {
        Some(limit) if !limit.is_zero() => waiting::wait_for(ask, limit),
        _ => ask,
    })
}

fn acquire(global: &Global, asked: &Acquire) -> Result<Answer, Failure> {
    refuse_second(&asked.who.place)?;
    let tenure = open(global, &asked.who.place, asked.who.version.as_deref())?;
    let pid = match asked.pid {
        Some(pid) => pid,
        None => calling_process()?,
    };
    let ask = ask(global, &tenure, &asked.who)?.tied_to(Tie::Process(pid));
    let mut signals = Signals::catch()?;
    let held = waiting::acquire(global, &tenure, KEY, ask, &mut signals)?;
    let lease = held.lease().clone();
    // As long as it is the parent, its pid is no other process's.
    if asked.pid.is_none() && caller::parent() != Some(pid) {
        let _freed = held.release()?;
        let message = format!(
            "the process that called tenure, pid {pid}, has ended: the exclusive lock was released again"
        );
        return Err(Failure::new(ErrorCode::NoProcess, message));
    }
    held.leave_standing();
    remark(
        global,
        &format!(
            "{} holds the exclusive lock until the process ends or calls: tenure exclusive release",
            lease.holder
        ),
    );
    let data = ExclusiveAcquiredJson::new(&lease, pid);
    Ok(Answer::confirmed(global, data, lease.token.to_string()))
}

/// The process that called tenure and is to hold the lock.
fn calling_process() -> Result<u32, Failure> {
    let why = match caller::calling_process() {
        Ok(Caller::Running(pid)) => return Ok(pid),
        Ok(Caller::Adopted(pid)) => format!(
            "the process that called tenure may have ended: its parent process is pid {pid}, which adopts orphans"
        ),
        Ok(Caller::OutsideContainer) => {
            "the process that called tenure runs outside of this container".to_owned()
        }
        Err(error) => format!("the process that called tenure can't be determined ({error})"),
    };
    let fix = "name the process that is to hold the lock with --pid, for example --pid $$ in a shell, or use tenure exclusive run";
    let message = format!("{why}\n  {fix}");
    Err(Failure::new(ErrorCode::NoProcess, message))
}

fn release(global: &Global, holder: Option<String>, place: &Place) -> Result<Answer, Failure> {
    let tenure = open(global, place, None)?;
    let key = Key::parse(KEY)?;
    let snapshot = tenure.store().inspect(&key, call_deadline())?;
    let Some((lease, _)) = snapshot.lease() else {
        let store = StoreUrl::Exclusive(folder(place)?).to_os_string();
        return Err(not_held(&key, Some(&store)));
    };
    let holder = holder.or(global.holder.clone());
    let named = holder.map(HolderId::parse).transpose()?;
    let pid = lease.holder.process().map(|process| process.pid);
    let is_callers = match &named {
        Some(named) => *named == lease.holder.id,
        None => pid == Some(context::shell()),
    };
    if !is_callers {
        let message = format!(
            "the exclusive lock is held by {}\n  name the holder with --holder if that is you",
            words::held(&tenure.clock().now(), lease)
        );
        let details = json!({ "lockedBy": lease.holder.id });
        return Err(Failure::new(ErrorCode::PermissionDenied, message).details(details));
    }
    if lease.token == Token::NONE {
        // Another program wrote the lock, so there is no grant. The caller is that process, or named it.
        let by = named.unwrap_or_else(|| lease.holder.id.clone());
        let why = Some("released by its own holder");
        let _forced = tenure
            .store()
            .force(&key, None, &by, why, call_deadline())?;
        return Ok(freed(global, lease));
    }
    Ok(freed(global, &release_grant(&tenure, &lease.grant())?))
}

fn freed(global: &Global, lease: &Lease) -> Answer {
    let data = ExclusiveReleasedJson {
        holder: lease.holder.id.clone(),
        released: true,
    };
    Answer::confirmed(global, data, "Released the exclusive lock.")
}

fn status(tenure: &Tenure, dir: &Path) -> Result<Answer, Failure> {
    let now = tenure.clock().now();
    let snapshot = tenure.store().inspect(&Key::parse(KEY)?, call_deadline())?;
    let data = LockJson::new(&now, &snapshot);
    let Some((lease, verdict)) = snapshot.lease() else {
        return Ok(Answer::new(data, "Free: the exclusive lock is not held."));
    };
    match verdict {
        Verdict::Dead(_) | Verdict::Expired(_) => {
            let text = format!("Stale: {} is {verdict}.", lease.holder);
            Ok(Answer::new(data, text))
        }
        Verdict::Malformed => {
            let why = match should_skip_database(dir) {
                Check::CheckFailed { reason } => reason,
                _ => "it has just changed".to_owned(),
            };
            let message = format!(
                "the lock file is malformed, so every daemon skips the database: {why}\n  correct or remove {}",
                dir.join(LOCK_FILE).display()
            );
            Err(Failure::new(ErrorCode::LockMalformed, message).details(data))
        }
        Verdict::Alive | Verdict::Unknown(_) => {
            let (holder, why) = (words::held(&now, lease), words::evidence(verdict));
            let message = format!("the exclusive lock is held by {holder} ({why})");
            Err(Failure::new(ErrorCode::Locked, message).details(data))
        }
    }
}

fn run_under(global: &Global, asked: &Run) -> Result<Answer, Failure> {
    let program = Program::find(
        &asked.command,
        "tenure exclusive run --holder me -- ./import.sh",
    )?;
    refuse_second(&asked.who.place)?;
    let tenure = open(global, &asked.who.place, asked.who.version.as_deref())?;
    let ask = ask(global, &tenure, &asked.who)?;
    // The command inherits the holder's name, so that tenure commands in it may use the lock.
    let global = Global {
        holder: Some(name(global, &asked.who)?.to_owned()),
        ..global.clone()
    };
    run::run_holding(&global, &tenure, KEY, ask, &program, &asked.running)
}
