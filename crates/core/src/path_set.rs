//! The paths of one reservation: [`PathSet`].

use std::fmt;

use crate::path_pattern::{BadPattern, MAX_PATTERN, PathPattern};

/// The most patterns in one set.
pub const MAX_PATTERNS: usize = 1000;

/// The most bytes that all patterns of a set have together.
pub const MAX_BYTES: usize = MAX_PATTERNS * MAX_PATTERN;

/// What a stored pattern ends with if it is the path of a file. No pattern ends so otherwise: `.` is no name.
const FILE: &str = "/.";

/// What a reservation covers: the paths of some patterns, to write them, or to read them while nobody else writes them.
///
/// ```
/// use tenure_core::PathSet;
///
/// let api = PathSet::parse(["src/api/**", "Cargo.toml"]).unwrap();
/// let readers = PathSet::parse(["src"]).unwrap().shared();
/// assert!(api.conflict(&readers).is_some());
/// assert!(readers.conflict(&readers).is_none());
/// assert!(api.covers("src/api/mod.rs").is_some());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathSet {
    shared: bool,
    /// In order, each once.
    patterns: Vec<PathPattern>,
}

/// Why some texts are no set of patterns.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPathSet {
    /// There are no patterns.
    #[error("there is no pattern: name a file or a folder, for example src/api or 'src/**/*.rs'")]
    Empty,
    /// More than [`MAX_PATTERNS`].
    #[error("{0} patterns are too many for one reservation: at most {MAX_PATTERNS} are allowed")]
    TooMany(usize),
    /// More than [`MAX_BYTES`].
    #[error(
        "the patterns have {0} bytes, which is too long for one reservation: at most {MAX_BYTES} are allowed"
    )]
    TooLong(usize),
    /// One of the texts is no pattern.
    #[error("{text:?}: {why}")]
    Pattern {
        /// The text.
        text: String,
        /// What is wrong with it.
        why: BadPattern,
    },
}

impl PathSet {
    /// The paths of these patterns, to write them.
    pub fn new(patterns: impl IntoIterator<Item = PathPattern>) -> Result<Self, BadPathSet> {
        let mut patterns: Vec<PathPattern> = patterns.into_iter().collect();
        // What may be a folder, before the same path as that of a file.
        patterns.sort_by(|one, other| {
            let file = one.is_file().cmp(&other.is_file());
            one.as_str().cmp(other.as_str()).then(file)
        });
        patterns.dedup_by(|one, other| one.as_str() == other.as_str());
        let bytes = patterns.iter().map(|it| it.as_str().len()).sum();
        match patterns.len() {
            0 => Err(BadPathSet::Empty),
            _ if bytes > MAX_BYTES => Err(BadPathSet::TooLong(bytes)),
            1..=MAX_PATTERNS => Ok(Self {
                shared: false,
                patterns,
            }),
            many => Err(BadPathSet::TooMany(many)),
        }
    }

    /// Parses each text as a pattern.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, BadPathSet> {
        let pattern = |text: &str| {
            PathPattern::parse(text).map_err(|why| BadPathSet::Pattern {
                text: text.chars().take(80).collect(),
                why,
            })
        };
        let patterns: Result<Vec<_>, _> = texts.into_iter().map(pattern).collect();
        Self::new(patterns?)
    }

    /// The same paths, to read them.
    #[must_use]
    pub fn shared(self) -> Self {
        Self {
            shared: true,
            ..self
        }
    }

    /// The same patterns, without telling which of them are paths of files.
    pub(crate) fn shown(&self) -> Self {
        let patterns = self.patterns.iter();
        let texts = patterns.map(|pattern| pattern.as_str().to_owned());
        Self {
            shared: self.shared,
            patterns: texts.map(PathPattern::from_normal).collect(),
        }
    }

    /// The same without some patterns, compared as text; `None` if none is left.
    #[must_use]
    pub fn without(&self, some: &[PathPattern]) -> Option<Self> {
        let has = |pattern: &PathPattern| some.iter().any(|it| it.as_str() == pattern.as_str());
        let mut rest = self.clone();
        rest.patterns.retain(|pattern| !has(pattern));
        (!rest.patterns.is_empty()).then_some(rest)
    }

    /// Whether the paths are only read.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// The patterns, in order.
    pub fn patterns(&self) -> &[PathPattern] {
        &self.patterns
    }

    /// Whether both name the same paths, be it to read or to write, be they known to be files or not.
    pub fn same_paths(&self, other: &Self) -> bool {
        let texts = self.patterns.iter().map(PathPattern::as_str);
        texts.eq(other.patterns.iter().map(PathPattern::as_str))
    }

    /// The first pattern that covers a path in normal form.
    pub fn covers(&self, path: &str) -> Option<&PathPattern> {
        self.patterns.iter().find(|pattern| pattern.covers(path))
    }

    /// A path that this pattern covers, too.
    pub fn overlap(&self, other: &PathPattern) -> Option<String> {
        self.patterns.iter().find_map(|one| one.overlap(other))
    }

    /// A path that is in both sets, if two holders can't have them together.
    pub fn conflict(&self, other: &Self) -> Option<String> {
        if self.shared && other.shared {
            return None;
        }
        other.patterns.iter().find_map(|two| self.overlap(two))
    }

    /// The set as [`PathSet::from_stored`] reads it, without `shared`. A space in a pattern has a backslash before it.
    pub(crate) fn stored(&self) -> String {
        let text = |pattern: &PathPattern| {
            let mut text = pattern.as_str().replace(' ', "\\ ");
            if pattern.is_file() {
                text.push_str(FILE);
            }
            text
        };
        let texts: Vec<String> = self.patterns.iter().map(text).collect();
        texts.join(" ")
    }

    /// The set that was stored as this text.
    pub(crate) fn from_stored(text: &str) -> Option<Self> {
        let patterns = if text.contains('\\') {
            unescaped(text)
        } else {
            text.split(' ').map(str::to_owned).collect()
        };
        let is_whole = patterns.iter().all(|pattern| !pattern.is_empty());
        is_whole.then(|| Self {
            shared: false,
            patterns: patterns.into_iter().map(pattern_from).collect(),
        })
    }
}

