//! `tenure ledger`: an append-only log of events, and claims on its nodes.

mod claims;
mod log;

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::value::RawValue;
use tenure::protocols::ledger::{
    Appended, BadEvent, BlockingLock, BreakOutcome, Dialect, Ledger, NewEvent, Options, Verified,
};
use tenure::text::{duration, plural};
use tenure::wire::{
    AppendedJson, ErrorCode, LedgerFindingJson, LedgerJson, LedgerLockBrokenJson, LedgerLockJson,
    LedgerVerifiedJson, SequenceMismatchJson,
};
use tenure_host::files::look;

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::ledger::{Append, DialectArg, Ledger as Command, Place};
use crate::context;
use crate::words;

/// How much is read from standard input: room for a batch of the largest events.
const MAX_INPUT: u64 = 64 << 20;

pub(crate) fn ledger(global: &Global, command: Command) -> Result<Answer, Failure> {
    let why = "tenure ledger does not use --store: name the folder of the ledger with --dir";
    context::refuse_option(global, why)?;
    match command {
        Command::Init { folder, dialect } => init(global, folder, dialect),
        Command::Append(asked) => append(global, &asked),
        Command::Log(asked) => log::log(global, &open(global, &asked.place)?, &asked),
        Command::Verify { place } => verify(&open(global, &place)?),
        Command::Claim { node, waits, place } => claims::claim(global, &node, &waits, &place),
        Command::Refresh { which, ttl, place } => claims::refresh(global, &which, ttl, &place),
        Command::Release { which, place } => claims::release(global, &which, &place),
        Command::Claims { place } => claims::claims(global, &place),
        Command::Reap { dry_run, place } => claims::reap(global, dry_run, &place),
        Command::BreakLock {
            older_than,
            force,
            place,
        } => {
            let ledger = open(global, &place)?;
            let by = context::caller(global)?;
            let broken = ledger.break_lock(by.as_str(), older_than, force)?;
            break_lock(broken, older_than, force)
        }
    }
}

/// The folder that contains the ledger: the named one, or the nearest one at or above this folder.
fn folder(place: &Place) -> Result<PathBuf, Failure> {
    let start = context::start()?;
    if let Some(dir) = &place.folder {
        return Ok(start.join(dir));
    }
    let mut above = start.ancestors();
    let found = above.find(|root| look::may_be_folder(&root.join("ledger")));
    found.map(Path::to_path_buf).ok_or_else(|| {
        let message = format!(
            "there is no ledger/ in {} or any folder above it: create one with tenure ledger init, or name its folder with --dir",
            start.display()
        );
        Failure::new(ErrorCode::NotInitialised, message)
    })
}

/// The option that names the folder, after a command: for hints, which must work as they are.
fn in_folder(place: &Place) -> String {
    let dir = place.folder.as_ref();
    dir.map_or_else(String::new, |dir| {
        format!(" --dir {}", words::quoted(&dir.display().to_string()))
    })
}

fn options() -> Result<Options, Failure> {
    let config = context::config(context::project_if_found().as_ref())?;
    Ok(Options {
        queue_grace: config.locking.queue_grace,
        ..Options::default()
    })
}

fn open(global: &Global, place: &Place) -> Result<Ledger, Failure> {
    let ledger = Ledger::open(&folder(place)?, options()?)?;
    Ok(match context::named(global)? {
        Some(agent) => ledger.written_by(agent.as_str()),
        None => ledger,
    })
}

fn init(global: &Global, folder: Option<PathBuf>, dialect: DialectArg) -> Result<Answer, Failure> {
    let start = context::start()?;
    let root = folder.map_or(start.clone(), |folder| start.join(folder));
    let new = !root.join("ledger").is_dir();
    let dialect = match dialect {
        DialectArg::Documented => Dialect::Documented,
        DialectArg::Af => Dialect::Af,
    };
    let ledger = Ledger::init(&root, dialect, options()?)?;
    let text = if new {
        format!(
            "Created {} (dialect {dialect}).\nTry: tenure ledger append --dir {} '{{\"type\":{}}}'",
            ledger.path().display(),
            words::quoted(&root.display().to_string()),
            match dialect {
                Dialect::Documented => "\"note\"",
                Dialect::Af => r#""proof_initialized","conjecture":"P","author":"me""#,
            }
        )
    } else {
        format!(
            "{} exists already (dialect {dialect}, {}); nothing was changed.",
            ledger.path().display(),
            plural::count(ledger.last()?, "event")
        )
    };
    let data = LedgerJson {
        folder: root.display().to_string(),
        created: new,
        dialect: dialect.word().to_owned(),
    };
    Ok(Answer::confirmed(global, data, text))
}

fn append(global: &Global, asked: &Append) -> Result<Answer, Failure> {
    let mut events = Vec::new();
    for (index, text) in asked.events.iter().enumerate() {
        let which = match asked.events.len() {
            1 => String::new(),
            _ => format!("the {} argument: ", words::ordinal(index + 1)),
        };
        let parsed = match text.as_str() {
            "-" => read_input()?,
            event => vec![NewEvent::parse(event)],
        };
        for event in parsed {
            events.push(event.map_err(|error| bad_event(&which, &error))?);
        }
    }
    let ledger = open(global, &asked.place)?;
    for event in &events {
        let checked = event.check(ledger.dialect());
        checked.map_err(|error| bad_event("", &error))?;
    }
    match ledger.append_all(asked.expect, &events)? {
        Appended::Done { first, last } => {
            let numbers: Vec<String> = (first..=last).map(|seq| seq.to_string()).collect();
            let data = AppendedJson {
                first,
                last,
                count: last - first + 1,
            };
            Ok(Answer::new(data, numbers.join("\n")))
        }
        Appended::Mismatch { expected, found } => {
            let (new, dir) = (
                expected.min(found).saturating_add(1),
                in_folder(&asked.place),
            );
            let message = format!(
                "sequence mismatch: the newest event is {found}, not {expected}; nothing was written\n  \
                 see the new events with: tenure ledger log --from {new}{dir}"
            );
            let details = SequenceMismatchJson { expected, found };
            Err(Failure::new(ErrorCode::SequenceMismatch, message).details(details))
        }
        Appended::Locked(lock) => Err(locked(&lock)),
    }
}

