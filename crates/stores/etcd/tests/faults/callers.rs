//! On which threads calls run, and what they send.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Acquired, Released, Store};
use tenure_etcd::EtcdStore;
use tenure_testkit::limit::within_limit;
use tenure_testkit::{Ask, Etcd, Process, process, soon};
use tokio::runtime::Builder;

use super::{key, open};

fn pair(store: &EtcdStore) {
    let lease = Ask::new(&key(), "client").granted(store);
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
}

/// How many threads of this process are there for a cluster.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "etcd").count()
}

/// Not a test: a process that counts its threads.
#[test]
fn counter() {
    let Some(job) = process::job() else { return };
    let place = tempfile::tempdir().unwrap();
    let store = open(&job, &place.path().join("here"));
    pair(&store);
    let alone = threads();
    let held = Ask::new(&key(), "holder").granted(&store);
    let Acquired::Busy(_) = Ask::new(&key(), "waiter").waiting().once(&store) else {
        panic!("it is held");
    };
    // A thread names itself, and is listed for a moment after its end.
    within_limit("the thread to begin", || threads() == 1);
    let _freed = store.release(&held.grant(), soon()).unwrap();
    drop(store);
    within_limit("the thread to end", || threads() == 0);
    process::report(&format!("{alone}"));
}

#[test]
fn only_a_process_that_waits_has_a_thread_for_the_cluster() {
    let address = Etcd::shared().address("threads");
    let counter = Process::start("callers::counter", &address);
    assert_eq!(counter.report(), "0");
}

#[test]
fn a_caller_may_be_part_of_an_asynchronous_program() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("asynchronous");
    let outer = Builder::new_current_thread().enable_all().build().unwrap();
    let store = open(&address, &place.path().join("here"));
    outer.block_on(async {
        pair(&store);
        tokio::spawn(async move {
            pair(&store);
            // It is dropped here, too.
        })
        .await
        .unwrap();
    });
    let store = open(&address, &place.path().join("here"));
    std::thread::scope(|scope| {
        // Callers of both kinds at once.
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let _ = store.inspect(&key(), soon()).unwrap();
                }
            });
        }
        outer.block_on(async {
            for _ in 0..20 {
                let _ = store.inspect(&key(), soon()).unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    });
}

/// Passes one connection on, and keeps what its client sends.
fn recorded(member: &str) -> (String, Arc<Mutex<Vec<u8>>>) {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = door.local_addr().unwrap().to_string();
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (member, log) = (member.to_owned(), Arc::clone(&sent));
    std::thread::spawn(move || {
        let (mut client, _) = door.accept().unwrap();
        let mut server = TcpStream::connect(member).unwrap();
        let (mut answers, mut to_client) =
            (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
        let mut some = [0; 4096];
        while let Ok(length) = client.read(&mut some) {
            // Before it can be answered.
            log.lock().unwrap().extend_from_slice(&some[..length]);
            if length == 0 || server.write_all(&some[..length]).is_err() {
                break;
            }
        }
    });
    (address, sent)
}

/// The kind and the length of each frame of HTTP/2.
fn frames(mut sent: &[u8]) -> Vec<(u8, usize)> {
    let mut frames = Vec::new();
    while sent.len() >= 9 {
        let length = sent[..3]
            .iter()
            .fold(0, |sum, byte| sum * 256 + usize::from(*byte));
        frames.push((sent[3], length));
        sent = sent.get(9 + length..).unwrap_or_default();
    }
    frames
}

#[test]
fn an_uncontended_pair_is_two_requests_of_two_frames_each() {
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    let place = tempfile::tempdir().unwrap();
    let (address, sent) = recorded(Etcd::shared().endpoints().next().unwrap());
    let store = open(
        &format!("etcd://{address}/frames"),
        &place.path().join("here"),
    );
    // Connected, with an etcd lease to spare, and with knowledge of the key.
    pair(&store);
    let sent_by_a_pair = || {
        let before = sent.lock().unwrap().len();
        pair(&store);
        let mut frames = frames(&sent.lock().unwrap()[before..]);
        frames.retain(|(kind, _)| [DATA, HEADERS].contains(kind));
        frames
    };
    // Now and then, a step trims the history.
    let frames = (0..3).map(|_| sent_by_a_pair()).min_by_key(Vec::len);
    let frames = frames.unwrap();
    let kinds: Vec<u8> = frames.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [HEADERS, DATA, HEADERS, DATA], "{frames:?}");
    let bytes: usize = frames.iter().map(|(_, length)| length).sum();
    assert!(bytes < 1800, "{frames:?}");
}
