//! Patterns of paths, and whether two of them have a path in common: [`PathPattern`].
//!
//! | in a pattern | matches |
//! |---|---|
//! | `*` | any part of one name, also an empty one |
//! | `?` | one character of a name |
//! | `[a-z]`, `[!a-z]` | one character of a name that is in the set, or is not |
//! | `**` as a whole name | any number of folders, also none; at the end, everything below |
//! | `{a,b}` | either |
//! | `\*` | the character itself |
//!
//! A pattern begins at the root of the repository. It also covers everything below what it matches: a folder
//! conflicts with the files in it.
//!
//! # How two patterns are compared
//!
//! Each pattern is compiled into an automaton, as a regular expression would be. [`PathPattern::overlap`] walks
//! both at the same time, together with a third one that accepts only paths in normal form, and so finds
//! a path that both cover, or proves that there is none. It lists no files and does not guess. The
//! work is bounded by [`MAX_STEPS`], however the patterns are written.
//!
//! Most patterns that are stored are never walked: those of two paths are compared as text, and a pattern whose first
//! characters differ from those of the other one can't overlap with it.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

/// The longest pattern, in bytes.
pub const MAX_PATTERN: usize = 500;

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
    /// The automaton, once it is needed.
    steps: OnceLock<Vec<Step>>,
}

