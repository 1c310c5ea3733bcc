//! Programs that run the program that their arguments name.

use std::path::PathBuf;

use tenure_host::files::look;

use super::builtins::joined;
use super::{Arg, Run, Shell, Walk};

/// How a program names the one that it runs.
struct Wrapper {
    name: &'static str,
    /// The options with a value, which may be the next word.
    takes: &'static [&'static str],
    /// How many words come before the program.
    words: usize,
    /// The options with which it runs nothing.
    nothing: &'static [&'static str],
}

const fn wrapper(name: &'static str, takes: &'static [&'static str]) -> Wrapper {
    Wrapper {
        name,
        takes,
        words: 0,
        nothing: &[],
    }
}

const WRAPPERS: &[Wrapper] = &[
    wrapper("env", &["-u", "--unset", "-C", "--chdir", "-a", "--argv0"]),
    wrapper(
        "sudo",
        &[
            "-u", "--user", "-g", "--group", "-h", "--host", "-p", "--prompt", "-C", "-T", "-r",
            "-t", "-D", "--chdir", "-R", "-U",
        ],
    ),
    wrapper("doas", &["-u", "-C"]),
    wrapper("nice", &["-n", "--adjustment"]),
    wrapper("ionice", &["-c", "-n", "--class", "--classdata"]),
    wrapper("nohup", &[]),
    wrapper("setsid", &[]),
    wrapper(
        "stdbuf",
        &["-i", "-o", "-e", "--input", "--output", "--error"],
    ),
    wrapper("time", &["-f", "--format", "-o", "--output"]),
    Wrapper {
        words: 1,
        ..wrapper("timeout", &["-k", "--kill-after", "-s", "--signal"])
    },
    Wrapper {
        nothing: &["-v", "-V"],
        ..wrapper("command", &[])
    },
    wrapper("builtin", &[]),
    wrapper("exec", &["-a"]),
    wrapper(
        "xargs",
        &[
            "-I",
            "-n",
            "-P",
            "-L",
            "-s",
            "-d",
            "-E",
            "-a",
            "--max-args",
            "--max-procs",
        ],
    ),
    Wrapper {
        words: 1,
        ..wrapper("flock", &["-w", "--wait", "--timeout", "-E"])
    },
    wrapper("unbuffer", &[]),
    wrapper("caffeinate", &["-t", "-w"]),
];

impl Walk<'_> {
    /// Walks what this program runs; `false` if it is no wrapper.
    pub(super) fn wrapper(
        &mut self,
        program: &str,
        args: &[Arg],
        run: &Run,
        shell: &mut Shell,
    ) -> bool {
        if program == "tenure" {
            self.tenure(args, run, shell);
            return true;
        }
        let Some(wrapper) = WRAPPERS.iter().find(|it| it.name == program) else {
            return false;
        };
        let mut run = run.clone();
        let mut inside = shell.clone();
        let mut rest = args.iter();
        let mut words = wrapper.words;
        let mut inner = Vec::new();
        while let Some(arg) = rest.next() {
            let text = arg.text().unwrap_or_default();
            let (name, value) = match text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value)),
                _ => (text, None),
            };
            if name.starts_with('-') && name.len() > 1 {
                if name == "--" {
                    continue;
                }
                if wrapper.nothing.contains(&name) {
                    return true;
                }
                let value = match value {
                    None if wrapper.takes.contains(&name) => rest.next().cloned(),
                    Some(value) => Some(Arg::Known(value.to_owned())),
                    None => None,
                };
                let is_folder = matches!(
                    (program, name),
                    ("env", "-C" | "--chdir") | ("sudo", "-D" | "--chdir")
                );
                if is_folder {
                    inside.folder = folder(&inside, value.as_ref());
                }
                if program == "env" && name.starts_with("-S") {
                    let line = name.strip_prefix("-S").filter(|line| !line.is_empty());
                    let line = line.map(|line| Arg::Known(line.to_owned()));
                    inner.extend(line.or_else(|| rest.next().cloned()));
                    inner.extend(rest.cloned());
                    if let Some(line) = joined(&inner) {
                        self.script(&line, &mut inside);
                    }
                    return true;
                }
                // `flock file -c line`
                if program == "flock"
                    && name == "-c"
                    && let Some(line) = rest.next().and_then(Arg::text)
                {
                    self.script(line, &mut inside);
                    return true;
                }
            } else if let Some((name, value)) = assignment(program, text) {
                run.variables.insert(name, Some(value));
            } else if words > 0 {
                words -= 1;
            } else {
                inner.push(arg.clone());
                inner.extend(rest.cloned());
                break;
            }
        }
        if program == "flock" && inner.first().and_then(Arg::text) == Some("-c") {
            if let Some(line) = inner.get(1).and_then(Arg::text) {
                self.script(line, &mut inside);
            }
            return true;
        }
        if program == "xargs" {
            // The words that it reads.
            inner.push(Arg::Unknown);
        }
        if !inner.is_empty() {
            self.run(inner, run, &mut inside);
        }
        true
    }

    /// `tenure run KEY -- command`, `tenure tasks work -- command`, or `-c line`.
    fn tenure(&mut self, args: &[Arg], run: &Run, shell: &Shell) {
        let is = |text: &'static str| move |arg: &Arg| arg.text() == Some(text);
        let mut inside = shell.clone();
        if let Some(at) = args.iter().position(is("--")) {
            let inner: Vec<Arg> = args.iter().skip(at + 1).cloned().collect();
            if !inner.is_empty() {
                self.run(inner, run.clone(), &mut inside);
            }
        } else if let Some(at) = args.iter().position(is("-c"))
            && let Some(line) = args.get(at + 1).and_then(Arg::text)
        {
            self.script(line, &mut inside);
        }
    }
}

/// `NAME=value`, as `env` and `sudo` take it.
fn assignment(program: &str, text: &str) -> Option<(String, String)> {
    let takes_them = ["env", "sudo", "doas"].contains(&program);
    let (name, value) = text.split_once('=').filter(|_| takes_them)?;
    Some((name.to_owned(), value.to_owned()))
}

/// A folder that an option names.
fn folder(shell: &Shell, value: Option<&Arg>) -> Option<PathBuf> {
    let path = shell.folder.as_ref()?.join(value?.text()?);
    Some(path).filter(|path| look::may_be_folder(path))
}
