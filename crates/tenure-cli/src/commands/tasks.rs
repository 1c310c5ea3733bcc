//! `tenure tasks`: what there is to do.

mod next;
mod update;
mod work;

use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};
use tenure::Tenure;
use tenure::core::task::{NewTask, TaskQuery};
use tenure::core::{Moment, Task};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::tasks::{Add, List, Tasks};
use crate::context;
use crate::exit::Exit;
use crate::table::Table;
use crate::words;

pub(crate) fn tasks(global: &Global, tasks: Tasks) -> Result<Answer, Failure> {
    match tasks {
        Tasks::Add(new) => add(global, new),
        Tasks::List(query) => list(global, &query),
        Tasks::Show { task } => show(global, &task),
        Tasks::Update(update) => update::update(global, &update),
        Tasks::Next(next) => next::next(global, &next),
        Tasks::Work(work) => work::work(global, &work),
        Tasks::Import { file } => import(global, &file),
        Tasks::Export => export(global),
    }
}

/// The ids of the tasks that are meant.
fn ids(tenure: &Tenure, given: &[String]) -> Result<Vec<String>, Failure> {
    let tasks = tenure.tasks()?;
    given
        .iter()
        .map(|given| Ok(tasks.find_task(given)?.id))
        .collect()
}

fn add(global: &Global, new: Add) -> Result<Answer, Failure> {
    let tenure = context::open_to_change(global)?;
    let tasks = tenure.tasks()?;
    let section = match &new.section {
        Some(section) => Some(tasks.find_section(section)?.id),
        None => None,
    };
    let depends_on = ids(&tenure, &new.depends_on)?;
    let task = tasks.add_task(&NewTask {
        title: new.title,
        description: new.description.filter(|text| !text.is_empty()),
        section,
        priority: new.priority.unwrap_or_default(),
        depends_on,
    })?;
    let text = if global.quiet {
        task.id.clone()
    } else {
        format!("Added task \"{}\" ({}).", task.title, task.id)
    };
    Ok(Answer::new(words::task_json(&task), text))
}

fn list(global: &Global, list: &List) -> Result<Answer, Failure> {
    let tenure = context::open(global)?;
    let tasks = tenure.tasks()?;
    let section = match &list.section {
        Some(section) => Some(tasks.find_section(section)?.id),
        None => None,
    };
    // One more than asked for tells whether there are more.
    let limit = (list.limit > 0).then_some(list.limit);
    let mut found = tasks.tasks(&TaskQuery {
        status: list.status,
        section,
        search: list.search.clone(),
        ready: list.ready,
        limit: limit.map(|limit| limit.saturating_add(1)),
    })?;
    let more = limit.is_some_and(|limit| found.len() > limit);
    found.truncate(limit.unwrap_or(usize::MAX));
    let data: Vec<Value> = found.iter().map(words::task_json).collect();
    let data = json!({ "tasks": data, "more": more });
    if found.is_empty() {
        return Ok(Answer::new(data, "No tasks."));
    }
    let now = tenure.clock().now();
    let mut rows = Table::new(&["ID", "STATUS", "PRI", "SECTION", "RUNNER", "TITLE"]);
    for task in &found {
        rows.row([
            words::short(&task.id).to_owned(),
            state(&now, task),
            task.priority.to_string(),
            task.section
                .as_ref()
                .map_or_else(|| "-".to_owned(), |section| section.name.clone()),
            task.runner
                .as_ref()
                .map_or_else(|| "-".to_owned(), ToString::to_string),
            task.title.clone(),
        ]);
    }
    let mut text = rows.text();
    if more {
        text = format!("{text}\n(the first {}; --limit 0 shows all)", found.len());
    }
    Ok(Answer::new(data, text))
}

/// The status, and what it waits for.
fn state(now: &Moment, task: &Task) -> String {
    if task.status.is_open() && task.blockers > 0 {
        return format!("{} (waits for {})", task.status, task.blockers);
    }
    if task.not_before.is_some_and(|at| at > now.wall) {
        return format!("{} (again later)", task.status);
    }
    task.status.to_string()
}

