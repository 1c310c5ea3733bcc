//! Replacing the value of a section, and adding sections: bytes in, bytes out.

use crate::document::{Document, Section};

/// Why a value can't be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The file does not have the section.
    #[error("no section \"# {}\": add it with its value on the next line, or run tenure board migrate", .0.name())]
    NoSection(Section),
}

/// The file with a new value in a section, and every other line unchanged. A section without a value gets
/// a line for it. Blanks around the old value go: the bilu tool takes them for a part of the value.
///
/// ```
/// use tenure_board::edit::set;
/// use tenure_board::{Document, Section};
///
/// let file = b"# T\r\n# Status\r\n  TODO \r\nnot mine: # Status\r\n";
/// let edited = set(&Document::parse(file), Section::Status, "DONE").unwrap();
/// assert_eq!(edited, b"# T\r\n# Status\r\nDONE\r\nnot mine: # Status\r\n");
/// ```
pub fn set(document: &Document<'_>, section: Section, value: &str) -> Result<Vec<u8>, EditError> {
    let found = document
        .section(section)
        .ok_or(EditError::NoSection(section))?;
    // A heading that the rules take for a value is the author's.
    let old = found.value.as_ref();
    let (at, text) = if let Some(old) = old.filter(|old| !document.is_heading(old.line)) {
        (old.bytes.clone(), value.to_owned())
    } else {
        let end = found.heading.bytes.end;
        let line_end = document.line_end();
        let is_last = document.bytes().get(end.saturating_sub(1)) != Some(&b'\n');
        let text = if is_last {
            format!("{line_end}{value}")
        } else {
            format!("{value}{line_end}")
        };
        (end..end, text)
    };
    let mut edited = document.bytes().to_vec();
    edited.splice(at, text.bytes());
    Ok(edited)
}

/// A section to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSection {
    /// Which section.
    pub section: Section,
    /// The lines below its heading.
    pub lines: Vec<String>,
}

/// The file with sections added at its end, and every byte of it unchanged.
pub fn add(document: &Document<'_>, new_sections: &[NewSection]) -> Vec<u8> {
    let line_end = document.line_end();
    let mut edited = document.bytes().to_vec();
    for section in new_sections {
        if !edited.is_empty() && !edited.ends_with(b"\n") {
            edited.extend(line_end.bytes());
        }
        let heading = format!("# {}", section.section.name());
        for line in ["", heading.as_str()]
            .into_iter()
            .chain(section.lines.iter().map(String::as_str))
        {
            edited.extend(line.bytes());
            edited.extend(line_end.bytes());
        }
    }
    edited
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edited(file: &str, value: &str) -> String {
        let document = Document::parse(file.as_bytes());
        String::from_utf8(set(&document, Section::Status, value).unwrap()).unwrap()
    }

    #[test]
    fn a_section_without_a_value_gets_one_below_its_heading() {
        assert_eq!(
            edited("# T\n# Status\n# Kind\nbug", "X"),
            "# T\n# Status\nX\n# Kind\nbug"
        );
        assert_eq!(edited("# T\r\n# Status", "X"), "# T\r\n# Status\r\nX");
        assert_eq!(edited("# T\n# Status\n", "X"), "# T\n# Status\nX\n");
        assert_eq!(edited("# T\n# Status\n\n\n", "X"), "# T\n# Status\nX\n\n\n");
        assert_eq!(
            edited("# T\n# Status\n#\tKind\nbug\n", "X"),
            "# T\n# Status\nX\n#\tKind\nbug\n"
        );
    }

    #[test]
    fn a_file_without_the_section_is_refused() {
        let error = set(&Document::parse(b"# T\nStatus\n"), Section::Status, "X").unwrap_err();
        assert!(
            error.to_string().contains("no section \"# Status\""),
            "{error}"
        );
    }

    #[test]
    fn added_sections_use_the_line_endings_of_the_file() {
        let new_sections = [
            NewSection {
                section: Section::Status,
                lines: vec!["TODO".into()],
            },
            NewSection {
                section: Section::Tags,
                lines: vec![],
            },
        ];
        let added = |file: &str| {
            String::from_utf8(add(&Document::parse(file.as_bytes()), &new_sections)).unwrap()
        };
        assert_eq!(added("# T\nx"), "# T\nx\n\n# Status\nTODO\n\n# Tags\n");
        assert_eq!(
            added("# T\r\n"),
            "# T\r\n\r\n# Status\r\nTODO\r\n\r\n# Tags\r\n"
        );
    }

    fn line() -> impl Strategy<Value = Vec<u8>> {
        let words = prop_oneof![
            Just(b"# Status".to_vec()),
            Just(b"#\tStatus ".to_vec()),
            Just(b"# Priority".to_vec()),
            Just(b"#\tPriority".to_vec()),
            Just(b"# Other".to_vec()),
            Just(b"- item".to_vec()),
            Just(b"   ".to_vec()),
            prop::collection::vec(any::<u8>(), 0..12),
        ];
        let ends = prop_oneof![Just("\n"), Just("\r\n"), Just("")];
        (words, ends).prop_map(|(words, end)| [&words, end.as_bytes()].concat())
    }

    proptest! {
        /// The bytes before and after the value are unchanged, the value can be read back, and
        /// putting the old value back restores the file.
        #[test]
        fn nothing_but_the_value_changes(lines in prop::collection::vec(line(), 0..14)) {
            let file = lines.concat();
            let document = Document::parse(&file);
            let Ok(new) = set(&document, Section::Status, "NEWVALUE") else {
                prop_assert!(document.section(Section::Status).is_none());
                return Ok(());
            };
            let again = Document::parse(&new);
            prop_assert_eq!(again.value(Section::Status).unwrap(), "NEWVALUE");
            prop_assert_eq!(again.value(Section::Priority), document.value(Section::Priority));
            prop_assert_eq!(again.title(), document.title());
            let at = new.windows(8).position(|bytes| bytes == b"NEWVALUE").unwrap();
            let before = at.min(file.len());
            prop_assert_eq!(&new[..before], &file[..before]);
            let old = document.section(Section::Status).unwrap().value.clone();
            if let Some(old) = old.filter(|old| !document.is_heading(old.line)) {
                prop_assert_eq!(&new[at + 8..], &file[old.bytes.end..]);
                let mut back = new.clone();
                back.splice(at..at + 8, file[old.bytes].iter().copied());
                prop_assert_eq!(back, file);
            }
        }
    }
}
