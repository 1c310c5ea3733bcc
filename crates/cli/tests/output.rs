//! Output: the JSON envelope, colours, and readers that close the pipe.

use crate::project;

use project::Project;

#[test]
fn json_is_one_envelope_with_its_fields_in_order() {
    let project = Project::new();
    let said = project.tenure("acquire build --as me --json").exits(0);
    assert_eq!(said.err, "");
    snapbox::assert_data_eq!(
        said.out.as_str(),
        snapbox::str![[r#"
{
  "success": true,
  "command": "acquire",
  "subcommand": null,
  "data": {
    "key": "build",
    "holder": "me",
    "token": 1,
    "acquiredAt": "[..]Z",
    "expiresAt": "[..]Z",
    "heartbeatAt": "[..]Z",
    "remainingSeconds": [..],
    "host": "[..]",
    "pid": null,
    "command": null,
    "reason": "acquired_new"
  },
  "error": null
}

"#]]
    );
    let said = project.tenure("locks show nothing --json").exits(4);
    snapbox::assert_data_eq!(
        said.out.as_str(),
        snapbox::str![[r#"
{
  "success": false,
  "command": "locks",
  "subcommand": "show",
  "data": null,
  "error": {
    "code": "LOCK_NOT_FOUND",
    "message": "no lock matches nothing: see tenure locks list",
    "details": {
      "id": "nothing"
    }
  }
}

"#]]
    );
}

#[test]
fn every_command_answers_in_json() {
    let project = Project::new();
    let cases = [
        ("init", "init", None),
        ("acquire build --as me", "acquire", None),
        ("renew build --as me", "renew", None),
        ("fence build --token 1", "fence", None),
        ("locks list", "locks", Some("list")),
        ("locks show build", "locks", Some("show")),
        ("locks cleanup", "locks", Some("cleanup")),
        ("locks history build", "locks", Some("history")),
        ("force build", "force", None),
        ("config show", "config", Some("show")),
        ("config path", "config", Some("path")),
        ("completions bash", "completions", None),
        ("man", "man", None),
        ("acquire build --as me", "acquire", None),
        ("release build --as me", "release", None),
    ];
    for (words, command, subcommand) in cases {
        let said = project.tenure(&format!("{words} --json")).exits(0);
        let json = said.json();
        assert_eq!(said.err, "", "{words}");
        assert_eq!(json["success"], true, "{words}");
        assert_eq!(json["command"], command, "{words}");
        assert_eq!(json["subcommand"].as_str(), subcommand, "{words}");
        assert!(json["data"].is_object(), "{words}: {json}");
        assert!(json["error"].is_null(), "{words}");
    }
}

#[test]
fn errors_go_to_stderr_as_text_and_to_stdout_as_json() {
    let project = Project::new();
    let text = project.tenure("release nothing").exits(4);
    assert_eq!(text.out, "");
    assert!(text.err.starts_with("error: "), "{text:?}");
    let json = project.tenure("release nothing --json").exits(4);
    assert_eq!(json.err, "");
    assert_eq!(json.error(), "LOCK_NOT_FOUND");
    let quiet = project.tenure("release nothing --quiet").exits(4);
    assert!(!quiet.err.is_empty(), "quiet is not silent about errors");
}

#[test]
fn no_colour_is_written_without_a_terminal() {
    let project = Project::new();
    for words in [
        "release nothing",
        "locks list",
        "--help",
        "frobnicate",
        "config show",
    ] {
        let said = project.tenure(words);
        assert!(
            !said.out.contains('\x1b') && !said.err.contains('\x1b'),
            "{words}: {said:?}"
        );
    }
}

#[test]
fn a_reader_that_closes_the_pipe_is_no_failure() {
    let project = Project::new();
    for n in 0..40 {
        project.acquire(&format!(
            "a-key-with-quite-a-long-name-so-that-the-list-is-long-{n} --as me"
        ));
    }
    // More than a pipe buffers, into a pipe without a reader.
    for words in [
        "locks list",
        "locks list --json",
        "locks history",
        "completions bash",
        "man",
        "--help",
        "config show",
        "acquire build --as me",
    ] {
        let script = format!("{{ $TENURE {words}; echo $? > code; }} 2> err | true");
        project.shell(&script).end().exits(0);
        assert_eq!(project.read("code"), "0\n", "{words}");
        assert!(
            !project.read("err").contains("panicked"),
            "{words}: {}",
            project.read("err")
        );
    }
    let script = "{ $TENURE release nothing 2>&1; echo $? > code; } | true";
    project.shell(script).end().exits(0);
    assert_eq!(project.read("code"), "4\n");
}

#[test]
fn closed_standard_streams_are_no_failure() {
    let project = Project::new();
    for closed in [">&-", "2>&-", "<&-", "<&- >&- 2>&-"] {
        let script = format!(
            "$TENURE locks list {closed}; echo $? > code; $TENURE run build -- true {closed}; echo $? >> code; $TENURE release nothing {closed}; echo $? >> code"
        );
        let said = project.shell(&script).end().exits(0);
        assert_eq!(project.read("code"), "0\n0\n4\n", "{closed}: {said:?}");
    }
}

#[test]
fn hints_can_be_pasted_into_a_shell() {
    let project = Project::new();
    let key = "two words; $(touch pwned)";
    let said = project.call("acquire --as me").arg(key).end().exits(0);
    let hint = said
        .err
        .split_once("to release it: tenure ")
        .unwrap()
        .1
        .trim()
        .to_owned();
    project.shell(&format!("$TENURE {hint}")).end();
    assert!(!project.path("pwned").exists(), "{hint}");
    project.call("release --as me").arg(key).end().exits(4);
}
