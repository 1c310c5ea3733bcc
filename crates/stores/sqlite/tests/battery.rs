//! The battery that every store must pass.

use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::Subject;

tenure_testkit::battery!(
    Subject::opened_by(|place| {
        Box::new(SqliteStore::open(&place.join("tenure.db"), SqliteOptions::default()).unwrap())
    })
    .sound(|place| {
        let db = rusqlite::Connection::open(place.join("tenure.db")).unwrap();
        let words: String = db
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        match words.as_str() {
            "ok" => Ok(()),
            _ => Err(words),
        }
    })
);
