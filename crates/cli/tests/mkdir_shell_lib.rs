//! `tenure shell-lib`: the functions, in every shell that they are written for, with tenure and without.

use crate::project;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use project::{Project, until};
use rustix::process::Signal;

/// The shells, as they are called.
const SHELLS: [&str; 5] = ["dash", "bash", "busybox sh", "zsh", "mksh"];

/// A pid that no process has.
const NOBODY: i32 = i32::MAX;

/// The functions, in a file.
fn with_lib() -> Project {
    let project = Project::uninitialised();
    let lib = project.tenure("shell-lib").exits(0).out;
    project.write("lib.sh", &lib);
    project
}

/// A shell with the functions, with tenure or without.
fn script(project: &Project, shell: &str, tenure: bool, script: &str) -> project::Call {
    let mut words = shell.split(' ');
    let mut command: Command = project.program(words.next().unwrap());
    command.args(words);
    let path = std::env::var("PATH").unwrap();
    let without: Vec<_> = path
        .split(':')
        .filter(|folder| !Path::new(folder).join("tenure").exists())
        .collect();
    command.env("PATH", without.join(":"));
    if !tenure {
        command.env_remove("TENURE");
    }
    command.args(["-c", &format!("set -eu; . ./lib.sh; {script}")]);
    project.prepare(command)
}

/// Whether a shell is installed. `make test` installs all of them where it can; dash and bash must be there.
fn is_installed(shell: &str) -> bool {
    let program = shell.split(' ').next().unwrap();
    let path = std::env::var("PATH").unwrap();
    let found = path
        .split(':')
        .any(|folder| Path::new(folder).join(program).exists());
    assert!(
        found || !["dash", "bash"].contains(&program),
        "no {program}"
    );
    if !found {
        tenure_testkit::left_out(&format!("{program} is not installed"));
    }
    found
}

/// Every shell, with tenure and without.
fn each(check: impl Fn(&Project, &str, bool)) {
    for shell in SHELLS.into_iter().filter(|shell| is_installed(shell)) {
        for tenure in [true, false] {
            check(&with_lib(), shell, tenure);
        }
    }
}

#[test]
fn a_script_takes_the_lock_and_gives_it_back_as_often_as_it_likes() {
    each(|project, shell, tenure| {
        let said = script(
            project,
            shell,
            tenure,
            "board_lock_release deep/storage/lock; echo $?
             board_lock_acquire deep/storage/lock 0; echo $?
             cat deep/storage/lock/pid; echo $$; cat deep/storage/lock/ts
             board_lock_release deep/storage/lock; echo $?
             board_lock_release deep/storage/lock; echo $?
             board_lock_acquire deep/storage/lock 5 && board_lock_release deep/storage/lock; echo $?",
        );
        let said = said.end().exits(0);
        let lines: Vec<_> = said.out.lines().collect();
        assert_eq!(lines[..2], ["0", "0"], "{said:?}");
        assert_eq!(lines[2], lines[3], "{said:?}");
        assert!(lines[4].parse::<u64>().is_ok(), "{said:?}");
        assert_eq!(lines[5..], ["0", "0", "0"], "{said:?}");
        assert!(!project.path("deep/storage/lock").exists());
    });
}

