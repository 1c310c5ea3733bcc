//! Help pages, and advice on a command line that the parser refuses.
//!
//! 1. A page is made only when it is asked for: the parser's own tree has no groups.
//! 2. `-h` names the global options on one line; `--help` and `tenure help` explain them.

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::num::ParseIntError;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory};

use crate::args::{Args, typed};
use crate::fit;
use crate::words;

/// The commands by what a person wants.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Everyday",
        &["run", "acquire", "release", "ask", "force", "status"],
    ),
    (
        "Files",
        &["reserve", "unreserve", "reservations", "check", "guard"],
    ),
    ("Tasks", &["tasks", "sync"]),
    ("Looking", &["why", "watch", "locks", "timeline", "doctor"]),
    ("Other tools' locks", &["exclusive", "ledger", "board"]),
    ("Setting up", &["init", "setup", "daemon"]),
];

/// The other commands: `tenure help --all` shows them. One that is not named here is listed under "More".
const MORE: [(&str, &[&str]); 3] = [
    ("Coding agents", &["allow", "files"]),
    (
        "For scripts and other programs",
        &[
            "renew",
            "fence",
            "hook",
            "shell-lib",
            "completions",
            "complete",
            "man",
        ],
    ),
    (
        "Settings, stores and sections",
        &["config", "store", "sections"],
    ),
];

/// The columns of a help page.
const WIDTH: usize = 80;

/// Which commands the page of tenure itself shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Everyday,
    All,
}

/// How much of the global options a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Globals {
    /// Their names, on one line.
    Named,
    /// Each with its description.
    Explained,
}

/// A page for `tenure help ...` or the version for `tenure version`, if the words ask for it.
pub(crate) fn asked(words: &[OsString]) -> Option<Result<StyledStr, String>> {
    let at = typed::command(words)?;
    let rest = words.get(at + 1..).unwrap_or_default();
    let mut path = match words.get(at)?.to_str()? {
        "version" if rest.is_empty() => return Some(Ok(Args::command().render_version().into())),
        "help" => rest.to_vec(),
        // `tenure locks help list`; but `run help` is about a key.
        name if rest.first().is_some_and(|word| word == "help") => {
            let tree = tree(Globals::Explained);
            tree.find_subcommand(name)?
                .has_subcommands()
                .then_some(())?;
            [&[name.into()], rest.get(1..).unwrap_or_default()].concat()
        }
        _ => return None,
    };
    let scope = if path.iter().any(|word| word == "--all") {
        Scope::All
    } else {
        Scope::Everyday
    };
    path.retain(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let tree = tree(Globals::Explained);
    let (command, unknown) = named(&tree, &path);
    Some(match unknown {
        Some(unknown) => Err(no_command(command, unknown, None)),
        None => Ok(page(command, Globals::Explained, scope)),
    })
}

/// The page for a command line that ends with `-h` or `--help`, or names no command.
pub(crate) fn page_for(words: &[OsString]) -> StyledStr {
    let before = words.iter().take_while(|word| *word != "--");
    let globals = if before.clone().any(|word| word == "--help") {
        Globals::Explained
    } else {
        Globals::Named
    };
    let words: Vec<OsString> = before.skip(1).cloned().collect();
    page(named(&tree(globals), &words).0, globals, Scope::Everyday)
}

/// What is wrong with a command line, in the words of the parser, with our advice.
pub(crate) fn complaint(mut error: clap::Error, words: &[OsString]) -> StyledStr {
    if error.kind() == ErrorKind::InvalidSubcommand {
        let tree = tree(Globals::Named);
        let (command, unknown) = named(&tree, words.get(1..).unwrap_or_default());
        let unknown = unknown.unwrap_or_default();
        // The parser's own advice: commands that are spelled like this one, the most similar one last.
        let alike = match error.get(ContextKind::SuggestedSubcommand) {
            Some(ContextValue::Strings(alike)) => alike.last(),
            _ => None,
        };
        let instead = typed::meant(words).or_else(|| {
            let mut words = words.to_vec();
            *words.iter_mut().skip(1).find(|word| *word == unknown)? = alike?.into();
            Some(words)
        });
        let text = no_command(command, unknown, instead.as_deref());
        return format!("error: {text}\n").into();
    }
    if let Some(text) = bad_value(&error) {
        return format!("error: {text}\n\nFor more information, try '--help'.\n").into();
    }
    // A word too many after `tasks add` is most often the rest of a title.
    if error.kind() == ErrorKind::UnknownArgument
        && usage(&error).contains("tenure tasks add ")
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg)
        && !word.starts_with('-')
    {
        let text = format!(
            "error: unexpected argument '{word}': put the title in quotes\n\n  \
             tip: tenure tasks add 'Fix the login bug'\n"
        );
        return text.into();
    }
    let advice = match typed::meant(words) {
        Some(meant) => Some(line(&meant)),
        None if error.kind() == ErrorKind::UnknownArgument => with_dashes(words),
        None => None,
    };
    // After `--` comes the command, never an option of tenure.
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let useful = |tip: &StyledStr| !tip.to_string().starts_with("to pass ");
        let tips: Vec<StyledStr> = tips.into_iter().filter(useful).collect();
        if !tips.is_empty() && advice.is_none() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
    if let Some(advice) = advice {
        error.remove(ContextKind::SuggestedArg);
        let tip = ContextValue::StyledStrs(vec![advice.into()]);
        error.insert(ContextKind::Suggested, tip);
    }
    error.render()
}

