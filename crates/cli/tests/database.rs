//! Unusable databases: each is refused with a clear message, and no command runs without a lock.

use crate::project;

use std::fs;

use project::Project;

/// A project that granted two keys, with an empty write-ahead log.
fn used() -> Project {
    let project = Project::new();
    project.acquire("build --as me");
    project.acquire("other --as me");
    let db = rusqlite::Connection::open(project.database()).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    db.close().unwrap();
    for side in ["-wal", "-shm"] {
        let _ = fs::remove_file(project.path(&format!(".tenure/tenure.db{side}")));
    }
    project
}

/// Checks that no command runs, and that the error names the file, the problem and the way out.
#[track_caller]
fn refused(project: &Project, code: &str, words: &[&str]) {
    let run = project
        .call("run build --no-wait")
        .sh("touch ran")
        .end()
        .fails(1, words);
    assert!(run.err.contains("tenure.db"), "{run:?}");
    assert!(!project.path("ran").exists());
    for words in [
        "acquire build --no-wait",
        "locks list",
        "fence build --token 1",
        "locks history",
        "init",
    ] {
        let said = project.tenure(&format!("{words} --json")).exits(1);
        assert_eq!(said.error(), code, "{words}");
    }
}

#[test]
fn a_file_that_is_no_database() {
    let project = used();
    fs::write(
        project.database(),
        "These are not the locks you are looking for. ".repeat(100),
    )
    .unwrap();
    refused(
        &project,
        "NOT_A_STORE",
        &["is not a database", "move it away", "tenure init"],
    );
}

#[test]
fn a_truncated_database() {
    let project = used();
    let whole = fs::read(project.database()).unwrap();
    for part in [whole.len() / 2, 4096, 100, 16] {
        fs::write(project.database(), &whole[..part]).unwrap();
        refused(&project, code(part), &["tenure.db", "move it away"]);
    }
    // A missing byte may go unnoticed, but it releases no lease.
    fs::write(project.database(), &whole[..whole.len() - 1]).unwrap();
    let run = project.call("run build --no-wait").sh("touch ran").end();
    assert!([1, 6].contains(&run.code), "{run:?}");
    fs::write(project.database(), &whole).unwrap();
    project.tenure("fence build --token 1").exits(0);
}

/// A file shorter than SQLite's header cannot be recognised as a database.
fn code(bytes: usize) -> &'static str {
    if bytes < 100 {
        "NOT_A_STORE"
    } else {
        "STORE_DAMAGED"
    }
}

#[test]
fn an_empty_database_file_is_not_mistaken_for_a_new_one() {
    // Otherwise tokens would restart at 1, and every lease would be silently forgotten.
    let project = used();
    fs::write(project.database(), "").unwrap();
    let run = project.call("run build --no-wait").sh("touch ran").end();
    assert!(!project.path("ran").exists(), "'me' holds the key: {run:?}");
    run.fails(1, &["tenure.db"]);
}

#[test]
fn a_folder_instead_of_a_database() {
    let project = used();
    fs::remove_file(project.database()).unwrap();
    fs::create_dir(project.database()).unwrap();
    refused(&project, "NOT_A_STORE", &["is a folder, not a database"]);
}

#[test]
fn a_database_of_a_newer_tenure() {
    let project = used();
    let db = rusqlite::Connection::open(project.database()).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    refused(
        &project,
        "STORE_TOO_NEW",
        &["newer tenure", "schema 99", "nothing was changed"],
    );
    let version: i32 = db
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 99);
}

#[test]
fn a_database_of_another_program() {
    let project = Project::new();
    let other = project.path("other.db");
    let db = rusqlite::Connection::open(&other).unwrap();
    db.execute_batch("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1);")
        .unwrap();
    drop(db);
    let before = fs::read(&other).unwrap();
    let said = project.tenure("run build --store sqlite:other.db -- touch ran");
    said.fails(1, &["other.db", "another program", "nothing was changed"]);
    assert!(!project.path("ran").exists());
    assert_eq!(fs::read(&other).unwrap(), before);
}

#[test]
fn a_store_in_a_folder_that_does_not_exist() {
    let project = Project::new();
    let said = project.tenure("run build --store sqlite:no/such/folder/x.db -- touch ran");
    said.fails(
        1,
        &[
            "no/such/folder/x.db",
            "can't be opened",
            "check that its folder exists",
        ],
    );
    assert!(!project.path("ran").exists());
}

