//! Tasks that wait for themselves through others.

use std::collections::{HashMap, HashSet};

use rusqlite::Connection;

/// The first of these tasks that waits for itself through others. A circle that none of them is
/// in was there before, and is none of the import's business.
pub(super) fn circle(
    db: &Connection,
    changed: &[(usize, String)],
) -> rusqlite::Result<Option<(usize, String)>> {
    let edges: Vec<(String, String)> = db
        .prepare_cached("SELECT task_id, depends_on FROM task_dependencies")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    // What waits for nothing is in no circle, and neither is what then waits for nothing.
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

/// What is left when everything that waits for nothing is taken away, again and again.
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
