//! Import and export: one JSON object a line. The lines and their rules are in `tenure_tasks::lines`.

use rusqlite::Connection;
use tenure_tasks::ImportSummary;
use tenure_tasks::lines::{self, ExchangeLine};

use super::find;
use super::rows::{self, select_task};
use crate::write::{TransactionError, WriteTransaction};

/// Hands every section and task to `hand`, a line each.
pub(super) fn export(db: &Connection, mut hand: impl FnMut(&str)) -> rusqlite::Result<()> {
    let mut say = |line: &ExchangeLine| -> rusqlite::Result<()> {
        hand(&crate::rows::json(line)?);
        Ok(())
    };
    for section in find::sections_by_age(db)? {
        say(&ExchangeLine::of_section(&section))?;
    }
    let mut statement = db.prepare(select_task!("ORDER BY t.created_at, t.rowid"))?;
    let mut tasks = statement.query_map([], rows::task)?;
    tasks.try_for_each(|task| say(&ExchangeLine::of_task(task?)))
}

/// Adds or changes sections and tasks, one for each line; all or none.
pub(super) fn import(
    write: &mut WriteTransaction<'_>,
    text: &str,
) -> Result<ImportSummary, TransactionError> {
    lines::import(write, text, |line| {
        serde_json::from_str(line).map_err(|error| error.to_string())
    })
}
