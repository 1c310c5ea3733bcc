//! Text from others never reaches a terminal or a model raw: every command that shows text is run on a project
//! whose names, reasons, titles, records and files are full of control and invisible characters.

use crate::project;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;

use project::{Project, Running, Said};
use serde_json::{Value, json};
use tenure::text::is_hidden;

/// Sets the window's title, clears the screen, hides, in C1 as well; turns the text round, goes back over it, and
/// forges a line.
const HOSTILE: &str = "evil\x1b]0;title\x07\x1b[2J\x1b[8m\u{9b}2J\u{202e}live\u{200b}\rover\x7f\x08\nFORGED: all is well\u{85}";

/// The same for where a line break ends the text.
fn on_one_line() -> String {
    HOSTILE.replace('\n', "-")
}

/// Commands that show nothing that another user or program wrote, or can't be run here to their end.
const LEFT_OUT: [&str; 7] = [
    "completions",
    "man",
    "shell-lib",
    // Its output is JSON, for a program.
    "tasks export",
    // They are the same process and the same answers as the commands beside them.
    "daemon run",
    "daemon start",
    "daemon stop",
];

/// The colours that tenure itself uses.
const COLOURS: [&str; 10] = [
    "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[4m", "\x1b[22m", "\x1b[31m", "\x1b[32m", "\x1b[33m",
    "\x1b[36m", "\x1b[39m",
];

/// What of this text must not be shown.
fn harm(what: &str, text: &str) -> Option<String> {
    let mut left = text.to_owned();
    for colour in COLOURS {
        left = left.replace(colour, "");
    }
    let bad = |c: char| is_hidden(c) || (c.is_control() && !matches!(c, '\n' | '\t'));
    let forges = |line: &str| line.starts_with("FORGED");
    (left.contains(bad) || left.lines().any(forges)).then(|| format!("{what}: {text:?}"))
}

struct Hostile {
    project: Project,
    run: BTreeSet<String>,
    shown: usize,
    problems: Vec<String>,
}

impl Hostile {
    /// Runs a command; a word `@` is the hostile text on one line, as the caller's own words are. Colours are forced,
    /// because text that is not for a terminal loses its escape sequences.
    #[track_caller]
    fn says(&mut self, words: &str) -> Said {
        let mut call = self.project.call("").env("CLICOLOR_FORCE", "1");
        for word in words.split_whitespace() {
            call = call.arg(word.replace('@', &on_one_line()));
        }
        let said = call.end();
        self.problems.extend(harm(words, &said.out));
        self.problems.extend(harm(words, &said.err));
        let both = format!("{}{}", said.out, said.err);
        self.shown += usize::from(both.contains("\\u{1b}"));
        let name: Vec<&str> = words.split(' ').collect();
        self.run.insert(name.first().unwrap().to_string());
        self.run
            .insert(name.iter().take(2).copied().collect::<Vec<_>>().join(" "));
        said
    }

    /// Gives a hook its input. All texts in its answer are for a model.
    #[track_caller]
    fn hook(&mut self, agent: &str, input: &Value) -> String {
        let call = self.project.call(&format!("hook {agent}")).input();
        let mut hook: Running = call.start();
        let mut stdin = hook.stdin.take().unwrap();
        // A hook that does not read its input has decided already.
        let _ = stdin.write_all(input.to_string().as_bytes());
        drop(stdin);
        let said = hook.ended();
        self.run.insert("hook".to_owned());
        self.problems.extend(harm(agent, &said.err));
        let mut all = said.err.clone();
        if !said.out.trim().is_empty() {
            let mut left = vec![said.json()];
            while let Some(value) = left.pop() {
                match value {
                    Value::String(text) => {
                        self.problems.extend(harm(agent, &text));
                        all.push_str(&text);
                    }
                    Value::Array(inside) => left.extend(inside),
                    Value::Object(inside) => left.extend(inside.into_iter().map(|(_, it)| it)),
                    _ => {}
                }
            }
        }
        all
    }
}

