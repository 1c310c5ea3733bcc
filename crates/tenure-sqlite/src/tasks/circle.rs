//! Tasks that depend on themselves through others.

use std::collections::{HashMap, HashSet};

use rusqlite::Connection;

/// The first of these tasks that depends on itself through others. A cycle without any of them was
/// there before the import, and is not its error.
pub(super) fn circle(
    db: &Connection,
    changed: &[(usize, String)],
) -> rusqlite::Result<Option<(usize, String)>> {
    let edges: Vec<(String, String)> = db
        .prepare_cached("SELECT task_id, depends_on FROM task_dependencies")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    // A task without dependencies is in no cycle; remove those until none is left.
    let left = peel(edges.iter().map(|(task, on)| (task.as_str(), on.as_str())));
    let mut waits: HashMap<&str, Vec<&str>> = HashMap::new();
    for (task, on) in &edges {
        if left.contains(task.as_str()) && left.contains(on.as_str()) {
            waits.entry(task).or_default().push(on);
        }
    }
    let reaches_itself = |start: &str| {
        let mut seen: HashSet<&str> = HashSet::new();
        let mut open: Vec<&str> = waits.get(start).cloned().unwrap_or_default();
        while let Some(id) = open.pop() {
            if id == start {
                return true;
            }
            if seen.insert(id) {
                open.extend(waits.get(id).into_iter().flatten());
            }
        }
        false
    };
    let found = changed
        .iter()
        .find(|(_, id)| left.contains(id.as_str()) && reaches_itself(id));
    Ok(found.cloned())
}

/// The tasks that are left when those without dependencies are removed again and again.
fn peel<'a>(edges: impl Iterator<Item = (&'a str, &'a str)>) -> HashSet<&'a str> {
    let mut open: HashMap<&str, usize> = HashMap::new();
    let mut waiting: HashMap<&str, Vec<&str>> = HashMap::new();
    for (task, on) in edges {
        *open.entry(task).or_default() += 1;
        open.entry(on).or_default();
        waiting.entry(on).or_default().push(task);
    }
    let waits_for_nothing = |(id, count): (&&'a str, &usize)| (*count == 0).then_some(*id);
    let mut free: Vec<&str> = open.iter().filter_map(waits_for_nothing).collect();
    while let Some(id) = free.pop() {
        for task in waiting.get(id).into_iter().flatten() {
            if let Some(count) = open.get_mut(task) {
                *count -= 1;
                if *count == 0 {
                    free.push(task);
                }
            }
        }
        open.remove(id);
    }
    open.into_keys().collect()
}
