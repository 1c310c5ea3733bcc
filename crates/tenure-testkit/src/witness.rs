//! Sees two holders at once, and knows nothing of tenure: [`Witness`].
//!
//! Whoever believes to hold the key goes in by making one file that only one can make (a hard
//! link that must be new, with what it names already in it), writes its token into a shared log,
//! and goes out by removing the file. Whoever finds the file there looks at the process that it
//! names:
//!
//! - it is still there (same pid, same start time): two are inside. That is written down in a
//!   file of its own, so that no later crash can take it back;
//! - it is gone: the file is what a killed process left behind, and is cleared away.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::Token;

use crate::process;

/// One who watches the place where only one may be.
#[derive(Debug)]
pub struct Witness {
    place: PathBuf,
    /// What names us: the content of the file that we go in with.
    me: String,
    card: PathBuf,
    log: File,
}

impl Witness {
    /// The witness at this folder, which is made if need be. One for each process and thread.
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

    /// Goes in, works, notes the token, goes out.
    pub fn observe(&mut self, token: Token, work: impl FnOnce()) {
        let alone = self.go_in(token);
        work();
        // One write to a file that is open for appending: it is there whole, or not at all.
        self.log.write_all(format!("{token}\n").as_bytes()).unwrap();
        if alone {
            self.go_out(token);
        }
    }

    fn inside(&self) -> PathBuf {
        self.place.join("inside")
    }

    /// Whether nobody was inside.
    fn go_in(&self, token: Token) -> bool {
        loop {
            match fs::hard_link(&self.card, self.inside()) {
                Ok(()) => return true,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("the witness could not go in: {error}"),
            }
            match fs::read_to_string(self.inside()) {
                Ok(other) if is_there(&other) => {
                    self.accuse(token, &format!("{other} was inside, and is still there"));
                    return false;
                }
                // Left behind by one that was killed: nobody but us can be about to clear it away.
                Ok(_) => {
                    if fs::remove_file(self.inside()).is_err() {
                        self.accuse(token, "somebody else cleared the place as we came");
                    }
                }
                Err(_) => self.accuse(token, "somebody was inside, and left as we came"),
            }
        }
    }

    fn go_out(&self, token: Token) {
        match fs::read_to_string(self.inside()) {
            Ok(name) if name == self.me => {}
            Ok(name) => self.accuse(token, &format!("{name} came in before we left")),
            Err(_) => self.accuse(token, "somebody came in and left again before we left"),
        }
        let _ = fs::remove_file(self.inside());
    }

    fn accuse(&self, token: Token, what: &str) {
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

    /// Writes down something that a holder itself found wrong.
    pub fn complain(&self, token: Token, what: &str) {
        self.accuse(token, what);
    }
}

/// What was seen at this folder: who was not alone.
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

/// The tokens noted at this folder, in the order in which they were.
pub fn tokens(place: &Path) -> Vec<Token> {
    fs::read_to_string(place.join("tokens"))
        .unwrap_or_default()
        .lines()
        .map(|line| Token(line.parse().unwrap()))
        .collect()
}

/// How much was noted so far, in bytes: grows as long as somebody gets on.
pub fn progress(place: &Path) -> u64 {
    fs::metadata(place.join("tokens")).map_or(0, |file| file.len())
}

/// The first two tokens that stand in the wrong order, or twice.
pub fn out_of_order(tokens: &[Token]) -> Option<(Token, Token)> {
    tokens
        .windows(2)
        .find(|pair| pair[1] <= pair[0])
        .map(|pair| (pair[0], pair[1]))
}

/// Whether the process that is named runs, or may.
fn is_there(name: &str) -> bool {
    let mut fields = name.split(' ');
    let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok());
    let (Some(pid), Some(started)) = (number(), number()) else {
        panic!("the witness found a file that no witness wrote: {name:?}");
    };
    process::started(u32::try_from(pid).unwrap()) == Some(started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_are_inside_one_after_the_other_are_fine() {
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
        assert!(found[0].contains("is still there"), "{found:?}");
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
