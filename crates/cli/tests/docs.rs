//! The documentation says what the command says.
//!
//! Every ```` ```console ```` block of the README, the guide and the reference is run. A page is one session of
//! `bash` in an empty folder: lines that begin with `$ ` are commands, the lines after one are what it prints
//! (stdout and stderr together). Commands that a reader need not see stand in an HTML comment:
//!
//! ```text
//! <!-- run
//! tenure init --quiet
//! -->
//! ```
//!
//! 1. Values that differ from run to run (times, durations, pids, ids, this host's name, this folder) are
//!    replaced by placeholders on both sides, and runs of blanks count as one. Everything else has to match;
//!    `[..]` matches anything within a line, and `...` any number of lines.
//! 2. A block of another kind is run if the word `run` follows its kind, and has to succeed: a ```` ```sh run ````
//!    as a whole, of any other (`yaml`, `groovy`, `markdown`) the commands of tenure in it. In these, `ID` is the
//!    task that `tasks next` printed, and `NAME` is `$NAME`. Other blocks (`sh`, `text`, `json`) are not run.
//! 3. The tests and links that the documentation names exist.
//!
//! After a message has changed, `DOCS=overwrite cargo test -p tenure-cli --test command -- docs --test-threads=1` writes
//! what the command prints now into the pages. Read the diff: the test can't tell a better message from a worse one.

mod picture;
use crate::project;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use project::{Project, TENURE};
use snapbox::Data;
use snapbox::filter::NormalizeToExpected;

/// The names that stand for this host and for the folder of the session.
const HOST: &str = "laptop";
const FOLDER: &str = "/home/me/project";

/// The README may not grow beyond what is read in one sitting.
const README_LINES: usize = 150;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages whose transcripts are run.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    for folder in ["docs/guide", "docs/reference"] {
        pages.extend(markdown(&root().join(folder)));
    }
    pages
}

/// Every page there is.
fn all_pages() -> Vec<PathBuf> {
    let mut pages = pages();
    pages.extend(markdown(&root().join("docs")));
    pages.extend(markdown(&root()).filter(|page| !page.ends_with("README.md")));
    pages
}

fn markdown(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect();
    found.sort();
    found.into_iter()
}

/// One command of a page.
#[derive(Debug)]
struct Example {
    command: String,
    /// What it should print; `None` for a command that is not shown.
    expected: Option<String>,
    /// The lines of the page that hold what it prints.
    lines: std::ops::Range<usize>,
    /// Whether the page promises that it succeeds.
    succeeds: bool,
}

impl Example {
    fn silent(command: String, at: usize, succeeds: bool) -> Self {
        Self {
            command,
            expected: None,
            lines: at..at,
            succeeds,
        }
    }
}

/// What the lines of a page belong to.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Prose,
    Console,
    Hidden,
    /// A shell script that is run as a whole.
    Script,
    /// A file of another kind, with commands in it.
    Excerpt,
    OtherBlock,
}

fn examples(page: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut part = Part::Prose;
    for (at, line) in page.lines().enumerate() {
        match (part, line) {
            (Part::Prose, "```console") => part = Part::Console,
            (Part::Prose, "<!-- run") => part = Part::Hidden,
            (Part::Prose, "```sh run") => {
                found.push(Example::silent(String::new(), at, true));
                part = Part::Script;
            }
            (Part::Prose, line) if line.starts_with("```") && line.ends_with(" run") => {
                part = Part::Excerpt;
            }
            (Part::Prose, line) if line.starts_with("```") => part = Part::OtherBlock,
            (Part::Hidden, "-->") => part = Part::Prose,
            (Part::Hidden, line) => found.push(Example::silent(line.to_owned(), at, false)),
            (Part::Prose, _) => {}
            (_, "```") => part = Part::Prose,
            (Part::Script, line) => {
                let script = found.last_mut().unwrap();
                script.command = format!("{}{line}\n", script.command);
            }
            (Part::Excerpt, line) => {
                let command = excerpt(line);
                found.extend(command.map(|command| Example::silent(command, at, true)));
            }
            (Part::Console, line) => match (line.strip_prefix("$ "), found.last_mut()) {
                (Some(command), _) => found.push(Example {
                    command: command.to_owned(),
                    expected: Some(String::new()),
                    lines: at + 1..at + 1,
                    succeeds: false,
                }),
                (
                    None,
                    Some(Example {
                        expected: Some(expected),
                        lines,
                        ..
                    }),
                ) => {
                    let _ = writeln!(expected, "{line}");
                    lines.end = at + 1;
                }
                (None, _) => panic!("line {}: output before the first command", at + 1),
            },
            (Part::OtherBlock, _) => {}
        }
    }
    assert!(part == Part::Prose, "a block has no end");
    found
}

