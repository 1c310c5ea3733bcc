//! The history of a lock: one JSON object per line in the sidecar's `history` file.
//!
//! A step appends its events after it changed the lock and before it clears `pending`. If it is
//! killed in between, the next step appends them again; the state records the last event id, so no
//! event appears twice.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tenure_core::{Event, EventKind, Evidence, HistoryQuery, HolderId, Key, StoreError, Token};

use crate::state::SidecarState;
use tenure_host::files::Sidecar;
use tenure_host::files::atomic::{self, Durability};
use tenure_host::files::beneath;
use tenure_host::files::fault::explain;
use tenure_host::files::look::if_there;
use tenure_host::files::sidecar::{cut_torn_line, open_history};

/// The largest history that is read, in bytes: far more than the retention leaves.
const LARGEST: u64 = 256 << 20;

/// After how many events the history is pruned.
const PRUNE_EVERY: u64 = 1024;

/// How much of the history to keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retention {
    pub(crate) age: Duration,
    pub(crate) events: u64,
}

/// One line of the history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HistoryLine {
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
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) waited: Option<Duration>,
}

impl HistoryLine {
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
            waited: None,
        }
    }

    fn event(self) -> Event {
        Event {
            id: self.id,
            at: self.at,
            key: self.key,
            kind: self.kind,
            mode: tenure_core::Mode::Exclusive,
            token: self.token,
            holder: self.holder,
            times: 1,
            reason: self.reason,
            evidence: self.evidence,
            waited: self.waited,
        }
    }
}

/// Whether the events may have been written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AppendAttempt {
    First,
    /// A step that was killed may have written some of them.
    Repeated,
}

/// Appends events and counts them in `state`.
pub(crate) fn append(
    sidecar: &Sidecar,
    state: &mut SidecarState,
    lines: Vec<HistoryLine>,
    attempt: AppendAttempt,
    retention: Retention,
) -> Result<(), StoreError> {
    let path = sidecar.history();
    let write = || {
        let mut file = open_history(&path)?;
        let mut written = state.last_event;
        if file.metadata()?.len() != state.history_bytes {
            written = repair(&mut file)?.max(written);
        }
        if attempt == AppendAttempt::First {
            state.last_event = written;
        }
        let before = state.last_event / PRUNE_EVERY;
        let mut text = Vec::new();
        let mut now = None;
        for mut line in lines {
            state.last_event = state.last_event.saturating_add(1);
            line.id = state.last_event;
            now = Some(line.at);
            if line.id > written {
                serde_json::to_writer(&mut text, &line).map_err(io::Error::other)?;
                text.push(b'\n');
            }
        }
        file.write_all(&text)?;
        state.history_bytes = file.metadata()?.len();
        if let Some(now) = now
            && state.last_event / PRUNE_EVERY > before
        {
            state.history_bytes = prune(sidecar, &path, now, retention)?;
        }
        Ok(())
    };
    write().map_err(|error| explain("written", &path, error))
}

/// Cuts off a torn last line, and returns the id of the last event.
fn repair(file: &mut File) -> io::Result<u64> {
    let lines = cut_torn_line(file)?;
    let last = lines
        .split(|byte| *byte == b'\n')
        .rev()
        .find_map(|line| serde_json::from_slice::<HistoryLine>(line).ok());
    Ok(last.map_or(0, |line| line.id))
}

fn lines(path: &Path) -> io::Result<Vec<HistoryLine>> {
    let bytes = if_there(beneath::read(path, LARGEST))?.unwrap_or_default();
    let lines = bytes.split(|byte| *byte == b'\n');
    // Other lines are notes, torn, or another program's.
    Ok(lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect())
}

/// Drops events beyond the retention, but never the newest, and returns the new length of the file.
fn prune(sidecar: &Sidecar, path: &Path, now: Timestamp, retention: Retention) -> io::Result<u64> {
    let all = lines(path)?;
    let too_many = all.len().saturating_sub(
        usize::try_from(retention.events)
            .unwrap_or(usize::MAX)
            .max(1),
    );
    let oldest = SignedDuration::try_from(retention.age)
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
    atomic::replace(path, &temp, &text, Durability::Crash)?;
    Ok(u64::try_from(text.len()).unwrap_or(0))
}

