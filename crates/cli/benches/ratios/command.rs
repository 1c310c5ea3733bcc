//! The command itself: start-up, `tenure run`, its instructions, many commands in a row, memory.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Line;
use crate::stopwatch::{millis, percentile, ratio, time};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
const ROUNDS: usize = 300;
/// So many commands one after another must not slow the next one down.
const IN_A_ROW: usize = 10_000;

pub(crate) fn measure() -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    run(Command::new(TENURE).arg("init"), dir.path());
    let with_tasks = tempfile::tempdir().unwrap();
    run(Command::new(TENURE).arg("init"), with_tasks.path());
    run(
        Command::new(TENURE).args(["tasks", "add", "one"]),
        with_tasks.path(),
    );
    let mut tenure_run = Vec::new();
    let mut beside_tasks = Vec::new();
    let mut flock = Vec::new();
    let mut start = Vec::new();
    let mut nothing = Vec::new();
    // In turns, so that whatever else the machine does hits all of them alike.
    for _ in 0..ROUNDS {
        tenure_run.push(time(|| {
            run(
                Command::new(TENURE).args(["run", "k", "--", "true"]),
                dir.path(),
            );
        }));
        beside_tasks.push(time(|| {
            run(
                Command::new(TENURE).args(["run", "k", "--", "true"]),
                with_tasks.path(),
            );
        }));
        flock.push(time(|| {
            run(Command::new("flock").args(["f", "true"]), dir.path());
        }));
        start.push(time(|| {
            run(Command::new(TENURE).arg("--version"), dir.path());
        }));
        nothing.push(time(|| run(&mut Command::new("true"), dir.path())));
    }
    let line = |what, ours: &mut [Duration], theirs: &mut [Duration], aim| {
        let (ours, theirs) = (percentile(ours, 50), percentile(theirs, 50));
        Line {
            what,
            ours: millis(ours),
            theirs: millis(theirs),
            ratio: ratio(ours, theirs),
            aim,
        }
    };
    let mut lines = vec![
        line(
            "tenure run k -- true / flock f true, p50",
            &mut tenure_run,
            &mut flock,
            "at most 1.3x",
        ),
        line(
            "the same in a project with tasks",
            &mut beside_tasks,
            &mut flock,
            "at most 1.3x",
        ),
        line(
            "tenure --version / true, p50",
            &mut start,
            &mut nothing,
            "about 1 ms",
        ),
    ];
    lines.extend(instructions(dir.path()));
    lines.push(in_a_row(dir.path()));
    lines.push(memory(dir.path()));
    lines
}

/// The instructions of the two commands in user space, without those of `true`: they do not depend on how busy the
/// machine is.
fn instructions(dir: &Path) -> Option<Line> {
    let count = |words: &[&str]| -> Option<f64> {
        let valgrind = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .args(words)
            .current_dir(dir)
            .output()
            .ok()?;
        let said = String::from_utf8(valgrind.stderr).ok()?;
        let (_, count) = said.split_once("Collected : ")?;
        count.split_whitespace().next()?.parse().ok()
    };
    let counted = count(&[TENURE, "run", "k", "--", "true"]).zip(count(&["flock", "f", "true"]));
    let Some((ours, theirs)) = counted else {
        eprintln!("instructions are not counted: valgrind is not installed");
        return None;
    };
    let millions = |count: f64| format!("{:.2} M", count / 1e6);
    Some(Line {
        what: "instructions of both, in user space",
        ours: millions(ours),
        theirs: millions(theirs),
        ratio: ours / theirs,
        aim: "",
    })
}

/// The time of one command after many, against after ten. Each is one transaction.
fn in_a_row(dir: &Path) -> Line {
    let commands = |count: usize| -> Duration {
        let mut times: Vec<Duration> = (0..count)
            .map(|number| {
                let verb = if number % 2 == 0 {
                    "acquire"
                } else {
                    "release"
                };
                let words = [verb, "row", "--as", "bench", "--quiet"];
                time(|| run(Command::new(TENURE).args(words), dir))
            })
            .collect();
        percentile(&mut times, 50)
    };
    commands(10);
    let early = commands(100);
    commands(IN_A_ROW);
    let late = commands(100);
    Line {
        what: "a command after 10,000 / after 10, p50",
        ours: millis(late),
        theirs: millis(early),
        ratio: ratio(late, early),
        aim: "at most 1.1x",
    }
}

fn run(command: &mut Command, dir: &Path) {
    let status = command
        .current_dir(dir)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{command:?}");
}

/// The most memory that `tenure run` had while its command ran, against ten megabytes.
fn memory(dir: &Path) -> Line {
    let script = "sleep 0.2; grep VmHWM /proc/$PPID/status";
    let output = Command::new(TENURE)
        .current_dir(dir)
        .args(["run", "k", "--", "sh", "-c", script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let kilobytes: f64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    Line {
        what: "resident memory of tenure run / 10 MB",
        ours: format!("{:.1} MB", kilobytes / 1024.0),
        theirs: "10.0 MB".into(),
        ratio: kilobytes / 10240.0,
        aim: "below 1x",
    }
}