fn show(global: &Global, given: &str) -> Result<Answer, Failure> {
    let tenure = context::open(global)?;
    let tasks = tenure.tasks()?;
    let task = tasks.find_task(given)?;
    let now = tenure.clock().now();
    let snapshot = match task.key() {
        Ok(key) => Some(tenure.store().inspect(&key)?),
        Err(_) => None,
    };
    let dependents = tasks.dependents(&task.id)?;
    let mut before = Vec::new();
    for id in &task.depends_on {
        before.push(tasks.find_task(id)?);
    }
    let mut lines = describe(&now, &task);
    let mut data = words::task_json(&task);
    for (name, others) in [("Waits for", &before), ("Before", &dependents)] {
        for (index, other) in others.iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            lines.push(line(
                name,
                &format!("\"{}\" ({})", other.title, other.status),
            ));
        }
    }
    if let Some((lease, verdict)) = snapshot
        .as_ref()
        .and_then(|snapshot| snapshot.lease.as_ref())
    {
        lines.push(line("Locked by", &words::held(&now, lease)));
        lines.push(line("Verdict", &verdict.to_string()));
        lines.push(line("Expires", &words::time(lease.expires.shown(&now))));
        lines.push(line("Token", &lease.token.to_string()));
    }
    if let Value::Object(fields) = &mut data {
        let ids: Vec<&str> = dependents.iter().map(|task| task.id.as_str()).collect();
        fields.insert("dependents".into(), json!(ids));
        let lock = snapshot.filter(|snapshot| snapshot.lease.is_some());
        let lock = lock.map(|snapshot| words::snapshot_json(&now, &snapshot));
        fields.insert("lock".into(), lock.unwrap_or(Value::Null));
    }
    Ok(Answer::new(data, lines.join("\n")))
}

fn line(name: &str, value: &str) -> String {
    if name.is_empty() {
        return format!("{:<13}{value}", "");
    }
    format!("{:<13}{value}", format!("{name}:"))
}

/// A task for people.
fn describe(now: &Moment, task: &Task) -> Vec<String> {
    let mut lines = vec![
        line("Task", &task.title),
        line("Id", &task.id),
        line("Status", &state(now, task)),
        line("Priority", &task.priority.to_string()),
    ];
    if let Some(section) = &task.section {
        lines.push(line("Section", &section.name));
    }
    if let Some(description) = &task.description {
        for (index, text) in description.lines().enumerate() {
            lines.push(line(if index == 0 { "Description" } else { "" }, text));
        }
    }
    lines.push(line(
        "Added",
        &format!(
            "{} ({})",
            words::time(task.created_at),
            words::ago(now, task.created_at)
        ),
    ));
    if let Some(runner) = &task.runner {
        lines.push(line("Runner", runner.as_str()));
    }
    if task.attempts > 0 {
        lines.push(line(
            "Failed",
            &match task.attempts {
                1 => "once".to_owned(),
                count => format!("{count} times"),
            },
        ));
    }
    for (index, text) in task
        .last_error
        .iter()
        .flat_map(|text| text.lines())
        .enumerate()
    {
        lines.push(line(if index == 0 { "Last error" } else { "" }, text));
    }
    if let Some(at) = task.not_before.filter(|at| *at > now.wall) {
        lines.push(line("Again at", &words::time(at)));
    }
    lines
}

fn import(global: &Global, file: &Path) -> Result<Answer, Failure> {
    let tenure = context::open_to_change(global)?;
    let tasks = tenure.tasks()?;
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::NotFound,
            _ => Exit::Runtime,
        };
        Failure::new(
            exit,
            "IO",
            format!("{} can't be read ({error})", file.display()),
        )
    })?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..good).unwrap_or_default();
        let number = before.split(|byte| *byte == b'\n').count();
        Failure::new(
            Exit::Usage,
            "BAD_LINE",
            format!("nothing was imported:\nline {number}: not UTF-8 text: save the file as UTF-8"),
        )
        .details(json!({ "lines": [{ "line": number, "message": "not UTF-8 text" }] }))
    })?;
    let done = tasks.import(&text)?;
    let text = if global.quiet {
        String::new()
    } else {
        format!(
            "Imported: {} added, {} changed, {} as they were; {} added.",
            counted(done.added, "task"),
            done.changed,
            done.unchanged,
            counted(done.sections, "section")
        )
    };
    Ok(Answer::new(json!(done), text))
}

/// 1 task, 2 tasks.
fn counted(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

fn export(global: &Global) -> Result<Answer, Failure> {
    use std::io::Write;
    let tenure = context::open(global)?;
    let tasks = tenure.tasks()?;
    if global.json {
        let mut lines = Vec::new();
        tasks.export(|line| lines.push(serde_json::from_str::<Value>(line).unwrap_or_default()))?;
        return Ok(Answer::new(json!({ "lines": lines }), String::new()));
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut written = Ok(());
    tasks.export(|line| {
        if written.is_ok() {
            written = writeln!(out, "{line}");
        }
    })?;
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(
            Exit::Runtime,
            "IO",
            format!("the lines could not be written ({error})"),
        )),
        _ => Ok(Answer::silent(Exit::Done)),
    }
}
