//! `tenure tasks`: add, list, start and finish tasks.

mod grant;
mod next;
mod show;
mod update;
mod work;

use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};
use tenure::Tenure;
use tenure::store::{KeyKind, Lease, Moment, Verdict, call_deadline};
use tenure::tasks::{DeletedTask, NewTask, Status, Task, TaskQuery, is_by_prefix};
use tenure::text::plural;
use tenure::wire::{DeletedTasksJson, ErrorCode, LinesJson, TaskJson, TasksJson};

use crate::answer::{Answer, Failure, printed, remark};
use crate::args::Global;
use crate::args::tasks::{Add, HeldTask, List, Tasks, Update};
use crate::context;
use crate::table::Table;
use crate::words;

pub(crate) fn tasks(global: &Global, tasks: Tasks) -> Result<Answer, Failure> {
    match tasks {
        Tasks::Add(new) => add(global, new),
        Tasks::List(query) => list(global, &query),
        Tasks::Show { task } => show::show(global, &task),
        Tasks::Update(update) => update::update(global, &update),
        Tasks::Next(next) => next::next(global, &next),
        Tasks::Work(work) => work::work(global, &work),
        Tasks::Done(held) => end(global, held, Status::Completed, None),
        Tasks::Fail { held, error } => end(global, held, Status::Failed, error),
        Tasks::Release(held) => end(global, held, Status::Pending, None),
        Tasks::Renew { held, ttl } => update::renew(global, &held, ttl),
        Tasks::Delete { tasks } => delete(global, &tasks),
        Tasks::Import { file } => import(global, &file),
        Tasks::Export => export(global),
    }
}

/// The task that a command changes. The caller is told which one it is, if a prefix stands for it that no list shows.
fn to_change(global: &Global, tenure: &Tenure, given: &str) -> Result<Task, Failure> {
    let task = tenure.tasks()?.find_task(given, call_deadline())?;
    if is_by_prefix(&task, given) && !given.ends_with(words::short(&task.id)) {
        let (id, title) = (&task.id, words::title(&task));
        remark(global, &format!("{given} stands for task {title} ({id})"));
    }
    Ok(task)
}

/// The ids of such tasks.
fn ids(global: &Global, tenure: &Tenure, given: &[String]) -> Result<Vec<String>, Failure> {
    let id = |given: &String| Ok(to_change(global, tenure, given)?.id);
    given.iter().map(id).collect()
}

/// The id of the section that a command changes, or puts a task into. A prefix of an id is not enough: which sections
/// were deleted is not known by their ids, so that it might match another one than was meant.
pub(super) fn section_to_change(tenure: &Tenure, given: &str) -> Result<String, Failure> {
    let section = tenure.tasks()?.find_section(given, call_deadline())?;
    let id = given.strip_prefix("section:").unwrap_or(given);
    if section.id != id && !section.name.eq_ignore_ascii_case(given) {
        let message = format!(
            "{given} is only the beginning of an id: name the section, {}",
            words::quoted(&section.name)
        );
        return Err(
            Failure::new(ErrorCode::SectionNotFound, message).details(json!({ "section": given }))
        );
    }
    Ok(section.id)
}

fn add(global: &Global, new: Add) -> Result<Answer, Failure> {
    let tenure = context::open_to_add(global)?;
    let tasks = tenure.tasks()?;
    let section = new.section.as_deref();
    let section = section.map(|section| section_to_change(&tenure, section));
    let task = NewTask {
        title: new.title,
        description: new.description.filter(|text| !text.is_empty()),
        section: section.transpose()?,
        priority: new.priority.unwrap_or_default(),
        depends_on: ids(global, &tenure, &new.depends_on)?,
    };
    let (task, is_new) = if new.once {
        tasks.add_task_once(&task, call_deadline())?
    } else {
        (tasks.add_task(&task, call_deadline())?, true)
    };
    let text = if global.quiet {
        task.id.clone()
    } else if is_new {
        format!("Added task {} ({}).", words::title(&task), task.id)
    } else {
        let (title, id, status) = (words::title(&task), &task.id, task.status);
        format!("Task {title} exists already ({id}, {status}); nothing was added.")
    };
    Ok(Answer::new(TaskJson::from(&task), text))
}

/// Ends the caller's work on a task.
fn end(
    global: &Global,
    held: HeldTask,
    status: Status,
    error: Option<String>,
) -> Result<Answer, Failure> {
    let update = Update {
        task: held.task,
        token: held.token,
        status: Some(status),
        error,
        ..Update::default()
    };
    update::update(global, &update)
}

