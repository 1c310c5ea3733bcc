//! The sections of a task file, as ranges of its bytes: [`Document`].
//!
//! 1. Line 1 is the title.
//! 2. A section begins with a heading: `#`, a space or tab, and one of the names of [`Section`]. It ends
//!    before the next line that begins with `#` and a space or tab.
//! 3. The value of a section is its first line that is not blank, trimmed. The items of a list are its
//!    lines that begin with `-`.
//! 4. Of two sections with the same name, the first one counts.
//! 5. Everything else belongs to the author and is never changed.
//!
//! The parser works on bytes, so a file that is not UTF-8 can be edited without damage.

use std::borrow::Cow;
use std::ops::Range;

/// A section that tenure reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Section {
    /// What the task is about.
    Description,
    /// How far the task is.
    Status,
    /// How urgent the task is.
    Priority,
    /// What kind of task it is.
    Kind,
    /// Labels.
    Tags,
    /// The tasks that have to be done first.
    DependsOn,
}

impl Section {
    /// All sections, in the order in which tenure writes them.
    pub const ALL: [Self; 6] = [
        Self::Description,
        Self::Status,
        Self::Priority,
        Self::Kind,
        Self::Tags,
        Self::DependsOn,
    ];

    /// The heading, without the `#`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Description => "Description",
            Self::Status => "Status",
            Self::Priority => "Priority",
            Self::Kind => "Kind",
            Self::Tags => "Tags",
            Self::DependsOn => "depends_on",
        }
    }
}

/// A part of the file: its bytes and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The range of its bytes in the file.
    pub bytes: Range<usize>,
    /// Its line, from 1.
    pub line: usize,
}

/// Where a section is in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedSection {
    /// Which section.
    pub section: Section,
    /// The whole heading line, with its line ending.
    pub heading: Span,
    /// Its value, trimmed.
    pub value: Option<Span>,
    /// The items of its list, without the `-`, trimmed.
    pub items: Vec<Span>,
}

/// A parsed task file.
#[derive(Debug, Clone)]
pub struct Document<'a> {
    bytes: &'a [u8],
    title: Range<usize>,
    sections: Vec<ParsedSection>,
    /// Headings that repeat an earlier one, with their lines.
    repeated: Vec<(Section, usize)>,
    lines: usize,
}

impl<'a> Document<'a> {
    /// Parses a file. Every sequence of bytes is a document.
    ///
    /// ```
    /// use tenure_board::{Document, Section};
    ///
    /// let file = b"# Hold one lock\n# Status\nTODO\n# Tags\n- backend\n- testing\n";
    /// let document = Document::parse(file);
    /// assert_eq!(document.title(), "Hold one lock");
    /// assert_eq!(document.value(Section::Status).unwrap(), "TODO");
    /// assert_eq!(document.items(Section::Tags), ["backend", "testing"]);
    /// ```
    pub fn parse(bytes: &'a [u8]) -> Self {
        let mut document = Self {
            bytes,
            title: 0..0,
            sections: Vec::new(),
            repeated: Vec::new(),
            lines: 0,
        };
        // Whether the line belongs to the last section of `sections`.
        let mut open = false;
        let mut start = 0;
        for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            let whole = start..start + line.len();
            start = whole.end;
            document.lines = number + 1;
            if number == 0 {
                document.title = title(line);
                continue;
            }
            let number = number + 1;
            if let Some(name) = heading(line) {
                let section = Section::ALL
                    .into_iter()
                    .find(|section| section.name().as_bytes() == name);
                open = section.is_some_and(|section| document.begin(section, whole, number));
            } else if open && let Some(section) = document.sections.last_mut() {
                let inner = trimmed(line, whole.start);
                if inner.is_empty() {
                    continue;
                }
                let piece = |bytes| Span {
                    bytes,
                    line: number,
                };
                if bytes.get(inner.start) == Some(&b'-') {
                    let after = bytes.get(inner.start + 1..inner.end).unwrap_or_default();
                    let item = trimmed(after, inner.start + 1);
                    if !item.is_empty() {
                        section.items.push(piece(item));
                    }
                }
                section.value.get_or_insert_with(|| piece(inner));
            }
        }
        document
    }

    /// Begins a section; `false` if there is already one with that name.
    fn begin(&mut self, section: Section, bytes: Range<usize>, line: usize) -> bool {
        if self.section(section).is_some() {
            self.repeated.push((section, line));
            return false;
        }
        self.sections.push(ParsedSection {
            section,
            heading: Span { bytes, line },
            value: None,
            items: Vec::new(),
        });
        true
    }

    /// The whole file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The text of a range; bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self, range: &Range<usize>) -> Cow<'a, str> {
        String::from_utf8_lossy(self.bytes.get(range.clone()).unwrap_or_default())
    }

    /// The title.
    pub fn title(&self) -> Cow<'a, str> {
        self.text(&self.title)
    }

    /// Where a section is, if the file has it.
    pub fn section(&self, section: Section) -> Option<&ParsedSection> {
        self.sections.iter().find(|found| found.section == section)
    }

    /// The value of a section.
    pub fn value(&self, section: Section) -> Option<Cow<'a, str>> {
        let value = self.section(section)?.value.as_ref()?;
        Some(self.text(&value.bytes))
    }

    /// The items of a section.
    pub fn items(&self, section: Section) -> Vec<Cow<'a, str>> {
        let items = self.section(section).map(|found| found.items.iter());
        items
            .into_iter()
            .flatten()
            .map(|item| self.text(&item.bytes))
            .collect()
    }

    /// The sections that repeat an earlier one and so do not count, with their lines.
    pub fn repeated(&self) -> &[(Section, usize)] {
        &self.repeated
    }

    /// The number of lines.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// The line of a byte, from 1.
    pub fn line_of(&self, byte: usize) -> usize {
        let before = self.bytes.get(..byte).unwrap_or(self.bytes);
        before.split(|byte| *byte == b'\n').count()
    }

    /// The line ending of the file, which new lines get too.
    pub fn line_end(&self) -> &'static str {
        match self.bytes.iter().position(|byte| *byte == b'\n') {
            Some(at) if at > 0 && self.bytes.get(at - 1) == Some(&b'\r') => "\r\n",
            _ => "\n",
        }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// The trimmed part of a line that begins at `start` in the file.
