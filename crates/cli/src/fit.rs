//! Text cut and padded to a width in terminal columns. A wide character or an emoji takes two columns.

use std::os::fd::AsFd;

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// The width if the terminal does not report one.
const DEFAULT: usize = 80;

/// The width of standard output: of its terminal, or `COLUMNS`.
pub(crate) fn terminal_width() -> usize {
    width_of(std::io::stdout())
}

/// The same for another stream.
pub(crate) fn width_of(stream: impl AsFd) -> usize {
    let reported = rustix::termios::tcgetwinsize(stream).ok();
    let reported = reported.map(|size| usize::from(size.ws_col));
    let set = || std::env::var("COLUMNS").ok()?.parse().ok();
    reported
        .filter(|width| *width > 0)
        .or_else(set)
        .filter(|width| *width > 0)
        .unwrap_or(DEFAULT)
}

/// The width of a text.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// The text cut to at most `most` columns; a cut is marked with an ellipsis.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut cut = String::new();
    for piece in text.graphemes(true) {
        if width(&cut) + width(piece) + 1 > most {
            break;
        }
        cut.push_str(piece);
    }
    if most > 0 {
        cut.push('…');
    }
    cut
}

/// The text shortened in the middle to at most `most` columns, with an ellipsis where something is left out.
pub(crate) fn middle(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let Some(room) = most.checked_sub(1) else {
        return String::new();
    };
    let take = |pieces: &mut dyn Iterator<Item = &str>, most: usize| {
        let mut used = 0;
        let mut taken = Vec::new();
        for piece in pieces {
            used += width(piece);
            if used > most {
                break;
            }
            taken.push(piece.to_owned());
        }
        taken
    };
    let end = take(&mut text.graphemes(true).rev(), room / 2);
    let start = take(&mut text.graphemes(true), room - room / 2);
    let end: String = end.into_iter().rev().collect();
    format!("{}…{end}", start.concat())
}

/// The text with each UUID in it as its first group, as lists show ids of sessions.
pub(crate) fn short_ids(text: &str) -> String {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = text.split('-').collect();
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let mut rest = parts.as_slice();
    let mut kept = Vec::new();
    while let [first, others @ ..] = rest {
        let groups = || rest.iter().take(GROUPS.len());
        let is_id = groups().map(|part| part.len()).eq(GROUPS) && groups().all(|part| is_hex(part));
        kept.push(*first);
        rest = if is_id {
            others.get(GROUPS.len() - 1..).unwrap_or_default()
        } else {
            others
        };
    }
    kept.join("-")
}

/// The text padded to at least `least` columns.
pub(crate) fn filled(text: &str, least: usize) -> String {
    let missing = least.saturating_sub(width(text));
    format!("{text}{}", " ".repeat(missing))
}

/// The text broken between words into at most `lines` lines of at most `most` columns. A word that is
/// too long, and the rest of the last line, are cut.
pub(crate) fn wrapped(text: &str, most: usize, lines: usize) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        // The last line takes all remaining words and is cut below.
        let is_last = all.len() == lines;
        match all.last_mut() {
            Some(line) if is_last || width(line) + 1 + width(word) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => all.push(word.to_owned()),
        }
    }
    all.iter().map(|line| cut(line, most)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_and_emoji_take_two_columns() {
        assert_eq!(width("日本"), 4);
        assert_eq!(width("🚀"), 2);
        assert_eq!(width("e\u{301}"), 1);
        assert_eq!(cut("日本語", 5), "日本…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("👩‍💻 works", 4), "👩‍💻 …");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(middle("abcdefgh", 5), "ab…gh");
        assert_eq!(middle("日本語日本語", 6), "日…語");
        assert_eq!(middle("abc", 3), "abc");
        assert_eq!(middle("abc", 0), "");
        for text in [
            "日本語の長い題",
            "🚀🚀🚀🚀",
            "plain text",
            "e\u{301}e\u{301}e\u{301}",
        ] {
            for most in 0..12 {
                assert!(width(&cut(text, most)) <= most, "{text} {most}");
                assert!(width(&middle(text, most)) <= most, "{text} {most}");
                assert_eq!(width(&filled(&cut(text, most), 12)), 12);
            }
        }
    }

    #[test]
    fn an_id_of_a_session_is_shown_as_its_first_group() {
        let id = "3873d8d6-8887-4c62-a418-92d5cefd0df7";
        assert_eq!(short_ids(&format!("codex-{id}")), "codex-3873d8d6");
        assert_eq!(short_ids(&format!("a-{id}-b")), "a-3873d8d6-b");
        assert_eq!(short_ids(id), "3873d8d6");
        for whole in [
            "agent-1",
            "",
            "a--b",
            "3873d8d6-8887-4c62-a418-92d5cefd0dfx",
        ] {
            assert_eq!(short_ids(whole), whole);
        }
    }

    #[test]
    fn lines_break_between_words_and_the_last_is_cut() {
        assert_eq!(wrapped("one two three", 7, 3), ["one two", "three"]);
        assert_eq!(wrapped("one two three four", 7, 2), ["one two", "three …"]);
        assert_eq!(wrapped("unbreakable", 5, 2), ["unbr…"]);
        assert!(wrapped("", 5, 2).is_empty());
    }
}
