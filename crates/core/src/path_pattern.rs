//! Patterns of paths, and whether two of them have a path in common: [`PathPattern`].
//!
//! | in a pattern | matches |
//! |---|---|
//! | `*` | any part of one name, also an empty one |
//! | `?` | one character of a name |
//! | `[a-z]`, `[!a-z]`, `[[:digit:]]` | one character of a name that is in the set, or is not |
//! | `**` as a whole name | any number of folders, also none; at the end, everything below |
//! | `{a,b}` | either |
//! | `/` at the end | the folder and everything below |
//! | `\*` | the character itself |
//!
//! A pattern begins at the root of the repository. It also covers everything below what it matches: a folder
//! conflicts with the files in it. There are two exceptions, because otherwise every path could be a folder that has
//! what another pattern matches in it, and `**/*.rs` would conflict with every file:
//!
//! - a last name with wildcards and an extension, such as `*.rs`, matches files only. With a `/` at the end, it matches folders;
//! - a path that is known to be a file ([`PathPattern::file`]) has nothing below it that a pattern with wildcards
//!   could match.
//!
//! # How two patterns are compared
//!
//! Each pattern is compiled into an automaton, as a regular expression would be. [`PathPattern::overlap`] walks
//! both at the same time, together with a third one that accepts only paths in normal form, and so finds
//! a path that both cover, or proves that there is none. It lists no files and does not guess. The
//! work is bounded by [`MAX_STEPS`], however the patterns are written, and that of all comparisons in a step of a store by
//! its `Budget`.
//!
//! Most patterns that are stored are never walked: those of two paths are compared as text, and a pattern whose first
//! characters differ from those of the other one can't overlap with it.

mod budget;
mod parse;
mod set;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

pub(crate) use self::budget::Budget;
use self::budget::spend;
use self::parse::{Name, Piece, alternatives, names_files, written};
use self::set::Set;

/// The longest pattern, in bytes.
pub const MAX_PATTERN: usize = 500;

/// The longest path of a file, in bytes: as long as the kernel allows.
pub const MAX_PATH: usize = 4096;

/// The size of the largest automaton. Only patterns with many alternatives reach it.
pub const MAX_STEPS: usize = 1024;

/// Why a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPattern {
    /// It is empty, or names no file.
    #[error("the pattern is empty: name a file or a folder, for example src/api or 'src/**/*.rs'")]
    Empty,
    /// Longer than [`MAX_PATTERN`].
    #[error("the pattern is {0} bytes long: at most {MAX_PATTERN} are allowed")]
    TooLong(usize),
    /// The path of a file is longer than [`MAX_PATH`].
    #[error("the path is {0} bytes long: at most {MAX_PATH} are allowed")]
    PathTooLong(usize),
    /// Its automaton is larger than [`MAX_STEPS`].
    #[error(
        "the pattern has too many alternatives: give several patterns instead of so many braces"
    )]
    TooComplex,
    /// It begins with `!`.
    #[error(
        "the pattern begins with !, which would exclude paths: name what to reserve (\\! for a name with that character)"
    )]
    Negated,
    /// It begins with `/`.
    #[error("the pattern begins with /: give the path from the root of the repository")]
    Absolute,
    /// `..` leads out of the repository.
    #[error("the pattern leads out of the repository with ..")]
    Outside,
    /// `..` follows a name with wildcards.
    #[error("the pattern has .. after a wildcard: write the folder itself")]
    UpFromWildcard,
    /// A bracket or a brace is not closed, or a backslash ends the pattern.
    #[error(
        "the {what} at byte {at} of the pattern is not closed: write \\{what} for the character itself"
    )]
    Unclosed {
        /// The character.
        what: char,
        /// Where it is, in bytes.
        at: usize,
    },
    /// A range such as `[z-a]`, or a set with `/`.
    #[error("the set at byte {at} of the pattern can't match: {why}")]
    BadSet {
        /// Where it begins, in bytes.
        at: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It has a control character.
    #[error("the pattern has a control character at byte {0}: use visible characters")]
    Control(usize),
}

/// A pattern of paths, relative to the root of a repository.
///
/// ```
/// use tenure_core::PathPattern;
///
/// let api = PathPattern::parse("src/api/**").unwrap();
/// let tests = PathPattern::parse("src/**/*_test.rs").unwrap();
/// assert_eq!(api.overlap(&tests).as_deref(), Some("src/api/_test.rs"));
/// assert!(api.overlap(&PathPattern::parse("src/apis").unwrap()).is_none());
/// assert!(PathPattern::parse("src").unwrap().covers("src/api/mod.rs"));
/// ```
#[derive(Debug, Clone)]
pub struct PathPattern {
    text: String,
    /// The characters that every path begins with that it covers.
    prefix: String,
    /// Whether the prefix is all of it: it has no wildcards.
    is_path: bool,
    /// Whether the path is that of a file. Only if `is_path`.
    is_file: bool,
    /// The automaton, once it is needed.
    steps: OnceLock<Vec<Instruction>>,
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.is_file == other.is_file
    }
}