impl PartialEq for PathPattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
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
        if let Some(at) = text.find(char::is_control) {
            return Err(BadPattern::Control(at));
        }
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
    /// it turns out not to be a pattern, it covers every path.
    pub fn from_normal(text: String) -> Self {
        let mut prefix = String::new();
        let mut rest = text.chars();
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
            steps: OnceLock::new(),
        }
    }

    fn steps(&self) -> &[Step] {
        self.steps.get_or_init(|| {
            let compiled = alternatives(&self.text).and_then(|all| compile(&all));
            compiled.unwrap_or_else(|_| {
                let mut anything = Vec::new();
                path(&mut anything, &[Name::Folders]);
                anything
            })
        })
    }

    /// The pattern that covers this path alone, and what is below it. Its characters have no special meaning.
    pub fn exactly(path: &str) -> Result<Self, BadPattern> {
        let special = |c: char| "\\*?[]{},!".contains(c);
        let mut escaped = String::new();
        for c in path.chars() {
            if special(c) {
                escaped.push('\\');
            }
            escaped.push(c);
        }
        Self::parse(&escaped)
    }

    /// The pattern as text, without `.` and `..`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The characters that every path begins with that it covers. If the pattern has no wildcards, this is the path.
    pub fn prefix(&self) -> &str {
        &self.prefix
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
        let mut now = self.reachable([0]);
        for c in path.chars() {
            let next = now.iter().filter_map(|at| match self.steps().get(*at) {
                Some(Step::One(set)) if set.contains(c) => Some(at + 1),
                _ => None,
            });
            now = self.reachable(next.collect::<Vec<_>>());
        }
        now.iter()
            .any(|at| matches!(self.steps().get(*at), Some(Step::Accept)))
    }

    /// The places that can be reached without a character.
    fn reachable(&self, from: impl IntoIterator<Item = usize>) -> Vec<usize> {
        let mut seen = vec![false; self.steps().len()];
        let mut stack: Vec<usize> = from.into_iter().collect();
        let mut places = Vec::new();
        while let Some(at) = stack.pop() {
            match seen.get_mut(at) {
                Some(seen) if !*seen => *seen = true,
                _ => continue,
            }
            match self.steps().get(at) {
                Some(Step::Either(one, other)) => stack.extend([*one, *other]),
                Some(_) => places.push(at),
                None => {}
            }
        }
        places
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
        let (ours, theirs) = (self.steps(), other.steps());
        let mut walk = Walk::new(ours.len(), theirs.len());
        walk.visit(Pair::default(), None);
        while let Some((index, pair)) = walk.next() {
            let (one, two) = (ours.get(pair.one)?, theirs.get(pair.two)?);
            match (one, two) {
                (Step::Either(a, b), _) => {
                    for one in [*a, *b] {
                        walk.visit(Pair { one, ..pair }, Some((index, None)));
                    }
                }
                (_, Step::Either(a, b)) => {
                    for two in [*a, *b] {
                        walk.visit(Pair { two, ..pair }, Some((index, None)));
                    }
                }
                (Step::Accept, Step::Accept) if pair.form == Form::InName => {
                    return Some(walk.path_to(index));
                }
                (Step::One(a), Step::One(b)) => {
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

/// Whether a path is this folder or file, or below it.
fn is_within(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// One step of an automaton.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// One of these characters, then the next step.
    One(Set),
    /// No character, then either of these steps.
    Either(usize, usize),
    /// The end of a path that is covered.
    Accept,
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

/// A set of characters, as ranges in order that do not touch.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Set(Vec<(char, char)>);

impl Set {
    fn one(c: char) -> Self {
        Self(vec![(c, c)])
    }

    /// Every character of a path.
    fn any() -> Self {
        Self(vec![('\u{1}', char::MAX)])
    }

    /// Every character of a name.
    fn in_name() -> Self {
        Self(vec![('\u{1}', '.'), ('0', char::MAX)])
    }

    fn contains(&self, c: char) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&c))
    }

    fn and(&self, other: &Self) -> Self {
        let mut both = Vec::new();
        for (low, high) in &self.0 {
            for (other_low, other_high) in &other.0 {
                let (low, high) = (*low.max(other_low), *high.min(other_high));
                if low <= high {
                    both.push((low, high));
                }
            }
        }
        Self(both)
    }

    /// Every character of a name that is not in these ranges.
    fn in_name_except(ranges: &[(char, char)]) -> Self {
        let mut set = Self::in_name();
        for (low, high) in ranges {
            let mut below = Vec::new();
            if let Some(end) = before(*low) {
                below.push(('\u{1}', end));
            }
            if let Some(begin) = after(*high) {
                below.push((begin, char::MAX));
            }
            set = set.and(&Self(below));
        }
        set
    }

    /// A character other than `/` and `.`, one that is easy to read if there is one.
    fn other(&self) -> Option<char> {
        let readable = ['a', 'x', '0', 'A', '_', '-'];
        let plain = |c: &char| !matches!(c, '/' | '.');
        let readable = readable.into_iter().find(|c| self.contains(*c));
        readable.or_else(|| {
            let mut candidates = self.0.iter().flat_map(|(low, high)| {
                let first_few = (*low..=*high).take(3);
                let printable = (' '..='~').filter(move |c| (*low..=*high).contains(c));
                printable.chain(first_few)
            });
            candidates.find(plain)
        })
    }
}

fn before(c: char) -> Option<char> {
    ('\u{1}'..c).next_back()
}

fn after(c: char) -> Option<char> {
    (c..=char::MAX).nth(1)
}

/// A part of a pattern as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(char),
    Star,
    Question,
    Set { set: Set, written: String },
    Slash,
    Open,
    Comma,
    Close,
}

fn tokens(text: &str) -> Result<Vec<Token>, BadPattern> {
    let mut tokens = Vec::new();
    let mut braces = Vec::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        tokens.push(match c {
            '\\' => match characters.next() {
                Some((_, '/')) | None => return Err(BadPattern::Unclosed { what: '\\', at }),
                Some((_, c)) => Token::Literal(c),
            },
            '*' => Token::Star,
            '?' => Token::Question,
            '/' => Token::Slash,
            '{' => {
                braces.push(at);
                Token::Open
            }
            '}' if braces.pop().is_some() => Token::Close,
            ',' if !braces.is_empty() => Token::Comma,
            '[' => {
                let rest = text.get(at..).unwrap_or_default();
                let (set, length) = set(rest, at)?;
                let written = rest.get(..length).unwrap_or_default().to_owned();
                while characters
                    .next_if(|(next, _)| *next < at + length)
                    .is_some()
                {}
                Token::Set { set, written }
            }
            c => Token::Literal(c),
        });
    }
    match braces.pop() {
        Some(at) => Err(BadPattern::Unclosed { what: '{', at }),
        None => Ok(tokens),
    }
}