/// A command line to copy. A command that follows its keys without `--` gets it.
fn line(words: &[OsString]) -> String {
    with_dashes(words).unwrap_or_else(|| spelled(words))
}

/// The command line with `--` before its command, if that is what it lacks.
pub(crate) fn with_dashes(words: &[OsString]) -> Option<String> {
    if words.iter().any(|word| word == "--" || word == "-c") {
        return None;
    }
    let tree = tree(Globals::Named);
    let mut command = &tree;
    let mut keys = None;
    let mut at = 1;
    while let Some(word) = words.get(at) {
        if word.as_encoded_bytes().starts_with(b"-") {
            at += usize::from(takes_value(command, word));
        } else if let Some(found) = command.find_subcommand(word).filter(|_| keys.is_none()) {
            command = found;
            let mut last = command.get_positionals();
            if last.any(Arg::is_last_set) {
                keys = Some(command.get_positionals().count() - 1);
            }
        } else {
            match keys? {
                0 => {
                    let (before, after) = words.split_at_checked(at)?;
                    return Some(spelled(&[before, &["--".into()], after].concat()));
                }
                left => keys = Some(left - 1),
            }
        }
        at += 1;
    }
    None
}

/// A command line as a shell reads it.
fn spelled(words: &[OsString]) -> String {
    let words = words.iter().skip(1).map(|word| words::quoted_bytes(word));
    ["tenure".to_owned()]
        .into_iter()
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

fn usage(error: &clap::Error) -> String {
    match error.get(ContextKind::Usage) {
        Some(ContextValue::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    }
}

/// What is wrong with a value, said once.
fn bad_value(error: &clap::Error) -> Option<String> {
    let (
        ErrorKind::ValueValidation,
        Some(ContextValue::String(arg)),
        Some(ContextValue::String(value)),
        Some(why),
    ) = (
        error.kind(),
        error.get(ContextKind::InvalidArg),
        error.get(ContextKind::InvalidValue),
        error.source(),
    )
    else {
        return None;
    };
    let option = arg.split(' ').next().unwrap_or(arg);
    let why = if why.is::<ParseIntError>() || why.to_string().contains("is not in ") {
        match option {
            "--token" => "the token is a whole number".to_owned(),
            _ => "give a whole number".to_owned(),
        }
    } else {
        why.to_string()
    };
    Some(if why.contains(value.as_str()) {
        format!("{option}: {why}")
    } else {
        format!("{option} '{value}': {why}")
    })
}

/// There is no such command: what to type `instead`, or which commands there are.
fn no_command(within: &Command, name: &OsStr, instead: Option<&[OsString]>) -> String {
    let path = within.get_bin_name().unwrap_or("tenure");
    let given = format!("{path} {}", name.to_string_lossy());
    let given = given.strip_prefix("tenure ").unwrap_or(&given);
    let advice = match instead {
        // The word may also be the name of a file.
        Some(instead) if path == "tenure reserve" => format!(
            "  tip: {}\n  a file of this name: ./{}\n\n",
            line(instead),
            name.to_string_lossy()
        ),
        Some(instead) => format!("  tip: {}\n\n", line(instead)),
        None if path == "tenure" => String::new(),
        None => {
            let all = format!("the commands are {}", names(within).join(", "));
            let lines = fit::wrapped(&all, WIDTH - 2, usize::MAX);
            format!("  {}\n\n", lines.join("\n  "))
        }
    };
    format!("there is no command '{given}'\n\n{advice}For all commands, try 'tenure help --all'.")
}

/// All commands.
fn tree(globals: Globals) -> Command {
    let hidden = globals == Globals::Named;
    let mut tree = Args::command().mut_args(|arg| {
        if arg.is_global_set() {
            arg.hide(hidden)
        } else {
            arg
        }
    });
    tree.build();
    tree
}

/// The command that the words name, and the first word that names none.
fn named<'a, 'w>(tree: &'a Command, words: &'w [OsString]) -> (&'a Command, Option<&'w OsStr>) {
    let mut command = tree;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word.as_encoded_bytes().starts_with(b"-") {
            if takes_value(command, word) {
                words.next();
            }
        } else if let Some(found) = command.find_subcommand(word) {
            command = found;
        } else {
            return (command, Some(word));
        }
    }
    (command, None)
}

fn takes_value(command: &Command, option: &OsStr) -> bool {
    command.get_arguments().any(|arg| {
        let long = arg
            .get_long()
            .is_some_and(|long| *option == *format!("--{long}"));
        let short = arg
            .get_short()
            .is_some_and(|short| *option == *format!("-{short}"));
        (long || short) && arg.get_action().takes_values()
    })
}

/// The page of a command.
fn page(command: &Command, globals: Globals, scope: Scope) -> StyledStr {
    let mut command = command
        .clone()
        .term_width(WIDTH.min(fit::terminal_width().max(40)));
    let is_root = command.get_name() == "tenure";
    let mut template = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    if is_root {
        let _ = write!(template, "\n{}", groups(&command, scope));
        let hidden: Vec<String> = names(&command);
        for name in hidden {
            command = command.mut_subcommand(name, |sub| sub.hide(true));
        }
        command = command.override_usage("tenure [OPTIONS] <COMMAND>");
    }
    template.push_str("\n{all-args}");
    if globals == Globals::Named {
        let _ = write!(template, "\n\n{}", global_line(&command));
    }
    template.push_str("{after-help}");
    command.help_template(template).render_help()
}

fn names(command: &Command) -> Vec<String> {
    let visible = command.get_subcommands().filter(|sub| !sub.is_hide_set());
    visible.map(|sub| sub.get_name().to_owned()).collect()
}

/// The commands in their groups.
fn groups(tree: &Command, scope: Scope) -> String {
    let header = tree.get_styles().get_header();
    let literal = tree.get_styles().get_literal();
    let mut groups = GROUPS.to_vec();
    let names = names(tree);
    let named = |name: &&str| {
        GROUPS
            .iter()
            .chain(&MORE)
            .any(|(_, names)| names.contains(name))
    };
    let others: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !named(name))
        .collect();
    if scope == Scope::All {
        groups.extend(MORE);
        groups.push(("More", &others));
    }
    let all = groups.iter().flat_map(|(_, names)| names.iter());
    let widest = all.map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, members) in groups {
        let members = members.iter().filter_map(|name| tree.find_subcommand(name));
        let lines: Vec<String> = members
            .map(|sub| {
                let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
                let (name, gap) = (sub.get_name(), " ".repeat(widest - sub.get_name().len()));
                format!("  {literal}{name}{literal:#}{gap}  {about}\n")
            })
            .collect();
        if !lines.is_empty() {
            let _ = writeln!(text, "{header}{title}:{header:#}");
            text.push_str(&lines.concat());
            text.push('\n');
        }
    }
    text.pop();
    text
}

