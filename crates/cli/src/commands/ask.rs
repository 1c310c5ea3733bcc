//! `tenure ask`: ask a holder to release a key.

use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde_json::json;
use tenure::Tenure;
use tenure::files::{BadPath, Target, WorkTree};
use tenure::store::{Event, HolderId, Key, Lease, StoreError, Token, call_deadline};
use tenure::text::flat;
use tenure::wire::{AskedJson, ErrorCode, GrantJson, RequestJson};
use tenure_host::files::{atomic, beneath};

use crate::answer::{Answer, Failure, complain, remark, report_event, to_value};
use crate::args::{Global, Request};
use crate::commands::release::not_held;
use crate::context;
use crate::words;

/// The longest note.
const LONGEST: usize = 1000;

pub(crate) fn ask(global: &Global, request: &Request) -> Result<Answer, Failure> {
    let note = request.note.as_deref();
    if note.is_some_and(|note| note.chars().count() > LONGEST) {
        let message = format!("--note is longer than {LONGEST} characters: say it shorter");
        return Err(Failure::new(ErrorCode::Usage, message));
    }
    if note.is_some_and(|note| note.contains(char::is_control)) {
        let message =
            "--note has a control character, such as a line break: use visible characters";
        return Err(Failure::new(ErrorCode::Usage, message));
    }
    let of = request.of.as_deref().map(HolderId::parse).transpose()?;
    let tenure = context::open_existing_for_locks(global)?;
    let asker = context::caller(global)?;
    let (key, leases) = wanted(&tenure, &request.what)?;
    if leases.is_empty() {
        return Err(not_held(&key, global.store.as_deref()));
    }
    let tokens: Vec<Token> = leases
        .iter()
        .filter(|lease| of.as_ref().is_none_or(|of| lease.holder.id == *of))
        .map(|lease| lease.token)
        .collect();
    let asked = tenure
        .store()
        .ask(&key, Some(&tokens), &asker, note, call_deadline())?;
    let now = tenure.clock().now();
    if asked.is_empty() {
        let holders = words::holders(&now, &leases);
        let message = format!("no other holder to ask: {holders}, and you are {asker}");
        return Err(Failure::new(ErrorCode::PermissionDenied, message));
    }
    let lines: Vec<String> = asked
        .iter()
        .map(|lease| {
            let held = words::held(&now, lease);
            format!(
                "asked {held} to release {} (token {})",
                request.what, lease.token
            )
        })
        .collect();
    let grants: Vec<GrantJson> = asked
        .iter()
        .map(|lease| GrantJson::new(&now, lease))
        .collect();
    let text = if global.quiet {
        String::new()
    } else {
        lines.join("\n")
    };
    let data = AskedJson {
        key,
        by: asker,
        note: note.map(str::to_owned),
        asked: grants,
    };
    Ok(Answer::new(data, text))
}

/// What is asked for: the leases of a key, or else the reservations that cover a path.
fn wanted(tenure: &Tenure, what: &str) -> Result<(Key, Vec<Lease>), Failure> {
    let held = |key: &Key| -> Result<Vec<Lease>, Failure> {
        let leases = tenure.store().inspect(key, call_deadline())?.leases;
        let live = leases
            .into_iter()
            .filter(|(_, verdict)| verdict.ended().is_none());
        Ok(live.map(|(lease, _)| lease).collect())
    };
    let paths = Key::paths();
    let key = Key::parse(what);
    if let Ok(key) = &key {
        let leases = held(key)?;
        if !leases.is_empty() {
            return Ok((key.clone(), leases));
        }
    }
    let target = target(what)?;
    let covers = |lease: &Lease| {
        let target = target.as_ref();
        target.is_some_and(|target| target.is_reserved_by(&lease.mode))
    };
    let mut leases = if tenure.store().capabilities().modes {
        held(&paths)?
    } else {
        Vec::new()
    };
    leases.retain(covers);
    if leases.is_empty() {
        return Ok((key?, leases));
    }
    Ok((paths, leases))
}

/// The file or folder that a caller named, if it is in a work tree.
pub(crate) fn target(path: &str) -> Result<Option<Target>, Failure> {
    let project = context::find_project()?;
    let tree = WorkTree::find(&context::start()?, project.as_ref())?;
    match tree.map(|tree| tree.target(Path::new(path))) {
        Some(Ok(target)) => Ok(Some(target)),
        Some(Err(error @ BadPath::Io { .. })) => Err(error.into()),
        // What can't be a path of the work tree may be a key.
        Some(Err(_)) | None => Ok(None),
    }
}

/// What the holders of these leases are asked.
pub(crate) fn requests<'a>(
    tenure: &Tenure,
    leases: impl IntoIterator<Item = &'a Lease>,
) -> Result<Vec<Event>, StoreError> {
    tenure::store::requests(&**tenure.store(), leases, call_deadline())
}

/// The same after a change. That it can't be read is said, but the change was made.
pub(crate) fn requests_afterwards<'a>(
    tenure: &Tenure,
    leases: impl IntoIterator<Item = &'a Lease>,
) -> Vec<Event> {
    requests(tenure, leases).unwrap_or_else(|error| {
        complain(&format!(
            "the requests to release it can't be read: {error}"
        ));
        Vec::new()
    })
}

/// A request, for its holder to read.
pub(crate) fn told(event: &Event) -> String {
    asks(event, &format!("for {}", event.key))
}

fn asks(event: &Event, what: &str) -> String {
    let note = event.reason.as_deref();
    let note = note.map_or_else(String::new, |note| format!(": {}", flat(note)));
    format!("{} asks {what}{note}", event.holder)
}

/// The same, with the paths of the reservation that is asked for.
pub(crate) fn told_with_paths(event: &Event, leases: &[&Lease]) -> String {
    let asked = leases.iter().find(|lease| lease.token == event.token);
    let Some(lease) = asked.filter(|lease| lease.mode.paths().is_some()) else {
        return told(event);
    };
    let (holder, paths) = (&lease.holder.id, words::asked_mode(&lease.mode));
    asks(event, &format!("{holder} for {paths}"))
}

/// The file in which a running command finds what it is asked. It does not exist before the first request.
///
/// It is beside the store, and has the name of this process's liveness lock. So no other process can take its name
/// first, and what a killed process leaves behind is removed with its lock.
pub(crate) struct AskedFile(Option<PathBuf>);

impl AskedFile {
    /// That of the command which runs under a lease of this process.
    pub(crate) fn new(tenure: &Tenure) -> Self {
        Self(tenure.asked_file())
    }

    /// The variable that names it.
    pub(crate) fn variable(&self) -> Option<(&'static str, String)> {
        let path = self.0.as_ref()?;
        Some(("TENURE_ASKED", path.to_string_lossy().into_owned()))
    }

    /// What to do with a request: it is written to the file, one JSON object in each line, and reported.
    pub(crate) fn writer(&self, global: &Global) -> impl FnMut(Event) + Send + 'static + use<> {
        let (path, global) = (self.0.clone(), global.clone());
        let mut file = None;
        move |event| {
            let json = to_value(&RequestJson::from(&event));
            // A new file of our own, for nobody else to read.
            if file.is_none()
                && let Some(path) = &path
            {
                let how = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
                file = beneath::open(path, how, Mode::RUSR | Mode::WUSR).ok();
            }
            if let Some(file) = &mut file {
                let _ = file.write_all(format!("{json}\n").as_bytes());
            }
            if global.json {
                report_event(&json!({ "event": "asked", "request": json }));
            } else {
                remark(&global, &told(&event));
            }
        }
    }
}

impl Drop for AskedFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = atomic::unlink(path);
        }
    }
}
