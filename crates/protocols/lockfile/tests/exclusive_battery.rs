//! The store battery on the exclusive lock.

use std::path::Path;

use tenure_lockfile::{Durability, ExclusiveStore, Options};
use tenure_testkit::Subject;

tenure_testkit::battery!(
    Subject::opened_by(|place| {
        // Syncing each of many thousand grants would take longer than the rest of the test.
        let options = Options {
            durability: Durability::Crash,
            ..Options::default()
        };
        Box::new(ExclusiveStore::open(place, options).unwrap())
    })
    .keys(&["database"])
    .sound(sound)
);

/// After a crash and one more use of the store: no private files, no pending step, and nothing beside
/// the lock but its sidecar.
fn sound(place: &Path) -> Result<(), String> {
    let sidecar = place.join(".exclusive-lock-tenure");
    for left in ["next", "aside"] {
        if sidecar.join(left).exists() {
            return Err(format!("{left} was left behind"));
        }
    }
    // Each slot is a header line and JSON; the newer one counts.
    let slots = ["state.a", "state.b"].map(|name| std::fs::read_to_string(sidecar.join(name)));
    let revision = |text: &str| text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
    let newer = slots
        .into_iter()
        .flatten()
        .max_by_key(|text| revision(text));
    let newer = newer.ok_or("there is no state")?;
    let (_, json) = newer.split_once('\n').ok_or("the state is torn")?;
    let state: serde_json::Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
    if let Some(pending) = state.get("pending").filter(|pending| !pending.is_null()) {
        return Err(format!("a step is pending: {pending}"));
    }
    let known = [
        ".gitignore",
        "ceiling",
        "guard",
        "history",
        "live",
        "state.a",
        "state.b",
        // Private names; the next writer clears them.
        "ceiling.new",
        "history.new",
    ];
    for entry in std::fs::read_dir(&sidecar).unwrap() {
        let name = entry.unwrap().file_name();
        if !known.iter().any(|known| name == **known) {
            return Err(format!("{} was left behind", name.display()));
        }
    }
    for entry in std::fs::read_dir(place).unwrap() {
        let name = entry.unwrap().file_name();
        if name != ".exclusive-lock" && name != ".exclusive-lock-tenure" {
            return Err(format!("{} is beside the lock", name.display()));
        }
    }
    Ok(())
}