/// The three tests of the protocol: a process holds the lock and sleeps; a writer with a short timeout fails with 1;
/// after the release it succeeds.
#[test]
fn a_background_job_has_the_lock_and_the_script_waits_or_fails() {
    each(|project, shell, tenure| {
        let said = script(
            project,
            shell,
            tenure,
            "( board_lock_acquire lock 5; : > held; until [ -e done ]; do sleep 0.05; done; board_lock_release lock ) &
             until [ -e held ]; do sleep 0.05; done
             for timeout in 0 1; do
               if board_lock_acquire lock $timeout; then echo got; else echo $?; fi
             done
             board_lock_release lock
             [ -d lock ] && echo still
             : > done
             board_lock_acquire lock 10; echo $?
             board_lock_release lock; echo $?; wait",
        );
        let said = said.end().exits(0);
        assert_eq!(said.out, "1\n1\nstill\n0\n0\n", "{shell} {tenure} {said:?}");
        let busy = said
            .err
            .matches(&format!(
                "tenure board: error: lock busy: {}\n",
                project
                    .root()
                    .canonicalize()
                    .unwrap()
                    .join("lock")
                    .display()
            ))
            .count();
        assert_eq!(busy, 2, "{shell} {said:?}");
        assert!(said.err.contains("held by pid"), "{said:?}");
        assert!(said.err.contains("remove it with: "), "{said:?}");
    });
}

#[test]
fn a_script_that_is_told_to_end_gives_the_lock_back_and_writes_no_more() {
    each(|project, shell, tenure| {
        for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
            let running = script(
                project,
                shell,
                tenure,
                "board_lock_trap lock; board_lock_acquire lock 5
                 : > ready; while :; do sleep 0.05; done; echo went on",
            );
            let running = running.start();
            until("the script holds the lock", || {
                project.path("ready").exists()
            });
            running.signal(signal);
            let said = running.ended().exits(code);
            assert_eq!(said.out, "");
            assert!(!project.path("lock").exists(), "{shell} {tenure} {said:?}");
            fs::remove_file(project.path("ready")).unwrap();
        }
    });
}

#[test]
fn a_signal_ends_a_wait_at_once() {
    each(|project, shell, tenure| {
        fs::create_dir(project.path("lock")).unwrap();
        project.write("lock/pid", &format!("{}\n", std::process::id()));
        // The wait is longer than this test could be.
        let waits = script(
            project,
            shell,
            tenure,
            "board_lock_trap lock; : > ready; board_lock_acquire lock 3000; echo went on",
        );
        let waits = waits.start();
        until("the script begins to wait", || {
            project.path("ready").exists()
        });
        if tenure {
            let store = format!("board --store mkdir:{}", project.path("lock").display());
            until("it stands in the queue", || {
                !project.waiting(&store).is_empty()
            });
        }
        waits.signal(Signal::TERM);
        let said = waits.ended().exits(143);
        assert_eq!(said.out, "", "{shell} {tenure}");
        assert_eq!(
            project.read("lock/pid"),
            format!("{}\n", std::process::id()),
            "the lock of the other process is left alone"
        );
    });
}

/// Ctrl+C reaches the script and the program that it has just started to remove the lock.
#[test]
fn a_signal_during_the_release_does_not_leave_the_lock() {
    each(|project, shell, tenure| {
        let real = if tenure { project::TENURE } else { "/bin/rm" };
        let wrapper = format!(
            "#!/bin/sh\n[ -e signalled ] || {{ : > signalled; kill -TERM \"$SCRIPT\" $$; }}\nexec {real} \"$@\"\n"
        );
        fs::create_dir(project.path("bin")).unwrap();
        let name = if tenure { "bin/wrapper" } else { "bin/rm" };
        project::write_program(&project.path(name), wrapper.as_bytes());
        let use_it = if tenure {
            "TENURE=$PWD/bin/wrapper; export TENURE"
        } else {
            "PATH=$PWD/bin:$PATH; export PATH"
        };
        let said = script(
            project,
            shell,
            tenure,
            &format!(
                "board_lock_trap lock; board_lock_acquire lock 5
                 SCRIPT=$$; export SCRIPT; {use_it}
                 board_lock_release lock; : > went-on"
            ),
        );
        let said = said.end().exits(143);
        assert!(
            !project.path("lock").exists(),
            "{shell} {tenure} left the lock: {said:?}"
        );
        assert!(!project.path("went-on").exists());
        assert_eq!(said.err, "", "{shell} {tenure}");
    });
}

