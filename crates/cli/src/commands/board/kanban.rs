//! The kanban view: one column for each status, or a list where the terminal is too narrow.

use anstyle::{AnsiColor, Style};
use tenure::protocols::board::{Column, Config, Task, Vocabulary, columns};
use tenure::text::flat;

use crate::fit::{cut, filled, width, wrapped};

/// The width below which a column is hard to read.
const NARROWEST: usize = 18;
/// The width above which a column is no longer widened.
const WIDEST: usize = 40;
/// The space between two columns.
const GAP: usize = 2;
/// How many lines a title may have.
const TITLE_LINES: usize = 3;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// A line of a column in one style.
struct Line(String, Style);

pub(super) fn kanban(config: &Config, tasks: &[Task], terminal: usize) -> String {
    let columns = columns(config, tasks);
    let gaps = GAP * columns.len().saturating_sub(1);
    let each = terminal.saturating_sub(gaps) / columns.len().max(1);
    if each < NARROWEST {
        return narrow(config, &columns, terminal);
    }
    let each = each.min(WIDEST);
    let filled_columns: Vec<Vec<Line>> = columns
        .iter()
        .map(|column| lines(config, column, each))
        .collect();
    let rows = filled_columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut text = String::new();
    for row in 0..rows {
        let mut line = String::new();
        let mut blanks = 0;
        for column in &filled_columns {
            match column.get(row).filter(|line| !line.0.is_empty()) {
                Some(Line(words, style)) => {
                    // Blanks are written only before text, so that no line ends with them.
                    line.push_str(&" ".repeat(blanks));
                    line.push_str(&styled(words, *style));
                    blanks = each - width(words) + GAP;
                }
                None => blanks += each + GAP,
            }
        }
        text.push_str(&line);
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

fn styled(words: &str, style: Style) -> String {
    format!("{style}{words}{style:#}")
}

fn heading(column: &Column<'_>) -> String {
    format!("{} ({})", flat(column.status), column.tasks.len())
}

/// The lines of a column.
fn lines(config: &Config, column: &Column<'_>, each: usize) -> Vec<Line> {
    let mut lines = vec![
        Line(cut(&heading(column), each), BOLD),
        Line("─".repeat(each), DIM),
    ];
    for task in &column.tasks {
        if lines.len() > 2 {
            lines.push(Line(String::new(), Style::new()));
        }
        let title = wrapped(&flat(&task.title), each, TITLE_LINES);
        lines.extend(title.into_iter().map(|line| Line(line, Style::new())));
        let priority = flat(task.priority.as_str());
        let line = cut(&format!("{priority} {}", flat(&task.id)), each);
        lines.push(Line(line, colour(config, task)));
    }
    lines
}

/// The columns one below the other.
fn narrow(config: &Config, columns: &[Column<'_>], terminal: usize) -> String {
    let mut lines = Vec::new();
    for column in columns {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.push(styled(&cut(&heading(column), terminal), BOLD));
        let priorities = column.tasks.iter();
        let widest = priorities.map(|task| width(&flat(task.priority.as_str())));
        let widest = widest.max().unwrap_or(0);
        for task in &column.tasks {
            let priority = filled(&flat(task.priority.as_str()), widest);
            let line = cut(&format!("  {priority}  {}", flat(&task.title)), terminal);
            // Only the priority is coloured, as far as it was not cut off.
            let at = line.len().min(2 + priority.len());
            let (first, rest) = line.split_at_checked(at).unwrap_or((&line, ""));
            lines.push(format!("{}{rest}", styled(first, colour(config, task))));
            let id = cut(
                &format!("  {}  {}", " ".repeat(widest), flat(&task.id)),
                terminal,
            );
            lines.push(styled(&id, DIM));
        }
    }
    lines.join("\n")
}

/// The highest priority is red, the next one yellow, the lowest dim, the others cyan.
fn colour(config: &Config, task: &Task) -> Style {
    let priorities = config.levels(Vocabulary::Priority);
    let is = |level: Option<&tenure::protocols::board::Level>| {
        level.is_some_and(|level| level.name == task.priority.as_str())
    };
    let coloured = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
    if is(priorities.first()) {
        coloured(AnsiColor::Red).bold()
    } else if is(priorities.get(1)) {
        coloured(AnsiColor::Yellow)
    } else if is(priorities.last()) {
        DIM
    } else {
        coloured(AnsiColor::Cyan)
    }
}
