//! Tables without borders: cut to the terminal for people, whole for `grep` and `awk`.
//!
//! 1. Where standard output is no terminal, a row is one line, however long.
//! 2. On a terminal, columns give way in this order: the one that is to go first, the ids of sessions, what is beside the
//!    names, and last the names: keys, paths and holders. Times and numbers stay whole.
//! 3. Names are shortened in the middle, because their ends tell them apart, and the others at the end:
//!    a process begins with its pid.
//! 4. Prose, which is the last column, is broken between words.

use std::io::IsTerminal;
use tenure::text::flat;

use crate::fit;

/// The columns that may be shortened: those that give way first, and those that do so last.
const BESIDE_NAMES: [&str; 10] = [
    "MODE",
    "PROCESS",
    "REMAINING",
    "TITLE",
    "SECTION",
    "TAGS",
    "VALUE",
    "NOTE",
    "WHY",
    "DETAIL",
];
const NAMES: [&str; 8] = [
    "KEY", "PATHS", "HOLDER", "RUNNER", "ID", "NAME", "NODE", "TASK",
];

/// The columns that hold prose.
const PROSE: [&str; 2] = ["DETAIL", "DESCRIPTION"];

/// No name is shortened to fewer columns than this.
const LEAST: usize = 9;

/// Prose that has fewer columns than this beside the row is printed below it.
const LEAST_PROSE: usize = 24;

/// The blanks between two columns.
pub(crate) const GAP: usize = 2;

/// How wide each column is. All of them have `room` if the names can be shortened so far. A row with fewer cells is a title.
pub(crate) fn widths(header: &[&str], rows: &[Vec<String>], room: usize) -> Vec<usize> {
    let rows = rows.iter().filter(|row| row.len() >= header.len());
    let mut widths: Vec<usize> = header.iter().map(|name| fit::width(name)).collect();
    let mut short = widths.clone();
    for row in rows {
        for ((width, short), cell) in widths.iter_mut().zip(&mut short).zip(row) {
            *width = (*width).max(fit::width(cell));
            *short = (*short).max(fit::width(&fit::short_ids(cell)));
        }
    }
    let gaps = GAP * widths.len().saturating_sub(1);
    let is_over = |widths: &[usize]| widths.iter().sum::<usize>() + gaps > room;
    if is_over(&widths) {
        for ((width, short), name) in widths.iter_mut().zip(short).zip(header) {
            if is_holder(name) {
                *width = short;
            }
        }
    }
    for names in [&BESIDE_NAMES[..], &NAMES[..]] {
        while is_over(&widths) {
            let mut widest = widths.iter_mut().zip(header);
            let widest = widest
                .by_ref()
                .filter(|(width, name)| **width > LEAST && names.contains(*name))
                .max_by_key(|(width, _)| **width);
            match widest {
                Some((width, _)) => *width -= 1,
                None => break,
            }
        }
    }
    widths
}

fn is_holder(name: &str) -> bool {
    matches!(name, "HOLDER" | "RUNNER")
}

/// A row with columns of these widths.
pub(crate) fn line(header: &[&str], row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).zip(header);
    let cells: Vec<String> = cells
        .map(|((cell, width), name)| {
            let fitted = match *name {
                "PROCESS" | "REMAINING" | "NOTE" | "WHY" | "DETAIL" => fit::cut(cell, *width),
                name if is_holder(name) && fit::width(cell) > *width => {
                    fit::middle(&fit::short_ids(cell), *width)
                }
                _ => fit::middle(cell, *width),
            };
            fit::filled(&fitted, *width)
        })
        .collect();
    cells.join(&" ".repeat(GAP))
}

/// A table with a header.
#[derive(Clone)]
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Lines that stand before a row, by the number of that row.
    groups: Vec<(usize, String)>,
    first_to_go: Option<&'static str>,
}

