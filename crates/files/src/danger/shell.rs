//! The grammar of the shell, as far as it decides which commands a line runs: [`parse`].
//!
//! It is the grammar of POSIX with what bash adds: `[[`, `((`, `&>`, `<<<`, `<(`, `$'...'`, `|&`, `;&`, `coproc`,
//! `function`. Arithmetic and the operators of `${...}` are skipped, but for the commands in them.
//!
//! 1. A line that is longer than [`LONGEST`] or nested deeper than [`DEEPEST`] has no tree, and neither has one that the
//!    grammar refuses.
//! 2. The time is linear in the length of the line, but for `((` that turns out to be two subshells: each depth of it reads
//!    the rest once more.
//! 3. Nothing panics: no byte is indexed, and no number is read.

mod commands;
mod words;

use std::rc::Rc;

/// The longest line that is parsed, in bytes.
pub(super) const LONGEST: usize = 64 * 1024;

/// How deep commands may be nested in one another.
pub(super) const DEEPEST: usize = 60;

/// Commands one after another.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct List(pub(super) Vec<Step>);

/// A pipeline in a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) joint: Joint,
    pub(super) pipeline: Vec<Command>,
    /// Whether it runs in the background.
    pub(super) is_async: bool,
}

/// How a pipeline follows the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Joint {
    /// After `;`, a new line or `&`, or as the first one.
    Always,
    /// After `&&`.
    And,
    /// After `||`.
    Or,
}

/// One command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) what: What,
    /// What it reads: the last here-document or here-string.
    pub(super) input: Option<Word>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    Simple {
        assignments: Vec<(String, Word)>,
        words: Vec<Word>,
    },
    /// `{ ...; }`
    Group(List),
    /// `( ... )`
    Subshell(List),
    /// `if`, `while`, `until` and `case`: all conditions, then any of the branches.
    Branches {
        conditions: Vec<List>,
        branches: Vec<List>,
    },
    /// `for` and `select`; without values, over the parameters.
    For {
        name: String,
        values: Vec<Word>,
        body: List,
    },
    Function(String, Rc<Command>),
}

/// A word, in pieces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word(pub(super) Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Unquoted text: `*`, `?`, `[`, `~` and `{` may have a meaning in it.
    Plain(String),
    /// Text that means itself.
    Quoted(String),
    /// The value of a variable or parameter.
    Variable { name: String, is_quoted: bool },
    /// The output of commands.
    Output { list: Rc<List>, is_quoted: bool },
    /// What can't be told, and the commands that run to tell it.
    Unknown(Vec<Rc<List>>),
}

/// The tree of a line; `None` if it can't be understood.
pub(super) fn parse(text: &str) -> Option<List> {
    nested(text, 0)
}

fn nested(text: &str, depth: usize) -> Option<List> {
    if text.len() > LONGEST {
        return None;
    }
    let mut parser = Parser {
        text,
        at: 0,
        depth,
        body: None,
    };
    let list = parser.list()?;
    (parser.at >= text.len()).then_some(list)
}

/// A place in a text.
struct Parser<'a> {
    text: &'a str,
    /// In bytes, at the start of a character.
    at: usize,
    depth: usize,
    /// Where the line ends after which here-documents begin, and where they end.
    body: Option<(usize, usize)>,
}

impl<'a> Parser<'a> {
    /// What is left.
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn looks_at(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    /// Goes past this text if it is here.
    fn eat(&mut self, text: &str) -> bool {
        let is_here = self.looks_at(text);
        if is_here {
            self.at += text.len();
        }
        is_here
    }

    /// Goes past a new line, and past the here-documents that begin after it.
    fn new_line(&mut self) -> bool {
        let start = self.at;
        if !self.eat("\n") {
            return false;
        }
        if let Some((line, end)) = self.body
            && start >= line
        {
            self.at = self.at.max(end);
            self.body = None;
        }
        true
    }

    /// Goes past blanks, continued lines and a comment.
    fn blanks(&mut self) {
        loop {
            if self.looks_at(" ") || self.looks_at("\t") {
                self.at += 1;
            } else if !self.eat("\\\n") {
                break;
            }
        }
        if self.looks_at("#") {
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// Goes past blanks and new lines.
    fn lines(&mut self) {
        self.blanks();
        while self.new_line() {
            self.blanks();
        }
    }

    /// Reads something one level deeper.
    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= DEEPEST {
            return None;
        }
        self.depth += 1;
        let found = read(self);
        self.depth -= 1;
        found
    }
}

#[cfg(test)]
mod tests;
