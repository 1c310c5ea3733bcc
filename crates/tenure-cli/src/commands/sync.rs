//! `tenure sync`: what the daemon does in a cycle, by hand.

use serde_json::json;
use tenure::wire::ErrorCode;
use tenure_daemon::once;
use tenure_daemon::state::Outcome;

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::context;

pub(crate) fn sync(global: &Global) -> Result<Answer, Failure> {
    if global.store.is_some() {
        return Err(Failure::new(
            ErrorCode::Usage,
            "the tasks of the project's own store are synced: leave --store out, or name the project with -C",
        ));
    }
    let project = context::project(&context::start()?)?;
    let config = context::config(Some(&project))?;
    let mut lines: Vec<String> = Vec::new();
    let done = once(&project, &config, &|| false, &mut |line| {
        // What takes time is said at once, the rest in its place.
        if line.ends_with("...") {
            if !global.quiet && !global.json {
                anstream::eprintln!("{line}");
            }
        } else {
            lines.push(line.to_owned());
        }
    });
    let ended = done.synced.map(|synced| synced.to_string());
    let ended = ended.unwrap_or_else(|| done.line.clone());
    let data = json!({
        "outcome": done.outcome.word(),
        "message": ended,
        "lines": lines,
        "holder": done.holder,
    });
    match done.outcome {
        Outcome::Done => {
            lines.push(format!("{ended}."));
            let text = if global.quiet {
                String::new()
            } else {
                lines.join("\n")
            };
            Ok(Answer::new(data, text))
        }
        // The line of the protocol, to the letter.
        Outcome::Skipped => Err(Failure::new(ErrorCode::ExclusiveLocked, ended.clone())
            .verbatim(ended)
            .details(data)),
        Outcome::PutOff => Err(Failure::new(ErrorCode::SyncPutOff, ended).details(data)),
        Outcome::Failed | Outcome::CutShort => {
            Err(Failure::new(ErrorCode::SyncFailed, ended).details(data))
        }
    }
}
