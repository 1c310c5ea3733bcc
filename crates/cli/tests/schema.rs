//! `tenure schema`. Every answer that any test reads as JSON is checked against it: see `Said::json`.

use std::collections::BTreeSet;
use std::fs;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::Value;

use crate::project::Project;

/// The schema that the command prints.
fn schema() -> &'static Value {
    static SCHEMA: OnceLock<Value> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let said = Project::uninitialised().tenure("schema").exits(0);
        serde_json::from_str(&said.out).unwrap()
    })
}

fn validator() -> &'static Validator {
    static VALIDATOR: OnceLock<Validator> = OnceLock::new();
    VALIDATOR.get_or_init(|| jsonschema::draft202012::new(schema()).unwrap())
}

/// Asserts that the schema allows this answer of a command. What has no envelope is no answer.
#[track_caller]
pub(crate) fn allows(answer: &Value) {
    if answer.get("success").is_none() {
        return;
    }
    let command = &answer["command"];
    let subcommand = &answer["subcommand"];
    let faults: Vec<String> = validator()
        .iter_errors(answer)
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect();
    assert!(
        faults.is_empty(),
        "the schema does not allow what {command} {subcommand} prints:\n{}",
        faults.join("\n")
    );
}

#[test]
fn the_schema_is_valid_and_its_envelope_holds_it_with_json() {
    assert!(jsonschema::meta::is_valid(schema()));
    let said = Project::uninitialised().tenure("schema --json").exits(0);
    assert_eq!(&said.json()["data"], schema());
}

#[test]
fn what_no_command_prints_is_refused() {
    let answer = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    let valid = answer(
        r#"{"success":true,"command":"fence","subcommand":null,"error":null,
            "data":{"key":"build","token":1,"holder":"a","expiresAt":null}}"#,
    );
    allows(&valid);
    let changed = |pointer: &str, value: Value| {
        let mut answer = valid.clone();
        *answer.pointer_mut(pointer).unwrap() = value;
        answer
    };
    for wrong in [
        changed("/command", "fences".into()),
        changed("/subcommand", "list".into()),
        changed("/success", false.into()),
        changed("/data", Value::Null),
        changed("/data/token", "1".into()),
        changed(
            "/error",
            answer(r#"{"code":"IO","message":"","details":{}}"#),
        ),
    ] {
        assert!(!validator().is_valid(&wrong), "{wrong}");
    }
    let failure = r#"{"success":false,"command":"fence","subcommand":null,"data":null,
        "error":{"code":"CODE","message":"","details":{"x":1}}}"#;
    assert!(validator().is_valid(&answer(&failure.replace("CODE", "IO"))));
    for code in ["TASK_BLOCKED", "NO_SUCH_CODE"] {
        assert!(
            !validator().is_valid(&answer(&failure.replace("CODE", code))),
            "{code}"
        );
    }
}

#[test]
fn an_error_code_has_its_meaning_and_its_exit_code() {
    let codes = schema()["$defs"]["ErrorCode"]["oneOf"].as_array().unwrap();
    let locked = codes.iter().find(|code| code["const"] == "LOCKED").unwrap();
    assert_eq!(locked["exitCode"], 6);
    assert_eq!(locked["description"], "Another holder has the key.");
    for code in codes {
        assert!(
            code["exitCode"].as_i64().is_some_and(|exit| exit > 0),
            "{code}"
        );
    }
}

#[test]
fn every_command_is_in_the_schema() {
    let project = Project::uninitialised();
    project.tenure("man --dir pages").exits(0);
    let pages = fs::read_dir(project.path("pages")).unwrap();
    let pages = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<String> = pages
        .map(|page| page.trim_end_matches(".1").to_owned())
        .collect();
    let outcomes = schema()["oneOf"].as_array().unwrap();
    let titles = outcomes.iter().map(|outcome| outcome["title"].as_str());
    let known: BTreeSet<String> = titles
        .map(|title| title.unwrap().trim_end_matches(" *").replace(' ', "-"))
        .collect();
    let is_group = |page: &str| {
        pages
            .iter()
            .any(|other| other.starts_with(&format!("{page}-")))
    };
    for page in &pages {
        // It answers agents, in their own forms.
        let is_hook = page == "tenure-hook";
        assert!(is_hook || is_group(page) || known.contains(page), "{page}");
    }
}
