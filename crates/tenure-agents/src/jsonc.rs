//! JSON with comments and trailing commas, with the place of every value in the text: [`parse`].
//!
//! An edit of such a file changes bytes at known places and leaves all others alone, so that comments, order and
//! indentation stay. [`insert`] and [`take`] are exact opposites.
//!
//! A container that was empty before gets its first item right after the bracket. So [`take`] leaves it empty,
//! while [`is_made`] recognises a container that was made together with its item, on lines of their own.

use std::ops::Range;

use serde_json::Value;

/// How deep values may be nested.
const DEPTH: usize = 100;

/// A text that is no JSON, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bad {
    pub(crate) what: &'static str,
    pub(crate) at: usize,
}

/// A value and its place in the text.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Object(Vec<Member>),
    Array(Vec<Node>),
    /// Anything else, without its text.
    Scalar(Value),
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) key: String,
    /// From the key to the value.
    pub(crate) span: Range<usize>,
    pub(crate) value: Node,
}

impl Node {
    /// The value itself. Of members with the same name, the last one counts, as everywhere.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Object(members) => members
                .iter()
                .map(|member| (member.key.clone(), member.value.value()))
                .collect(),
            Kind::Array(items) => items.iter().map(Self::value).collect(),
            Kind::Scalar(value) => value.clone(),
        }
    }

    pub(crate) fn members(&self) -> Option<&[Member]> {
        match &self.kind {
            Kind::Object(members) => Some(members),
            Kind::Array(_) | Kind::Scalar(_) => None,
        }
    }

    pub(crate) fn items(&self) -> Option<&[Self]> {
        match &self.kind {
            Kind::Array(items) => Some(items),
            Kind::Object(_) | Kind::Scalar(_) => None,
        }
    }

    /// The places of the members or items.
    fn spans(&self) -> Vec<Range<usize>> {
        match &self.kind {
            Kind::Object(members) => members.iter().map(|member| member.span.clone()).collect(),
            Kind::Array(items) => items.iter().map(|item| item.span.clone()).collect(),
            Kind::Scalar(_) => Vec::new(),
        }
    }
}

