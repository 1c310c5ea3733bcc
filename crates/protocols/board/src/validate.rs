//! Checking a board: [`validate`] finds every problem, with its file and line.
//!
//! An error is what makes the bilu tool refuse a file or the board, or what makes two programs read it
//! differently. A warning is what both tools read, with a default in its place.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use tenure_core::graph::Graph;

use crate::BoardError;
use crate::config::{Config, Level, Vocabulary};
use crate::document::{Document, Section};
use crate::index;
use crate::load::{self, TaskFile};
use crate::location::Board;
use crate::task::id_of;

/// The sections that every task must have.
const REQUIRED: [Section; 4] = [
    Section::Description,
    Section::Status,
    Section::Priority,
    Section::Kind,
];

/// The kind of a problem, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    /// The configuration can't be used.
    BadConfig,
    /// The index can't be used.
    BadIndex,
    /// A task file can't be read.
    Unreadable,
    /// A file or its name is not UTF-8.
    BadEncoding,
    /// The first line is not a title.
    NoTitle,
    /// A required section is missing.
    MissingSection,
    /// A required section has no value.
    EmptySection,
    /// A section occurs twice.
    RepeatedSection,
    /// The status is not defined in the configuration.
    UnknownStatus,
    /// The priority is not defined in the configuration.
    UnknownPriority,
    /// The kind is not defined in the configuration.
    UnknownKind,
    /// A dependency names no task.
    DeadDependency,
    /// A task depends on itself, directly or through others.
    Cycle,
    /// Two tasks, or two entries of the index, have the same id.
    DuplicateId,
}

/// How bad a problem is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The board can't be used as it is.
    Error,
    /// The board can be used; a default counts, or a line has no effect.
    Warning,
}

impl Severity {
    /// Its name in `--json`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

impl ProblemKind {
    /// How bad it is.
    pub fn severity(self) -> Severity {
        match self {
            Self::BadConfig
            | Self::BadIndex
            | Self::Unreadable
            | Self::BadEncoding
            | Self::NoTitle
            | Self::Cycle
            | Self::DuplicateId => Severity::Error,
            Self::MissingSection
            | Self::EmptySection
            | Self::RepeatedSection
            | Self::UnknownStatus
            | Self::UnknownPriority
            | Self::UnknownKind
            | Self::DeadDependency => Severity::Warning,
        }
    }

    /// Its code in `--json`.
    pub fn code(self) -> &'static str {
        match self {
            Self::BadConfig => "bad_config",
            Self::BadIndex => "bad_index",
            Self::Unreadable => "unreadable",
            Self::BadEncoding => "bad_encoding",
            Self::NoTitle => "no_title",
            Self::MissingSection => "missing_section",
            Self::EmptySection => "empty_section",
            Self::RepeatedSection => "repeated_section",
            Self::UnknownStatus => "unknown_status",
            Self::UnknownPriority => "unknown_priority",
            Self::UnknownKind => "unknown_kind",
            Self::DeadDependency => "dead_dependency",
            Self::Cycle => "cycle",
            Self::DuplicateId => "duplicate_id",
        }
    }
}

/// A problem and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1.
    pub line: usize,
    /// The kind of problem.
    pub kind: ProblemKind,
    /// What is wrong, and how to fix it.
    pub message: String,
}