/// The names of the global options.
fn global_line(command: &Command) -> String {
    let header = command.get_styles().get_header();
    let globals = command.get_arguments().filter(|arg| arg.is_global_set());
    let names: Vec<String> = globals
        .filter_map(|arg| match (arg.get_short(), arg.get_long()) {
            (Some(short), _) => Some(format!("-{short}")),
            (None, Some(long)) => Some(format!("--{long}")),
            (None, None) => None,
        })
        .collect();
    format!(
        "{header}Global options:{header:#} {} (--help)",
        names.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &Command, path: &str) {
        let page = page(command, Globals::Explained, Scope::All).to_string();
        for line in page.lines() {
            assert!(fit::width(line) <= WIDTH, "{path}: {line}");
        }
        let after = command.get_after_help().map(ToString::to_string);
        let after = after.unwrap_or_default();
        assert!(after.contains("Example"), "{path} has no example");
        assert!(
            page.trim_end().ends_with(&after),
            "{path} is broken into other lines: {page}"
        );
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            check(sub, &format!("{path} {}", sub.get_name()));
        }
    }

    #[test]
    fn every_page_has_an_example_and_fits_80_columns() {
        check(&tree(Globals::Explained), "tenure");
    }

    #[test]
    fn the_first_page_shows_at_most_24_commands() {
        assert!(GROUPS.iter().map(|(_, names)| names.len()).sum::<usize>() <= 24);
        let tree = tree(Globals::Named);
        for name in GROUPS.iter().chain(&MORE).flat_map(|(_, names)| *names) {
            assert!(tree.find_subcommand(name).is_some(), "{name}");
        }
    }
}
