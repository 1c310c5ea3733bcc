//! The values of the keys about tasks, as JSON.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tenure_core::{Evidence, HolderId, Priority, Token};
use tenure_tasks::lines::as_stored;
use tenure_tasks::{Cause, Past, Section, Status, Task};

use crate::layout::Layout;
use crate::origin::is_zero;

/// A task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskRecord {
    pub(crate) title: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) description: Option<String>,
    /// The id of its section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) section: Option<String>,
    pub(crate) status: Status,
    pub(crate) priority: u8,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) depends_on: BTreeSet<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    /// Which of two tasks that were added at the same time was the first.
    pub(crate) order: u64,
    #[serde(default)]
    pub(crate) attempts: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_before: Option<Timestamp>,
    /// The last holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) runner: Option<HolderId>,
    /// The token of that grant. `None`: the revision at which this record was written, because the same step granted
    /// the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Token>,
    /// What that token is larger than the revision.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) raised: u64,
    /// The runners that it was taken over from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lost: Vec<HolderId>,
    /// Why its last lease ended, if it expired or its holder died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Evidence>,
    /// When a field was last changed, if not when the task was added.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) changed: BTreeMap<String, Timestamp>,
}

impl TaskRecord {
    /// A new task: this one, and its place among those that were added at the same time.
    pub(crate) fn new(task: &Task, order: u64) -> Self {
        Self {
            title: task.title.clone(),
            description: task.description.clone(),
            section: task.section.as_ref().map(|section| section.id.clone()),
            status: task.status,
            priority: task.priority.level(),
            created_at: as_stored(task.created_at),
            updated_at: as_stored(task.updated_at),
            order,
            attempts: task.attempts,
            last_error: task.last_error.clone(),
            not_before: task.not_before,
            ..Self::unknown()
        }
    }

    /// A task of which nothing is known.
    fn unknown() -> Self {
        Self {
            title: "(can't be read)".to_owned(),
            description: None,
            section: None,
            status: Status::Pending,
            priority: Priority::default().level(),
            depends_on: BTreeSet::new(),
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::UNIX_EPOCH,
            order: 0,
            attempts: 0,
            last_error: None,
            not_before: None,
            runner: None,
            token: Some(Token::NONE),
            raised: 0,
            lost: Vec::new(),
            ended: None,
            changed: BTreeMap::new(),
        }
    }

    /// What can be understood of a damaged record, with stand-ins for the rest, and what is wrong.
    pub(crate) fn salvaged(value: &[u8]) -> (Self, Vec<String>) {
        let mut salvaged = Self::unknown();
        let Ok(fields) = serde_json::from_slice::<Map<String, Value>>(value) else {
            return (salvaged, Vec::new());
        };
        let mut wrong = Vec::new();
        for (name, value) in fields {
            let Ok(Value::Object(mut whole)) = serde_json::to_value(&salvaged) else {
                continue;
            };
            whole.insert(name.clone(), value.clone());
            match serde_json::from_value(Value::Object(whole)) {
                Ok(with) => salvaged = with,
                Err(_) => wrong.push(format!("{name} {value} can't be understood")),
            }
        }
        (salvaged, wrong)
    }

    /// As a task, with what is known of others.
    pub(crate) fn task(&self, id: &str, section: Option<Section>, blockers: u64) -> Task {
        Task {
            id: id.to_owned(),
            title: self.title.clone(),
            description: self.description.clone(),
            section,
            status: self.status,
            priority: Priority::new(self.priority).unwrap_or_default(),
            depends_on: self.depends_on.iter().cloned().collect(),
            blockers,
            created_at: self.created_at,
            updated_at: self.updated_at,
            attempts: self.attempts,
            last_error: self.last_error.clone(),
            not_before: self.not_before,
            runner: self.runner.clone(),
            token: self.token.unwrap_or(Token::NONE),
            elsewhere: false,
            problem: None,
        }
    }

