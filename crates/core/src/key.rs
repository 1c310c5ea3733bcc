//! The name of something that can be held: [`Key`].

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest name of a key or holder, in bytes.
pub const MAX_NAME: usize = 255;

/// The longest key of a node, in bytes: other programs make trees that are hundreds of levels deep.
pub const MAX_NODE: usize = 1023;

/// The name of something that can be held: `task:<id>`, `section:<id>`, `node:<id>`, `database`, `board`, or any name such
/// as `build`.
///
/// ```
/// use tenure_core::{Key, KeyKind};
///
/// let key = Key::parse("task:42").unwrap();
/// assert_eq!(key.kind(), KeyKind::Task("42"));
/// assert!(Key::parse("").is_err());
/// assert!(Key::parse("two\nlines").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct Key(String);

/// The kinds of key that some store treats specially.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind<'a> {
    /// `task:<id>`
    Task(&'a str),
    /// `section:<id>`
    Section(&'a str),
    /// `node:<id>`
    Node(&'a str),
    /// Any other name.
    Named(&'a str),
}

/// Why a text can't be the name of a key or a holder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadName {
    /// It is empty, or nothing follows the prefix.
    #[error("the {0} is empty: give it a name, for example {1}")]
    Empty(&'static str, &'static str),
    /// Longer than [`MAX_NAME`], or [`MAX_NODE`] for the key of a node.
    #[error("the {what} is {length} bytes long: at most {max} are allowed")]
    TooLong {
        /// `key` or `holder`
        what: &'static str,
        /// How long it may be.
        max: usize,
        /// How long it is.
        length: usize,
    },
    /// It has a control character, which would garble output.
    #[error(
        "the {what} has a control character ({character}) at byte {at}: use visible characters and single spaces"
    )]
    Control {
        /// `key` or `holder`
        what: &'static str,
        /// The character, escaped.
        character: String,
        /// The position of the character, in bytes.
        at: usize,
    },
    /// A new name has a character that can't be seen. Two names that look the same must be the same.
    #[error(
        "the {what} has an invisible character ({character}) at byte {at}: use visible characters only"
    )]
    Hidden {
        /// `key` or `holder`
        what: &'static str,
        /// The character, escaped.
        character: String,
        /// The position of the character, in bytes.
        at: usize,
    },
    /// A new claim on the key of the reservations, which are claimed otherwise.
    #[error(
        "paths is the key of all reservations, so it can't be the name of a lock: choose another name, or reserve all \
         files with tenure reserve '**'"
    )]
    Paths,
    /// It begins or ends with white space. Two keys that look the same must be the same.
    #[error("the {0} begins or ends with white space: remove it")]
    Padded(&'static str),
}

/// Checks what keys and holders have in common.
pub(crate) fn check_name(
    text: &str,
    what: &'static str,
    example: &'static str,
) -> Result<(), BadName> {
    if text.trim().is_empty() {
        return Err(BadName::Empty(what, example));
    }
    let is_node = what == "key" && text.starts_with("node:");
    let max = if is_node { MAX_NODE } else { MAX_NAME };
    if text.len() > max {
        return Err(BadName::TooLong {
            what,
            max,
            length: text.len(),
        });
    }
    if let Some((at, character)) = text.char_indices().find(|(_, c)| c.is_control()) {
        return Err(BadName::Control {
            what,
            character: character.escape_default().to_string(),
            at,
        });
    }
    if text.trim() != text {
        return Err(BadName::Padded(what));
    }
    Ok(())
}

/// Whether a character can't be seen, or changes the order in which the text around it is shown: two texts that
/// differ in it look the same.
///
/// ```
/// use tenure_core::key::is_hidden;
///
/// assert!(is_hidden('\u{202e}') && is_hidden('\u{200b}'));
/// assert!(!is_hidden('é') && !is_hidden(' '));
/// ```
pub fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Refuses a hidden character in a name that is new. Names that are on record already keep theirs, so that they
/// can be released.
pub(crate) fn check_visible(text: &str, what: &'static str) -> Result<(), BadName> {
    match text.char_indices().find(|(_, c)| is_hidden(*c)) {
        None => Ok(()),
        Some((at, character)) => Err(BadName::Hidden {
            what,
            character: character.escape_default().to_string(),
            at,
        }),
    }
}

impl Key {
    /// The key of all reservations of paths. They have one queue, so that a claim for a folder is not starved by claims
    /// for the files in it.
    pub fn paths() -> Self {
        Self("paths".to_owned())
    }

    /// Whether it is the key of all reservations of paths.
    pub fn is_paths(&self) -> bool {
        self.0 == "paths"
    }

    /// Parses the key of a new claim, which can be told from every other by looking at it.
    pub fn parse_new(text: impl Into<String>) -> Result<Self, BadName> {
        let key = Self::parse(text)?;
        check_visible(&key.0, "key")?;
        if key.is_paths() {
            return Err(BadName::Paths);
        }
        Ok(key)
    }

    /// Parses a key.
    pub fn parse(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        check_name(&text, "key", "build")?;
        let key = Self(text);
        match key.kind() {
            KeyKind::Task("") => Err(BadName::Empty("id after task:", "task:42")),
            KeyKind::Section("") => Err(BadName::Empty("id after section:", "section:backend")),
            KeyKind::Node("") => Err(BadName::Empty("id after node:", "node:1.2")),
            _ => Ok(key),
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The kind of key.
    pub fn kind(&self) -> KeyKind<'_> {
        match self.0.split_once(':') {
            Some(("task", id)) => KeyKind::Task(id),
            Some(("section", id)) => KeyKind::Section(id),
            Some(("node", id)) => KeyKind::Node(id),
            _ => KeyKind::Named(&self.0),
        }
    }

    /// The key without its kind: the task's id of `task:42`.
    pub fn id(&self) -> &str {
        match self.kind() {
            KeyKind::Task(id) | KeyKind::Section(id) | KeyKind::Node(id) | KeyKind::Named(id) => id,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Key {
    type Error = BadName;
    fn try_from(text: String) -> Result<Self, BadName> {
        Self::parse(text)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.0
    }
}

impl std::str::FromStr for Key {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_key_is_refused_with_the_reason() {
        for (text, words) in [
            ("", "is empty"),
            ("   ", "is empty"),
            ("a\tb", "control character"),
            ("a\u{7f}", "control character"),
            (" build", "white space"),
            ("task:", "id after task:"),
        ] {
            let error = Key::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
        let long = Key::parse("x".repeat(256)).unwrap_err().to_string();
        assert!(long.contains("256 bytes"), "{long}");
        assert!(Key::parse("x".repeat(255)).is_ok());
    }

    #[test]
    fn a_key_may_contain_spaces_and_any_script() {
        for text in ["deploy to prod", "größe", "構築", "a:b:c", "node:1.2.3"] {
            assert_eq!(Key::parse(text).unwrap().as_str(), text);
        }
    }
}