/// A repository with everything that others can write into.
fn hostile() -> Hostile {
    let project = Project::uninitialised();
    let git = |words: &[&str]| {
        let said = project.program("git").args(words).output().unwrap();
        assert!(said.status.success(), "{words:?}: {said:?}");
    };
    git(&["init", "-q"]);
    git(&["config", "user.name", &on_one_line()]);
    git(&["config", "user.email", "a@example.org"]);
    project.tenure("init --quiet").exits(0);
    project.write("file", "one\n");
    git(&["add", "file"]);
    git(&["commit", "-q", "-m", HOSTILE]);
    project.tenure("guard install").exits(0);

    project.acquire("build --as holder");
    project
        .call("reserve --as other --why")
        .arg(HOSTILE)
        .arg("src/**")
        .arg("file")
        .end()
        .exits(0);
    project.tenure("reserve --as other docs/**").exits(0);
    project.tenure("acquire gone --as other --ttl 1h").exits(0);
    let forced = project.call("force gone --as me --reason").arg(HOSTILE);
    let _ = forced.end();
    project.tenure("ask build --as me --note please").exits(0);
    project.tenure("tasks add one").exits(0);
    project.tenure("tasks add two").exits(0);
    project.tenure("sections add part").exits(0);
    let _ = project.tenure("sync");
    let db = rusqlite::Connection::open(project.database()).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    let line = on_one_line();
    for sql in [
        "UPDATE leases SET host = ?1",
        "UPDATE leases SET command = ?1",
        "UPDATE history SET reason = ?1 WHERE kind NOT IN ('granted')",
        "UPDATE tasks SET title = ?1, description = ?1, last_error = ?1, attempts = 1",
        "UPDATE sections SET name = ?1",
    ] {
        db.execute(sql, [HOSTILE]).unwrap();
    }
    let sql = "INSERT INTO leases SELECT key, token + 200, holder, host, command, binding, acquired_at, expires_at, \
               heartbeat_at, ttl_ms, boot, expires_boot, mode || ?1, slot FROM leases WHERE key = 'paths'";
    db.execute(sql, [&line]).unwrap();
    drop(db);

    fs::create_dir(project.path(".beads")).unwrap();
    let lock = json!({ "holder": HOSTILE, "pid": std::process::id(), "hostname": HOSTILE,
        "started_at": "2025-10-25T12:00:00Z", "version": HOSTILE });
    project.write(".beads/.exclusive-lock", &lock.to_string());

    project.tenure("ledger init").exits(0);
    let event = json!({ "type": "note", "timestamp": "2026-01-01T00:00:00Z", "text": HOSTILE });
    let _ = project.call("ledger append").arg(event.to_string()).end();
    let lock = json!({ "agent_id": HOSTILE, "acquired_at": "2026-01-01T00:00:00Z", "pid": std::process::id(),
        "hostname": HOSTILE });
    project.write("ledger/ledger.lock", &lock.to_string());

    fs::create_dir_all(project.path(".bilu/board/tasks")).unwrap();
    fs::create_dir_all(project.path(".bilu/storage")).unwrap();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = folder.join("tests/fixtures/board/board/config.json");
    fs::copy(config, project.path(".bilu/board/config.json")).unwrap();
    for (name, status) in [
        ("good".to_owned(), "TODO"),
        (line.replace('/', "-"), line.as_str()),
    ] {
        let text = crate::board_project::text(&line, status, "HIGH");
        project.write(&format!(".bilu/board/tasks/{name}.md"), &text);
    }
    project.write(&format!("{}.lock", line.replace('/', "-")), "");
    let log = project.state().join("daemon.log");
    fs::write(log, format!("2026-01-01T00:00:00.000Z {line}\n{line}\n")).unwrap();
    Hostile {
        project,
        run: BTreeSet::new(),
        shown: 0,
        problems: Vec::new(),
    }
}

