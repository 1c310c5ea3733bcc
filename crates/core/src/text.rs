//! Text from others, made fit to be shown: to a terminal, and to the model of an agent.
//!
//! Names, reasons, titles, commands, paths and records come from other users and other programs. A control
//! character in one of them can move the cursor, recolour, hide or overwrite what a terminal shows, and an
//! invisible character makes two texts look the same. So every text is escaped by [`visible`] where it leaves
//! the process; what belongs on one line is put there by [`flat`], so that it can't forge a line of its own.
//! JSON is not escaped: its strings are data.

use std::borrow::Cow;
use std::ffi::OsStr;

use crate::key::is_hidden;

/// The text with control characters and invisible characters escaped. Line breaks and tabs stay, and so does a
/// joiner between characters beyond ASCII, as in an emoji.
///
/// ```
/// use tenure_core::text::visible;
///
/// assert_eq!(visible("a\x1b[2Jb\u{202e}c"), "a\\u{1b}[2Jb\\u{202e}c");
/// assert_eq!(visible("one\r\ntwo\tthree"), "one\ntwo\tthree");
/// ```
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_odd = |c: char| is_hidden(c) || (c.is_control() && !matches!(c, '\n' | '\t'));
    if !text.contains(is_odd) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::new();
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let joins = matches!(c, '\u{200c}' | '\u{200d}') && !before.is_ascii();
        if c == '\r' && rest.peek() == Some(&'\n') {
            // Some programs end their lines like this.
        } else if is_odd(c) && !joins {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
        before = c;
    }
    Cow::Owned(shown)
}

/// The same on one line: line breaks and tabs become spaces.
///
/// ```
/// assert_eq!(tenure_core::text::flat("one\r\ntwo\x1bc"), "one two\\u{1b}c");
/// ```
pub fn flat(text: &str) -> String {
    visible(text).replace(['\n', '\t'], " ")
}

/// A word quoted for a shell, on one line.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    if visible(word) != word || word.contains(['\n', '\t']) {
        return printed(word.as_bytes());
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A word that need not be UTF-8, quoted for a shell so that it arrives with every byte.
pub fn quoted_bytes(word: &OsStr) -> String {
    word.to_str()
        .map_or_else(|| printed(word.as_encoded_bytes()), quoted)
}

/// A word that a shell prints, with escapes for what a terminal does not show.
fn printed(word: &[u8]) -> String {
    let escaped = |byte: &u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' | b':' | b' ' => {
            char::from(*byte).to_string()
        }
        other => format!("\\{other:03o}"),
    };
    let escaped: String = word.iter().map(escaped).collect();
    format!("\"$(printf '{escaped}')\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_seen_stays_and_an_emoji_keeps_its_joiner() {
        for text in ["plain é 日本 👩\u{200d}🚀", "two\nlines", "a\tb", ""] {
            assert_eq!(visible(text), text);
        }
        assert_eq!(visible("a\u{202e}b\u{200d}"), "a\\u{202e}b\\u{200d}");
    }

    #[test]
    fn no_control_character_is_left() {
        for code in (0..0x20).chain(0x7f..0xa0) {
            let c = char::from_u32(code).unwrap();
            let text = format!("a{c}b");
            let left = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
            assert!(!visible(&text).contains(left), "{code:x}");
            assert!(!flat(&text).contains(char::is_control), "{code:x}");
        }
    }

    #[test]
    fn a_quoted_word_is_one_word_to_a_shell() {
        assert_eq!(quoted("task:1.2"), "task:1.2");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's $(bad)"), "'it'\\''s $(bad)'");
    }
}
