//! The store battery on the mkdir lock.

use std::path::Path;

use tenure_lockfile::{Durability, MkdirStore, Options};
use tenure_testkit::Subject;

tenure_testkit::battery!(
    Subject::opened_by(|place| {
        // Syncing each of many thousand grants would take longer than the rest of the test.
        let options = Options {
            durability: Durability::Crash,
            ..Options::default()
        };
        Box::new(MkdirStore::open(&place.join("lock"), options).unwrap())
    })
    .keys(&["board"])
    .sound(sound)
);

/// After a crash and one more use of the store: no pending step, and nothing beside the lock but its
/// sidecar.
fn sound(place: &Path) -> Result<(), String> {
    let known = [
        "lock",
        ".lock-tenure",
        // Left by a process that was killed; the next grant clears them (`interrupted.rs`).
        ".lock-tenure-next",
        ".lock-tenure-bin",
    ];
    for entry in std::fs::read_dir(place).unwrap() {
        let name = entry.unwrap().file_name();
        if !known.iter().any(|known| name == **known) {
            return Err(format!("{} is beside the lock", name.display()));
        }
    }
    let sidecar = place.join(".lock-tenure");
    let slots = ["state.a", "state.b"].map(|name| std::fs::read_to_string(sidecar.join(name)));
    let revision = |text: &str| text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
    let newer = slots
        .into_iter()
        .flatten()
        .max_by_key(|text| revision(text));
    let newer = newer.ok_or("there is no state")?;
    let (_, json) = newer.split_once('\n').ok_or("the state is torn")?;
    let state: serde_json::Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
    match state.get("pending").filter(|pending| !pending.is_null()) {
        Some(pending) => Err(format!("a step is pending: {pending}")),
        None => Ok(()),
    }
}