impl Problem {
    fn new(
        path: impl Into<PathBuf>,
        line: usize,
        kind: ProblemKind,
        message: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            line,
            kind,
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

/// The result of [`validate`].
#[derive(Debug)]
pub struct Validation {
    /// The number of task files that could be read.
    pub tasks: usize,
    /// The problems, by file and line.
    pub problems: Vec<Problem>,
}

/// Finds every problem of a board. It is an error only if the folder of the tasks can't be read.
pub fn validate(board: &Board) -> Result<Validation, BoardError> {
    let mut problems = Vec::new();
    let config = Config::read(&board.config())
        .map_err(|error| problems.push(unusable(&board.config(), ProblemKind::BadConfig, error)))
        .ok();
    let loaded = load::load(board)?;
    for path in loaded.badly_named {
        let message = "the file name is not UTF-8: rename the file";
        problems.push(Problem::new(path, 1, ProblemKind::BadEncoding, message));
    }
    for (path, error) in loaded.unreadable {
        let message = format!("can't be read ({error}): check its permissions");
        problems.push(Problem::new(path, 1, ProblemKind::Unreadable, message));
    }
    let documents: Vec<(&TaskFile, Document<'_>)> = loaded
        .files
        .iter()
        .map(|file| (file, file.document()))
        .collect();
    check_ids(&documents, &mut problems);
    for (file, document) in &documents {
        let mut report = |line: usize, kind: ProblemKind, message: String| {
            problems.push(Problem::new(&file.path, line, kind, message));
        };
        check_contents(document, &mut report);
        if let Some(config) = &config {
            check_values(document, config, &mut report);
        }
    }
    check_dependencies(&documents, &mut problems);
    check_index(&board.index(), &mut problems);
    problems.sort_by(|a, b| (&a.path, a.line, a.kind).cmp(&(&b.path, b.line, b.kind)));
    Ok(Validation {
        tasks: documents.len(),
        problems,
    })
}

/// The problem of a configuration or an index that can't be used.
fn unusable(path: &Path, kind: ProblemKind, error: BoardError) -> Problem {
    match error {
        BoardError::BadConfig { path, line, what } | BoardError::BadIndex { path, line, what } => {
            Problem::new(path, line, kind, what)
        }
        error => Problem::new(path, 1, kind, error.to_string()),
    }
}

/// Checks one file by itself.
fn check_contents(document: &Document<'_>, report: &mut impl FnMut(usize, ProblemKind, String)) {
    if let Err(error) = std::str::from_utf8(document.bytes()) {
        let line = document.line_of(error.valid_up_to());
        let message = "this line is not UTF-8: save the file as UTF-8";
        report(line, ProblemKind::BadEncoding, message.into());
    }
    if !document.has_title_heading() {
        let message = match document.bytes() {
            [0xef, 0xbb, 0xbf, ..] => {
                "the file begins with a byte order mark, so \"# Title\" is not first: save it without"
            }
            _ => "the first line is not a title: write \"# Title\" there",
        };
        report(1, ProblemKind::NoTitle, message.into());
    }
    let last_line = document.lines().max(1);
    for section in REQUIRED {
        let name = section.name();
        match document.section(section) {
            None => {
                let message =
                    format!("no section \"# {name}\": add it, or run tenure board migrate");
                report(last_line, ProblemKind::MissingSection, message);
            }
            Some(parsed) if parsed.value.is_none() => {
                let message = format!("\"# {name}\" is empty: write its value on the next line");
                report(parsed.heading.line, ProblemKind::EmptySection, message);
            }
            Some(_) => {}
        }
    }
    for (section, line) in document.repeated() {
        let message = format!(
            "a second \"# {}\": only the first one counts, remove one of them",
            section.name()
        );
        report(*line, ProblemKind::RepeatedSection, message);
    }
}

/// Checks that the configuration defines the values of a file.
fn check_values(
    document: &Document<'_>,
    config: &Config,
    report: &mut impl FnMut(usize, ProblemKind, String),
) {
    for of in Vocabulary::ALL {
        let parsed = document.section(of.section());
        let Some(value) = parsed.and_then(|parsed| parsed.value.as_ref()) else {
            continue;
        };
        let text = document.text(&value.bytes);
        if config.written(of, &text).is_none() {
            let name = of.section().name().to_lowercase();
            let defined = Level::names(config.levels(of));
            let message = format!("unknown {name} {text:?}: config.json defines {defined}");
            let kind = match of {
                Vocabulary::Status => ProblemKind::UnknownStatus,
                Vocabulary::Priority => ProblemKind::UnknownPriority,
                Vocabulary::Kind => ProblemKind::UnknownKind,
            };
            report(value.line, kind, message);
        }
    }
}

/// Checks for ids that differ in letter case only: some file systems can't hold both files.
fn check_ids(documents: &[(&TaskFile, Document<'_>)], problems: &mut Vec<Problem>) {
    let mut seen: HashMap<String, &str> = HashMap::new();
    for (file, _) in documents {
        if let Some(other) = seen.insert(file.id.to_lowercase(), &file.id) {
            let message =
                format!("the name differs from {other}.md in letter case only: rename one of them");
            problems.push(Problem::new(
                &file.path,
                1,
                ProblemKind::DuplicateId,
                message,
            ));
        }
    }
}

/// Checks that dependencies name tasks, and that no task depends on itself.
fn check_dependencies(documents: &[(&TaskFile, Document<'_>)], problems: &mut Vec<Problem>) {
    let numbers: HashMap<&str, usize> = documents
        .iter()
        .enumerate()
        .map(|(number, (file, _))| (file.id.as_str(), number))
        .collect();
    // From one task to another, and the line that says so.
    let mut lines: HashMap<(usize, usize), usize> = HashMap::new();
    for (number, (file, document)) in documents.iter().enumerate() {
        let items = document
            .section(Section::DependsOn)
            .map(|parsed| parsed.items.iter());
        for item in items.into_iter().flatten() {
            let text = document.text(&item.bytes);
            if let Some(on) = numbers.get(id_of(&text)) {
                lines.entry((number, *on)).or_insert(item.line);
            } else {
                let message = format!("depends on {text:?}, and there is no such task");
                problems.push(Problem::new(
                    &file.path,
                    item.line,
                    ProblemKind::DeadDependency,
                    message,
                ));
            }
        }
    }
    for cycle in Graph::new(lines.keys().copied()).cycles() {
        let path: Vec<usize> = cycle.iter().chain(cycle.first()).copied().collect();
        let files = path.iter().filter_map(|number| documents.get(*number));
        let ids: Vec<&str> = files.map(|(file, _)| file.id.as_str()).collect();
        let [first, second, ..] = path.as_slice() else {
            continue;
        };
        if let (Some((file, _)), Some(line)) =
            (documents.get(*first), lines.get(&(*first, *second)))
        {
            let message = format!("depends on itself: {}", ids.join(" -> "));
            problems.push(Problem::new(&file.path, *line, ProblemKind::Cycle, message));
        }
    }
}

/// Checks the index for what the task files do not tell: whether it can be read, and repeated entries.
fn check_index(path: &Path, problems: &mut Vec<Problem>) {
    let entries = match index::read(path) {
        Ok(Some(entries)) => entries,
        Ok(None) => return,
        Err(error) => {
            problems.push(unusable(path, ProblemKind::BadIndex, error));
            return;
        }
    };
    for (number, entry) in entries.iter().enumerate() {
        let fields = [
            ("title", &entry.title),
            ("status", &entry.status),
            ("priority", &entry.priority),
            ("kind", &entry.kind),
            ("link", &entry.link),
        ];
        if let Some((name, _)) = fields.iter().find(|(_, value)| value.is_empty()) {
            let message = format!(
                "entry {} has no {name}: run tenure board rebuild-index --write",
                number + 1
            );
            problems.push(Problem::new(path, 1, ProblemKind::BadIndex, message));
        }
    }
    let mut seen = HashSet::new();
    let text = crate::read_file(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    for entry in &entries {
        if !seen.insert(entry.link.as_str()) {
            let quoted = format!("{:?}", entry.link);
            let second = text.match_indices(&quoted).nth(1).map_or(0, |(at, _)| at);
            let line = text.get(..second).unwrap_or_default().matches('\n').count() + 1;
            let message = format!(
                "{} is in the index twice: run tenure board rebuild-index --write",
                entry.link
            );
            problems.push(Problem::new(path, line, ProblemKind::DuplicateId, message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const CONFIG: &str =
        r#"{"statuses":{"TODO":1,"DONE":4},"priorities":{"HIGH":8},"kind":{"task":""}}"#;
    const GOOD: &str = "# T\n# Description\nx\n# Status\nTODO\n# Priority\nHIGH\n# Kind\ntask\n";

    /// The problems of a board with these files: `file:line code`.
    fn problems(files: &[(&str, &[u8])]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tasks")).unwrap();
        fs::write(dir.path().join("config.json"), CONFIG).unwrap();
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let board = Board::at(dir.path()).unwrap();
        let report = validate(&board).unwrap();
        let line = |problem: &Problem| {
            let file = problem.path.file_name().unwrap().to_string_lossy();
            format!("{file}:{} {}", problem.line, problem.kind.code())
        };
        report.problems.iter().map(line).collect()
    }

    fn with(old: &str, new: &str) -> Vec<u8> {
        assert!(GOOD.contains(old));
        GOOD.replace(old, new).into_bytes()
    }

    #[test]
    fn every_problem_is_reported_with_its_file_and_line() {
        let good = GOOD.as_bytes();
        assert!(problems(&[("tasks/1.md", good)]).is_empty());
        for (file, expected) in [
            (with("TODO", "SOON"), "1.md:5 unknown_status"),
            (with("HIGH", "UTMOST"), "1.md:7 unknown_priority"),
            (with("task\n", "epic\n"), "1.md:9 unknown_kind"),
            (with("# Kind\ntask\n", ""), "1.md:7 missing_section"),
            (with("TODO\n", ""), "1.md:4 empty_section"),
            (with("# T\n", "\n"), "1.md:1 no_title"),
            (with("# T\n", "T\n"), "1.md:1 no_title"),
            (with("# T\n", "## T\n"), "1.md:1 no_title"),
            (with("# T\n", "---\ntitle: T\n---\n"), "1.md:1 no_title"),
            (with("# T\n", "\u{feff}# T\n"), "1.md:1 no_title"),
            (with("# T\n", "#  \n"), "1.md:1 no_title"),
            (with("TODO", "- TODO"), "1.md:5 unknown_status"),
            (with("TODO", "TODO\u{a0}"), "1.md:5 unknown_status"),
            (
                [good, b"# Status\nDONE\n"].concat(),
                "1.md:10 repeated_section",
            ),
            ([good, b"\xff\n"].concat(), "1.md:10 bad_encoding"),
            ([good, b"# depends_on\n- 1\n"].concat(), "1.md:11 cycle"),
            (
                [good, b"# depends_on\n\n- nobody\n"].concat(),
                "1.md:12 dead_dependency",
            ),
        ] {
            assert_eq!(problems(&[("tasks/1.md", &file)]), [expected]);
        }
    }

    #[test]
    fn an_unreadable_file_is_a_problem_and_the_others_are_checked() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::create_dir(dir.path().join("tasks")).unwrap();
        fs::write(dir.path().join("config.json"), CONFIG).unwrap();
        fs::write(dir.path().join("tasks/1.md"), GOOD).unwrap();
        // Root can read every file, but not one that is larger than any address space.
        let huge = fs::File::create(dir.path().join("tasks/2.md")).unwrap();
        huge.set_len(1 << 60).unwrap();
        let board = Board::at(dir.path()).unwrap();
        let report = validate(&board).unwrap();
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        assert_eq!(report.problems[0].kind, ProblemKind::Unreadable);
        let config = Config::read(&board.config()).unwrap();
        assert!(load::tasks(&board, &config).is_err());
    }

    #[test]
    fn cycles_and_duplicate_ids_are_found_across_files() {
        let one = [GOOD.as_bytes(), b"# depends_on\n- b.md\n"].concat();
        let two = [GOOD.as_bytes(), b"# depends_on\n- board/tasks/a.md\n"].concat();
        let files: [(&str, &[u8]); 2] = [("tasks/a.md", &one), ("tasks/b.md", &two)];
        assert_eq!(problems(&files), ["a.md:11 cycle"]);
        let good = GOOD.as_bytes();
        let files: [(&str, &[u8]); 2] = [("tasks/x.md", good), ("tasks/X.md", good)];
        assert_eq!(problems(&files).len(), 1);
        assert!(problems(&files)[0].ends_with(":1 duplicate_id"));
    }

    #[test]
    fn the_configuration_and_the_index_are_checked_too() {
        let good = GOOD.as_bytes();
        let config: (&str, &[u8]) = ("config.json", b"{\n\"statuses\": 1}");
        assert_eq!(
            problems(&[("tasks/1.md", good), config]),
            ["config.json:2 bad_config"]
        );
        let index: (&str, &[u8]) = (
            "default.json",
            br#"[{"title":"T","status":"TODO","priority":"HIGH","kind":"task","link":"board/tasks/1.md"},
{"title":"T","status":"TODO","priority":"HIGH","kind":"task","link":"board/tasks/1.md"}]"#,
        );
        assert_eq!(
            problems(&[("tasks/1.md", good), index]),
            ["default.json:2 duplicate_id"]
        );
        let index: (&str, &[u8]) = ("default.json", br#"[{"link":"board/tasks/1.md"}]"#);
        assert_eq!(
            problems(&[("tasks/1.md", good), index]),
            ["default.json:1 bad_index"]
        );
        let index: (&str, &[u8]) = ("default.json", b"{");
        assert_eq!(
            problems(&[("tasks/1.md", good), index]),
            ["default.json:1 bad_index"]
        );
    }
}
