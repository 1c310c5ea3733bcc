//! Wrong input is refused with an exit code and a way out, and changes nothing.

use crate::project;

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;

use project::Project;

/// A call that must be refused: the words before and after the wrong one, the wrong one, the code for
/// programs, and texts that the message for people must contain.
struct Bad<'a>(&'a str, &'a str, &'a str, &'a [&'a str]);

#[track_caller]
fn refused(project: &Project, cases: &[Bad<'_>]) {
    for Bad(words, odd, code, said) in cases {
        let call = |flag: &str| {
            let call = project.call(words).arg(odd);
            let call = if flag.is_empty() {
                call
            } else {
                call.arg(flag)
            };
            if words.starts_with("run") {
                call.sh("touch ran")
            } else {
                call
            }
        };
        let text = call("").end().fails(2, said);
        assert_eq!(text.out, "", "{words} {odd:?}");
        let json = call("--json").end().exits(2);
        assert_eq!(json.error(), *code, "{words} {odd:?}");
        assert!(!project.path("ran").exists(), "{words} {odd:?}");
    }
    assert_eq!(
        project.tenure("locks history").exits(0).out,
        "No events yet.\n"
    );
}

#[test]
fn a_key_must_be_printable() {
    let project = Project::new();
    let long = "k".repeat(256);
    let wide = "é".repeat(128);
    let names: [(&str, &[&str]); 9] = [
        ("", &["key is empty", "build"]),
        ("   ", &["key is empty"]),
        ("two\nlines", &["control character", "\\n"]),
        ("bell\u{7}", &["control character"]),
        ("esc\u{1b}[2J", &["control character"]),
        (" padded", &["white space"]),
        (&long, &["256 bytes", "at most 255"]),
        (&wide, &["256 bytes"]),
        ("task:", &["empty", "task:42"]),
    ];
    let hidden: [(&str, &[&str]); 3] = [
        (
            "a\u{202e}b",
            &["key has an invisible character", "\\u{202e}", "byte 1"],
        ),
        ("a\u{2066}b", &["invisible character"]),
        ("a\u{200b}b", &["invisible character"]),
    ];
    for verb in ["run", "acquire"] {
        let cases = hidden.map(|(name, said)| Bad(verb, name, "BAD_NAME", said));
        refused(&project, &cases);
    }
    for verb in ["run", "acquire", "renew", "release", "fence --token 1"] {
        let cases: Vec<Bad<'_>> = names
            .iter()
            .map(|(name, said)| Bad(verb, name, "BAD_NAME", said))
            .collect();
        refused(&project, &cases);
    }
}

#[test]
fn a_holder_must_be_printable() {
    let project = Project::new();
    let long = "h".repeat(256);
    for words in ["run build --as", "acquire build --as"] {
        refused(
            &project,
            &[
                Bad(words, "", "BAD_NAME", &["holder is empty", "--as agent-1"]),
                Bad(words, "a\nb", "BAD_NAME", &["holder", "control character"]),
                Bad(words, "a\u{202e}b", "BAD_NAME", &["holder", "invisible"]),
                Bad(words, &long, "BAD_NAME", &["holder", "256 bytes"]),
            ],
        );
    }
}

#[test]
fn invisible_characters_in_names_on_record_are_shown_escaped_and_can_be_released() {
    let project = Project::new();
    project.acquire("build --as me");
    let waiter = project.queue("build", "acquire build --as other --wait 10m");
    let db = rusqlite::Connection::open(project.database()).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    // As an earlier version wrote it.
    db.execute_batch(
        "UPDATE leases SET key = 'b' || char(0x202e) || 'x', holder = 'm' || char(0x200b);
         UPDATE history SET key = 'b' || char(0x202e) || 'x', holder = 'm' || char(0x200b);",
    )
    .unwrap();
    let title = "tidy \u{202e}up 👩\u{200d}🚀";
    project.call("tasks add").arg(title).end().exits(0);
    for words in ["locks list", "locks show b\u{202e}x", "locks history"] {
        let said = project.tenure(words).exits(0).out;
        assert!(said.contains("b\\u{202e}x"), "{words}: {said}");
        assert!(said.contains("m\\u{200b}"), "{words}: {said}");
        assert!(!said.contains(['\u{202e}', '\u{200b}']), "{words}: {said}");
    }
    let listed = project.tenure("tasks list").exits(0).out;
    assert!(listed.contains("tidy \\u{202e}up 👩\u{200d}🚀"), "{listed}");
    // JSON is for programs.
    let json = project.tenure("tasks list --json").exits(0).json();
    assert_eq!(json["data"]["tasks"][0]["title"], title);
    let busy = project.tenure("renew b\u{202e}x --as you").exits(5).err;
    assert!(!busy.contains(['\u{202e}', '\u{200b}']), "{busy}");
    project.tenure("release b\u{202e}x --as m\u{200b}").exits(0);
    drop(waiter);
}

#[test]
fn the_longest_and_the_oddest_names_that_are_allowed_work_everywhere() {
    let project = Project::new();
    let long = "k".repeat(255);
    for key in [
        long.as_str(),
        "with space",
        "ünïcödé 🔑",
        "a'b\"c$d`e;f",
        "-",
        "%s%n",
        "../../etc/passwd",
        "*",
    ] {
        let call = |words: &str| {
            project
                .call(words)
                .arg("--as")
                .arg("me")
                .arg("--")
                .arg(key)
                .end()
        };
        call("acquire").exits(0);
        call("renew").exits(0);
        assert!(
            project.tenure("locks list").exits(0).out.contains(key),
            "{key}"
        );
        call("locks show").exits(0);
        call("release").exits(0);
        call("locks history").exits(0);
    }
}

#[test]
fn a_time_to_live_must_be_valid() {
    let project = Project::new();
    for words in [
        "run build --ttl",
        "acquire build --ttl",
        "renew build --ttl",
    ] {
        refused(
            &project,
            &[
                Bad(words, "0s", "BAD_TTL", &["0s", "between 100ms and 30d"]),
                Bad(words, "1ms", "BAD_TTL", &["between 100ms and 30d"]),
                Bad(words, "31d", "BAD_TTL", &["31d", "between 100ms and 30d"]),
                Bad(words, "-5s", "USAGE", &["-5s", "negative"]),
                Bad(words, "99999999999d", "USAGE", &["too long"]),
                Bad(
                    words,
                    "soon",
                    "USAGE",
                    &["not a duration", "30s, 5m or 1h30m"],
                ),
                Bad(words, "30", "USAGE", &["30 what?", "30s"]),
                Bad(words, "", "USAGE", &["--ttl"]),
                Bad(words, "1mo", "USAGE", &["months"]),
            ],
        );
    }
}

#[test]
fn a_wait_and_a_priority_must_be_valid() {
    let project = Project::new();
    refused(
        &project,
        &[
            Bad("run build --wait", "-5s", "USAGE", &["negative"]),
            Bad("run build --wait", "later", "USAGE", &["not a duration"]),
            Bad(
                "run build --wait",
                "9999999999999999999999d",
                "USAGE",
                &["too long"],
            ),
            Bad(
                "run build --priority",
                "10",
                "USAGE",
                &["0 (low) to 9 (high)"],
            ),
            Bad(
                "run build --priority",
                "high",
                "USAGE",
                &["0 (low) to 9 (high)"],
            ),
            Bad(
                "acquire build --priority=-1",
                "--no-wait",
                "USAGE",
                &["0 (low) to 9 (high)"],
            ),
            Bad("fence build --token", "abc", "USAGE", &["--token"]),
            Bad("fence build --token=-1", "--quiet", "USAGE", &["--token"]),
        ],
    );
}

#[test]
fn an_unknown_store_is_named_with_one_that_is_known() {
    let project = Project::new();
    for words in [
        "run build --store",
        "acquire build --store",
        "locks list --store",
    ] {
        refused(
            &project,
            &[
                Bad(
                    words,
                    "redis://localhost",
                    "BAD_STORE",
                    &["redis://localhost", "sqlite:.tenure/tenure.db"],
                ),
                Bad(
                    words,
                    "/some/path.db",
                    "BAD_STORE",
                    &["sqlite:.tenure/tenure.db"],
                ),
                Bad(words, "sqlite:", "BAD_STORE", &["names no file"]),
                Bad(words, "", "BAD_STORE", &["sqlite:.tenure/tenure.db"]),
            ],
        );
    }
}

#[test]
fn unknown_words_are_usage_errors() {
    let project = Project::new();
    for words in [
        "frobnicate",
        "run",
        "acquire",
        "locks frobnicate",
        "release",
        "fence build",
        "run build --frob -- true",
        "completions tcsh",
        "init extra",
        "--frob",
    ] {
        let said = project.tenure(words).exits(2);
        assert!(
            !said.err.is_empty() && said.out.is_empty(),
            "{words}: {said:?}"
        );
        let json = project.tenure(&format!("--json {words}")).exits(2);
        assert_eq!(json.error(), "USAGE", "{words}");
        assert_eq!(json.err, "", "{words}");
    }
    // After -- it belongs to the command.
    let said = project.tenure("run -- echo --json").exits(2);
    assert_eq!(said.out, "");
    project
        .tenure("man frobnicate")
        .fails(2, &["frobnicate", "acquire, renew, release"]);
}

#[test]
fn arguments_that_are_not_utf_8_are_refused() {
    let project = Project::new();
    let odd = OsStr::from_bytes(b"k\xff");
    for words in [
        "run",
        "acquire",
        "release",
        "acquire build --as",
        "acquire build --ttl",
        "locks show",
        "man",
    ] {
        let call = project.call(words).arg(odd);
        let call = if words == "run" {
            call.sh("true")
        } else {
            call
        };
        let said = call.end().exits(2);
        assert!(said.err.contains("UTF-8"), "{words}: {said:?}");
    }
    // The path of a store may have any bytes.
    project
        .call("locks list --store")
        .arg(odd)
        .end()
        .fails(2, &["sqlite:.tenure/tenure.db"]);
    let store = OsStr::from_bytes(b"sqlite:k\xff.db");
    project
        .call("acquire build --no-wait --store")
        .arg(store)
        .end()
        .exits(0);
    assert!(
        project
            .path("")
            .join(OsStr::from_bytes(b"k\xff.db"))
            .is_file()
    );
    project
        .call("acquire build")
        .env("TENURE_HOLDER", odd)
        .end()
        .exits(2);
    project
        .call("locks list")
        .env("TENURE_LOCKING_WAIT_TIMEOUT", odd)
        .end()
        .exits(2);
    project
        .call("run build")
        .env("HOME", odd)
        .env("USER", odd)
        .sh("true")
        .end()
        .exits(0);
}

#[test]
fn a_strange_login_name_does_not_matter() {
    // The user did not choose this holder's name, so the user cannot correct it.
    let project = Project::new();
    for user in ["", "a\nb", " ", &"u".repeat(300)] {
        project
            .call("run build")
            .env("USER", user)
            .sh("true")
            .end()
            .exits(0);
        project
            .call("acquire build")
            .env("USER", user)
            .end()
            .exits(0);
        project.tenure("force build").exits(0);
    }
}

#[test]
fn an_empty_holder_in_the_environment_counts_as_none() {
    // As an empty TENURE_LOCKING_WAIT_TIMEOUT does: some tools cannot unset a variable.
    let project = Project::new();
    project
        .call("run build")
        .env("TENURE_HOLDER", "")
        .sh("true")
        .end()
        .exits(0);
    project
        .call("acquire build")
        .env("TENURE_HOLDER", "")
        .end()
        .exits(0);
}

#[test]
fn a_command_that_runs_under_a_lease_may_pass_any_arguments() {
    let project = Project::new();
    for within in ["", ",", "abc", "1,2,,x", "99999999999999999999999999"] {
        project
            .call("run build")
            .env("TENURE_PARENT_LEASES", within)
            .sh("true")
            .end()
            .exits(0);
    }
}

#[test]
fn a_store_in_memory_is_refused_because_no_other_command_would_see_it() {
    let project = Project::new();
    project
        .tenure("run build --store memory: -- true")
        .fails(2, &["memory:", "one process", "store on disk"]);
}

#[test]
fn a_store_that_does_not_exist_is_a_typing_error_to_all_but_commands_that_add() {
    let project = Project::uninitialised();
    for words in [
        "locks list",
        "locks show build",
        "locks history",
        "locks cleanup",
        "force build",
        "release build",
        "renew build",
        "fence build --token 1",
        "tasks list",
        "tasks show x",
        "tasks export",
        "tasks next",
        "tasks update x --priority 3",
        "tasks delete x",
        "sections list",
    ] {
        let said = project.tenure(&format!("{words} --store sqlite:typo.db"));
        said.fails(4, &["there is no store", "typo.db: check the path"]);
        let said = project.tenure(&format!("{words} --store sqlite:no/where.db"));
        said.fails(4, &["does not exist; check the path"]);
    }
    assert_eq!(std::fs::read_dir(project.root()).unwrap().count(), 0);
    project
        .tenure("acquire build --store sqlite:new.db --as me")
        .exits(0);
    project.tenure("locks list --store sqlite:new.db").exits(0);
}

#[test]
fn a_file_that_is_no_store_is_not_to_be_moved_away() {
    let project = Project::uninitialised();
    let text = "root:x:0:0\n".repeat(200);
    project.write("passwd", &text);
    for words in ["locks list", "acquire build", "run build -- true"] {
        let said = project.tenure(&format!("--store sqlite:passwd {words}"));
        let said = said.fails(1, &["is not a database", "check the path"]);
        assert!(!said.err.contains("move"), "{said:?}");
    }
    assert_eq!(project.read("passwd"), text);
    assert_eq!(std::fs::read_dir(project.root()).unwrap().count(), 1);
}

#[test]
fn no_limit_on_open_files_makes_a_command_panic() {
    let project = Project::new();
    for limit in 3..24 {
        let script = format!("ulimit -n {limit}; exec $TENURE acquire key-{limit} --ttl 1h");
        let said = project.shell(&script).end();
        assert!(!said.err.contains("panicked"), "{limit}: {said:?}");
        assert_ne!(said.code, 101, "{limit}: {said:?}");
    }
}

#[test]
fn an_address_that_can_t_be_parsed_shows_no_part_of_a_password() {
    let project = Project::new();
    for address in [
        "etcd://ci:topsecret/x@127.0.0.1:1/p",
        "etcd://ci:topsecret?x@127.0.0.1:1/p",
        "etcd://ci:1/topsecret@127.0.0.1:1/p",
        "etcd://ci:1?topsecret@127.0.0.1:1/p",
        "etcd://ci:x@topsecret/x@127.0.0.1:1/p",
        "etcd:ci:topsecret@127.0.0.1:1/p",
        "ci:topsecret@127.0.0.1:1/p",
    ] {
        for words in [
            "run k -- true",
            "doctor",
            "config show",
            "config show --json",
            "locks list --json",
            "hook claude-code",
        ] {
            let call = project.call(words).env("TENURE_STORE", address).input();
            let mut call = call.start();
            let input = format!(
                "{{\"session_id\":\"s\",\"hook_event_name\":\"PreToolUse\",\"cwd\":{:?},\
                 \"tool_name\":\"Edit\",\"tool_input\":{{\"file_path\":\"a\"}}}}",
                project.root()
            );
            // A command that reads nothing may have ended.
            let _ = call.stdin.take().unwrap().write_all(input.as_bytes());
            let said = call.ended();
            assert!(
                !format!("{said:?}").contains("topsecret"),
                "{words}: {said:?}"
            );
        }
    }
}
