//! `tenure schema`: what every command prints with `--json`, as a JSON Schema.
//!
//! The types describe themselves ([`tenure::wire`]). What is said here is which command answers with which of them,
//! and which of them are the details of an error.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};
use tenure::tasks::{ImportSummary, Section};
#[allow(clippy::wildcard_imports, reason = "nearly all of them are named")]
use tenure::wire::*;

use crate::answer::Answer;
use crate::exit::Exit;

/// Adds a type to the definitions; the answer refers to it.
type Type = fn(&mut SchemaGenerator) -> Schema;

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What the `data` of each command may be; `null` if nothing is named. `*` is any subcommand.
const ANSWERS: &[(&str, &[Type])] = &[
    ("init", &[of::<ProjectJson>]),
    ("run", &[]),
    (
        "acquire",
        &[of::<AcquiredJson>, of::<LeasesJson<AcquiredJson>>],
    ),
    ("renew", &[of::<RenewedJson>, of::<LeasesJson<RenewedJson>>]),
    ("release", &[of::<ReleasedJson>, of::<ReleasedSeveralJson>]),
    ("ask", &[of::<AskedJson>]),
    ("force", &[of::<ForcedJson>]),
    ("fence", &[of::<FencedJson>]),
    ("reserve", &[of::<AcquiredJson>, of::<ExtendedJson>]),
    ("unreserve", &[of::<UnreservedJson>]),
    ("reservations", &[of::<ReservationsJson>]),
    ("check", &[of::<CheckJson>]),
    ("locks list", &[of::<LocksJson>, of::<AllLocksJson>]),
    ("locks show", &[of::<LockJson>, of::<()>]),
    ("locks cleanup", &[of::<CleanupJson>]),
    ("locks history", &[of::<HistoryJson>]),
    ("locks verify", &[of::<VerifiedJson>]),
    ("status", &[of::<StatusJson>]),
    ("why", &[of::<WhyJson>]),
    ("timeline", &[of::<TimelineJson>]),
    ("watch", &[]),
    ("doctor", &[of::<DoctorJson>]),
    ("files list", &[of::<KeptFilesJson>]),
    ("files restore", &[of::<RestoredFileJson>]),
    ("guard install", &[of::<GuardJson>]),
    ("guard uninstall", &[of::<GuardJson>]),
    ("guard status", &[of::<GuardJson>]),
    ("guard receive", &[]),
    ("tasks add", &[of::<TaskJson>]),
    ("tasks list", &[of::<TasksJson>]),
    ("tasks show", &[of::<ShownTaskJson>]),
    (
        "tasks update",
        &[of::<StartedTaskJson>, of::<ChangedTaskJson>, of::<TaskJson>],
    ),
    ("tasks next", &[of::<StartedTaskJson>]),
    ("tasks work", &[of::<WorkJson>]),
    ("tasks done", &[of::<ChangedTaskJson>]),
    ("tasks fail", &[of::<ChangedTaskJson>]),
    ("tasks release", &[of::<ChangedTaskJson>]),
    ("tasks renew", &[of::<RenewedJson>]),
    ("tasks delete", &[of::<DeletedTasksJson>]),
    ("tasks import", &[of::<ImportSummary>]),
    ("tasks export", &[of::<LinesJson<Value>>]),
    ("sections add", &[of::<Section>]),
    ("sections list", &[of::<SectionsJson>]),
    ("sections rm", &[of::<DeletedSectionJson>]),
    ("exclusive run", &[]),
    ("exclusive acquire", &[of::<ExclusiveAcquiredJson>]),
    ("exclusive release", &[of::<ExclusiveReleasedJson>]),
    ("exclusive status", &[of::<LockJson>]),
    ("daemon run", &[of::<DaemonEndedJson>]),
    ("daemon start", &[of::<DaemonStartedJson>]),
    ("daemon stop", &[of::<DaemonStoppedJson>]),
    ("daemon status", &[of::<DaemonStatusJson>]),
    ("daemon logs", &[of::<DaemonLogJson>]),
    ("sync", &[of::<SyncJson>]),
    ("sync status", &[of::<SyncStatusJson>]),
    ("sync restore", &[of::<SyncRestoreJson>]),
    ("sync log", &[of::<SyncLogJson>]),
    ("board list", &[of::<BoardJson>]),
    ("board validate", &[of::<BoardValidationJson>]),
    ("board set-status", &[of::<BoardSetJson>]),
    ("board set-priority", &[of::<BoardSetJson>]),
    ("board rebuild-index", &[of::<BoardIndexJson>]),
    ("board migrate", &[of::<BoardMigrationJson>]),
    ("shell-lib", &[of::<ShellLibraryJson>]),
    ("ledger init", &[of::<LedgerJson>]),
    ("ledger append", &[of::<AppendedJson>]),
    ("ledger log", &[]),
    ("ledger verify", &[of::<LedgerVerifiedJson>]),
    ("ledger claim", &[of::<NodeClaimedJson>]),
    ("ledger refresh", &[of::<NodeRefreshedJson>]),
    ("ledger release", &[of::<NodeReleasedJson>]),
    ("ledger claims", &[of::<NodeClaimsJson>]),
    ("ledger reap", &[of::<NodesReapedJson>]),
    ("ledger break-lock", &[of::<LedgerLockBrokenJson>]),
    ("store check", &[of::<StoreCheckJson>]),
    ("store repair", &[of::<StoreRepairJson>]),
    ("store copy", &[of::<StoreCopyJson>]),
    ("allow", &[of::<AllowableJson>, of::<AllowablesJson>]),
    ("setup *", &[of::<SetupJson>, of::<GuardJson>]),
    ("config show", &[of::<SettingsJson>]),
    ("config path", &[of::<ConfigPathsJson>]),
    ("completions", &[of::<CompletionsJson>]),
    ("man", &[of::<ManualJson>, of::<Vec<String>>]),
    ("schema", &[of::<Value>]),
];

