//! The lines that an edit changes: [`unified`].

use std::fmt::Write as _;

/// How many lines around a change are shown.
const CONTEXT: usize = 3;

/// Beyond so many comparisons, what lies between the first and the last change counts as changed.
const LIMIT: usize = 4_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Same(&'a str),
    Old(&'a str),
    New(&'a str),
}

/// The difference between two texts in the form of `diff -u`, without its heading.
pub fn unified(old: &str, new: &str) -> String {
    let lines = compare(&split(old), &split(new));
    let changed = |line: &Line<'_>| !matches!(line, Line::Same(_));
    let near = |index: usize| {
        let from = index.saturating_sub(CONTEXT);
        let to = (index + CONTEXT + 1).min(lines.len());
        lines
            .get(from..to)
            .is_some_and(|near| near.iter().any(changed))
    };
    let (mut out, mut old_line, mut new_line) = (String::new(), 1, 1);
    let mut skipped = true;
    for (index, line) in lines.iter().enumerate() {
        if near(index) {
            if skipped {
                let _ = writeln!(out, "@@ -{old_line} +{new_line} @@");
            }
            let (mark, text) = match line {
                Line::Same(text) => (' ', text),
                Line::Old(text) => ('-', text),
                Line::New(text) => ('+', text),
            };
            out.push(mark);
            out.push_str(text.trim_end_matches(['\r', '\n']));
            out.push('\n');
            if !text.ends_with('\n') {
                out.push_str("\\ No newline at end of file\n");
            }
        }
        skipped = !near(index);
        old_line += usize::from(!matches!(line, Line::New(_)));
        new_line += usize::from(!matches!(line, Line::Old(_)));
    }
    out
}

fn split(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// The longest common subsequence, after the lines that both begin and end with.
fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| {
        pairs.take_while(|(old, new)| old == new).count()
    };
    let head = same(&mut old.iter().zip(new));
    let (old, before) = (
        old.get(head..).unwrap_or_default(),
        old.get(..head).unwrap_or_default(),
    );
    let new = new.get(head..).unwrap_or_default();
    let tail = same(&mut old.iter().rev().zip(new.iter().rev()));
    let (old, after) = old.split_at(old.len() - tail);
    let (new, _) = new.split_at(new.len() - tail);
    let mut lines: Vec<Line<'a>> = before.iter().map(|line| Line::Same(line)).collect();
    lines.extend(middle(old, new));
    lines.extend(after.iter().map(|line| Line::Same(line)));
    lines
}

fn middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Line<'a>> {
    let all = |lines: &mut Vec<Line<'a>>, old: &[&'a str], new: &[&'a str]| {
        lines.extend(old.iter().map(|line| Line::Old(line)));
        lines.extend(new.iter().map(|line| Line::New(line)));
    };
    let mut lines = Vec::new();
    let width = new.len() + 1;
    if old.len().saturating_mul(new.len()) > LIMIT {
        all(&mut lines, old, new);
        return lines;
    }
    // The length of the longest common subsequence of what follows each pair of lines.
    let mut common = vec![0_usize; (old.len() + 1) * width];
    let at = |common: &[usize], i: usize, j: usize| common.get(i * width + j).copied().unwrap_or(0);
    for (i, old_line) in old.iter().enumerate().rev() {
        for (j, new_line) in new.iter().enumerate().rev() {
            let length = if old_line == new_line {
                at(&common, i + 1, j + 1) + 1
            } else {
                at(&common, i + 1, j).max(at(&common, i, j + 1))
            };
            if let Some(cell) = common.get_mut(i * width + j) {
                *cell = length;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    while let (Some(old_line), Some(new_line)) = (old.get(i), new.get(j)) {
        if old_line == new_line {
            lines.push(Line::Same(old_line));
            (i, j) = (i + 1, j + 1);
        } else if at(&common, i + 1, j) >= at(&common, i, j + 1) {
            lines.push(Line::Old(old_line));
            i += 1;
        } else {
            lines.push(Line::New(new_line));
            j += 1;
        }
    }
    all(
        &mut lines,
        old.get(i..).unwrap_or_default(),
        new.get(j..).unwrap_or_default(),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_the_lines_around_it() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9";
        let new = "1\n2\n3\n4\n5\nfive and a half\n6\n7\n8\nnine\n";
        assert_eq!(
            unified(old, new),
            "@@ -3 +3 @@\n 3\n 4\n 5\n+five and a half\n 6\n 7\n 8\n-9\n\\ No newline at end of file\n+nine\n"
        );
        assert_eq!(unified(old, old), "");
        assert_eq!(unified("", "a\n"), "@@ -1 +1 @@\n+a\n");
    }
}
