//! The command itself: start-up, `tenure run`, memory.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Line;
use crate::stopwatch::{millis, percentile, ratio, time};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
const ROUNDS: usize = 300;

pub(crate) fn measure() -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    run(Command::new(TENURE).arg("init"), dir.path());
    let mut tenure_run = Vec::new();
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
    vec![
        line(
            "tenure run k -- true / flock f true, p50",
            &mut tenure_run,
            &mut flock,
            "at most 2x",
        ),
        line(
            "tenure --version / true, p50",
            &mut start,
            &mut nothing,
            "about 1 ms",
        ),
        memory(dir.path()),
    ]
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