/// The patterns in a text in which a space in a pattern has a backslash before it.
fn unescaped(text: &str) -> Vec<String> {
    let mut patterns = Vec::new();
    let mut pattern = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            ' ' => patterns.push(std::mem::take(&mut pattern)),
            '\\' => match characters.next() {
                Some(' ') => pattern.push(' '),
                next => pattern.extend(['\\'].into_iter().chain(next)),
            },
            c => pattern.push(c),
        }
    }
    patterns.push(pattern);
    patterns
}

fn pattern_from(stored: String) -> PathPattern {
    match stored.strip_suffix(FILE) {
        Some(path) => PathPattern::from_normal(path.to_owned()).of_file(),
        None => PathPattern::from_normal(stored),
    }
}

/// The patterns with a space between them; a space in a pattern has a backslash before it.
impl fmt::Display for PathSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pattern) in self.patterns.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            f.write_str(&pattern.as_str().replace(' ', "\\ "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_the_same_after_it_was_stored() {
        for texts in [
            vec!["src/**", "Cargo.toml"],
            vec!["a b/c", "x\\*y", "{p,q r}/**", "t\\,u"],
            vec!["\\ a", "a\\\\ b"],
        ] {
            let set = PathSet::parse(texts).unwrap();
            let stored = PathSet::from_stored(&set.stored()).unwrap();
            assert_eq!(stored, set, "{set}");
            for pattern in set.patterns() {
                let again = PathPattern::parse(pattern.as_str()).unwrap();
                assert_eq!(again.as_str(), pattern.as_str());
                assert_eq!(again.prefix(), pattern.prefix());
            }
        }
        let file = PathPattern::file("app/[id]/a b.tsx").unwrap();
        let set = PathSet::new([file.clone(), PathPattern::parse("z").unwrap()]).unwrap();
        assert_eq!(set.stored(), "app/\\[id\\]/a\\ b.tsx/. z");
        assert_eq!(set.to_string(), "app/\\[id\\]/a\\ b.tsx z");
        let stored = PathSet::from_stored(&set.stored()).unwrap();
        assert_eq!(stored, set);
        assert!(stored.patterns()[0].is_file() && !stored.patterns()[1].is_file());
        // As a folder, it is another mode for the same paths.
        let folder = PathPattern::parse(file.as_str()).unwrap();
        let both = PathSet::new([file, folder.clone()]).unwrap();
        assert_eq!(both.patterns(), [folder]);
        for damaged in ["", " ", "a  b", "a "] {
            assert_eq!(PathSet::from_stored(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn a_text_that_is_no_pattern_conflicts_with_everything() {
        let damaged = PathSet::from_stored("src/[z").unwrap();
        assert!(
            damaged
                .conflict(&PathSet::parse(["src/a"]).unwrap())
                .is_some()
        );
    }

    #[test]
    fn a_set_has_between_one_and_a_thousand_patterns() {
        assert_eq!(PathSet::parse([]), Err(BadPathSet::Empty));
        let many: Vec<String> = (0..1001).map(|n| format!("f{n}")).collect();
        let many = PathSet::parse(many.iter().map(String::as_str));
        assert_eq!(many, Err(BadPathSet::TooMany(1001)));
        let long = (0..200).map(|n| PathPattern::file(&format!("{n}{}", "f".repeat(4000))));
        let long: Result<Vec<_>, _> = long.collect();
        let long = PathSet::new(long.unwrap());
        assert!(matches!(long, Err(BadPathSet::TooLong(_))), "{long:?}");
        let error = PathSet::parse(["a", "../b"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "\"../b\": the pattern leads out of the repository with .."
        );
    }
}
