//! `tenure watch`: its screen in tmux, its lines for scripts, and what it costs.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::Value;

use crate::project::{Project, Running, process, until};

/// A terminal of tmux, on a server of its own.
struct Tmux<'a> {
    project: &'a Project,
    socket: PathBuf,
}

impl<'a> Tmux<'a> {
    /// Runs a line of shell in a terminal of this size. `$TENURE` is the command under test. When it has ended, `cat`
    /// keeps the terminal.
    fn run(project: &'a Project, size: (u16, u16), line: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let tmux = Self {
            project,
            socket: project.home().join(format!("tmux{number}")),
        };
        let (x, y) = (size.0.to_string(), size.1.to_string());
        let script = format!("{line}; exec cat");
        tmux.call(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &x,
            "-y",
            &y,
            "sh",
            "-c",
            &script,
        ]);
        tmux
    }

    /// `tenure watch` as `me`. The pid is in the file `pid`, and the modes of the terminal before and after in
    /// `before` and `after`, with the exit code in `code`.
    fn watch(project: &'a Project, size: (u16, u16), words: &str) -> Self {
        let line = format!(
            "stty -a > before; sh -c 'echo $$ > pid; exec $TENURE watch --as me {words}'; echo $? > code; stty -a > after"
        );
        let tmux = Self::run(project, size, &line);
        tmux.shows("? help");
        tmux
    }

    fn call(&self, words: &[&str]) -> String {
        let mut command = self.project.program("tmux");
        command
            .arg("-u")
            .arg("-S")
            .arg(&self.socket)
            .args(words)
            .env("LC_ALL", "C.UTF-8")
            .env_remove("TMUX")
            .env_remove("COLORTERM");
        self.project.prepare(command).end().exits(0).out
    }

    fn screen(&self) -> String {
        self.call(&["capture-pane", "-p"])
    }

    #[track_caller]
    fn shows(&self, text: &str) -> String {
        let mut seen = String::new();
        for _ in 0..3_000 {
            seen = self.screen();
            if seen.contains(text) {
                return seen;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{text:?} is not shown:\n{seen}");
    }

    #[track_caller]
    fn hides(&self, text: &str) {
        until(&format!("{text:?} is gone"), || {
            !self.screen().contains(text)
        });
    }

    fn types(&self, keys: &[&str]) {
        self.call(&[&["send-keys"], keys].concat());
    }

    fn asks(&self, format: &str) -> String {
        self.call(&["display-message", "-p", format])
            .trim()
            .to_owned()
    }

    fn pid(&self) -> u32 {
        until("it runs", || !self.project.read("pid").is_empty());
        self.project.read("pid").trim().parse().unwrap()
    }

    /// Waits until the program has ended, and checks that the terminal is as it was.
    #[track_caller]
    fn is_clean(&self, code: &str) {
        until("it has ended", || !self.project.read("after").is_empty());
        assert_eq!(self.project.read("code").trim(), code);
        assert_eq!(self.project.read("before"), self.project.read("after"));
        until("tmux has seen all of it", || {
            let modes = "#{alternate_on} #{mouse_any_flag} #{cursor_flag}";
            self.asks(modes) == "0 0 1"
        });
        for name in ["pid", "code", "before", "after"] {
            let _ = fs::remove_file(self.project.path(name));
        }
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let mut command = self.project.program("tmux");
        let _ = command
            .arg("-S")
            .arg(&self.socket)
            .arg("kill-server")
            .output();
    }
}

/// A line with single blanks, and with `N` in place of times and pids.
fn plain(line: &str) -> String {
    let word = |word: &str| {
        let digits = word.trim_end_matches(['s', 'm', 'h']);
        let is_age = digits.len() < word.len() && digits.parse::<u32>().is_ok();
        let is_time = word.len() >= 9 && word.contains(':') && word.ends_with('Z');
        let is_pid = word.parse::<u32>().is_ok_and(|number| number > 99);
        if is_age || is_time || is_pid {
            "N".to_owned()
        } else {
            word.to_owned()
        }
    };
    line.split_whitespace()
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A project with a holder, a waiter, a lease of `me`, an expired one, and two tasks.
fn busy() -> (Project, Vec<Running>) {
    let project = Project::new();
    let holder = project.hold("run build --as agent");
    let waiter = project.queue("build", "run build --as next --wait 1h -- true");
    project.acquire("mine --as me --ttl 1h");
    project.acquire("over --as gone --ttl 1s");
    project
        .tenure("reserve src/** --as writer --ttl 1h --why rewrite")
        .exits(0);
    project.tenure("tasks add Write --quiet").exits(0);
    project.tenure("tasks add Test --quiet").exits(0);
    project.tenure("tasks next --as worker").exits(0);
    until("it has expired", || project.verdict("over") == "expired");
    (project, vec![holder, waiter])
}

#[test]
fn the_screen_shows_everything_at_80_by_24_and_follows_changes() {
    let (project, mut running) = busy();
    let tmux = Tmux::watch(&project, (80, 24), "");
    let screen = tmux.shows("over");
    let lines: Vec<String> = screen.lines().map(plain).collect();
    assert!(lines[0].starts_with("tenure "), "{screen}");
    assert!(
        lines[0].ends_with("waiting, 1 problem daemon: not running"),
        "{screen}"
    );
    assert_eq!(
        lines[1],
        "1 Locks 4 2 Reservations 1 3 Tasks 2 4 History 5 5 Timeline 5 sort: key"
    );
    assert_eq!(lines[2], "KEY HOLDER PROCESS SINCE LEFT WAITING STATE");
    assert!(lines[3].starts_with("build agent N sh"), "{screen}");
    assert!(lines[3].ends_with(" N N 1 alive"), "{screen}");
    assert_eq!(lines[4], "1. next N N - prio 5 waits", "{screen}");
    assert_eq!(lines[5], "mine me - N N 0 no process", "{screen}");
    assert_eq!(lines[6], "over gone - N passed 0 expired", "{screen}");
    assert!(
        lines[7].starts_with("task:") && lines[7].contains("worker"),
        "{screen}"
    );
    assert_eq!(
        lines[23],
        "? help q quit / filter s sort Enter details r release f force"
    );
    for line in screen.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }

    // What changes is shown without a key.
    running[0].let_go();
    tmux.hides("agent");
    project.acquire("later --as other");
    tmux.shows("later");

    tmux.types(&["2"]);
    let reserved = tmux.shows("src/**");
    assert!(
        plain(&reserved).contains("src/** writer N N no process rewrite"),
        "{reserved}"
    );
    tmux.types(&["3"]);
    let tasks = tmux.shows("in_progress (1)");
    assert!(tasks.contains("pending (1)"), "{tasks}");
    tmux.types(&["4"]);
    let history = tmux.shows("TOKEN");
    assert!(
        plain(&history).contains("N released build agent"),
        "{history}"
    );
    tmux.types(&["5"]);
    let lanes = tmux.shows("█");
    assert!(lanes.contains('✗'), "the expired one is lost: {lanes}");
    tmux.types(&["?"]);
    let help = tmux.shows("take a key by force, after a question");
    assert!(help.contains("You are me."), "{help}");
    tmux.types(&["Escape"]);
    tmux.hides("You are me.");
    tmux.types(&["q"]);
    tmux.is_clean("0");
}

#[test]
fn a_large_screen_shows_all_panes_and_a_resize_is_followed() {
    let (project, _running) = busy();
    let tmux = Tmux::watch(&project, (200, 60), "");
    let screen = tmux.shows("in_progress (1)");
    assert_eq!(screen.lines().count(), 60, "{screen}");
    for text in [
        " Locks 4",
        " Timeline 5",
        " Reservations 1",
        "src/**",
        " Tasks 2",
        " History 5",
        "sort: key",
        "build",
        "next",
        "█",
        "░",
        "granted",
        "✗",
    ] {
        assert!(screen.contains(text), "no {text:?}:\n{screen}");
    }
    tmux.call(&["resize-window", "-x", "80", "-y", "24"]);
    tmux.hides("src/**");
    let small = tmux.shows("over");
    assert_eq!(small.lines().count(), 24);
    tmux.call(&["resize-window", "-x", "20", "-y", "5"]);
    tmux.shows("build");
    tmux.call(&["resize-window", "-x", "200", "-y", "60"]);
    tmux.shows("src/**");
    tmux.types(&["C-c"]);
    tmux.is_clean("0");
}

#[test]
fn keys_filter_sort_jump_release_and_force() {
    let (project, _running) = busy();
    let tmux = Tmux::watch(&project, (80, 24), "");
    tmux.shows("over");
    tmux.types(&["/", "m", "i", "n", "e"]);
    tmux.hides("over");
    tmux.types(&["Enter"]);
    tmux.shows("filter: mine");
    // Released at once: it is one's own, and nothing runs under it.
    tmux.types(&["r"]);
    tmux.shows("Released mine.");
    assert_eq!(project.verdict("mine"), "free");
    tmux.types(&["Escape"]);
    tmux.shows("over");

    tmux.types(&["s", "s", "s"]);
    tmux.shows("most waiters");
    tmux.types(&["G", "w", "r"]);
    tmux.shows("build is held by agent, and you are me");
    tmux.types(&["f"]);
    tmux.shows("End the lease of agent on build?");
    tmux.types(&["n"]);
    tmux.shows("Nothing was changed.");
    assert_eq!(project.verdict("build"), "alive");
    tmux.types(&["!"]);
    tmux.types(&["f"]);
    tmux.shows("End the lease of gone on over?");
    tmux.types(&["y"]);
    tmux.shows("Took over from gone");
    assert_eq!(project.verdict("over"), "free");
    assert!(
        project.story("over").contains("forced"),
        "{}",
        project.story("over")
    );

    // From an event to the lock of its key, and from there to what is known of it.
    tmux.types(&["4", "/", "b", "u", "i", "l", "d", "Enter"]);
    tmux.shows("filter: build");
    tmux.types(&["l", "Enter"]);
    tmux.shows("it runs: sh -c");
    tmux.types(&["Escape"]);
    tmux.hides("it runs:");
    tmux.types(&["q"]);
    tmux.is_clean("0");
}

#[test]
fn the_mouse_selects_and_scrolls() {
    let (project, _running) = busy();
    let tmux = Tmux::watch(&project, (80, 24), "");
    tmux.shows("over");
    // Presses of the left button, as a terminal sends them: on the third tab, and on the row of `over`, twice.
    let press = |column: u16, row: u16| {
        let text = format!("\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m");
        tmux.call(&["send-keys", "-l", &text]);
    };
    press(35, 2);
    tmux.shows("in_progress (1)");
    press(3, 2);
    tmux.shows("over");
    press(3, 7);
    press(3, 7);
    tmux.shows("held by gone");
    press(3, 7);
    tmux.hides("held by gone");
    tmux.call(&["send-keys", "-l", "\x1b[<64;3;7M"]);
    tmux.types(&["q"]);
    tmux.is_clean("0");
}

#[test]
fn the_terminal_is_left_clean_by_every_signal_and_after_a_stop() {
    let project = Project::new();
    project.acquire("build --as agent --ttl 1h");
    for (signal, code) in [
        (Signal::TERM, "143"),
        (Signal::INT, "130"),
        (Signal::HUP, "129"),
    ] {
        let tmux = Tmux::watch(&project, (80, 24), "");
        let modes = "#{alternate_on} #{mouse_any_flag} #{cursor_flag}";
        assert_eq!(tmux.asks(modes), "1 1 0");
        process::signal(tmux.pid(), signal);
        tmux.is_clean(code);
    }
    // Stopped, as by Ctrl+Z, and continued.
    let tmux = Tmux::watch(&project, (80, 24), "");
    process::signal(tmux.pid(), Signal::TSTP);
    until("the terminal is left", || {
        tmux.asks("#{alternate_on}") == "0"
    });
    process::signal(tmux.pid(), Signal::CONT);
    until("the terminal is entered", || {
        tmux.asks("#{alternate_on}") == "1"
    });
    tmux.shows("build");
    tmux.types(&["q"]);
    tmux.is_clean("0");
}

#[test]
fn colours_are_those_of_the_terminal_or_none() {
    let project = Project::new();
    project.acquire("build --as agent --ttl 1h");
    let coloured = |before: &str, words: &str| {
        let line = format!("{before} $TENURE watch --as me {words}");
        let tmux = Tmux::run(&project, (80, 24), &line);
        tmux.shows("build");
        tmux.call(&["capture-pane", "-p", "-e"])
    };
    assert!(coloured("", "").contains("48;5;4"), "sixteen colours");
    let exact = coloured("COLORTERM=truecolor", "");
    assert!(exact.contains("48;2;40;60;90"), "{exact:?}");
    for none in [coloured("NO_COLOR=1", ""), coloured("", "--no-color")] {
        // Back to the terminal's own colours.
        let rest = none.replace("\x1b[39m", "").replace("\x1b[49m", "");
        for code in ["\x1b[3", "\x1b[4", "38;", "48;"] {
            assert!(!rest.contains(code), "{code:?} in {none:?}");
        }
    }
}

/// Ticks of processor time that a process has used.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// How often a process has gone to sleep by itself.
fn sleeps(pid: u32) -> u64 {
    let mut all = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        all += line.unwrap().trim().parse::<u64>().unwrap();
    }
    all
}

