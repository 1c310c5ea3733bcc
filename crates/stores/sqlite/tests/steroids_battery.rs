//! The battery on a live database of another program.

use crate::tool;
use tenure_testkit::Subject;

tenure_testkit::battery!(
    Subject::opened_by(|place| Box::new(tool::tenure(&tool::database(place))))
        .keys(&["task:t1", "task:t2", "section:s1"])
        .sound(|place| {
            for name in ["steroids.db", "steroids.db-tenure"] {
                let db = rusqlite::Connection::open(place.join(name)).unwrap();
                let words: String = db
                    .query_row("PRAGMA integrity_check", [], |row| row.get(0))
                    .unwrap();
                if words != "ok" {
                    return Err(format!("{name}: {words}"));
                }
            }
            Ok(())
        })
);