/// Parses a whole text.
pub(crate) fn parse(text: &str) -> Result<Node, Bad> {
    let mut parser = Parser { text, at: 0 };
    if text.starts_with('\u{feff}') {
        parser.at = '\u{feff}'.len_utf8();
    }
    parser.skip()?;
    let node = parser.value(0)?;
    parser.skip()?;
    match parser.peek() {
        None => Ok(node),
        Some(_) => Err(parser.bad("text after the end of the value")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn bad(&self, what: &'static str) -> Bad {
        Bad { what, at: self.at }
    }

    /// Moves over blanks and comments.
    fn skip(&mut self) -> Result<(), Bad> {
        loop {
            let rest = self.rest();
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            if blank > 0 {
                self.at += blank;
            } else if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                match rest.get(2..).and_then(|rest| rest.find("*/")) {
                    Some(end) => self.at += end + 4,
                    None => return Err(self.bad("a comment without an end")),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    fn value(&mut self, depth: usize) -> Result<Node, Bad> {
        if depth > DEPTH {
            return Err(self.bad("a value that is nested too deeply"));
        }
        let start = self.at;
        let kind = match self.peek() {
            Some(b'{') => {
                self.at += 1;
                Kind::Object(self.list(b'}', |parser| parser.member(depth))?)
            }
            Some(b'[') => {
                self.at += 1;
                Kind::Array(self.list(b']', |parser| parser.value(depth + 1))?)
            }
            Some(b'"') => Kind::Scalar(self.string()?),
            Some(_) => Kind::Scalar(self.word()?),
            None => return Err(self.bad("the end of the file where a value is missing")),
        };
        Ok(Node {
            span: start..self.at,
            kind,
        })
    }

    /// Items with commas between them, and perhaps one at the end.
    fn list<T>(
        &mut self,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Result<T, Bad>,
    ) -> Result<Vec<T>, Bad> {
        let mut items = Vec::new();
        loop {
            self.skip()?;
            if self.eat(close) {
                return Ok(items);
            }
            items.push(item(self)?);
            self.skip()?;
            if !self.eat(b',') && self.peek() != Some(close) {
                return Err(self.bad("no comma and no closing bracket"));
            }
        }
    }

    fn member(&mut self, depth: usize) -> Result<Member, Bad> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.bad("a name that is not in double quotes"));
        }
        let Value::String(key) = self.string()? else {
            return Err(self.bad("a name that is not in double quotes"));
        };
        self.skip()?;
        if !self.eat(b':') {
            return Err(self.bad("no colon after a name"));
        }
        self.skip()?;
        let value = self.value(depth + 1)?;
        Ok(Member {
            key,
            span: start..value.span.end,
            value,
        })
    }

    fn string(&mut self) -> Result<Value, Bad> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        loop {
            match bytes.get(end) {
                None | Some(b'\n') => return Err(self.bad("a text without a closing quote")),
                Some(b'\\') => end += 2,
                Some(b'"') => break,
                Some(_) => end += 1,
            }
        }
        self.scalar(end + 1, "a text with an escape that does not exist")
    }

    fn word(&mut self) -> Result<Value, Bad> {
        let ends = |c: char| ",]}/:\"[{".contains(c) || c.is_whitespace();
        let rest = self.rest();
        let end = self.at + rest.find(ends).unwrap_or(rest.len());
        self.scalar(end, "something that is no value")
    }

    fn scalar(&mut self, end: usize, what: &'static str) -> Result<Value, Bad> {
        let text = self.text.get(self.at..end);
        let value = text.and_then(|text| serde_json::from_str(text).ok());
        let value = value.ok_or_else(|| self.bad(what))?;
        self.at = end;
        Ok(value)
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
    let mut parser = Parser {
        text: text.get(..range.end).unwrap_or(text),
        at: range.start,
    };
    let mut found = Between {
        comma: None,
        solid: range.start,
    };
    while let Some(byte) = parser.peek() {
        match byte {
            b',' => {
                found.comma = Some(parser.at);
                parser.at += 1;
                found.solid = parser.at;
            }
            b'/' => {
                let rest = parser.rest();
                let length = if rest.starts_with("//") {
                    rest.find(['\r', '\n']).unwrap_or(rest.len())
                } else {
                    let inside = rest.get(2..).and_then(|inside| inside.find("*/"));
                    inside.map_or(rest.len(), |end| end + 4)
                };
                parser.at += length;
                found.solid = parser.at;
            }
            _ => parser.at += 1,
        }
    }
    found
}

/// Adds an item at the end of an object or array. `depth` is that of the item.
pub(crate) fn insert(
    text: &str,
    container: &Node,
    item: &str,
    style: &Style<'_>,
    depth: usize,
) -> String {
    let last = container.spans().last().map(|span| span.end);
    let from = last.unwrap_or(container.span.start + 1);
    let tail = between(text, from..container.span.end - 1);
    let begin = style.begin(depth);
    let edits = match (last, tail.comma) {
        (Some(last), None) => vec![
            (last, ",".to_owned()),
            (tail.solid, format!("{begin}{item}")),
        ],
        (Some(_), Some(_)) => vec![(tail.solid, format!("{begin}{item},"))],
        (None, _) if tail.solid == from => vec![(from, item.to_owned())],
        (None, _) => vec![(tail.solid, format!("{begin}{item}"))],
    };
    let mut out = String::with_capacity(text.len() + item.len() + 2);
    let mut done = 0;
    for (at, added) in edits {
        out.push_str(text.get(done..at).unwrap_or_default());
        out.push_str(&added);
        done = at;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

/// Takes an item out of an object or array.
pub(crate) fn take(text: &str, container: &Node, index: usize) -> String {
    let spans = container.spans();
    let Some(item) = spans.get(index).cloned() else {
        return text.to_owned();
    };
    let before = index.checked_sub(1).and_then(|index| spans.get(index));
    let before = before.map_or(container.span.start + 1, |span| span.end);
    let after = spans.get(index + 1);
    let after = after.map_or(container.span.end - 1, |span| span.start);
    let lead = between(text, before..item.start);
    let comma = between(text, item.end..after).comma;
    let comma = comma.or(lead.comma.filter(|_| index > 0));
    let comma = comma.map(|comma| comma..comma + 1);
    let mut gaps: Vec<Range<usize>> = comma.into_iter().collect();
    gaps.push(lead.solid..item.end);
    gaps.sort_by_key(|gap| gap.start);
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for gap in gaps {
        out.push_str(text.get(done..gap.start).unwrap_or_default());
        done = gap.end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    out
}

/// Whether a container looks as if it was made together with its only item.
pub(crate) fn is_made(text: &str, container: &Node) -> bool {
    match container.spans().as_slice() {
        [only] => {
            let lead = text.get(container.span.start + 1..only.start);
            let tail = text.get(only.end..container.span.end - 1);
            let is_line = |blank: &str| blank.starts_with(['\r', '\n']) && blank.trim().is_empty();
            lead.is_some_and(is_line) && tail.is_some_and(is_line)
        }
        _ => false,
    }
}
