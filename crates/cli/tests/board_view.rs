//! The layout of `tenure board list` at every terminal width.

use crate::board_project;
use crate::project;

use board_project::{empty, sample, task, text};
use project::Project;

/// The board as a terminal of this width would show it, without colours.
fn kanban(project: &Project, columns: usize) -> String {
    let call = project.call("board list --view kanban");
    call.env("COLUMNS", columns.to_string()).end().exits(0).out
}

/// The width of a text on a terminal, by a table of its own for the characters in these tests.
fn width(text: &str) -> usize {
    text.chars()
        .map(|c| match c {
            '\u{300}'..='\u{36f}' => 0,
            '\u{1100}'..='\u{115f}'
            | '\u{2e80}'..='\u{a4cf}'
            | '\u{ac00}'..='\u{d7a3}'
            | '\u{ff00}'..='\u{ff60}'
            | '\u{1f300}'..='\u{1faff}' => 2,
            _ => 1,
        })
        .sum()
}

#[test]
fn statuses_are_columns_side_by_side() {
    let project = sample();
    let shown = kanban(&project, 60);
    assert_eq!(
        shown,
        "TODO (1)                       INPROGRESS (1)
─────────────────────────────  ─────────────────────────────
Hold one lock                  Break a stale lock
HIGH 01-hold-one-lock          CRITICAL 02-break-a-stale-lo…
"
    );
}

#[test]
fn a_narrow_terminal_gets_a_list() {
    let project = sample();
    assert_eq!(
        kanban(&project, 30),
        "TODO (1)
  HIGH  Hold one lock
        01-hold-one-lock

INPROGRESS (1)
  CRITICAL  Break a stale lock
            02-break-a-stale-…
"
    );
}

/// A board with titles of every kind.
fn wide() -> Project {
    let project = empty();
    let titles = [
        "日本語の題名はとても長いので折り返します",
        "🚀 Launch the rocket 🚀 and then some more words",
        "Plain",
        "cafe\u{301} no\u{308}el",
        "한국어 제목",
        "unbreakablewordthatislongerthananycolumncouldeverbe",
        "tab\there",
    ];
    for (number, title) in titles.iter().enumerate() {
        let status = ["TODO", "INPROGRESS", "DONE"][number % 3];
        let priority = ["HIGH", "LOW", "CRITICAL"][number % 3];
        project.write(
            &task(&format!("{number:02}-t")),
            &text(title, status, priority),
        );
    }
    project
}

#[test]
fn wide_characters_and_emoji_line_up_and_nothing_is_wider_than_the_terminal() {
    let project = wide();
    for columns in [10, 20, 37, 56, 57, 58, 80, 100, 200] {
        let shown = kanban(&project, columns);
        for line in shown.lines() {
            assert!(
                width(line) <= columns,
                "{columns}: {line:?} is {}",
                width(line)
            );
            assert_eq!(line.trim_end(), line, "{columns}: blanks at the end");
        }
    }
    // Every column begins where its rule begins, so the text to the left ends before that.
    let shown = kanban(&project, 80);
    let lines: Vec<&str> = shown.lines().collect();
    let each = lines[1].split("  ").next().unwrap().chars().count();
    assert_eq!(width(lines[1]), 3 * each + 4);
    for line in &lines {
        let mut at = 0;
        for c in line.chars() {
            let in_gap = at % (each + 2) >= each;
            assert!(
                !in_gap || c == ' ',
                "{c:?} of {line:?} is between two columns"
            );
            at += width(&c.to_string());
        }
    }
}

#[test]
fn a_column_begins_with_the_highest_priority() {
    let project = empty();
    for (id, priority) in [
        ("1", "LOW"),
        ("2", "CRITICAL"),
        ("3", "HIGH"),
        ("4", "CRITICAL"),
    ] {
        project.write(&task(id), &text(&format!("T{id}"), "TODO", priority));
    }
    let shown = kanban(&project, 80);
    let order: Vec<_> = shown
        .lines()
        .filter(|line| line.starts_with('T') && line.len() == 2)
        .collect();
    assert_eq!(order, ["T2", "T4", "T3", "T1"]);
}

#[test]
fn colours_are_written_only_to_terminals_that_want_them() {
    let project = sample();
    let plain = kanban(&project, 80);
    assert!(!plain.contains('\u{1b}'));
    let call = project
        .call("board list --view kanban")
        .env("CLICOLOR_FORCE", "1")
        .env("COLUMNS", "80");
    let coloured = call.end().exits(0).out;
    assert!(
        coloured.contains("\u{1b}[1m\u{1b}[31mCRITICAL") || coloured.contains("\u{1b}[1;31m"),
        "{coloured:?}"
    );
    // Without the colours, the text is the same.
    let mut bare = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        bare.push_str(before);
        rest = after.split_once('m').unwrap().1;
    }
    bare.push_str(rest);
    assert_eq!(bare, plain);
    let call = project
        .call("board list --view kanban --no-color")
        .env("CLICOLOR_FORCE", "1");
    assert!(!call.end().exits(0).out.contains('\u{1b}'));
}

#[test]
fn a_table_lines_up_too_and_an_empty_board_says_so() {
    let project = wide();
    let shown = project.tenure("board list").exits(0).out;
    let header = shown.lines().next().unwrap();
    let tags = header.find("TAGS").unwrap();
    for line in shown.lines().skip(1) {
        let before = line.rsplit_once("backend").unwrap().0;
        assert_eq!(width(before), tags, "{line:?}");
    }
    let empty = empty();
    for view in ["table", "kanban"] {
        let said = empty.tenure(&format!("board list --view {view}")).exits(0);
        assert_eq!(said.out, "No tasks.\n");
    }
}