/// A signal reaches the script while one of the programs runs that an acquisition uses, just before it does its work
/// or just after.
#[test]
fn a_signal_during_the_acquisition_does_not_leave_the_lock() {
    let path = std::env::var("PATH").unwrap();
    for shell in SHELLS.into_iter().filter(|shell| is_installed(shell)) {
        for program in ["mktemp", "cat", "rm"] {
            let mut real = path.split(':').map(|dir| Path::new(dir).join(program));
            let real = real.find(|path| path.exists()).unwrap();
            let real = real.display();
            let signal = ": > signalled; kill -TERM \"$SCRIPT\"";
            for first in [
                format!("{signal}; exec {real} \"$@\""),
                format!("{real} \"$@\"; code=$?; {signal}; exit $code"),
            ] {
                let project = with_lib();
                for folder in ["bin", "tmp"] {
                    fs::create_dir(project.path(folder)).unwrap();
                }
                let wrapper =
                    format!("#!/bin/sh\n[ -e signalled ] || {{ {first}; }}\nexec {real} \"$@\"\n");
                let wrapped = project.path(&format!("bin/{program}"));
                project::write_program(&wrapped, wrapper.as_bytes());
                let said = script(
                    &project,
                    shell,
                    true,
                    "SCRIPT=$$; TMPDIR=$PWD/tmp; PATH=$PWD/bin:$PATH; export SCRIPT TMPDIR PATH
                     board_lock_trap lock; board_lock_acquire lock 5; : > went-on",
                );
                let said = said.end().exits(143);
                let scene = format!("{shell}: {first}");
                assert!(project.path("signalled").exists(), "{scene}");
                assert!(!project.path("lock").exists(), "{scene}: {said:?}");
                assert!(!project.path("went-on").exists(), "{scene}");
                let left = fs::read_dir(project.path("tmp")).unwrap().count();
                assert_eq!((said.err.as_str(), left), ("", 0), "{scene}");
            }
        }
    }
}

#[test]
fn a_wait_without_tenure_is_never_shorter_than_its_timeout() {
    for shell in SHELLS.into_iter().filter(|shell| is_installed(shell)) {
        let project = with_lib();
        fs::create_dir(project.path("lock")).unwrap();
        project.write("lock/pid", "1\n");
        // Late in a second, of which the clock of the shell shows nothing.
        let said = script(
            &project,
            shell,
            false,
            "until case $(date +%N) in [89]*) ;; *) false ;; esac; do :; done
             date +%s%N; board_lock_acquire lock 1 || :; date +%s%N",
        );
        let said = said.end().exits(0);
        // The shell does not subtract: the numbers of some have 32 bits.
        let times: Vec<u64> = said.out.lines().map(|at| at.parse().unwrap()).collect();
        let waited = times[1] - times[0];
        assert!(waited >= 1_000_000_000, "{shell}: {waited} ns");
    }
}

#[test]
fn a_script_may_change_its_folder_while_it_holds_the_lock() {
    each(|project, shell, tenure| {
        fs::create_dir(project.path("elsewhere")).unwrap();
        let said = script(
            project,
            shell,
            tenure,
            "board_lock_acquire deep/lock 0; cd elsewhere
             board_lock_release deep/lock; echo $?; [ -e ../deep/lock ] || echo free
             cd ..; board_lock_trap lock; board_lock_acquire lock 0; cd elsewhere
             [ -d ../lock ] && echo held; exit 7",
        );
        let said = said.end().exits(7);
        assert_eq!(said.out, "0\nfree\nheld\n", "{shell} {tenure} {said:?}");
        assert!(!project.path("lock").exists(), "{shell} {tenure}");
        assert!(!project.path("elsewhere/lock").exists());
    });
}

