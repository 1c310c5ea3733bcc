//! The names of the keys in etcd: [`Layout`].
//!
//! | name below the prefix | value |
//! |---|---|
//! | `v` | the version of this layout |
//! | `o` | where the tokens of the store come from |
//! | `k/KEY/g` | the guard of a key: every step that adds or removes a record of the key writes it, and compares that no other step did |
//! | `k/KEY/l/NAME` | a lease; its token is the revision at which it was created, and what `o` said then |
//! | `k/KEY/a/NAME` | the life of this lease, tied to an etcd lease: it disappears when the lease expires |
//! | `k/KEY/t/NAME` | a ticket; its number is the revision at which it was created |
//! | `s/NAME` | the session of a process that waits, tied to an etcd lease |
//! | `w/h/HOLDER/KEY/NAME` | a ticket of this holder |
//! | `w/g/TOKEN/KEY/NAME` | a ticket of a command that runs under this grant |
//! | `e/TIME-REQUEST-N` | an event |
//! | `h` | up to where the history was trimmed last: the name of an event |
//! | `t/g` | the guard of all tasks: every step that writes a task, or the lock of a task or a section, writes it, and compares that no other step did |
//! | `t/t/ID` | a task |
//! | `t/s/ID` | a section |
//! | `t/n/NAME` | the id of the section with this name, in lower case |
//! | `t/l/TITLE/ID` | a task with this title, in lower case |
//! | `t/r/ORDER` | a ready task, the best first; the value is its id and section |
//! | `t/q/SECTION/ORDER` | the same, by section; the section is empty for tasks without one |
//! | `t/p/TIME-ID` | a task that is put off until then |
//! | `t/b/ID` | an open task that waits for others |
//! | `t/c/SECTION/KIND/ID` | a task of a section, of the kind `w` (in progress), `o` (open) or `d` (closed) |
//! | `t/d/ON/ID` | the task ID depends on the task ON |
//! | `t/h/ID/TIME-FIELD` | an earlier value of a task's field |
//! | `t/x/ID` | a task that was deleted |
//! | `t/i` | present while a process asks the others not to change tasks, tied to an etcd lease |
//! | `t/j/TIME-REQUEST/N` | a part of a change that is too large for one transaction |
//!
//! Names of keys and holders are percent-encoded, so that none contains a `/`.
//!
//! Leases and tickets of a key have low numbers that are free as their names, so that few are ever used: until
//! the cluster is compacted, it walks through every name that a range has ever had.

use std::fmt::Write;

use jiff::Timestamp;
use tenure_core::{HolderId, Key, Token};

/// The version of the layout.
pub(crate) const VERSION: u32 = 1;

/// The names of a store's keys in etcd. A step makes many of them, so their parts are joined, which is faster than to
/// format them.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// With a `/` at the end.
    prefix: String,
}

