//! Text from others, made fit to be shown: to a terminal, and to the model of an agent.
//!
//! Names, reasons, titles, commands, paths and records come from other users and other programs. A control
//! character in one of them can move the cursor, recolour, hide or overwrite what a terminal shows, and an
//! invisible character makes two texts look the same. So every text is escaped by [`visible`] where it leaves
//! the process; what belongs on one line is put there by [`flat`], so that it can't forge a line of its own.
//! JSON is not escaped: its strings are data.

use std::borrow::Cow;

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
}