#[test]
fn nothing_happens_while_nothing_changes() {
    let project = Project::new();
    // Held for more than a minute already, so that no second counts on the screen.
    project.acquire("build --as agent --ttl 9h");
    let db = Connection::open(project.database()).unwrap();
    db.execute(
        "UPDATE leases SET acquired_at = '2020-01-01T00:00:00.000Z'",
        [],
    )
    .unwrap();
    drop(db);
    let tmux = Tmux::watch(&project, (200, 60), "");
    let lines = project.start("watch --json");
    tmux.shows("build");
    until("it says what it watches", || !lines.out().is_empty());
    for pid in [tmux.pid(), lines.pid()] {
        // The first moments, with what the kernel still reports of the change above, don't count.
        let mut before = (ticks(pid), sleeps(pid));
        let mut quiet = 0;
        until("it sleeps without waking up for a second", || {
            std::thread::sleep(std::time::Duration::from_millis(90));
            let now = (ticks(pid), sleeps(pid));
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
            quiet == 11
        });
    }
    project.acquire("deploy --as agent --ttl 9h");
    tmux.shows("deploy");
    until("the event is printed", || {
        lines.out().contains("\"deploy\"")
    });
}

/// The lines of `watch --json` so far. The last one may not be whole.
fn objects(text: &str) -> Vec<Value> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The numbers of the events of the project's store.
fn numbers(text: &str) -> Vec<u64> {
    let of_own = |line: &&Value| {
        line["type"] == "event" && line["store"].as_str().unwrap().ends_with("tenure.db")
    };
    objects(text)
        .iter()
        .filter(of_own)
        .map(|line| line["id"].as_u64().unwrap())
        .collect()
}

