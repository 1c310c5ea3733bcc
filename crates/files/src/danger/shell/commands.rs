//! Lists, pipelines and commands.

use std::rc::Rc;

use super::{Command, Joint, List, Parser, Step, What, Word};

/// The words that end a list where a command could begin.
const ENDS: [&str; 8] = ["}", "fi", "done", "esac", "then", "else", "elif", "do"];

/// The operators that redirect, each before those that it begins with.
const REDIRECTIONS: [&str; 12] = [
    "&>>", "<<<", "<<-", "&>", "<<", "<>", "<&", ">>", ">&", ">|", "<", ">",
];

impl Parser<'_> {
    /// Commands up to the end, or to what can't begin one.
    pub(super) fn list(&mut self) -> Option<List> {
        self.deeper(|parser| {
            let mut steps: Vec<Step> = Vec::new();
            let mut joint = Joint::Always;
            loop {
                parser.lines();
                if parser.ends_list() {
                    // Something must follow `&&`.
                    return (joint == Joint::Always).then_some(List(steps));
                }
                let pipeline = parser.pipeline()?;
                steps.push(Step {
                    joint,
                    pipeline,
                    is_async: false,
                });
                parser.blanks();
                joint = if parser.eat("&&") {
                    Joint::And
                } else if parser.eat("||") {
                    Joint::Or
                } else {
                    Joint::Always
                };
                if joint == Joint::Always {
                    let ends_case = parser.looks_at(";;") || parser.looks_at(";&");
                    if parser.eat("&") {
                        // All of `a && b &` runs in the background.
                        for step in steps.iter_mut().rev() {
                            step.is_async = true;
                            if step.joint == Joint::Always {
                                break;
                            }
                        }
                    } else if ends_case || !(parser.eat(";") || parser.looks_at("\n")) {
                        return Some(List(steps));
                    }
                }
            }
        })
    }

    fn ends_list(&self) -> bool {
        let ends = [")", ";;", ";&"];
        self.rest().is_empty()
            || ends.iter().any(|end| self.looks_at(end))
            || self.reserved().is_some_and(|word| ENDS.contains(&word))
    }

    /// The unquoted word that is here, if a reserved word could be it.
    fn reserved(&self) -> Option<&str> {
        let rest = self.rest();
        let ends = |c: char| c.is_ascii_whitespace() || ";&|()<>".contains(c);
        let word = rest.get(..rest.find(ends).unwrap_or(rest.len()))?;
        (!word.is_empty()).then_some(word)
    }

    /// Goes past a reserved word.
    fn word_is(&mut self, word: &str) -> bool {
        self.reserved() == Some(word) && self.eat(word)
    }

    fn pipeline(&mut self) -> Option<Vec<Command>> {
        let mut commands = Vec::new();
        loop {
            self.blanks();
            while ["!", "coproc", "time"]
                .iter()
                .any(|word| self.word_is(word))
            {
                self.blanks();
                if self.word_is("-p") {
                    self.blanks();
                }
            }
            commands.push(self.command()?);
            self.blanks();
            let goes_on = !self.looks_at("||") && (self.eat("|&") || self.eat("|"));
            if !goes_on {
                return Some(commands);
            }
            self.lines();
        }
    }

    fn command(&mut self) -> Option<Command> {
        let compound = self.deeper(Self::compound)?;
        let Some(what) = compound else {
            return self.simple();
        };
        let mut input = None;
        self.blanks();
        while let Some(found) = self.redirection() {
            input = found?.or(input);
            self.blanks();
        }
        Some(Command { what, input })
    }

    /// A command with a structure; the inner `None` if here is none.
    #[expect(clippy::option_option, reason = "the outer one is a mistake")]
    fn compound(&mut self) -> Option<Option<What>> {
        if self.looks_at("((") {
            let start = self.at;
            if self.arithmetic("((") {
                return Some(Some(nothing()));
            }
            self.at = start;
        }
        if self.eat("(") {
            let list = self.list()?;
            return self.eat(")").then_some(Some(What::Subshell(list)));
        }
        let word = self.reserved().unwrap_or_default().to_owned();
        let what = match word.as_str() {
            "{" => {
                self.eat("{");
                let list = self.list()?;
                self.word_is("}").then_some(What::Group(list))?
            }
            "if" => self.conditional()?,
            "while" | "until" => {
                self.eat(&word);
                let condition = self.list()?;
                let body = self.body()?;
                What::Branches {
                    conditions: vec![condition],
                    branches: vec![body],
                }
            }
            "for" | "select" => {
                self.eat(&word);
                self.loop_over()?
            }
            "case" => self.case()?,
            "[[" => {
                self.eat("[[");
                self.test()?
            }
            "function" => {
                self.eat("function");
                self.blanks();
                let name = self.plain_word()?;
                self.blanks();
                if self.eat("(") {
                    self.blanks();
                    self.eat(")").then_some(())?;
                }
                self.function(name)?
            }
            _ => match self.function_name() {
                Some(name) => self.function(name)?,
                None => return Some(None),
            },
        };
        Some(Some(what))
    }

    /// Goes past `name()`. It looks ahead without reading what the name may contain: to read that twice would take twice as
    /// long for each depth.
    fn function_name(&mut self) -> Option<String> {
        let word = self.reserved()?;
        let is_plain = !word.contains(['$', '`', '"', '\'', '\\', '=']);
        let (name, start) = (word.to_owned(), self.at);
        self.at += name.len();
        self.blanks();
        if is_plain && self.eat("(") {
            self.blanks();
            if self.eat(")") {
                return Some(name);
            }
        }
        self.at = start;
        None
    }

    fn function(&mut self, name: String) -> Option<What> {
        self.lines();
        let body = self.command()?;
        Some(What::Function(name, Rc::new(body)))
    }

    fn conditional(&mut self) -> Option<What> {
        let (mut conditions, mut branches) = (Vec::new(), Vec::new());
        self.eat("if");
        loop {
            conditions.push(self.list()?);
            self.word_is("then").then_some(())?;
            branches.push(self.list()?);
            if self.word_is("elif") {
                continue;
            }
            if self.word_is("else") {
                branches.push(self.list()?);
            }
            self.word_is("fi").then_some(())?;
            return Some(What::Branches {
                conditions,
                branches,
            });
        }
    }

    /// `do ... done`
    fn body(&mut self) -> Option<List> {
        self.lines();
        self.word_is("do").then_some(())?;
        let body = self.list()?;
        self.word_is("done").then_some(body)
    }

    fn loop_over(&mut self) -> Option<What> {
        self.blanks();
        if self.looks_at("((") {
            self.arithmetic("((").then_some(())?;
            self.blanks();
            self.eat(";");
            return Some(What::Branches {
                conditions: Vec::new(),
                branches: vec![self.body()?],
            });
        }
        let name = self.plain_word()?;
        self.lines();
        let mut values = Vec::new();
        if self.word_is("in") {
            self.blanks();
            while let Some(word) = self.word()? {
                values.push(word);
                self.blanks();
            }
        }
        self.eat(";");
        let body = self.body()?;
        Some(What::For { name, values, body })
    }

    fn case(&mut self) -> Option<What> {
        self.eat("case");
        self.blanks();
        let value = self.word()??;
        self.lines();
        self.word_is("in").then_some(())?;
        let mut branches = Vec::new();
        loop {
            self.lines();
            if self.word_is("esac") {
                break;
            }
            self.eat("(");
            loop {
                self.blanks();
                self.word()??;
                self.blanks();
                if !self.eat("|") {
                    break;
                }
            }
            self.eat(")").then_some(())?;
            branches.push(self.list()?);
            let ends = [";;&", ";;", ";&"];
            if !ends.iter().any(|end| self.eat(end)) {
                self.lines();
                self.word_is("esac").then_some(())?;
                break;
            }
        }
        // The word may run something.
        let value = Step {
            joint: Joint::Always,
            pipeline: vec![simple(vec![word_that_does_nothing(), value])],
            is_async: false,
        };
        Some(What::Branches {
            conditions: vec![List(vec![value])],
            branches,
        })
    }

    /// The words of `[[ ... ]]`, whose operators mean nothing here.
    fn test(&mut self) -> Option<What> {
        let mut words = vec![word_that_does_nothing()];
        loop {
            self.lines();
            if self.word_is("]]") {
                let assignments = Vec::new();
                return Some(What::Simple { assignments, words });
            }
            match self.word()? {
                Some(word) => words.push(word),
                None => {
                    self.next()?;
                }
            }
        }
    }

    fn simple(&mut self) -> Option<Command> {
        let (mut assignments, mut words, mut input) = (Vec::new(), Vec::new(), None);
        let mut redirects = false;
        loop {
            self.blanks();
            if let Some(found) = self.redirection() {
                redirects = true;
                input = found?.or(input);
                continue;
            }
            if words.is_empty()
                && let Some(name) = self.assigned()
            {
                assignments.push((name, self.value()?));
                continue;
            }
            match self.word()? {
                Some(word) => words.push(word),
                None => break,
            }
        }
        // An operator out of place is no command.
        let is_empty = assignments.is_empty() && words.is_empty() && !redirects;
        (!is_empty).then_some(())?;
        let what = What::Simple { assignments, words };
        Some(Command { what, input })
    }

    /// Goes past `name=`, `name+=` or `name[...]=`.
    fn assigned(&mut self) -> Option<String> {
        let rest = self.rest();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = rest.find(|c| !is_name(c))?;
        let name = rest.get(..end)?;
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let after = rest.get(end..)?;
        let operator = ["=", "+="].into_iter().find(|it| after.starts_with(it))?;
        self.at += end + operator.len();
        // What is appended to is not known.
        Some(if operator == "=" {
            name.to_owned()
        } else {
            format!("{name}+")
        })
    }

    /// The value of an assignment: a word, nothing, or a list in parentheses.
    fn value(&mut self) -> Option<Word> {
        if !self.eat("(") {
            return self.word().map(Option::unwrap_or_default);
        }
        let mut pieces = Vec::new();
        loop {
            self.lines();
            match self.word()? {
                Some(word) => pieces.extend(word.0),
                None if self.eat(")") => break,
                None => return None,
            }
        }
        // Of an array, only the commands in it are of interest.
        pieces.push(super::Piece::Unknown(Vec::new()));
        Some(Word(pieces))
    }

    /// A redirection, and what it lets the command read; `None` if here is none.
    #[expect(clippy::option_option, reason = "a mistake, nothing to read, a text")]
    fn redirection(&mut self) -> Option<Option<Option<Word>>> {
        let start = self.at;
        let digits = self.rest().find(|c: char| !c.is_ascii_digit());
        self.at += digits.unwrap_or(0);
        let here = REDIRECTIONS.iter().find(|it| self.looks_at(it));
        let is_process = self.looks_at("<(") || self.looks_at(">(");
        let Some(operator) = here.filter(|_| !is_process) else {
            self.at = start;
            return None;
        };
        self.eat(operator);
        self.blanks();
        Some(match *operator {
            "<<" | "<<-" => self.here_document(*operator == "<<-").map(Some),
            "<<<" => self.word(),
            _ => match self.word() {
                Some(Some(_)) => Some(None),
                _ => None,
            },
        })
    }
}

/// A command that does nothing.
fn nothing() -> What {
    What::Simple {
        assignments: Vec::new(),
        words: vec![word_that_does_nothing()],
    }
}

fn word_that_does_nothing() -> Word {
    Word(vec![super::Piece::Plain(":".to_owned())])
}

fn simple(words: Vec<Word>) -> Command {
    Command {
        what: What::Simple {
            assignments: Vec::new(),
            words,
        },
        input: None,
    }
}
