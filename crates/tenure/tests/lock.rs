//! The everyday calls, between real processes and their threads: `lock`, `try_lock`, and what they answer without a
//! project and when the lease is lost.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenure::store::{HolderId, Key};
use tenure::{Error, Guard, Project, Tenure};
use tenure_testkit::process::{self, Process};
use tenure_testkit::soon;

const PROCESSES: usize = 3;
const THREADS: usize = 3;
const ROUNDS: usize = 5;

/// What a process of these tests does: a word and a folder.
#[test]
fn the_work_of_another_process() {
    let Some(job) = process::job() else {
        return;
    };
    let (work, folder) = job.split_once(' ').unwrap();
    std::env::set_current_dir(folder).unwrap();
    match work {
        "count" => std::thread::scope(|threads| {
            for _ in 0..THREADS {
                threads.spawn(|| (0..ROUNDS).for_each(|_| count()));
            }
        }),
        "hold" => {
            let guard = tenure::lock("build").unwrap();
            guard.on_lost(|| process::report("lost"));
            process::report("held");
            // Until it is killed.
            std::thread::sleep(Duration::from_secs(600));
        }
        "lock" => process::report(&text(&tenure::lock("build"))),
        "try" => match tenure::try_lock("build") {
            Ok(None) => process::report("none"),
            other => process::report(&text(&other.map(Option::unwrap))),
        },
        other => panic!("no such work: {other}"),
    }
}

/// Adds one to the number in a file, in two steps that another holder would spoil.
fn count() {
    let _guard = tenure::lock("build").unwrap();
    let number: usize = fs::read_to_string("number").unwrap().parse().unwrap();
    std::thread::sleep(Duration::from_millis(1));
    fs::write("number", (number + 1).to_string()).unwrap();
}

fn text(answer: &Result<Guard, Error>) -> String {
    match answer {
        Ok(guard) => format!("granted {}", guard.key()),
        Err(error) => error.to_string().replace('\n', " "),
    }
}

fn start(work: &str, folder: &Path) -> Process {
    let job = format!("{work} {}", folder.display());
    Process::start("the_work_of_another_process", &job)
}

/// A project whose requests wait for a moment only.
fn impatient() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (project, _) = Project::init(dir.path()).unwrap();
    let settings = "locking:\n  waitTimeout: 100ms\n";
    fs::write(project.folder().join("config.yaml"), settings).unwrap();
    dir
}

fn open(dir: &Path) -> Tenure {
    let (project, _) = Project::init(dir).unwrap();
    Tenure::open(project.store().to_os_string()).unwrap()
}

#[test]
fn one_thread_of_one_process_holds_a_key_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    Project::init(dir.path()).unwrap();
    fs::write(dir.path().join("number"), "0").unwrap();
    let mut processes: Vec<Process> = (0..PROCESSES).map(|_| start("count", dir.path())).collect();
    for process in &mut processes {
        process.wait_for_end();
    }
    let number = fs::read_to_string(dir.path().join("number")).unwrap();
    assert_eq!(number, (PROCESSES * THREADS * ROUNDS).to_string());
}

#[test]
fn a_key_that_another_process_holds_is_refused_with_its_holder() {
    let dir = impatient();
    let holder = start("hold", dir.path());
    assert_eq!(holder.report(), "held");

    let refused = start("lock", dir.path()).report();
    let by = format!("(pid {} on ", holder.pid());
    assert!(refused.starts_with("build is held by "), "{refused}");
    assert!(refused.contains(&by), "{refused}");
    assert!(refused.contains(" since 2"), "{refused}");
    assert!(refused.contains(", until 2"), "{refused}");
    assert_eq!(start("try", dir.path()).report(), "none");

    // The error carries the same.
    let tenure = open(dir.path());
    let Err(Error::Busy(busy)) = tenure.ask("build").unwrap().lock() else {
        panic!("it is held");
    };
    let (lease, _) = busy.lease().unwrap();
    assert_eq!(lease.holder.process().unwrap().pid, holder.pid());
    assert!(lease.since().is_some() && lease.expires.is_some());
}

#[test]
fn the_key_of_a_killed_process_is_granted_to_the_next() {
    let dir = impatient();
    let mut holder = start("hold", dir.path());
    assert_eq!(holder.report(), "held");
    holder.kill();
    assert_eq!(start("lock", dir.path()).report(), "granted build");
    assert_eq!(start("try", dir.path()).report(), "granted build");
}

#[test]
fn a_command_that_runs_under_the_key_is_refused_at_once_instead_of_waiting_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    Project::init(dir.path()).unwrap();
    let tenure = open(dir.path());
    let build = tenure.lock("build").unwrap();
    // As `tenure run build` starts its command.
    let mut command = Command::new("env");
    command.arg(format!(
        "TENURE_PARENT_LEASES={}:{}",
        tenure.identity(),
        build.token()
    ));
    let job = format!("lock {}", dir.path().display());
    // Without the variable it would wait for half an hour, longer than a report may take.
    let nested = Process::start_through(&mut command, "the_work_of_another_process", &job);
    let refused = nested.report();
    assert!(
        refused.starts_with("waiting would never end: "),
        "{refused}"
    );
    assert!(refused.contains(" waits for build which "), "{refused}");
    drop(build);
    assert_eq!(start("lock", dir.path()).report(), "granted build");
}

#[test]
fn without_a_project_the_error_names_tenure_init() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().canonicalize().unwrap();
    let message = format!(
        "no tenure project in {} or any folder above it: run tenure init in the project's root",
        folder.display()
    );
    assert_eq!(start("lock", dir.path()).report(), message);
    assert_eq!(start("try", dir.path()).report(), message);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_holder_is_told_that_its_lease_was_taken() {
    let dir = impatient();
    let holder = start("hold", dir.path());
    assert_eq!(holder.report(), "held");
    let tenure = open(dir.path());
    let (key, by) = (Key::parse("build").unwrap(), HolderId::parse("person"));
    let forced = tenure.store().force(&key, None, &by.unwrap(), None, soon());
    assert!(forced.is_ok());
    assert_eq!(holder.report(), "lost");
}
