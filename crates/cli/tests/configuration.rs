//! Settings: where they come from, which layer wins, and what is refused.

use crate::project;

use project::{Project, Said};
use serde_json::Value;

/// The setting as `config show --json` prints it.
#[track_caller]
fn setting(said: &Said, key: &str) -> Value {
    let json = said.json();
    let settings = json["data"]["settings"].as_array().unwrap();
    settings
        .iter()
        .find(|setting| setting["key"] == key)
        .unwrap()
        .clone()
}

fn write_home(project: &Project, text: &str) {
    std::fs::create_dir_all(project.home().join(".tenure")).unwrap();
    std::fs::write(project.home().join(".tenure/config.yaml"), text).unwrap();
}

#[test]
fn a_later_layer_wins_and_is_named() {
    let project = Project::new();
    let show = || project.call("config show --json");
    let wait = |said: &Said| setting(said, "locking.waitTimeout");

    let found = wait(&show().end().exits(0));
    assert_eq!(
        (&found["value"], &found["source"]),
        (&"30m".into(), &"default".into())
    );
    write_home(
        &project,
        "locking:\n  waitTimeout: 1m\n  taskTimeout: 11m\n",
    );
    let said = show().end().exits(0);
    assert_eq!(wait(&said)["value"], "1m");
    assert!(
        wait(&said)["source"]
            .as_str()
            .unwrap()
            .ends_with("home/.tenure/config.yaml")
    );
    project.write(".tenure/config.yaml", "locking:\n  waitTimeout: 2m\n");
    let said = show().end().exits(0);
    assert_eq!(wait(&said)["value"], "2m");
    assert!(
        wait(&said)["source"]
            .as_str()
            .unwrap()
            .ends_with("work/.tenure/config.yaml")
    );
    assert_eq!(
        setting(&said, "locking.taskTimeout")["value"],
        "11m",
        "a setting that the project does not make stays"
    );
    let said = show()
        .env("TENURE_LOCKING_WAIT_TIMEOUT", "3m")
        .end()
        .exits(0);
    assert_eq!(wait(&said)["value"], "3m");
    assert_eq!(
        wait(&said)["source"],
        "environment TENURE_LOCKING_WAIT_TIMEOUT"
    );
}

#[test]
fn a_flag_wins_over_the_environment_which_wins_over_the_files() {
    let project = Project::new();
    let _held = project.hold("run build");
    write_home(&project, "locking:\n  waitTimeout: 1h\n");
    project.write(".tenure/config.yaml", "locking:\n  waitTimeout: 101ms\n");
    project
        .tenure("run build -- true")
        .fails(6, &["up to 101ms"]);
    let from_env = |words: &str| {
        project
            .call(words)
            .env("TENURE_LOCKING_WAIT_TIMEOUT", "102ms")
            .end()
    };
    from_env("run build -- true").fails(6, &["up to 102ms"]);
    from_env("run build --wait 103ms -- true").fails(6, &["up to 103ms"]);
}

#[test]
fn every_documented_setting_is_shown_with_its_default_and_its_variable() {
    let project = Project::new();
    let said = project.tenure("config show --json").exits(0);
    for (key, default, variable) in [
        ("locking.taskTimeout", "60m", "TENURE_LOCKING_TASK_TIMEOUT"),
        (
            "locking.sectionTimeout",
            "120m",
            "TENURE_LOCKING_SECTION_TIMEOUT",
        ),
        ("locking.waitTimeout", "30m", "TENURE_LOCKING_WAIT_TIMEOUT"),
        ("locking.pollInterval", "5s", "TENURE_LOCKING_POLL_INTERVAL"),
    ] {
        let setting = setting(&said, key);
        assert_eq!(setting["value"], default);
        assert_eq!(setting["default"], default);
        assert_eq!(setting["environment"], variable);
        let text = project.tenure("config show").exits(0).out;
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        assert!(
            line.contains(default) && line.contains("default") && line.contains(variable),
            "{line}"
        );
    }
}

#[test]
fn the_documented_long_form_is_read() {
    let project = Project::new();
    let text = "locking:\n  taskTimeout:\n    _description: \"How long\"\n    _default: 60m\n    value: 7m\n";
    project.write(".tenure/config.yaml", text);
    let said = project.tenure("config show --json").exits(0);
    assert_eq!(setting(&said, "locking.taskTimeout")["value"], "7m");
    let json = project
        .tenure("acquire build --as me --json")
        .exits(0)
        .json();
    assert!(
        (410..=420).contains(&json["data"]["remainingSeconds"].as_u64().unwrap()),
        "{json}"
    );
}

