//! Import and export: one JSON object a line, in a stable order, so that it diffs well.
//!
//! Sections come first, then tasks, both in the order in which they were added. A field that has
//! its default value is left out.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::claim::Priority;
use tenure_core::graph::Graph;

use super::edit::{EditStep, add_section};
use super::flow::{MOST_ATTEMPTS, existing, may_move, ring_all_seekers};
use super::follow::superseded;
use super::{
    BadLine, ImportSummary, Section, Status, Task, TaskError, check_description, check_id,
    check_title, tidy,
};

/// How many bad lines an error lists.
const BAD_LINES: usize = 10;

/// What a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    /// A section.
    Section,
    /// A task.
    #[default]
    Task,
}

/// One line.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExchangeLine {
    /// What it is about.
    #[serde(default)]
    pub kind: LineKind,
    /// The id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The name of a section.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The title of a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The name of the section of a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section: Option<String>,
    /// The status of a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// How urgent a task is, from 0 to 9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The description of a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The ids of the tasks that a task depends on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// When a task was added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// When a task was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
    /// How many attempts of a task failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u64>,
    /// The error of the last failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl ExchangeLine {
    /// The line of a section.
    pub fn of_section(section: &Section) -> Self {
        Self {
            kind: LineKind::Section,
            id: Some(section.id.clone()),
            name: Some(section.name.clone()),
            ..Self::default()
        }
    }

    /// The line of a task.
    pub fn of_task(task: Task) -> Self {
        // A stand-in would become the truth where it is imported.
        let known = |at: Timestamp| Some(at).filter(|at| *at != Timestamp::UNIX_EPOCH);
        let mut depends_on = task.depends_on;
        depends_on.sort();
        Self {
            id: Some(task.id),
            title: Some(task.title),
            section: task.section.map(|section| section.name),
            status: Some(task.status),
            priority: Some(task.priority.level()),
            description: task.description,
            depends_on,
            created_at: known(task.created_at),
            updated_at: known(task.updated_at),
            attempts: Some(task.attempts).filter(|attempts| *attempts > 0),
            last_error: task.last_error,
            ..Self::default()
        }
    }
}

/// What an import needs of a step.
pub trait ImportStep: EditStep {
    /// A new id.
    fn new_id(&mut self) -> String;