fn trimmed(line: &[u8], start: usize) -> Range<usize> {
    let Some(first) = line.iter().position(|byte| !is_blank(*byte)) else {
        return start..start;
    };
    let last = line.iter().rposition(|byte| !is_blank(*byte));
    start + first..start + last.map_or(first, |last| last + 1)
}

/// The range of the title in the first line, without a byte order mark.
fn title(line: &[u8]) -> Range<usize> {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    let skipped = if line.starts_with(BYTE_ORDER_MARK) {
        BYTE_ORDER_MARK.len()
    } else {
        0
    };
    let line = line.get(skipped..).unwrap_or_default();
    let inner = trimmed(line, 0);
    let hashes = match line.get(inner.clone()) {
        Some([b'#', next, ..]) if is_blank(*next) => 1,
        Some([b'#']) => 1,
        _ => 0,
    };
    let after = line
        .get(inner.start + hashes..inner.end)
        .unwrap_or_default();
    trimmed(after, skipped + inner.start + hashes)
}

/// The name in a heading: the `#` has to be the first byte of the line.
fn heading(line: &[u8]) -> Option<&[u8]> {
    let [b'#', next, ..] = line else { return None };
    if !matches!(next, b' ' | b'\t') {
        return None;
    }
    line.get(trimmed(line.get(1..)?, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_behind_blank_lines_and_up_to_the_next_heading() {
        let file = b"# T\n# Status\n\n  TODO \n# Priority\n# Kind\nbug\n";
        let document = Document::parse(file);
        assert_eq!(document.value(Section::Status).unwrap(), "TODO");
        assert_eq!(document.value(Section::Priority), None);
        assert_eq!(document.value(Section::Kind).unwrap(), "bug");
        let value = document.section(Section::Status).unwrap().value.clone();
        assert_eq!(
            value,
            Some(Span {
                bytes: 16..20,
                line: 4
            })
        );
    }

    #[test]
    fn headings_are_those_that_the_bilu_tool_accepts() {
        let file =
            b"# Status\n#Status\nA\n## Status\nB\n # Status\nC\n#  Status \t\nD\n# status\nE\n";
        let document = Document::parse(file);
        assert_eq!(document.title(), "Status");
        assert_eq!(document.value(Section::Status).unwrap(), "D");
    }

    #[test]
    fn the_first_of_two_sections_counts_and_the_second_is_reported() {
        let file = b"# T\n# Status\n# Status\nDONE\n# Tags\n- a\n# Tags\n- b\n";
        let document = Document::parse(file);
        assert_eq!(document.value(Section::Status), None);
        assert_eq!(document.items(Section::Tags), ["a"]);
        assert_eq!(
            document.repeated(),
            [(Section::Status, 3), (Section::Tags, 7)]
        );
    }

    #[test]
    fn line_endings_byte_order_marks_and_invalid_utf8_do_no_harm() {
        let file = b"\xef\xbb\xbf# T \xff\r\n# Status\r\nTODO\r\n# depends_on\r\n - x \r\n-\r\n-y";
        let document = Document::parse(file);
        assert_eq!(document.title(), "T \u{fffd}");
        assert_eq!(document.value(Section::Status).unwrap(), "TODO");
        assert_eq!(document.items(Section::DependsOn), ["x", "y"]);
        assert_eq!(document.line_end(), "\r\n");
        for file in [&b""[..], b"#", b"\n", b"# ", b"#\n#\n# \n", b"x"] {
            let document = Document::parse(file);
            assert_eq!(document.value(Section::Status), None, "{file:?}");
        }
        assert_eq!(Document::parse(b"#").title(), "");
        assert_eq!(Document::parse(b"#5 is alive").title(), "#5 is alive");
    }
}
