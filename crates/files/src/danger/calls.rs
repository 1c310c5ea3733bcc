//! Which programs a line runs, in which folders: [`calls`].
//!
//! The tree of the line is walked once, as the shell would, with what is known: the folder, and the variables whose values
//! can be told. A value that can't be told makes every word unknown that it is in, and a folder that can't be told leaves
//! out all that runs in it.
//!
//! 1. Of several branches, all are walked, each from the same start. Where they leave the shell in different folders, the
//!    folder is not known any more.
//! 2. `cd` succeeds if the folder is there now. A folder that the line itself would make is not known.
//! 3. At most [`MOST`] commands are walked, at most [`DEEPEST`] deep, and no value is longer than a line may be.

mod builtins;
mod expand;
mod wrappers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::Place;
use super::shell::{self, Command, DEEPEST, Joint, List, What};

/// The most commands of a line that are looked at.
const MOST: usize = 1000;

/// The most values of a `for` that are tried one by one.
const MOST_VALUES: usize = 32;

/// The most words that a word becomes.
const MOST_WORDS: usize = 1000;

/// A word that a program gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Arg {
    Known(String),
    /// A pattern for names of files, which the shell expands; characters that mean themselves are escaped.
    Pattern(String),
    /// It can't be told, nor how many words it will be.
    Unknown,
}

impl Arg {
    /// The text, if it is known and no pattern.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text),
            _ => None,
        }
    }
}

/// A program that the line runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// The folder that it runs in.
    pub(super) folder: PathBuf,
    /// Its name, without a folder.
    pub(super) program: String,
    pub(super) args: Vec<Arg>,
    /// The variables of its environment that the line sets; without a value those that can't be told.
    pub(super) variables: BTreeMap<String, Option<String>>,
}

/// A variable of the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Variable {
    value: Option<String>,
    is_exported: bool,
}

/// What a shell knows at one point of the line.
#[derive(Debug, Clone, Default)]
struct Shell {
    folder: Option<PathBuf>,
    /// `$OLDPWD`.
    before: Option<PathBuf>,
    /// What `pushd` put away.
    stack: Vec<Option<PathBuf>>,
    variables: BTreeMap<String, Variable>,
    functions: BTreeMap<String, Rc<Command>>,
    /// `$1` and so on.
    parameters: Vec<Arg>,
}

impl Shell {
    /// What is true whichever of two ways the shell went.
    fn or(&mut self, other: &Self) {
        if self.folder != other.folder {
            self.folder = None;
        }
        for (name, variable) in &other.variables {
            let known = self.variables.entry(name.clone());
            let known = known.or_insert_with(|| Variable {
                value: None,
                is_exported: variable.is_exported,
            });
            if known.value != variable.value {
                known.value = None;
            }
        }
    }
}

/// The programs that a line runs which [`super::is_of_interest`] and whose folder is known.
pub(super) fn calls(line: &str, place: &Place<'_>) -> Vec<Call> {
    let mut walk = Walk {
        place,
        calls: Vec::new(),
        left: MOST,
        depth: 0,
    };
    let mut shell = Shell {
        folder: Some(place.folder.to_owned()),
        ..Shell::default()
    };
    walk.script(line, &mut shell);
    walk.calls
}

/// A walk through the tree of a line.
struct Walk<'a> {
    place: &'a Place<'a>,
    calls: Vec<Call>,
    /// How many more commands are walked.
    left: usize,
    depth: usize,
}

