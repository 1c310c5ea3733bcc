//! What goes wrong with a cluster, its members and its clients.
//!
//! | module | contents |
//! |---|---|
//! | `chaos` | three members and five clients that contend for one key and share tasks, while all kinds of faults happen to them |
//! | `client` | such a client, and the log that it writes |
//! | `checker` | reads the logs, and shares no code with the store |
//! | `answers` | answers that are lost or late |
//! | `callers` | on which threads calls run |
//! | `crowds` | more leases of one key than one transaction can remove |
//! | `damage` | records that were removed or damaged by hand |
//! | `members` | a leader that is deposed, no cluster at all |
//! | `names` | what is left of many leases and tickets |
//! | `restored` | clusters that were restored from a backup |
//! | `waiters` | sessions that end, and what is compacted or trimmed under a waiter |
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code fails by panicking"
)]

mod answers;
mod callers;
mod chaos;
mod checker;
mod client;
mod crowds;
mod damage;
mod members;
mod names;
mod restored;
mod waiters;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use tenure_core::Key;
use tenure_etcd::{Address, EtcdOptions, EtcdStore};
use tenure_testkit::Etcd;

/// The time to live of sessions, and of leases that should expire.
const TTL: Duration = Duration::from_secs(2);

/// The time to live of leases that should not expire.
const LONG: Duration = Duration::from_secs(600);

fn key() -> Key {
    Key::parse("build").unwrap()
}

/// Opens a store. Clients with different folders are as on different machines.
fn open(address: &str, folder: &Path) -> EtcdStore {
    open_with(address, folder, EtcdOptions::default())
}

fn open_with(address: &str, folder: &Path, options: EtcdOptions) -> EtcdStore {
    let options = EtcdOptions {
        session_ttl: TTL,
        ..options
    };
    EtcdStore::open(Address::parse(address).unwrap(), folder, options).unwrap()
}

/// The sum of the metrics of a cluster of one member whose lines begin like this.
fn metric(cluster: &Etcd, name: &str) -> u64 {
    let mut stream = TcpStream::connect(cluster.endpoints().next().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let lines = page.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    values.reduce(|sum, value| sum + value).unwrap()
}
