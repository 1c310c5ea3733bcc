//! `tenure sync`: one cycle of the daemon, in the foreground.

use tenure::wire::{ErrorCode, SyncJson};
use tenure_daemon::{CycleEvent, CycleOutcome, CycleResult, run_once};
use tenure_sync::SyncEvent;

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::context;

pub(crate) fn sync(global: &Global) -> Result<Answer, Failure> {
    if global.store.is_some() {
        return Err(Failure::new(
            ErrorCode::Usage,
            "only the project's own store can be synced: leave --store out, or name the project with -C",
        ));
    }
    let project = context::project(&context::start()?)?;
    let config = context::config(Some(&project))?;
    let mut lines: Vec<String> = Vec::new();
    let result = run_once(&project, &config, &|| false, &mut |event| match event {
        // Printed at once, so that the user knows what the command waits for.
        CycleEvent::Sync(SyncEvent::Waiting) => {
            if !global.quiet && !global.json {
                anstream::eprintln!("{event}");
            }
        }
        other => lines.push(other.to_string()),
    });
    let message = match &result {
        CycleResult::Finished { reaped, sync } if reaped.failures.is_empty() => sync.to_string(),
        other => other.to_string(),
    };
    let outcome = result.outcome();
    let data = SyncJson {
        outcome: outcome.name().to_owned(),
        message: message.clone(),
        lines: lines.clone(),
        holder: result.skipped_for().map(ToString::to_string),
    };
    match outcome {
        CycleOutcome::Done => {
            lines.push(format!("{message}."));
            let text = if global.quiet {
                String::new()
            } else {
                lines.join("\n")
            };
            Ok(Answer::new(data, text))
        }
        // The protocol prescribes this line.
        CycleOutcome::Skipped => Err(Failure::new(ErrorCode::ExclusiveLocked, message.clone())
            .verbatim(message)
            .details(data)),
        CycleOutcome::PutOff => Err(Failure::new(ErrorCode::SyncPutOff, message).details(data)),
        CycleOutcome::Failed | CycleOutcome::CutShort => {
            Err(Failure::new(ErrorCode::SyncFailed, message).details(data))
        }
    }
}
