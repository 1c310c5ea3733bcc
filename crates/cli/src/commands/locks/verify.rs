//! `tenure locks verify`: what the history of each store proves.

use tenure::StoreUrl;
use tenure::protocols::ledger::{Access, Ledger, Options};
use tenure::store::{HistoryQuery, StoreError, call_deadline};
use tenure::text::plural;
use tenure::wire::{ErrorCode, StoreVerifiedJson, VerifiedJson};
use tenure_view::history;
use tenure_view::{Overview, StoreView};

use super::all;
use crate::answer::{Answer, Failure};
use crate::args::Global;

pub(super) fn verify(global: &Global) -> Result<Answer, Failure> {
    let (place, overview) = all::look(global)?;
    let Overview { stores, .. } = &overview;
    let mut lines = Vec::new();
    let mut data = VerifiedJson {
        sound: true,
        stores: Vec::new(),
    };
    for store in stores {
        let name = place.short_url(&store.url);
        let found = of(store).unwrap_or_else(|error| StoreVerifiedJson {
            error: Some(error),
            ..nothing(store)
        });
        let counts = format!(
            "{}, {}",
            plural::count(found.events, "event"),
            plural::count(found.grants, "grant")
        );
        lines.push(match (&found.error, found.sound) {
            (Some(error), _) => format!("Not read: {name}: {error}"),
            (None, true) => format!("Sound: {name}: {counts}"),
            (None, false) if found.violations.is_empty() => format!("Not proven: {name}: {counts}"),
            (None, false) => format!("NOT SOUND: {name}: {counts}"),
        });
        lines.extend(found.violations.iter().map(|what| format!("  {what}")));
        let unproven = found.unproven.iter();
        lines.extend(unproven.map(|what| format!("  not proven: {what}")));
        data.sound &= found.sound;
        data.stores.push(found);
    }
    let is_violated = data.stores.iter().any(|store| !store.violations.is_empty());
    if !is_violated {
        let where_ = if data.sound { "" } else { " in what was read" };
        lines.push(format!(
            "No two holders overlapped{where_}, and tokens grew."
        ));
    }
    lines
        .push("Not proven: locks of git, cargo and other tools, which keep no history.".to_owned());
    let text = lines.join("\n");
    if data.sound {
        return Ok(Answer::new(data, text));
    }
    let (code, message) = if is_violated {
        let message = "a history shows holders that overlapped, or tokens that did not grow";
        (ErrorCode::HistoryNotSound, message)
    } else {
        let message = "a history can't be read, or not all of it, so that not everything is known";
        (ErrorCode::Io, message)
    };
    Err(Failure::new(code, message).verbatim(text).details(data))
}

/// Before the history is read.
fn nothing(store: &StoreView) -> StoreVerifiedJson {
    StoreVerifiedJson {
        store: store.url.to_string(),
        sound: false,
        error: None,
        events: 0,
        grants: 0,
        violations: Vec::new(),
        unproven: Vec::new(),
    }
}

/// What the history of a store proves, or why it can't be read.
fn of(store: &StoreView) -> Result<StoreVerifiedJson, String> {
    if let StoreUrl::Ledger(root) = &store.url {
        return of_ledger(store, root).map_err(|error| error.to_string());
    }
    let Some(tenure) = &store.tenure else {
        return Err(store
            .error
            .as_ref()
            .map_or_else(String::new, ToString::to_string));
    };
    let events = tenure
        .store()
        .history(&HistoryQuery::default(), call_deadline())
        .map_err(|error| error.to_string())?;
    let mut proof = history::verify(&events, &store.locks);
    let damaged = tenure
        .store()
        .damaged_events(&HistoryQuery::default(), call_deadline());
    let damaged = damaged.map_err(|error| error.to_string())?;
    let is_whole = damaged.is_empty();
    proof.unproven.extend(damaged);
    let restored = tenure.was_restored().map_err(|error| error.to_string())?;
    proof
        .violations
        .extend(restored.map(|problem| problem.what));
    let (is_numbered, is_shared) = match store.url {
        StoreUrl::Exclusive(_) | StoreUrl::Mkdir(_) | StoreUrl::Steroids(_) => (true, true),
        StoreUrl::Sqlite(_) => (true, false),
        // A cluster numbers all of its changes.
        _ => (false, false),
    };
    if is_numbered {
        proof.unproven.extend(history::missing(&events));
    }
    if is_shared {
        let what = "what other programs did, which keep no history";
        proof.unproven.push(what.to_owned());
    }
    Ok(StoreVerifiedJson {
        sound: proof.violations.is_empty() && is_whole,
        events: proof.events,
        grants: proof.grants,
        violations: proof.violations,
        unproven: proof.unproven,
        ..nothing(store)
    })
}

/// A ledger is its own history.
fn of_ledger(store: &StoreView, root: &std::path::Path) -> Result<StoreVerifiedJson, StoreError> {
    let options = Options {
        access: Access::ReadOnly,
        ..Options::default()
    };
    let verified = Ledger::open(root, options)?.verify()?;
    let overlaps = verified.findings.iter().filter(|one| one.code == "overlap");
    let errors = verified.findings.iter().filter(|one| {
        one.code != "overlap" && one.severity == tenure::protocols::ledger::Severity::Error
    });
    let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    Ok(StoreVerifiedJson {
        sound: verified.no_overlap(),
        events: number(verified.events),
        grants: number(verified.claims),
        violations: overlaps.map(ToString::to_string).collect(),
        unproven: errors.map(ToString::to_string).collect(),
        ..nothing(store)
    })
}
