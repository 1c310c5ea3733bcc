//! From the text of a pattern to its names.

use std::fmt;

use super::set::Set;
use super::{BadPattern, MAX_STEPS};

/// A part of a pattern as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(char),
    Star,
    Question,
    Set { set: Set, written: String },
    Slash,
    Open,
    Comma,
    Close,
}

fn tokens(text: &str) -> Result<Vec<Piece>, BadPattern> {
    let mut tokens = Vec::new();
    let mut braces = Vec::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        tokens.push(match c {
            '\\' => match characters.next() {
                Some((_, '/')) | None => return Err(BadPattern::Unclosed { what: '\\', at }),
                Some((_, c)) => Piece::Literal(c),
            },
            '*' => Piece::Star,
            '?' => Piece::Question,
            '/' => Piece::Slash,
            '{' => {
                braces.push(at);
                Piece::Open
            }
            '}' if braces.pop().is_some() => Piece::Close,
            ',' if !braces.is_empty() => Piece::Comma,
            '[' => {
                let rest = text.get(at..).unwrap_or_default();
                let (set, length) = set(rest, at)?;
                let written = rest.get(..length).unwrap_or_default().to_owned();
                while characters
                    .next_if(|(next, _)| *next < at + length)
                    .is_some()
                {}
                Piece::Set { set, written }
            }
            c => Piece::Literal(c),
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
                Set::of(ranges)
            };
            if set.0.is_empty() {
                let why = "it excludes every character";
                return Err(BadPattern::BadSet { at, why });
            }
            return Ok((set, end + 1));
        }
        if c == '['
            && let Some((class, length)) = class(text.get(end..).unwrap_or_default(), at)?
        {
            ranges.extend(class);
            while rest.next_if(|(next, _)| *next < end + length).is_some() {}
            continue;
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

type Ranges = &'static [(char, char)];

/// The characters of a class such as `[:digit:]`, and how many bytes it takes; `None` if the text does not begin with one.
fn class(text: &str, at: usize) -> Result<Option<(Ranges, usize)>, BadPattern> {
    let name = text.strip_prefix("[:");
    let Some((name, _)) = name.and_then(|rest| rest.split_once(":]")) else {
        return Ok(None);
    };
    let ranges: Ranges = match name {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "cntrl" => &[('\u{1}', '\u{1f}'), ('\u{7f}', '\u{7f}')],
        "digit" => &[('0', '9')],
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => {
            let why = "it names no class: alnum, alpha, blank, cntrl, digit, graph, lower, print, punct, space, upper or xdigit";
            return Err(BadPattern::BadSet { at, why });
        }
    };
    Ok(Some((ranges, name.len() + 4)))
}

/// The alternatives of a pattern, each as its names in normal form, and each once.
pub(super) fn alternatives(text: &str) -> Result<Vec<Vec<Name>>, BadPattern> {
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
fn expand(tokens: &[Piece]) -> Result<Vec<Vec<Piece>>, BadPattern> {
    let Some(open) = tokens.iter().position(|token| *token == Piece::Open) else {
        return Ok(vec![tokens.to_vec()]);
    };
    let (before, rest) = tokens.split_at(open);
    let mut depth = 0_usize;
    let (mut begin, mut parts, mut end) = (1, Vec::new(), rest.len());
    for (index, token) in rest.iter().enumerate() {
        match token {
            Piece::Open => depth += 1,
            Piece::Close => depth = depth.saturating_sub(1),
            Piece::Comma if depth == 1 => {
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
pub(super) enum Name {
    /// `**`
    Folders,
    Parts(Vec<Piece>),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = match self {
            Self::Folders => return f.write_str("**"),
            Self::Parts(parts) => parts,
        };
        for part in parts {
            match part {
                Piece::Literal(c) if "\\*?[]{},!".contains(*c) => write!(f, "\\{c}")?,
                Piece::Literal(c) => write!(f, "{c}")?,
                Piece::Star => f.write_str("*")?,
                Piece::Question => f.write_str("?")?,
                Piece::Set { written, .. } => f.write_str(written)?,
                Piece::Slash | Piece::Open | Piece::Comma | Piece::Close => {}
            }
        }
        Ok(())
    }
}

/// A pattern without braces as text.
pub(super) fn written(names: &[Name]) -> String {
    let names: Vec<String> = names.iter().map(Name::to_string).collect();
    names.join("/")
}

/// The names of a pattern without braces, in normal form.
fn names(tokens: &[Piece]) -> Result<Vec<Name>, BadPattern> {
    let mut names: Vec<Name> = Vec::new();
    let mut ends_with_slash = false;
    for (index, parts) in tokens.split(|token| *token == Piece::Slash).enumerate() {
        let literal: Option<String> = parts
            .iter()
            .map(|part| match part {
                Piece::Literal(c) => Some(*c),
                _ => None,
            })
            .collect();
        ends_with_slash = matches!(literal.as_deref(), Some("" | "."));
        match literal.as_deref() {
            Some("") if index == 0 && tokens.len() > 1 => return Err(BadPattern::Absolute),
            Some("" | ".") => {}
            Some("..") => match names.pop() {
                None => return Err(BadPattern::Outside),
                Some(Name::Parts(parts))
                    if parts.iter().all(|part| matches!(part, Piece::Literal(_))) => {}
                Some(_) => return Err(BadPattern::UpFromWildcard),
            },
            Some(_) => names.push(Name::Parts(parts.to_vec())),
            None if parts == [Piece::Star, Piece::Star] => {
                if names.last() != Some(&Name::Folders) {
                    names.push(Name::Folders);
                }
            }
            None => {
                let mut parts = parts.to_vec();
                parts.dedup_by(|one, other| *one == Piece::Star && *other == Piece::Star);
                names.push(Name::Parts(parts));
            }
        }
    }
    match names.last() {
        None => return Err(BadPattern::Empty),
        // All that is below the folder. A name without wildcards covers that anyway.
        Some(Name::Parts(parts)) if ends_with_slash && names_files(parts) => {
            names.push(Name::Folders);
        }
        Some(_) => {}
    }
    Ok(names)
}

/// Whether a name with wildcards has an extension: a dot after its last `*`, not at its beginning, and something after it.
pub(super) fn names_files(parts: &[Piece]) -> bool {
    let is_literal = |part: &Piece| matches!(part, Piece::Literal(_));
    let star = parts.iter().rposition(|part| *part == Piece::Star);
    let begin = star.map_or(1, |star| star + 1);
    let end = parts.len().saturating_sub(1);
    let extension = parts.get(begin..end).unwrap_or_default();
    !parts.iter().all(is_literal) && extension.contains(&Piece::Literal('.'))
}
