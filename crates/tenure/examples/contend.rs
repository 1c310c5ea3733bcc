//! Threads and processes that want the same key. Run it in a project, in two terminals at once:
//! `cargo run -p tenure --example contend`.

use std::thread;
use std::time::Duration;

use tenure::{Error, Tenure};

fn main() -> Result<(), Error> {
    let tenure = Tenure::here()?;
    let work = |name: &str| -> Result<(), Error> {
        let guard = tenure.lock("example")?;
        println!(
            "{name} of pid {}: token {}",
            std::process::id(),
            guard.token()
        );
        thread::sleep(Duration::from_secs(1));
        drop(guard);
        Ok(())
    };
    thread::scope(|threads| {
        let both = ["first thread", "second thread"].map(|name| threads.spawn(move || work(name)));
        both.into_iter()
            .filter_map(|thread| thread.join().ok())
            .collect()
    })
}