/// What the `details` of an error may be besides empty. Those of the other codes are explained by their names.
const DETAILS: &[(ErrorCode, Type)] = &[
    (ErrorCode::Locked, of::<BusyJson>),
    (ErrorCode::Locked, of::<CheckJson>),
    (ErrorCode::Locked, of::<GuardRefusedJson>),
    (ErrorCode::Locked, of::<LockJson>),
    (ErrorCode::NodeLocked, of::<BusyJson>),
    (ErrorCode::ExclusiveLocked, of::<BusyJson>),
    (ErrorCode::ExclusiveLocked, of::<SyncJson>),
    (ErrorCode::LockBusy, of::<BoardBusyJson>),
    (ErrorCode::TaskLocked, of::<TaskLockedJson>),
    (ErrorCode::TaskLocked, of::<BusyJson>),
    (ErrorCode::SectionLocked, of::<TaskLockedJson>),
    (ErrorCode::TaskBlocked, of::<TaskBlockedJson>),
    (ErrorCode::LedgerLocked, of::<LedgerLockJson>),
    (ErrorCode::SequenceMismatch, of::<SequenceMismatchJson>),
    (ErrorCode::DaemonRunning, of::<DaemonRunningJson>),
    (ErrorCode::DaemonStillRunning, of::<DaemonStillRunningJson>),
    (ErrorCode::PermissionDenied, of::<NotHolderJson>),
    (ErrorCode::PermissionDenied, of::<CheckJson>),
    (ErrorCode::PermissionDenied, of::<GuardRefusedJson>),
    (ErrorCode::PermissionDenied, of::<LedgerLockJson>),
    (ErrorCode::PermissionDenied, of::<LockJson>),
    (ErrorCode::PermissionDenied, of::<SetupJson>),
    (ErrorCode::PermissionDenied, of::<Value>),
    (ErrorCode::LeaseLost, of::<LostJson>),
    (ErrorCode::LeaseLost, of::<TaskLostJson>),
    (ErrorCode::LeaseLost, of::<WorkJson>),
    (ErrorCode::LeaseLost, of::<Value>),
    (ErrorCode::Deadlock, of::<DeadlockJson>),
    (ErrorCode::Deadlock, of::<Value>),
    (ErrorCode::SyncFailed, of::<SyncJson>),
    (ErrorCode::SyncPutOff, of::<SyncJson>),
    (ErrorCode::TasksFailed, of::<WorkJson>),
    (ErrorCode::LedgerNotSound, of::<LedgerVerifiedJson>),
    (ErrorCode::HistoryNotSound, of::<VerifiedJson>),
    (ErrorCode::BoardInvalid, of::<BoardValidationJson>),
];