#[test]
fn each_kind_of_lease_has_its_own_time() {
    let project = Project::new();
    project.write(
        ".tenure/config.yaml",
        "locking:\n  taskTimeout: 7m\n  runTimeout: 9m\n",
    );
    let left = |key: &str| {
        let json = project
            .tenure(&format!("locks show {key} --json"))
            .exits(0)
            .json();
        json["data"]["leases"][0]["remainingSeconds"]
            .as_u64()
            .unwrap()
    };
    project.acquire("detached --as me");
    assert!((410..=420).contains(&left("detached")));
    let _held = project.hold("run running");
    assert!((530..=540).contains(&left("running")));
}

#[test]
fn a_bad_value_names_file_key_and_what_would_be_accepted() {
    let project = Project::new();
    for (text, words) in [
        (
            "locking:\n  waitTimeout: soon\n",
            [
                "config.yaml:2:",
                "locking.waitTimeout",
                "\"soon\"",
                "a duration from",
            ],
        ),
        (
            "locking:\n  taskTimeout: 0s\n",
            ["config.yaml:2:", "locking.taskTimeout", "100ms", "30d"],
        ),
        (
            "locking:\n  taskTimeout: -5m\n",
            [
                "config.yaml:2:",
                "locking.taskTimeout",
                "negative",
                "a duration from",
            ],
        ),
        (
            "locking:\n  pollInterval: 30\n",
            ["config.yaml:2:", "locking.pollInterval", "30 what", "30s"],
        ),
        (
            "history:\n  maxEvents: many\n",
            [
                "config.yaml:2:",
                "history.maxEvents",
                "many",
                "a whole number from",
            ],
        ),
        (
            "locking:\n  waitTimeot: 5m\n",
            [
                "config.yaml:2:",
                "locking.waitTimeot",
                "did you mean waitTimeout",
                "pollInterval",
            ],
        ),
        (
            "loking:\n  waitTimeout: 5m\n",
            [
                "config.yaml:1:",
                "loking",
                "did you mean locking",
                "history",
            ],
        ),
        (
            "locking: [1, 2\n",
            ["config.yaml", "work/.tenure", ":", "error"],
        ),
    ] {
        project.write(".tenure/config.yaml", text);
        let said = project
            .call("run build")
            .sh("touch ran")
            .end()
            .fails(2, &words);
        assert!(!project.path("ran").exists(), "{said:?}");
        assert_eq!(
            project.tenure("config show --json").exits(2).error(),
            "BAD_CONFIG",
            "{text}"
        );
    }
}

#[test]
fn a_bad_variable_names_itself() {
    let project = Project::new();
    let with = |name: &str, value: &str| project.call("locks list").env(name, value).end();
    with("TENURE_LOCKING_WAIT_TIMEOUT", "soon")
        .fails(2, &["TENURE_LOCKING_WAIT_TIMEOUT", "a duration from"]);
    with("TENURE_RUN_KILL_GRACE", "2h").fails(2, &["TENURE_RUN_KILL_GRACE", "1h"]);
    with("TENURE_LOCKING_WAIT_TIMEOUT", "").exits(0);
}

#[test]
fn a_hostile_file_is_refused_with_its_position() {
    let project = Project::new();
    let aliases = |i: usize| {
        let aliases = vec![format!("*a{}", i - 1); 20].join(", ");
        format!("a{i}: &a{i} [{aliases}]\n")
    };
    let bomb = (1..8).fold("a0: &a0 x\n".to_owned(), |text, i| text + &aliases(i));
    let key = "k".repeat(30_000);
    for (text, words) in [
        (
            "- ".repeat(30_000),
            "config.yaml:1:17: this is nested more than 8 levels deep",
        ),
        (
            "[".repeat(60_000),
            "config.yaml:1:256: this is nested more than 8 levels deep",
        ),
        (
            "{a: ".repeat(15_000),
            "config.yaml:1:1021: this is nested more than 8 levels deep",
        ),
        (
            bomb,
            "this file has more keys, values or aliases than any configuration needs",
        ),
        (
            "run: &x\n  killGrace: *x\n".to_owned(),
            "config.yaml:2:14: this is not valid YAML",
        ),
        (
            format!("run:\n  killGrace: \"{}\"\n", "9".repeat(60_000)),
            "config.yaml:2:14: run.killGrace: 60000 bytes are too long; accepted is a duration",
        ),
        (
            format!("? {key}\n: 1\n"),
            "config.yaml:1:3: unknown key kkk",
        ),
    ] {
        project.write(".tenure/config.yaml", &text);
        let said = project.tenure("config show").fails(2, &[words]);
        assert!(said.err.len() < 1000, "{}", said.err);
    }
}

