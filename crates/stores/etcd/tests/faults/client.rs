//! A client that gets the key, uses it and gives it back, again and again, and the log that it writes.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::{Acquired, ErrorKind, Lease, Records, Released, Renewed, Store, StoreError};
use tenure_etcd::{Comparison, EtcdOptions, EtcdStore};
use tenure_host::clock::since_boot;
use tenure_tasks::{Change, Edit, Proof, Status, TaskError, TaskStore};
use tenure_testkit::task_battery::{new_task, runner};
use tenure_testkit::{Ask, Chance, process, soon};

use super::{TTL, key, open_with};

/// How long a client uses its lease: until a tenth of the time to live is left, by its own clock.
const TRUST: Duration = Duration::from_millis(1800);

/// The job of one client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) place: PathBuf,
    pub(crate) endpoints: String,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
}

/// One line of a client's log, with the time since boot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Line {
    /// The key was granted: asked and acknowledged at these times.
    Granted { asked: u64, at: u64, token: u64 },
    /// The key was used.
    Used { at: u64, token: u64 },
    /// The lease was extended.
    Renewed { token: u64 },
    /// A write was refused, because a larger token has written.
    Refused { token: u64 },
    /// A transaction that depends on the lease was made.
    Transaction { when: When, accepted: bool },
    /// The release was acknowledged.
    Released { token: u64 },
    /// The lease was gone.
    Gone { token: u64 },
    /// A task with this title was added.
    TaskAdded { title: String },
    /// A task was begun, and ended.
    TaskDone { id: String },
    /// A call failed.
    Failed { unknown: bool, what: String },
}

/// When a transaction that depends on a lease was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum When {
    /// The lease was trusted before and after it.
    Trusted,
    /// The lease was held, and might have expired.
    Doubtful,
    /// The lease had ended.
    Outdated,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap()
}

/// Opens the store that all clients use.
pub(crate) fn open(endpoints: &str, folder: &Path) -> EtcdStore {
    let options = EtcdOptions {
        // The checker needs all of it.
        history_events: 10_000_000,
        ..EtcdOptions::default()
    };
    open_with(&format!("etcd://{endpoints}/faults"), folder, options)
}

/// Not a test: the entry point of the clients.
#[test]
fn client() {
    let Some(job) = process::job() else { return };
    let job: Job = serde_json::from_str(&job).unwrap();
    let store = open(&job.endpoints, &job.folder);
    let mut client = Client {
        log: append(&job.place.join(format!("log-{}", job.name))),
        chance: Chance::from_seed(job.seed),
        job,
    };
    while !client.job.place.join("stop").exists() {
        client.round(&store);
        if client.chance.one_in(2) {
            client.tasks(&store);
        }
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
        let token = lease.token;
        let held = if self.chance.one_in(10) {
            let found = store.comparisons(&key(), token, soon());
            found.ok().flatten()
        } else {
            None
        };
        let trusted_since = self.use_it(store, asked, &lease);
        if let Some(held) = &held {
            let is_trusted = || since_boot().saturating_sub(trusted_since) < TRUST;
            let before = is_trusted();
            let accepted = self.transact(held);
            let when = if before && is_trusted() {
                When::Trusted
            } else {
                When::Doubtful
            };
            self.transaction(when, accepted);
        }
        match store.release(&lease.grant(), soon()) {
            Ok(Released::Freed(_)) => self.write(&Line::Released { token: token.0 }),
            Ok(Released::AlreadyGone(_)) => {
                self.write(&Line::Gone { token: token.0 });
                // As a holder that does not look at its clock.
                if !self.write_fenced(token.0) {
                    self.write(&Line::Refused { token: token.0 });
                }
            }
            Err(error) => return self.failed(&error),
        }
        if let Some(held) = &held {
            let accepted = self.transact(held);
            self.transaction(When::Outdated, accepted);
        }
    }

    /// Adds a task, begins the next one that is ready, and ends it.
    fn tasks(&mut self, store: &EtcdStore) {
        let title = format!("{} {}", self.job.name, self.chance.next());
        match store.add_task(&new_task(&title), soon()) {
            Ok(_) => self.write(&Line::TaskAdded { title }),
            Err(error) => return self.task_failed(error),
        }
        let begun = match store.next(&runner(store, &self.job.name), soon()) {
            Ok(Acquired::Granted(begun)) => begun,
            Ok(_) => return,
            Err(error) => return self.task_failed(error),
        };
        let (id, proof) = (begun.task.id, Proof::Token(begun.lease.token));
        let done = Change::To(Status::Completed);
        match store.change(&id, &proof, &done, &Edit::default(), soon()) {
            Ok(_) => self.write(&Line::TaskDone { id }),
            Err(error) => self.task_failed(error),
        }
    }

    fn task_failed(&mut self, error: TaskError) {
        match error {
            TaskError::Store(error) => self.failed(&error),
            // Its lease was taken over.
            refused => self.write(&Line::Failed {
                unknown: false,
                what: refused.to_string(),
            }),
        }
    }

    /// Uses the key for as long as it can be trusted, at most. Returns when that was asked for last.
    fn use_it(&mut self, store: &EtcdStore, asked: Duration, lease: &Lease) -> Duration {
        let (token, mut trusted_since) = (lease.token.0, asked);
        // Mostly a few times; sometimes until it can't be trusted any more.
        let to_the_end = self.chance.one_in(60);
        let mut left = if to_the_end {
            u64::MAX
        } else {
            1 + self.chance.below(30)
        };
        while left > 0 {
            left -= 1;
            let at = since_boot();
            if at.saturating_sub(trusted_since) >= TRUST {
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
            if !to_the_end && self.chance.one_in(30) {
                let asked = since_boot();
                match store.renew(&lease.grant(), TTL, soon()) {
                    Ok(Renewed::Extended(_)) => {
                        trusted_since = asked;
                        self.write(&Line::Renewed { token });
                    }
                    Ok(Renewed::Lost(_)) => break,
                    Err(error) => self.failed(&error),
                }
            }
        }
        trusted_since
    }

    fn failed(&mut self, error: &StoreError) {
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

    /// Makes a transaction that depends on a lease, as any program would. `None` if it is not known what became of it.
    fn transact(&self, held: &[Comparison]) -> Option<bool> {
        let mut etcdctl = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args([
                "--endpoints",
                &self.job.endpoints,
                "--command-timeout",
                "2s",
            ])
            .arg("txn")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = etcdctl.stdin.take().unwrap();
        for comparison in held {
            writeln!(input, "{comparison}").unwrap();
        }
        write!(input, "\nput protected {}\n\n\n", self.job.name).unwrap();
        drop(input);
        let said = etcdctl.wait_with_output().unwrap();
        match said.stdout.split(|byte| *byte == b'\n').next()? {
            b"SUCCESS" => Some(true),
            b"FAILURE" => Some(false),
            _ => None,
        }
    }

    fn transaction(&mut self, when: When, accepted: Option<bool>) {
        if let Some(accepted) = accepted {
            self.write(&Line::Transaction { when, accepted });
        }
    }
}

fn append(path: &Path) -> File {
    let options = File::options().append(true).create(true).open(path);
    options.unwrap()
}

/// What a client has logged so far.
pub(crate) fn read(path: &Path) -> Vec<Line> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line of a killed client may be incomplete.
    let lines = text
        .lines()
        .map_while(|line| serde_json::from_str(line).ok());
    lines.collect()
}