/// Also for a user who may not write into the folder: tenure takes that right away while it holds the lock.
#[test]
fn the_command_that_a_busy_lock_names_removes_it() {
    each(|project, shell, tenure| {
        let lock = project.path("it's a lock");
        fs::create_dir(&lock).unwrap();
        project.write("it's a lock/ts", "1700000000\n");
        fs::set_permissions(&lock, fs::Permissions::from_mode(0o555)).unwrap();
        let said = script(
            project,
            shell,
            tenure,
            "board_lock_acquire \"it's a lock\" 0",
        );
        let said = said.end().exits(1);
        let (_, way) = said.err.rsplit_once("remove it with: ").unwrap();
        let elsewhere = project.path("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        project.shell(way).within(elsewhere).end().exits(0);
        assert!(!lock.exists(), "{shell} {tenure} {said:?}");
    });
}

#[test]
fn a_dead_lock_is_taken_over_with_tenure_and_never_broken_without() {
    each(|project, shell, tenure| {
        fs::create_dir(project.path("lock")).unwrap();
        project.write("lock/pid", &format!("{NOBODY}\n"));
        let said = script(
            project,
            shell,
            tenure,
            "board_lock_acquire lock 1 || exit; echo got",
        );
        let said = said.end();
        if tenure {
            assert_eq!(said.exits(0).out, "got\n");
            // It ended without a release, and is dead now.
            let again = script(
                project,
                shell,
                tenure,
                "board_lock_acquire lock 0; board_lock_release lock",
            );
            again.end().exits(0);
        } else {
            said.fails(1, &["lock busy"]);
            assert_eq!(project.read("lock/pid"), format!("{NOBODY}\n"));
        }
    });
}

#[test]
fn a_script_whose_lock_was_taken_away_is_told_when_it_gives_it_back() {
    each(|project, shell, tenure| {
        let said = script(
            project,
            shell,
            tenure,
            "board_lock_acquire lock 0; chmod u+w lock; rm -rf lock; mkdir lock
             board_lock_release lock || echo $?; [ -d lock ] && echo theirs",
        );
        let said = said.end().exits(0);
        assert_eq!(said.out, "1\ntheirs\n", "{shell} {tenure} {said:?}");
        assert!(said.err.contains("no longer held"), "{said:?}");
    });
}

#[test]
fn a_subshell_does_not_give_back_what_its_parent_holds() {
    each(|project, shell, tenure| {
        let said = script(
            project,
            shell,
            tenure,
            "board_lock_acquire lock 0
             ( board_lock_release lock; echo $? ); [ -d lock ] && echo still
             board_lock_release lock; [ -d lock ] || echo free",
        );
        assert_eq!(
            said.end().exits(0).out,
            "0\nstill\nfree\n",
            "{shell} {tenure}"
        );
    });
}

#[test]
fn what_makes_no_sense_is_refused() {
    each(|project, shell, tenure| {
        project.write("file", "");
        for (words, told) in [
            ("lock", "usage"),
            ("lock soon", "whole number"),
            ("lock -1", "whole number"),
            ("file/lock 0", "cannot create the storage directory"),
        ] {
            let said = script(
                project,
                shell,
                tenure,
                &format!("board_lock_acquire {words}"),
            );
            said.end().fails(1, &[told]);
        }
        assert!(!project.path("lock").exists());
    });
}

#[test]
fn what_another_program_wrote_into_the_lock_is_shown_on_one_line_and_no_pipe_is_waited_for() {
    each(|project, shell, tenure| {
        fs::create_dir(project.path("lock")).unwrap();
        project.write("lock/pid", "1\x1b[2J\n");
        project.write("lock/cmd", "evil\x1b]0;title\x07\nFORGED\n");
        let busy = || script(project, shell, tenure, "board_lock_acquire lock 0").end();
        let said = busy().exits(1);
        assert!(
            said.err.contains("held by pid 1?[2J: evil?]0;title?\n"),
            "{shell} {tenure}: {said:?}"
        );
        for name in ["pid", "cmd"] {
            let path = project.path("lock").join(name);
            fs::remove_file(&path).unwrap();
            let made = project.program("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        }
        busy().exits(1);
    });
}
