//! What can be wrong with the configuration, in words that name the place and the way out.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::Source;

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ConfigError {
    /// Where it is wrong.
    pub place: Place,
    /// What is wrong there.
    pub problem: Problem,
}

/// Where something is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
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

/// What is wrong with the configuration at some place.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The operating system would not let us read the file.
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
    /// The text is not YAML; in the parser's words.
    #[error("this is not valid YAML: {0}")]
    BadYaml(String),
    /// Mappings or lists are inside one another without end.
    #[error("this is nested more than {0} levels deep, which no configuration needs")]
    TooDeep(usize),
    /// A mapping, list or value is where another of them should be.
    #[error("{subject} must be {expected}, but it is {found}")]
    WrongShape {
        /// The key's dotted path, or words for the whole file.
        subject: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: &'static str,
    },
    /// A key that is not known.
    #[error("unknown key {key}{} Known here: {}", meant(.closest.as_deref()), .known.join(", "))]
    UnknownKey {
        /// The key's dotted path.
        key: String,
        /// What was probably meant.
        closest: Option<String>,
        /// What is known in that section.
        known: Vec<String>,
    },
    /// A variable that has a section's prefix, but is not known.
    #[error("no setting has this name{} Known here: {}", meant(.closest.as_deref()), .known.join(", "))]
    UnknownVariable {
        /// What was probably meant.
        closest: Option<String>,
        /// The variables of that section.
        known: Vec<String>,
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

fn meant(closest: Option<&str>) -> String {
    closest.map_or_else(
        || ".".to_owned(),
        |closest| format!(": did you mean {closest}?"),
    )
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(out),
            Self::Position { path, line, column } => {
                write!(out, "{}:{line}:{column}", path.display())
            }
            Self::Environment(name) => write!(out, "environment variable {}", name.escape_debug()),
        }
    }
}

impl From<Place> for Source {
    fn from(place: Place) -> Self {
        match place {
            Place::File(path) | Place::Position { path, .. } => Self::File(path),
            Place::Environment(name) => Self::Environment(name),
        }
    }
}
