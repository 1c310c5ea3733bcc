//! `tenure complete`: what may come next on a command line, for the scripts of `tenure completions`.
//!
//! One candidate per line: the word, a tab, and a description. `:files` and `:folders` ask the shell for
//! its own candidates.
//!
//! 1. It reads, and never creates a store.
//! 2. What can't be read gives no candidates: the shell shows no error while a person types.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory};
use tenure::Tenure;
use tenure::store::{HistoryQuery, call_deadline};
use tenure::tasks::{Status, TaskQuery};
use tenure::text::flat;

use crate::answer::Answer;
use crate::args::{Args, Global};
use crate::commands::man::visible;
use crate::context;
use crate::words;

/// How much of the history is searched for keys.
const EVENTS: usize = 500;

/// How many tasks are offered.
const TASKS: usize = 200;

/// How the address of a store begins.
const SCHEMES: [&str; 5] = ["sqlite:", "steroids:", "exclusive:", "mkdir:", "ledger:"];

/// A word and its description.
type Candidate = (String, String);

/// The words typed so far; the last one is to be completed.
pub(crate) fn complete(typed: &[OsString]) -> Answer {
    let typed = typed.iter().map(|word| word.to_string_lossy().into_owned());
    let typed: Vec<String> = typed.collect();
    let lines: Vec<String> = candidates(&typed)
        .into_iter()
        .map(|(word, about)| format!("{}\t{}", flat(&word), flat(&about)))
        .collect();
    Answer::new((), lines.join("\n"))
}

fn candidates(typed: &[String]) -> Vec<Candidate> {
    let Some((current, before)) = typed.split_last() else {
        return Vec::new();
    };
    let mut tree = Args::command();
    tree.build();
    let mut command = &tree;
    let mut given = 0;
    let mut is_help = false;
    let mut open: Option<&Arg> = None;
    for word in before {
        if open.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            open = option(command, word).filter(|arg| arg.get_action().takes_values());
        } else if let Some(found) = command.find_subcommand(word) {
            (command, given) = (found, 0);
        } else if word == "help" && command.get_name() == "tenure" {
            is_help = true;
        } else {
            given += 1;
        }
    }
    let starts = |candidate: &Candidate| candidate.0.starts_with(current.as_str());
    if let Some(arg) = open {
        return values(before, arg, current);
    }
    if let Some((name, value)) = current.split_once('=')
        && let Some(arg) = option(command, name)
    {
        let values = values(before, arg, value).into_iter();
        return values
            .map(|(word, about)| (format!("{name}={word}"), about))
            .collect();
    }
    if current.starts_with('-') && !is_help {
        return options(command).into_iter().filter(starts).collect();
    }
    let mut found: Vec<Candidate> = visible(command).map(described).collect();
    let positional = command.get_positionals().nth(given);
    // The last one may be given several times.
    let positional = positional.or_else(|| {
        let last = command.get_positionals().last();
        last.filter(|arg| arg.get_num_args().is_some_and(|many| many.max_values() > 1))
    });
    if let Some(arg) = positional.filter(|arg| !arg.is_last_set() && !is_help) {
        found.extend(values(before, arg, current));
        return found;
    }
    found.into_iter().filter(starts).collect()
}

fn candidate(word: &(impl ToString + ?Sized), about: Option<&StyledStr>) -> Candidate {
    let about = about.map(ToString::to_string);
    (word.to_string(), about.unwrap_or_default())
}

fn described(command: &Command) -> Candidate {
    candidate(command.get_name(), command.get_about())
}

fn option<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| {
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        long.as_deref() == Some(word) || short.as_deref() == Some(word)
    })
}

fn options(command: &Command) -> Vec<Candidate> {
    let options = command.get_arguments().filter(|arg| !arg.is_hide_set());
    options
        .filter_map(|arg| {
            let name = match (arg.get_long(), arg.get_short()) {
                (Some(long), _) => format!("--{long}"),
                (None, Some(short)) => format!("-{short}"),
                (None, None) => return None,
            };
            Some(candidate(&name, arg.get_help()))
        })
        .collect()
}

