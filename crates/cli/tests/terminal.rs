//! On a real terminal: what is typed, what is shown, and who the terminal listens to.
//!
//! script(1) makes the terminal. What the test writes is typed on it, and what is shown on it comes
//! back as output.

use crate::project;

use std::io::Write;

use project::{Project, Running, Said, process, until};
use rustix::process::Signal;

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// A program on a terminal of its own.
struct Terminal(Running);

impl Terminal {
    /// Runs a line of shell on a terminal. `$TENURE` is the command under test.
    fn run(project: &Project, line: &str) -> Self {
        let mut script = project.program("script");
        script
            .args(["--quiet", "--return", "--command", line, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env("PS1", "prompt> ");
        Self(project.prepare(script).input().start())
    }

    /// A shell with job control, as people have it.
    fn shell(project: &Project) -> Self {
        let terminal = Self::run(project, "exec bash --norc --noprofile --noediting -i");
        terminal.prompts(1);
        terminal
    }

    /// Waits for the shell's prompt to come up for so many times. What is typed before that may be
    /// thrown away together with an interrupted line.
    #[track_caller]
    fn prompts(&self, times: usize) {
        until("the shell asks for more", || {
            self.0.out().matches("prompt> ").count() == times
        });
    }

    fn types(&mut self, text: &str) {
        self.0
            .stdin
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        let mut seen = String::new();
        for _ in 0..2_000 {
            seen = self.0.out();
            if seen.contains(text) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("{text:?} is not shown: {seen:?}");
    }

    #[track_caller]
    fn ends(self) -> Said {
        self.0.ended()
    }
}

#[test]
fn a_command_reads_what_is_typed() {
    let project = Project::new();
    let line = "exec $TENURE run build -- sh -c 'test -t 0 && test -t 1 && echo ready; read x; echo \"<$x>\"'";
    let mut terminal = Terminal::run(&project, line);
    terminal.shows("ready");
    terminal.types("hello\n");
    let said = terminal.ends().exits(0);
    assert!(said.out.contains("<hello>"), "{said:?}");
}

#[test]
fn the_terminal_is_given_back_afterwards() {
    let project = Project::new();
    let line =
        "$TENURE run build -- true; $TENURE run build -- false; echo ready; read x; echo \"<$x>\"";
    let mut terminal = Terminal::run(&project, line);
    terminal.shows("ready");
    terminal.types("hello\n");
    let said = terminal.ends().exits(0);
    assert!(said.out.contains("<hello>"), "{said:?}");
}

#[test]
fn a_command_can_use_the_terminal_as_a_full_screen_program_does() {
    let project = Project::new();
    // Changing its modes from the background would stop the program for ever.
    let line =
        "exec $TENURE run build -- sh -c 'stty -echo && stty echo && stty size > size; echo done'";
    Terminal::run(&project, line).ends().exits(0);
    assert!(!project.read("size").is_empty());
}

#[test]
fn a_wait_shows_a_bar_and_the_holder_and_ctrl_c_leaves_the_queue() {
    let project = Project::new();
    let _held = project.hold("run build --as builder --ttl 1h");
    let mut terminal = Terminal::run(&project, "exec $TENURE run build -- touch ran");
    terminal.shows("waiting for build");
    terminal.shows("held by builder");
    for part in ["[>", "elapsed", "1st in the queue", "Ctrl+C to cancel"] {
        terminal.shows(part);
    }
    project.until_waiting("build", 1);
    terminal.types(CTRL_C);
    let said = terminal.ends().exits(130);
    assert!(said.out.contains("left the queue"), "{said:?}");
    // script(1) without a terminal of its own makes one that reports no width, so it counts as 80.
    let plain = |line: &&str| !line.contains('\u{1b}');
    for line in said.out.split(['\n', '\r']).filter(plain) {
        assert!(
            line.trim_end().chars().count() <= 80,
            "{line:?} in {said:?}"
        );
    }
    let mut bars = said.out.split('\r').filter(|line| line.contains("elapsed"));
    let whole = |line: &str| line.contains("1st in the queue, held by builder");
    assert!(bars.any(whole), "{said:?}");
    assert!(project.waiting("build").is_empty());
    assert!(!project.path("ran").exists());
}

#[test]
fn a_bar_is_gone_when_the_command_begins() {
    let project = Project::new();
    let mut held = project.hold("run build --ttl 1h");
    let terminal = Terminal::run(&project, "exec $TENURE run build -- echo mine");
    terminal.shows("elapsed");
    held.let_go();
    let said = terminal.ends().exits(0);
    let after = said.out.rsplit_once("elapsed").unwrap().1;
    assert!(
        after.contains("\x1b[2K"),
        "the line was not cleared: {said:?}"
    );
    assert!(after.contains("got build after"), "{said:?}");
    assert!(after.ends_with("mine\r\n"), "{said:?}");
}

#[test]
fn ctrl_c_reaches_the_command_which_may_handle_it() {
    let project = Project::new();
    let script = "trap \"echo caught; exit 3\" INT; echo ready; while :; do sleep 0.02; done";
    let mut terminal = Terminal::run(
        &project,
        &format!("exec $TENURE run build -- sh -c '{script}'"),
    );
    terminal.shows("ready");
    terminal.types(CTRL_C);
    let said = terminal.ends().exits(3);
    assert_eq!(said.out.matches("caught").count(), 1, "{said:?}");
    assert_eq!(project.story("build"), "granted 1, released 1");
}

#[test]
fn ctrl_c_ends_a_command_that_does_not_handle_it_and_the_script_around_it() {
    let project = Project::new();
    let line = "for i in 1 2 3; do $TENURE run build -- sh -c 'echo ready; exec sleep 300'; echo next; done";
    let mut terminal = Terminal::run(&project, line);
    terminal.shows("ready");
    terminal.types(CTRL_C);
    let said = terminal.ends().exits(130);
    assert!(!said.out.contains("next"), "{said:?}");
    assert_eq!(project.story("build"), "granted 1, released 1");
}

#[test]
fn a_command_can_be_stopped_and_taken_up_again() {
    let project = Project::new();
    let mut shell = Terminal::shell(&project);
    shell.types(
        "$TENURE run build --ttl 1h -- sh -c 'echo re\"\"ady; read x; echo \"<$x>\"; read x'\n",
    );
    shell.shows("ready");
    shell.types(CTRL_Z);
    shell.shows("Stopped");
    shell.prompts(2);
    project.tenure("run build --no-wait -- true").exits(6);
    shell.types("fg\n");
    shell.types("hello\n");
    shell.shows("<hello>");
    shell.types(CTRL_C);
    shell.prompts(3);
    shell.types("echo code $?\n");
    shell.shows("code 130");
    shell.types("exit 0\n");
    shell.ends().exits(0);
    assert_eq!(project.story("build"), "granted 1, released 1");
}

#[test]
fn a_reader_at_the_end_of_the_pipe_can_use_the_terminal_meanwhile() {
    // As in `tenure run build -- git log | less`.
    let project = Project::new();
    let line =
        "$TENURE run build -- sh -c 'echo first; while [ ! -e typed ]; do sleep 0.02; done' |
        sh -c 'read x; echo ready; read y < /dev/tty && echo \"<$y>\"; touch typed; cat'";
    let mut terminal = Terminal::run(&project, line);
    terminal.shows("ready");
    terminal.types("hello\n");
    let said = terminal.ends().exits(0);
    assert!(said.out.contains("<hello>"), "{said:?}");
}

#[test]
fn a_writer_at_the_beginning_of_the_pipe_can_use_the_terminal_meanwhile() {
    // As in `sudo cat file | tenure run build -- wc`, where sudo asks for a password.
    let project = Project::new();
    let line =
        "sh -c 'until [ -e ready ]; do sleep 0.02; done; read x < /dev/tty && echo \"<$x>\"' |
        $TENURE run build -- sh -c 'touch ready; cat'";
    let mut terminal = Terminal::run(&project, line);
    until("the command runs", || project.path("ready").exists());
    terminal.types("hello\n");
    let said = terminal.ends().exits(0);
    assert!(said.out.contains("<hello>"), "{said:?}");
}

#[test]
fn a_command_from_the_background_can_be_brought_to_the_front() {
    let project = Project::new();
    let mut shell = Terminal::shell(&project);
    shell.types("$TENURE run build -- sh -c 'echo re\"\"ady > ready; read x; echo \"<$x>\"' &\n");
    until("the command runs", || project.read("ready") == "ready\n");
    shell.prompts(2);
    shell.types("fg\n");
    shell.types("hello\n");
    shell.shows("<hello>");
    shell.types("exit 0\n");
    shell.ends().exits(0);
}

#[test]
fn a_command_in_the_background_leaves_the_terminal_to_the_shell() {
    let project = Project::new();
    let mut shell = Terminal::shell(&project);
    shell.types("$TENURE run build -- sh -c 'echo $$ > pid; exec sleep 300' &\n");
    until("the command runs", || project.read("pid").ends_with('\n'));
    let command: u32 = project.read("pid").trim().parse().unwrap();
    shell.types("read x; echo \"<$x>\"\nhello\n");
    shell.shows("<hello>");
    shell.prompts(3);
    shell.types(CTRL_C);
    shell.prompts(4);
    shell.types("echo still he\"\"re\n");
    shell.shows("still here");
    assert!(process::alive(command), "Ctrl+C was for the shell");
    shell.types("kill %1\n");
    until("the command is gone", || !process::alive(command));
    shell.types("exit 0\n");
    shell.ends().exits(0);
}

#[test]
fn a_terminal_that_goes_away_ends_the_command() {
    let project = Project::new();
    let terminal = Terminal::run(
        &project,
        "exec $TENURE run build -- sh -c 'echo $$ > pid; exec sleep 300'",
    );
    until("the command runs", || project.read("pid").ends_with('\n'));
    let command: u32 = project.read("pid").trim().parse().unwrap();
    terminal.0.killed();
    until("the command is gone", || !process::alive(command));
    project.tenure("run build --wait 10m -- true").exits(0);
}

#[test]
fn errors_are_in_colour_unless_it_is_not_wanted() {
    let project = Project::new();
    let shown = |line: &str| Terminal::run(&project, line).ends().exits(4).out;
    assert!(shown("$TENURE release nothing").contains("\x1b["));
    assert!(!shown("$TENURE release nothing --no-color").contains("\x1b["));
    assert!(!shown("NO_COLOR=1 $TENURE release nothing").contains("\x1b["));
}

/// A command whose output goes to a file, as that of `make > log` does, in a shell that stays. Returns
/// the pids of its processes: one in its background, the first one, and tenure.
fn into_a_file(project: &Project) -> (Terminal, [u32; 3]) {
    let script = "sleep 300 & echo $! $$ $PPID > pids; wait";
    let line =
        format!("$TENURE run build --ttl 1h -- sh -c '{script}' > log; echo code $?; read x");
    let terminal = Terminal::run(project, &line);
    until("the command runs", || project.read("pids").ends_with('\n'));
    let pids = project.read("pids");
    let pids: Vec<u32> = pids
        .split_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect();
    (terminal, pids.try_into().unwrap())
}

#[test]
fn a_lost_lease_ends_all_of_a_command_whose_output_goes_to_a_file() {
    let project = Project::new();
    let (terminal, [background, command, _]) = into_a_file(&project);
    project.tenure("force build").exits(0);
    terminal.shows("code 7");
    assert!(!process::alive(command));
    until("all of it is gone", || !process::alive(background));
}

#[test]
fn all_of_a_command_whose_output_goes_to_a_file_dies_with_its_tenure() {
    let project = Project::new();
    let (terminal, [background, command, tenure]) = into_a_file(&project);
    process::signal(tenure, Signal::KILL);
    terminal.shows("code 137");
    until("all of it is gone", || {
        !process::alive(command) && !process::alive(background)
    });
    project.tenure("run build --no-wait -- true").exits(0);
}

#[test]
fn a_signal_that_was_not_typed_reaches_a_command_whose_output_goes_to_a_file() {
    let project = Project::new();
    let (terminal, [background, command, tenure]) = into_a_file(&project);
    process::signal(tenure, Signal::QUIT);
    until("the command is gone", || !process::alive(command));
    terminal.shows("code 131");
    // A shell makes what it starts in the background ignore QUIT.
    process::signal(background, Signal::KILL);
}

#[test]
fn ctrl_c_is_heard_once_by_a_command_whose_output_goes_to_a_file() {
    let project = Project::new();
    let script =
        "trap \"echo told >> heard\" INT; echo > ready; until [ -e go ]; do sleep 0.02; done";
    let line = format!("exec $TENURE run build -- sh -c '{script}' > log");
    let mut terminal = Terminal::run(&project, &line);
    until("the command runs", || !project.read("ready").is_empty());
    terminal.types(CTRL_C);
    until("it was told", || !project.read("heard").is_empty());
    project.write("go", "");
    terminal.ends().exits(0);
    assert_eq!(project.read("heard"), "told\n");
}

#[test]
fn a_command_in_a_pipe_can_be_stopped_and_taken_up_again() {
    let project = Project::new();
    let mut shell = Terminal::shell(&project);
    shell.types("$TENURE run build --ttl 1h -- sh -c 'echo $$ > pid; n=0; while [ ! -e go ]; do n=$((n+1)); echo $n > count; sleep 0.02; done; echo do\"\"ne' | cat\n");
    until("the command runs", || project.read("pid").ends_with('\n'));
    shell.types(CTRL_Z);
    shell.shows("Stopped");
    shell.prompts(2);
    let pid = project.read("pid").trim().parse().unwrap();
    let group = process::group_of(pid).unwrap();
    until("all of the command is stopped", || {
        !process::members(group).into_iter().any(process::may_go_on)
    });
    let count = project.read("count");
    shell.types("fg\n");
    until("the command goes on", || project.read("count") != count);
    project.write("go", "");
    shell.shows("done");
    shell.prompts(3);
    shell.types("exit 0\n");
    shell.ends().exits(0);
}

#[test]
fn a_table_fits_the_terminal_and_is_whole_without_one() {
    let project = Project::new();
    let key = "deploy/production/europe/north/database-and-everything-beside-it";
    project.acquire(&format!("{key} --as agent-with-a-long-name"));
    let title = "Explain in the manual how the login page and the session fit together";
    project.call("tasks add").arg(title).end().exits(0);
    let line =
        "stty cols 80; $TENURE locks; $TENURE tasks; $TENURE config show; $TENURE locks history";
    let shown = Terminal::run(&project, line).ends().exits(0).out;
    for line in shown.lines() {
        assert!(line.trim_end().chars().count() <= 80, "{line}");
    }
    for part in ["deploy/", "-it  ", "Explain", "fit together", "…"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(project.tenure("locks").exits(0).out.contains(key));
    assert!(project.tenure("tasks").exits(0).out.contains(title));
}

#[test]
fn a_tab_completes_keys_tasks_sections_statuses_and_commands() {
    const KILL_LINE: &str = "\x15";
    let project = Project::new();
    project.acquire("build-docs --as me");
    project.tenure("sections add Backend").exits(0);
    project.call("tasks add").arg("Fix bug").end().exits(0);
    project.write("zz-only-here", "#!/bin/sh\n");
    let own = project
        .shell("chmod +x zz-only-here && dirname $TENURE")
        .end();
    let path = format!(
        "PATH={}:{}:$PATH",
        project.root().display(),
        own.exits(0).out.trim()
    );
    let lines = [
        ("tenure locks show bui", "tenure locks show build-docs"),
        (
            "tenure tasks list --section Ba",
            "tenure tasks list --section Backend",
        ),
        (
            "tenure tasks list --status pen",
            "tenure tasks list --status pending",
        ),
        ("tenure tasks show Fi", "tenure tasks show Fix\\ bug"),
        (
            "tenure run build -- zz-on",
            "tenure run build -- zz-only-here",
        ),
    ];
    for (shell, setup) in [
        (
            "bash --norc --noprofile -i",
            "complete -r; . <(tenure completions bash)",
        ),
        (
            "zsh -f -i",
            "autoload -U compinit; compinit -u -D; . <(tenure completions zsh)",
        ),
    ] {
        let name = shell.split(' ').next().unwrap();
        if !is_installed(name) {
            tenure_testkit::left_out(&format!("there is no {name} here"));
            continue;
        }
        let mut terminal = Terminal::run(&project, &format!("{path} exec {shell}"));
        terminal.shows("prompt> ");
        terminal.types(&format!("{setup}; echo set''up\n"));
        terminal.shows("setup\r\n");
        for (typed, completed) in lines {
            terminal.types(&format!("{typed}\t"));
            terminal.shows(completed);
            terminal.types(KILL_LINE);
        }
        terminal.types("exit\n");
        terminal.ends();
    }
    if !is_installed("fish") {
        tenure_testkit::left_out("there is no fish here");
        return;
    }
    for (typed, completed) in lines {
        let script = format!("tenure completions fish | source; complete -C '{typed}'");
        let fish = format!("{path} fish --no-config -c \"{script}\"");
        let said = project.shell(&fish).end().exits(0);
        let offered = said.out.lines().next().unwrap_or_default();
        let offered = offered
            .split('\t')
            .next()
            .unwrap_or_default()
            .replace(' ', "\\ ");
        assert!(
            !offered.is_empty() && completed.ends_with(&offered),
            "{typed}: {said:?}"
        );
    }
}

fn is_installed(program: &str) -> bool {
    std::process::Command::new(program)
        .arg("--version")
        .output()
        .is_ok()
}
