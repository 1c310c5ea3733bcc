//! The event ledger: appends, recovery from crashes, other programs' files, and checks.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::{ErrorKind, Store};
use tenure_ledger::{
    Appended, BreakOutcome, Dialect, Ledger, LedgerStore, LockContent, NewEvent, Severity,
};
use tenure_ledger::{Durability, Options};
use tenure_testkit::Ask;
use tenure_testkit::limit::{LIMIT, Stopwatch};
use tenure_testkit::soon;

struct Place {
    dir: tempfile::TempDir,
}

fn options() -> Options {
    Options {
        durability: Durability::Crash,
        ..Options::default()
    }
}

impl Place {
    fn new(dialect: Dialect) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Ledger::init(dir.path(), dialect, options()).unwrap();
        Self { dir }
    }

    fn documented() -> Self {
        Self::new(Dialect::Documented)
    }

    fn open(&self) -> Ledger {
        Ledger::open(self.dir.path(), options()).unwrap()
    }

    fn store(&self) -> LedgerStore {
        let store = LedgerStore::open(self.dir.path(), options()).unwrap();
        store.with_ttl_limits(Duration::ZERO..=Duration::MAX)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn event(&self, seq: u64) -> PathBuf {
        self.path("ledger")
            .join(self.open().dialect().file_name(seq))
    }

    fn read(&self, seq: u64) -> Value {
        serde_json::from_slice(&fs::read(self.event(seq)).unwrap()).unwrap()
    }

    fn sidecar(&self, name: &str) -> PathBuf {
        self.path("ledger/.ledger-tenure").join(name)
    }

    /// What is in the events' folder besides events.
    fn other_files(&self) -> Vec<String> {
        fs::read_dir(self.path("ledger"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.strip_suffix(".json").is_none() && name != ".ledger-tenure")
            .collect()
    }

    fn findings(&self) -> Vec<(&'static str, Option<u64>, Severity)> {
        let verified = self.open().verify().unwrap();
        let all = verified.findings.iter();
        all.map(|found| (found.code, found.event, found.severity))
            .collect()
    }
}

fn note() -> NewEvent {
    NewEvent::parse(r#"{"type":"note"}"#).unwrap()
}

fn add(ledger: &Ledger) -> u64 {
    match ledger.append(&note()).unwrap() {
        Appended::Done { last, .. } => last,
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_two_writers_that_expect_the_same_number_one_wins() {
    let place = Place::documented();
    add(&place.open());
    let (a, b) = (place.open(), place.open());
    let (seen_by_a, seen_by_b) = (a.last().unwrap(), b.last().unwrap());
    assert!(matches!(
        a.append_if(seen_by_a, &note()).unwrap(),
        Appended::Done { last: 2, .. }
    ));
    let second = b.append_if(seen_by_b, &note()).unwrap();
    assert!(
        matches!(
            second,
            Appended::Mismatch {
                expected: 1,
                found: 2
            }
        ),
        "{second:?}"
    );
    assert_eq!(b.last().unwrap(), 2, "nothing was written");
    assert!(place.other_files().is_empty());
}

#[test]
fn a_wrong_hint_does_not_change_the_next_number() {
    let place = Place::documented();
    let hint = place.sidecar("last");
    let mut next = 1;
    for _ in 0..20 {
        assert_eq!(add(&place.open()), next);
        next += 1;
    }
    for hint_text in [
        "",
        "x",
        "00000000000000000003\n",
        "00000000000000009999\n",
        "99",
    ] {
        fs::write(&hint, hint_text).unwrap();
        assert_eq!(add(&place.open()), next, "{hint_text:?}");
        next += 1;
    }
    fs::remove_dir_all(place.path("ledger/.ledger-tenure")).unwrap();
    assert_eq!(add(&place.open()), next);
}

#[test]
fn an_event_is_never_replaced_even_if_another_program_writes_without_the_lock() {
    let place = Place::documented();
    let ledger = place.open();
    add(&ledger);
    // This object has seen that 1 is the newest.
    fs::write(place.event(2), r#"{"type":"theirs"}"#).unwrap();
    fs::write(place.event(4), r#"{"type":"theirs"}"#).unwrap();
    assert_eq!(add(&ledger), 5, "not into the gap");
    assert_eq!(add(&ledger), 6);
    assert_eq!(place.read(2)["type"], "theirs");
    assert_eq!(place.read(4)["type"], "theirs");
}

#[test]
fn misnamed_files_are_reported_and_do_not_disturb_an_append() {
    use Severity::{Error, Note, Warning};
    let place = Place::new(Dialect::Af);
    let known = NewEvent::parse(r#"{"type":"proof_initialized"}"#).unwrap();
    let ledger = place.open();
    let _ = ledger.append(&known).unwrap();
    for name in [
        "3.json",
        "+4.json",
        "0000005.json",
        "1.json",
        "event-000009.json",
        "x.txt",
    ] {
        fs::write(place.path("ledger").join(name), "{}").unwrap();
    }
    let again = place.open().append(&known).unwrap();
    assert!(matches!(again, Appended::Done { last: 2, .. }), "{again:?}");
    let found = place.findings();
    for one in [
        ("duplicate", Some(1), Error),
        ("misnamed", Some(3), Error),
        ("misnamed", Some(4), Error),
        ("misnamed", Some(5), Error),
        ("misnamed", None, Warning),
        ("other_file", None, Note),
    ] {
        assert!(found.contains(&one), "{one:?} is not in {found:?}");
    }
}

#[test]
fn damage_is_reported_event_by_event() {
    let place = Place::documented();
    let write = |seq, text: &str| fs::write(place.event(seq), text).unwrap();
    let claim = |node: &str, owner: &str, at: &str, until: &str| {
        format!(
            r#"{{"type":"lock_acquired","timestamp":"2026-01-01T00:{at}Z","node_id":"{node}","owner":"{owner}","expires_at":"2026-01-01T00:{until}Z"}}"#
        )
    };
    write(1, &claim("1", "a", "00:00", "10:00"));
    write(2, &claim("1", "b", "05:00", "20:00"));
    write(3, r#"{"type":"late","timestamp":"2026-01-01T00:01:00Z"}"#);
    write(6, "{");
    write(
        7,
        &format!(r#"{{"type":"big","x":"{}"}}"#, "x".repeat(1 << 20)),
    );
    write(8, r#"{"type":"untimed"}"#);
    fs::write(place.path("ledger/.event-abc.tmp"), "{").unwrap();
    let found = place.findings();
    for one in [
        ("overlap", Some(2)),
        ("time_went_back", Some(3)),
        ("gap", Some(4)),
        ("unreadable", Some(6)),
        ("oversized", Some(7)),
        ("no_time", Some(8)),
        ("temporary", None),
    ] {
        assert!(
            found.iter().any(|(code, event, _)| (*code, *event) == one),
            "{one:?} is not in {found:?}"
        );
    }
    let verified = place.open().verify().unwrap();
    assert!(!verified.is_sound() && !verified.no_overlap());
    let overlap = verified
        .findings
        .iter()
        .find(|found| found.code == "overlap");
    let words = overlap.unwrap().to_string();
    for word in ["node 1", "a held it", "event 1", "00:10:00"] {
        assert!(words.contains(word), "{words}");
    }
}

#[test]
fn nothing_is_claimed_in_a_damaged_ledger() {
    for (text, words) in [(None, "missing"), (Some("{"), "not valid JSON")] {
        let place = Place::documented();
        let ledger = place.open();
        for _ in 0..3 {
            add(&ledger);
        }
        match text {
            None => fs::remove_file(place.event(2)).unwrap(),
            Some(text) => fs::write(place.event(2), text).unwrap(),
        }
        let store = place.store();
        let ask = Ask::new(&"node:1".parse().unwrap(), "a");
        let error = store.acquire(&ask.claim(&store), soon()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged);
        let message = error.to_string();
        assert!(
            message.contains("event 2") && message.contains(words),
            "{message}"
        );
        assert!(message.contains("verify"), "{message}");
    }
}

#[test]
fn the_lock_of_a_killed_tenure_is_taken_over_even_if_a_power_cut_emptied_it() {
    let place = Place::documented();
    add(&place.open());
    let mine = fs::read_dir(place.path("ledger/.ledger-tenure"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("lock.")
        })
        .unwrap();
    // As its writer leaves it when it is killed.
    let lock = place.path("ledger/ledger.lock");
    for content in [None, Some("")] {
        fs::hard_link(&mine, &lock).unwrap();
        if let Some(content) = content {
            fs::write(&lock, content).unwrap();
        }
        add(&place.open());
        assert!(!lock.exists());
    }
    // Without the sidecar folder, the process in the lock is the proof.
    let text = fs::read_to_string(&mine).unwrap();
    let gone = text.replace(
        &format!("\"pid\":{}", std::process::id()),
        "\"pid\":2147483647",
    );
    assert_ne!(gone, text);
    fs::write(&lock, gone).unwrap();
    fs::remove_dir_all(place.path("ledger/.ledger-tenure")).unwrap();
    assert_eq!(add(&place.open()), 4);
    assert!(!lock.exists());
}

#[test]
fn the_lock_file_follows_the_protocol_and_names_its_holder() {
    let place = Place::documented();
    let ledger = place.open().written_by("agent-7");
    add(&ledger);
    let mine = fs::read_dir(place.path("ledger/.ledger-tenure"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("lock.")
        })
        .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&mine.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(&mine).unwrap();
    assert!(text.ends_with("}\n"), "{text}");
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["agent_id"], "agent-7");
    assert_eq!(record["pid"], std::process::id());
    assert!(record["acquired_at"].as_str().unwrap().ends_with('Z'));
    assert!(record["tenure"]["started"].as_u64().unwrap() > 0);
}

#[test]
fn a_lock_that_is_not_proven_dead_stays_until_it_is_broken() {
    let place = Place::documented();
    let lock = place.path("ledger/ledger.lock");
    let live = format!(
        r#"{{"agent_id":"other","acquired_at":"2020-01-01T00:00:00Z","pid":{},"hostname":"elsewhere"}}"#,
        std::process::id()
    );
    for (text, content) in [
        (Some(""), LockContent::Empty),
        (Some("{"), LockContent::Malformed),
        (
            Some(r#"{"agent_id":"append-operation","acquired_at":"2020-01-01T00:00:00Z"}"#),
            LockContent::Record,
        ),
        (Some(live.as_str()), LockContent::Record),
        (None, LockContent::Folder),
    ] {
        match text {
            Some(text) => fs::write(&lock, text).unwrap(),
            None => fs::create_dir(&lock).unwrap(),
        }
        let ledger = place.open();
        let found = ledger.locked_by().unwrap();
        assert_eq!((found.content, found.dead), (content, false), "{text:?}");
        let refused = ledger.break_lock("me", None, false).unwrap();
        assert!(matches!(refused, BreakOutcome::Refused(_)), "{refused:?}");
        let century = Some(Duration::from_secs(3_000_000_000));
        let young = ledger.break_lock("me", century, true).unwrap();
        assert!(matches!(young, BreakOutcome::Refused(_)), "{young:?}");
        assert!(lock.symlink_metadata().is_ok());
        let broken = ledger.break_lock("me", None, true).unwrap();
        assert!(matches!(broken, BreakOutcome::Removed(_)), "{broken:?}");
        let free = ledger.break_lock("me", None, true).unwrap();
        assert!(matches!(free, BreakOutcome::NotHeld), "{free:?}");
        add(&ledger);
    }
    let recorded = fs::read_to_string(place.sidecar("history")).unwrap();
    assert_eq!(recorded.matches("me broke the ledger lock").count(), 5);
    fs::create_dir(&lock).unwrap();
    fs::write(lock.join("precious"), "").unwrap();
    assert!(place.open().break_lock("me", None, true).is_err());
    assert!(lock.join("precious").exists());
}

#[test]
fn a_writer_waits_for_another_programs_lock_and_wakes_up_when_it_is_removed() {
    let place = Place::documented();
    let lock = place.path("ledger/ledger.lock");
    fs::create_dir(&lock).unwrap();
    let ledger = place.open();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| add(&ledger));
        // It has the writer lock and waits: its event is written already.
        tenure_testkit::limit::within_limit("a writer to wait", || {
            place
                .other_files()
                .iter()
                .any(|name| name.starts_with(".event-tenure"))
        });
        assert!(!waits.is_finished());
        fs::remove_dir(&lock).unwrap();
        assert_eq!(waits.join().unwrap(), 1);
    });
    assert!(place.other_files().is_empty());
}

/// A batch of a killed writer: so many of its three events were linked.
fn cut_off(place: &Place, linked: u64) {
    let digest = |bytes: &[u8]| tenure_host::files::digest(bytes);
    let events: Vec<String> = (1..=3)
        .map(|n| format!(r#"{{"type":"part","timestamp":"2026-01-01T00:00:00Z","n":{n}}}"#))
        .collect();
    let first = place.open().last().unwrap() + 1;
    let names: Vec<String> = (1..=3)
        .map(|n| format!(".event-tenure-gate-{n}.tmp"))
        .collect();
    for (name, text) in names.iter().zip(&events) {
        fs::write(place.path("ledger").join(name), text).unwrap();
    }
    let batch = json!({
        "first": first,
        "files": names,
        "digests": events.iter().map(|text| digest(text.as_bytes())).collect::<Vec<_>>(),
    });
    fs::create_dir_all(place.path("ledger/.ledger-tenure")).unwrap();
    fs::write(place.sidecar("batch"), batch.to_string()).unwrap();
    for (seq, name) in (first..first + linked).zip(&names) {
        fs::hard_link(place.path("ledger").join(name), place.event(seq)).unwrap();
    }
}

#[test]
fn a_batch_that_was_cut_off_is_completed_or_dropped() {
    for (linked, then) in [(0, 2), (1, 5), (2, 5), (3, 5)] {
        let place = Place::documented();
        add(&place.open());
        cut_off(&place, linked);
        assert_eq!(add(&place.open()), then, "{linked} were linked");
        let parts = (2..then)
            .filter(|seq| place.read(*seq)["type"] == "part")
            .count();
        assert_eq!(parts, usize::try_from(then).unwrap() - 2);
        assert!(place.other_files().is_empty(), "{:?}", place.other_files());
        assert!(!place.sidecar("batch").exists());
    }
}

#[test]
fn a_batch_whose_number_is_taken_is_not_completed_elsewhere() {
    let place = Place::documented();
    cut_off(&place, 1);
    fs::write(place.event(2), r#"{"type":"theirs"}"#).unwrap();
    assert_eq!(add(&place.open()), 3);
    assert_eq!(place.read(2)["type"], "theirs");
    assert_eq!(place.read(3)["type"], "note");
    let noted = fs::read_to_string(place.sidecar("history")).unwrap();
    assert!(noted.contains("cut off after event 1"), "{noted}");
}

#[test]
fn a_batch_has_consecutive_numbers_or_none() {
    let place = Place::documented();
    let ledger = place.open();
    let three = [note(), note(), note()];
    let done = ledger.append_all(None, &three).unwrap();
    assert!(
        matches!(done, Appended::Done { first: 1, last: 3 }),
        "{done:?}"
    );
    let late = ledger.append_all(Some(2), &three).unwrap();
    assert!(matches!(
        late,
        Appended::Mismatch {
            expected: 2,
            found: 3
        }
    ));
    assert_eq!(ledger.last().unwrap(), 3);
    assert!(ledger.append_all(None, &[]).is_err());
    assert!(place.other_files().is_empty());
}

#[test]
fn a_wrong_checkpoint_is_ignored() {
    let place = Place::documented();
    let store = place.store();
    let key = "node:1".parse().unwrap();
    for round in 0..40 {
        let lease = Ask::new(&key, &format!("a{round}")).granted(&store);
        let _ = store.release(&lease.grant(), soon()).unwrap();
    }
    let held = Ask::new(&"node:2".parse().unwrap(), "keeper")
        .detached()
        .granted(&store);
    let owners = |place: &Place| {
        let claims = place.store().claims().unwrap();
        claims
            .iter()
            .map(|claim| claim.lease.holder.id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(owners(&place), ["keeper"]);
    // A forged one that says otherwise, for an event that exists.
    let forged = place.sidecar("checkpoint.a");
    assert!(forged.exists() || place.sidecar("checkpoint.b").exists());
    for slot in ["checkpoint.a", "checkpoint.b"] {
        let json = json!({
            "format": 1, "dialect": "documented",
            "replay": { "seq": 70, "digest": 1, "claims": { "9": {
                "owner": "ghost", "token": 3, "digest": 3, "since": "2026-01-01T00:00:00Z",
                "heard": "2026-01-01T00:00:00Z", "expires": "2036-01-01T00:00:00Z" } } },
        })
        .to_string();
        let digest = tenure_host::files::digest(json.as_bytes());
        let text = format!("999 {digest:016x} {}\n{json}", json.len());
        fs::write(place.sidecar(slot), text).unwrap();
    }
    assert_eq!(
        owners(&place),
        ["keeper"],
        "its digest is not that of event 70"
    );
    for slot in ["checkpoint.a", "checkpoint.b"] {
        fs::write(place.sidecar(slot), "torn").unwrap();
    }
    assert_eq!(owners(&place), ["keeper"]);
    for slot in ["checkpoint.a", "checkpoint.b"] {
        fs::remove_file(place.sidecar(slot)).unwrap();
    }
    assert_eq!(owners(&place), ["keeper"]);
    assert!(held.token.0 > 80);
}

/// A copy of a ledger that the `af` tool wrote.
fn sample() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/af-proof");
    fs::create_dir(dir.path().join("ledger")).unwrap();
    fs::copy(from.join("meta.json"), dir.path().join("meta.json")).unwrap();
    for entry in fs::read_dir(from.join("ledger")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(
            entry.path(),
            dir.path().join("ledger").join(entry.file_name()),
        )
        .unwrap();
    }
    Place { dir }
}

#[test]
fn in_an_af_ledger_only_events_of_the_tool_are_written_field_for_field() {
    let place = sample();
    let ledger = place.open();
    assert_eq!(ledger.dialect(), Dialect::Af);
    assert_eq!(ledger.last().unwrap(), 5);
    assert!(ledger.verify().unwrap().findings.is_empty());
    let refused = ledger.append(&note()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unsupported);
    assert!(refused.to_string().contains("note"), "{refused}");

    let store = place.store();
    // The af tool can't read a ledger with a claim on a node that does not exist.
    let nowhere = Ask::new(&"node:1.2".parse().unwrap(), "b").detached();
    let refused = store.acquire(&nowhere.claim(&store), soon()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotFound);
    assert_eq!(ledger.last().unwrap(), 5);
    // And it knows no event for the end of a claim in a file.
    let file = place.path("locks/1.lock");
    fs::create_dir_all(place.path("locks")).unwrap();
    fs::write(&file, r#"{"node_id":"1","owner":"old","acquired_at":"2026-01-01T00:00:00Z","expires_at":"2026-01-01T00:05:00Z"}"#).unwrap();
    let key = "node:1".parse().unwrap();
    let lease = Ask::new(&key, "agent <b>").detached().granted(&store);
    assert!(!file.exists());
    let renewed = store
        .renew(&lease.grant(), Duration::from_secs(60), soon())
        .unwrap();
    assert!(matches!(renewed, tenure_core::Renewed::Extended(_)));
    let _ = store.release(&lease.grant(), soon()).unwrap();
    let brief = Ask::new(&key, "brief")
        .ttl(Duration::from_millis(1))
        .detached();
    let _ = brief.granted(&store);
    std::thread::sleep(Duration::from_millis(5));
    let _ = Ask::new(&key, "next").detached().granted(&store);
    let fields = |seq| {
        let Value::Object(fields) = place.read(seq) else {
            panic!()
        };
        fields.keys().cloned().collect::<Vec<_>>().join(" ")
    };
    let kinds: Vec<Value> = (6..=11)
        .map(|seq| place.read(seq)["type"].clone())
        .collect();
    assert_eq!(
        kinds,
        [
            "nodes_claimed",
            "claim_refreshed",
            "nodes_released",
            "nodes_claimed",
            "nodes_released",
            "nodes_claimed"
        ]
    );
    assert_eq!(fields(6), "type timestamp node_ids owner timeout");
    assert_eq!(fields(7), "type timestamp node_id owner new_timeout");
    assert_eq!(fields(8), "type timestamp node_ids");
    let bytes = fs::read_to_string(place.event(6)).unwrap();
    assert!(
        bytes.contains(r"agent \u003cb\u003e") && !bytes.ends_with('\n'),
        "{bytes}"
    );
    assert!(place.open().verify().unwrap().findings.is_empty());
    let meta = fs::read_to_string(place.path("meta.json")).unwrap();
    assert_eq!(meta.trim(), r#"{"version": "1.0"}"#, "it is not changed");
}

#[test]
fn two_kinds_of_name_in_one_folder_are_refused() {
    let place = sample();
    fs::write(place.path("ledger/event-000001.json"), "{}").unwrap();
    let error = Ledger::open(place.dir.path(), options())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("event-000001.json") && error.contains("000001.json"),
        "{error}"
    );
    let other = Ledger::init(Place::documented().dir.path(), Dialect::Af, options());
    assert!(
        other
            .unwrap_err()
            .to_string()
            .contains("dialect documented")
    );
}

#[test]
fn a_reader_sees_only_complete_events_and_needs_no_lock() {
    let place = Place::documented();
    fs::create_dir(place.path("ledger/ledger.lock")).unwrap();
    let reader = place.open();
    let mut follow = reader.follow(1).unwrap();
    assert!(follow.next(Duration::ZERO).unwrap().is_none());
    fs::remove_dir(place.path("ledger/ledger.lock")).unwrap();
    let long = NewEvent::parse(&format!(
        r#"{{"type":"long","x":"{}"}}"#,
        "y".repeat(300_000)
    ))
    .unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let writer = place.open();
            for _ in 0..60 {
                let _ = writer.append(&long).unwrap();
            }
        });
        for seq in 1..=60 {
            let event = follow.next(Duration::from_secs(60)).unwrap().unwrap();
            assert_eq!(event.seq, seq);
            assert_eq!(event.value().unwrap()["x"].as_str().unwrap().len(), 300_000);
        }
    });
}

#[test]
fn appends_through_two_roots_onto_one_ledger_lose_no_event() {
    const EACH: u64 = 150;
    let place = Place::documented();
    let linked = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(place.path("ledger"), linked.path().join("ledger")).unwrap();
    let roots = [place.dir.path(), linked.path()];
    std::thread::scope(|scope| {
        for (number, root) in roots.iter().cycle().take(4).enumerate() {
            scope.spawn(move || {
                let ledger = Ledger::open(root, options()).unwrap();
                for n in 0..EACH {
                    let text = format!(r#"{{"type":"note","writer":{number},"n":{n}}}"#);
                    let event = NewEvent::parse(&text).unwrap();
                    let Appended::Done { last, .. } = ledger.append(&event).unwrap() else {
                        panic!("no other program holds the lock");
                    };
                    let written = ledger.read(last).unwrap().unwrap().value().unwrap();
                    assert_eq!(
                        (&written["writer"], &written["n"]),
                        (&json!(number), &json!(n))
                    );
                }
            });
        }
    });
    let verified = place.open().verify().unwrap();
    assert_eq!(verified.events, 4 * EACH);
    assert!(verified.findings.is_empty(), "{:?}", verified.findings);
    // One sidecar, so that claims know the processes behind each other.
    assert!(!linked.path().join(".ledger-tenure").exists());
    let ask = Ask::new(&"node:1".parse().unwrap(), "a");
    let held = ask.granted(&LedgerStore::open(linked.path(), options()).unwrap());
    let store = place.store();
    let snapshot = store.inspect(&held.key, soon()).unwrap();
    let (_, verdict) = snapshot.lease().unwrap();
    assert_eq!(verdict.word(), "alive", "its process is known");
}

#[test]
fn every_reader_removes_the_lock_of_a_killed_tenure_and_no_other() {
    let place = Place::documented();
    add(&place.open());
    let lock = place.path("ledger/ledger.lock");
    let user = rustix::process::getuid().as_raw();
    let record = fs::read_to_string(place.sidecar(&format!("lock.{user}"))).unwrap();
    let of_a_dead_process = record.replace(
        &format!("\"pid\":{}", std::process::id()),
        "\"pid\":2147483647",
    );
    let readers: [(&str, &dyn Fn()); 3] = [
        ("claims", &|| drop(place.store().claims().unwrap())),
        ("log", &|| {
            assert_eq!(place.open().events(1).unwrap().count(), 1);
        }),
        ("verify", &|| drop(place.open().verify().unwrap())),
    ];
    for (name, read) in readers {
        fs::write(&lock, &of_a_dead_process).unwrap();
        read();
        assert!(!lock.exists(), "{name}");
        // Of a live process, and of another program.
        for live in [record.as_str(), r#"{"agent_id":"append-operation"}"#, ""] {
            fs::write(&lock, live).unwrap();
            read();
            assert!(lock.exists(), "{name}: {live}");
        }
        fs::remove_file(&lock).unwrap();
    }
    let history = fs::read_to_string(place.sidecar("history")).unwrap();
    assert_eq!(history.matches("removed the ledger lock").count(), 3);
    fs::write(&lock, &of_a_dead_process).unwrap();
    assert_eq!(place.findings(), [("dead_lock", None, Severity::Note)]);
}

#[test]
fn a_call_returns_at_its_deadline_whatever_the_ledger_lock_is() {
    type Make = fn(&Path);
    let kinds: [(&str, Make); 4] = [
        ("folder", |lock| fs::create_dir(lock).unwrap()),
        ("dangling link", |lock| {
            std::os::unix::fs::symlink("nowhere", lock).unwrap();
        }),
        ("pipe", |lock| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
            rustix::fs::mknodat(rustix::fs::CWD, lock, kind, mode, 0).unwrap();
        }),
        ("empty file", |lock| fs::write(lock, "").unwrap()),
    ];
    for (name, make) in kinds {
        let place = Place::documented();
        make(&place.path("ledger/ledger.lock"));
        let store = place.store();
        let claim = Ask::new(&"node:1".parse().unwrap(), "a").claim(&store);
        let watch = Stopwatch::start();
        let by = soon().checked_sub(LIMIT).unwrap() + Duration::from_millis(100);
        let error = store.acquire(&claim, by).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contended, "{name}: {error}");
        assert!(watch.elapsed() < Duration::from_secs(4), "{name}");
        assert!(store.claims().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn verify_reports_acknowledged_events_that_are_gone_or_replaced() {
    let place = Place::documented();
    let ledger = place.open();
    for _ in 0..6 {
        add(&ledger);
    }
    let held = Ask::new(&"node:1".parse().unwrap(), "a").granted(&place.store());
    assert_eq!(held.token, tenure_core::Token(7));
    assert_eq!(place.findings(), []);

    let event = |seq: u64| place.path(&format!("ledger/event-{seq:06}.json"));
    // As another program does that writes without the ledger lock.
    let newest = fs::read(event(7)).unwrap();
    fs::write(place.path("ledger/other"), r#"{"type":"note"}"#).unwrap();
    fs::rename(place.path("ledger/other"), event(3)).unwrap();
    fs::remove_file(event(7)).unwrap();
    fs::remove_file(event(6)).unwrap();
    let found = place.findings();
    let errors: Vec<_> = found
        .iter()
        .filter(|(_, _, severity)| *severity == Severity::Error)
        .collect();
    assert_eq!(
        errors,
        [
            &("replaced", Some(3), Severity::Error),
            &("lost", Some(6), Severity::Error)
        ]
    );
    // Their numbers were free, and are used again: what was acknowledged last counts.
    add(&place.open());
    fs::write(event(7), newest).unwrap();
    fs::remove_file(place.sidecar("acknowledged")).unwrap();
    assert!(
        place
            .findings()
            .iter()
            .all(|(code, ..)| *code != "lost" && *code != "replaced")
    );
}

#[test]
fn no_event_follows_the_last_number() {
    let place = Place::documented();
    let end = i64::MAX.unsigned_abs();
    let planted = [end - 1, end].map(|seq| Dialect::Documented.file_name(seq));
    for name in &planted {
        let event = r#"{"type":"note","timestamp":"2026-11-15T18:49:40Z"}"#;
        fs::write(place.path("ledger").join(name), event).unwrap();
    }
    fs::create_dir_all(place.sidecar("")).unwrap();
    fs::write(place.sidecar("last"), format!("{end:020}\n")).unwrap();
    let refused = place.open().append(&note()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Damaged, "{refused}");
    let names = fs::read_dir(place.path("ledger")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut events: Vec<String> = names
        .filter(|name| name.strip_suffix(".json").is_some())
        .collect();
    events.sort();
    assert_eq!(events, planted);
}
