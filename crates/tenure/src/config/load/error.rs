//! What can be wrong with the configuration: the location, the problem and how to fix it.

use std::fmt;
use std::io;
use std::path::PathBuf;
use tenure_core::text::flat;

use super::super::Source;

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{location}: {problem}")]
#[non_exhaustive]
pub struct ConfigError {
    /// Where the mistake is.
    pub location: Location,
    /// What is wrong there.
    pub problem: ConfigProblem,
}

/// Where a setting is made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// A file as a whole.
    File(PathBuf),
    /// A position in a file. Lines and columns count from one.
    Position {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The column, in characters.
        column: usize,
    },
    /// An environment variable.
    Environment(String),
}

/// What is wrong with the configuration at a location.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigProblem {
    /// The operating system cannot read the file.
    #[error("cannot read this configuration file: {0}")]
    Unreadable(io::Error),
    /// A directory, pipe or device is where the file should be.
    #[error("this must be a configuration file, but it is {0}: move it away or write a file")]
    NotAFile(&'static str),
    /// The file is larger than any configuration.
    #[error("this configuration file is larger than {0} KiB, which no configuration needs")]
    TooLarge(u64),
    /// The bytes are not text.
    #[error("this is not UTF-8 text: save the file in UTF-8")]
    NotUtf8,
    /// The text is not YAML, in the parser's words.
    #[error("this is not valid YAML: {0}")]
    BadYaml(String),
    /// Mappings or lists are nested too deep.
    #[error("this is nested more than {0} levels deep, which no configuration needs")]
    TooDeep(usize),
    /// The file has too many keys and values, counting those that aliases repeat.
    #[error("this file has more keys, values or aliases than any configuration needs")]
    TooMuch,
    /// A mapping, list or value stands where another of them is needed.
    #[error("{subject} must be {expected}, but it is {found}")]
    WrongShape {
        /// The key's dotted path, or `the file`.
        subject: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: &'static str,
    },
    /// A key that is not known.
    #[error("unknown key {key}{} Known here: {}", did_you_mean(.suggestion.as_deref()), .known.join(", "))]
    UnknownKey {
        /// The key's dotted path.
        key: String,
        /// The known key that was probably meant.
        suggestion: Option<String>,
        /// The keys that are known there.
        known: Vec<String>,
    },
    /// A variable that means nothing, and has nearly the name of one that does.
    #[error("no setting has this name: did you mean {suggestion}?")]
    UnknownVariable {
        /// The variable that was probably meant.
        suggestion: String,
    },
    /// A value that the setting cannot have.
    #[error("{key}: {why}")]
    BadValue {
        /// The setting's dotted path.
        key: &'static str,
        /// The value as it was written.
        value: String,
        /// Why it is refused, and what is accepted.
        why: String,
    },
}

fn did_you_mean(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(|| ".".to_owned(), |name| format!(": did you mean {name}?"))
}

/// Text from a file as a message can show it: control characters are escaped, so that they do not
/// reach the terminal, and only the beginning of a very long text is shown.
pub(super) fn shortened(text: &str) -> String {
    const LONGEST: usize = 120;
    let beginning: String = text.chars().take(LONGEST).collect();
    let more = if beginning.len() < text.len() {
        "..."
    } else {
        ""
    };
    format!("{}{more}", flat(&beginning))
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(out),
            Self::Position { path, line, column } => {
                write!(out, "{}:{line}:{column}", path.display())
            }
            Self::Environment(name) => write!(out, "environment variable {}", flat(name)),
        }
    }
}

impl From<Location> for Source {
    fn from(location: Location) -> Self {
        match location {
            Location::File(path) | Location::Position { path, .. } => Self::File(path),
            Location::Environment(name) => Self::Environment(name),
        }
    }
}
