//! `tenure allow`: a person allows a command of an agent that was refused.

use std::io::IsTerminal;

use tenure::store::Clock;
use tenure::text::{duration, flat};
use tenure::who::Who;
use tenure::wire::{AllowableJson, AllowablesJson, ErrorCode};
use tenure_files::danger::{Allowed, Permissions, Request};
use tenure_host::HostClock;

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::allow::Allow;
use crate::context;

pub(crate) fn allow(global: &Global, allow: &Allow) -> Result<Answer, Failure> {
    let project = context::existing_project(&context::start()?)?;
    let permissions = Permissions::of(&project);
    let Some(code) = &allow.code else {
        return Ok(list(permissions.waiting()?));
    };
    // A name that was given does not make an agent a person.
    let who = Who::find(None, Some(&project))?;
    let refused = |message: String| Failure::new(ErrorCode::PermissionDenied, message);
    if !who.is_shell() {
        let session = who.names().first().map(ToString::to_string);
        let message = format!(
            "this is the session {} of a coding agent, which can't allow its own commands\n  \
             a person has to run this in a terminal of their own: tenure allow {}",
            session.unwrap_or_default(),
            flat(code)
        );
        return Err(refused(message));
    }
    if !allow.yes && !std::io::stdin().is_terminal() {
        let message = format!(
            "there is no terminal, so this may not be a person: in a terminal of your own, run tenure allow {0}\n  \
             for a script of yours: tenure allow {0} --yes",
            flat(code)
        );
        return Err(refused(message));
    }
    match permissions.allow(code, allow.time)? {
        Allowed::Once(request) => {
            let text = format!(
                "{} may run this once in {}, within {}:\n  {}",
                request.name,
                request.folder,
                duration::format(allow.time),
                flat(&request.line)
            );
            Ok(Answer::confirmed(global, json(request), text))
        }
        Allowed::Unknown => {
            let message = format!("no command waits under the code {}", flat(code));
            Err(Failure::new(ErrorCode::NotFound, message)
                .hint("to see those that wait: tenure allow"))
        }
    }
}

/// The commands that wait.
fn list(waiting: Vec<Request>) -> Answer {
    let now = HostClock::new().now().wall;
    let mut lines = Vec::new();
    for request in &waiting {
        let since = now.duration_since(request.asked);
        lines.push(format!(
            "{}  {} wanted to run this in {}, {} ago:",
            request.code,
            request.name,
            request.folder,
            duration::format(std::time::Duration::from_secs(
                since.unsigned_abs().as_secs()
            ))
        ));
        lines.push(format!("  {}", flat(&request.line)));
        lines.extend(request.why.lines().map(|line| format!("  {line}")));
    }
    lines.push(if waiting.is_empty() {
        "No command waits for a permission.".to_owned()
    } else {
        "To allow one of them, once: tenure allow CODE".to_owned()
    });
    let waiting = waiting.into_iter().map(json).collect();
    Answer::new(AllowablesJson { waiting }, lines.join("\n"))
}

fn json(request: Request) -> AllowableJson {
    AllowableJson {
        code: request.code,
        holder: request.session,
        session: request.name,
        folder: request.folder,
        command: request.line,
        why: request.why,
        refused_at: request.asked.into(),
        allowed_until: request.allowed_until.map(Into::into),
    }
}