#[test]
fn a_file_that_is_not_a_configuration_is_refused() {
    let project = Project::new();
    let file = project.path(".tenure/config.yaml");
    std::fs::create_dir(&file).unwrap();
    project
        .tenure("locks list")
        .fails(2, &["config.yaml", "directory"]);
    std::fs::remove_dir(&file).unwrap();
    std::fs::write(&file, b"\xff\xfe").unwrap();
    project
        .tenure("locks list")
        .fails(2, &["config.yaml", "UTF-8"]);
    std::fs::write(&file, vec![b'#'; 1_000_000]).unwrap();
    project
        .tenure("locks list")
        .fails(2, &["config.yaml", "larger"]);
    for nothing in ["", "# nothing yet\n", "locking:\n", "{}\n"] {
        std::fs::write(&file, nothing).unwrap();
        project.tenure("locks list").exits(0);
    }
}

#[test]
fn paths_are_listed_whether_or_not_the_files_exist() {
    let project = Project::new();
    project.write(".tenure/config.yaml", "");
    let said = project.tenure("config path").exits(0);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].ends_with("home/.tenure/config.yaml (does not exist)"),
        "{said:?}"
    );
    assert!(lines[1].ends_with("work/.tenure/config.yaml"), "{said:?}");
    let json = project.tenure("config path --json").exits(0).json();
    assert_eq!(json["data"]["paths"][0]["exists"], false);
    assert_eq!(json["data"]["paths"][1]["exists"], true);
}

#[test]
fn without_a_project_the_users_settings_are_shown() {
    let project = Project::uninitialised();
    write_home(&project, "locking:\n  waitTimeout: 1m\n");
    let said = project.tenure("config show --json").exits(0);
    assert_eq!(setting(&said, "locking.waitTimeout")["value"], "1m");
    let said = project
        .call("config show --json")
        .env("HOME", "")
        .end()
        .exits(0);
    assert_eq!(setting(&said, "locking.waitTimeout")["value"], "30m");
}

#[test]
fn the_projects_settings_apply_to_a_named_store_too() {
    let project = Project::new();
    project.write(".tenure/config.yaml", "locking:\n  taskTimeout: 7m\n");
    let json = project
        .tenure("acquire build --as me --store sqlite:other.db --json")
        .exits(0)
        .json();
    assert!(
        (410..=420).contains(&json["data"]["remainingSeconds"].as_u64().unwrap()),
        "{json}"
    );
    assert!(project.path("other.db").exists());
    assert_eq!(
        project.tenure("locks list").out,
        "No locks.\n",
        "the lease is in the other store"
    );
}

#[test]
fn a_variable_that_looks_like_a_slip_is_named_and_stops_no_command() {
    let project = Project::new();
    let says = "tenure: environment variable TENURE_WAIT: no setting has this name: \
                did you mean TENURE_LOCKING_WAIT_TIMEOUT?\n";
    for words in [
        "run build -- true",
        "tasks list",
        "locks list",
        "config show",
    ] {
        let said = project.call(words).env("TENURE_WAIT", "5m").end().exits(0);
        assert_eq!(said.err.lines().next(), says.lines().next(), "{words}");
        // Other programs may use the prefix.
        let said = project.call(words).env("TENURE_VERSION", "1.2").end();
        assert_eq!(said.exits(0).err, "", "{words}");
    }
    let quiet = project.call("locks list -q").env("TENURE_WAIT", "5m").end();
    assert_eq!(quiet.exits(0).err, "");
    // What tenure gives to a command, the command's tenure accepts.
    let inner = project
        .call("run build")
        .sh("$TENURE run other -- $TENURE locks list");
    inner.end().exits(0);
}
