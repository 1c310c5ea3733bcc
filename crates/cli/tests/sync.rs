//! Three clones on three branches, whose daemons sync while all of them edit and the daemons are killed at
//! random.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tenure::store::Clock;
use tenure_host::HostClock;
use tenure_testkit::default_signals;
use tenure_testkit::scale::scale;

fn tenure(dir: &Path, args: &[&str]) -> (bool, String) {
    let output = default_signals(&mut Command::new(env!("CARGO_BIN_EXE_tenure")))
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env_remove("TENURE_HOLDER")
        .output()
        .unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.success(), text.trim_end().to_owned())
}

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=User", "-c", "user.email=user@example.org"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "git {args:?}: {said}");
    String::from_utf8(output.stdout)
        .unwrap()
        .trim_end()
        .to_owned()
}

fn clone(hub: &Path, name: &str) -> PathBuf {
    git(hub, &["clone", "-q", "hub.git", name]);
    let root = hub.join(name);
    git(&root, &["config", "user.name", name]);
    git(&root, &["config", "user.email", "clone@example.org"]);
    git(&root, &["checkout", "-q", "-b", name]);
    assert!(tenure(&root, &["init"]).0);
    root
}

/// A simple source of chance: splitmix.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// What was done, by whom, and between which instants.
struct Done {
    id: String,
    field: &'static str,
    value: String,
    began: Duration,
    ended: Duration,
}

/// What all editors did, in the order in which they did it.
#[derive(Default)]
struct Record {
    added: Vec<String>,
    deleted: Vec<String>,
    done: Vec<Done>,
}

fn now() -> Duration {
    HostClock::new().now().ticks
}

/// Adds, changes and deletes until told to stop.
fn edit(root: &Path, name: &str, seed: u64, record: &Mutex<Record>, over: &AtomicBool) {
    let mut chance = Chance(seed);
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        count += 1;
        let known: Vec<String> = record.lock().unwrap().added.clone();
        let choice = chance.below(20);
        if known.is_empty() || choice < 5 {
            let (fine, id) = tenure(root, &["tasks", "add", &format!("{name} {count}"), "-q"]);
            assert!(fine, "{id}");
            record.lock().unwrap().added.push(id);
        } else {
            let id = known[usize::try_from(chance.below(known.len() as u64)).unwrap()].clone();
            let began = now();
            let (field, value, flag): (_, String, _) = match choice {
                5..=10 => ("title", format!("{name} says {count}"), "--title"),
                11..=14 => ("priority", chance.below(10).to_string(), "--priority"),
                15..=18 => (
                    "status",
                    ["completed", "skipped", "review", "pending"]
                        [usize::try_from(chance.below(4)).unwrap()]
                    .into(),
                    "--status",
                ),
                _ => ("deleted", String::new(), ""),
            };
            let (fine, text) = if field == "deleted" {
                tenure(root, &["tasks", "delete", &id])
            } else {
                tenure(root, &["tasks", "update", &id, flag, &value])
            };
            let ended = now();
            // A task of the other side may not have come yet, or be deleted by now.
            assert!(fine || text.contains("there is no task"), "{text}");
            if fine && field == "deleted" {
                record.lock().unwrap().deleted.push(id);
            } else if fine {
                record.lock().unwrap().done.push(Done {
                    id,
                    field,
                    value,
                    began,
                    ended,
                });
            }
        }
        std::thread::sleep(Duration::from_millis(20 + chance.below(150)));
    }
}

