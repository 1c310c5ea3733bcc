//! `tenure hook`: what a coding agent calls before and after it edits a file; see [`tenure_files::agents::session`].
//!
//! Its own failure does not stop an agent, unless `guard.strict` says so. A timer ends it when it takes too long.

mod timer;

use std::io::Read;
use std::time::Duration;

use serde_json::Value;
use tenure::store::Lease;
use tenure::text::flat;
use tenure::wire::ErrorCode;
use tenure_files::agents::command::Mixed;
use tenure_files::agents::event::{Event, What};
use tenure_files::agents::record::Sibling;
use tenure_files::agents::reply::Reply;
use tenure_files::agents::session::{self, AgentSession, Note, Outcome, Place, Refusal, Reserved};
use tenure_files::agents::tool::Tool;

use self::timer::Timer;
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::agents::Hook;
use crate::commands::ask;
use crate::exit::Exit;
use crate::{context, words};

/// The largest input that is read. An agent sends the whole content of a file that it writes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// How long a reservation lasts unless the session goes on working.
const TTL: Duration = Duration::from_secs(10 * 60);

/// Answers a hook. `early` is what is wrong already: the holder's name, or the folder.
pub(crate) fn hook(global: &Global, hook: &Hook, early: Option<Failure>) -> Answer {
    let home = std::env::home_dir();
    // Until there is an input, the command line and the environment tell.
    let guessed = hook.tool.or_else(Tool::of_environment);
    let timer = Timer::start(guessed.unwrap_or(Tool::ClaudeCode));
    let is_strict = |event| session::is_strict_around(home.as_deref(), event);
    // Until there is an input, it may be any edit.
    timer.is_about(&Event::default());
    timer.is_strict(is_strict(None));
    let (tool, event, unread) = read(guessed);
    timer.is_of(tool);
    timer.is_about(&event);
    let answered = match unread.or(early) {
        Some(failure) => Err(failure),
        None => answer(global, hook, tool, &event, &timer),
    };
    let reply = answered.unwrap_or_else(|failure| {
        timer.is_strict(is_strict(Some(&event)));
        timer.failed(&failure)
    });
    Answer::silent(Exit::Other(timer.answer(&reply)))
}

fn answer(
    global: &Global,
    hook: &Hook,
    tool: Tool,
    event: &Event,
    timer: &Timer,
) -> Result<Reply, Failure> {
    let home = std::env::home_dir();
    let store = context::named_url(global)?;
    let hook = session::Hook {
        tool,
        name: global.holder.as_deref(),
        store: store.as_ref(),
        home: home.as_deref(),
        ttl: hook.ttl.unwrap_or(TTL),
    };
    let sessions = hook.sessions(context::start(), event)?;
    timer.is_strict(sessions.iter().any(AgentSession::is_strict));
    let notes = match hook.answer(&sessions, event)? {
        Outcome::Refused(refusal) => return Ok(Reply::refuse(tool, &reason(&refusal))),
        Outcome::GoOn(notes) => notes,
    };
    let is_too_late = notes.iter().any(|note| matches!(note, Note::TooLate(_)));
    let notes: Vec<String> = notes.iter().map(said).collect();
    let note = (!notes.is_empty()).then(|| notes.join("\n"));
    let reply = Reply::go_on(tool, &event.name, &event.what, note.as_deref());
    Ok(match event.what {
        // The model has to hear of it, whether or not the agent passes notes on.
        What::AfterEdit(_) if is_too_late => Reply { err: note, ..reply },
        _ => reply,
    })
}

/// Reads an event, and tells which agent sent it; if it can't be read, returns what it may have been, and why.
fn read(guessed: Option<Tool>) -> (Tool, Event, Option<Failure>) {
    let bad = |why: String| Failure::new(ErrorCode::BadEvent, why);
    let mut input = Vec::new();
    let mut stdin = std::io::stdin().take(LARGEST + 1);
    let parsed: Result<Value, Failure> = match stdin.read_to_end(&mut input) {
        Err(error) => Err(error.into()),
        Ok(_) if stdin.limit() == 0 => Err(bad("its input is larger than 64 MB".to_owned())),
        Ok(_) => serde_json::from_slice(&input)
            .map_err(|error| bad(format!("its input can't be understood ({error})"))),
    };
    // The others have taken over the words of Claude Code.
    let is_of = |input: Option<&Value>| {
        let told = input.and_then(Tool::of_input);
        told.or(guessed).unwrap_or(Tool::ClaudeCode)
    };
    let (tool, input, failure) = match parsed {
        Err(failure) => (is_of(None), Value::Null, failure),
        Ok(input) => {
            let tool = is_of(Some(&input));
            match Event::parse(tool, &input) {
                Ok(event) => return (tool, event, None),
                Err(why) => (tool, input, bad(why.to_string())),
            }
        }
    };
    (tool, Event::guess(tool, &input), Some(failure))
}

