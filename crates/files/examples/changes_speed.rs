//! How long it takes to tell what a command changed, beside `git status`.
//!
//! `cargo run --release -p tenure-files --example changes_speed -- FOLDER [FILES]` makes a repository with that many files
//! (60,000, fifteen in each folder) in FOLDER, unless it is there, and prints medians in milliseconds.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a tool for us"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use tenure_core::HolderId;
use tenure_files::changes::{Start, Watched};
use tenure_files::kept::Kept;
use tenure_git::index::Index;
use tenure_testkit::limit::Stopwatch;

const ROUNDS: usize = 21;

fn git(root: &Path, args: &[&str]) {
    let output = Command::new("git").current_dir(root).args(args).output();
    assert!(output.unwrap().status.success(), "{args:?}");
}

fn make(root: &Path, files: usize) {
    fs::create_dir_all(root).unwrap();
    git(root, &["init", "-q"]);
    for number in 0..files {
        let folder = root.join(format!("top{}", number / 3000));
        let folder = folder.join(format!("middle{}", number / 150 % 20));
        let folder = folder.join(format!("folder{}", number / 15 % 10));
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join(format!("file{number}.rs")),
            format!("{number}\n"),
        )
        .unwrap();
    }
    git(root, &["add", "-A"]);
    let commit = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-qm",
        "x",
    ];
    git(root, &commit);
}

/// What some rounds took, in milliseconds. The processor time is that of this process, without git's.
struct Took {
    median: f64,
    least: f64,
    processor: f64,
}

fn processor() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(now).unwrap().as_secs_f64() * 1000.0
}

/// Runs some rounds; `before` is not timed.
fn median<T>(mut before: impl FnMut() -> T, mut run: impl FnMut(T)) -> Took {
    let mut used = 0.0;
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let prepared = before();
            let (watch, begin) = (Stopwatch::start(), processor());
            run(prepared);
            used += processor() - begin;
            watch.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    Took {
        median: times[ROUNDS / 2],
        least: times[0],
        processor: used / f64::from(u32::try_from(ROUNDS).unwrap()),
    }
}

fn main() {
    let mut args = std::env::args_os().skip(1);
    let root = PathBuf::from(args.next().unwrap());
    let files = args
        .next()
        .map_or(60_000, |files| files.to_str().unwrap().parse().unwrap());
    if !root.join(".git").exists() {
        make(&root, files);
    }
    let root = root.canonicalize().unwrap();
    let file = root.join("top0/middle0/folder0/file0.rs");
    let say = |what: &str, took: Took| {
        let Took {
            median,
            least,
            processor,
        } = took;
        println!("{what:<42}{median:8.2}{least:8.2}{processor:8.2}");
    };
    println!(
        "{:<42}{:>8}{:>8}{:>8}",
        "milliseconds", "median", "least", "cpu"
    );
    let start = || Start::now(&root).unwrap();
    let index = |()| assert!(Index::read(&root.join(".git")).unwrap().is_some());
    say("Index::read", median(|| (), index));
    say(
        "Start::now",
        median(|| (), |()| assert!(Start::now(&root).is_ok())),
    );
    let changed = |start: Start, many: usize| {
        assert_eq!(start.changed(&root, &[]).unwrap().files.len(), many);
    };
    say("changed: nothing", median(start, |start| changed(start, 0)));
    let watched: Vec<Watched> = (0..50)
        .map(|number| {
            Watched::now(
                &root,
                Path::new(&format!("top0/middle0/folder0/file{number}.rs")),
            )
        })
        .map(Result::unwrap)
        .collect();
    let with_watched =
        |start: Start| assert!(start.changed(&root, &watched).unwrap().files.is_empty());
    say("changed: nothing, 50 watched", median(start, with_watched));
    let edit = || {
        let start = start();
        fs::write(&file, "changed\n").unwrap();
        start
    };
    say(
        "changed: one file edited",
        median(edit, |start| changed(start, 1)),
    );
    fs::write(&file, "0\n").unwrap();
    let new = root.join("top1/new.rs");
    let add = || {
        let start = start();
        let _ = fs::remove_file(&new);
        fs::write(&new, "new\n").unwrap();
        start
    };
    say(
        "changed: one new file",
        median(add, |start| changed(start, 1)),
    );
    let _ = fs::remove_file(&new);
    let state = tempfile::tempdir().unwrap();
    let (kept, owner) = (Kept::beside(state.path()), HolderId::parse("me").unwrap());
    let names: Vec<_> = (0..15)
        .map(|number| {
            (
                PathBuf::from(format!("top0/middle0/folder0/file{number}.rs")),
                owner.clone(),
            )
        })
        .collect();
    let at = Timestamp::UNIX_EPOCH;
    let keep = |()| drop(kept.keep(&root, &names, at).unwrap());
    let touch = || {
        for (name, _) in &names {
            let text = fs::read(root.join(name)).unwrap();
            fs::write(root.join(name), text).unwrap();
        }
    };
    say("keep: 15 files, all written since", median(touch, keep));
    say("keep: 15 files, none written since", median(|| (), keep));
    git(&root, &["update-index", "-q", "--refresh"]);
    for (name, options) in [
        ("git status", &["-c", "core.untrackedCache=false"][..]),
        ("git status -uno", &["-c", "core.untrackedCache=false"][..]),
        (
            "git status, core.untrackedCache",
            &["-c", "core.untrackedCache=true"][..],
        ),
    ] {
        let end = if name.ends_with("-uno") {
            "-uno"
        } else {
            "-unormal"
        };
        let args = [options, &["status", "--porcelain", "-z", end]].concat();
        git(&root, &args);
        git(&root, &args);
        let run = |()| git(&root, &[&["--no-optional-locks"], &args[..]].concat());
        say(name, median(|| (), run));
    }
    say(
        "git --version",
        median(|| (), |()| git(&root, &["--version"])),
    );
}
