//! How the tests are run and CI judges one that fails: `.ci/test` and `.ci/rerun-failed`, with a stand-in for cargo.

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

#[test]
fn every_test_program_runs_in_the_folder_of_its_crate_and_one_that_fails_is_named() {
    let project = Project::uninitialised();
    let mut built = String::new();
    for (kind, name, code) in [("lib", "a", 0), ("test", "b", 101), ("test", "store", 0)] {
        let program = project.path(name);
        let says = format!("#!/bin/sh\necho {name} in ${{PWD##*/}}\nexit {code}\n");
        project::write_program(&program, says.as_bytes());
        let folder = project.path(&format!("folder-{name}"));
        std::fs::create_dir(&folder).unwrap();
        let manifest =
            format!("[package]\nname = \"crate-{name}\"\n\n[[test]]\nname = \"other\"\n");
        std::fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        // The second one is what is tested, and no test itself.
        for (program, is_test) in [(program.as_path(), true), (Path::new("false"), false)] {
            let artifact = serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": folder.join("Cargo.toml"),
                "target": { "kind": [kind], "crate_types": ["bin"], "name": name, "test": true },
                "profile": { "opt_level": "0", "test": is_test },
                "features": [],
                "filenames": [program],
                "executable": program,
                "fresh": true,
            });
            built.push_str(&artifact.to_string());
            built.push('\n');
        }
    }
    project.write("built", &built);
    let cargo = format!("#!/bin/sh\ncat {}\n", project.path("built").display());
    project::write_program(&project.path("cargo"), cargo.as_bytes());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ci/test");
    let mut command = project.program("bash");
    command.arg(script);
    command.env("CARGO", project.path("cargo"));
    command.env("TEST_RUNNER", "env").env("TEST_PROGRAMS", "1");
    let done = project.prepare(command).end();
    assert_ne!(done.code, 0, "{}", done.err);
    let shown: Vec<&str> = done.out.lines().filter(|line| !line.is_empty()).collect();
    let seconds = |line: &str| line.rsplit_once(": ").unwrap().0.trim().to_owned();
    assert_eq!(seconds(shown[0]), "Running crate-store --test store");
    assert_eq!(shown[1], "store in folder-store");
    assert_eq!(seconds(shown[2]), "Running crate-a --lib");
    assert_eq!(shown[3], "a in folder-a");
    assert_eq!(seconds(shown[4]), "Running crate-b --test b");
    assert_eq!(shown[5], "b in folder-b");
    let rerun = "error: test failed, to rerun pass `-p crate-b --test b`";
    assert_eq!(shown[6..], [rerun]);
}
