//! The store in memory passes the battery's checks for one process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use tenure::store::MemoryStore;
use tenure_core::Store;
use tenure_testkit::Subject;

/// The battery opens a store by its folder, many times.
fn open(place: &Path) -> Box<dyn Store> {
    static STORES: LazyLock<Mutex<HashMap<PathBuf, MemoryStore>>> = LazyLock::new(Mutex::default);
    let mut stores = STORES.lock().unwrap();
    Box::new(stores.entry(place.to_owned()).or_default().another_handle())
}

tenure_testkit::battery!(one_process Subject::opened_by(open));

/// Two threads hand one key back and forth, and neither polls: a wake-up between the answer "busy" and
/// the wait must not be lost.
#[test]
fn no_wake_up_is_lost_between_the_answer_and_the_wait() {
    use tenure_testkit::{Ask, soon, waiting};
    let first = MemoryStore::default();
    let second = first.another_handle();
    let key = tenure_core::Key::parse("build").unwrap();
    std::thread::scope(|scope| {
        for (store, name) in [(first, "a"), (second, "b")] {
            let key = &key;
            scope.spawn(move || {
                for _ in 0..5_000 {
                    let ask = Ask::new(key, name).waiting_at_most(tenure_testkit::limit::LIMIT);
                    let lease = waiting::acquire(&store, &ask, |_| ()).lease();
                    let _ = store.release(&lease.grant(), soon()).unwrap();
                }
            });
        }
    });
}
