//! The sections of a task file, as ranges of its bytes: [`Document`].
//!
//! The rules are those by which the bilu tool reads the same file, so both see the same task:
//!
//! 1. Line 1 is the title: without `#` and the blanks behind it, and otherwise as it stands.
//! 2. A section begins with a heading: `#`, blanks, and one of the names of [`Section`]. It ends before the
//!    next line that begins with `#` and a space, unless that line is the same heading again.
//! 3. The value of a section is its first line that is not blank, as it stands: ` DONE` and `- DONE` are
//!    not `DONE`.
//! 4. The items of a list are its lines that begin with `-`, split at commas and trimmed.
//! 5. Of two sections with the same name, the first one counts.
//! 6. Everything else belongs to the author and is never changed.
//!
//! One difference: `\r\n` ends a line, too. The bilu tool takes the `\r` for a part of the value.
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
pub struct FileSpan {
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
    pub heading: FileSpan,
    /// Its value: a whole line without its line ending.
    pub value: Option<FileSpan>,
    /// The items of its list: without the `-`, split at commas, trimmed.
    pub items: Vec<FileSpan>,
}

/// A parsed task file.
#[derive(Debug, Clone)]
pub struct Document<'a> {
    bytes: &'a [u8],
    title: Range<usize>,
    sections: Vec<ParsedSection>,
    /// Headings that repeat an earlier one, with their lines.
    repeated: Vec<(Section, usize)>,
    /// The ranges of the lines, with their line endings.
    lines: Vec<Range<usize>>,
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
        let mut lines = Vec::new();
        let mut start = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            lines.push(start..start + line.len());
            start += line.len();
        }
        let mut document = Self {
            bytes,
            title: 0..0,
            sections: Vec::new(),
            repeated: Vec::new(),
            lines,
        };
        document.title = document.line(0).map_or(0..0, |line| {
            let text = bytes.get(line.clone()).unwrap_or_default();
            line.start + title_mark(text)..line.end
        });
        for section in Section::ALL {
            document.find(section);
        }
        document.repeated.sort_by_key(|(_, line)| *line);
        document
    }

    /// The range of a line without its line ending; lines count from 0 here.
    fn line(&self, number: usize) -> Option<Range<usize>> {
        let whole = self.lines.get(number)?.clone();
        let text = self.bytes.get(whole.clone())?;
        let text = text
            .strip_suffix(b"\r\n")
            .or_else(|| text.strip_suffix(b"\n"))
            .unwrap_or(text);
        Some(whole.start..whole.start + text.len())
    }

    /// Finds a section, and the headings that repeat it.
    fn find(&mut self, section: Section) {
        let mut found: Option<ParsedSection> = None;
        let mut is_over = false;
        for number in 0..self.lines.len() {
            let (Some(whole), Some(range)) = (self.lines.get(number), self.line(number)) else {
                continue;
            };
            let span = |bytes| FileSpan {
                bytes,
                line: number + 1,
            };
            let line = self.bytes.get(range.clone()).unwrap_or_default();
            if heading(line) == Some(section.name().as_bytes()) {
                if found.is_some() {
                    self.repeated.push((section, number + 1));
                } else {
                    found = Some(ParsedSection {
                        section,
                        heading: span(whole.clone()),
                        value: None,
                        items: Vec::new(),
                    });
                }
                continue;
            }
            let Some(open) = found.as_mut().filter(|_| !is_over) else {
                continue;
            };
            if line.starts_with(b"# ") {
                is_over = true;
                continue;
            }
            let inner = trimmed(line, range.start);
            if inner.is_empty() {
                continue;
            }
            open.value.get_or_insert_with(|| span(range));
            if self.bytes.get(inner.start) == Some(&b'-') {
                let items = split_at_commas(self.bytes, inner.start + 1..inner.end);
                open.items.extend(items.into_iter().map(span));
            }
        }
        self.sections.extend(found);
    }

    /// The whole file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The text of a range; bytes that are not UTF-8 become U+FFFD.
    pub fn text(&self, range: &Range<usize>) -> Cow<'a, str> {
        String::from_utf8_lossy(self.slice(range))
    }

    /// The title.
    pub fn title(&self) -> Cow<'a, str> {
        self.text(&self.title)
    }

    /// Whether line 1 is a heading with a title: `#`, a blank and text. Otherwise all of it is the title.
    pub fn has_title_heading(&self) -> bool {
        self.title.start > 0 && !trimmed(self.slice(&self.title), 0).is_empty()
    }

    fn slice(&self, range: &Range<usize>) -> &'a [u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    /// Whether a line is the heading of a section.
    pub fn is_heading(&self, line: usize) -> bool {
        self.sections.iter().any(|found| found.heading.line == line)
            || self.repeated.iter().any(|(_, heading)| *heading == line)
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
        self.lines.len()
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

/// How many bytes of the first line come before the title: `#` and blanks, or none.
fn title_mark(line: &[u8]) -> usize {
    match line {
        [b'#', rest @ ..] => match rest.iter().take_while(|byte| is_blank(**byte)).count() {
            0 => 0,
            blanks => 1 + blanks,
        },
        _ => 0,
    }
}

/// The name in a heading: the `#` has to be the first byte of the line, and a blank the second.
fn heading(line: &[u8]) -> Option<&[u8]> {
    let mark = title_mark(line);
    let name = line.get(mark..).filter(|_| mark > 0)?;
    name.get(trimmed(name, 0))
}

/// The parts between commas, trimmed, without empty ones.
fn split_at_commas(bytes: &[u8], list: Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let mut start = list.start;
    for part in bytes
        .get(list)
        .unwrap_or_default()
        .split(|byte| *byte == b',')
    {
        let inner = trimmed(part, start);
        start += part.len() + 1;
        if !inner.is_empty() {
            parts.push(inner);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(file: &str, section: Section) -> Option<String> {
        let document = Document::parse(file.as_bytes());
        document.value(section).map(Cow::into_owned)
    }

    #[test]
    fn values_are_found_behind_blank_lines_and_up_to_the_next_heading() {
        let file = "# T\n# Status\n\n  TODO \n# Priority\n# Kind\nbug\n";
        let document = Document::parse(file.as_bytes());
        assert_eq!(document.value(Section::Status).unwrap(), "  TODO ");
        assert_eq!(document.value(Section::Priority), None);
        assert_eq!(document.value(Section::Kind).unwrap(), "bug");
        let value = document.section(Section::Status).unwrap().value.clone();
        assert_eq!(
            value,
            Some(FileSpan {
                bytes: 14..21,
                line: 4
            })
        );
    }

    #[test]
    fn headings_are_those_that_the_bilu_tool_accepts() {
        let file = "# T\n#Status\nA\n## Status\nB\n # Status\nC\n#  Status \t\nD\n# status\nE\n";
        assert_eq!(value(file, Section::Status).unwrap(), "D");
        // Line 1 is the title and may begin a section as well.
        assert_eq!(value("# Status\nDONE\n", Section::Status).unwrap(), "DONE");
        // Only `#` and a space end a section.
        let file = "# T\n# Status\n#\tKind\nbug\n";
        assert_eq!(value(file, Section::Status).unwrap(), "#\tKind");
        assert_eq!(value(file, Section::Kind).unwrap(), "bug");
        let document = Document::parse(file.as_bytes());
        assert!(document.is_heading(3) && !document.is_heading(4));
    }

    #[test]
    fn the_first_of_two_sections_counts_and_the_second_is_reported() {
        let file =
            b"# T\n# Status\n# Status\nDONE\n# Tags\n- a\n# Tags\n- b\n# Kind\nx\n# Tags\n- c\n";
        let document = Document::parse(file);
        // The same heading again does not end the section.
        assert_eq!(document.value(Section::Status).unwrap(), "DONE");
        assert_eq!(document.items(Section::Tags), ["a", "b"]);
        assert_eq!(
            document.repeated(),
            [
                (Section::Status, 3),
                (Section::Tags, 7),
                (Section::Tags, 11)
            ]
        );
    }

    #[test]
    fn list_items_are_split_at_commas() {
        let file = "# T\n# Tags\n- a, b\n-c,,d ,\n  - e\nnot - this\n-\n---\n";
        let document = Document::parse(file.as_bytes());
        assert_eq!(
            document.items(Section::Tags),
            ["a", "b", "c", "d", "e", "--"]
        );
        let line = |item: usize| document.section(Section::Tags).unwrap().items[item].line;
        assert_eq!((line(1), line(2)), (3, 4));
    }

    #[test]
    fn the_title_is_the_first_line_as_it_stands() {
        for (file, title, has_heading) in [
            ("# T \r\nx", "T ", true),
            ("#\t T\n", "T", true),
            ("T", "T", false),
            ("## T\n", "## T", false),
            ("#5 is alive", "#5 is alive", false),
            ("---\ntitle: T\n---\n", "---", false),
            ("\u{feff}# T\n", "\u{feff}# T", false),
            ("#", "#", false),
            ("# ", "", false),
            ("\n# T\n", "", false),
            ("", "", false),
        ] {
            let document = Document::parse(file.as_bytes());
            assert_eq!(document.title(), title, "{file:?}");
            assert_eq!(document.has_title_heading(), has_heading, "{file:?}");
        }
    }

    #[test]
    fn line_endings_and_invalid_utf8_do_no_harm() {
        let file = b"# T \xff\r\n# Status\r\nTODO\r\n# depends_on\r\n - x \r\n-\r\n-y";
        let document = Document::parse(file);
        assert_eq!(document.title(), "T \u{fffd}");
        assert_eq!(document.value(Section::Status).unwrap(), "TODO");
        assert_eq!(document.items(Section::DependsOn), ["x", "y"]);
        assert_eq!(document.line_end(), "\r\n");
        for file in [&b""[..], b"#", b"\n", b"# ", b"#\n#\n# \n", b"x"] {
            let document = Document::parse(file);
            assert_eq!(document.value(Section::Status), None, "{file:?}");
        }
    }
}