    /// Says which tasks will be asked for, so that a store that is far away can read them at once.
    fn expect(&mut self, _ids: &[&str]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Every dependency: a task, and the task that it depends on.
    fn dependencies(&mut self) -> Result<Vec<(String, String)>, Self::Error>;

    /// Whether a task with this id was deleted.
    fn was_deleted(&mut self, id: &str) -> Result<bool, Self::Error>;

    /// The error of the step as one of tasks, if it is one.
    fn task_error(error: Self::Error) -> Result<TaskError, Self::Error>;
}

/// The state of an import.
#[derive(Debug, Default)]
struct ImportState {
    done: ImportSummary,
    bad: Vec<BadLine>,
    /// The first line that changes a task which a runner works on: not wrong, but not now.
    locked: Option<TaskError>,
    /// Dependencies: the line, its task, and the task that it depends on.
    waits: Vec<(usize, String, String)>,
    /// The ids that were read so far, with their lines.
    seen: HashMap<String, usize>,
}

impl ImportState {
    fn is_bad(&mut self, number: usize, what: impl Into<String>) {
        let what = what.into();
        self.bad.push(BadLine { number, what });
    }
}

/// Adds or changes sections and tasks, one for each line; all or none. `parse` reads the JSON of a line.
pub fn import<S: ImportStep>(
    step: &mut S,
    text: &str,
    parse: fn(&str) -> Result<ExchangeLine, String>,
) -> Result<ImportSummary, S::Error> {
    let mut import = ImportState::default();
    // Some editors put a byte order mark before the first line.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let numbered = text.lines().enumerate();
    let lines = numbered.filter(|(_, line)| !line.trim().is_empty());
    let mut lines: Vec<(usize, Result<ExchangeLine, String>)> = lines
        .map(|(index, line)| {
            let read = if line.trim_start().starts_with('{') {
                parse(line).map_err(|error| message(&error))
            } else {
                Err("expected a JSON object, {\"title\": \"...\"} at the least".to_owned())
            };
            (index + 1, read)
        })
        .collect();
    // Sections first, wherever they are: a task that names one must not make another with its name.
    lines.sort_by_key(|(_, line)| !matches!(line, Ok(line) if line.kind == LineKind::Section));
    let read = lines.iter().filter_map(|(_, line)| line.as_ref().ok());
    let ids = read.flat_map(|line| line.id.iter().chain(&line.depends_on));
    let ids: Vec<&str> = ids.map(String::as_str).collect();
    step.expect(&ids)?;
    for (number, line) in lines {
        let taken = match line {
            Ok(line) => take_line(step, &mut import, number, line),
            Err(what) => {
                import.is_bad(number, what);
                Ok(())
            }
        };
        if let Err(error) = taken {
            match S::task_error(error)? {
                TaskError::Locked { task, lease } => {
                    let locked = TaskError::LockedLine {
                        number,
                        task,
                        lease,
                    };
                    import.locked.get_or_insert(locked);
                }
                error => import.is_bad(number, error.to_string()),
            }
        }
        if import.bad.len() >= BAD_LINES {
            break;
        }
    }
    if import.bad.is_empty() {
        import_dependencies(step, &mut import)?;
    }
    if !import.bad.is_empty() {
        import.bad.sort_by_key(|line| line.number);
        return Err(TaskError::BadLines(import.bad).into());
    }
    if let Some(locked) = import.locked {
        return Err(locked.into());
    }
    ring_all_seekers(step)?;
    Ok(import.done)
}

fn take_line<S: ImportStep>(
    step: &mut S,
    import: &mut ImportState,
    number: usize,
    line: ExchangeLine,
) -> Result<(), S::Error> {
    if let Some(id) = &line.id {
        check_id("id", id)?;
        if let Some(first) = import.seen.insert(id.clone(), number) {
            import.is_bad(number, format!("the id {id:?} is that of line {first} too"));
            return Ok(());
        }
    }
    match line.kind {
        LineKind::Section => take_section(step, import, number, line),
        LineKind::Task => take_task(step, import, number, line),
    }
}

fn take_section<S: ImportStep>(
    step: &mut S,
    import: &mut ImportState,
    number: usize,
    line: ExchangeLine,
) -> Result<(), S::Error> {
    let Some(name) = line.name else {
        import.is_bad(number, "a section needs a \"name\"");
        return Ok(());
    };
    if line.title.is_some() || line.section.is_some() || line.status.is_some() {
        import.is_bad(number, "a section has a \"name\" and an \"id\" only");
        return Ok(());
    }
    let id = line.id.unwrap_or_else(|| step.new_id());
    match add_section(step, &id, &name) {
        Ok(_) => {
            import.done.sections += 1;
            Ok(())
        }
        // Sections are known by their names: one with another id is left as it is.
        Err(error) => match S::task_error(error)? {
            TaskError::SectionExists(taken) if taken.name == name => Ok(()),
            error => Err(error.into()),
        },
    }
}

fn take_task<S: ImportStep>(
    step: &mut S,
    import: &mut ImportState,
    number: usize,
    line: ExchangeLine,
) -> Result<(), S::Error> {
    if line.name.is_some() {
        import.is_bad(
            number,
            "a task has a \"title\", not a \"name\" (or it is a section: \"kind\":\"section\")",
        );
        return Ok(());
    }
    let Some(title) = line.title else {
        import.is_bad(number, "a task needs a \"title\"");
        return Ok(());
    };
    // A title that another program wrote with white space around it is exported with it.
    check_title(title.trim())?;
    check_description(line.description.as_deref().unwrap_or_default())?;
    if line.attempts > Some(MOST_ATTEMPTS) {
        import.is_bad(number, format!("attempts are {MOST_ATTEMPTS} at most"));
        return Ok(());
    }
    let now = step.now().wall;
    let id = line.id.unwrap_or_else(|| step.new_id());
    let before = step.task(&id)?;
    let usual = before
        .as_ref()
        .map(|task| task.priority)
        .unwrap_or_default();
    let Some(priority) = line.priority.map_or(Some(usual), Priority::new) else {
        import.is_bad(number, "the priority is a number from 0 (low) to 9 (high)");
        return Ok(());
    };
    let section = match &line.section {
        Some(name) => Some(section_of_line(step, import, name)?),
        None => None,
    };
    let mut depends_on: Vec<String> = line.depends_on;
    depends_on.sort();
    depends_on.dedup();
    let added = before.as_ref().map(|task| task.created_at);
    let added = as_stored(line.created_at.or(added).unwrap_or(now));
    let status = before.as_ref().map(|task| task.status);
    let after = Task {
        description: line.description,
        section,
        status: line.status.or(status).unwrap_or(Status::Pending),
        priority,
        updated_at: as_stored(line.updated_at.unwrap_or(now)),
        attempts: line.attempts.unwrap_or(0),
        last_error: line.last_error.as_deref().map(tidy),
        ..Task::new(id.clone(), title, added)
    };
    match &before {
        Some(before) if is_same(before, &after, &depends_on) => {
            import.done.unchanged += 1;
            return Ok(());
        }
        Some(before) => {
            // Not while a runner works on it.
            may_move(step, before)?;
            if let Some(runner) = &before.runner
                && before.status == Status::InProgress
                && after.status != Status::InProgress
            {
                superseded(step, &id, runner)?;
            }
            import.done.changed += 1;
        }
        None if step.was_deleted(&id)? => {
            let problem = format!(
                "{id:?} is that of a task that was deleted: leave it out, and it is added as a new one"
            );
            return Err(TaskError::bad_text("id", problem).into());
        }
        None => import.done.added += 1,
    }
    step.put_task(&after, before.as_ref())?;
    let waits = depends_on.into_iter().map(|on| (number, id.clone(), on));
    import.waits.extend(waits);
    Ok(())
}

/// The section that a line names, made if there is none.
fn section_of_line<S: ImportStep>(
    step: &mut S,
    import: &mut ImportState,
    name: &str,
) -> Result<Section, S::Error> {
    if let Some(section) = step.section_named(name)? {
        return Ok(section);
    }
    let id = step.new_id();
    let section = add_section(step, &id, name)?;
    import.done.sections += 1;
    Ok(section)
}

/// Writes all dependencies after all tasks: a line may depend on a later one.
fn import_dependencies<S: ImportStep>(
    step: &mut S,
    import: &mut ImportState,
) -> Result<(), S::Error> {
    let waits = std::mem::take(&mut import.waits);
    if waits.is_empty() {
        return Ok(());
    }
    for (number, id, on) in &waits {
        if import.bad.len() >= BAD_LINES {
            return Ok(());
        }
        match step.task(on)? {
            None => import.is_bad(
                *number,
                format!("it depends on {on:?}, which is no task's id"),
            ),
            Some(_) => step.add_dependency(id, on)?,
        }
    }
    // A cycle without any of these tasks was there before, and is no reason to refuse them.
    let edges = step.dependencies()?;
    let graph = Graph::new(edges.iter().map(|(id, on)| (id.as_str(), on.as_str())));
    let on_cycles = graph.nodes_on_cycles();
    let found = waits
        .iter()
        .find(|(_, id, _)| on_cycles.binary_search(&id.as_str()).is_ok());
    if let Some((number, id, _)) = found {
        let task = existing(step, id)?;
        import.is_bad(
            *number,
            format!("{:?} would have to be done before itself", task.title),
        );
    }
    Ok(())
}

/// Whether an import would leave a task as it is. A different `updated_at` alone is no change.
fn is_same(before: &Task, after: &Task, depends_on: &[String]) -> bool {
    let mut waits = before.depends_on.clone();
    waits.sort();
    let after = Task {
        depends_on: before.depends_on.clone(),
        blockers: before.blockers,
        updated_at: before.updated_at,
        not_before: before.not_before,
        runner: before.runner.clone(),
        token: before.token,
        elsewhere: before.elsewhere,
        ..after.clone()
    };
    *before == after && waits == depends_on
}

/// A time with the precision of the stores.
pub fn as_stored(at: Timestamp) -> Timestamp {
    format!("{at:.3}").parse().unwrap_or(at)
}

/// The message of a JSON parser, in the words of people who write lines, and without the line number, which is always 1.
fn message(error: &str) -> String {
    let text = error
        .replace("struct ExchangeLine", "an object")
        .replace("expected u8", "expected a number from 0 to 9")
        .replace("expected u64", "expected a number")
        .replace("unknown variant", "unknown word")
        .replace("expected a sequence", "expected a list of ids");
    match text.rsplit_once(" at line 1 column ") {
        Some((what, column)) => format!("{what} (at character {column})"),
        None => text,
    }
}

/// Checks the name of a section.
pub fn check_name(name: &str) -> Result<(), TaskError> {
    check_title(name).map_err(|error| match error {
        TaskError::BadText { problem, .. } => TaskError::BadText {
            what: "name of the section",
            problem: problem
                .replace("say what is to be done", "give it one")
                .replace(", the rest belongs into the description", ""),
        },
        other => other,
    })
}
