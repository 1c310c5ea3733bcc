//! [`Feed`]: what is in a project now, and the events that were recorded since the last look.

use std::collections::VecDeque;

use tenure::store::{HistoryQuery, call_deadline};
use tenure::{Config, Project, StoreUrl};
use tenure_core::{ErrorKind, Event, EventKind, Moment, Store, StoreError};
use tenure_daemon::DaemonStatus;
use tenure_tasks::{Task, TaskError, TaskQuery};

use super::change::{Change, StoreChange};
use crate::overview::{Overview, StoreView};

/// How many events of a store are kept to be shown.
const KEPT: usize = 10_000;

/// Events that can't be reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The last event that was seen, or that the caller named.
    pub after: u64,
    /// The next one that there is.
    pub next: Option<u64>,
    /// Whether the history is another one, because the store was made anew; otherwise it was pruned.
    pub begun_anew: bool,
}

/// What was read of a store's history.
#[derive(Debug)]
pub struct Log {
    /// The store.
    pub url: StoreUrl,
    /// The newest events, the oldest first.
    pub events: VecDeque<Event>,
    /// The number of the newest event.
    pub last: u64,
    /// That event, unless the caller only named its number.
    newest: Option<Event>,
    /// How many of `events` are new since the look before.
    fresh: usize,
    gap: Option<Gap>,
}

/// A project that is watched.
pub struct Feed {
    project: Option<Project>,
    chosen: Option<StoreUrl>,
    config: Config,
    since: Vec<(StoreUrl, u64)>,
    logs: Vec<Log>,
    tasks: Vec<(StoreUrl, Vec<Task>)>,
    overview: Overview,
    daemon: Option<DaemonStatus>,
    is_first: bool,
    /// The stores that could not be read at the first look.
    unread: Vec<StoreUrl>,
}

impl Feed {
    /// Nothing is read yet. Events are reported from the first look on, and of the stores in `since` from after the
    /// event with that number on (0: all that are kept).
    pub fn new(
        project: Option<Project>,
        chosen: Option<StoreUrl>,
        config: Config,
        since: Vec<(StoreUrl, u64)>,
    ) -> Self {
        Self {
            project,
            chosen,
            config,
            since,
            logs: Vec::new(),
            tasks: Vec::new(),
            overview: Overview::empty(),
            daemon: None,
            is_first: true,
            unread: Vec::new(),
        }
    }

    /// Looks at everything. Returns what the histories tell since the look before.
    pub fn look(&mut self) -> Vec<Change> {
        self.overview
            .look(self.project.as_ref(), self.chosen.as_ref(), &self.config);
        self.daemon = self
            .project
            .as_ref()
            .and_then(|project| DaemonStatus::read(&tenure_daemon::lock::folder_of(project)).ok());
        let mut changes = Vec::new();
        let mut tasks = Vec::new();
        for store in &mut self.overview.stores {
            if !self.logs.iter().any(|log| log.url == store.url) {
                let since = self.since.iter().find(|(url, _)| *url == store.url);
                let since = since.map(|(_, since)| *since);
                // A store that was made since the first look is new as a whole.
                let is_new = !self.is_first && !self.unread.contains(&store.url);
                let since = since.or_else(|| is_new.then_some(0));
                if self.is_first && store.error.is_some() {
                    self.unread.push(store.url.clone());
                }
                self.logs.extend(begun(store, since));
            }
            let log = self.logs.iter_mut().find(|log| log.url == store.url);
            let Some(log) = log else { continue };
            if let Err(error) = log.follow(store) {
                store.error = Some(error);
                continue;
            }
            if let Some(gap) = log.gap.take() {
                changes.push(Change::In(store.url.clone(), StoreChange::Gap(gap)));
            }
            let old = log.events.len().saturating_sub(log.fresh);
            let new = log.events.iter().skip(old);
            let new = new.map(|event| StoreChange::Event(event.clone()));
            changes.extend(new.map(|event| Change::In(store.url.clone(), event)));
            log.shorten();
            // A store without tasks has none to show.
            let its = store.tenure.as_ref().and_then(|tenure| tenure.tasks().ok());
            let its = its.map(|its| its.tasks(&TaskQuery::default(), call_deadline()));
            match its.transpose() {
                Ok(its) => tasks.extend(its.map(|its| (store.url.clone(), its))),
                Err(TaskError::Store(error)) => store.error = Some(error),
                Err(error) => {
                    let error = StoreError::new(ErrorKind::Damaged, error.to_string());
                    store.error = Some(error);
                }
            }
        }
        self.tasks = tasks;
        self.is_first = false;
        changes
    }