#[test]
fn a_row_that_was_edited_by_hand() {
    let project = used();
    let db = rusqlite::Connection::open(project.database()).unwrap();
    for (column, value) in [
        ("binding", "{not json"),
        ("expires_at", "tomorrow"),
        ("expires_boot", "soon"),
        ("token", "x"),
    ] {
        let before: rusqlite::types::Value = db
            .query_row(
                &format!("SELECT {column} FROM leases WHERE key = 'build'"),
                [],
                |row| row.get(0),
            )
            .unwrap();
        let update = format!("UPDATE leases SET {column} = ?1 WHERE key = 'build'");
        db.execute(&update, [value]).unwrap();
        let run = project.call("run build --no-wait").sh("touch ran").end();
        assert!([1, 6].contains(&run.code), "{column}: {run:?}");
        assert!(!project.path("ran").exists(), "{column}");
        db.execute(&update, [before]).unwrap();
    }
    project.tenure("fence build --token 1").exits(0);
}

#[test]
fn a_writer_that_blocks_the_database_is_waited_for_and_then_reported() {
    let project = used();
    let db = rusqlite::Connection::open(project.database()).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let run = project.call("run build").sh("touch ran").start();
    let list = project.tenure("locks list").exits(0).out;
    assert!(list.contains("build"), "looking needs no writing: {list}");
    run.ended().fails(
        1,
        &[
            "tenure.db",
            "held by another program",
            "try again",
            "nothing was changed",
        ],
    );
    assert!(!project.path("ran").exists());
    db.execute_batch("COMMIT").unwrap();
    project.tenure("release build --as me").exits(0);
}

#[test]
fn a_read_only_database() {
    let project = used();
    let script = "mount --bind . . && mount -o remount,bind,ro . && cd \"$PWD\" || exit 99
        $TENURE run build --no-wait -- touch /dev/null/ran; echo run $?
        $TENURE run free --no-wait -- touch /dev/null/ran; echo run $?
        $TENURE acquire free --as me --json; echo acquire $?";
    let Some(said) = project.with_mounts(script) else {
        return;
    };
    let said = said.exits(0);
    assert!(said.out.starts_with("run 1\nrun 1\n"), "{said:?}");
    assert!(said.out.ends_with("acquire 1\n"), "{said:?}");
    assert!(said.err.contains("tenure.db"), "{said:?}");
    assert!(
        said.err.contains("no permission to write to") || said.err.contains("may be written"),
        "{said:?}"
    );
    assert!(
        !said.err.contains("/dev/null/ran"),
        "a command was run: {said:?}"
    );
}

#[test]
fn a_full_disk() {
    let project = Project::uninitialised();
    let script = "mount -t tmpfs -o size=400k none /mnt && cd /mnt && $TENURE init -q || exit 99
        token=$($TENURE acquire held --as me -q) || exit 98
        dd if=/dev/zero of=fill bs=1k count=1000 2> /dev/null
        $TENURE run build --no-wait -- echo ran; echo run $?
        $TENURE fence held --token $token --quiet; echo fence $?
        rm fill
        $TENURE run build --no-wait -- echo ran; echo run $?
        $TENURE fence held --token $token --quiet; echo fence $?";
    let Some(said) = project.with_mounts(script) else {
        return;
    };
    let said = said.exits(0);
    assert_eq!(
        said.out, "run 1\nfence 0\nran\nrun 0\nfence 0\n",
        "{said:?}"
    );
    assert!(
        said.err.contains("no space left") || said.err.contains("has space"),
        "{said:?}"
    );
}

#[test]
fn a_database_with_two_names_is_refused() {
    let project = used();
    fs::hard_link(project.database(), project.path("second.db")).unwrap();
    let words = ["has 2 names (hard links)", "remove them"];
    refused(&project, "NOT_A_STORE", &words);
    let said = project.tenure("run build --store sqlite:second.db -- touch ran");
    said.fails(1, &words);
    assert!(!project.path("second.db-live").exists());
    fs::remove_file(project.path("second.db")).unwrap();
    project.tenure("fence build --token 1").exits(0);
}

