//! Events: append, prune, tell. One JSON object a line, in the file `history` of the sidecar folder.
//!
//! An event is written after what it tells of has happened and before the step is off the record,
//! so a crash in between is repaired by whoever finishes the step; `state` knows how long the
//! file was, so that nothing is told twice.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tenure_core::{Event, EventKind, Evidence, HistoryQuery, HolderId, Key, StoreError, Token};

use crate::state::{Sidecar, State};
use tenure_host::files::atomic::{self, Sync};
use tenure_host::files::fault::explain;
use tenure_host::files::sidecar::{cut_torn_line, open_history};

/// How often, in events, something is pruned.
const PRUNE_EVERY: u64 = 1024;

/// How much of the past to keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    pub(crate) age: Duration,
    pub(crate) events: u64,
}

/// One line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Line {
    #[serde(default)]
    pub(crate) id: u64,
    pub(crate) at: Timestamp,
    pub(crate) key: Key,
    pub(crate) kind: EventKind,
    pub(crate) token: Token,
    pub(crate) holder: HolderId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) evidence: Option<Evidence>,
}

impl Line {
    pub(crate) fn new(
        at: Timestamp,
        key: &Key,
        kind: EventKind,
        token: Token,
        holder: &HolderId,
    ) -> Self {
        Self {
            id: 0,
            at,
            key: key.clone(),
            kind,
            token,
            holder: holder.clone(),
            reason: None,
            evidence: None,
        }
    }

    fn event(self) -> Event {
        Event {
            id: self.id,
            at: self.at,
            key: self.key,
            kind: self.kind,
            token: self.token,
            holder: self.holder,
            times: 1,
            reason: self.reason,
            evidence: self.evidence,
        }
    }
}

/// Whether some of the lines may be there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    No,
    /// Somebody was killed while writing them.
    Perhaps,
}

/// Appends some lines and counts them in `state`.
pub(crate) fn append(
    sidecar: &Sidecar,
    state: &mut State,
    lines: Vec<Line>,
    again: Again,
    keep: Keep,
) -> Result<(), StoreError> {
    let path = sidecar.history();
    let write = || {
        let mut file = open_history(&path)?;
        let mut there = state.last_event;
        if file.metadata()?.len() != state.history_bytes {
            there = mend(&mut file)?.max(there);
        }
        if again == Again::No {
            state.last_event = there;
        }
        let before = state.last_event / PRUNE_EVERY;
        let mut text = Vec::new();
        let mut now = None;
        for mut line in lines {
            state.last_event = state.last_event.saturating_add(1);
            line.id = state.last_event;
            now = Some(line.at);
            if line.id > there {
                serde_json::to_writer(&mut text, &line).map_err(io::Error::other)?;
                text.push(b'\n');
            }
        }
        file.write_all(&text)?;
        state.history_bytes = file.metadata()?.len();
        if let Some(now) = now
            && state.last_event / PRUNE_EVERY > before
        {
            state.history_bytes = prune(sidecar, &path, now, keep)?;
        }
        Ok(())
    };
    write().map_err(|error| explain("written", &path, error))
}

/// The id of the last event. A line that was torn by a power cut is cut off.
fn mend(file: &mut File) -> io::Result<u64> {
    let lines = cut_torn_line(file)?;
    let last = lines
        .split(|byte| *byte == b'\n')
        .rev()
        .find_map(|line| serde_json::from_slice::<Line>(line).ok());
    Ok(last.map_or(0, |line| line.id))
}