/// Reads a set such as `[a-z]`, and tells how many bytes it takes.
fn set(text: &str, at: usize) -> Result<(Set, usize), BadPattern> {
    let unclosed = BadPattern::Unclosed { what: '[', at };
    let mut rest = text.char_indices().skip(1).peekable();
    let negated = rest.next_if(|(_, c)| matches!(c, '!' | '^')).is_some();
    let mut ranges: Vec<(char, char)> = Vec::new();
    loop {
        let Some((end, c)) = rest.next() else {
            return Err(unclosed);
        };
        if c == ']' && !ranges.is_empty() {
            let set = if negated {
                Set::in_name_except(&ranges)
            } else {
                normal(ranges)
            };
            if set.0.is_empty() {
                let why = "it excludes every character";
                return Err(BadPattern::BadSet { at, why });
            }
            return Ok((set, end + 1));
        }
        let mut one = |c: char| match c {
            '\\' => rest.next().map(|(_, c)| c),
            c => Some(c),
        };
        let low = one(c).ok_or_else(|| unclosed.clone())?;
        let mut ahead = rest.clone();
        let is_range = ahead.next().is_some_and(|(_, c)| c == '-')
            && ahead.peek().is_some_and(|(_, c)| *c != ']');
        let high = if is_range {
            rest.next();
            match rest.next() {
                Some((_, '\\')) => rest.next().map(|(_, c)| c),
                next => next.map(|(_, c)| c),
            }
            .ok_or_else(|| unclosed.clone())?
        } else {
            low
        };
        if low == '/' || high == '/' {
            let why = "/ is in no name";
            return Err(BadPattern::BadSet { at, why });
        }
        if low > high {
            let why = "a range ends before it begins";
            return Err(BadPattern::BadSet { at, why });
        }
        ranges.push((low, high));
    }
}

/// The same characters as ranges in order that do not overlap, without `/`.
fn normal(mut ranges: Vec<(char, char)>) -> Set {
    ranges.sort_unstable();
    let mut merged: Vec<(char, char)> = Vec::new();
    for (low, high) in ranges {
        match merged.last_mut() {
            Some(last) if low <= last.1 => last.1 = last.1.max(high),
            _ => merged.push((low, high)),
        }
    }
    Set(merged).and(&Set::in_name())
}

/// The alternatives of a pattern, each as its names in normal form, and each once.
fn alternatives(text: &str) -> Result<Vec<Vec<Name>>, BadPattern> {
    let tokens = tokens(text)?;
    let mut alternatives = Vec::new();
    for plain in expand(&tokens)? {
        let names = names(&plain)?;
        if !alternatives.contains(&names) {
            alternatives.push(names);
        }
    }
    Ok(alternatives)
}

/// The alternatives that the braces stand for.
fn expand(tokens: &[Token]) -> Result<Vec<Vec<Token>>, BadPattern> {
    let Some(open) = tokens.iter().position(|token| *token == Token::Open) else {
        return Ok(vec![tokens.to_vec()]);
    };
    let (before, rest) = tokens.split_at(open);
    let mut depth = 0_usize;
    let (mut begin, mut parts, mut end) = (1, Vec::new(), rest.len());
    for (index, token) in rest.iter().enumerate() {
        match token {
            Token::Open => depth += 1,
            Token::Close => depth = depth.saturating_sub(1),
            Token::Comma if depth == 1 => {
                parts.push(rest.get(begin..index).unwrap_or_default());
                begin = index + 1;
            }
            _ => {}
        }
        if depth == 0 {
            parts.push(rest.get(begin..index).unwrap_or_default());
            end = index + 1;
            break;
        }
    }
    let behind = rest.get(end..).unwrap_or_default();
    let mut all = Vec::new();
    for part in parts {
        all.extend(expand(&[before, part, behind].concat())?);
        // Each takes six steps or more.
        if all.len() > MAX_STEPS / 6 {
            return Err(BadPattern::TooComplex);
        }
    }
    Ok(all)
}

/// One name of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    /// `**`
    Folders,
    Parts(Vec<Token>),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = match self {
            Self::Folders => return f.write_str("**"),
            Self::Parts(parts) => parts,
        };
        for part in parts {
            match part {
                Token::Literal(c) if "\\*?[]{},!".contains(*c) => write!(f, "\\{c}")?,
                Token::Literal(c) => write!(f, "{c}")?,
                Token::Star => f.write_str("*")?,
                Token::Question => f.write_str("?")?,
                Token::Set { written, .. } => f.write_str(written)?,
                Token::Slash | Token::Open | Token::Comma | Token::Close => {}
            }
        }
        Ok(())
    }
}