/// What a name below `k/` stands for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyRecord<'a> {
    Guard,
    Lease(&'a str),
    Life(&'a str),
    Ticket(&'a str),
}

impl Layout {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: [prefix, "/"].concat(),
        }
    }

    /// A name below the prefix.
    fn below(&self, parts: &[&str]) -> String {
        let length = parts.iter().map(|part| part.len()).sum::<usize>();
        let mut name = String::with_capacity(self.prefix.len() + length);
        name.push_str(&self.prefix);
        for part in parts {
            name.push_str(part);
        }
        name
    }

    pub(crate) fn version(&self) -> String {
        self.below(&["v"])
    }

    /// Where the tokens come from.
    pub(crate) fn origin(&self) -> String {
        self.below(&["o"])
    }

    /// All records of all keys.
    pub(crate) fn keys(&self) -> String {
        self.below(&["k/"])
    }

    /// All records of one key.
    pub(crate) fn key(&self, key: &Key) -> String {
        self.below(&["k/", &encoded(key.as_str()), "/"])
    }

    fn record(&self, key: &Key, kind: &str, name: &str) -> String {
        self.below(&["k/", &encoded(key.as_str()), "/", kind, name])
    }

    pub(crate) fn guard(&self, key: &Key) -> String {
        self.record(key, "g", "")
    }

    pub(crate) fn lease(&self, key: &Key, name: &str) -> String {
        self.record(key, "l/", name)
    }

    /// The life of a lease.
    pub(crate) fn life(&self, key: &Key, name: &str) -> String {
        self.record(key, "a/", name)
    }

    pub(crate) fn ticket(&self, key: &Key, name: &str) -> String {
        self.record(key, "t/", name)
    }

    /// The key and the record that a name below `k/` stands for.
    pub(crate) fn parse<'a>(&self, name: &'a str) -> Option<(Key, KeyRecord<'a>)> {
        let (key, record) = name.strip_prefix(&self.keys())?.split_once('/')?;
        let record = match record.split_once('/') {
            None if record == "g" => KeyRecord::Guard,
            Some(("l", name)) => KeyRecord::Lease(name),
            Some(("a", name)) => KeyRecord::Life(name),
            Some(("t", name)) => KeyRecord::Ticket(name),
            _ => return None,
        };
        Some((Key::parse(decoded(key)?).ok()?, record))
    }

    pub(crate) fn session(&self, name: &str) -> String {
        self.below(&["s/", name])
    }

    /// Every wait.
    pub(crate) fn waits(&self) -> String {
        self.below(&["w/"])
    }

    /// Every wait of a holder.
    pub(crate) fn waits_of_holder(&self, holder: &HolderId) -> String {
        self.below(&["w/h/", &encoded(holder.as_str()), "/"])
    }

    /// Every wait of a command that runs under a grant.
    pub(crate) fn waits_of_grant(&self, token: Token) -> String {
        self.below(&["w/g/", &token.to_string(), "/"])
    }

    /// One wait, below one of the two prefixes above.
    pub(crate) fn wait(prefix: &str, key: &Key, name: &str) -> String {
        [prefix, &encoded(key.as_str()), "/", name].concat()
    }

    /// The key of a wait, below one of the two prefixes above.
    pub(crate) fn waited_key(prefix: &str, name: &str) -> Option<Key> {
        let (key, _) = name.strip_prefix(prefix)?.split_once('/')?;
        Key::parse(decoded(key)?).ok()
    }

    /// The key of a wait, below [`Self::waits`].
    pub(crate) fn key_of_wait(&self, name: &str) -> Option<Key> {
        let mut parts = name.strip_prefix(&self.waits())?.split('/').skip(2);
        Key::parse(decoded(parts.next()?)?).ok()
    }

    pub(crate) fn events(&self) -> String {
        self.below(&["e/"])
    }

    /// The names sort by time.
    pub(crate) fn event(&self, at: Timestamp, request: &str, number: usize) -> String {
        // Until the year 2554.
        let nanoseconds = u64::try_from(at.as_nanosecond().max(0)).unwrap_or(u64::MAX);
        format!("{}{nanoseconds:020}-{request}-{number}", self.events())
    }

    /// Where the history was trimmed last.
    pub(crate) fn history_begins(&self) -> String {
        self.below(&["h"])
    }
}

impl Layout {
    /// Everything about tasks.
    pub(crate) fn tasks(&self) -> String {
        self.below(&["t/"])
    }

    pub(crate) fn task_guard(&self) -> String {
        self.tasks() + "g"
    }

    pub(crate) fn task_turn(&self) -> String {
        self.tasks() + "i"
    }

    /// All names of one kind.
    pub(crate) fn all(&self, kind: char) -> String {
        format!("{}{kind}/", self.tasks())
    }

    /// One name, of one or more parts.
    pub(crate) fn entry(&self, kind: char, parts: &[&str]) -> String {
        let parts: Vec<String> = parts.iter().map(|part| encoded(part)).collect();
        self.all(kind) + &parts.join("/")
    }

    /// The part of a name after this prefix, decoded.
    pub(crate) fn rest(prefix: &str, name: &str) -> Option<String> {
        decoded(name.strip_prefix(prefix)?)
    }

    /// The records of all sections' locks.
    pub(crate) fn section_keys(&self) -> String {
        self.keys() + "section:"
    }
}

/// Percent-encodes everything that is not plainly a part of a name.
pub(crate) fn encoded(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b':' | b'@' => {
                name.push(char::from(byte));
            }
            _ => {
                // Writing to a string can't fail.
                let _ = write!(name, "%{byte:02X}");
            }
        }
    }
    name
}

/// Undoes [`encoded`].
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_key() {
        let layout = Layout::new("team/x");
        for name in ["build", "task:a/b", "ü %", "a/l/b", "100%/"] {
            let key = Key::parse(name).unwrap();
            assert_eq!(
                layout.parse(&layout.lease(&key, "n-1")),
                Some((key.clone(), KeyRecord::Lease("n-1"))),
            );
            assert_eq!(
                layout.parse(&layout.ticket(&key, "n-1")),
                Some((key.clone(), KeyRecord::Ticket("n-1"))),
            );
            assert_eq!(
                layout.parse(&layout.guard(&key)),
                Some((key.clone(), KeyRecord::Guard)),
            );
            let prefix = layout.waits_of_grant(Token(7));
            let wait = Layout::wait(&prefix, &key, "n-1");
            assert_eq!(layout.key_of_wait(&wait), Some(key.clone()));
            assert_eq!(Layout::waited_key(&prefix, &wait), Some(key));
        }
        assert_eq!(layout.parse("team/x/k/a%G1/g"), None);
        assert_eq!(layout.parse("other"), None);
    }
}
