//! JSON with comments and trailing commas, edited in its place: [`insert`], [`take`].
//!
//! `jsonc-parser` reads such a text and knows the place of every value. An edit changes bytes there and leaves all
//! others alone, so that comments, order and indentation stay. [`insert`] and [`take`] are exact opposites, which the
//! edits of that crate are not.
//!
//! A container that was empty before gets its first item right after the bracket. So [`take`] leaves it empty,
//! while [`is_made`] recognises a container that was made together with its item, on lines of their own.

use std::cmp::Reverse;
use std::ops::Range;

use jsonc_parser::ast::Value as Node;
use jsonc_parser::common::Ranged;
use jsonc_parser::tokens::Token;
use jsonc_parser::{CollectOptions, ParseOptions, Scanner, ScannerOptions, parse_to_ast};
use serde_json::Value;

use super::merge::BadFile;

/// What may be between the tokens of JSON.
pub(crate) const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];

/// Parses a whole text.
pub(crate) fn parse(text: &str) -> Result<Node<'_>, BadFile> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options);
    let parsed = parsed.map_err(|error| BadFile::Syntax {
        line: error.line_display(),
        what: error.kind().to_string(),
    })?;
    let bad = |at: usize, what: &str| BadFile::Syntax {
        line: 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count(),
        what: what.to_owned(),
    };
    // The parser accepts more blanks than JSON has, and any character within quotes.
    let (mut end, length) = (0, text.len());
    for (token, place) in tokens(text, 0..length).chain([(Token::Null, length..length)]) {
        if part(text, end..place.start).contains(|blank| !BLANK.contains(&blank)) {
            return Err(bad(end, "Unexpected blank"));
        }
        end = place.end;
        let is_text = matches!(token, Token::String(_));
        if is_text && part(text, place.clone()).contains(|c| c < ' ') {
            return Err(bad(place.start, "Control character in string literal"));
        }
    }
    parsed
        .value
        .ok_or_else(|| bad(length, "Unexpected end of the file: it has no value"))
}

fn part(text: &str, range: Range<usize>) -> &str {
    text.get(range).unwrap_or_default()
}

/// The tokens and comments in a part of a text that was parsed, and their places.
fn tokens(text: &str, range: Range<usize>) -> impl Iterator<Item = (Token<'_>, Range<usize>)> {
    let start = range.start;
    let mut scanner = Scanner::new(part(text, range), &ScannerOptions::default());
    std::iter::from_fn(move || {
        let token = scanner.scan().ok()??;
        Some((
            token,
            start + scanner.token_start()..start + scanner.token_end(),
        ))
    })
}

/// The places of the members or items.
fn places(container: &Node<'_>) -> Vec<Range<usize>> {
    fn of(nodes: &[impl Ranged]) -> Vec<Range<usize>> {
        nodes.iter().map(|node| node.start()..node.end()).collect()
    }
    match container {
        Node::Object(object) => of(&object.properties),
        Node::Array(array) => of(&array.elements),
        _ => Vec::new(),
    }
}

/// How a file is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style<'a> {
    pub(crate) indent: &'a str,
    pub(crate) line: &'static str,
}

impl<'a> Style<'a> {
    /// The indentation of the first member of the file, and its line ends.
    pub(crate) fn of(text: &'a str) -> Self {
        let first = text.lines().skip(1).find_map(|line| {
            let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
            let is_member = line.get(blank..).is_some_and(|rest| rest.starts_with('"'));
            line.get(..blank).filter(|_| is_member)
        });
        Self {
            indent: first.filter(|indent| !indent.is_empty()).unwrap_or("  "),
            line: if text.contains("\r\n") { "\r\n" } else { "\n" },
        }
    }

    /// A value over several lines, as it looks at this depth.
    pub(crate) fn shown(&self, value: &Value, depth: usize) -> String {
        let mut out = Vec::new();
        let format = serde_json::ser::PrettyFormatter::with_indent(self.indent.as_bytes());
        let mut serializer = serde_json::Serializer::with_formatter(&mut out, format);
        // Writing a value into memory does not fail.
        let _ = serde::Serialize::serialize(value, &mut serializer);
        let out = String::from_utf8(out).unwrap_or_default();
        out.replace('\n', &self.begin(depth))
    }

    /// The beginning of a line at this depth.
    fn begin(&self, depth: usize) -> String {
        format!("{}{}", self.line, self.indent.repeat(depth))
    }
}

/// What is between two values.
struct Between {
    comma: Option<usize>,
    /// Where the last comment or comma ends; the blanks after it belong to what follows.
    solid: usize,
}

fn between(text: &str, range: Range<usize>) -> Between {
    let mut found = Between {
        comma: None,
        solid: range.start,
    };
    for (token, place) in tokens(text, range) {
        if token == Token::Comma {
            found.comma = Some(place.start);
        }
        found.solid = place.end;
    }
    found
}

/// Adds an item at the end of an object or array. `depth` is that of the item.
pub(crate) fn insert(
    text: &str,
    container: &Node<'_>,
    item: &str,
    style: &Style<'_>,
    depth: usize,
) -> String {
    let last = places(container).last().map(|place| place.end);
    let from = last.unwrap_or(container.start() + 1);
    let tail = between(text, from..container.end() - 1);
    let begin = style.begin(depth);
    let item = match (last, tail.comma) {
        (Some(_), Some(_)) => format!("{begin}{item},"),
        (None, _) if tail.solid == from => item.to_owned(),
        _ => format!("{begin}{item}"),
    };
    let mut out = text.to_owned();
    out.insert_str(tail.solid, &item);
    if let (Some(last), None) = (last, tail.comma) {
        out.insert(last, ',');
    }
    out
}

/// Takes an item out of an object or array.
pub(crate) fn take(text: &str, container: &Node<'_>, index: usize) -> String {
    let places = places(container);
    let Some(item) = places.get(index).cloned() else {
        return text.to_owned();
    };
    let before = index.checked_sub(1).and_then(|index| places.get(index));
    let before = before.map_or(container.start() + 1, |place| place.end);
    let after = places.get(index + 1);
    let after = after.map_or(container.end() - 1, |place| place.start);
    let lead = between(text, before..item.start);
    let comma = between(text, item.end..after).comma;
    let comma = comma.or(lead.comma.filter(|_| index > 0));
    let comma = comma.map_or(0..0, |comma| comma..comma + 1);
    let mut gaps = [comma, lead.solid..item.end];
    gaps.sort_by_key(|gap| Reverse(gap.start));
    let mut out = text.to_owned();
    for gap in gaps {
        out.replace_range(gap, "");
    }
    out
}

/// Whether a container looks as if it was made together with its only item.
pub(crate) fn is_made(text: &str, container: &Node<'_>) -> bool {
    let is_line = |range| {
        let blank = part(text, range);
        blank.starts_with(['\r', '\n']) && blank.trim().is_empty()
    };
    match places(container).as_slice() {
        [only] => {
            is_line(container.start() + 1..only.start) && is_line(only.end..container.end() - 1)
        }
        _ => false,
    }
}