fn lines(path: &Path) -> io::Result<Vec<Line>> {
    match fs::read(path) {
        Ok(bytes) => Ok(bytes
            .split(|byte| *byte == b'\n')
            // What is no event is a note, or was torn or written by somebody else.
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Drops what is too old or too much, but never the newest; how long the rest is.
fn prune(sidecar: &Sidecar, path: &Path, now: Timestamp, keep: Keep) -> io::Result<u64> {
    let all = lines(path)?;
    let too_many = all
        .len()
        .saturating_sub(usize::try_from(keep.events).unwrap_or(usize::MAX).max(1));
    let oldest = SignedDuration::try_from(keep.age)
        .ok()
        .and_then(|age| now.checked_sub(age).ok())
        .unwrap_or(Timestamp::MIN);
    let too_old = all
        .iter()
        .take(all.len().saturating_sub(1))
        .take_while(|line| line.at < oldest)
        .count();
    let dropped = too_many.max(too_old);
    if dropped == 0 {
        return Ok(path.metadata()?.len());
    }
    let mut text = Vec::new();
    for line in all.iter().skip(dropped) {
        serde_json::to_writer(&mut text, line).map_err(io::Error::other)?;
        text.push(b'\n');
    }
    let temp = sidecar.path().join("history.new");
    atomic::replace(path, &temp, &text, Sync::Later)?;
    Ok(u64::try_from(text.len()).unwrap_or(0))
}

/// The newest events that match, oldest first.
pub(crate) fn tell(sidecar: &Sidecar, query: &HistoryQuery) -> Result<Vec<Event>, StoreError> {
    let path = sidecar.history();
    let mut events: Vec<Event> = lines(&path)
        .map_err(|error| explain("read", &path, error))?
        .into_iter()
        .filter(|line| query.key.as_ref().is_none_or(|key| line.key == *key))
        .filter(|line| query.since.is_none_or(|since| line.at >= since))
        .map(Line::event)
        .collect();
    let too_many = events
        .len()
        .saturating_sub(query.limit.unwrap_or(usize::MAX));
    Ok(events.split_off(too_many))
}

/// The newest token and event on record, for when the state was lost.
pub(crate) fn newest(sidecar: &Sidecar) -> (Token, u64) {
    let all = lines(&sidecar.history()).unwrap_or_default();
    let token = all.iter().map(|line| line.token).max();
    let event = all.iter().map(|line| line.id).max();
    (token.unwrap_or(Token::NONE), event.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(token: u64) -> Line {
        let (key, holder) = (
            Key::parse("database").unwrap(),
            HolderId::parse("a").unwrap(),
        );
        Line::new(
            Timestamp::UNIX_EPOCH,
            &key,
            EventKind::Granted,
            Token(token),
            &holder,
        )
    }

    const KEEP: Keep = Keep {
        age: Duration::MAX,
        events: 100,
    };

    fn told(sidecar: &Sidecar) -> Vec<(u64, u64)> {
        let events = tell(sidecar, &HistoryQuery::default()).unwrap();
        events
            .iter()
            .map(|event| (event.id, event.token.0))
            .collect()
    }

    #[test]
    fn what_was_written_before_a_crash_is_not_told_twice() {
        let dir = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::new(dir.path());
        let mut state = State::default();
        append(&sidecar, &mut state, vec![line(1)], Again::No, KEEP).unwrap();
        let mut lost = state.clone();
        append(&sidecar, &mut lost, vec![line(2), line(3)], Again::No, KEEP).unwrap();
        let again = vec![line(2), line(3)];
        append(&sidecar, &mut state, again, Again::Perhaps, KEEP).unwrap();
        assert_eq!(told(&sidecar), [(1, 1), (2, 2), (3, 3)]);
        assert_eq!(
            (state.last_event, state.history_bytes),
            (3, lost.history_bytes)
        );
    }

    #[test]
    fn a_torn_line_is_cut_off_and_a_note_is_no_event() {
        let dir = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::new(dir.path());
        let mut state = State::default();
        append(&sidecar, &mut state, vec![line(1)], Again::No, KEEP).unwrap();
        let mut file = open_history(&sidecar.history()).unwrap();
        file.write_all(b"{\"id\":2,\"at\"").unwrap();
        sidecar.note(Timestamp::UNIX_EPOCH, "torn").unwrap();
        append(&sidecar, &mut state, vec![line(2)], Again::No, KEEP).unwrap();
        assert_eq!(told(&sidecar), [(1, 1), (2, 2)]);
        assert_eq!(newest(&sidecar), (Token(2), 2));
    }

    #[test]
    fn the_oldest_are_pruned_and_the_newest_stay() {
        let dir = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::new(dir.path());
        let mut state = State::default();
        for token in 1..=PRUNE_EVERY {
            append(&sidecar, &mut state, vec![line(token)], Again::No, KEEP).unwrap();
        }
        let left = told(&sidecar);
        assert_eq!(left.len(), 100);
        assert_eq!(left.last(), Some(&(PRUNE_EVERY, PRUNE_EVERY)));
        append(&sidecar, &mut state, vec![line(9999)], Again::No, KEEP).unwrap();
        assert_eq!(told(&sidecar).len(), 101);
    }
}