impl Walk<'_> {
    /// Walks a text as this shell runs it.
    fn script(&mut self, text: &str, shell: &mut Shell) {
        if self.depth < DEEPEST
            && let Some(list) = shell::parse(text)
        {
            self.depth += 1;
            self.list(&list, shell);
            self.depth -= 1;
        }
    }

    fn list(&mut self, list: &List, shell: &mut Shell) {
        for step in &list.0 {
            if self.left == 0 {
                return;
            }
            match step.pipeline.as_slice() {
                [only] if !step.is_async && step.joint != Joint::Or => {
                    self.command(only, shell, None);
                }
                // Each runs in a shell of its own; what follows `||` most often does not run at all.
                commands => {
                    let mut input = None;
                    for command in commands {
                        input = self.command(command, &mut shell.clone(), input);
                    }
                }
            }
        }
    }

    /// Walks a command that reads this text, and returns what it prints, if that is known.
    fn command(
        &mut self,
        command: &Command,
        shell: &mut Shell,
        input: Option<String>,
    ) -> Option<String> {
        if self.left == 0 || self.depth >= DEEPEST {
            return None;
        }
        self.left -= 1;
        self.depth += 1;
        let printed = self.what(command, shell, input);
        self.depth -= 1;
        printed
    }

    fn what(
        &mut self,
        command: &Command,
        shell: &mut Shell,
        input: Option<String>,
    ) -> Option<String> {
        let input = match &command.input {
            Some(word) => self.one(word, shell),
            None => input,
        };
        match &command.what {
            What::Simple { assignments, words } => {
                return self.simple(assignments, words, shell, input);
            }
            What::Group(list) => self.list(list, shell),
            What::Subshell(list) => self.list(list, &mut shell.clone()),
            What::Branches {
                conditions,
                branches,
            } => {
                for condition in conditions {
                    self.list(condition, shell);
                }
                // Or none of them.
                let start = shell.clone();
                for branch in branches {
                    let mut inside = start.clone();
                    self.list(branch, &mut inside);
                    shell.or(&inside);
                }
            }
            What::For { name, values, body } => {
                let values: Vec<Arg> = values
                    .iter()
                    .flat_map(|value| self.words(value, shell))
                    .collect();
                let start = shell.clone();
                for value in values.iter().take(MOST_VALUES) {
                    if self.left == 0 {
                        break;
                    }
                    shell.set(name, value.text().map(str::to_owned));
                    self.list(body, shell);
                }
                if values.is_empty() {
                    let mut inside = start.clone();
                    inside.set(name, None);
                    self.list(body, &mut inside);
                    shell.or(&inside);
                }
            }
            What::Function(name, body) => {
                shell.functions.insert(name.clone(), Rc::clone(body));
            }
        }
        None
    }

    fn simple(
        &mut self,
        assignments: &[(String, shell::Word)],
        words: &[shell::Word],
        shell: &mut Shell,
        input: Option<String>,
    ) -> Option<String> {
        let mut given = Vec::new();
        for (name, word) in assignments {
            let value = self.one(word, shell);
            match name.strip_suffix('+') {
                Some(name) => given.push((name.to_owned(), None)),
                None => given.push((name.clone(), value)),
            }
        }
        let args: Vec<Arg> = words
            .iter()
            .flat_map(|word| self.words(word, shell))
            .collect();
        if args.is_empty() {
            for (name, value) in given {
                shell.set(&name, value);
            }
            return None;
        }
        let run = Run {
            variables: given.into_iter().collect(),
            input,
        };
        self.run(args, run, shell)
    }

    /// Walks what a simple command runs.
    fn run(&mut self, mut args: Vec<Arg>, run: Run, shell: &mut Shell) -> Option<String> {
        if self.left == 0 || self.depth >= DEEPEST {
            return None;
        }
        self.left -= 1;
        let name = args.first()?.text()?.to_owned();
        args.remove(0);
        if let Some(body) = shell.functions.get(&name).cloned() {
            let around = std::mem::replace(&mut shell.parameters, args);
            let printed = self.command(&body, shell, run.input);
            shell.parameters = around;
            return printed;
        }
        self.depth += 1;
        let printed = self.builtin(&name, args, run, shell);
        self.depth -= 1;
        printed
    }

    /// Notes a program.
    fn program(&mut self, name: &str, args: Vec<Arg>, run: Run, shell: &Shell) {
        let program = Path::new(name).file_name().and_then(|name| name.to_str());
        let program = program.unwrap_or_default().to_owned();
        let Some(folder) = shell
            .folder
            .clone()
            .filter(|_| super::is_of_interest(&program))
        else {
            return;
        };
        let exported = shell.variables.iter().filter(|(_, it)| it.is_exported);
        let exported = exported.map(|(name, it)| (name.clone(), it.value.clone()));
        let mut variables: BTreeMap<_, _> = exported.collect();
        variables.extend(run.variables);
        self.calls.push(Call {
            folder,
            program,
            args,
            variables,
        });
    }
}

/// How a simple command is run.
#[derive(Debug, Clone, Default)]
struct Run {
    /// What stands before it, `A=b`, or after `env`.
    variables: BTreeMap<String, Option<String>>,
    /// What it reads.
    input: Option<String>,
}

#[cfg(test)]
mod tests;