/// The command of tenure on a line of a workflow, a pipeline or an `AGENTS.md`.
fn excerpt(line: &str) -> Option<String> {
    let bare = line.trim_start();
    let bare = bare.strip_prefix("- ").unwrap_or(bare);
    let bare = bare.strip_prefix("run: ").unwrap_or(bare);
    let bare = match bare.strip_prefix("sh '") {
        Some(quoted) => quoted.trim_end_matches('\''),
        None => bare,
    };
    bare.starts_with("tenure ").then(|| {
        bare.replace(" ID", " \"$ID\"")
            .replace(" NAME", " \"$NAME\"")
    })
}

/// Runs the commands one after another in one shell, and returns what each of them printed.
fn run(examples: &[Example]) -> Vec<String> {
    let project = Project::uninitialised();
    let printed = tempfile::tempdir().unwrap();
    let file = |number: usize| printed.path().join(number.to_string());
    let mut script = String::from("exec </dev/null\n");
    for (number, example) in examples.iter().enumerate() {
        let out = file(number).display().to_string();
        let _ = writeln!(script, "exec >'{out}' 2>&1\n{}", example.command);
        if example.succeeds {
            let _ = writeln!(script, "echo $? >'{out}.code'");
        }
        if example.succeeds && example.command.contains(" next ") {
            let _ = writeln!(script, "ID=$(tail -n 1 '{out}')");
        }
    }
    // What a page leaves running ends with it.
    script.push_str("exec >/dev/null 2>&1\n[ ! -e .tenure/daemon.json ] || tenure daemon stop\n");
    script.push_str("kill $(jobs -p); wait\n");
    let binaries = Path::new(TENURE).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let status = project
        .program("timeout")
        .args(["--kill-after=5", "60", "bash", "-c", &script])
        .env("PATH", format!("{}:{path}", binaries.display()))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("LC_ALL", "C.UTF-8")
        .env("COLUMNS", "80")
        // Under make, a make in a transcript would say where it is.
        .env_remove("MAKELEVEL")
        .env_remove("MAKEFLAGS")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_ne!(
        status.code(),
        Some(124),
        "the page took longer than a minute: {examples:#?}"
    );
    for (number, example) in examples.iter().enumerate().filter(|(_, it)| it.succeeds) {
        let code = fs::read_to_string(file(number).with_extension("code")).unwrap_or_default();
        let said = fs::read_to_string(file(number)).unwrap_or_default();
        assert_eq!(code.trim(), "0", "{}\n{said}", example.command);
    }
    let here = fs::canonicalize(project.root()).unwrap();
    (0..examples.len())
        .map(|number| {
            let text = fs::read(file(number)).unwrap_or_default();
            presentable(&String::from_utf8_lossy(&text), &here.display().to_string())
        })
        .collect()
}

/// What a command printed, with this host and this folder called as they are in the documentation.
fn presentable(text: &str, here: &str) -> String {
    let host = Command::new("hostname").output().unwrap().stdout;
    let host = String::from_utf8(host).unwrap();
    let text = text.replace(here, FOLDER);
    replace_words(&text, |word| (word == host.trim()).then(|| HOST.to_owned()))
}

/// The text with everything that differs from run to run replaced.
fn comparable(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = replace_words(&line, |word| {
            let kind = if is_time(word) {
                "TIME"
            } else if is_duration(word) {
                "SPAN"
            } else if is_id(word) {
                "ID"
            } else {
                return None;
            };
            Some(kind.to_owned())
        });
        let line = line.replace("SPAN SPAN", "SPAN");
        // A busy machine has fewer of them left.
        let line = match line.split_once("\"remainingSeconds\": ") {
            Some((before, _)) => format!("{before}\"remainingSeconds\": SPAN"),
            None => line,
        };
        let _ = writeln!(out, "{}", without_pids(&line));
    }
    out
}