fn list(global: &Global, list: &List) -> Result<Answer, Failure> {
    let tenure = context::open_existing(global)?;
    let tasks = tenure.tasks()?;
    let section = match &list.section {
        Some(section) => Some(tasks.find_section(section, call_deadline())?.id),
        None => None,
    };
    // One more than the limit, to know whether there are more.
    let limit = (list.limit > 0).then_some(list.limit);
    let query = TaskQuery {
        status: list.status,
        section,
        search: list.search.clone(),
        ready: list.ready,
        limit: limit.map(|limit| limit.saturating_add(1)),
    };
    let mut found = tasks.tasks(&query, call_deadline())?;
    let more = limit.is_some_and(|limit| found.len() > limit);
    found.truncate(limit.unwrap_or(usize::MAX));
    let data = TasksJson {
        tasks: found.iter().map(Into::into).collect(),
        more,
    };
    if found.is_empty() {
        return Ok(Answer::new(data, "No tasks."));
    }
    let now = tenure.clock().now();
    let leases = leases(&tenure, &found)?;
    let mut columns = vec!["ID", "STATUS", "PRI", "SECTION", "HOLDER", "TITLE"];
    if !leases.is_empty() {
        columns.splice(5..5, ["SINCE", "UNTIL"]);
    }
    let mut rows = Table::new(&columns);
    let none = || "-".to_owned();
    for task in &found {
        let lease = leases.iter().find(|(id, ..)| *id == task.id);
        let mut row = vec![
            words::short(&task.id).to_owned(),
            state(&now, task),
            task.priority.to_string(),
            task.section
                .as_ref()
                .map_or_else(none, |section| section.name.clone()),
            task.runner.as_ref().map_or_else(none, ToString::to_string),
        ];
        if !leases.is_empty() {
            let since = lease.map(|(_, lease, _)| words::ago_if_known(&now, lease.since()));
            let until = lease.map(|(_, lease, verdict)| words::until(&now, lease, verdict));
            row.extend([since.unwrap_or_else(none), until.unwrap_or_else(none)]);
        }
        row.push(task.title.clone());
        rows.row(row);
    }
    let mut text = rows.text();
    if more {
        text = format!("{text}\n(the first {}; --limit 0 shows all)", found.len());
    }
    Ok(Answer::new(data, text))
}

/// The leases of those tasks that a runner works on, each with the id of its task.
fn leases(tenure: &Tenure, tasks: &[Task]) -> Result<Vec<(String, Lease, Verdict)>, Failure> {
    let is_held = |task: &Task| task.status == Status::InProgress && !task.elsewhere;
    if !tasks.iter().any(is_held) {
        return Ok(Vec::new());
    }
    let held = tenure.store().list(call_deadline())?.into_iter();
    let of_task = |(lease, verdict): (Lease, Verdict)| match lease.key.kind() {
        KeyKind::Task(id) => Some((id.to_owned(), lease, verdict)),
        _ => None,
    };
    let held = held
        .flat_map(|snapshot| snapshot.leases)
        .filter_map(of_task);
    Ok(held
        .filter(|(id, ..)| tasks.iter().any(|task| task.id == *id))
        .collect())
}

/// The status, and why the task cannot be started yet.
fn state(now: &Moment, task: &Task) -> String {
    if let Some(problem) = &task.problem {
        return format!("malformed ({problem})");
    }
    if task.status.is_open() && task.blockers > 0 {
        return format!("{} (waits for {})", task.status, task.blockers);
    }
    if task.elsewhere {
        return format!("{} (in another clone)", task.status);
    }
    if task.not_before.is_some_and(|at| at > now.wall) {
        return format!("{} (retried later)", task.status);
    }
    task.status.to_string()
}

fn delete(global: &Global, given: &[String]) -> Result<Answer, Failure> {
    let tenure = context::open_to_change(global)?;
    let tasks = tenure.tasks()?;
    let mut ids = ids(global, &tenure, given)?;
    let mut seen = std::collections::HashSet::new();
    ids.retain(|id| seen.insert(id.clone()));
    let mut lines = Vec::new();
    let mut data = DeletedTasksJson::default();
    for DeletedTask { task, dependents } in tasks.delete_tasks(&ids, call_deadline())? {
        let freed = match dependents {
            0 => String::new(),
            1 => " 1 task no longer waits for it.".to_owned(),
            many => format!(" {many} tasks no longer wait for it."),
        };
        lines.push(format!(
            "Deleted task {} ({}).{freed}",
            words::title(&task),
            task.id
        ));
        data.deleted.push((&task).into());
    }
    Ok(Answer::confirmed(global, data, lines.join("\n")))
}

fn import(global: &Global, file: &Path) -> Result<Answer, Failure> {
    let tenure = context::open_to_add(global)?;
    let tasks = tenure.tasks()?;
    let read = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(file)
    };
    let bytes = read.map_err(|error| {
        let code = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorCode::NotFound,
            _ => ErrorCode::Io,
        };
        Failure::new(code, format!("{} cannot be read ({error})", file.display()))
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..good).unwrap_or_default();
        let number = before.split(|byte| *byte == b'\n').count();
        let message =
            format!("nothing was imported:\nline {number}: not UTF-8 text: save the file as UTF-8");
        let details = json!({ "lines": [{ "line": number, "message": "not UTF-8 text" }] });
        Failure::new(ErrorCode::BadLine, message).details(details)
    })?;
    let done = tasks.import(&text, call_deadline())?;
    let text = format!(
        "Imported: {} added, {} changed, {} unchanged; {} added.",
        plural::count(done.added, "task"),
        done.changed,
        done.unchanged,
        plural::count(done.sections, "section")
    );
    Ok(Answer::confirmed(global, done, text))
}

fn export(global: &Global) -> Result<Answer, Failure> {
    use std::io::Write;
    let tenure = context::open_existing(global)?;
    let tasks = tenure.tasks()?;
    for task in tasks.tasks(&TaskQuery::default(), call_deadline())? {
        if let Some(problem) = task.problem {
            let what = format!("the task {} is exported with stand-ins: {problem}", task.id);
            remark(global, &what);
        }
    }
    if global.json {
        let mut lines = Vec::new();
        let mut parsed =
            |line: &str| lines.push(serde_json::from_str::<Value>(line).unwrap_or_default());
        tasks.export(&mut parsed, call_deadline())?;
        return Ok(Answer::new(LinesJson { lines }, String::new()));
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    let mut write = |line: &str| {
        if written.is_ok() {
            written = writeln!(out, "{line}");
        }
    };
    tasks.export(&mut write, call_deadline())?;
    let written = written.and_then(|()| out.flush());
    printed(written, "the lines could not be written")
}
