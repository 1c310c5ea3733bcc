//! `tenure ask`: ask a holder to release a key.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use tenure::wire::{ErrorCode, GrantJson, RequestJson};
use tenure::{Target, Tenure, WorkTree, call_deadline};
use tenure_core::{Event, HolderId, Key, Lease, Token};

use crate::answer::{Answer, Failure, remark, report_event, to_value};
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
        let message = format!("nobody is asked: {holders}, and you are {asker}");
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
    let data = json!({ "key": key, "by": asker, "note": note, "asked": grants });
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
    let target = target(what);
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
pub(crate) fn target(path: &str) -> Option<Target> {
    let project = context::find_project().ok()?;
    let tree = WorkTree::find(&context::start().ok()?, project.as_ref());
    tree.ok()??.target(Path::new(path)).ok()
}

/// What the holders of these leases are asked. Best effort: a store that keeps no history knows nothing.
pub(crate) fn requests<'a>(
    tenure: &Tenure,
    leases: impl IntoIterator<Item = &'a Lease>,
) -> Vec<Event> {
    let found = tenure_core::requests(&**tenure.store(), leases, call_deadline());
    found.unwrap_or_default()
}

/// A request, for its holder to read.
pub(crate) fn told(event: &Event) -> String {
    let note = event.reason.as_deref();
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    format!("{} asks for {}{note}", event.holder, event.key)
}

/// The same, with the paths of the reservation that is asked for.
pub(crate) fn told_with_paths(event: &Event, leases: &[&Lease]) -> String {
    let asked = leases.iter().find(|lease| lease.token == event.token);
    let Some(lease) = asked.filter(|lease| lease.mode.paths().is_some()) else {
        return told(event);
    };
    let note = event.reason.as_deref();
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    let (who, holder) = (&event.holder, &lease.holder.id);
    format!(
        "{who} asks {holder} for {}{note}",
        words::asked_mode(&lease.mode)
    )
}

/// The file in which a running command finds what it is asked. It does not exist before the first request.
pub(crate) struct AskedFile(PathBuf);

impl AskedFile {
    /// That of the command which runs under this token.
    pub(crate) fn new(token: Token) -> Self {
        let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
        Self(folder.join(format!("tenure-asked-{}-{token}", std::process::id())))
    }

    /// The variable that names it.
    pub(crate) fn variable(&self) -> (&'static str, String) {
        ("TENURE_ASKED", self.0.to_string_lossy().into_owned())
    }

    /// What to do with a request: it is written to the file, one JSON object in each line, and reported.
    pub(crate) fn writer(&self, global: &Global) -> impl FnMut(Event) + Send + 'static + use<> {
        let (path, global) = (self.0.clone(), global.clone());
        let mut file = None;
        move |event| {
            let json = to_value(&RequestJson::from(&event));
            // A new file of our own: another user may have put something there.
            if file.is_none() {
                let mut options = OpenOptions::new();
                let made = options
                    .append(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(&path);
                file = made.ok();
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
        let _ = std::fs::remove_file(&self.0);
    }
}
