//! The store in memory passes the battery's checks for one process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

use tenure::MemoryStore;
use tenure_core::Store;
use tenure_testkit::Subject;

/// The battery opens a store by its folder, many times.
fn open(place: &Path) -> Box<dyn Store> {
    static STORES: LazyLock<Mutex<HashMap<PathBuf, MemoryStore>>> = LazyLock::new(Mutex::default);
    let mut stores = STORES.lock().unwrap();
    Box::new(stores.entry(place.to_owned()).or_default().another_handle())
}

tenure_testkit::battery!(one_process Subject::opened_by(open));
