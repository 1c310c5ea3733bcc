//! `tenure locks verify`: what the history of each store proves.

use tenure::wire::{ErrorCode, StoreVerifiedJson, VerifiedJson};
use tenure::{HistoryQuery, StoreUrl, call_deadline, plural};
use tenure_core::StoreError;
use tenure_ledger::{Access, Ledger, Options};
use tenure_view::history;
use tenure_view::{Overview, StoreView};

use super::all;
use crate::answer::{Answer, Failure};
use crate::args::Global;

pub(super) fn verify(global: &Global) -> Result<Answer, Failure> {
    let (project, overview) = all::look(global)?;
    let Overview { stores, .. } = &overview;
    let mut lines = Vec::new();
    let mut data = VerifiedJson {
        sound: true,
        stores: Vec::new(),
    };
    for store in stores {
        let found = match of(store) {
            Ok(found) => found,
            Err(error) => StoreVerifiedJson {
                store: store.url.to_string(),
                sound: true,
                events: 0,
                grants: 0,
                violations: Vec::new(),
                unproven: vec![format!("its history can't be read: {error}")],
            },
        };
        let name = all::short_url(&project, &store.url);
        let counts = format!(
            "{}, {}",
            plural::count(found.events, "event"),
            plural::count(found.grants, "grant")
        );
        let word = if found.sound { "Sound" } else { "NOT SOUND" };
        lines.push(format!("{word}: {name}: {counts}"));
        lines.extend(found.violations.iter().map(|what| format!("  {what}")));
        let unproven = found.unproven.iter();
        lines.extend(unproven.map(|what| format!("  not proven: {what}")));
        data.sound &= found.sound;
        data.stores.push(found);
    }
    if data.sound {
        lines.push("No two holders overlapped, and tokens grew.".to_owned());
    }
    lines
        .push("Not proven: locks of git, cargo and other tools, which keep no history.".to_owned());
    let text = lines.join("\n");
    if data.sound {
        return Ok(Answer::new(data, text));
    }
    let message = "a history shows holders that overlapped, or tokens that did not grow";
    Err(Failure::new(ErrorCode::HistoryNotSound, message)
        .verbatim(text)
        .details(data))
}

fn of(store: &StoreView) -> Result<StoreVerifiedJson, StoreError> {
    if let StoreUrl::Ledger(root) = &store.url {
        return of_ledger(store, root);
    }
    let mut found = StoreVerifiedJson {
        store: store.url.to_string(),
        sound: true,
        events: 0,
        grants: 0,
        violations: Vec::new(),
        unproven: Vec::new(),
    };
    let Some(tenure) = &store.tenure else {
        found
            .unproven
            .extend(store.error.iter().map(ToString::to_string));
        return Ok(found);
    };
    let events = tenure
        .store()
        .history(&HistoryQuery::default(), call_deadline())?;
    let proof = history::verify(&events);
    found.sound = proof.violations.is_empty();
    found.events = proof.events;
    found.grants = proof.grants;
    found.violations = proof.violations;
    found.unproven = proof.unproven;
    let shares = matches!(
        store.url,
        StoreUrl::Exclusive(_) | StoreUrl::Mkdir(_) | StoreUrl::Steroids(_)
    );
    if shares {
        let what = "what other programs did, which keep no history";
        found.unproven.push(what.to_owned());
    }
    Ok(found)
}

/// A ledger is its own history.
fn of_ledger(store: &StoreView, root: &std::path::Path) -> Result<StoreVerifiedJson, StoreError> {
    let options = Options {
        access: Access::ReadOnly,
        ..Options::default()
    };
    let verified = Ledger::open(root, options)?.verify()?;
    let overlaps = verified.findings.iter().filter(|one| one.code == "overlap");
    let errors = verified
        .findings
        .iter()
        .filter(|one| one.code != "overlap" && one.severity == tenure_ledger::Severity::Error);
    let number = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    Ok(StoreVerifiedJson {
        store: store.url.to_string(),
        sound: verified.no_overlap(),
        events: number(verified.events),
        grants: number(verified.claims),
        violations: overlaps.map(ToString::to_string).collect(),
        unproven: errors.map(ToString::to_string).collect(),
    })
}
