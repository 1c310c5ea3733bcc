//! `tenure board list`: the tasks, as a table or by status.

use serde_json::Value;
use tenure::protocols::board::{Board, Config, Level, Task, Vocabulary, load};
use tenure::wire::{BoardJson, BoardTaskJson, ErrorCode};

use super::kanban;
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::board::{Field, View};
use crate::fit;
use crate::table::Table;

pub(super) fn list(
    global: &Global,
    board: &Board,
    view: View,
    filter: Option<(Field, String)>,
) -> Result<Answer, Failure> {
    let config = Config::read(&board.config())?;
    let mut tasks = load::tasks(board, &config)?;
    if let Some((field, value)) = filter {
        let wanted = resolve(&config, field, &value)?;
        tasks.retain(|task| has(task, field, &wanted));
    }
    if global.json {
        let data = BoardJson {
            board: board.folder().display().to_string(),
            tasks: tasks.iter().map(task_json).collect(),
        };
        return Ok(Answer::new(data, ""));
    }
    let text = match view {
        View::Tsv => tasks
            .iter()
            .map(Task::record)
            .collect::<Vec<_>>()
            .join("\n"),
        View::Table | View::Kanban if tasks.is_empty() => "No tasks.".to_owned(),
        View::Table => table(&tasks),
        View::Kanban => {
            let text = kanban::kanban(&config, &tasks, fit::terminal_width());
            return Ok(Answer::new(Value::Null, text).styled());
        }
    };
    Ok(Answer::new(Value::Null, text))
}

/// The value to filter by, as `config.json` spells it.
fn resolve(config: &Config, field: Field, value: &str) -> Result<String, Failure> {
    let of = match field {
        Field::Status => Vocabulary::Status,
        Field::Priority => Vocabulary::Priority,
        Field::Kind => Vocabulary::Kind,
        Field::Tag => return Ok(value.to_owned()),
    };
    let known = config.typed(of, value).map(|level| level.name.clone());
    known.ok_or_else(|| {
        let all = Level::names(config.levels(of));
        let message = format!("--filter-value {value}: config.json defines {all}");
        Failure::new(ErrorCode::UnknownValue, message)
    })
}

fn has(task: &Task, field: Field, wanted: &str) -> bool {
    match field {
        Field::Status => task.status.as_str() == wanted,
        Field::Priority => task.priority.as_str() == wanted,
        Field::Kind => task.kind.as_str() == wanted,
        Field::Tag => {
            let wanted = wanted.to_lowercase();
            task.tags.iter().any(|tag| tag.to_lowercase() == wanted)
        }
    }
}

fn table(tasks: &[Task]) -> String {
    let mut table = Table::new(&["ID", "STATUS", "PRIORITY", "KIND", "TITLE", "TAGS"]);
    for task in tasks {
        table.row([
            task.id.as_str(),
            task.status.as_str(),
            task.priority.as_str(),
            task.kind.as_str(),
            task.title.as_str(),
            &task.tags.join(","),
        ]);
    }
    table.text()
}

fn task_json(task: &Task) -> BoardTaskJson {
    BoardTaskJson {
        id: task.id.clone(),
        title: task.title.clone(),
        description: task.description.clone(),
        status: task.status.as_str().to_owned(),
        priority: task.priority.as_str().to_owned(),
        weight: task.weight,
        kind: task.kind.as_str().to_owned(),
        tags: task.tags.clone(),
        depends_on: task.depends_on.clone(),
        path: task.path.display().to_string(),
        link: task.link(),
    }
}
