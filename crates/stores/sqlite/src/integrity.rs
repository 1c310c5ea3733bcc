//! Whether a database is damaged: [`integrity`].

use std::path::Path;

use tenure_core::StoreError;

use crate::connection;
use crate::fault::explain;
use crate::read_only;
use crate::schema::{self, Owner};

/// How many problems are listed at most.
const MOST: &str = "10";

/// The tables of locks that do not grow with time.
const TABLES: [&str; 3] = ["tokens", "leases", "tickets"];

/// What of a database is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// Every page and index.
    Whole,
    /// The tables of what is held and waited for, if the database is tenure's: the time does not grow with its history.
    Locks,
}

/// What SQLite's own check finds wrong in a database, or in a part of it: at most ten problems, or a hundred for each
/// table. Nothing is written.
pub fn integrity(path: &Path, part: Checked) -> Result<Vec<String>, StoreError> {
    let refused = |error| explain(path, error);
    let real = read_only::find_file(path)?;
    let _nothing_is_opened = connection::keep_others_from_opening();
    let db = read_only::connect(path, &real)?;
    let check = || -> rusqlite::Result<Vec<String>> {
        read_only::begin(&db)?;
        let what: &[&str] = match part {
            Checked::Whole => &[MOST],
            Checked::Locks if schema::owner(&db)? == Owner::Tenure(schema::VERSION) => &TABLES,
            Checked::Locks => &[],
        };
        let mut problems = Vec::new();
        for what in what {
            let mut statement = db.prepare(&format!("PRAGMA integrity_check({what})"))?;
            let found = statement.query_map([], |row| row.get::<_, String>(0))?;
            let found = found.filter(|line| line.as_deref() != Ok("ok"));
            problems.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
        }
        Ok(problems)
    };
    check().map_err(refused)
}
