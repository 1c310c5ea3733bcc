//! A cluster of three members whose members are killed, stopped and cut off, while clients that contend for one key are
//! killed and stopped beyond the end of their leases.
//!
//! Each client writes what it did into a log of its own: when it was granted the key, when it used it, when it gave it
//! back. A checker that shares no code with the store reads the logs afterwards:
//!
//! 1. No client used the key between the grant and the last use of another one.
//! 2. A grant that was asked for after another one was acknowledged has a larger token.
//! 3. What accepts writes only with the largest token so far refused every outdated one.
//! 4. Every grant and release that was acknowledged is in the history of the store, which does not contradict itself.
//! 5. Every client gets the key once more after the last fault.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{
    Acquired, ErrorKind, EventKind, HistoryQuery, Key, Lease, Reason, Released, Store,
};
use tenure_etcd::{Address, EtcdOptions, EtcdStore};
use tenure_host::clock::since_boot;
use tenure_testkit::limit::within_limit;
use tenure_testkit::{Ask, Chance, Etcd, Process, Proxy, history, process, scaled, soon};

/// The time to live of the clients' leases.
const TTL: Duration = Duration::from_secs(2);

/// How long a client uses its lease: until a tenth of the time to live is left, by its own clock.
const TRUST: Duration = Duration::from_millis(1800);

const CLIENTS: usize = 5;

fn key() -> Key {
    Key::parse("build").unwrap()
}

/// The job of one client.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Job {
    place: PathBuf,
    address: String,
    name: String,
    /// Where its liveness lock is: clients with different folders are as on different machines.
    folder: PathBuf,
    seed: u64,
}

/// One line of a client's log, with the time since boot.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Line {
    /// The key was granted: asked and acknowledged at these times.
    Granted { asked: u64, at: u64, token: u64 },
    /// The key was used.
    Used { at: u64, token: u64 },
    /// A write was refused, because a larger token has written.
    Refused { token: u64 },
    /// The release was acknowledged.
    Released { token: u64 },
    /// The lease was gone.
    Gone { token: u64 },
    /// A call failed.
    Failed { unknown: bool, what: String },
}