    /// The project, if there is one.
    pub fn project(&self) -> Option<&Project> {
        self.project.as_ref()
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The locks, as of the last look.
    pub fn overview(&self) -> &Overview {
        &self.overview
    }

    /// When the last look was.
    pub fn now(&self) -> &Moment {
        &self.overview.now
    }

    /// The histories of the stores, as far as they were read.
    pub fn logs(&self) -> &[Log] {
        &self.logs
    }

    /// The tasks, by store, in the order in which lists show them.
    pub fn tasks(&self) -> &[(StoreUrl, Vec<Task>)] {
        &self.tasks
    }

    /// The daemon's state; `None` if there is no project, or it can't be read.
    pub fn daemon(&self) -> Option<&DaemonStatus> {
        self.daemon.as_ref()
    }
}

/// The daemon's state, for people. It changes only if the daemon does.
pub fn daemon_in_words(status: Option<&DaemonStatus>) -> String {
    match status {
        None => "unknown".to_owned(),
        Some(DaemonStatus::Running(state)) if state.skipped.is_some() => {
            format!("skips its cycles (pid {})", state.process.pid)
        }
        Some(DaemonStatus::Running(state)) => format!("running (pid {})", state.process.pid),
        Some(DaemonStatus::Unidentified) => "starting or stopping".to_owned(),
        Some(DaemonStatus::NotRunning(_)) => "not running".to_owned(),
    }
}

/// The beginning of a log: from after the event `since` on, or from the newest one on. `None` if the store can't be
/// read, so that the next look tries again.
fn begun(store: &mut StoreView, since: Option<u64>) -> Option<Log> {
    let mut log = Log {
        url: store.url.clone(),
        events: VecDeque::new(),
        last: since.unwrap_or(0),
        newest: None,
        fresh: 0,
        gap: None,
    };
    if since.is_some() {
        return Some(log);
    }
    let tenure = store.tenure.as_ref().filter(|_| store.error.is_none())?;
    let query = HistoryQuery {
        limit: Some(KEPT),
        ..HistoryQuery::default()
    };
    match tenure.store().history(&query, call_deadline()) {
        Ok(events) => {
            log.events = events.into();
            log.newest = log.events.back().cloned();
            log.last = log.newest.as_ref().map_or(0, |newest| newest.id);
            Some(log)
        }
        Err(error) => {
            store.error = Some(error);
            None
        }
    }
}

impl Log {
    /// Reads what was recorded since, in the store as it is now.
    fn follow(&mut self, store: &StoreView) -> Result<(), StoreError> {
        self.fresh = 0;
        match &store.tenure {
            Some(tenure) if store.error.is_none() => self.read(&**tenure.store()),
            _ => Ok(()),
        }
    }

    fn read(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        // With the last one, which shows that nothing was removed after it.
        let from_last = HistoryQuery {
            after: self.last.saturating_sub(1),
            ..HistoryQuery::default()
        };
        let mut new = store.history(&from_last, call_deadline())?;
        let is_last = |event: &Event| {
            let same = |newest: &Event| {
                // A renewal is counted in the event of the first one, with the time of the last.
                let counted = event.kind == EventKind::Renewed;
                (&newest.key, newest.token, newest.kind) == (&event.key, event.token, event.kind)
                    && (newest.at == event.at || counted)
            };
            event.id == self.last && self.newest.as_ref().is_none_or(same)
        };
        match new.first() {
            Some(first) if is_last(first) => {
                new.remove(0);
            }
            _ if self.last == 0 => {}
            Some(first) if first.id > self.last => self.gap = Some(self.gap(Some(first.id), false)),
            Some(_) => new = self.begin_anew(store)?,
            None => {
                let newest = HistoryQuery {
                    limit: Some(1),
                    ..HistoryQuery::default()
                };
                // A history whose every event was too old is none the less the same.
                if !store.history(&newest, call_deadline())?.is_empty() {
                    new = self.begin_anew(store)?;
                }
            }
        }
        if let Some(newest) = new.last() {
            self.last = newest.id;
            self.newest = Some(newest.clone());
        }
        self.fresh = new.len();
        self.events.extend(new);
        Ok(())
    }

    /// Reads all of another history.
    fn begin_anew(&mut self, store: &dyn Store) -> Result<Vec<Event>, StoreError> {
        let all = store.history(&HistoryQuery::default(), call_deadline())?;
        self.gap = Some(self.gap(all.first().map(|first| first.id), true));
        self.events.clear();
        Ok(all)
    }

    fn gap(&self, next: Option<u64>, begun_anew: bool) -> Gap {
        Gap {
            after: self.last,
            next,
            begun_anew,
        }
    }

