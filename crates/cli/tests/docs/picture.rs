//! The picture of the README: `tenure run` on a terminal, while another holder has the key.
//!
//! The screen is that of a real terminal. What differs from run to run (times, pids, the progress of the bar)
//! is replaced by fixed values, and the lines are broken where tenure breaks them at 80 columns.

use std::fmt::Write as _;

use super::{HOST, is_duration, is_time, presentable, replace_words};
use crate::project::{Project, until};

/// The columns of the picture.
const COLUMNS: usize = 80;

/// What is typed.
const TYPED: &str = "tenure run build --as agent-2 -- make";

/// The size of a character cell, and the space around the text.
const CELL: (usize, usize) = (8, 19);
const MARGIN: usize = 16;

pub(super) fn waiting() -> String {
    let project = Project::new();
    let holder = project.hold("run build --as agent-1");
    let mut script = project.program("script");
    let line = TYPED.replacen("tenure", "exec \"$TENURE\"", 1);
    script
        // Wide, so that no value is cut before it is replaced.
        .args([
            "--quiet",
            "--command",
            &format!("stty rows 24 cols 250; {line}"),
            "/dev/null",
        ])
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm")
        .env("NO_COLOR", "1");
    let waiter = project.prepare(script).input().start();
    // The first drawing of the bar may have no text yet, and the last one may be incomplete.
    let end = |out: &str| {
        let mut end = 0;
        let mut drawings = out.split_inclusive('\r').map(|drawing| {
            end += drawing.len();
            (drawing, end)
        });
        let complete = |drawing: &str| {
            drawing.contains("elapsed, ") && drawing.contains("queue") && drawing.ends_with('\r')
        };
        drawings
            .find(|(drawing, _)| complete(drawing))
            .map(|(_, end)| end - 1)
    };
    until("the bar is complete", || end(&waiter.out()).is_some());
    let out = waiter.out();
    let shown = screen(&out[..end(&out).unwrap()]);
    drop(waiter.killed());
    drop(holder.killed());
    let mut lines = vec![format!("$ {TYPED}")];
    for line in shown.iter().filter(|line| !line.is_empty()) {
        lines.extend(folded(&steady(line)));
    }
    svg(&lines)
}

/// A line as tenure breaks it on a terminal of [`COLUMNS`], which has to be repeated here because its values
/// were replaced.
fn folded(line: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in line.split(' ') {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= COLUMNS - 2 => {
                last.push(' ');
                last.push_str(word);
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The lines of a screen after a program has written this to it.
fn screen(written: &str) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0_usize, 0_usize);
    let mut letters = written.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' if letters.next_if_eq(&'[').is_some() => {
                let mut number = String::new();
                let end = loop {
                    match letters.next() {
                        Some(digit) if !digit.is_ascii_alphabetic() => number.push(digit),
                        other => break other,
                    }
                };
                let many: usize = number.parse().unwrap_or(1);
                match end {
                    Some('A') => row = row.saturating_sub(many),
                    Some('B') => row += many,
                    Some('G') => column = many - 1,
                    Some('K') if number == "2" => lines[row].clear(),
                    Some('K') => lines[row].truncate(column),
                    Some('J') => {
                        lines.truncate(row + 1);
                        lines[row].truncate(column);
                    }
                    _ => {}
                }
            }
            letter if letter.is_control() => {}
            letter => {
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = letter;
                column += 1;
            }
        }
        if lines.len() <= row {
            lines.resize(row + 1, Vec::new());
        }
    }
    let text = lines.into_iter().map(String::from_iter);
    text.map(|line: String| line.trim_end().to_owned())
        .collect()
}

/// A line with fixed values in place of those that differ from run to run.
fn steady(line: &str) -> String {
    let line = presentable(line, "\0");
    let line = replace_words(&line, |word| {
        if is_time(word) {
            Some("2026-11-16T09:30:02.401Z".to_owned())
        } else if is_duration(word) && word != "30m" {
            Some("12s".to_owned())
        } else {
            None
        }
    });
    let (before, after) = line.split_once("(pid ").unwrap_or((&line, ""));
    let line = match after.split_once(" on ") {
        Some((_, rest)) => format!("{before}(pid 4711 on {rest}"),
        None => line,
    };
    assert!(line.contains(HOST) || !line.contains("(pid "), "{line}");
    match (line.find('['), line.find(']')) {
        (Some(start), Some(end)) => {
            let bar = format!("=>{}", " ".repeat(end - start - 3));
            format!("{}[{bar}{}", &line[..start], &line[end..])
        }
        _ => line,
    }
}

fn svg(lines: &[String]) -> String {
    let (width, height) = (
        COLUMNS * CELL.0 + 2 * MARGIN,
        lines.len() * CELL.1 + 2 * MARGIN,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>tenure run waits for a key: who holds it, since when, and the place in the queue</title>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#1e2229\"/>\n\
         <g font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\" font-size=\"13\" fill=\"#d8dee9\" xml:space=\"preserve\">\n"
    );
    for (number, line) in lines.iter().enumerate() {
        let (y, length) = (MARGIN + number * CELL.1 + 14, line.chars().count() * CELL.0);
        let text = line
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;");
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"{y}\" textLength=\"{length}\">{text}</text>"
        );
    }
    out.push_str("</g>\n</svg>\n");
    out
}