#[test]
fn lines_follow_what_happens_without_a_terminal() {
    let project = Project::new();
    project.acquire("before --as a");
    let text = project.start("watch");
    let json = project.start("watch --json");
    until("both watch", || {
        text.out().contains("watching") && json.out().contains("\"start\"")
    });
    let mut holder = project.hold("run build --as agent");
    let waiter = project.queue("build", "run build --as next --wait 1h -- true");
    until("the waiter is reported", || {
        text.out().contains("build is waited for by next") && json.out().contains("\"waits\"")
    });
    project.tenure("ask build --as boss --note soon").exits(0);
    until("the request is reported", || {
        text.out().contains("build is asked for by boss (soon)")
    });
    project.tenure("tasks add Write --quiet").exits(0);
    until("the task is reported", || {
        text.out().contains("task \"Write\" is pending (new)")
    });
    holder.let_go();
    waiter.ended().exits(0);
    let killed = project.hold("run dead --as unlucky");
    let command = killed.command();
    killed.killed();
    until("the command is dead", || !process::alive(command));
    until("a death is reported before any process records it", || {
        text.out().contains("dead of unlucky: dead")
    });
    fs::create_dir(project.path(".git")).unwrap();
    project.write(".git/HEAD", "ref: refs/heads/main\n");
    project.write(".git/index.lock", "");
    until("git's lock is reported", || {
        text.out().contains("index.lock: lock of git") && json.out().contains("\"foreign\"")
    });
    fs::remove_file(project.path(".git/index.lock")).unwrap();
    until("its end is reported", || {
        text.out().contains("the lock is gone")
    });
    until("everything is reported", || {
        text.out().contains("build released by next") && json.out().contains("\"foreign_gone\"")
    });
    let said = text.out();
    for words in [
        "build granted to agent, token 2 (the key was free)",
        "build released by agent, token 2",
        "build granted to next, token 3",
        "build is no longer waited for by next",
    ] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    assert!(!said.contains("before"), "{said}");
    let lines = objects(&json.out());
    assert_eq!(lines[0]["type"], "start");
    let granted = lines
        .iter()
        .find(|line| line["event"] == "granted")
        .unwrap();
    assert_eq!(granted["key"], "build");
    assert_eq!(granted["id"], 2);
    assert_eq!(granted["token"], 2);
    let waits = lines.iter().find(|line| line["type"] == "waits").unwrap();
    assert_eq!(
        (&waits["key"], &waits["holder"]),
        (&"build".into(), &"next".into())
    );
    let task = lines.iter().find(|line| line["type"] == "task").unwrap();
    assert_eq!(
        (&task["status"], &task["was"]),
        (&"pending".into(), &Value::Null)
    );
}

