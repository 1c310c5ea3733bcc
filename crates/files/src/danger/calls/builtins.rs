//! The commands of the shell itself that change its folder or variables, or run something.

use std::path::PathBuf;

use tenure_host::files::look;

use super::{Arg, Run, Shell, Walk};
use crate::danger::shell::LONGEST;

/// The shells whose `-c`, or whose input, is a line of commands.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "busybox"];

impl Walk<'_> {
    /// Walks a command that is no function, and returns what it prints, if that is known.
    pub(super) fn builtin(
        &mut self,
        name: &str,
        args: Vec<Arg>,
        run: Run,
        shell: &mut Shell,
    ) -> Option<String> {
        match name {
            ":" | "true" | "false" | "test" | "[" => {}
            "cd" => shell.go(self, &args),
            "pushd" => {
                let here = shell.folder.clone();
                shell.go(self, &args);
                shell.stack.push(here);
            }
            "popd" => {
                shell.before = shell.folder.take();
                shell.folder = shell.stack.pop().flatten();
            }
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                self.declare(name, &args, shell);
            }
            "unset" => {
                for name in args.iter().filter_map(Arg::text) {
                    shell.variables.remove(name);
                    shell.functions.remove(name);
                }
            }
            "read" | "mapfile" | "readarray" => {
                for name in args.iter().filter_map(Arg::text) {
                    shell.set(name, None);
                }
            }
            "eval" => {
                let line = joined(&args)?;
                self.script(&line, shell);
            }
            "trap" => {
                if let Some(line) = args.first().and_then(Arg::text) {
                    self.script(line, &mut shell.clone());
                }
            }
            "echo" => {
                let args = args.split_first_if(|arg| arg.text() == Some("-n"));
                return joined(args);
            }
            "cat" if args.is_empty() => return run.input,
            _ => {
                let program = name.rsplit('/').next().unwrap_or(name);
                if SHELLS.contains(&program) {
                    self.shell(program, args, run, shell);
                } else if !self.wrapper(program, &args, &run, shell) {
                    self.program(name, args, run, shell);
                }
            }
        }
        None
    }

    fn declare(&mut self, command: &str, args: &[Arg], shell: &mut Shell) {
        let mut is_exported = command == "export";
        for arg in args.iter().filter_map(Arg::text) {
            if let Some(flags) = arg.strip_prefix('-') {
                is_exported |= command != "export" && flags.contains('x');
                continue;
            }
            let (name, value) = match arg.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (arg, None),
            };
            if let Some(value) = value {
                shell.set(name, Some(value.to_owned()));
            }
            if is_exported {
                if value.is_none() {
                    let known = self.value(name, shell);
                    shell.set(name, known);
                }
                shell.export(name);
            }
        }
    }

    /// Walks what another shell runs: its `-c`, or what it reads.
    fn shell(&mut self, program: &str, mut args: Vec<Arg>, run: Run, shell: &Shell) {
        let mut inside = shell.clone();
        // It has what is exported, and nothing else.
        inside.variables.retain(|_, variable| variable.is_exported);
        inside.functions.clear();
        inside.parameters.clear();
        for (name, value) in run.variables {
            inside.set(&name, value);
            inside.export(&name);
        }
        if program == "busybox" {
            if !args.is_empty() {
                self.run(
                    args,
                    Run {
                        input: run.input,
                        ..Run::default()
                    },
                    &mut inside,
                );
            }
            return;
        }
        let mut has_line = false;
        while let Some(option) = args.first().and_then(Arg::text) {
            let Some(letters) = option.strip_prefix(['-', '+']) else {
                break;
            };
            let takes_word = ["o", "O", "-rcfile", "-init-file"].contains(&letters)
                || (!letters.starts_with('-') && letters.ends_with(['o', 'O']));
            let is_end = letters.is_empty() || letters == "-";
            has_line |= !letters.starts_with('-') && letters.contains('c');
            args.drain(..(1 + usize::from(takes_word)).min(args.len()));
            if is_end {
                break;
            }
        }
        if has_line {
            let Some(Arg::Known(line)) = args.first().cloned() else {
                return;
            };
            let name = args.get(1).and_then(Arg::text).unwrap_or(program);
            inside.set("0", Some(name.to_owned()));
            inside.parameters = args.into_iter().skip(2).collect();
            self.script(&line, &mut inside);
        } else if args.is_empty()
            && let Some(line) = run.input
        {
            self.script(&line, &mut inside);
        }
    }
}

impl Shell {
    /// `cd`: to a folder that is there now, or to one that is not known.
    fn go(&mut self, walk: &Walk<'_>, args: &[Arg]) {
        let is_option = |arg: &&Arg| {
            let text = arg.text().unwrap_or_default();
            text.len() > 1 && text.starts_with('-')
        };
        let to = args.iter().find(|arg| !is_option(arg));
        let to = match to {
            None => walk.value("HOME", self).map(PathBuf::from),
            Some(Arg::Known(to)) if to == "-" => self.before.clone(),
            Some(Arg::Known(to)) => Some(PathBuf::from(to)),
            Some(_) => None,
        };
        let path = to.and_then(|to| match &self.folder {
            _ if to.is_absolute() => Some(to),
            Some(folder) => Some(folder.join(to)),
            None => None,
        });
        let path = path.filter(|path| look::may_be_folder(path));
        self.before = std::mem::replace(&mut self.folder, path.map(|path| plain(&path)));
    }
}

/// The path without `.` and with `..` taken away, as the shell does it: without looking at links.
fn plain(path: &std::path::Path) -> PathBuf {
    use std::path::Component;
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// The words with blanks between them, if all are known.
pub(super) fn joined(args: &[Arg]) -> Option<String> {
    let words: Option<Vec<&str>> = args.iter().map(Arg::text).collect();
    let words = words?;
    let length: usize = words.iter().map(|word| word.len() + 1).sum();
    (length <= LONGEST).then(|| words.join(" "))
}

/// Leaves out the first one if it is such a one.
trait SplitFirstIf<T> {
    fn split_first_if(&self, is_it: impl Fn(&T) -> bool) -> &[T];
}

impl<T> SplitFirstIf<T> for Vec<T> {
    fn split_first_if(&self, is_it: impl Fn(&T) -> bool) -> &[T] {
        match self.split_first() {
            Some((first, rest)) if is_it(first) => rest,
            _ => self,
        }
    }
}
