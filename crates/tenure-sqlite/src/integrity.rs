//! Whether a database is damaged: [`integrity`].

use std::path::Path;
use std::sync::PoisonError;

use tenure_core::StoreError;

use crate::connection;
use crate::fault::explain;
use crate::read_only;

/// How many problems are listed at most.
const MOST: usize = 10;

/// What SQLite's own check of every page and index finds wrong in a database, at most ten problems. Nothing is
/// written.
pub fn integrity(path: &Path) -> Result<Vec<String>, StoreError> {
    let refused = |error| explain(path, error);
    let real = path.canonicalize().map_err(|error| {
        StoreError::new(
            tenure_core::ErrorKind::Io,
            format!("{} can't be read", path.display()),
        )
        .because(error)
    })?;
    let _nothing_is_opened = connection::OPENING
        .write()
        .unwrap_or_else(PoisonError::into_inner);
    let db = read_only::connect(path, &real)?;
    let check = || -> rusqlite::Result<Vec<String>> {
        read_only::begin(&db)?;
        let mut statement = db.prepare(&format!("PRAGMA integrity_check({MOST})"))?;
        let found = statement.query_map([], |row| row.get::<_, String>(0))?;
        found.filter(|line| line.as_deref() != Ok("ok")).collect()
    };
    check().map_err(refused)
}
