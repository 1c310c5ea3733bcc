//! SQL in one call: [`Query`].

use rusqlite::{Connection, OptionalExtension, Params, Row};

/// Statements that each connection prepares once and keeps.
pub(crate) trait Query {
    /// Runs a statement that returns no rows, and returns how many it changed.
    fn run(&self, sql: &str, values: impl Params) -> rusqlite::Result<usize>;

    /// Whether there is such a row.
    fn any(&self, sql: &str, values: impl Params) -> rusqlite::Result<bool>;

    /// The first row, if there is one.
    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>>;

    /// Every row.
    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>>;
}

impl Query for Connection {
    fn run(&self, sql: &str, values: impl Params) -> rusqlite::Result<usize> {
        self.prepare_cached(sql)?.execute(values)
    }

    fn any(&self, sql: &str, values: impl Params) -> rusqlite::Result<bool> {
        self.prepare_cached(sql)?.exists(values)
    }

    fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        let mut statement = self.prepare_cached(sql)?;
        statement.query_row(values, read).optional()
    }

    fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        let mut statement = self.prepare_cached(sql)?;
        statement.query_map(values, read)?.collect()
    }
}