#[test]
fn a_path_that_is_too_long_for_sqlite_is_called_so() {
    let project = Project::uninitialised();
    let mut folder = project.root();
    while folder.as_os_str().len() < 490 {
        folder.push("d".repeat(100));
    }
    fs::create_dir_all(&folder).unwrap();
    let said = project.call("init").within(&folder).end();
    said.fails(2, &["tenure.db has a path of", "up to 504", "shorter path"]);
    let said = project.call("init --json").within(&folder).end().exits(2);
    assert_eq!(said.error(), "UNSUPPORTED");
    assert!(!folder.join(".tenure/tenure.db").exists());
    // SQLite follows the link.
    std::os::unix::fs::symlink(folder.join("x.db"), project.path("link.db")).unwrap();
    let said = project.tenure("run build --store sqlite:link.db -- touch ran");
    said.fails(2, &["link.db has a path of", "up to 504"]);
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_not_a_signal() {
    let project = used();
    for words in ["run build -- touch ran", "locks list"] {
        // The answer goes through a pipe: a file would be limited, too.
        let script = format!("{{ (ulimit -f 0; exec $TENURE {words}); echo code $?; }} 2>&1 | cat");
        let said = project.shell(&script).end().exits(0).out;
        for word in [
            "limited to 0 bytes (ulimit -f)",
            "raise the limit",
            "code 1\n",
        ] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    assert!(!project.path("ran").exists());
    // The command has the default.
    let said = project.call("run free").sh("kill -XFSZ $$; echo alive");
    assert_eq!(said.end().exits(128 + 25).out, "");
}

#[test]
fn a_small_stack_is_enough() {
    let project = Project::new();
    for words in [
        "run build -- sh -c 'echo $TENURE_KEY'",
        "locks list",
        "tasks list",
        "--help",
    ] {
        let script = format!("ulimit -s 64 && exec $TENURE {words}");
        project.shell(&script).end().exits(0);
    }
}

#[test]
fn a_mapped_file_that_can_not_be_used_ends_the_command_with_a_message() {
    let project = Project::new();
    let mut run = project.hold("run build --ttl 1h");
    // A full disk has the same effect on a file system with blocks of 1 KB.
    let mapped = project.path(".tenure/tenure.db-shm");
    fs::File::options()
        .write(true)
        .open(mapped)
        .unwrap()
        .set_len(0)
        .unwrap();
    run.let_go();
    run.ended()
        .fails(1, &["could not be used (SIGBUS)", "no space is left"]);
    project.tenure("run build -- true").exits(0);
}

#[test]
fn a_malformed_task_is_shown_with_its_problem_and_spoils_no_other() {
    for (column, value, says) in [
        (
            "created_at",
            "yesterday",
            "created_at \"yesterday\" is not a time",
        ),
        ("priority", "high", "priority \"high\" is not a number"),
        ("status", "wip", "status \"wip\" is not a status"),
        (
            "attempts",
            "-3",
            "attempts \"-3\" is not a number of 0 or more",
        ),
        ("title_at", "never", ""),
        ("status", "\u{ff}", "status \"�\" is not a status"),
        ("id", "*", "id \"*\" is not an id"),
        ("id", "", "id \"\" is not an id"),
        ("id", "\u{ff}", "id \"�\" is not an id"),
    ] {
        let project = Project::new();
        let mut git = project.program("git");
        git.args(["init", "-q"]);
        project.prepare(git).end().exits(0);
        for title in ["Bad", "Good"] {
            project.tenure(&format!("tasks add {title}")).exits(0);
        }
        let db = rusqlite::Connection::open(project.database()).unwrap();
        // Bytes that are no text, for one letter that stands for them.
        let value = if value == "\u{ff}" {
            "x'ff'".into()
        } else {
            format!("'{value}'")
        };
        let sql = format!("UPDATE tasks SET {column} = {value} WHERE title = 'Bad'");
        db.execute(&sql, []).unwrap();

        let list = project.tenure("tasks list").exits(0).out;
        let bad = list.lines().find(|line| line.ends_with("Bad")).unwrap();
        assert_eq!(bad.contains("malformed"), !says.is_empty(), "{list}");
        assert!(bad.contains(says), "{column}: {list}");
        assert!(list.lines().any(|line| line.ends_with("Good")), "{list}");
        project.tenure("tasks show Bad").exits(0);
        let lines = project.tenure("tasks export").exits(0).out;
        assert_eq!(lines.lines().count(), 2, "{column}: {lines}");
        assert!(!lines.contains("1970"), "{lines}");
        project.tenure("sync").exits(0);
        // A runner gets a task. One that was added at a time that can't be read comes after the others.
        let first = project.tenure("tasks next --as a").exits(0).out;
        let passed_over = matches!(column, "created_at" | "priority" | "status" | "id");
        assert_eq!(first.contains("Good"), passed_over, "{column}: {first}");
        project.tenure("tasks done Good --as a").exits(0);
    }
}

#[test]
fn a_malformed_section_or_runner_spoils_no_list_and_no_grant() {
    for sql in [
        "UPDATE sections SET name = x'ff'",
        "UPDATE sections SET id = x'ff'",
        "INSERT INTO sections (id, name) VALUES (NULL, 'bad')",
        "UPDATE tasks SET runner = x'ff', lost = x'ff'",
    ] {
        let project = Project::new();
        let mut git = project.program("git");
        git.args(["init", "-q"]);
        project.prepare(git).end().exits(0);
        project.tenure("tasks add Good").exits(0);
        project.tenure("sections add Part").exits(0);
        let db = rusqlite::Connection::open(project.database()).unwrap();
        assert_eq!(db.execute(sql, []).unwrap(), 1, "{sql}");
        for words in ["sections list", "tasks list", "tasks export", "sync"] {
            let said = project.tenure(words);
            assert_eq!(said.code, 0, "{sql}: {words}: {said:?}");
        }
        project.tenure("tasks next --as a").exits(0);
        project.tenure("tasks done Good --as a").exits(0);
    }
}

#[test]
fn a_damaged_row_of_a_lock_is_named_and_spoils_nothing_else() {
    let values = [
        ("leases", "mode = 'garbage'"),
        ("leases", "binding = '{'"),
        ("leases", "token = -1"),
        ("leases", "expires_at = 'never'"),
        ("tickets", "mode = 'garbage'"),
        ("history", "at = 'then'"),
        ("history", "evidence = '{'"),
    ];
    for (table, damage) in values {
        let project = Project::new();
        let mut git = project.program("git");
        git.args(["init", "-q"]);
        project.prepare(git).end().exits(0);
        project.tenure("tasks add Good").exits(0);
        project.tenure("acquire build --as me --ttl 1h").exits(0);
        project.tenure("acquire other --as me --ttl 1h").exits(0);
        let waits = project.queue("build", "run build --as w -- true");
        let db = rusqlite::Connection::open(project.database()).unwrap();
        let sql = format!("UPDATE {table} SET {damage} WHERE key = 'build'");
        assert_eq!(db.execute(&sql, []).unwrap(), 1, "{sql}");

        let row = format!("row 1 of {table} (key \"build\") can't be understood: ");
        for words in [
            "locks list",
            "locks list --all",
            "locks show build",
            "locks show other",
            "locks history",
            "why build",
            "why other",
            "status",
            "timeline",
            "tasks list",
            "sync",
            "locks cleanup",
        ] {
            let said = project.tenure(words);
            assert_eq!(said.code, 0, "{sql}: {words}: {said:?}");
        }
        let looks = match table {
            "history" => ["locks history", "timeline"],
            _ => ["locks list", "locks show build"],
        };
        for look in looks {
            let said = project.tenure(look).exits(0).out;
            assert!(said.contains(&row), "{sql}: {look}: {said}");
        }
        let examined = project.tenure("doctor --json").exits(1).out;
        assert!(
            examined.contains(&format!("row 1 of {table}")),
            "{examined}"
        );
        // Everything else goes on.
        project.tenure("tasks next --as a").exits(0);
        project.tenure("tasks done Good --as a").exits(0);
        project.tenure("release other --as me").exits(0);
        let said = project
            .tenure("acquire build --as bob --no-wait")
            .fails(6, &[]);
        if table == "leases" {
            assert!(said.err.contains(&row), "{sql}: {said:?}");
            let end = "to end it by force: tenure ";
            let end = said
                .err
                .lines()
                .find_map(|line| line.trim().strip_prefix(end));
            let end = end.unwrap().replace('\'', "");
            project.tenure(&format!("{end} --as boss")).exits(0);
        } else {
            let repaired = project.tenure("store repair").exits(0).out;
            assert!(repaired.contains(&format!("removed: {row}")), "{repaired}");
            project.tenure("release build --as me").exits(0);
        }
        waits.ended();
        project.tenure("acquire build --as bob").exits(0);
        let examined = project.tenure("doctor --json").out;
        assert!(
            !examined.contains(" can't be understood"),
            "{sql}: {examined}"
        );
    }
}
