//! Imported tasks that would have to be done before themselves.

use rusqlite::Connection;
use tenure_core::graph::Graph;

/// The first of these tasks that depends on itself, through others or not. A cycle without any of
/// them was there before the import, which is not refused for it.
pub(super) fn first_on_cycle(
    db: &Connection,
    changed: &[(usize, String)],
) -> rusqlite::Result<Option<(usize, String)>> {
    let edges: Vec<(String, String)> = db
        .prepare_cached("SELECT task_id, depends_on FROM task_dependencies")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let graph = Graph::new(edges.iter().map(|(id, on)| (id.as_str(), on.as_str())));
    let on_cycles = graph.nodes_on_cycles();
    let found = changed
        .iter()
        .find(|(_, id)| on_cycles.binary_search(&id.as_str()).is_ok());
    Ok(found.cloned())
}