/// A word is what stands between blanks, brackets, quotes and the like; a full stop or a colon at its end is not
/// part of it.
fn replace_words(text: &str, replace: impl Fn(&str) -> Option<String>) -> String {
    let is_boundary = |c: char| c.is_whitespace() || "()[]{}\"',;@=".contains(c);
    let mut out = String::new();
    for piece in text.split_inclusive(is_boundary) {
        let bare = piece.trim_end_matches(is_boundary);
        let word = bare.trim_end_matches(['.', ':']);
        match replace(word) {
            Some(other) => {
                out.push_str(&other);
                out.push_str(piece.get(word.len()..).unwrap_or_default());
            }
            None => out.push_str(piece),
        }
    }
    out
}

/// `2026-11-15T19:14:04.401Z`
fn is_time(word: &str) -> bool {
    word.len() >= 20
        && word.starts_with("20")
        && word.ends_with('Z')
        && word.get(10..11) == Some("T")
}

/// `3s`, `521ms`, `59m`
fn is_duration(word: &str) -> bool {
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < word.len() && ["ms", "s", "m", "h"].contains(&unit)
}

/// `3873d8d6`, `3873d8d6-8887-4c62-a418-92d5cefd0df7`
fn is_id(word: &str) -> bool {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c) || c == '-';
    [7, 8, 36].contains(&word.len()) && word.chars().all(is_hex) && !word.contains("--")
}

/// `pid 12345` becomes `pid PID`, and the pid in a made-up name as well: `me@laptop:12345`.
fn without_pids(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = ["pid ", "laptop:", "\"pid\": "]
        .iter()
        .filter_map(|mark| rest.find(mark).map(|at| at + mark.len()))
        .min()
    {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() < after.len() {
            out.push_str("PID");
        }
    }
    out + rest
}

/// Whether what was printed is what the page says, `[..]` and `...` included.
fn matches(expected: &str, printed: &str) -> bool {
    let (expected, printed) = (comparable(expected), comparable(printed));
    let (expected, printed) = (Data::text(expected), Data::text(printed));
    NormalizeToExpected::new()
        .redact()
        .normalize(printed, &expected)
        == expected
}

#[test]
fn the_command_prints_what_the_documentation_says() {
    let overwrite = overwrites();
    let mut differences = String::new();
    let results: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = pages()
            .into_iter()
            .map(|page| {
                scope.spawn(move || {
                    let text = fs::read_to_string(&page).unwrap();
                    let examples = examples(&text);
                    let printed = run(&examples);
                    (page, text, examples, printed)
                })
            })
            .collect();
        started
            .into_iter()
            .map(|page| page.join().unwrap())
            .collect()
    });
    for (page, text, examples, printed) in results {
        let mut lines: Vec<&str> = text.lines().collect();
        for (example, printed) in examples.iter().zip(&printed).rev() {
            let Some(expected) = &example.expected else {
                continue;
            };
            if matches(expected, printed) {
                continue;
            }
            let _ = writeln!(
                differences,
                "{}:{}\n$ {}\n--- the page says\n{expected}--- the command says\n{printed}",
                page.display(),
                example.lines.start,
                example.command,
            );
            lines.splice(example.lines.clone(), printed.lines());
        }
        if overwrite {
            fs::write(&page, lines.join("\n") + "\n").unwrap();
        }
    }
    assert!(overwrite || differences.is_empty(), "\n{differences}");
}