/// The values that an argument may have.
fn values(before: &[String], arg: &Arg, current: &str) -> Vec<Candidate> {
    let name = arg.get_value_names().and_then(<[_]>::first);
    let name = name.map_or("", |name| name.as_str());
    let fixed = arg.get_possible_values();
    let mut found: Vec<Candidate> = match (arg.get_id().as_str(), name) {
        _ if !fixed.is_empty() && arg.get_action().takes_values() => {
            let fixed = fixed.iter();
            fixed
                .map(|value| candidate(value.get_name(), value.get_help()))
                .collect()
        }
        (_, "DIR") => return vec![candidate(":folders", None)],
        (_, "FILE") => return vec![candidate(":files", None)],
        ("store", _) => SCHEMES.map(|scheme| candidate(scheme, None)).into(),
        // Not the argument of `board set-status`: a board has its own.
        ("status", _) if arg.get_long().is_some() => {
            Status::ALL.map(|status| candidate(&status, None)).into()
        }
        ("command", _) => visible(&Args::command()).map(described).collect(),
        (id, name) => {
            let Some(tenure) = open(before) else {
                return Vec::new();
            };
            let found = match (id, name) {
                ("section" | "move_to", _) => sections(&tenure),
                ("depends_on" | "no_depends_on", _) | (_, "ID_OR_TITLE") => tasks(&tenure, current),
                ("holder", _) => holders(&tenure),
                ("key" | "keys" | "id" | "what", _) => keys(&tenure),
                _ => None,
            };
            found.unwrap_or_default()
        }
    };
    found.retain(|candidate| candidate.0.starts_with(current));
    found
}

/// The store that the words name, or the project's own, if it is there.
fn open(before: &[String]) -> Option<Tenure> {
    let value = |name: &str| {
        let at = before.iter().rposition(|word| word == name)?;
        before.get(at + 1)
    };
    if let Some(dir) = value("-C") {
        std::env::set_current_dir(dir).ok()?;
    }
    let global = Global {
        store: value("--store").map(OsString::from),
        ..Global::default()
    };
    context::open_to_read(&global, Tenure::open_read_only).ok()?
}

/// The keys that are or were held, with what is known of them.
fn keys(tenure: &Tenure) -> Option<Vec<Candidate>> {
    let now = tenure.clock().now();
    let mut keys = BTreeMap::new();
    let query = HistoryQuery {
        limit: Some(EVENTS),
        ..HistoryQuery::default()
    };
    let events = tenure.store().history(&query, call_deadline());
    for event in events.unwrap_or_default() {
        keys.insert(event.key.to_string(), String::new());
    }
    for snapshot in tenure.store().list(call_deadline()).ok()? {
        let held = snapshot.lease().map(|(lease, _)| words::held(&now, lease));
        keys.insert(snapshot.key.to_string(), held.unwrap_or_default());
    }
    Some(keys.into_iter().collect())
}

fn holders(tenure: &Tenure) -> Option<Vec<Candidate>> {
    let mut holders = BTreeMap::new();
    for snapshot in tenure.store().list(call_deadline()).ok()? {
        for (lease, _) in &snapshot.leases {
            holders.insert(lease.holder.id.to_string(), lease.key.to_string());
        }
    }
    Some(holders.into_iter().collect())
}

fn sections(tenure: &Tenure) -> Option<Vec<Candidate>> {
    let sections = tenure.tasks().ok()?.sections(call_deadline()).ok()?;
    let named = sections.into_iter().map(|summary| {
        let open = format!("{} open", summary.open);
        (summary.section.name, open)
    });
    Some(named.collect())
}

/// The tasks by id; by title, too, once a part of it is typed.
fn tasks(tenure: &Tenure, current: &str) -> Option<Vec<Candidate>> {
    let query = TaskQuery {
        limit: Some(TASKS),
        ..TaskQuery::default()
    };
    let tasks = tenure.tasks().ok()?.tasks(&query, call_deadline()).ok()?;
    let mut found = Vec::new();
    for task in tasks {
        found.push((words::short(&task.id).to_owned(), task.title.clone()));
        if !current.is_empty() {
            found.push((task.title, task.status.to_string()));
        }
    }
    Some(found)
}
