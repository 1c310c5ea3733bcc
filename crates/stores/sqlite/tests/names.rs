//! The names of the keys that are held or waited for.

use tenure_core::{Acquired, Key, Records as _, Store};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_tasks::TaskStore as _;
use tenure_testkit::task_battery::new_task;
use tenure_testkit::{Ask, soon};

#[test]
fn keys_are_found_by_the_beginnings_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenure.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let task = store.add_task(&new_task("One"), soon()).unwrap().id;
    let task = format!("task:{task}");
    for name in ["deploy to prod", "deploy", "größe", task.as_str(), "other"] {
        let _held = Ask::new(&Key::parse(name).unwrap(), "me").granted(&store);
    }
    let waits = Ask::new(&Key::parse("other").unwrap(), "you").waiting();
    assert!(matches!(waits.once(&store), Acquired::Busy(_)));
    let found = |beginnings: &[&str]| {
        let names = store.list_names(beginnings, soon()).unwrap();
        let names: Vec<String> = names.iter().map(Key::to_string).collect();
        names.join(", ")
    };
    assert_eq!(found(&["deploy"]), "deploy, deploy to prod");
    assert_eq!(
        found(&["deploy ", "grö", "o"]),
        "deploy to prod, größe, other"
    );
    assert_eq!(found(&["task:"]), task);
    assert_eq!(found(&["depl_y", "deploy%"]), "");
    let all = store.list(soon()).unwrap();
    let all: Vec<String> = all.iter().map(|one| one.key.to_string()).collect();
    assert_eq!(found(&[""]), all.join(", "));
}