/// The newest events that match, oldest first.
pub(crate) fn query(sidecar: &Sidecar, query: &HistoryQuery) -> Result<Vec<Event>, StoreError> {
    let path = sidecar.history();
    let lines = lines(&path).map_err(|error| explain("read", &path, error))?;
    Ok(query.select(lines.into_iter().map(HistoryLine::event)))
}

/// The newest token and event id in the history, for a lost state.
pub(crate) fn newest(sidecar: &Sidecar) -> (Token, u64) {
    let all = lines(&sidecar.history()).unwrap_or_default();
    let tokens = all.iter().map(|line| line.token);
    let token = tokens.filter(|token| *token <= Token::MAX).max();
    let event = all.iter().map(|line| line.id).max();
    (token.unwrap_or(Token::NONE), event.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(token: u64) -> HistoryLine {
        let (key, holder) = (
            Key::parse("database").unwrap(),
            HolderId::parse("a").unwrap(),
        );
        HistoryLine::new(
            Timestamp::UNIX_EPOCH,
            &key,
            EventKind::Granted,
            Token(token),
            &holder,
        )
    }

    const RETENTION: Retention = Retention {
        age: Duration::MAX,
        events: 100,
    };

    fn ids_and_tokens(sidecar: &Sidecar) -> Vec<(u64, u64)> {
        let events = query(sidecar, &HistoryQuery::default()).unwrap();
        events
            .iter()
            .map(|event| (event.id, event.token.0))
            .collect()
    }

    #[test]
    fn an_event_written_before_a_crash_is_not_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::new(dir.path());
        let mut state = SidecarState::default();
        append(
            &sidecar,
            &mut state,
            vec![line(1)],
            AppendAttempt::First,
            RETENTION,
        )
        .unwrap();
        let mut lost = state.clone();
        append(
            &sidecar,
            &mut lost,
            vec![line(2), line(3)],
            AppendAttempt::First,
            RETENTION,
        )
        .unwrap();
        let again = vec![line(2), line(3)];
        append(
            &sidecar,
            &mut state,
            again,
            AppendAttempt::Repeated,
            RETENTION,
        )
        .unwrap();
        assert_eq!(ids_and_tokens(&sidecar), [(1, 1), (2, 2), (3, 3)]);
        assert_eq!(
            (state.last_event, state.history_bytes),
            (3, lost.history_bytes)
        );
    }

    #[test]
    fn a_torn_line_is_cut_off_and_a_note_is_not_an_event() {
        let dir = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::new(dir.path());
        let mut state = SidecarState::default();
        append(
            &sidecar,
            &mut state,
            vec![line(1)],
            AppendAttempt::First,
            RETENTION,
        )
        .unwrap();
        let mut file = open_history(&sidecar.history()).unwrap();
        file.write_all(b"{\"id\":2,\"at\"").unwrap();
        sidecar.note(Timestamp::UNIX_EPOCH, "torn").unwrap();
        append(
            &sidecar,
            &mut state,
            vec![line(2)],
            AppendAttempt::First,
            RETENTION,
        )
        .unwrap();
        assert_eq!(ids_and_tokens(&sidecar), [(1, 1), (2, 2)]);
        assert_eq!(newest(&sidecar), (Token(2), 2));
    }

    #[test]
    fn the_oldest_events_are_pruned() {
        let dir = tempfile::tempdir().unwrap();
        let sidecar = Sidecar::new(dir.path());
        let mut state = SidecarState::default();
        for token in 1..=PRUNE_EVERY {
            append(
                &sidecar,
                &mut state,
                vec![line(token)],
                AppendAttempt::First,
                RETENTION,
            )
            .unwrap();
        }
        let left = ids_and_tokens(&sidecar);
        assert_eq!(left.len(), 100);
        assert_eq!(left.last(), Some(&(PRUNE_EVERY, PRUNE_EVERY)));
        append(
            &sidecar,
            &mut state,
            vec![line(9999)],
            AppendAttempt::First,
            RETENTION,
        )
        .unwrap();
        assert_eq!(ids_and_tokens(&sidecar).len(), 101);
    }
}