/// What is printed as lines, without an envelope.
const LINES: &[Type] = &[
    of::<WatchLineJson>,
    of::<LedgerEventJson<Value>>,
    of::<LogLineJson>,
];

pub(crate) fn schema() -> Answer {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut generator = settings.into_generator();
    let mut outcomes: Vec<Value> = ANSWERS
        .iter()
        .map(|(words, types)| success(words, types, &mut generator))
        .collect();
    outcomes.push(json!({
        "title": "a failure",
        "properties": {
            "success": { "const": false },
            "data": { "type": "null" },
            "error": { "$ref": "#/$defs/Error" },
        },
    }));
    let error = error(&mut generator);
    for line in LINES {
        line(&mut generator);
    }
    let mut definitions = generator.take_definitions(true);
    if let Some(code) = definitions.get_mut("ErrorCode") {
        add_exit_codes(code);
    }
    definitions.insert("Error".to_owned(), error);
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What tenure prints with --json",
        "description": "One object for each call. Without this envelope: `watch` prints lines, each a WatchLineJson, \
                        `ledger log` lines, each a LedgerEventJson, `daemon logs --follow` lines, each a LogLineJson. \
                        A new version may add commands, properties, words and error codes.",
        "type": "object",
        "required": ["success", "command", "subcommand", "data", "error"],
        "properties": {
            "success": { "type": "boolean" },
            "command": { "type": "string" },
            "subcommand": { "type": ["string", "null"] },
        },
        "oneOf": outcomes,
        "$defs": definitions,
    });
    let text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    Answer::new(schema, text)
}

/// The envelope of one command that succeeded.
fn success(words: &str, types: &[Type], generator: &mut SchemaGenerator) -> Value {
    let (command, subcommand) = match words.split_once(' ') {
        Some((command, "*")) => (command, json!({ "type": "string" })),
        Some((command, subcommand)) => (command, json!({ "const": subcommand })),
        None => (words, json!({ "type": "null" })),
    };
    let data = match types {
        [] => json!({ "type": "null" }),
        [only] => only(generator).to_value(),
        several => any_of(several.iter(), generator),
    };
    json!({
        "title": format!("tenure {words}"),
        "properties": {
            "success": { "const": true },
            "command": { "const": command },
            "subcommand": subcommand,
            "data": data,
            "error": { "type": "null" },
        },
    })
}

fn any_of<'a>(types: impl Iterator<Item = &'a Type>, generator: &mut SchemaGenerator) -> Value {
    let types = types.map(|of| of(generator).to_value());
    json!({ "anyOf": types.collect::<Vec<_>>() })
}

/// The `error` of a command that failed.
fn error(generator: &mut SchemaGenerator) -> Value {
    let of_code = |(code, _): &(ErrorCode, Type), other: &(ErrorCode, Type)| *code == other.0;
    let by_code = DETAILS.chunk_by(of_code).map(|details| {
        let code = details.first().map(|(code, _)| code);
        let types = any_of(details.iter().map(|(_, of)| of), generator);
        let nothing = json!({ "maxProperties": 0 });
        json!({
            "if": { "properties": { "code": { "const": code } } },
            "then": { "properties": { "details": { "anyOf": [types, nothing] } } },
        })
    });
    let by_code: Vec<Value> = by_code.collect();
    json!({
        "description": "Why a command failed.",
        "type": "object",
        "required": ["code", "message", "details"],
        "properties": {
            "code": of::<ErrorCode>(generator),
            "message": { "type": "string", "description": "For people; may change." },
            "details": { "type": "object", "description": "What the code is about." },
        },
        "allOf": by_code,
    })
}

/// Adds the exit code that a command ends with to each error code.
fn add_exit_codes(codes: &mut Value) {
    let codes = codes.get_mut("oneOf").and_then(Value::as_array_mut);
    for word in codes.into_iter().flatten() {
        let code = word.get("const").cloned().unwrap_or_default();
        if let (Ok(code), Some(word)) = (
            serde_json::from_value::<ErrorCode>(code),
            word.as_object_mut(),
        ) {
            let exit = Exit::from(code).code();
            word.insert("exitCode".to_owned(), exit.into());
        }
    }
}
