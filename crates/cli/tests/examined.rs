//! What `doctor` and `status` look at, and what they do not: locks that do not hold, a long history, large folders.

use crate::project;

use std::os::unix::process::CommandExt as _;

use project::{Project, Said};
use rusqlite::Connection;

/// The lines of a filter for system calls: `fcntl` takes no record lock, and answers with this error; with 0, it says
/// that it took one.
fn without_record_locks(error: u32) -> Vec<libc::sock_filter> {
    let line = |code: u32, jt, jf, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let load = |offset| line(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let equal =
        |value: u32, jt, jf| line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, value);
    let answer = |value: u32| line(libc::BPF_RET | libc::BPF_K, 0, 0, value);
    let number = |command: i32| u32::try_from(command).unwrap();
    vec![
        // The number of the system call; then its second argument, the command.
        load(0),
        equal(u32::try_from(libc::SYS_fcntl).unwrap(), 0, 4),
        load(24),
        equal(number(libc::F_SETLK), 3, 0),
        equal(number(libc::F_SETLKW), 2, 0),
        equal(number(libc::F_OFD_SETLK), 1, 0),
        answer(libc::SECCOMP_RET_ALLOW),
        answer(libc::SECCOMP_RET_ERRNO | error),
    ]
}

/// Runs `tenure doctor` where record locks answer like this. `flock` works as ever.
#[allow(unsafe_code, reason = "a filter is set between fork and exec")]
fn doctor_without_record_locks(project: &Project, error: u32) -> Said {
    let mut doctor = project.program(project::TENURE);
    doctor.args(["doctor", "--json"]);
    let mut lines = without_record_locks(error);
    // SAFETY: two system calls between fork and exec; the filter lives in the closure.
    unsafe {
        doctor.pre_exec(move || {
            let filter = libc::sock_fprog {
                len: u16::try_from(lines.len()).unwrap_or_default(),
                filter: lines.as_mut_ptr(),
            };
            let set = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const filter,
                ) == 0;
            set.then_some(()).ok_or_else(std::io::Error::last_os_error)
        });
    }
    project.prepare(doctor).end()
}

#[test]
fn the_doctor_finds_that_the_locks_which_sqlite_uses_do_not_hold() {
    let project = Project::new();
    project.acquire("k --as a");
    project.tenure("doctor").exits(0);
    let unsupported = u32::try_from(libc::EOPNOTSUPP).unwrap();
    for (error, words) in [
        (0, "was granted beside the first"),
        (unsupported, "as SQLite takes them, fails"),
    ] {
        let said = doctor_without_record_locks(&project, error).exits(1).json();
        let found = said["data"]["problems"].as_array().unwrap();
        let is_it = |one: &&serde_json::Value| one["code"] == "no_locks";
        let finding = found.iter().find(is_it);
        let finding = finding.unwrap_or_else(|| panic!("{error}: {said}"));
        assert!(finding.to_string().contains(words), "{finding}");
    }
}

/// Makes an index of the database wrong: it is said to be of another column than the one it was made from.
fn damage(project: &Project, index: &str, table: &str) {
    let db = Connection::open(project.database()).unwrap();
    let sql = format!(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = 'CREATE INDEX {index} ON {table} (host)' WHERE name = '{index}';"
    );
    let sql = match table {
        "history" => sql.replace("(host)", "(holder, id)"),
        _ => sql,
    };
    db.execute_batch(&sql).unwrap();
}

fn problems(project: &Project, words: &str) -> usize {
    let said = project.tenure(words);
    let problems = &said.json()["data"]["problems"];
    let listed = problems.as_array().map(Vec::len);
    let counted = problems
        .as_u64()
        .map(|count| usize::try_from(count).unwrap());
    listed.or(counted).unwrap()
}

/// The damage is the witness: what is damaged and not reported was not read.
#[test]
fn status_checks_what_is_held_and_leaves_the_history_to_the_doctor() {
    let project = Project::new();
    let mut held = project.hold("run k --as a");
    let waiter = project.queue("k", "run k --as b -- true");
    assert_eq!(problems(&project, "status --json"), 0);
    damage(&project, "history_by_key", "history");
    assert_eq!(
        problems(&project, "status --json"),
        0,
        "it read the history"
    );
    assert_eq!(problems(&project, "doctor --json"), 1);
    damage(&project, "tickets_by_holder", "tickets");
    assert_eq!(problems(&project, "status --json"), 1, "it read no ticket");
    held.let_go();
    let _ = (held.ended(), waiter.ended());
}

#[test]
fn a_folder_that_is_too_large_to_be_looked_at_as_a_whole_is_named() {
    let project = Project::new();
    let words = "has more than 4096 entries: ";
    let listed = project.tenure("locks list --all").out;
    assert!(!listed.contains(words), "{listed}");
    for number in 0..4096 {
        project.write(&format!("file-{number}"), "");
    }
    let listed = project.tenure("locks list --all").exits(0).out;
    let doctor = project.tenure("doctor --json").exits(0).out;
    for what in ["pid files", "ledgers"] {
        let words = format!("/work {words}{what} beyond them were not looked for");
        assert!(listed.contains(&words), "{listed}");
        assert!(doctor.contains(&words), "{doctor}");
    }
}