    fn shorten(&mut self) {
        let too_many = self.events.len().saturating_sub(KEPT);
        self.events.drain(..too_many);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tenure::{Acquired, Tenure};

    fn feed(root: &Path, since: Option<u64>) -> Feed {
        let project = Project::find(root, None).unwrap().unwrap();
        let since = since.map(|since| (project.store(), since));
        Feed::new(
            Some(project),
            None,
            Config::default(),
            since.into_iter().collect(),
        )
    }

    fn open(root: &Path) -> Tenure {
        let project = Project::find(root, None).unwrap().unwrap();
        Tenure::open_with(&project.store(), Config::default()).unwrap()
    }

    /// Takes and releases a key: two events.
    fn once(tenure: &Tenure, key: &str) {
        let Acquired::Granted(guard) = tenure.ask(key).unwrap().acquire().unwrap() else {
            panic!("{key} is busy");
        };
        let _ = guard.release().unwrap();
    }

    fn ids(changes: &[Change]) -> Vec<u64> {
        let id = |change: &Change| match change {
            Change::In(_, StoreChange::Event(event)) => Some(event.id),
            _ => None,
        };
        changes.iter().filter_map(id).collect()
    }

    fn gaps(changes: &[Change]) -> Vec<Gap> {
        let gap = |change: &Change| match change {
            Change::In(_, StoreChange::Gap(gap)) => Some(gap.clone()),
            _ => None,
        };
        changes.iter().filter_map(gap).collect()
    }

    #[test]
    fn events_are_reported_once_from_the_first_look_on() {
        let dir = tempfile::tempdir().unwrap();
        Project::init(dir.path()).unwrap();
        let tenure = open(dir.path());
        once(&tenure, "a");
        let mut feed = feed(dir.path(), None);
        assert_eq!(ids(&feed.look()), [0; 0]);
        assert_eq!(feed.logs()[0].last, 2);
        once(&tenure, "b");
        assert_eq!(ids(&feed.look()), [3, 4]);
        assert_eq!(ids(&feed.look()), [0; 0]);
        assert_eq!(feed.logs()[0].events.len(), 4);
    }

    #[test]
    fn events_are_reported_from_a_given_one_on() {
        let dir = tempfile::tempdir().unwrap();
        Project::init(dir.path()).unwrap();
        let tenure = open(dir.path());
        once(&tenure, "a");
        once(&tenure, "b");
        let mut feeds = [0, 1, 4].map(|since| feed(dir.path(), Some(since)));
        for (feed, expected) in feeds
            .iter_mut()
            .zip([vec![1, 2, 3, 4], vec![2, 3, 4], vec![]])
        {
            let changes = feed.look();
            assert_eq!(ids(&changes), expected);
            assert_eq!(gaps(&changes), []);
        }
        once(&tenure, "c");
        for feed in &mut feeds {
            assert_eq!(ids(&feed.look()), [5, 6]);
        }
    }

    #[test]
    fn a_store_that_is_made_later_is_new_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        Project::init(dir.path()).unwrap();
        let mut feed = feed(dir.path(), None);
        assert_eq!(ids(&feed.look()), [0; 0]);
        once(&open(dir.path()), "a");
        assert_eq!(ids(&feed.look()), [1, 2]);
    }

    #[test]
    fn a_pruned_history_and_one_begun_anew_are_reported_as_gaps() {
        let dir = tempfile::tempdir().unwrap();
        let (project, _) = Project::init(dir.path()).unwrap();
        let tenure = open(dir.path());
        for _ in 0..3 {
            once(&tenure, "a");
        }
        drop(tenure);
        let db = project.folder().join("tenure.db");
        let sql = rusqlite::Connection::open(&db).unwrap();
        sql.execute("DELETE FROM history WHERE id <= 4", [])
            .unwrap();
        drop(sql);
        let mut pruned = feed(dir.path(), Some(2));
        let changes = pruned.look();
        assert_eq!(ids(&changes), [5, 6]);
        let gap = |after, next, begun_anew| Gap {
            after,
            next,
            begun_anew,
        };
        assert_eq!(gaps(&changes), [gap(2, Some(5), false)]);

        // Another store in its place, with fewer events, and then with as many.
        for keys in [1, 3] {
            for name in ["tenure.db", "tenure.db-wal", "tenure.db-shm"] {
                let _ = std::fs::remove_file(project.folder().join(name));
            }
            assert_eq!(ids(&pruned.look()), [0; 0], "there is no store");
            let tenure = open(dir.path());
            for key in ["x", "y", "z"].into_iter().take(keys) {
                once(&tenure, key);
            }
            let changes = pruned.look();
            assert_eq!(ids(&changes).len(), 2 * keys);
            assert_eq!(gaps(&changes).len(), 1);
            assert!(gaps(&changes)[0].begun_anew);
        }
    }
}