#[test]
fn every_test_that_the_guarantees_name_exists() {
    let named: BTreeSet<String> = code_spans("docs/guarantees.md")
        .filter(|span| {
            span.len() > 14
                && span
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .collect();
    assert!(named.len() > 40, "{named:?}");
    let mut sources = String::new();
    read_sources(&root().join("crates"), &mut sources);
    let missing: Vec<&String> = named
        .iter()
        .filter(|name| !sources.contains(name.as_str()))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/guarantees.md names tests that are not there: {missing:#?}"
    );
}

#[test]
fn every_source_file_that_the_documentation_names_exists() {
    let mut missing = Vec::new();
    for page in [
        "docs/architecture.md",
        "docs/guarantees.md",
        "CONTRIBUTING.md",
    ] {
        for span in code_spans(page) {
            let path = Path::new(&span);
            let is_source = path.extension().is_some_and(|end| end == "rs");
            let in_crate = span.contains("/src/") || span.contains("/tests/");
            let there = if is_source && in_crate && !span.starts_with("crates/") {
                root().join("crates").join(path)
            } else {
                root().join(path)
            };
            let is_named = there.starts_with(root().join("crates")) && !span.contains('*');
            if is_named && !there.exists() {
                missing.push(format!("{page}: {span}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in all_pages() {
        let text = fs::read_to_string(&page).unwrap();
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = if file.is_empty() {
                page.clone()
            } else {
                page.with_file_name(file)
            };
            let found = fs::read_to_string(&there)
                .is_ok_and(|text| heading.is_empty() || has_heading(&text, heading))
                || (heading.is_empty() && there.is_dir());
            if !found {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_setting_is_in_the_reference() {
    let page = fs::read_to_string(root().join("docs/reference/configuration.md")).unwrap();
    let project = Project::uninitialised();
    let shown = project.tenure("config show --json").exits(0).json();
    for setting in shown["data"]["settings"].as_array().unwrap() {
        let text = |field: &str| setting[field].as_str().unwrap().to_owned();
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` | {} |", text("key"), text("default"))));
        let row = row.unwrap_or_else(|| panic!("no row for {setting}"));
        assert!(row.contains(&format!("`{}`", text("environment"))), "{row}");
    }
}

#[test]
fn every_command_is_in_the_reference() {
    let page = fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let help = Project::uninitialised().tenure("--help").exits(0).out;
    let (_, commands) = help.split_once("Everyday:\n").unwrap();
    let (commands, _) = commands.split_once("Options:\n").unwrap();
    for line in commands.lines().filter(|line| line.starts_with("  ")) {
        let command = line.split_whitespace().next().unwrap();
        let found = ["`", " "]
            .iter()
            .any(|end| page.contains(&format!("| `{command}{end}")));
        assert!(found, "no row for tenure {command}");
    }
}

#[test]
fn the_picture_shows_what_a_terminal_shows() {
    let path = root().join("docs/waiting.svg");
    let made = picture::waiting();
    if overwrites() {
        fs::write(&path, made).unwrap();
    } else {
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), made);
    }
}

#[test]
fn the_demo_types_its_commands_and_ends_with_what_was_seen() {
    let project = Project::uninitialised();
    let mut demo = project.program("bash");
    demo.arg(root().join("demo/demo.sh"));
    let said = project.prepare(demo).end().exits(0);
    let lines: Vec<&str> = said.out.lines().collect();
    let at = |text: &str| lines.iter().position(|line| line.contains(text));
    let first = at("$ tenure run build --as agent-1").unwrap();
    assert!(first < at("$ kill -9 ").unwrap(), "{}", said.out);
    for text in [
        "agent-2 builds now",
        "taken over from a dead holder",
        "The token is the number of a grant.",
        "(exit code 7)",
        "$ tenure tasks work ",
    ] {
        assert!(at(text).is_some(), "{text}: {}", said.out);
    }
    assert!(
        lines.last().unwrap().starts_with("# You saw "),
        "{}",
        said.out
    );
    // The shell's own noise is not shown.
    assert!(
        !said.out.contains("Killed") && said.err.is_empty(),
        "{said:?}"
    );
}

/// Whether the pages are written, not compared.
fn overwrites() -> bool {
    std::env::var("DOCS").is_ok_and(|wish| wish == "overwrite")
}

#[test]
fn the_readme_is_read_in_one_sitting() {
    let lines = fs::read_to_string(root().join("README.md"))
        .unwrap()
        .lines()
        .count();
    assert!(lines <= README_LINES, "README.md has {lines} lines");
}

/// What stands between single backticks on a page, outside of blocks.
fn code_spans(page: &str) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let mut prose = String::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    let spans: Vec<String> = prose
        .split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    spans.into_iter()
}

fn read_sources(folder: &Path, sources: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|end| end == "rs") {
            sources.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// Whether a page has a heading with this anchor, made as GitHub makes them.
fn has_heading(text: &str, anchor: &str) -> bool {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| {
            let made: String = line
                .trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect();
            made == anchor
        })
}
