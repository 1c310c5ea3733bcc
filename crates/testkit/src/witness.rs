//! Detects two holders at once, without any code of tenure: [`Witness`].
//!
//! A process that holds the key enters a critical section by creating a file that only one process can
//! create (a new hard link to a file that names the process), appends its token to a shared log, and leaves
//! by removing the file. A process that finds the file there examines the process that it names:
//!
//! - if it still runs (same pid, same start time), there are two holders. The witness records that in a
//!   separate file, so that no later crash can hide it;
//! - if it has exited, the file is the remnant of a killed process, and the witness removes it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::{Lease, Mode, Token};

use crate::process;

/// Watches a critical section that only one holder may be in.
#[derive(Debug)]
pub struct Witness {
    place: PathBuf,
    /// The name of this process: the content of the file that it enters with.
    me: String,
    card: PathBuf,
    log: File,
}

impl Witness {
    /// The witness of this folder, which is created if necessary. One for each process and thread.
    pub fn at(place: &Path) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let (pid, serial) = (std::process::id(), SERIAL.fetch_add(1, Ordering::SeqCst));
        let me = format!("{pid} {} {serial}", process::started(pid).unwrap());
        fs::create_dir_all(place).unwrap();
        let card = place.join(format!("card-{}", me.replace(' ', "-")));
        fs::write(&card, &me).unwrap();
        let log = File::options()
            .append(true)
            .create(true)
            .open(place.join("tokens"))
            .unwrap();
        Self {
            place: place.to_owned(),
            me,
            card,
            log,
        }
    }

    /// Enters, works, logs the token, leaves.
    pub fn observe(&mut self, token: Token, work: impl FnOnce()) {
        let alone = self.enter(token);
        work();
        // One write to a file that is open for appending is complete or does not happen.
        self.log.write_all(format!("{token}\n").as_bytes()).unwrap();
        if alone {
            self.leave(token);
        }
    }

    fn inside(&self) -> PathBuf {
        self.place.join("inside")
    }

    /// Enters, and returns whether no other process was inside.
    fn enter(&self, token: Token) -> bool {
        loop {
            match fs::hard_link(&self.card, self.inside()) {
                Ok(()) => return true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("the witness could not enter: {error}"),
            }
            match fs::read_to_string(self.inside()) {
                Ok(other) if is_there(&other) => {
                    self.record_violation(token, &format!("{other} was inside, and still runs"));
                    return false;
                }
                // The remnant of a killed process. Only one holder can be about to remove it.
                Ok(_) => {
                    if fs::remove_file(self.inside()).is_err() {
                        self.record_violation(
                            token,
                            "another process removed the remnant of a dead holder meanwhile",
                        );
                    }
                }
                Err(_) => self.record_violation(
                    token,
                    "another process was inside, and left as this one entered",
                ),
            }
        }
    }

    fn leave(&self, token: Token) {
        match fs::read_to_string(self.inside()) {
            Ok(name) if name == self.me => {}
            Ok(name) => {
                self.record_violation(token, &format!("{name} entered before this process left"));
            }
            Err(_) => self.record_violation(
                token,
                "another process entered and left before this one left",
            ),
        }
        let _ = fs::remove_file(self.inside());
    }

    fn record_violation(&self, token: Token, what: &str) {
        let name = format!("violation-{}-{token}", self.me.replace(' ', "-"));
        let words = format!(
            "{} was inside with token {token}: {what} (pid, start, serial)\n",
            self.me
        );
        let mut file = File::options()
            .append(true)
            .create(true)
            .open(self.place.join(name))
            .unwrap();
        file.write_all(words.as_bytes()).unwrap();
    }

    /// Records a violation that a holder itself detected.
    pub fn complain(&self, token: Token, what: &str) {
        self.record_violation(token, what);
    }
}

/// Watches a critical section that several holders may be in, if the modes of their leases allow it. The kernel's own
/// locks decide: one file for all holders, and one for each slot.
#[derive(Debug)]
pub struct Admission {
    all: File,
    slots: Vec<File>,
    places: Vec<File>,
}

/// The modes of reservations in a contest, and the places that each of them covers, as a person reads them.
pub const RESERVATIONS: [(&str, &[usize]); 9] = [
    ("paths:a", &[0, 1]),
    ("paths:a/1", &[0]),
    ("paths:b/2/.", &[3]),
    ("paths:*/2", &[1, 3]),
    ("paths:b/[1-9]", &[2, 3]),
    ("paths:a/2 b/1", &[1, 2]),
    ("shared-paths:**", &[0, 1, 2, 3]),
    ("shared-paths:a/1 b/2", &[0, 3]),
    ("shared-paths:b/**", &[2, 3]),
];

impl Admission {
    /// How many slots there may be.
    const SLOTS: u32 = 8;

    /// How many places [`RESERVATIONS`] name: `a/1`, `a/2`, `b/1` and `b/2`.
    const PLACES: u32 = 4;