fn open(address: &str, folder: &Path) -> EtcdStore {
    let options = EtcdOptions {
        session_ttl: TTL,
        ..EtcdOptions::default()
    };
    EtcdStore::open(Address::parse(address).unwrap(), folder, options).unwrap()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

/// Not a test: the entry point of the clients.
#[test]
fn client() {
    let Some(job) = process::job() else { return };
    let job: Job = serde_json::from_str(&job).unwrap();
    let store = open(&job.address, &job.folder);
    let mut client = Client {
        log: append(&job.place.join(format!("log-{}", job.name))),
        chance: Chance::from_seed(job.seed),
        job,
    };
    while !client.job.place.join("stop").exists() {
        client.round(&store);
    }
}

struct Client {
    job: Job,
    log: File,
    chance: Chance,
}

impl Client {
    fn write(&mut self, line: &Line) {
        let line = serde_json::to_string(line).unwrap() + "\n";
        self.log.write_all(line.as_bytes()).unwrap();
    }

    /// Gets the key, uses it, gives it back.
    fn round(&mut self, store: &EtcdStore) {
        let Some((asked, lease)) = self.acquire(store) else {
            return;
        };
        let token = lease.token.0;
        // Mostly a few; sometimes until it can't be trusted any more.
        let uses = if self.chance.one_in(60) {
            u64::MAX
        } else {
            1 + self.chance.below(30)
        };
        for _ in 0..uses {
            let at = since_boot();
            if at.saturating_sub(asked) >= TRUST {
                break;
            }
            // Before the write, which may be refused: a client that trusts its lease must be the only one.
            let at = micros(at);
            self.write(&Line::Used { at, token });
            if !self.write_fenced(token) {
                self.write(&Line::Refused { token });
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        match store.release(&lease.grant(), soon()) {
            Ok(Released::Freed(_)) => self.write(&Line::Released { token }),
            Ok(Released::AlreadyGone(_)) => self.write(&Line::Gone { token }),
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&mut self, error: &tenure_core::StoreError) {
        self.write(&Line::Failed {
            unknown: error.kind == ErrorKind::OutcomeUnknown,
            what: error.to_string(),
        });
    }

    fn acquire(&mut self, store: &EtcdStore) -> Option<(Duration, Lease)> {
        let ask = Ask::new(&key(), &self.job.name).ttl(TTL).waiting();
        let claim = ask.claim(store);
        while !self.job.place.join("stop").exists() {
            let asked = since_boot();
            match store.acquire(&claim, soon()) {
                Ok(Acquired::Granted(granted)) => {
                    let token = granted.lease.token.0;
                    let at = micros(since_boot());
                    let line = Line::Granted {
                        asked: micros(asked),
                        at,
                        token,
                    };
                    self.write(&line);
                    return Some((asked, granted.lease));
                }
                Ok(Acquired::Busy(busy)) => {
                    let _ = store.wait(&busy.watched(), Duration::from_millis(500));
                }
                Ok(other) => unreachable!("{other:?}"),
                Err(error) => self.failed(&error),
            }
        }
        None
    }

    /// Writes to what the key protects, which accepts the largest token so far.
    fn write_fenced(&self, token: u64) -> bool {
        let path = self.job.place.join("protected");
        let file = append(&path);
        file.lock().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let largest = text.lines().last().map_or(0, |line| line.parse().unwrap());
        if token < largest {
            return false;
        }
        if token > largest {
            (&file).write_all(format!("{token}\n").as_bytes()).unwrap();
        }
        true
    }
}

fn append(path: &Path) -> File {
    let options = File::options().append(true).create(true).open(path);
    options.unwrap()
}

/// What was done to the cluster and its clients.
#[derive(Debug, Default)]
struct Faults {
    members_killed: u32,
    members_stopped: u32,
    members_cut_off: u32,
    clients_killed: u32,
    clients_stopped: u32,
}

#[test]
fn a_change_whose_answer_was_lost_is_found_out_and_not_made_again() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::shared();
    let member = cluster.endpoints().next().unwrap();
    let (first, second) = (Proxy::to(member), Proxy::to(member));
    let address = format!("etcd://{},{}/lost", first.address(), second.address());
    let store = open(&address, &place.path().join("here"));
    let ask = Ask::new(&key(), "client").ttl(Duration::from_secs(600));
    // Connected by the first way, and with an etcd lease to spare.
    let warm_up = ask.granted(&store);
    assert!(matches!(
        store.release(&warm_up.grant(), soon()),
        Ok(Released::Freed(_))
    ));
    first.cut_answers();
    let (lease, reason) = ask.granted_for(&store);
    assert_eq!(reason, Reason::AcquiredNew);
    first.mend();
    second.cut_answers();
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    let pair = [EventKind::Granted, EventKind::Released];
    assert_eq!(kinds, [pair, pair].concat());
    assert!(
        events
            .iter()
            .skip(2)
            .all(|event| event.token == lease.token)
    );
}

/// Not a test: a process that holds the key until it is killed.
#[test]
fn holder() {
    let Some(job) = process::job() else { return };
    let job: Job = serde_json::from_str(&job).unwrap();
    let store = open(&job.address, &job.folder);
    let ask = Ask::new(&key(), &job.name).ttl(Duration::from_secs(600));
    process::report(&ask.granted(&store).token.to_string());
    loop {
        std::thread::park();
    }
}

#[test]
fn a_holder_that_dies_while_a_ticket_is_written_does_not_turn_it_into_a_grant() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::shared();
    let member = cluster.endpoints().next().unwrap();
    let proxy = Proxy::to(member);
    let folder = place.path().join("here");
    let direct = open(&format!("etcd://{member}/ticket"), &folder);
    let slow = open(&format!("etcd://{}/ticket", proxy.address()), &folder);
    let job = Job {
        place: place.path().to_owned(),
        address: format!("etcd://{member}/ticket"),
        name: "holder".to_owned(),
        folder,
        seed: 0,
    };
    let mut holder = Process::start("holder", &serde_json::to_string(&job).unwrap());
    let _ = holder.report();
    let claim = Ask::new(&key(), "waiter").waiting().claim(&slow);
    // Connected, and with a session: what follows is a read and the ticket.
    let Acquired::Busy(busy) = slow.acquire(&claim, soon()).unwrap() else {
        panic!("it is held");
    };
    slow.leave(&key(), busy.position.unwrap().ticket, soon())
        .unwrap();
    proxy.delay_answers(Duration::from_millis(200));
    let answer = std::thread::scope(|scope| {
        let claimant = scope.spawn(|| slow.acquire(&claim, soon()).unwrap());
        within_limit("the ticket to be written", || {
            !direct.inspect(&key(), soon()).unwrap().queue.is_empty()
        });
        holder.kill();
        claimant.join().unwrap()
    });
    let granted = match answer {
        Acquired::Granted(granted) => Some(granted.lease.token),
        _ => None,
    };
    let snapshot = direct.inspect(&key(), soon()).unwrap();
    let recorded = snapshot.leases.iter().map(|(lease, _)| lease.token);
    assert!(
        granted.is_none_or(|token| recorded.clone().any(|held| held == token)),
        "{granted:?} was granted: {snapshot:?}"
    );
}

#[test]
fn no_fault_of_members_or_clients_gives_the_key_to_two() {
    let place = tempfile::tempdir().unwrap();
    let seed = Chance::seed();
    println!("seed {seed}");
    let mut chance = Chance::apart(seed, "faults");
    let mut cluster = Etcd::start(3);
    let proxies: Vec<Proxy> = cluster.endpoints().map(Proxy::to).collect();
    let endpoints: Vec<&str> = proxies.iter().map(Proxy::address).collect();
    let address = format!("etcd://{}/faults", endpoints.join(","));
    let start = |number: usize, chance: &mut Chance| {
        let folder = match number {
            // Three that can prove each other dead, and two that are as on other machines.
            0..=2 => "here".to_owned(),
            _ => format!("elsewhere-{number}"),
        };
        let job = Job {
            place: place.path().to_owned(),
            address: address.clone(),
            name: format!("client-{number}"),
            folder: place.path().join(folder),
            seed: chance.next(),
        };
        Process::start("client", &serde_json::to_string(&job).unwrap())
    };
    let mut clients: Vec<Process> = (0..CLIENTS)
        .map(|number| start(number, &mut chance))
        .collect();
    let log = |number: usize| place.path().join(format!("log-client-{number}"));
    let mut faults = Faults::default();
    for round in 0..scaled(12) {
        std::thread::sleep(chance.time(Duration::from_millis(300)));
        let (member, client) = (chance.index(3), chance.index(CLIENTS));
        let long = Duration::from_millis(200) + chance.time(Duration::from_millis(1500));
        match round % 5 {
            0 => {
                cluster.kill(member);
                std::thread::sleep(long);
                cluster.restart(member);
                faults.members_killed += 1;
            }
            1 => {
                cluster.stop(member);
                std::thread::sleep(long);
                cluster.go_on(member);
                faults.members_stopped += 1;
            }
            2 => {
                proxies[member].cut();
                std::thread::sleep(long);
                proxies[member].mend();
                faults.members_cut_off += 1;
            }
            3 => {
                clients[client].kill();
                clients[client] = start(client, &mut chance);
                faults.clients_killed += 1;
            }
            _ => {
                // One that holds the key, if there is one.
                let last = |number: usize| read(&log(number)).pop();
                let holds = |number: &usize| matches!(last(*number), Some(Line::Used { .. }));
                let client = (0..CLIENTS).find(holds).unwrap_or(client);
                clients[client].stop();
                // Beyond the end of its lease.
                std::thread::sleep(TTL + long);
                clients[client].go_on();
                faults.clients_stopped += 1;
            }
        }
    }
    cluster.until_it_answers();
    let lines = |number: usize| read(&log(number));
    let granted = |lines: &[Line]| {
        let grants = lines
            .iter()
            .filter(|line| matches!(line, Line::Granted { .. }));
        grants.count()
    };
    let before: Vec<usize> = (0..CLIENTS).map(|number| granted(&lines(number))).collect();
    within_limit("every client to get the key once more", || {
        (0..CLIENTS).all(|number| granted(&lines(number)) > before[number])
    });
    fs::write(place.path().join("stop"), "").unwrap();
    for client in &mut clients {
        client.wait_for_end();
    }
    let all: Vec<Vec<Line>> = (0..CLIENTS).map(lines).collect();
    let store = open(&address, &place.path().join("here"));
    let checked = check(&all, &store, place.path());
    println!("{checked}; faults: {faults:?}");
}

fn read(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line of a killed client may be incomplete.
    let lines = text
        .lines()
        .map_while(|line| serde_json::from_str(line).ok());
    lines.collect()
}

/// A grant, as its client saw it.
#[derive(Debug, Clone, Copy)]
struct Use {
    client: usize,
    asked: u64,
    from: u64,
    until: u64,
    token: u64,
}

fn check(logs: &[Vec<Line>], store: &EtcdStore, place: &Path) -> String {
    let mut uses: Vec<Use> = Vec::new();
    let (mut refused, mut gone, mut unknown, mut failed) = (0, 0, 0, 0);
    let mut released = BTreeSet::new();
    for (client, log) in logs.iter().enumerate() {
        for line in log {
            match line {
                Line::Granted { asked, at, token } => uses.push(Use {
                    client,
                    asked: *asked,
                    from: *at,
                    until: *at,
                    token: *token,
                }),
                Line::Used { at, token } => {
                    let used = uses.last_mut().unwrap();
                    assert_eq!(used.token, *token);
                    used.until = *at;
                }
                Line::Refused { .. } => refused += 1,
                Line::Released { token } => assert!(released.insert(*token), "released twice"),
                Line::Gone { .. } => gone += 1,
                Line::Failed { unknown: true, .. } => unknown += 1,
                Line::Failed { .. } => failed += 1,
            }
        }
    }
    // 1 and 2.
    let tokens: BTreeSet<u64> = uses.iter().map(|one| one.token).collect();
    assert_eq!(tokens.len(), uses.len(), "a token was granted twice");
    uses.sort_by_key(|one| one.from);
    for pair in uses.windows(2) {
        let [before, after] = pair else { continue };
        assert!(
            before.until < after.from,
            "both at once: {before:?}, {after:?}"
        );
    }
    let mut largest = 0;
    let mut acknowledged = uses.iter().peekable();
    let mut by_asked = uses.clone();
    by_asked.sort_by_key(|one| one.asked);
    for one in &by_asked {
        while let Some(earlier) = acknowledged.next_if(|earlier| earlier.from < one.asked) {
            largest = largest.max(earlier.token);
        }
        assert!(one.token > largest, "{one:?} came after token {largest}");
    }
    // 3.
    let accepted = fs::read_to_string(place.join("protected")).unwrap();
    let accepted: Vec<u64> = accepted.lines().map(|line| line.parse().unwrap()).collect();
    assert!(accepted.is_sorted(), "an outdated write was accepted");
    // 4.
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    assert_eq!(history::contradictions(&events), []);
    let recorded = |kind| -> BTreeSet<u64> {
        let found = history::tokens(&events, &key(), kind);
        found.into_iter().map(|token| token.0).collect()
    };
    let missing: Vec<_> = tokens
        .difference(&recorded(EventKind::Granted))
        .copied()
        .collect();
    assert!(
        missing.is_empty(),
        "the history lacks the grants {missing:?}"
    );
    let missing: Vec<_> = released
        .difference(&recorded(EventKind::Released))
        .copied()
        .collect();
    assert!(
        missing.is_empty(),
        "the history lacks the releases {missing:?}"
    );
    let clients: BTreeSet<usize> = uses.iter().map(|one| one.client).collect();
    assert_eq!(clients.len(), CLIENTS);
    format!(
        "{} grants, {} releases, {gone} leases that were lost, {refused} outdated writes refused, {unknown} unknown outcomes, {failed} failed calls",
        uses.len(),
        released.len(),
    )
}
