//! Tables without borders: cut to the terminal for people, whole for `grep` and `awk`.
//!
//! 1. Where standard output is no terminal, a row is one line, however long.
//! 2. On a terminal, names are shortened in the middle, because their ends tell them apart, and processes at the end,
//!    because they begin with the pid. Times, numbers and states stay whole.
//! 3. Prose, which is the last column, is broken between words.

use std::io::IsTerminal;
use tenure::text::flat;

use crate::fit;

/// The columns that may be shortened.
const NAMES: [&str; 11] = [
    "ID", "KEY", "MODE", "HOLDER", "PROCESS", "TITLE", "NAME", "SECTION", "TAGS", "NODE", "VALUE",
];

/// The columns that hold prose.
const PROSE: [&str; 2] = ["DETAIL", "DESCRIPTION"];

/// No name is shortened to fewer columns than this.
const LEAST: usize = 8;

/// The longest mode that is a word.
const LEAST_MODE: usize = "exclusive".len();

/// Prose that has fewer columns than this beside the row is printed below it.
const LEAST_PROSE: usize = 24;

/// The blanks between two columns.
const GAP: usize = 2;

/// A table with a header.
pub(crate) struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Lines that stand before a row, by the number of that row.
    groups: Vec<(usize, String)>,
    /// The column that rows have and the table has not.
    left_out: Option<usize>,
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        Self {
            header: header.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
            groups: Vec::new(),
            left_out: None,
        }
    }

    /// Leaves a column out of the rows that follow.
    pub(crate) fn leave_out(&mut self, name: &str) {
        self.left_out = self.header.iter().position(|known| known == name);
        if let Some(column) = self.left_out {
            self.header.remove(column);
        }
    }

    /// Begins a group of rows, under a line of its own.
    pub(crate) fn group(&mut self, title: &str) {
        self.groups.push((self.rows.len(), flat(title)));
    }

    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells = cells.into_iter().enumerate();
        let cells = cells.filter(|(column, _)| Some(*column) != self.left_out);
        let cells = cells.map(|(_, cell)| flat(&cell.into()));
        self.rows.push(cells.collect());
    }

    pub(crate) fn text(&self) -> String {
        let width = std::io::stdout().is_terminal().then(fit::terminal_width);
        self.fitted(width)
    }

    fn fitted(&self, width: Option<usize>) -> String {
        let last = self.header.last().map_or("", String::as_str);
        let prose = width.filter(|_| PROSE.contains(&last));
        let columns = self.header.len() - usize::from(prose.is_some());
        let mut widths: Vec<usize> = (0..columns).map(|column| self.natural(column)).collect();
        let gaps = GAP * columns.saturating_sub(1);
        if let Some(width) = width {
            self.shorten(&mut widths, width.saturating_sub(gaps));
        }
        let used: usize = widths.iter().sum::<usize>() + gaps;
        let left = prose.map_or(0, |width| width.saturating_sub(used + GAP));
        let mut lines = Vec::new();
        for (number, row) in [&self.header].into_iter().chain(&self.rows).enumerate() {
            let titles = self.groups.iter();
            for (_, title) in titles.filter(|(before, _)| *before + 1 == number) {
                lines.push(String::new());
                lines.push(fit::cut(title, width.unwrap_or(usize::MAX)));
            }
            let cells = row.iter().zip(&widths).zip(&self.header);
            let cells: Vec<String> = cells
                .map(|((cell, width), name)| {
                    let fitted = match name.as_str() {
                        "PROCESS" => fit::cut(cell, *width),
                        _ => fit::middle(cell, *width),
                    };
                    fit::filled(&fitted, *width)
                })
                .collect();
            let mut line = cells.join(&" ".repeat(GAP));
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
                if below && std::ptr::eq(row, &raw const self.header) {
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

    fn natural(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widths = cells.map(|cell| fit::width(cell));
        let header = self.header.get(column).map_or(0, |name| fit::width(name));
        widths.max().unwrap_or(0).max(header)
    }

    /// Takes columns from the widest name until all fit, or none can be shortened.
    fn shorten(&self, widths: &mut [usize], available: usize) {
        while widths.iter().sum::<usize>() > available {
            let names = widths.iter_mut().zip(&self.header);
            let widest = names
                .filter(|(width, name)| {
                    let least = if *name == "MODE" { LEAST_MODE } else { LEAST };
                    **width > least && NAMES.contains(&name.as_str())
                })
                .map(|(width, _)| width)
                .max_by_key(|width| **width);
            match widest {
                Some(width) => *width -= 1,
                None => return,
            }
        }
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
