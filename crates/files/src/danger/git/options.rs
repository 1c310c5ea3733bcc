//! The arguments of a git command: [`Options`].

use crate::danger::calls::Arg;

/// The arguments, in their kinds.
#[derive(Debug, Default)]
pub(super) struct Options {
    /// `-f` and `--force`; of an option with a value, its name. Short options that are joined are apart.
    flags: Vec<String>,
    values: Vec<(String, Arg)>,
    /// What is no option, before `--`.
    pub(super) words: Vec<Arg>,
    /// What comes after `--`.
    pub(super) paths: Option<Vec<Arg>>,
}

impl Options {
    /// Reads arguments, of which these take a value: the next word, or what follows `=` or the letter.
    pub(super) fn read(args: &[Arg], takes: &[&str]) -> Self {
        let mut options = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let text = match arg.text() {
                Some("--") => {
                    options.paths = Some(args.cloned().collect());
                    break;
                }
                Some(text) if text.len() > 1 && text.starts_with('-') => text,
                _ => {
                    options.words.push(arg.clone());
                    continue;
                }
            };
            if text.starts_with("--") {
                let (name, value) = match text.split_once('=') {
                    Some((name, value)) => (name, Some(Arg::Known(value.to_owned()))),
                    None => (text, None),
                };
                options.flags.push(name.to_owned());
                let value = value.or_else(|| {
                    let takes = takes.iter().any(|long| is_short_for(name, long));
                    takes.then(|| args.next().cloned())?
                });
                options
                    .values
                    .extend(value.map(|value| (name.to_owned(), value)));
                continue;
            }
            for (at, letter) in text.char_indices().skip(1) {
                let name = format!("-{letter}");
                let takes = takes.contains(&name.as_str());
                options.flags.push(name.clone());
                if takes {
                    let rest = text.get(at + letter.len_utf8()..).unwrap_or_default();
                    let value = if rest.is_empty() {
                        args.next().cloned()
                    } else {
                        Some(Arg::Known(rest.to_owned()))
                    };
                    options.values.extend(value.map(|value| (name, value)));
                    break;
                }
            }
        }
        options
    }

    /// Whether one of these was given.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        let given = |name: &&str| self.flags.iter().any(|flag| is_short_for(flag, name));
        names.iter().any(given)
    }

    /// How often this letter was given.
    pub(super) fn count(&self, names: &[&str]) -> usize {
        let is_it = |flag: &&String| names.iter().any(|name| is_short_for(flag, name));
        self.flags.iter().filter(is_it).count()
    }

    /// Which of these two was given last: `--autostash`, `--no-autostash`.
    pub(super) fn last_of(&self, yes: &[&str], no: &[&str]) -> Option<bool> {
        let is_it =
            |flag: &String, names: &[&str]| names.iter().any(|name| is_short_for(flag, name));
        let mut flags = self.flags.iter().rev();
        flags.find_map(|flag| match (is_it(flag, yes), is_it(flag, no)) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        })
    }

    /// The value of the last of these.
    pub(super) fn value(&self, names: &[&str]) -> Option<&Arg> {
        self.values_of(names).last()
    }

    /// All values of these.
    pub(super) fn values_of(&self, names: &[&str]) -> impl Iterator<Item = &Arg> {
        let is_it = |given: &str| names.iter().any(|name| is_short_for(given, name));
        let values = self.values.iter();
        values.filter_map(move |(name, value)| is_it(name).then_some(value))
    }

    /// Whether it asks the person about each change: then there is a person.
    pub(super) fn asks(&self) -> bool {
        self.has(&[
            "-p",
            "--patch",
            "-i",
            "--interactive",
            "--pathspec-from-file",
        ])
    }

    /// What follows the first word of the subcommand: all that is no option.
    pub(super) fn all(&self) -> Vec<Arg> {
        let paths = self.paths.iter().flatten();
        self.words.iter().chain(paths).cloned().collect()
    }
}

/// Options that are whole, although others begin like them.
const WHOLE: [&str; 4] = ["--edit", "--force", "--keep", "--stage"];

/// Whether this is the option, or as much of its name as git needs.
fn is_short_for(given: &str, name: &str) -> bool {
    let may_be_short = given.len() > 4 && given.starts_with("--") && !WHOLE.contains(&given);
    given == name || (may_be_short && name.starts_with(given))
}

/// Arguments that name paths, as pathspecs: `None` if none of them is known.
pub(super) fn pathspecs(args: &[Arg]) -> Option<Vec<String>> {
    let specs = args.iter().flat_map(|arg| match arg {
        Arg::Known(path) => vec![path.clone()],
        // The shell's `*` ends at a slash. What it finds may be a folder.
        Arg::Pattern(pattern) => {
            let pattern = pattern.trim_end_matches('/');
            vec![format!(":(glob){pattern}"), format!(":(glob){pattern}/**")]
        }
        Arg::Unknown => Vec::new(),
    });
    let specs: Vec<String> = specs.collect();
    (!specs.is_empty()).then_some(specs)
}
