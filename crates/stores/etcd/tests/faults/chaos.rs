//! Three members and five clients that contend for one key and share a queue of tasks, while all kinds of faults happen to
//! them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use tenure_core::{HistoryQuery, Records};
use tenure_tasks::{TaskQuery, TaskStore};
use tenure_testkit::limit::within_limit;
use tenure_testkit::{Chance, Etcd, Process, Proxy, scaled, soon};

use super::TTL;
use super::checker::check;
use super::client::{Job, Line, open, read};

const CLIENTS: usize = 5;

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    MemberKilled,
    MajorityKilled,
    MemberStopped,
    /// Its clients do not reach it, and it does not know that.
    MemberCutOffFromClients,
    /// It reaches no other member, but its clients reach it.
    MemberCutOffFromMembers,
    LeaderCutOffFromMembers,
    LeaderMoved,
    ClientKilled,
    HolderStopped,
    WaiterStopped,
}

const FAULTS: [Fault; 10] = [
    Fault::MemberKilled,
    Fault::MajorityKilled,
    Fault::MemberStopped,
    Fault::MemberCutOffFromClients,
    Fault::MemberCutOffFromMembers,
    Fault::LeaderCutOffFromMembers,
    Fault::LeaderMoved,
    Fault::ClientKilled,
    Fault::HolderStopped,
    Fault::WaiterStopped,
];

/// The cluster and its clients.
struct Scene<'a> {
    place: &'a Path,
    cluster: Etcd,
    /// Between the clients and each member.
    proxies: Vec<Proxy>,
    clients: Vec<Process>,
    chance: Chance,
}

impl Scene<'_> {
    fn endpoints(&self) -> String {
        let endpoints: Vec<&str> = self.proxies.iter().map(Proxy::address).collect();
        endpoints.join(",")
    }

    fn start_client(&mut self, number: usize) -> Process {
        let folder = match number {
            // Three that can prove each other dead, and two that are as on other machines.
            0..=2 => "here".to_owned(),
            _ => format!("elsewhere-{number}"),
        };
        let job = Job {
            place: self.place.to_owned(),
            endpoints: self.endpoints(),
            name: format!("client-{number}"),
            folder: self.place.join(folder),
            seed: self.chance.next(),
        };
        Process::start("client::client", &serde_json::to_string(&job).unwrap())
    }

    fn log(&self, client: usize) -> Vec<Line> {
        read(&self.place.join(format!("log-client-{client}")))
    }

    /// A client that holds the key, or one that does not, if there is one at the moment.
    fn find_client(&mut self, holds: bool) -> usize {
        let any = self.chance.index(CLIENTS);
        let is_wanted = |client: &usize| {
            let last = self.log(*client).pop();
            matches!(last, Some(Line::Used { .. } | Line::Granted { .. })) == holds
        };
        let mut clients = (0..CLIENTS).map(|number| (any + number) % CLIENTS);
        clients.find(is_wanted).unwrap_or(any)
    }

    fn grants(&self, client: usize) -> usize {
        let log = self.log(client);
        let grants = log
            .iter()
            .filter(|line| matches!(line, Line::Granted { .. }));
        grants.count()
    }

    fn all_grants(&self) -> usize {
        (0..CLIENTS).map(|client| self.grants(client)).sum()
    }

    /// Lets it happen, and repairs it. Returns whether it happened.
    fn happen(&mut self, fault: Fault) -> bool {
        let member = self.chance.index(3);
        let long = Duration::from_millis(200) + self.chance.time(Duration::from_millis(1500));
        let last = || std::thread::sleep(long);
        // Long enough for the others to elect a leader.
        let elect = || std::thread::sleep(TTL + long);
        match fault {
            Fault::MemberKilled => {
                self.cluster.kill(member);
                last();
                self.cluster.restart(member);
            }
            Fault::MajorityKilled => {
                let other = (member + 1) % 3;
                self.cluster.kill(member);
                self.cluster.kill(other);
                last();
                self.cluster.restart(member);
                self.cluster.restart(other);
            }
            Fault::MemberStopped => {
                self.cluster.stop(member);
                last();
                self.cluster.go_on(member);
            }
            Fault::MemberCutOffFromClients => {
                self.proxies[member].cut();
                last();
                self.proxies[member].mend();
            }
            Fault::MemberCutOffFromMembers => {
                self.cluster.cut_off(member);
                elect();
                self.cluster.connect(member);
            }
            Fault::LeaderCutOffFromMembers => {
                let Some(leader) = self.cluster.leader() else {
                    return false;
                };
                self.cluster.cut_off(leader);
                elect();
                self.cluster.connect(leader);
            }
            Fault::LeaderMoved => return self.cluster.move_leader(),
            Fault::ClientKilled => {
                let client = self.chance.index(CLIENTS);
                self.clients[client].kill();
                self.clients[client] = self.start_client(client);
            }
            Fault::HolderStopped | Fault::WaiterStopped => {
                let client = self.find_client(fault == Fault::HolderStopped);
                self.clients[client].stop();
                // Beyond the end of its lease, or of its session.
                std::thread::sleep(TTL + long);
                self.clients[client].go_on();
            }
        }
        true
    }
}

#[test]
fn no_fault_of_members_or_clients_gives_the_key_to_two() {
    let place = tempfile::tempdir().unwrap();
    let seed = Chance::seed();
    println!("seed {seed}");
    let cluster = Etcd::start_divisible(3);
    let mut scene = Scene {
        place: place.path(),
        proxies: cluster.endpoints().map(Proxy::to).collect(),
        cluster,
        clients: Vec::new(),
        chance: Chance::apart(seed, "faults"),
    };
    for number in 0..CLIENTS {
        let client = scene.start_client(number);
        scene.clients.push(client);
    }
    let mut happened: BTreeMap<Fault, u32> = BTreeMap::new();
    for _ in 0..scaled(1) {
        let mut faults = FAULTS;
        scene.chance.shuffle(&mut faults);
        for fault in faults {
            if scene.happen(fault) {
                *happened.entry(fault).or_default() += 1;
            }
            let repaired = scene.all_grants();
            within_limit("the clients to go on", || {
                scene.all_grants() > repaired + CLIENTS
            });
        }
    }
    scene.cluster.until_it_answers();
    let before: Vec<usize> = (0..CLIENTS).map(|number| scene.grants(number)).collect();
    within_limit("every client to get the key once more", || {
        (0..CLIENTS).all(|number| scene.grants(number) > before[number])
    });
    fs::write(place.path().join("stop"), "").unwrap();
    for client in &mut scene.clients {
        client.wait_for_end();
    }
    let logs: Vec<Vec<Line>> = (0..CLIENTS).map(|number| scene.log(number)).collect();
    let store = open(&scene.endpoints(), &place.path().join("here"));
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    let tasks = store.tasks(&TaskQuery::default(), soon()).unwrap();
    let checked = check(&logs, &events, &tasks, place.path());
    // Not println: what was checked is worth reading after a test that passed, too.
    let _ = writeln!(
        std::io::stderr(),
        "checked on etcd: {checked}; faults: {happened:?}"
    );
}