/// A pattern without braces as text.
fn written(names: &[Name]) -> String {
    let names: Vec<String> = names.iter().map(Name::to_string).collect();
    names.join("/")
}

/// The names of a pattern without braces, in normal form.
fn names(tokens: &[Token]) -> Result<Vec<Name>, BadPattern> {
    let mut names: Vec<Name> = Vec::new();
    for (index, parts) in tokens.split(|token| *token == Token::Slash).enumerate() {
        let literal: Option<String> = parts
            .iter()
            .map(|part| match part {
                Token::Literal(c) => Some(*c),
                _ => None,
            })
            .collect();
        match literal.as_deref() {
            Some("") if index == 0 && tokens.len() > 1 => return Err(BadPattern::Absolute),
            Some("" | ".") => {}
            Some("..") => match names.pop() {
                None => return Err(BadPattern::Outside),
                Some(Name::Parts(parts))
                    if parts.iter().all(|part| matches!(part, Token::Literal(_))) => {}
                Some(_) => return Err(BadPattern::UpFromWildcard),
            },
            Some(_) => names.push(Name::Parts(parts.to_vec())),
            None if parts == [Token::Star, Token::Star] => {
                if names.last() != Some(&Name::Folders) {
                    names.push(Name::Folders);
                }
            }
            None => {
                let mut parts = parts.to_vec();
                parts.dedup_by(|one, other| *one == Token::Star && *other == Token::Star);
                names.push(Name::Parts(parts));
            }
        }
    }
    if names.is_empty() {
        return Err(BadPattern::Empty);
    }
    Ok(names)
}

/// An automaton that accepts what any of the alternatives matches, and everything below.
fn compile(alternatives: &[Vec<Name>]) -> Result<Vec<Step>, BadPattern> {
    let mut steps = Vec::new();
    for (index, names) in alternatives.iter().enumerate() {
        // To the next alternative; it is filled in when that begins.
        let fork = steps.len();
        let is_last = index + 1 == alternatives.len();
        if !is_last {
            steps.push(Step::Either(fork + 1, 0));
        }
        path(&mut steps, names);
        if !is_last {
            let next = steps.len();
            if let Some(step) = steps.get_mut(fork) {
                *step = Step::Either(fork + 1, next);
            }
        }
        if steps.len() > MAX_STEPS {
            return Err(BadPattern::TooComplex);
        }
    }
    Ok(steps)
}

fn path(steps: &mut Vec<Step>, names: &[Name]) {
    let mut needs_slash = false;
    for (index, name) in names.iter().enumerate() {
        let is_last = index + 1 == names.len();
        if needs_slash {
            steps.push(Step::One(Set::one('/')));
        }
        needs_slash = true;
        match name {
            Name::Folders if is_last => {
                steps.push(Step::One(Set::any()));
                many(steps, Set::any());
            }
            Name::Folders => {
                // Some folders and a slash, or nothing.
                let fork = steps.len();
                steps.push(Step::Either(fork + 1, fork + 4 + 1));
                many(steps, Set::any());
                steps.push(Step::One(Set::one('/')));
                needs_slash = false;
            }
            Name::Parts(parts) => {
                for part in parts {
                    match part {
                        Token::Literal(c) => steps.push(Step::One(Set::one(*c))),
                        Token::Question => steps.push(Step::One(Set::in_name())),
                        Token::Set { set, .. } => steps.push(Step::One(set.clone())),
                        Token::Star => many(steps, Set::in_name()),
                        Token::Slash | Token::Open | Token::Comma | Token::Close => {}
                    }
                }
            }
        }
    }
    // What is below.
    let end = steps.len();
    steps.push(Step::Either(end + 1, end + 5));
    steps.push(Step::One(Set::one('/')));
    many(steps, Set::any());
    steps.push(Step::Accept);
}

