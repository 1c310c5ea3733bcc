//! Words: quotes, escapes, expansions, and the here-documents that read like them.

use std::rc::Rc;

use super::{List, Parser, Piece, Word, nested};

/// What ends an unquoted word.
const ENDS: &str = " \t\n;&|()<>";

impl Parser<'_> {
    /// The word that is here; the inner `None` if there is none.
    #[expect(clippy::option_option, reason = "the outer one is a mistake")]
    pub(super) fn word(&mut self) -> Option<Option<Word>> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        while let Some(c) = self.peek() {
            if (c == '<' || c == '>') && pieces.is_empty() && plain.is_empty() {
                let is_process = self.looks_at("<(") || self.looks_at(">(");
                if !is_process {
                    break;
                }
                self.at += 2;
                let list = self.list()?;
                self.eat(")").then_some(())?;
                pieces.push(Piece::Unknown(vec![Rc::new(list)]));
                continue;
            }
            if c == '(' && plain.ends_with(['?', '*', '+', '@', '!']) {
                // A pattern such as `!(a|b)`.
                self.balanced('(', ')')?;
                pieces.push(Piece::Unknown(Vec::new()));
                continue;
            }
            if ENDS.contains(c) {
                break;
            }
            if self.eat("\\\n") {
                continue;
            }
            if !"'\"\\$`".contains(c) {
                plain.push(c);
                self.next();
                continue;
            }
            if !plain.is_empty() {
                pieces.push(Piece::Plain(std::mem::take(&mut plain)));
            }
            pieces.extend(self.special()?);
        }
        if !plain.is_empty() {
            pieces.push(Piece::Plain(plain));
        }
        Some((!pieces.is_empty()).then_some(Word(pieces)))
    }

    /// A word without quotes and expansions.
    pub(super) fn plain_word(&mut self) -> Option<String> {
        match self.word()??.0.as_slice() {
            [Piece::Plain(text)] => Some(text.clone()),
            _ => None,
        }
    }

    /// What begins with a quote, a backslash, `$` or a backtick.
    fn special(&mut self) -> Option<Vec<Piece>> {
        Some(match self.next()? {
            '\'' => vec![Piece::Quoted(self.up_to('\'')?)],
            '"' => self.double_quoted()?,
            '\\' => vec![Piece::Quoted(
                self.next().map(String::from).unwrap_or_default(),
            )],
            '`' => vec![self.backticks(false)?],
            _ if self.eat("'") => vec![self.c_quoted()?],
            _ if self.eat("\"") => self.double_quoted()?,
            _ => vec![self.expansion(false)?],
        })
    }

    /// The text before this character, which is passed.
    fn up_to(&mut self, end: char) -> Option<String> {
        let text = self.rest().split_once(end)?.0;
        self.at += text.len() + end.len_utf8();
        Some(text.to_owned())
    }

    /// The rest of a text in double quotes. It is one piece at least.
    fn double_quoted(&mut self) -> Option<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut text = String::new();
        loop {
            match self.next()? {
                '"' => break,
                c => self.inside_quotes(c, &mut text, &mut pieces)?,
            }
        }
        if !text.is_empty() || pieces.is_empty() {
            pieces.push(Piece::Quoted(text));
        }
        Some(pieces)
    }

    /// A character in double quotes or in a here-document, which was passed.
    fn inside_quotes(&mut self, c: char, text: &mut String, pieces: &mut Vec<Piece>) -> Option<()> {
        let piece = match c {
            '\\' => {
                match self.peek() {
                    Some('\n') => {}
                    Some(escaped) if "\"\\$`".contains(escaped) => text.push(escaped),
                    _ => {
                        text.push('\\');
                        return Some(());
                    }
                }
                self.next();
                return Some(());
            }
            '`' => self.backticks(true)?,
            '$' => self.expansion(true)?,
            c => {
                text.push(c);
                return Some(());
            }
        };
        match piece {
            // A `$` that means itself.
            Piece::Quoted(more) => text.push_str(&more),
            piece => {
                if !text.is_empty() {
                    pieces.push(Piece::Quoted(std::mem::take(text)));
                }
                pieces.push(piece);
            }
        }
        Some(())
    }

    /// The rest of `$'...'`.
    fn c_quoted(&mut self) -> Option<Piece> {
        let mut text = String::new();
        loop {
            match self.next()? {
                '\'' => return Some(Piece::Quoted(text)),
                '\\' => match self.next()? {
                    'n' => text.push('\n'),
                    't' => text.push('\t'),
                    // A character by its number.
                    c if c.is_ascii_digit() || "xuUcabefrv".contains(c) => {
                        while !matches!(self.next()?, '\'') {}
                        return Some(Piece::Unknown(Vec::new()));
                    }
                    c => text.push(c),
                },
                c => text.push(c),
            }
        }
    }

    /// The rest of a command in backticks.
    fn backticks(&mut self, is_quoted: bool) -> Option<Piece> {
        let mut code = String::new();
        loop {
            match self.next()? {
                '`' => break,
                '\\' => match self.next()? {
                    c if "`\\$".contains(c) || (is_quoted && c == '"') => code.push(c),
                    c => code.extend(['\\', c]),
                },
                c => code.push(c),
            }
        }
        let depth = self.depth + 1;
        let list = Rc::new(nested(&code, depth)?);
        Some(Piece::Output { list, is_quoted })
    }

    /// What follows a `$`.
    fn expansion(&mut self, is_quoted: bool) -> Option<Piece> {
        if self.looks_at("((") {
            let start = self.at;
            if self.arithmetic("((") {
                return Some(Piece::Unknown(Vec::new()));
            }
            self.at = start;
        }
        if self.eat("(") {
            let list = Rc::new(self.list()?);
            self.lines();
            self.eat(")").then_some(())?;
            return Some(Piece::Output { list, is_quoted });
        }
        if self.eat("[") {
            self.balanced('[', ']')?;
            return Some(Piece::Unknown(Vec::new()));
        }
        if self.eat("{") {
            return self.deeper(|parser| parser.parameter(is_quoted));
        }
        let rest = self.rest();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = match rest.chars().next() {
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => 1,
            _ => rest.find(|c| !is_name(c)).unwrap_or(rest.len()),
        };
        let name = rest.get(..length)?.to_owned();
        self.at += length;
        Some(if name.is_empty() {
            Piece::Quoted("$".to_owned())
        } else {
            Piece::Variable { name, is_quoted }
        })
    }

    /// The rest of `${...}`.
    fn parameter(&mut self, is_quoted: bool) -> Option<Piece> {
        if let Some((name, _)) = self.rest().split_once('}') {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "_@*".contains(c);
            if !name.is_empty() && name.chars().all(is_name) {
                let name = name.to_owned();
                self.at += name.len() + 1;
                return Some(Piece::Variable { name, is_quoted });
            }
        }
        // The commands in what follows an operator.
        let (mut pieces, mut text) = (Vec::new(), String::new());
        loop {
            match self.next()? {
                '}' => break,
                '"' => pieces.extend(self.double_quoted()?),
                '\'' if !is_quoted => {
                    self.up_to('\'')?;
                }
                c => self.inside_quotes(c, &mut text, &mut pieces)?,
            }
        }
        Some(Piece::Unknown(lists(&pieces).collect()))
    }

    /// Goes past an arithmetic expression; `false` if this is none.
    pub(super) fn arithmetic(&mut self, start: &str) -> bool {
        self.eat(start);
        let mut open = 0_usize;
        while let Some(c) = self.next() {
            match c {
                '(' => open += 1,
                ')' if open > 0 => open -= 1,
                ')' => return self.eat(")"),
                _ => {}
            }
        }
        false
    }

    /// Goes past what is between two characters, the first of which may be here or was passed.
    fn balanced(&mut self, start: char, end: char) -> Option<()> {
        let mut open = usize::from(self.peek() != Some(start));
        loop {
            let c = self.next()?;
            if c == start {
                open += 1;
            } else if c == end {
                open -= 1;
                if open == 0 {
                    return Some(());
                }
            }
        }
    }

    /// The here-document whose mark follows. It begins on the next line, or after the one before it.
    pub(super) fn here_document(&mut self, strips_tabs: bool) -> Option<Word> {
        let mark = self.word()??;
        let is_plain = |piece: &Piece| matches!(piece, Piece::Plain(_));
        let is_literal = !mark.0.iter().all(is_plain);
        let mark: String = mark.0.iter().filter_map(text_of).collect();
        let (line, start) = self.body.unwrap_or_else(|| {
            let line = self.at + self.rest().find('\n').unwrap_or(self.rest().len());
            (line, (line + 1).min(self.text.len()))
        });
        let mut text = String::new();
        let mut end = start;
        // One without an end goes on to the end of the text.
        for whole in self.text.get(start..)?.split_inclusive('\n') {
            end += whole.len();
            let line = if strips_tabs {
                whole.trim_start_matches('\t')
            } else {
                whole
            };
            if line.strip_suffix('\n').unwrap_or(line) == mark {
                break;
            }
            text.push_str(line);
        }
        self.body = Some((line, end));
        if is_literal {
            return Some(Word(vec![Piece::Quoted(text)]));
        }
        let mut inner = Parser {
            text: &text,
            at: 0,
            depth: self.depth + 1,
            body: None,
        };
        let (mut pieces, mut plain) = (Vec::new(), String::new());
        while let Some(c) = inner.next() {
            inner.inside_quotes(c, &mut plain, &mut pieces)?;
        }
        pieces.push(Piece::Quoted(plain));
        Some(Word(pieces))
    }
}

/// The text of a piece that has one.
fn text_of(piece: &Piece) -> Option<&str> {
    match piece {
        Piece::Plain(text) | Piece::Quoted(text) => Some(text),
        _ => None,
    }
}

/// The commands in these pieces.
fn lists(pieces: &[Piece]) -> impl Iterator<Item = Rc<List>> {
    pieces.iter().flat_map(|piece| match piece {
        Piece::Output { list, .. } => vec![Rc::clone(list)],
        Piece::Unknown(lists) => lists.clone(),
        _ => Vec::new(),
    })
}
