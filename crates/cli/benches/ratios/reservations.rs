//! Commands that an agent runs all the time, in a project with very many reservations.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tenure::Acquired;
use tenure::files::PathSet;

use crate::Line;
use crate::pairs::open;
use crate::stopwatch::{millis, percentile, ratio, time};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
const FEW: usize = 10;
const MANY: usize = 10_000;
const FOLDERS: usize = 50;
const CHECKED: usize = 1_000;
const ROUNDS: usize = 100;

pub(crate) fn measure() -> Vec<Line> {
    let (few, many) = (project(FEW), project(MANY));
    let all: Vec<String> = (0..CHECKED).map(free).collect();
    let check = |paths: &[String]| {
        let mut words = vec!["check".to_owned(), "--quiet".to_owned()];
        words.extend_from_slice(paths);
        words
    };
    let reserve = |flag: &str| ["reserve", "free/0/new.rs", "--as", "me", flag].map(str::to_owned);
    let (one, thousand) = (check(&all[..1]), check(&all));
    let mut times: [Vec<Duration>; 7] = Default::default();
    // In turns, so that whatever else the machine does hits all of them alike.
    for _ in 0..ROUNDS {
        times[0].push(run(many.path(), &["--version".to_owned()]));
        times[1].push(run(many.path(), &one));
        times[2].push(run(few.path(), &one));
        times[3].push(run(many.path(), &thousand));
        times[4].push(run(few.path(), &thousand));
        times[5].push(run(many.path(), &reserve("--quiet")));
        run(many.path(), &reserve("--release"));
        times[6].push(run(few.path(), &reserve("--quiet")));
        run(few.path(), &reserve("--release"));
    }
    let [
        start,
        one,
        one_of_few,
        thousand,
        thousand_of_few,
        reserve,
        reserve_of_few,
    ] = times.map(|mut times| percentile(&mut times, 50));
    let line = |what, ours, theirs, aim| Line {
        what,
        ours: millis(ours),
        theirs: millis(theirs),
        ratio: ratio(ours, theirs),
        aim,
    };
    vec![
        line("check 1 path, 10,000 reserved / --version", one, start, ""),
        line(
            "the same / with 10 reserved",
            one,
            one_of_few,
            "at most 1.1x",
        ),
        line("check 1,000 paths / --version", thousand, start, ""),
        line(
            "the same / with 10 reserved",
            thousand,
            thousand_of_few,
            "at most 1.1x",
        ),
        line(
            "reserve, 10,000 reserved / 10 reserved",
            reserve,
            reserve_of_few,
            "at most 1.1x",
        ),
    ]
}

/// A file that nobody has reserved.
fn free(number: usize) -> String {
    format!("free/{}/{number}.rs", number % FOLDERS)
}

/// A project with so many reservations of another holder, and with files that are free.
fn project(reserved: usize) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), &["init".to_owned()]);
    for folder in 0..FOLDERS {
        std::fs::create_dir_all(dir.path().join(format!("free/{folder}"))).unwrap();
    }
    for number in 0..CHECKED {
        std::fs::write(dir.path().join(free(number)), "").unwrap();
    }
    let tenure = open(&dir.path().join(".tenure/tenure.db"));
    for number in 0..reserved {
        let path = format!("src/{}/{number}.rs", number % 100);
        let paths = PathSet::parse([path.as_str()]).unwrap();
        let ask = tenure.reserve(paths).named("another").unwrap();
        let Acquired::Granted(held) = ask.ttl(Duration::from_secs(86_400)).acquire().unwrap()
        else {
            panic!("nobody else is here");
        };
        held.leave_standing();
    }
    dir
}

fn run(dir: &Path, words: &[String]) -> Duration {
    let mut command = Command::new(TENURE);
    command.args(words).current_dir(dir).stdout(Stdio::null());
    time(|| assert!(command.status().unwrap().success(), "{words:?}"))
}