impl Table {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self {
            header: header.to_vec(),
            rows: Vec::new(),
            groups: Vec::new(),
            first_to_go: None,
        }
    }

    /// Leaves a column out where the terminal has no room for all of them: other columns say the same.
    pub(crate) fn first_to_go(mut self, name: &'static str) -> Self {
        self.first_to_go = Some(name);
        self
    }

    /// Leaves a column out.
    pub(crate) fn leave_out(&mut self, name: &str) {
        if let Some(column) = self.header.iter().position(|known| *known == name) {
            self.header.remove(column);
            for row in &mut self.rows {
                row.remove(column);
            }
        }
    }

    /// Begins a group of rows, under a line of its own.
    pub(crate) fn group(&mut self, title: &str) {
        self.groups.push((self.rows.len(), flat(title)));
    }

    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells = cells.into_iter().map(|cell| flat(&cell.into()));
        self.rows.push(cells.collect());
    }

    pub(crate) fn text(&self) -> String {
        let width = std::io::stdout().is_terminal().then(fit::terminal_width);
        self.fitted(width)
    }

    fn fitted(&self, width: Option<usize>) -> String {
        let last = self.header.last().copied().unwrap_or_default();
        let prose = width.filter(|_| PROSE.contains(&last));
        let columns = self.header.len() - usize::from(prose.is_some());
        let header = self.header.get(..columns).unwrap_or_default();
        let beside: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().take(columns).cloned().collect())
            .collect();
        let whole = widths(header, &beside, usize::MAX);
        let widths = width.map_or_else(|| whole.clone(), |width| widths(header, &beside, width));
        if let Some(name) = self.first_to_go
            && whole != widths
        {
            let mut rest = self.clone();
            rest.first_to_go = None;
            rest.leave_out(name);
            return rest.fitted(width);
        }
        let used: usize = widths.iter().sum::<usize>() + GAP * columns.saturating_sub(1);
        let left = prose.map_or(0, |width| width.saturating_sub(used + GAP));
        let names: Vec<String> = self.header.iter().map(|&name| name.to_owned()).collect();
        let mut lines = Vec::new();
        for (number, row) in [&names].into_iter().chain(&self.rows).enumerate() {
            let titles = self.groups.iter();
            for (_, title) in titles.filter(|(before, _)| *before + 1 == number) {
                lines.push(String::new());
                lines.push(fit::cut(title, width.unwrap_or(usize::MAX)));
            }
            let mut line = line(header, row, &widths);
            let mut more = Vec::new();
            if let (Some(width), Some(text)) = (prose, row.get(columns)) {
                let below = left < LEAST_PROSE;
                let (indent, most) = if below {
                    (2 * GAP, width.saturating_sub(2 * GAP))
                } else {
                    (used + GAP, left)
                };
                more = fit::wrapped(text, most, usize::MAX);
                if !below && !more.is_empty() {
                    line = format!("{}{}{}", line, " ".repeat(GAP), more.remove(0));
                }
                // The name of a column that is not beside the others would say nothing.
                if below && number == 0 {
                    more.clear();
                }
                for text in &mut more {
                    text.insert_str(0, &" ".repeat(indent));
                }
            }
            lines.push(line.trim_end().to_owned());
            lines.extend(more);
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locks() -> Table {
        let mut table = Table::new(&["KEY", "HOLDER", "TOKEN", "SINCE"]);
        table.row([
            "task:3873d8d6-8887-4c62-a418-92d5cefd0df7",
            "agent-1 (pid 959 on laptop)",
            "2",
            "5s ago",
        ]);
        table.row(["build", "me", "1", "1h ago"]);
        table
    }

    #[test]
    fn a_row_is_one_whole_line_where_no_terminal_is() {
        let text = locks().fitted(None);
        assert!(text.contains("task:3873d8d6-8887-4c62-a418-92d5cefd0df7  agent-1 (pid"));
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn names_are_shortened_in_the_middle_and_times_are_not() {
        let text = locks().fitted(Some(60));
        assert_eq!(
            text,
            "KEY                     HOLDER                 TOKEN  SINCE\n\
             task:3873d8…d5cefd0df7  agent-1 (p…on laptop)  2      5s ago\n\
             build                   me                     1      1h ago"
        );
        for width in [40, 50, 60, 80, 100] {
            for line in locks().fitted(Some(width)).lines() {
                assert!(fit::width(line) <= width, "{width}: {line}");
                assert!(line.contains("ago") || line.contains("SINCE"), "{line}");
            }
        }
    }

    #[test]
    fn the_ids_of_sessions_give_way_before_names_and_a_state_before_them() {
        let mut table = Table::new(&["KEY", "HOLDER", "STATE", "TITLE"]).first_to_go("STATE");
        let holder = "claude-code-3873d8d6-8887-4c62-a418-92d5cefd0df7";
        table.row(["src/parser/mod.rs", holder, "held", "Fix the parser"]);
        for (width, fitted) in [
            (
                85,
                "src/parser/mod.rs  claude-code-3873d8d6-8887-4c62-a418-92d5cefd0df7  Fix the parser",
            ),
            (
                60,
                "src/parser/mod.rs  claude-code-3873d8d6  Fix the parser",
            ),
            (50, "src/parser/mod.rs  claude-code-3873d8d6  Fix …rser"),
            (44, "src/pars…/mod.rs  claude-…873d8d6  Fix …rser"),
        ] {
            let text = table.fitted(Some(width));
            assert!(!text.contains("STATE"), "{text}");
            assert_eq!(text.lines().nth(1).unwrap(), fitted, "{width}");
        }
        assert!(table.fitted(Some(110)).contains("held"));
        assert!(table.fitted(None).contains("held"));
    }

    #[test]
    fn prose_is_broken_between_words_beside_its_row_or_below_it() {
        let mut table = Table::new(&["EVENT", "DETAIL"]);
        table.row(["granted", "taken over from a dead holder"]);
        assert_eq!(
            table.fitted(Some(36)),
            "EVENT    DETAIL\n\
             granted  taken over from a dead\n         holder"
        );
        assert_eq!(
            table.fitted(Some(28)),
            "EVENT\n\
             granted\n    taken over from a dead\n    holder"
        );
        assert_eq!(table.fitted(None).lines().count(), 2);
    }
}
