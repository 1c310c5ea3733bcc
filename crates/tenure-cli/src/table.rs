//! Tables without borders, for people and for `grep` and `awk`.

use comfy_table::{ContentArrangement, presets};

/// A table with a header.
pub(crate) struct Table(comfy_table::Table);

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            // One line per row, however long, for `grep` and `awk`.
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(header);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Self(table)
    }

    pub(crate) fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells: Vec<String> = cells
            .into_iter()
            .map(|cell| cell.into().replace(char::is_control, " "))
            .collect();
        self.0.add_row(cells);
    }

    pub(crate) fn text(&self) -> String {
        self.0.trim_fmt()
    }
}