#[test]
fn events_are_followed_without_a_gap_while_eight_processes_acquire_and_release() {
    let project = Project::new();
    project.acquire("first --as a");
    let loops =
        "for i in $(seq 12); do $TENURE run shared$(($1 % 3)) --as p$1 -- true || exit 1; done";
    let all: Vec<Running> = (0..8)
        .map(|number| project.shell(&format!("set -- {number}; {loops}")).start())
        .collect();
    // The grant of `first`, and twelve grants and releases of eight processes.
    let every = 1 + 8 * 12 * 2;
    // Readers that come and go: each goes on where the one before stopped.
    let mut seen: Vec<u64> = Vec::new();
    let mut last = 0;
    for _ in 0..3 {
        let reader = project.start(&format!("watch --json --since {last}"));
        let more = every.min(seen.len() + 20);
        until("some events are read", || {
            seen.len() + numbers(&reader.out()).len() >= more
        });
        let said = reader.killed();
        seen.extend(numbers(&said.out));
        last = *seen.last().unwrap();
    }
    for one in all {
        one.ended().exits(0);
    }
    let rest = project.start(&format!("watch --json --since {last}"));
    until("the rest is read", || {
        seen.len() + numbers(&rest.out()).len() >= every
    });
    seen.extend(numbers(&rest.killed().out));
    assert_eq!(seen, (1..=every as u64).collect::<Vec<_>>());
}

