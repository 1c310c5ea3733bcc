//! How CI judges a test that fails: `.ci/rerun-failed`, with a stand-in for cargo.

use crate::project::{self, Project};

use std::path::Path;

/// What `cargo test` prints if two tests of one binary fail.
const LOG: &str = "\
     Running tests/command.rs (target/debug/deps/command-1)

failures:

---- a::one stdout ----
one went wrong
    indented

---- b::two stdout ----
two went wrong

failures:
    a::one
    b::two

test result: FAILED. 27 passed; 2 failed; 0 ignored; 0 measured

error: test failed, to rerun pass `-p tenure-cli --test command`
";

/// The status of the judgement, all that it prints, and the list of flaky tests. `cargo` is what runs a test again.
fn judged(log: &str, cargo: &str) -> (bool, String, String) {
    let project = Project::uninitialised();
    project.write("log", log);
    project::write_program(&project.path("cargo"), cargo.as_bytes());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/rerun-failed");
    let mut command = project.program("bash");
    let path = format!(
        "{}:{}",
        project.root().display(),
        std::env::var("PATH").unwrap()
    );
    command.arg(script).args(["log", "flaky"]).env("PATH", path);
    let done = project.prepare(command).end();
    let flaky = std::fs::read_to_string(project.path("flaky")).unwrap_or_default();
    (done.code == 0, format!("{}{}", done.out, done.err), flaky)
}

#[test]
fn a_test_that_passes_three_times_alone_is_flaky() {
    let passes = "#!/bin/sh\necho \"$@\" >> calls\ntest $(wc -l < calls) -le 6 && echo 'test result: ok. 1 passed; 0 failed'\n";
    let (passed, said, flaky) = judged(LOG, passes);
    assert!(passed, "{said}");
    let expected = "\
\nFLAKY a::one (-p tenure-cli --test command)\none went wrong\n    indented\n\
\n\nFLAKY b::two (-p tenure-cli --test command)\ntwo went wrong\n\n";
    assert_eq!(flaky, expected);
}

#[test]
fn a_test_that_fails_again_or_is_not_found_fails() {
    let third = "#!/bin/sh\necho >> calls\ntest $(wc -l < calls) -le 2 && echo 'test result: ok. 1 passed; 0 failed'\n";
    let none = "#!/bin/sh\necho 'test result: ok. 0 passed; 0 failed'\n";
    for cargo in [third, none] {
        let (passed, said, flaky) = judged(LOG, cargo);
        assert!(!passed && said.contains("a::one failed again."), "{said}");
        assert_eq!(flaky, "");
    }
}

#[test]
fn a_binary_that_was_killed_and_code_that_does_not_compile_fail() {
    let passes = "#!/bin/sh\necho 'test result: ok. 1 passed; 0 failed'\n";
    let killed = "error: test failed, to rerun pass `-p tenure --lib`\n\nCaused by:\n  signal: 9\n";
    let (passed, said, _) = judged(killed, passes);
    assert!(!passed && said.contains("ended before"), "{said}");
    let (passed, said, _) = judged("error: could not compile `tenure`\n", passes);
    assert!(!passed && said.contains("No test failed"), "{said}");
}
