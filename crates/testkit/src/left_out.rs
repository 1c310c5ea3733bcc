//! Says that a test can't run here: [`left_out`].

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;

/// Says why the calling test, or a part of it, can't run here: it needs root, a mount, or a program that is not
/// installed.
///
/// Nobody sees what a passing test prints. So `.ci/run` names a file in `TESTS_LEFT_OUT`, and each call adds
/// a line to it: the folder, the binary and the name of the test, and the reason, with tabs in between. With that, it
/// runs these tests once more as root, and says what was left out in the end.
pub fn left_out(why: &str) {
    println!("left out: {why}");
    let Some(list) = std::env::var_os("TESTS_LEFT_OUT") else {
        return;
    };
    let shown = |path: std::io::Result<PathBuf>| path.unwrap().display().to_string();
    let thread = std::thread::current();
    let line = [
        &shown(std::env::current_dir()),
        &shown(std::env::current_exe()),
        thread.name().unwrap_or("?"),
        &why.replace(['\t', '\n'], " "),
    ]
    .join("\t");
    let file = OpenOptions::new().append(true).open(list);
    file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()))
        .expect("the list of what is left out");
}
