//! The Rust examples of `docs/guide/rust.md`, so that they compile. The test in `docs.rs` holds the page to
//! this file.
#![allow(
    dead_code,
    reason = "two of the examples would write into the current folder"
)]

use std::error::Error;
use std::time::Duration;

use tenure::{Acquired, Config, StoreUrl, Tenure};
use tenure_ledger::{Appended, Dialect, Ledger, NewEvent, Options};

fn hold_a_key() -> Result<(), Box<dyn Error>> {
    let url = StoreUrl::parse("sqlite:locks.db")?;
    let tenure = Tenure::open(&url, Config::default())?;
    let ask = tenure.ask("build")?.named("agent-1")?;
    match ask.wait(Duration::from_secs(60)).acquire()? {
        Acquired::Granted(guard) => {
            guard.on_lost(|| eprintln!("the lease is lost: stop writing"));
            println!("building, with token {}", guard.token());
            let _ = guard.release()?;
        }
        Acquired::Busy(busy) => println!("{} others wait", busy.waiting),
        Acquired::Deadlock(cycle) => println!("waiting would never end: {cycle}"),
        Acquired::Cancelled => {}
    }
    Ok(())
}

/// The one that needs no file.
pub(crate) fn lock_among_threads() -> Result<(), Box<dyn Error>> {
    let tenure = Tenure::open(&StoreUrl::parse("memory:")?, Config::default())?;
    let first = tenure.ask("build")?.acquire()?;
    let second = tenure.ask("build")?.acquire()?;
    assert!(matches!(first, Acquired::Granted(_)));
    assert!(matches!(second, Acquired::Busy(_)));
    Ok(())
}

fn append_to_a_ledger() -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::init("proof".as_ref(), Dialect::Documented, Options::default())?;
    let newest = ledger.last()?;
    match ledger.append_if(newest, &NewEvent::parse(r#"{"type":"note"}"#)?)? {
        Appended::Done { last, .. } => println!("event {last}"),
        Appended::Mismatch { found, .. } => println!("another program wrote event {found}"),
        Appended::Locked(lock) => println!("held by {lock}"),
    }
    for event in ledger.events(1)? {
        println!("{}", event?.value()?);
    }
    Ok(())
}