fn daemon(root: &Path) -> Child {
    default_signals(&mut Command::new(env!("CARGO_BIN_EXE_tenure")))
        .args(["daemon", "run", "--interval", "1s"])
        .current_dir(root)
        .env("HOME", root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn tasks(root: &Path) -> BTreeMap<String, Value> {
    let (fine, text) = tenure(root, &["tasks", "list", "--limit", "0", "--json"]);
    assert!(fine, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let tasks = answer["data"]["tasks"].as_array().unwrap().clone();
    let by_id = |task: Value| (task["id"].as_str().unwrap().to_owned(), task);
    tasks.into_iter().map(by_id).collect()
}

/// How long all sides edit, in seconds: enough for some daemons of each clone to be killed.
const SECONDS: u64 = 15;

#[test]
fn three_clones_that_edit_while_their_daemons_are_killed_end_with_the_same_tasks() {
    let hub = tempfile::tempdir().unwrap();
    git(
        hub.path(),
        &["init", "-q", "--bare", "-b", "main", "hub.git"],
    );
    let roots = ["a", "b", "c"].map(|name| clone(hub.path(), name));
    let record = Arc::new(Mutex::new(Record::default()));
    let over = Arc::new(AtomicBool::new(false));
    let seed = u64::try_from(now().as_nanos()).unwrap();
    println!("seed {seed}");
    let mut threads = Vec::new();
    for (number, root) in roots.iter().enumerate() {
        let (root, record, over) = (root.clone(), Arc::clone(&record), Arc::clone(&over));
        let name = ["a", "b", "c"][number];
        threads.push(std::thread::spawn(move || {
            edit(&root, name, seed + number as u64, &record, &over);
        }));
    }
    // Daemons come and are killed, each at any moment of its cycle.
    let kills = Arc::new(Mutex::new(0));
    for (number, root) in roots.iter().enumerate() {
        let (root, over, kills) = (root.clone(), Arc::clone(&over), Arc::clone(&kills));
        let mut chance = Chance(seed + 10 + number as u64);
        threads.push(std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let mut daemon = daemon(&root);
                std::thread::sleep(Duration::from_millis(30 + chance.below(2500)));
                daemon.kill().unwrap();
                daemon.wait().unwrap();
                *kills.lock().unwrap() += 1;
            }
        }));
    }
    // The time in which edits, syncs and kills race; longer, if the machine is so busy that little has happened yet.
    std::thread::sleep(Duration::from_secs(SECONDS * scale()));
    let titled = || -> BTreeSet<String> {
        let record = record.lock().unwrap();
        let titles = record.done.iter().filter(|done| done.field == "title");
        let kept = titles.filter(|done| !record.deleted.contains(&done.id));
        kept.map(|done| done.id.clone()).collect()
    };
    for _ in 0..120 {
        if titled().len() > 20 && *kills.lock().unwrap() > 10 {
            break;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    over.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    // All that is left to do: each has to hear of the others once more.
    for root in roots.iter().chain(&roots).chain(&roots) {
        let (fine, text) = tenure(root, &["sync"]);
        assert!(fine, "{text}");
    }
    let all = roots.each_ref().map(|root| tasks(root));
    let a = &all[0];
    let record = record.lock().unwrap();
    let kills = *kills.lock().unwrap();
    println!(
        "{} added, {} deleted, {} changes, {kills} kills, {} commits",
        record.added.len(),
        record.deleted.len(),
        record.done.len(),
        git(
            &hub.path().join("hub.git"),
            &["rev-list", "--count", "refs/tenure/tasks"]
        )
    );
    assert!(kills > 10);
    let shared = |task: &Value| {
        [
            "id",
            "title",
            "status",
            "priority",
            "createdAt",
            "dependsOn",
        ]
        .map(|name| task[name].clone())
    };
    let listed = |tasks: &BTreeMap<String, Value>| tasks.values().map(shared).collect::<Vec<_>>();
    for (root, tasks) in roots.iter().zip(&all) {
        assert_eq!(listed(tasks), listed(a));
        assert_eq!(
            git(root, &["rev-parse", "refs/tenure/tasks^{tree}"]),
            git(&roots[0], &["rev-parse", "refs/tenure/tasks^{tree}"])
        );
    }
    // Nothing is lost, and nothing comes back.
    for id in &record.added {
        assert_eq!(a.contains_key(id), !record.deleted.contains(id), "{id}");
    }
    assert_eq!(
        a.len(),
        record.added.len() - record.deleted.iter().collect::<BTreeSet<_>>().len()
    );
    // Of every field, the value that was set last stands, if it is certain which that was.
    let mut checked = 0;
    for (id, task) in a {
        for field in ["title", "priority", "status"] {
            let mut sets: Vec<&Done> = record
                .done
                .iter()
                .filter(|done| done.id == *id && done.field == field)
                .collect();
            sets.sort_by_key(|done| done.ended);
            let Some(last) = sets.pop() else { continue };
            let stands = task[field]
                .as_str()
                .map_or_else(|| task[field].to_string(), str::to_owned);
            // To set what a field is already is no change, and every title is another one.
            if field != "title" {
                let usual = ["5", "pending"].contains(&stands.as_str());
                let set = last.value == stands || sets.iter().any(|set| set.value == stands);
                assert!(set || usual, "{field} of {id}: {stands}");
                continue;
            }
            if sets.iter().any(|other| other.ended >= last.began) {
                continue;
            }
            assert_eq!(stands, last.value, "{field} of {id}");
            checked += 1;
        }
    }
    assert!(checked > 10, "{checked} fields were changed");
    // What was overruled is in the history.
    for done in record
        .done
        .iter()
        .filter(|done| done.field == "title" && a.contains_key(&done.id))
    {
        let known = roots.iter().any(|root| {
            let (_, text) = tenure(root, &["tasks", "show", &done.id, "--json"]);
            text.contains(&format!("\"{}\"", done.value))
        });
        assert!(known, "{:?} of {} is nowhere", done.value, done.id);
    }
    // And the user's own repository is as it should be.
    for (root, branch) in roots.iter().zip(["a", "b", "c"]) {
        git(root, &["fsck", "--no-progress"]);
        assert_eq!(git(root, &["status", "--porcelain", "-uall"]), "");
        assert_eq!(git(root, &["symbolic-ref", "--short", "HEAD"]), branch);
        let locks = Command::new("find")
            .arg(root.join(".git"))
            .args([
                "-name", "tenure", "-prune", "-o", "-name", "*.lock", "-print",
            ])
            .output();
        assert_eq!(String::from_utf8_lossy(&locks.unwrap().stdout), "");
    }
}
