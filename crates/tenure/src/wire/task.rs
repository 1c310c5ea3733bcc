//! Tasks and sections.

use serde::{Deserialize, Serialize};
use tenure_core::{HolderId, Key, Lease, Moment, Priority, Reason, Token};
use tenure_tasks::{Cause, Changed, DeletedSection, Past, Section, SectionSummary, Status, Task};

use super::{LockJson, TimeJson};

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskJson {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its description.
    pub description: Option<String>,
    /// The name of its section.
    pub section: Option<String>,
    /// The id of its section.
    pub section_id: Option<String>,
    /// Its status.
    pub status: Status,
    /// Its priority, 0 to 9.
    pub priority: Priority,
    /// The ids of the tasks that must be done first.
    pub depends_on: Vec<String>,
    /// How many of these are not done.
    pub blockers: u64,
    /// How often it failed.
    pub attempts: u64,
    /// How it failed last.
    pub last_error: Option<String>,
    /// When it is retried.
    pub not_before: Option<TimeJson>,
    /// The runner that works on it, or did last.
    pub holder: Option<HolderId>,
    /// Whether a runner in another clone works on it.
    pub elsewhere: bool,
    /// When it was added.
    pub created_at: TimeJson,
    /// When it was last changed.
    pub updated_at: TimeJson,
    /// What another program wrote into it that can't be understood.
    pub problem: Option<String>,
}

impl From<&Task> for TaskJson {
    fn from(task: &Task) -> Self {
        let section = task.section.as_ref();
        Self {
            id: task.id.clone(),
            title: task.title.clone(),
            description: task.description.clone(),
            section: section.map(|section| section.name.clone()),
            section_id: section.map(|section| section.id.clone()),
            status: task.status,
            priority: task.priority,
            depends_on: task.depends_on.clone(),
            blockers: task.blockers,
            attempts: task.attempts,
            last_error: task.last_error.clone(),
            not_before: task.not_before.map(Into::into),
            holder: task.runner.clone(),
            elsewhere: task.elsewhere,
            created_at: task.created_at.into(),
            updated_at: task.updated_at.into(),
            problem: task.problem.clone(),
        }
    }
}

/// A list of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TasksJson {
    /// The tasks.
    pub tasks: Vec<TaskJson>,
    /// Whether there are more than the limit allowed.
    pub more: bool,
}

/// Tasks that were deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletedTasksJson {
    /// The tasks.
    pub deleted: Vec<TaskJson>,
}

/// A task that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StartedTaskJson {
    /// The task.
    #[serde(flatten)]
    pub task: TaskJson,
    /// The status it had before.
    pub was: Status,
    /// The token of its lease.
    pub token: Token,
    /// Why the lease was granted.
    pub reason: Option<Reason>,
    /// When the lease ends; `null` if it has no end.
    pub expires_at: Option<TimeJson>,
}

impl StartedTaskJson {
    /// A task, the status it had before, and its lease.
    pub fn new(now: &Moment, task: &Task, was: Status, lease: &Lease, reason: Reason) -> Self {
        Self {
            task: task.into(),
            was,
            token: lease.token,
            reason: Some(reason),
            expires_at: lease.expires.as_ref().map(|end| end.shown(now).into()),
        }
    }
}

/// A task on the standard input of the command that `tenure tasks work` runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskInputJson {
    /// The task.
    #[serde(flatten)]
    pub task: TaskJson,
    /// The token of its lease.
    pub token: Token,
}

/// A task whose status was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedTaskJson {
    /// The task.
    #[serde(flatten)]
    pub task: TaskJson,
    /// The status it had before.
    pub was: Status,
    /// The keys that were released.
    pub freed: Vec<Key>,
}

impl From<&Changed> for ChangedTaskJson {
    fn from(changed: &Changed) -> Self {
        Self {
            task: (&changed.task).into(),
            was: changed.was,
            freed: changed.freed.clone(),
        }
    }
}