impl Eq for PathPattern {}

impl Hash for PathPattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl PathPattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Self, BadPattern> {
        if text.len() > MAX_PATTERN {
            return Err(BadPattern::TooLong(text.len()));
        }
        without_controls(text)?;
        match text.chars().next() {
            None => return Err(BadPattern::Empty),
            Some('!') => return Err(BadPattern::Negated),
            Some('/') => return Err(BadPattern::Absolute),
            Some(_) => {}
        }
        let alternatives = alternatives(text)?;
        let steps = compile(&alternatives)?;
        let texts: Vec<String> = alternatives.iter().map(|names| written(names)).collect();
        let odd = ["//", "./", "/.", "..", "\\"];
        let is_normal = !text.starts_with('.') && !odd.iter().any(|odd| text.contains(odd));
        let pattern = Self::from_normal(match texts.as_slice() {
            [only] => only.clone(),
            _ if is_normal => text.to_owned(),
            several => format!("{{{}}}", several.join(",")),
        });
        let _ = pattern.steps.set(steps);
        Ok(pattern)
    }

    /// The pattern with this text, as [`PathPattern::as_str`] returned it. It is only parsed if a comparison needs it; if
    /// it turns out not to be a pattern, it covers every path that begins like it.
    pub fn from_normal(text: String) -> Self {
        // Most paths have no special character at all.
        let special = |byte: u8| matches!(byte, b'\\' | b'*' | b'?' | b'[' | b'{');
        let plain = text.bytes().position(special);
        let (plain, rest) = text.split_at(plain.unwrap_or(text.len()));
        let mut prefix = plain.to_owned();
        let mut rest = rest.chars();
        let is_path = loop {
            match rest.next() {
                None => break true,
                Some('\\') => prefix.extend(rest.next()),
                Some('*' | '?' | '[' | '{') => break false,
                Some(c) => prefix.push(c),
            }
        };
        Self {
            text,
            prefix,
            is_path,
            is_file: false,
            steps: OnceLock::new(),
        }
    }

    fn steps(&self) -> &[Instruction] {
        self.steps.get_or_init(|| {
            let compiled = alternatives(&self.text).and_then(|all| compile(&all));
            compiled.unwrap_or_else(|_| {
                let literal = self.prefix.chars().map(|c| Instruction::One(Set::one(c)));
                let mut anything: Vec<Instruction> = literal.collect();
                many(&mut anything, Set::any());
                anything.push(Instruction::Accept);
                anything
            })
        })
    }

    /// The pattern that covers this path alone, and what is below it. Its characters have no special meaning.
    pub fn exactly(path: &str) -> Result<Self, BadPattern> {
        Self::parse(&Self::escaped(path))
    }

    /// The text of a pattern that is this path alone: none of its characters has a special meaning.
    pub fn escaped(path: &str) -> String {
        let mut escaped = String::new();
        for c in path.chars() {
            if "\\*?[]{},!".contains(c) {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        escaped
    }

    /// The pattern of a file, given by its path in normal form. Its characters have no special meaning.
    pub fn file(path: &str) -> Result<Self, BadPattern> {
        if path.len() > MAX_PATH {
            return Err(BadPattern::PathTooLong(path.len()));
        }
        without_controls(path)?;
        let is_name = |name: &str| !matches!(name, "" | "." | "..");
        if !path.split('/').all(is_name) {
            return Self::exactly(path);
        }
        Ok(Self::from_normal(Self::escaped(path)).of_file())
    }

    /// The same pattern, if it is a path: as that of a file.
    #[must_use]
    pub(crate) fn of_file(self) -> Self {
        Self {
            is_file: self.is_path,
            ..self
        }
    }

    /// Whether it is the path of a file, so that nothing is below it.
    pub fn is_file(&self) -> bool {
        self.is_file
    }

    /// The pattern as text, without `.` and `..`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The characters that every path begins with that it covers. If the pattern has no wildcards, this is the path.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The path itself if the pattern has no wildcards, or else the folder that all wildcards are in. It is above every path
    /// that the pattern covers, or is that path. Empty at the top.
    pub fn place(&self) -> &str {
        if self.is_path {
            return &self.prefix;
        }
        let folder = self.prefix.rsplit_once('/');
        folder.map_or("", |(folder, _)| folder)
    }

    /// Whether it has no wildcards.
    pub fn is_path(&self) -> bool {
        self.is_path
    }

    /// Whether it matches a path in normal form, or a folder above it.
    pub fn covers(&self, path: &str) -> bool {
        if self.is_path {
            return is_within(path, &self.prefix);
        }
        if !path.starts_with(&self.prefix) {
            return false;
        }
        let mut places = Reach::new(self.steps());
        let mut now = places.reachable([0]);
        for c in path.chars() {
            if !spend(now.len() + 1) {
                return true;
            }
            let next = now.iter().filter_map(|at| match self.steps().get(*at) {
                Some(Instruction::One(set)) if set.contains(c) => Some(at + 1),
                _ => None,
            });
            now = places.reachable(next);
            if now.is_empty() {
                return false;
            }
        }
        now.iter()
            .any(|at| matches!(self.steps().get(*at), Some(Instruction::Accept)))
    }

    /// A short path that both patterns cover; `None` if there is none.
    pub fn overlap(&self, other: &Self) -> Option<String> {
        let (a, b) = (&self.prefix, &other.prefix);
        if self.is_path && other.is_path {
            let inner = [(a, b), (b, a)].into_iter().find(|(a, b)| is_within(a, b));
            return inner.map(|(inner, _)| inner.clone());
        }
        if !a.starts_with(b.as_str()) && !b.starts_with(a.as_str()) {
            return None;
        }
        for (file, other) in [(self, other), (other, self)] {
            if file.is_file {
                return other.covers(&file.prefix).then(|| file.prefix.clone());
            }
        }
        let (ours, theirs) = (self.steps(), other.steps());
        let mut walk = Walk::new(ours.len(), theirs.len());
        walk.visit(Pair::default(), None);
        while let Some((index, pair)) = walk.next() {
            if !spend(1) {
                let longer = if a.len() > b.len() { a } else { b };
                return Some(longer.clone());
            }
            let (one, two) = (ours.get(pair.one)?, theirs.get(pair.two)?);
            match (one, two) {
                (Instruction::Either(a, b), _) => {
                    for one in [*a, *b] {
                        walk.visit(Pair { one, ..pair }, Some((index, None)));
                    }
                }
                (_, Instruction::Either(a, b)) => {
                    for two in [*a, *b] {
                        walk.visit(Pair { two, ..pair }, Some((index, None)));
                    }
                }
                (Instruction::Accept, Instruction::Accept) if pair.form == Form::InName => {
                    return Some(walk.path_to(index));
                }
                (Instruction::One(a), Instruction::One(b)) => {
                    let both = a.and(b);
                    for (c, form) in pair.form.next(&both) {
                        let next = Pair {
                            one: pair.one + 1,
                            two: pair.two + 1,
                            form,
                        };
                        walk.visit(next, Some((index, Some(c))));
                    }
                }
                _ => {}
            }
        }
        None
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn without_controls(text: &str) -> Result<(), BadPattern> {
    match text.find(char::is_control) {
        Some(at) => Err(BadPattern::Control(at)),
        None => Ok(()),
    }
}

/// Whether a path is this folder or file, or below it.
fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// One step of an automaton.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Instruction {
    /// One of these characters, then the next step.
    One(Set),
    /// No character, then either of these steps.
    Either(usize, usize),
    /// The end of a path that is covered.
    Accept,
}

/// The places of an automaton that can be reached without a character.
struct Reach<'a> {
    steps: &'a [Instruction],
    /// The round in which each place was last reached.
    seen: Vec<u32>,
    round: u32,
}

impl<'a> Reach<'a> {
    fn new(steps: &'a [Instruction]) -> Self {
        Self {
            steps,
            seen: vec![0; steps.len()],
            round: 0,
        }
    }

    fn reachable(&mut self, from: impl IntoIterator<Item = usize>) -> Vec<usize> {
        self.round += 1;
        let mut stack: Vec<usize> = from.into_iter().collect();
        let mut places = Vec::new();
        while let Some(at) = stack.pop() {
            match self.seen.get_mut(at) {
                Some(seen) if *seen != self.round => *seen = self.round,
                _ => continue,
            }
            match self.steps.get(at) {
                Some(Instruction::Either(one, other)) => stack.extend([*one, *other]),
                Some(_) => places.push(at),
                None => {}
            }
        }
        places
    }
}

/// Where a walk through two automata is.
#[derive(Debug, Clone, Copy, Default)]
struct Pair {
    one: usize,
    two: usize,
    form: Form,
}

/// Where a walk is in a path in normal form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Form {
    /// At the beginning of a name, which must not be empty.
    #[default]
    NameBegins,
    /// After `.`, which is no name.
    Dot,
    /// After `..`, which is no name.
    DotDot,
    /// In a name that may end here.
    InName,
}

