//! `tenure store copy`: the tasks and sections of one store into another one.
//!
//! The lines of an export go into an import, which is all or nothing, and are compared with what the other store
//! exports afterwards.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde_json::Value;
use tenure::store::{KeyKind, call_deadline};
use tenure::tasks::Status;
use tenure::text::plural;
use tenure::wire::{ErrorCode, StoreCopyJson};
use tenure::{StoreUrl, Tenure};

use crate::answer::{Answer, Failure};
use crate::args::{Global, StoreCopy};
use crate::context;

/// How many tasks a refusal names.
const NAMED: usize = 5;

pub(super) fn copy(global: &Global, copy: &StoreCopy) -> Result<Answer, Failure> {
    let (from, to) = (shown(&copy.from)?, shown(&copy.to)?);
    let source = context::open_existing(&at(global, &copy.from))?;
    let target = context::open(&at(global, &copy.to))?;
    if source.identity() == target.identity() {
        let message = format!("{from} and {to} are the same store: name two");
        return Err(Failure::new(ErrorCode::Usage, message));
    }
    let exported = lines(&source)?;
    let mut wanted = exported.clone();
    if copy.as_pending {
        wanted.iter_mut().for_each(put_back);
    } else {
        refuse_unfinished(&source, &exported, &from)?;
    }
    let before = lines(&target)?;
    let there = by_id(&before);
    refuse_conflicts(&wanted, &there, &to)?;
    // What is there already is not written again, so that no change that is made to it meanwhile is undone.
    let missing = wanted.iter().filter(|line| !there.contains_key(&id(line)));
    let missing: Vec<String> = missing.map(Value::to_string).collect();
    let done = target
        .tasks()?
        .import(&missing.join("\n"), call_deadline())?;
    let after = lines(&target)?;
    verify(&wanted, &by_id(&after), &to)?;
    if lines(&source)? != exported {
        let message = format!(
            "the tasks in {from} changed while they were copied: copy again when no runner works there"
        );
        return Err(Failure::new(ErrorCode::StoreContended, message));
    }
    let count = |kind: &str| {
        let of_kind = wanted.iter().filter(|line| text(line, "kind") == kind);
        u64::try_from(of_kind.count()).unwrap_or(u64::MAX)
    };
    let data = StoreCopyJson {
        from,
        to,
        tasks: count("task"),
        sections: count("section"),
        added_tasks: done.added,
        added_sections: done.sections,
    };
    let text = format!(
        "Copied {} and {} from {} to {}.\nCompared: all {} and {} are there.",
        plural::count(data.added_tasks, "task"),
        plural::count(data.added_sections, "section"),
        data.from,
        data.to,
        plural::count(data.tasks, "task"),
        plural::count(data.sections, "section"),
    );
    Ok(Answer::confirmed(global, data, text))
}

/// The same for a command on this store.
fn at(global: &Global, url: &OsString) -> Global {
    Global {
        store: Some(url.clone()),
        ..global.clone()
    }
}

/// The address, without a password.
fn shown(url: &OsString) -> Result<String, Failure> {
    Ok(StoreUrl::parse(url)?.to_string())
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    let value = line.get(field).and_then(Value::as_str);
    value.unwrap_or_default()
}

/// The title of a task or the name of a section.
fn title(line: &Value) -> String {
    let title = text(line, "title").to_owned() + text(line, "name");
    format!("{title:?}")
}

/// What a line is about.
fn id(line: &Value) -> (&str, &str) {
    (text(line, "kind"), text(line, "id"))
}

fn by_id(lines: &[Value]) -> BTreeMap<(&str, &str), &Value> {
    lines.iter().map(|line| (id(line), line)).collect()
}

/// What a store exports.
fn lines(tenure: &Tenure) -> Result<Vec<Value>, Failure> {
    let mut lines = Vec::new();
    let mut add = |line: &str| lines.push(serde_json::from_str(line).unwrap_or_default());
    tenure.tasks()?.export(&mut add, call_deadline())?;
    Ok(lines)
}

/// A task in progress as one that no runner has begun.
fn put_back(line: &mut Value) {
    if text(line, "status") == Status::InProgress.word()
        && let Some(status) = line.get_mut("status")
    {
        *status = Status::Pending.word().into();
    }
}

/// Refuses to copy while a runner works in the store: the copy of its task could be begun by another one.
fn refuse_unfinished(source: &Tenure, lines: &[Value], from: &str) -> Result<(), Failure> {
    let begun = lines
        .iter()
        .filter(|line| text(line, "status") == Status::InProgress.word())
        .map(title);
    let held = source.store().list(call_deadline())?;
    let held = held.iter().filter(|one| {
        let mut verdicts = one.leases.iter().map(|(_, verdict)| verdict);
        matches!(one.key.kind(), KeyKind::Task(_) | KeyKind::Section(_))
            && verdicts.any(|verdict| verdict.ended().is_none())
    });
    let busy: Vec<String> = begun.chain(held.map(|one| one.key.to_string())).collect();
    if busy.is_empty() {
        return Ok(());
    }
    let message = format!(
        "runners work on tasks in {from}: {}; nothing was copied\n  wait until they have ended, or copy tasks in \
         progress as pending ones with --as-pending",
        some(&busy)
    );
    Err(Failure::new(ErrorCode::TaskLocked, message))
}

/// Refuses to copy over something else.
fn refuse_conflicts(
    wanted: &[Value],
    there: &BTreeMap<(&str, &str), &Value>,
    to: &str,
) -> Result<(), Failure> {
    let names: BTreeMap<String, &str> = there
        .iter()
        .filter(|((kind, _), _)| *kind == "section")
        .map(|((_, id), line)| (text(line, "name").to_ascii_lowercase(), *id))
        .collect();
    let mut conflicts = Vec::new();
    for line in wanted {
        let name = text(line, "name");
        let same_name = names.get(&name.to_ascii_lowercase());
        match there.get(&id(line)) {
            Some(other) if *other != line => conflicts.push(title(other)),
            None if same_name.is_some() => conflicts.push(format!("{name:?} (another id)")),
            _ => {}
        }
    }
    if conflicts.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{to} has other values of the same tasks or sections: {}; nothing was copied\n  name an empty store, or make \
         them equal with tenure tasks export and tenure tasks import",
        some(&conflicts)
    );
    Err(Failure::new(ErrorCode::TasksDiffer, message))
}

/// Compares what is there now with what should be.
fn verify(
    wanted: &[Value],
    there: &BTreeMap<(&str, &str), &Value>,
    to: &str,
) -> Result<(), Failure> {
    let is_lost = |line: &&Value| there.get(&id(line)) != Some(line);
    let lost: Vec<String> = wanted.iter().filter(is_lost).map(title).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let message = format!(
        "after the copy, {to} differs: {}; a runner may have begun or changed them there already",
        some(&lost)
    );
    Err(Failure::new(ErrorCode::TasksDiffer, message))
}

/// The first few, and how many there are.
fn some(names: &[String]) -> String {
    let first = names.get(..NAMED.min(names.len())).unwrap_or_default();
    match names.len().saturating_sub(NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