#[test]
fn pruned_events_and_a_store_that_vanishes_are_said() {
    let project = Project::new();
    for _ in 0..3 {
        project.tenure("run k --as a -- true").exits(0);
    }
    let db = Connection::open(project.database()).unwrap();
    db.execute("DELETE FROM history WHERE id <= 3", []).unwrap();
    drop(db);
    let json = project.start("watch --json --since 1");
    until("what is kept is read", || numbers(&json.out()) == [4, 5, 6]);
    let lines = objects(&json.out());
    let gap = lines.iter().find(|line| line["type"] == "gap").unwrap();
    assert_eq!((&gap["after"], &gap["next"]), (&1.into(), &4.into()));
    assert_eq!(gap["cause"], "pruned");

    let tmux = Tmux::watch(&project, (80, 24), "");
    fs::rename(project.path(".tenure"), project.path("away")).unwrap();
    until("it is gone", || json.out().contains("\"store_gone\""));
    project.tenure("init --quiet").exits(0);
    project.acquire("anew --as b");
    tmux.shows("anew");
    until("the new store is followed", || {
        json.out().contains("begun_anew") && json.out().contains("\"anew\"")
    });
    project
        .tenure("watch --since soon")
        .fails(2, &["--since soon", "--since 1234"]);
}

#[test]
fn lines_end_with_their_reader() {
    let project = Project::new();
    let mut command = project.program(crate::project::TENURE);
    let mut watch = command
        .args(["watch", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = watch.stdout.take().unwrap();
    project.acquire("k --as a");
    let mut one = [0];
    out.read_exact(&mut one).unwrap();
    drop(out);
    // Nothing changes any more: it notices by itself.
    let mut status = None;
    until("it has ended", || {
        status = watch.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
}

#[test]
fn a_linked_worktree_and_a_store_without_a_project_are_watched() {
    let project = Project::new();
    let git = "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x && git worktree add -q ../linked";
    project.shell(git).end().exits(0);
    let linked = project.root().with_file_name("linked");
    let watch = project.call("watch --json").within(&linked).start();
    until("it watches", || watch.out().contains("\"start\""));
    project.acquire("build --as a");
    until("the event is printed", || numbers(&watch.out()) == [1]);

    let alone = Project::uninitialised();
    alone.tenure("watch").fails(3, &["no tenure project"]);
    let store = format!("sqlite:{}", project.database().display());
    let watch = alone
        .call("watch --json --since 0 --store")
        .arg(&store)
        .start();
    until("its events are printed", || numbers(&watch.out()) == [1]);
}

#[test]
fn ten_thousand_locks_are_watched() {
    let project = Project::new();
    crate::view::many_locks(&project, 10_000);
    let tmux = Tmux::watch(&project, (80, 24), "");
    tmux.shows("1 Locks 10000");
    tmux.types(&["G"]);
    tmux.shows("k9999");
    tmux.types(&["/", "k", "7", "7", "7", "7"]);
    tmux.hides("k9999");
    tmux.shows("k7777");
    tmux.types(&["Enter", "Escape", "g", "s"]);
    tmux.shows("oldest first");
    project.acquire("zlast --as b");
    tmux.types(&["s", "s", "s"]);
    tmux.shows("1 Locks 10001");
    tmux.types(&["q"]);
    tmux.is_clean("0");
}
