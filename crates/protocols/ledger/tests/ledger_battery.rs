//! The battery that every store must pass, for claims on the nodes of a ledger, in both dialects.

use std::path::Path;
use std::time::Duration;

use tenure_core::Store;
use tenure_ledger::{Appended, Dialect, Ledger, LedgerStore, NewEvent};
use tenure_ledger::{Durability, Options};
use tenure_testkit::Subject;

/// After a crash and one more append, the ledger is sound from its first event to its last by its own
/// check, and no temporary file is left. Some checks end with a crash without a later append: then
/// this appends. It can't do so in a copy: temporary files belong to the queue of this very ledger.
fn sound(place: &Path) -> Result<(), String> {
    if clean(place).is_ok() {
        return Ok(());
    }
    let ledger = Ledger::open(place, Options::default()).map_err(|e| e.to_string())?;
    let event = NewEvent::parse(r#"{"type":"def_added"}"#).unwrap();
    let written = ledger.append(&event).map_err(|error| error.to_string())?;
    if !matches!(written, Appended::Done { .. }) {
        return Err(format!("an append fails: {written:?}"));
    }
    clean(place)
}

fn clean(place: &Path) -> Result<(), String> {
    let ledger = Ledger::open(place, Options::default()).map_err(|error| error.to_string())?;
    let verified = ledger.verify().map_err(|error| error.to_string())?;
    if let Some(found) = verified.findings.first() {
        return Err(found.to_string());
    }
    let known = ["event-", "0", ".ledger-tenure"];
    for entry in std::fs::read_dir(place.join("ledger")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !known.iter().any(|known| name.starts_with(known)) {
            return Err(format!("{name} was left behind"));
        }
    }
    let sidecar = place.join("ledger/.ledger-tenure");
    for left in ["batch", "aside", "reaped"] {
        if sidecar.join(left).exists() {
            return Err(format!("{left} was left behind"));
        }
    }
    Ok(())
}

/// The nodes whose keys the battery uses.
const NODES: [&str; 3] = ["1", "1.2", "1.10.3"];

fn open(place: &Path, dialect: Dialect) -> Box<dyn Store> {
    // Syncing thousands of events would take longer than the rest of the battery.
    let options = Options {
        durability: Durability::Crash,
        ..Options::default()
    };
    let ledger = Ledger::init(place, dialect, options).unwrap();
    if dialect == Dialect::Af && ledger.last().unwrap() == 0 {
        let node = |id: &&str| {
            let event = format!(
                r#"{{"type":"node_created","node":{{"id":"{id}","workflow_state":"available"}}}}"#
            );
            NewEvent::parse(&event).unwrap()
        };
        let nodes: Vec<NewEvent> = NODES.iter().map(node).collect();
        // Another process may have been faster.
        let _ = ledger.append_all(Some(0), &nodes).unwrap();
    }
    // The battery waits for leases to expire, so it needs shorter ones than the protocol allows.
    Box::new(LedgerStore::of(ledger).with_ttl_limits(Duration::ZERO..=Duration::MAX))
}

fn subject(open: fn(&Path) -> Box<dyn Store>) -> Subject {
    Subject::opened_by(open)
        .keys(&["node:1", "node:1.2", "node:1.10.3"])
        .sound(sound)
}

mod documented {
    tenure_testkit::battery!(super::subject(|place| {
        super::open(place, tenure_ledger::Dialect::Documented)
    }));
}

mod af {
    tenure_testkit::battery!(super::subject(|place| {
        super::open(place, tenure_ledger::Dialect::Af)
    }));
}