    /// The names under which the task is found, and their values. `blocked`: it waits for another one.
    pub(crate) fn index(
        &self,
        layout: &Layout,
        id: &str,
        blocked: bool,
    ) -> BTreeMap<String, Vec<u8>> {
        let mut names = BTreeMap::new();
        let title = self.title.to_ascii_lowercase();
        names.insert(layout.entry('l', &[&title, id]), Vec::new());
        for on in &self.depends_on {
            names.insert(layout.entry('d', &[on, id]), Vec::new());
        }
        if let Some(section) = &self.section {
            let kind = match self.status {
                Status::InProgress => "w",
                status if status.is_open() => "o",
                _ => "d",
            };
            names.insert(layout.entry('c', &[section, kind, id]), Vec::new());
        }
        if !self.status.is_open() {
            return names;
        }
        if blocked {
            names.insert(layout.entry('b', &[id]), Vec::new());
        } else if let Some(until) = self.not_before {
            let name = format!("{:015}-{id}", until.as_millisecond());
            names.insert(layout.entry('p', &[&name]), Vec::new());
        } else {
            let ready = Ready {
                id: id.to_owned(),
                section: self.section.clone(),
            };
            let (order, ready) = (self.order(id), crate::records::json(&ready));
            let section = self.section.as_deref().unwrap_or_default();
            names.insert(layout.entry('r', &[&order]), ready.clone());
            names.insert(layout.entry('q', &[section, &order]), ready);
        }
        names
    }

    /// Its place among the ready tasks: the most urgent first, then the oldest.
    fn order(&self, id: &str) -> String {
        let rank = 9_u8.saturating_sub(self.priority);
        let created = self.created_at.as_millisecond();
        format!("{rank}-{created:015}-{:016x}-{id}", self.order)
    }

    /// Sets the times of the fields in which it differs from an earlier state, and returns the values that it replaces.
    pub(crate) fn stamp(&mut self, before: &Self, now: Timestamp) -> Vec<Past> {
        let mut past = Vec::new();
        let fields = [
            ("title", before.title.clone(), self.title.clone()),
            (
                "description",
                before.description.clone().unwrap_or_default(),
                self.description.clone().unwrap_or_default(),
            ),
            (
                "section",
                before.section.clone().unwrap_or_default(),
                self.section.clone().unwrap_or_default(),
            ),
            (
                "priority",
                before.priority.to_string(),
                self.priority.to_string(),
            ),
            ("status", before.status.to_string(), self.status.to_string()),
        ];
        for (field, old, new) in fields {
            if old == new {
                continue;
            }
            let at = before.changed.get(field);
            let at = at.copied().unwrap_or(before.created_at);
            // Later than the value that it replaces, even in the same millisecond.
            let next = at.checked_add(SignedDuration::from_millis(1)).unwrap_or(at);
            let until = as_stored(now).max(next);
            self.changed.insert(field.to_owned(), until);
            past.push(Past {
                field: field.to_owned(),
                value: old,
                at,
                until,
                cause: Cause::Changed,
            });
        }
        past
    }
}

/// A ready task, in the index.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) section: Option<String>,
}

/// A section.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SectionRecord {
    pub(crate) name: String,
    pub(crate) created_at: Timestamp,
    /// Which of two sections that were added at the same time was the first.
    pub(crate) order: u64,
}

/// A task that was deleted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DeletedRecord {
    pub(crate) at: Timestamp,
    pub(crate) title: String,
}

/// The guard of all tasks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct AllTasksGuard {
    /// The step that wrote it last.
    pub(crate) request: String,
    /// The steps before it, the latest first, and the revisions of their transactions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<(String, i64)>,
    /// The change that has to be carried out before anything else is read or written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) redo: Option<Redo>,
}

/// A change that is too large for one transaction.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Redo {
    /// Where its parts are, below `t/j/`.
    pub(crate) name: String,
}