#[test]
fn no_command_shows_control_characters_of_others() {
    let mut hostile = hostile();
    // What only looks.
    for words in [
        "status",
        "status --as other",
        "locks",
        "locks list",
        "locks list --all",
        "locks show build",
        "locks show paths",
        "locks history",
        "locks history gone",
        "locks verify",
        "locks list --store exclusive:.beads",
        "locks list --store ledger:.",
        "why build",
        "why file",
        "why database --store exclusive:.beads",
        "timeline",
        "timeline --svg",
        "doctor",
        "reservations",
        "check file --as me",
        "check @ --as me",
        "tasks",
        "tasks list",
        "tasks show @",
        "sections",
        "sections list",
        "sync log",
        "sync status",
        "config show",
        "config path",
        "daemon status",
        "daemon logs",
        "store check",
        "guard status",
        "files",
        "files list",
        "exclusive status",
        "ledger log",
        "ledger verify",
        "ledger claims",
        "board list",
        "board list --view kanban",
        "board list --view table",
        "board list --view tsv",
        "board validate",
        "setup --check",
        "fence build --token 1",
        "@",
        "locks @",
        "run build --ttl @ -- true",
    ] {
        hostile.says(words);
    }
    // What is refused or waits, and what is changed.
    for words in [
        "run build --no-wait --as me -- true",
        "run build --wait 10ms --as me -- true",
        "run @ -- true",
        "run free -- @",
        "acquire build --no-wait --as me",
        "acquire build --no-wait --as @",
        "renew build --as me",
        "release build --as me",
        "ask build --as me --note @",
        "ask file --as me",
        "fence @ --token 1",
        "reserve file --no-wait --as me",
        "reserve @ --as me",
        "reserve --extend --as other",
        "unreserve nothing --as other",
        "exclusive acquire",
        "exclusive release",
        "exclusive run --no-wait -- true",
        "ledger claim 1 --as me",
        "ledger refresh 1 --as me",
        "ledger release 1 --as me",
        "ledger append {}",
        "ledger reap",
        "ledger break-lock",
        "ledger init",
        "board set-status good @",
        "board set-status @ TODO",
        "board set-priority good @",
        "board migrate",
        "board rebuild-index",
        "store repair @",
        "store copy @",
        "guard receive",
        "locks cleanup",
        "force nothing --as me",
        "force @",
        "tasks add @",
        "tasks next --as me",
        "tasks done @ --as me",
        "tasks fail @ --as me",
        "tasks update @ --title x",
        "tasks renew @ --as me",
        "tasks release @ --as me",
        "tasks delete @",
        "tasks import @",
        "tasks work --as me --once -- false",
        "sections add @",
        "sections rm @",
        "sync",
        "sync restore @",
        "files list @",
        "files restore @",
        "init @",
        "setup @",
        "guard uninstall",
        "guard install",
    ] {
        hostile.says(words);
    }
    let project = &hostile.project;
    project.acquire("late --as first");
    let watch = project.call("watch").env("CLICOLOR_FORCE", "1").start();
    project::until("watch begins", || watch.out().contains("sqlite:"));
    let force = project.call("force late --as third --reason");
    force.arg(HOSTILE).end().exits(0);
    project::until("watch shows it", || watch.out().contains("third"));
    hostile.problems.extend(harm("watch", &watch.out()));
    drop(watch);
    hostile.run.insert("watch".to_owned());

    let root = hostile.project.root();
    let path = root.join("src").join(on_one_line().replace('/', "-"));
    for file in [root.join("file"), path] {
        let claude = json!({ "session_id": "s", "cwd": root, "hook_event_name": "PreToolUse", "tool_name": "Edit",
            "tool_input": { "file_path": file, "content": "x" } });
        let said = hostile.hook("claude-code", &claude);
        assert!(said.contains("\\u{1b}"), "{said}");
        let cursor = json!({ "conversation_id": "k", "workspace_roots": [root], "hook_event_name": "preToolUse",
            "tool_name": "Write", "tool_input": { "file_path": file, "content": "x" } });
        hostile.hook("cursor", &cursor);
    }
    for odd in [
        json!({ "session_id": HOSTILE, "cwd": root, "hook_event_name": "PreToolUse", "tool_name": "Edit",
            "tool_input": { "file_path": root.join("file") } }),
        json!({ "session_id": "s", "cwd": HOSTILE, "hook_event_name": "PreToolUse", "tool_name": HOSTILE,
            "tool_input": { "file_path": HOSTILE } }),
        json!({ "session_id": "s", "cwd": root, "hook_event_name": HOSTILE, "tool_name": "Edit" }),
        json!(HOSTILE),
    ] {
        hostile.hook("claude-code", &odd);
    }

    // A shell command of one session that destroys or changes what another one has written.
    let event = |session: &str, name: &str, tool: &str, input: Value| {
        json!({ "session_id": session, "cwd": root, "hook_event_name": name, "tool_name": tool, "tool_use_id": "1",
            "tool_input": input })
    };
    let mine = || json!({ "file_path": root.join("mine") });
    hostile.hook("claude-code", &event("w", "PreToolUse", "Edit", mine()));
    hostile.project.write("mine", "mine");
    hostile.hook("claude-code", &event("w", "PostToolUse", "Edit", mine()));
    let line = |line: &str| json!({ "command": format!("{line} # {}", on_one_line()) });
    let stash = event("x", "PreToolUse", "Bash", line("git stash -u"));
    let said = hostile.hook("claude-code", &stash);
    assert!(said.contains("tenure allow"), "{said}");
    let said = hostile.says("allow");
    assert!(said.out.contains("\\u{1b}"), "{said:?}");
    hostile.says("allow @");
    for name in ["PreToolUse", "PostToolUse"] {
        hostile.hook("claude-code", &event("x", name, "Bash", line("make")));
        hostile.project.write("mine", "made");
    }
    let said = hostile.hook("claude-code", &event("w", "PostToolUse", "Read", mine()));
    assert!(
        said.contains("\\u{1b}") && said.contains("changed your mine"),
        "{said}"
    );

    // Git's own output is not ours, so only the guard's part is looked at.
    let commit =
        "echo two > file && git add file && TENURE_HOLDER=me CLICOLOR_FORCE=1 git commit -q -m two";
    let said = hostile.project.shell(commit).end();
    assert_ne!(said.code, 0, "{said:?}");
    assert!(said.err.contains("\\u{1b}"), "{said:?}");
    hostile.problems.extend(harm("git commit", &said.err));
    // A name that can't be a key is reported.
    let db = rusqlite::Connection::open(hostile.project.database()).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    let sql = "INSERT INTO leases SELECT key || ?1, token + 100, holder || ?1, host, command, binding, acquired_at, \
               expires_at, heartbeat_at, ttl_ms, boot, expires_boot, mode, slot FROM leases WHERE key = 'build'";
    assert_eq!(db.execute(sql, [on_one_line()]).unwrap(), 1);
    drop(db);
    for words in ["locks", "status", "doctor", "locks verify", "timeline"] {
        hostile.says(words);
    }
    let problems = hostile.problems.join("\n");
    assert!(
        problems.is_empty(),
        "shown raw, or a forged line:\n{problems}"
    );

    assert!(hostile.shown >= 25, "only {} show it", hostile.shown);
    let dir = hostile.project.path("pages");
    hostile.project.call("man --dir").arg(&dir).end().exits(0);
    let names = fs::read_dir(dir)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names
        .filter_map(|name| Some(name.strip_prefix("tenure-")?.strip_suffix(".1")?.to_owned()))
        .collect();
    let is_run = |name: &String| {
        hostile.run.contains(name) || hostile.run.contains(&name.replacen('-', " ", 1))
    };
    let left_out = |name: &String| LEFT_OUT.iter().any(|it| it.replace(' ', "-") == *name);
    let missing: Vec<&String> = names
        .iter()
        .filter(|it| !is_run(it) && !left_out(it))
        .collect();
    assert!(
        missing.is_empty(),
        "these commands are not tried: {missing:?}"
    );
}