/// Any number of these characters: three steps.
fn many(steps: &mut Vec<Step>, set: Set) {
    let begin = steps.len();
    steps.push(Step::Either(begin + 1, begin + 3));
    steps.push(Step::One(set));
    steps.push(Step::Either(begin, begin));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pattern(text: &str) -> PathPattern {
        PathPattern::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn overlap(one: &str, two: &str) -> Option<String> {
        let found = pattern(one).overlap(&pattern(two));
        let other_way = pattern(two).overlap(&pattern(one));
        assert_eq!(found.is_some(), other_way.is_some(), "{one} and {two}");
        found
    }

    #[test]
    fn patterns_with_a_path_in_common_overlap() {
        for (one, two) in [
            ("src", "src"),
            ("src/", "src/a.rs"),
            ("./src//a.rs", "src/b/../a.rs"),
            ("src/**", "src/a/b/c.rs"),
            ("**", "a"),
            ("**/*.rs", "src/lib.rs"),
            ("**/lib.rs", "lib.rs"),
            ("src/*.rs", "src/[k-m]ib.?s"),
            ("a*b", "*ab*"),
            ("{src,docs}/x", "docs/?"),
            ("{src/**,docs/**}", "docs/a/b"),
            ("{**,a}/x", "q/r/x"),
            ("a{,b}c", "ac"),
            ("a\\*b", "a[*]b"),
            ("[!a]", "[^b]"),
            ("src/api/**", "**/test/*.rs"),
            ("a/**/b", "a/b"),
            ("...", "?.?"),
            ("\u{e9}t\u{e9}", "?t?"),
        ] {
            let found = overlap(one, two);
            let found = found.unwrap_or_else(|| panic!("{one} and {two} overlap"));
            assert!(
                pattern(one).covers(&found) && pattern(two).covers(&found),
                "{found}"
            );
        }
    }

    #[test]
    fn patterns_without_a_path_in_common_do_not() {
        for (one, two) in [
            ("src", "srcs"),
            ("src/*.rs", "src/*.c"),
            ("src/**", "docs/**"),
            ("a?", "a"),
            ("[a-c]", "[d-f]"),
            ("[!a]", "a"),
            // Only the names `.` and `..` would match both.
            ("?", "[.]"),
            ("[.][.]", "??"),
            ("*/x", "[.]/x"),
            ("a\\*b", "axb"),
            ("{a,b}/{c,d}", "{a,b}/{e,f}"),
        ] {
            assert_eq!(overlap(one, two), None, "{one} and {two}");
        }
    }

    #[test]
    fn a_pattern_is_refused_with_the_reason() {
        for (text, said) in [
            ("", "is empty"),
            (".", "is empty"),
            ("a/..", "is empty"),
            ("!a", "begins with !"),
            ("/etc/passwd", "begins with /"),
            ("{/etc,a}", "begins with /"),
            ("../a", "leads out"),
            ("a/../../b", "leads out"),
            ("*/../a", "after a wildcard"),
            ("a[b", "the [ at byte 1"),
            ("a{b,c", "the { at byte 1"),
            ("a\\", "the \\ at byte 1"),
            ("[z-a]", "a range ends"),
            ("[/]", "/ is in no name"),
            ("a\nb", "control character at byte 1"),
        ] {
            let error = PathPattern::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
        assert_eq!(
            PathPattern::parse(&"a".repeat(1 << 20)),
            Err(BadPattern::TooLong(1 << 20))
        );
        let braces = "{a,b}".repeat(60);
        assert_eq!(PathPattern::parse(&braces), Err(BadPattern::TooComplex));
    }

    #[test]
    fn every_spelling_of_a_path_is_one_pattern() {
        for text in [
            "src/a.rs",
            "./src/a.rs",
            "src//a.rs",
            "src/b/../a.rs",
            "src/./a.rs/",
        ] {
            assert_eq!(pattern(text).as_str(), "src/a.rs");
            assert_eq!(pattern(text), pattern("src/a.rs"));
        }
        assert_eq!(pattern("**/**/***").as_str(), "**/*");
        assert_eq!(pattern("a{b,c}/d").as_str(), "a{b,c}/d");
        assert_eq!(pattern("a/{../b,c}").as_str(), "{b,a/c}");
        assert_eq!(pattern("./{b,\\.}/x").as_str(), "{b/x,x}");
        let odd = "a*b[1]{x}!,\\";
        assert_eq!(
            PathPattern::exactly(odd)
                .unwrap()
                .overlap(&pattern("a*"))
                .unwrap(),
            odd
        );
    }

    #[test]
    fn patterns_that_make_other_matchers_slow_take_a_bounded_number_of_steps() {
        let (one, two) = (pattern(&"*a".repeat(200)), pattern(&"*b".repeat(200)));
        assert_eq!(one.overlap(&two), None, "they end with different letters");
        let two = pattern(&"b*".repeat(200));
        assert!(one.steps().len() <= MAX_STEPS && two.steps().len() <= MAX_STEPS);
        let both = one.overlap(&two).unwrap();
        assert!(both.len() >= 400 && one.covers(&both) && two.covers(&both));
        let deep = pattern(&"**/a/".repeat(80));
        assert!(
            deep.overlap(&pattern(&"b/".repeat(100))).is_some(),
            "below it"
        );
        assert!(!deep.covers(&"a".repeat(400)));
    }

    /// Whether a plain pattern matches a path, by trying everything. `at` is where the rest of it begins.
    fn tried(whole: &[char], at: usize, path: &[char]) -> bool {
        let begins_name = at == 0 || whole[at - 1] == '/';
        let go_on = |skip: usize, path: &[char]| tried(whole, at + skip, path);
        match &whole[at..] {
            [] => path.is_empty() || path[0] == '/',
            ['*', '*'] if begins_name => !path.is_empty(),
            ['*', '*', '/', ..] if begins_name => {
                let slashes = (0..path.len()).filter(|end| path[*end] == '/');
                go_on(3, path) || slashes.into_iter().any(|end| go_on(3, &path[end + 1..]))
            }
            ['*', ..] => {
                let name = path.iter().position(|c| *c == '/').unwrap_or(path.len());
                (0..=name).any(|end| go_on(1, &path[end..]))
            }
            [part, ..] => match path {
                [c, rest @ ..] if c == part || (*part == '?' && *c != '/') => go_on(1, rest),
                _ => false,
            },
        }
    }

    /// Every path in normal form of these characters, up to a length.
    fn paths(length: usize) -> Vec<String> {
        let mut all = vec![String::new()];
        let mut found = Vec::new();
        for _ in 0..length {
            all = all
                .iter()
                .flat_map(|path| ["a", "b", ".", "/"].map(|c| format!("{path}{c}")))
                .collect();
            found.extend(
                all.iter()
                    .filter(|path| path.split('/').all(|name| !matches!(name, "" | "." | "..")))
                    .cloned(),
            );
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn overlap_and_covers_agree_with_trying_every_path(
            one in "((a|b|[.]|[*]|[?]|[*][*]){1,3}/){0,2}(a|b|[*]|[?]|[*][*]){1,3}",
            two in "((a|b|[.]|[*]|[?]|[*][*]){1,3}/){0,2}(a|b|[*]|[?]|[*][*]){1,3}",
        ) {
            let (Ok(first), Ok(second)) = (PathPattern::parse(&one), PathPattern::parse(&two)) else {
                return Ok(());
            };
            let plain = |pattern: &PathPattern| pattern.as_str().chars().collect::<Vec<_>>();
            let (one, two) = (plain(&first), plain(&second));
            let mut common = None;
            for path in paths(5) {
                let letters: Vec<char> = path.chars().collect();
                let (in_one, in_two) = (tried(&one, 0, &letters), tried(&two, 0, &letters));
                prop_assert_eq!(first.covers(&path), in_one, "{} covers {}", first, path);
                prop_assert_eq!(second.covers(&path), in_two, "{} covers {}", second, path);
                if in_one && in_two {
                    common = Some(path);
                }
            }
            match first.overlap(&second) {
                None => prop_assert_eq!(common, None),
                Some(path) => {
                    let letters: Vec<char> = path.chars().collect();
                    prop_assert!(tried(&one, 0, &letters) && tried(&two, 0, &letters), "{}", path);
                }
            }
        }
    }
}