/// A task with its history, its dependents and its lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShownTaskJson {
    /// The task.
    #[serde(flatten)]
    pub task: TaskJson,
    /// Its former values, the newest first.
    pub history: Vec<PastJson>,
    /// The ids of the tasks that wait for it.
    pub dependents: Vec<String>,
    /// Its lock; `null` if it is free.
    pub lock: Option<LockJson>,
}

/// A former value of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PastJson {
    /// The field.
    pub field: String,
    /// The value.
    pub value: String,
    /// When it was set.
    pub at: TimeJson,
    /// When it was replaced.
    pub until: TimeJson,
    /// Why it was replaced.
    pub cause: Cause,
}

impl From<&Past> for PastJson {
    fn from(past: &Past) -> Self {
        Self {
            field: past.field.clone(),
            value: past.value.clone(),
            at: past.at.into(),
            until: past.until.into(),
            cause: past.cause,
        }
    }
}

/// The sections of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SectionsJson {
    /// The sections.
    pub sections: Vec<ListedSectionJson>,
}

/// A section that was deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeletedSectionJson {
    /// The section.
    #[serde(flatten)]
    pub section: Section,
    /// How many tasks were in it.
    pub moved: u64,
    /// The section that they moved to; `null` if they have none.
    pub moved_to: Option<Section>,
}

impl From<&DeletedSection> for DeletedSectionJson {
    fn from(deleted: &DeletedSection) -> Self {
        Self {
            section: deleted.section.clone(),
            moved: deleted.moved,
            moved_to: deleted.moved_to.clone(),
        }
    }
}

/// A section in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListedSectionJson {
    /// The section.
    #[serde(flatten)]
    pub section: Section,
    /// How many tasks it has.
    pub tasks: u64,
    /// How many of them are open.
    pub open: u64,
    /// The runner that holds it.
    pub holder: Option<HolderId>,
    /// When the runner's lease ends.
    pub expires_at: Option<TimeJson>,
}

impl ListedSectionJson {
    /// A section and the lease on it, if a runner holds it.
    pub fn new(now: &Moment, summary: &SectionSummary, held: Option<&Lease>) -> Self {
        Self {
            section: summary.section.clone(),
            tasks: summary.tasks,
            open: summary.open,
            holder: held.map(|lease| lease.holder.id.clone()),
            expires_at: held
                .and_then(|lease| lease.expires.as_ref())
                .map(|end| end.shown(now).into()),
        }
    }
}

/// A task, or its section, that another runner holds. The protocol of the task locks prescribes the
/// names `taskId`, `lockedBy` and `expiresAt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskLockedJson {
    /// The task. Left out if the section itself was to be deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// Its section, if that is what is locked. Left out otherwise, as the protocol has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_id: Option<String>,
    /// The runner.
    pub locked_by: HolderId,
    /// When its lease ends; `null` if it has no end.
    pub expires_at: Option<TimeJson>,
}

/// A task that another runner took over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskLostJson {
    /// The task.
    pub task_id: String,
    /// The runner that holds it now.
    pub holder: Option<HolderId>,
    /// When its lease ends.
    pub expires_at: Option<TimeJson>,
    /// The newest token of the task.
    pub newest_token: Token,
    /// The status of the task now.
    pub status: Status,
}

/// A task that waits for other tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskBlockedJson {
    /// The task.
    pub task_id: String,
    /// The ids of the tasks that it waits for.
    pub blocked_by: Vec<String>,
}

/// How `tenure tasks work` ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkJson {
    /// How many tasks were completed.
    pub completed: u64,
    /// The tasks that failed for good.
    pub failed: Vec<TaskEndedJson>,
    /// The tasks whose lease was lost.
    pub lost: Vec<TaskEndedJson>,
    /// How often a task was put off to be retried.
    pub retried: u64,
    /// How many tasks got another status from their command.
    pub other: u64,
    /// Why no further task was started; `null` if a signal ended the runner.
    pub ended: Option<super::ErrorCode>,
}

/// A task that was not completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskEndedJson {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Why.
    pub error: String,
}

/// The lines that `tenure tasks export` prints without `--json`, each an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LinesJson<T> {
    /// The lines.
    pub lines: Vec<T>,
}