    /// The witness of this folder, which must exist. One for each process and thread.
    pub fn at(place: &Path) -> Self {
        let open = |name: String| {
            let mut options = File::options();
            let options = options.append(true).create(true);
            options.open(place.join(name)).unwrap()
        };
        Self {
            all: open("all".into()),
            slots: (0..Self::SLOTS)
                .map(|slot| open(format!("slot-{slot}")))
                .collect(),
            places: (0..Self::PLACES)
                .map(|place| open(format!("place-{place}")))
                .collect(),
        }
    }

    /// Enters as the mode of the lease allows, works, logs the token, leaves.
    pub fn observe(&mut self, witness: &Witness, lease: &Lease, work: impl FnOnce()) {
        let slot = lease.slot.map(|slot| &self.slots[slot as usize]);
        let entered = match lease.mode {
            Mode::Exclusive => self.all.try_lock(),
            Mode::Shared | Mode::Slots(_) | Mode::Paths(_) => self.all.try_lock_shared(),
        };
        let written = lease.mode.to_string();
        let reserved = RESERVATIONS.iter().find(|(mode, _)| *mode == written);
        let places: Vec<&File> = reserved
            .map(|(_, places)| *places)
            .unwrap_or_default()
            .iter()
            .map(|place| &self.places[*place])
            .collect();
        let is_reader = written.starts_with("shared");
        let taken = places.iter().any(|place| {
            let entered = if is_reader {
                place.try_lock_shared()
            } else {
                place.try_lock()
            };
            entered.is_err()
        });
        if taken || entered.is_err() || slot.is_some_and(|slot| slot.try_lock().is_err()) {
            let what = format!("{} {:?}: another was inside", lease.mode, lease.slot);
            witness.record_violation(lease.token, &what);
        }
        work();
        let token = lease.token;
        let mut log = &witness.log;
        log.write_all(format!("{token}\n").as_bytes()).unwrap();
        for file in slot.into_iter().chain(places).chain([&self.all]) {
            file.unlock().unwrap();
        }
    }
}

/// The violations that were recorded in this folder.
pub fn violations(place: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(place) else {
        return vec![];
    };
    let mut found: Vec<String> = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("violation"))
        .map(|entry| {
            fs::read_to_string(entry.path())
                .unwrap()
                .trim_end()
                .to_owned()
        })
        .collect();
    found.sort();
    found
}

/// The tokens that were logged in this folder, in order.
pub fn tokens(place: &Path) -> Vec<Token> {
    fs::read_to_string(place.join("tokens"))
        .unwrap_or_default()
        .lines()
        .map(|line| Token(line.parse().unwrap()))
        .collect()
}

/// The size of the log, in bytes. It grows as long as any process makes progress.
pub fn progress(place: &Path) -> u64 {
    fs::metadata(place.join("tokens")).map_or(0, |file| file.len())
}

/// The first two consecutive tokens of which the second is not larger.
pub fn out_of_order(tokens: &[Token]) -> Option<(Token, Token)> {
    tokens
        .windows(2)
        .find(|pair| pair[1] <= pair[0])
        .map(|pair| (pair[0], pair[1]))
}

/// Whether the named process runs.
fn is_there(name: &str) -> bool {
    let mut fields = name.split(' ');
    let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok());
    let (Some(pid), Some(started)) = (number(), number()) else {
        panic!("a file that no witness wrote: {name:?}");
    };
    process::started(u32::try_from(pid).unwrap()) == Some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_holders_one_after_the_other_are_no_violation() {
        let dir = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (Witness::at(dir.path()), Witness::at(dir.path()));
        a.observe(Token(1), || ());
        b.observe(Token(2), || ());
        a.observe(Token(3), || ());
        assert_eq!(violations(dir.path()), Vec::<String>::new());
        assert_eq!(tokens(dir.path()), [Token(1), Token(2), Token(3)]);
    }

    #[test]
    fn two_that_are_inside_together_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (Witness::at(dir.path()), Witness::at(dir.path()));
        a.observe(Token(1), || b.observe(Token(2), || ()));
        let found = violations(dir.path());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("still runs"), "{found:?}");
        assert_eq!(
            out_of_order(&tokens(dir.path())),
            Some((Token(2), Token(1)))
        );
    }

    #[test]
    fn two_holders_without_a_lock_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for holder in 0..2 {
                let mut witness = Witness::at(dir.path());
                scope.spawn(move || {
                    for round in 0..2000 {
                        witness.observe(Token(2 * round + holder), std::thread::yield_now);
                    }
                });
            }
        });
        assert!(!violations(dir.path()).is_empty());
        assert!(out_of_order(&tokens(dir.path())).is_some());
    }

    #[test]
    fn what_a_killed_process_left_behind_is_cleared_away() {
        let dir = tempfile::tempdir().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let us = std::process::id();
        let another_with_our_pid = format!("{us} 1 0");
        for left in [format!("{} 1 0", child.id()), another_with_our_pid] {
            fs::write(dir.path().join("inside"), left).unwrap();
            Witness::at(dir.path()).observe(Token(1), || ());
        }
        assert_eq!(violations(dir.path()), Vec::<String>::new());
    }
}