impl Form {
    /// A character of the set for each way in which the path can go on.
    fn next(self, set: &Set) -> impl Iterator<Item = (char, Self)> {
        let slash = (self == Self::InName && set.contains('/')).then_some(('/', Self::NameBegins));
        let after_dot = match self {
            Self::NameBegins => Self::Dot,
            Self::Dot => Self::DotDot,
            Self::DotDot | Self::InName => Self::InName,
        };
        let dot = set.contains('.').then_some(('.', after_dot));
        let other = set.other().map(|c| (c, Self::InName));
        [other, dot, slash].into_iter().flatten()
    }
}

/// The pair before another one, and the character between them.
type Before = (usize, Option<char>);

/// A breadth-first walk through two automata.
struct Walk {
    width: usize,
    seen: Vec<bool>,
    /// Every pair that was found.
    found: Vec<(Pair, Option<Before>)>,
    open: VecDeque<usize>,
}

impl Walk {
    fn new(one: usize, two: usize) -> Self {
        Self {
            width: two,
            seen: vec![false; one * two * 4],
            found: Vec::new(),
            open: VecDeque::new(),
        }
    }

    fn visit(&mut self, pair: Pair, from: Option<Before>) {
        let index = (pair.one * self.width + pair.two) * 4 + pair.form as usize;
        if let Some(seen) = self.seen.get_mut(index).filter(|seen| !**seen) {
            *seen = true;
            // A step without a character does not make the path longer.
            let number = self.found.len();
            match from {
                Some((_, None)) => self.open.push_front(number),
                _ => self.open.push_back(number),
            }
            self.found.push((pair, from));
        }
    }

