//! The battery that every store must pass, for claims on the nodes of a ledger, in both dialects.
#![allow(clippy::unwrap_used, reason = "test code fails by panicking")]

use std::path::Path;

use tenure_core::Store;
use tenure_ledger::{Appended, Dialect, Ledger, LedgerStore, NewEvent};
use tenure_ledger::{Disk, Options};
use tenure_testkit::Subject;

/// What is left after a crash, once somebody has written again: a ledger that is sound from its first
/// event to its last, by its own account, and nothing on its way. Some checks end with a crash that
/// nobody wrote after: then somebody writes to a copy.
fn sound(place: &Path) -> Result<(), String> {
    if clean(place).is_ok() {
        return Ok(());
    }
    let copy = tempfile::tempdir().unwrap();
    copy_files(place, copy.path());
    let ledger = Ledger::open(copy.path(), Options::default()).map_err(|e| e.to_string())?;
    let event = NewEvent::parse(r#"{"type":"def_added"}"#).unwrap();
    let written = ledger.append(&event).map_err(|error| error.to_string())?;
    if !matches!(written, Appended::Done { .. }) {
        return Err(format!("nothing can be written: {written:?}"));
    }
    clean(copy.path())
}

/// Without pipes, which belong to processes.
fn copy_files(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (kind, target) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        if kind.is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_files(&entry.path(), &target);
        } else if kind.is_file() {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn clean(place: &Path) -> Result<(), String> {
    let ledger = Ledger::open(place, Options::default()).map_err(|error| error.to_string())?;
    let verified = ledger.verify().map_err(|error| error.to_string())?;
    if let Some(found) = verified.findings.first() {
        return Err(found.to_string());
    }
    let known = ["event-", "0"];
    for entry in std::fs::read_dir(place.join("ledger")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !known.iter().any(|known| name.starts_with(known)) {
            return Err(format!("{name} was left behind"));
        }
    }
    let side = place.join(".ledger-tenure");
    for left in ["batch", "aside", "reaped"] {
        if side.join(left).exists() {
            return Err(format!("{left} was left behind"));
        }
    }
    Ok(())
}

/// The nodes whose keys the battery uses.
const NODES: [&str; 3] = ["1", "1.2", "1.10.3"];

fn open(place: &Path, dialect: Dialect) -> Box<dyn Store> {
    // A sync for each of many thousand events would take longer than all the rest.
    let options = Options {
        disk: Disk::Crash,
        ..Options::default()
    };
    let ledger = Ledger::init(place, dialect, options).unwrap();
    if dialect == Dialect::Af && ledger.last().unwrap() == 0 {
        let node = |id: &&str| {
            let event = format!(r#"{{"type":"node_created","node":{{"id":"{id}"}}}}"#);
            NewEvent::parse(&event).unwrap()
        };
        let nodes: Vec<NewEvent> = NODES.iter().map(node).collect();
        // Somebody else may have been faster.
        let _ = ledger.append_all(Some(0), &nodes).unwrap();
    }
    Box::new(LedgerStore::of(ledger))
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