/// How an agent calls tenure for a project.
fn tenure(place: &Place) -> String {
    place.elsewhere.as_ref().map_or_else(
        || "tenure".to_owned(),
        |root| format!("tenure -C {}", words::quoted_bytes(root.as_os_str())),
    )
}

/// A note, for the model.
fn said(note: &Note) -> String {
    match note {
        Note::TooLate(refusal) => {
            let reason = reason(refusal);
            format!("You have edited a file that you must not edit. {reason}")
        }
        Note::Told(words) => words.clone(),
        Note::Mixed { place, files } => mixed(place, files),
        Note::Dirty { place, file, owner } => format!(
            "{} has uncommitted changes of {}, which has given it back. Build on them; do not undo them or commit them as \
             your own. They are kept: {} files list {}",
            flat(file),
            flat(owner.as_str()),
            tenure(place),
            words::quoted(file)
        ),
        Note::Asked {
            place,
            requests,
            leases,
        } => {
            let leases: Vec<&Lease> = leases.iter().collect();
            let told = requests.iter();
            let told: Vec<String> = told
                .map(|event| ask::told_with_paths(event, &leases))
                .collect();
            let holder = words::quoted(place.holder.as_str());
            format!(
                "{}. Give it back as soon as you can: {} unreserve PATH --as {holder}",
                told.join("; "),
                tenure(place)
            )
        }
    }
}

/// That a command has changed files of others.
fn mixed(place: &Place, files: &[Mixed]) -> String {
    let tenure = tenure(place);
    let mut lines = vec!["Your command has changed files that other sessions work on:".to_owned()];
    lines.extend(files.iter().map(
        |Mixed {
             file,
             owner,
             is_gone,
         }| {
            let did = if *is_gone { " (deleted)" } else { "" };
            format!("- {}{did}: {}", flat(file), flat(owner.as_str()))
        },
    ));
    lines.push("They have been told. Do not commit these files. Instead:".to_owned());
    if let Some(Mixed { file, .. }) = files.first() {
        let file = words::quoted(file);
        lines.push(format!(
            "- put back what was there: {tenure} files list {file} shows it, {tenure} files restore {file} writes it; or"
        ));
        lines.push(format!(
            "- ask its session: {tenure} ask {file} --note {}",
            words::quoted("what you have changed, and why")
        ));
    }
    lines.join("\n")
}

/// Why an edit is refused, for the model.
fn reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Reserved(reserved) => reserved_by(reserved),
        Refusal::Destroys(words) => words.clone(),
        Refusal::Sibling(Sibling { id, kind, file }) => {
            let kind = kind
                .as_ref()
                .map_or_else(String::new, |kind| format!("{} ", flat(kind)));
            format!(
                "{} is being edited by another sub-agent of this session ({kind}{}).\nDo not edit it another way, such as \
                 with a shell command. Work on something else, and edit it when that one has finished, or leave this \
                 change to the agent that started you: say which file, and what is to be changed.",
                flat(file),
                flat(id)
            )
        }
    }
}

/// Why an edit is refused that another holder's reservation forbids.
fn reserved_by(reserved: &Reserved) -> String {
    let Reserved {
        place,
        file,
        typed,
        busy,
        now,
    } = reserved;
    let mut lines = Vec::new();
    for (lease, _) in busy
        .leases
        .iter()
        .filter(|(_, verdict)| verdict.ended().is_none())
    {
        let paths = lease
            .mode
            .paths()
            .map(ToString::to_string)
            .unwrap_or_default();
        let of = if paths == *file {
            String::new()
        } else {
            format!(" (it has reserved {paths})")
        };
        let why = lease.holder.command.as_ref();
        let why = why.map_or_else(String::new, |why| format!(": {}", flat(why)));
        lines.push(format!(
            "{file} is reserved by {}, {}{of}{why}.",
            words::held(now, lease),
            words::lasts(now, lease)
        ));
    }
    if lines.is_empty() {
        let next = busy
            .behind
            .as_ref()
            .map_or("another agent", |next| next.id.as_str());
        lines.push(format!(
            "{file} is about to be reserved by {next}, which waits for it."
        ));
    }
    let (tenure, name) = (tenure(place), words::quoted(place.holder.as_str()));
    let file = words::quoted(typed);
    lines.push("Do not edit it another way, such as with a shell command. Instead:".to_owned());
    lines.push("- work on something else, and try this edit again later; or".to_owned());
    lines.push(format!(
        "- wait for it: {tenure} reserve {file} --as {name} --for 10m --wait 10m\n  When that has exit code 0, repeat the edit."
    ));
    lines.join("\n")
}
