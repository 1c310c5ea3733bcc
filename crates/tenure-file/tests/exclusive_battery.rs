//! The battery that every store must pass, for the exclusive lock.
#![allow(clippy::unwrap_used, reason = "test code fails by panicking")]

use std::path::Path;

use tenure_file::{Disk, ExclusiveStore, Options};
use tenure_testkit::Subject;

tenure_testkit::battery!(
    Subject::opened_by(|place| {
        // A sync for each of many thousand grants would take longer than all the rest.
        let options = Options {
            disk: Disk::Crash,
            ..Options::default()
        };
        Box::new(ExclusiveStore::open(place, options).unwrap())
    })
    .keys(&["database"])
    .sound(sound)
);

/// What is left after a crash, once somebody has used the store again: nothing on its way to or from
/// the place, no step under way, and nothing beside the lock but the one folder.
fn sound(place: &Path) -> Result<(), String> {
    let side = place.join(".exclusive-lock-tenure");
    for left in ["next", "aside"] {
        if side.join(left).exists() {
            return Err(format!("{left} was left behind"));
        }
    }
    // Each half is a line about it, and JSON; the newer one counts.
    let halves = ["state.a", "state.b"].map(|name| std::fs::read_to_string(side.join(name)));
    let revision = |text: &str| text.split(' ').next().and_then(|n| n.parse::<u64>().ok());
    let newer = halves
        .into_iter()
        .flatten()
        .max_by_key(|text| revision(text));
    let newer = newer.ok_or("there is no state")?;
    let (_, json) = newer.split_once('\n').ok_or("the state is torn")?;
    let state: serde_json::Value = serde_json::from_str(json).map_err(|e| e.to_string())?;
    if let Some(pending) = state.get("pending").filter(|pending| !pending.is_null()) {
        return Err(format!("a step is under way: {pending}"));
    }
    let known = [
        ".gitignore",
        "ceiling",
        "guard",
        "history",
        "live",
        "state.a",
        "state.b",
        // Written before they get their name; the next one to write clears them.
        "ceiling.new",
        "history.new",
    ];
    for entry in std::fs::read_dir(&side).unwrap() {
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
