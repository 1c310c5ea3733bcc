//! A section of a Markdown file, between two markers: [`add`], [`remove`].
//!
//! 1. Bytes outside the markers stay as they are.
//! 2. Adding twice changes nothing; an older text between the markers is replaced.
//! 3. Removing undoes adding, byte for byte.

/// The line before the section.
pub const BEGIN: &str = "<!-- tenure:begin (tenure setup agents-md writes this section) -->";

/// The line after it.
pub const END: &str = "<!-- tenure:end -->";

/// What every beginning has in common, whatever follows it in a later version.
const BEGINS: &str = "<!-- tenure:begin";

/// What an agent should know.
const TEXT: &str = "\
## Working beside other agents

Other agents work in this repository at the same time. tenure decides who may edit which file.

- A hook reserves each file for you when you edit it. If an edit is refused, another agent has that file: work on
  something else, or wait with `tenure reserve PATH --for 10m --wait 10m`. Never edit it another way.
- Before a change of many files, reserve all of them at once: `tenure reserve 'src/api/**' Cargo.toml --why 'what for'`.
  Give them back with `tenure unreserve` as soon as they are committed.
- Before you write to files with shell commands, ask: `tenure check PATH...` (exit code 6: another agent has one).
- Run builds and tests one at a time: `tenure run build --wait 5m -- make test`.
- `tenure reservations` and `tenure locks` show who has what. Exit code 7 means that you lost it: stop, do not push.
  Never use `tenure force`.
";

/// Why a file is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSection {
    /// A marker without the other one.
    #[error("a line {BEGINS} or {END} is there without the other one")]
    Unpaired,
    /// More than one section.
    #[error("there are several sections between {BEGINS} and {END}")]
    Several,
}

/// The file with the section; the same text if it has it already. `None` is a file that does not exist.
pub fn add(text: Option<&str>) -> Result<String, BadSection> {
    let section = format!("{BEGIN}\n{TEXT}{END}");
    let Some(text) = text else {
        return Ok(format!("{section}\n"));
    };
    let line = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let section = section.replace('\n', line);
    if let Some(place) = find(text)? {
        let (before, after) = (text.get(..place.start), text.get(place.end..));
        return Ok([
            before.unwrap_or_default(),
            &section,
            after.unwrap_or_default(),
        ]
        .concat());
    }
    Ok(if text.is_empty() {
        section
    } else if text.ends_with('\n') {
        format!("{text}{line}{section}{line}")
    } else {
        // Without an end of the last line, as before: so it is known when the section is removed.
        format!("{text}{line}{line}{section}")
    })
}

/// The file without the section; `None` if it should not exist any more, because tenure made it.
pub fn remove(text: &str) -> Result<Option<String>, BadSection> {
    let Some(place) = find(text)? else {
        return Ok(Some(text.to_owned()));
    };
    let before = text.get(..place.start).unwrap_or_default();
    let after = text.get(place.end..).unwrap_or_default();
    if before.is_empty() && ["\n", "\r\n"].contains(&after) {
        return Ok(None);
    }
    let (before, after) = match (after.is_empty(), start_of_last_line(before)) {
        // The last line had no end.
        (true, Some(blank)) => (start_of_last_line(blank).unwrap_or(blank), after),
        (false, Some(blank)) => (blank, after_line(after)),
        (_, None) => (before, after_line(after)),
    };
    Ok(Some([before, after].concat()))
}

/// The text without the line end at its end.
fn start_of_last_line(text: &str) -> Option<&str> {
    let text = text.strip_suffix('\n')?;
    Some(text.strip_suffix('\r').unwrap_or(text))
}

/// The text without the line end at its beginning.
fn after_line(text: &str) -> &str {
    let rest = text
        .strip_prefix("\r\n")
        .or_else(|| text.strip_prefix('\n'));
    rest.unwrap_or(text)
}

/// Where the section is, with its markers.
fn find(text: &str) -> Result<Option<std::ops::Range<usize>>, BadSection> {
    let lines = |marker: &str| {
        let places = text.match_indices(marker).map(|(at, _)| at);
        let starts = |at: &usize| {
            text.get(..*at)
                .is_some_and(|before| before.is_empty() || before.ends_with('\n'))
        };
        places.filter(starts).collect::<Vec<usize>>()
    };
    match (lines(BEGINS).as_slice(), lines(END).as_slice()) {
        ([], []) => Ok(None),
        ([begin], [end]) if begin < end => Ok(Some(*begin..end + END.len())),
        ([] | [_], [] | [_]) => Err(BadSection::Unpaired),
        _ => Err(BadSection::Several),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_undoes_adding_byte_for_byte() {
        for before in [
            "",
            "\n",
            "x",
            "x\n",
            "x\n\n",
            "# A\n\ntext\n",
            "a\r\n",
            "a\r\nb",
            "\n\n\n",
            "<!-- tenure:end -->x\ny",
        ] {
            let Ok(after) = add(Some(before)) else {
                assert!(before.starts_with(END));
                continue;
            };
            assert_eq!(add(Some(&after)).unwrap(), after, "twice: {before:?}");
            assert_eq!(
                remove(&after).unwrap().as_deref(),
                Some(before),
                "{before:?}"
            );
            assert_eq!(after.contains('\r'), before.contains('\r'));
        }
        let made = add(None).unwrap();
        assert_eq!(add(Some(&made)).unwrap(), made);
        assert_eq!(remove(&made).unwrap(), None);
        assert_eq!(
            remove("no section\n").unwrap().as_deref(),
            Some("no section\n")
        );
    }

    #[test]
    fn an_older_section_is_replaced_in_its_place() {
        let old = format!("# A\n\n{BEGINS} -->\nold\n{END}\n\n# B\n");
        let new = add(Some(&old)).unwrap();
        assert!(new.starts_with("# A\n\n<!-- tenure:begin"), "{new}");
        assert!(
            new.ends_with("tenure:end -->\n\n# B\n") && !new.contains("old"),
            "{new}"
        );
        assert_eq!(remove(&new).unwrap().as_deref(), Some("# A\n\n# B\n"));
    }

    #[test]
    fn markers_that_do_not_fit_together_are_an_error() {
        assert_eq!(
            add(Some(&format!("{BEGINS} -->\n"))),
            Err(BadSection::Unpaired)
        );
        assert_eq!(remove(&format!("{END}\n")), Err(BadSection::Unpaired));
        assert_eq!(
            remove(&format!("{END}\n{BEGINS}\n")),
            Err(BadSection::Unpaired)
        );
        let twice = format!("{BEGINS}\n{END}\n").repeat(2);
        assert_eq!(add(Some(&twice)), Err(BadSection::Several));
    }
}