fn bad_event(which: &str, error: &BadEvent) -> Failure {
    Failure::new(ErrorCode::BadEvent, format!("{which}{error}"))
}

/// The events on standard input, one after another.
fn read_input() -> Result<Vec<Result<NewEvent, BadEvent>>, Failure> {
    let bad = |message: String| Failure::new(ErrorCode::BadEvent, message);
    let mut text = String::new();
    let mut input = std::io::stdin().take(MAX_INPUT + 1);
    input.read_to_string(&mut text).map_err(|error| {
        bad(format!(
            "standard input can't be read ({error}): give JSON in UTF-8"
        ))
    })?;
    if input.limit() == 0 {
        return Err(bad(
            "standard input is too long: the limit is 64 MiB".to_owned()
        ));
    }
    let values = serde_json::Deserializer::from_str(&text).into_iter::<&RawValue>();
    let events = values.map(|value| match value {
        Ok(event) => NewEvent::parse(event.get()),
        Err(error) => Err(BadEvent::NotJson(error.to_string())),
    });
    let events: Vec<_> = events.collect();
    if events.is_empty() {
        return Ok(vec![NewEvent::parse("")]);
    }
    Ok(events)
}

/// Another program holds the ledger lock. The first words are the protocol's.
pub(crate) fn locked(lock: &BlockingLock) -> Failure {
    let message = format!(
        "timeout waiting for lock: {} is held by {lock}, {} ago; nothing was written\n  \
         if that program has exited, which tenure can't prove, run: tenure ledger break-lock --older-than 30s --force --dir {}",
        lock.path.display(),
        words::elapsed(lock.age),
        words::quoted(&lock.root().display().to_string())
    );
    Failure::new(ErrorCode::LedgerLocked, message).details(lock_json(lock))
}

fn lock_json(lock: &BlockingLock) -> LedgerLockJson {
    LedgerLockJson {
        lock: lock.path.display().to_string(),
        holder: lock.agent.clone(),
        pid: lock.process.as_ref().map(|process| process.pid),
        since: lock.since.into(),
        age_seconds: lock.age.as_secs(),
        dead: lock.dead,
    }
}

fn break_lock(
    broken: BreakOutcome,
    older_than: Option<std::time::Duration>,
    force: bool,
) -> Result<Answer, Failure> {
    match broken {
        BreakOutcome::NotHeld => {
            let data = LedgerLockBrokenJson {
                lock: None,
                broken: false,
            };
            Ok(Answer::new(data, "The ledger lock is not held."))
        }
        BreakOutcome::Removed(lock) => {
            let data = LedgerLockBrokenJson {
                lock: Some(lock_json(&lock)),
                broken: true,
            };
            let how = if lock.dead {
                "its process has exited"
            } else {
                "by force, which is recorded"
            };
            let text = format!("Removed the ledger lock of {lock}: {how}.");
            Ok(Answer::new(data, text))
        }
        BreakOutcome::Refused(lock) => {
            let age = words::elapsed(lock.age);
            let why = match older_than {
                Some(limit) if lock.age < limit => format!(
                    "it is only {age} old, less than {}",
                    duration::format(limit)
                ),
                _ if force => "it changed just now: try again".into(),
                _ => "its holder is not proven dead; if you know that it has exited, add --force"
                    .into(),
            };
            let path = lock.path.display();
            let message = format!("the ledger lock is held by {lock}, {age} ago: {why}\n  {path}");
            Err(Failure::new(ErrorCode::PermissionDenied, message).details(lock_json(&lock)))
        }
    }
}

fn verify(ledger: &Ledger) -> Result<Answer, Failure> {
    let verified: Verified = ledger.verify()?;
    let findings = verified.findings.iter().map(|found| LedgerFindingJson {
        severity: found.severity.word().to_owned(),
        code: found.code.to_owned(),
        event: found.event,
        message: found.what.clone(),
    });
    let data = LedgerVerifiedJson {
        events: verified.events,
        claims: verified.claims,
        sound: verified.is_sound(),
        overlapped: !verified.no_overlap(),
        findings: findings.collect(),
    };
    let mut lines: Vec<String> = verified.findings.iter().map(ToString::to_string).collect();
    let overlapped = if verified.no_overlap() {
        "no two holders overlapped"
    } else {
        "two holders overlapped"
    };
    let summary = format!(
        "{}, {}; {overlapped}",
        plural::count(verified.events, "event"),
        plural::count(verified.claims, "claim")
    );
    if verified.is_sound() {
        lines.push(format!("Sound: {summary}."));
        return Ok(Answer::new(data, lines.join("\n")));
    }
    let folder = ledger.path().display();
    lines.insert(0, format!("{folder} is not sound: {summary}"));
    Err(Failure::new(ErrorCode::LedgerNotSound, lines.join("\n  ")).details(data))
}
