//! What words stand for: variables, quotes, `~`, and the few commands whose output is known.

use std::path::{Path, PathBuf};

use tenure_git::{Environment, Git};

use super::{Arg, MOST_WORDS, Shell, Variable, Walk};
use crate::danger::shell::{LONGEST, List, Piece, What, Word};

/// What separates words in a value that is not quoted.
const BLANKS: [char; 3] = [' ', '\t', '\n'];

/// What makes a word a pattern for names of files.
const PATTERN: [char; 3] = ['*', '?', '['];

impl Shell {
    /// Sets a variable, and keeps whether it is exported.
    pub(super) fn set(&mut self, name: &str, value: Option<String>) {
        let is_exported = self.variables.get(name).is_some_and(|it| it.is_exported);
        let variable = Variable { value, is_exported };
        self.variables.insert(name.to_owned(), variable);
    }

    pub(super) fn export(&mut self, name: &str) {
        let variable = self.variables.entry(name.to_owned());
        let variable = variable.or_insert(Variable {
            value: None,
            is_exported: true,
        });
        variable.is_exported = true;
    }
}

/// A word that is being put together.
#[derive(Debug, Default)]
struct Field {
    text: String,
    /// The same with a backslash before what would mean something in a pattern.
    pattern: String,
    is_pattern: bool,
    is_unknown: bool,
    /// Whether it is a word although it is empty: it has quotes.
    is_there: bool,
}

impl Field {
    fn literal(&mut self, text: &str) {
        self.is_there = true;
        self.text.push_str(text);
        for c in text.chars() {
            if PATTERN.contains(&c) || c == '\\' {
                self.pattern.push('\\');
            }
            self.pattern.push(c);
        }
    }

    fn plain(&mut self, text: &str) {
        self.is_there |= !text.is_empty();
        self.is_pattern |= text.contains(PATTERN);
        // `{a,b}` is several words.
        self.is_unknown |= text.contains('{') && text.contains([',', '.']);
        self.text.push_str(text);
        self.pattern.push_str(text);
    }

    fn end(self, all: &mut Vec<Arg>) {
        if self.is_unknown || self.text.len() > LONGEST {
            all.push(Arg::Unknown);
        } else if self.is_pattern {
            all.push(Arg::Pattern(self.pattern));
        } else if self.is_there {
            all.push(Arg::Known(self.text));
        }
    }
}

impl Walk<'_> {
    /// The one text of a word, as in an assignment or a here-document: it is not split.
    pub(super) fn one(&mut self, word: &Word, shell: &mut Shell) -> Option<String> {
        let mut text = Some(String::new());
        for (number, piece) in word.0.iter().enumerate() {
            let part = match piece {
                Piece::Plain(plain) if number == 0 => self.tilde(plain, shell),
                Piece::Plain(part) | Piece::Quoted(part) => Some(part.clone()),
                Piece::Variable { name, .. } => self.value(name, shell),
                Piece::Output { list, .. } => self.output(list, shell),
                Piece::Unknown(lists) => {
                    for list in lists {
                        self.list(list, &mut shell.clone());
                    }
                    None
                }
            };
            text = text.zip(part).map(|(text, part)| text + &part);
            text = text.filter(|text| text.len() <= LONGEST);
        }
        text
    }

    /// The words that a word becomes.
    pub(super) fn words(&mut self, word: &Word, shell: &mut Shell) -> Vec<Arg> {
        let mut all = Vec::new();
        let mut field = Field::default();
        for (number, piece) in word.0.iter().enumerate() {
            let (value, is_quoted) = match piece {
                Piece::Plain(text) if number == 0 && text.starts_with('~') => {
                    match self.tilde(text, shell) {
                        Some(text) => field.literal(&text),
                        None => field.is_unknown = true,
                    }
                    continue;
                }
                Piece::Plain(text) => {
                    field.plain(text);
                    continue;
                }
                Piece::Quoted(text) => {
                    field.literal(text);
                    continue;
                }
                Piece::Variable { name, .. } if name == "@" || name == "*" => {
                    all.extend(shell.parameters.clone());
                    continue;
                }
                Piece::Variable { name, is_quoted } => (self.value(name, shell), *is_quoted),
                Piece::Output { list, is_quoted } => (self.output(list, shell), *is_quoted),
                Piece::Unknown(_) => {
                    self.one(&Word(vec![piece.clone()]), shell);
                    (None, true)
                }
            };
            match value {
                None => field.is_unknown = true,
                Some(value) if is_quoted => field.literal(&value),
                Some(value) => {
                    let mut parts = value.split(BLANKS);
                    field.plain(parts.next().unwrap_or_default());
                    for part in parts {
                        std::mem::take(&mut field).end(&mut all);
                        field.plain(part);
                    }
                }
            }
        }
        field.end(&mut all);
        if all.len() > MOST_WORDS {
            return vec![Arg::Unknown];
        }
        all
    }

    /// `~` and `~/path`.
    fn tilde(&self, text: &str, shell: &Shell) -> Option<String> {
        match text.strip_prefix('~') {
            None => Some(text.to_owned()),
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                Some(self.value("HOME", shell)? + rest)
            }
            // The home of another user.
            Some(_) => None,
        }
    }

    /// The value of a variable. One that nothing sets here may be set in the shell of the agent.
    pub(super) fn value(&self, name: &str, shell: &Shell) -> Option<String> {
        if let Some(variable) = shell.variables.get(name) {
            return variable.value.clone();
        }
        let path = |path: &Option<PathBuf>| path.as_deref()?.to_str().map(str::to_owned);
        match name {
            "PWD" => path(&shell.folder),
            "OLDPWD" => path(&shell.before),
            _ => match name.parse::<usize>().ok().and_then(|it| it.checked_sub(1)) {
                Some(number) => Some(shell.parameters.get(number)?.text()?.to_owned()),
                None => (self.place.variable)(name),
            },
        }
    }

    /// What commands print.
    fn output(&mut self, list: &List, shell: &Shell) -> Option<String> {
        let mut inside = shell.clone();
        let [step] = list.0.as_slice() else {
            self.list(list, &mut inside);
            return None;
        };
        let [command] = step.pipeline.as_slice() else {
            self.list(list, &mut inside);
            return None;
        };
        let printed = self.command(command, &mut inside, None);
        if let Some(printed) = printed {
            return Some(printed.trim_end_matches('\n').to_owned());
        }
        let What::Simple { words, .. } = &command.what else {
            return None;
        };
        let literal = |word: &Word| match word.0.as_slice() {
            [Piece::Plain(text)] => Some(text.clone()),
            _ => None,
        };
        let words: Option<Vec<String>> = words.iter().map(literal).collect();
        let words = words?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let folder = shell.folder.as_deref()?;
        match words.as_slice() {
            ["pwd"] => folder.to_str().map(str::to_owned),
            ["git", "rev-parse", "--show-toplevel"] => top(folder)?.to_str().map(str::to_owned),
            _ => None,
        }
    }
}

/// The top of the work tree that a folder is in.
fn top(folder: &Path) -> Option<PathBuf> {
    Git::at(folder, Environment::Alone).top().ok().flatten()
}