    fn next(&mut self) -> Option<(usize, Pair)> {
        let index = self.open.pop_front()?;
        Some((index, self.found.get(index)?.0))
    }

    fn path_to(&self, index: usize) -> String {
        let mut characters = Vec::new();
        let mut at = Some(index);
        while let Some((_, from)) = at.and_then(|at| self.found.get(at)) {
            characters.extend(from.and_then(|(_, c)| c));
            at = from.map(|(before, _)| before);
        }
        characters.into_iter().rev().collect()
    }
}

/// An automaton that accepts what any of the alternatives matches, and everything below.
fn compile(alternatives: &[Vec<Name>]) -> Result<Vec<Instruction>, BadPattern> {
    let mut steps = Vec::new();
    for (index, names) in alternatives.iter().enumerate() {
        // To the next alternative; it is filled in when that begins.
        let fork = steps.len();
        let is_last = index + 1 == alternatives.len();
        if !is_last {
            steps.push(Instruction::Either(fork + 1, 0));
        }
        path(&mut steps, names);
        if !is_last {
            let next = steps.len();
            if let Some(step) = steps.get_mut(fork) {
                *step = Instruction::Either(fork + 1, next);
            }
        }
        if steps.len() > MAX_STEPS {
            return Err(BadPattern::TooComplex);
        }
    }
    Ok(steps)
}

fn path(steps: &mut Vec<Instruction>, names: &[Name]) {
    let mut needs_slash = false;
    for (index, name) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        if needs_slash {
            steps.push(Instruction::One(Set::one('/')));
        }
        needs_slash = true;
        match name {
            Name::Folders if is_last => {
                steps.push(Instruction::One(Set::any()));
                many(steps, Set::any());
            }
            Name::Folders => {
                // Some folders and a slash, or nothing.
                let fork = steps.len();
                steps.push(Instruction::Either(fork + 1, fork + 4 + 1));
                many(steps, Set::any());
                steps.push(Instruction::One(Set::one('/')));
                needs_slash = false;
            }
            Name::Parts(parts) => {
                for part in parts {
                    match part {
                        Piece::Literal(c) => steps.push(Instruction::One(Set::one(*c))),
                        Piece::Question => steps.push(Instruction::One(Set::in_name())),
                        Piece::Set { set, .. } => steps.push(Instruction::One(set.clone())),
                        Piece::Star => many(steps, Set::in_name()),
                        Piece::Slash | Piece::Open | Piece::Comma | Piece::Close => {}
                    }
                }
            }
        }
    }
    if let Some(Name::Parts(parts)) = names.last()
        && names_files(parts)
    {
        steps.push(Instruction::Accept);
        return;
    }
    // What is below.
    let end = steps.len();
    steps.push(Instruction::Either(end + 1, end + 5));
    steps.push(Instruction::One(Set::one('/')));
    many(steps, Set::any());
    steps.push(Instruction::Accept);
}

/// Any number of these characters: three steps.
fn many(steps: &mut Vec<Instruction>, set: Set) {
    let begin = steps.len();
    steps.push(Instruction::Either(begin + 1, begin + 3));
    steps.push(Instruction::One(set));
    steps.push(Instruction::Either(begin, begin));
}
