//! Every problem of a board, with its file and line: [`validate`].

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use crate::BoardError;
use crate::circle::circles;
use crate::config::{Config, Level};
use crate::document::{Document, Found, Section};
use crate::index;
use crate::load::{self, Loaded};
use crate::place::Board;
use crate::task::id_of;

/// Sections that every task has.
const NEEDED: [Section; 4] = [
    Section::Description,
    Section::Status,
    Section::Priority,
    Section::Kind,
];

/// What kind of problem it is, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flaw {
    /// The settings can't be used.
    BadConfig,
    /// The index can't be read.
    BadIndex,
    /// A file that can't be read.
    Unreadable,
    /// Bytes that are no UTF-8 text.
    BadEncoding,
    /// The first line is no title.
    NoTitle,
    /// A section is not there.
    MissingSection,
    /// A section says nothing.
    EmptySection,
    /// A section is there twice.
    RepeatedSection,
    /// A status that the settings do not have.
    UnknownStatus,
    /// A priority that the settings do not have.
    UnknownPriority,
    /// A kind that the settings do not have.
    UnknownKind,
    /// A dependency that is no task.
    DeadDependency,
    /// A task that waits for itself.
    Cycle,
    /// Two tasks that can't be told apart.
    DuplicateId,
}

impl Flaw {
    /// The word for it.
    pub fn word(self) -> &'static str {
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

/// A problem: what, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// The line in it, from 1.
    pub line: usize,
    /// What kind of problem it is.
    pub flaw: Flaw,
    /// What is wrong, and what would be right.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.what)
    }
}

/// What was found.
#[derive(Debug)]
pub struct Report {
    /// How many task files there are.
    pub tasks: usize,
    /// What is wrong, in the order of the files and lines.
    pub problems: Vec<Problem>,
}

/// Looks for every problem. It is an error only if the tasks can't be read at all.
pub fn validate(board: &Board) -> Result<Report, BoardError> {
    let mut problems = Vec::new();
    let config = match Config::read(&board.config()) {
        Ok(config) => Some(config),
        Err(BoardError::BadConfig { path, line, what }) => {
            problems.push(Problem {
                path,
                line,
                flaw: Flaw::BadConfig,
                what,
            });
            None
        }
        Err(other) => {
            let (path, line) = (board.config(), 1);
            let what = other.to_string();
            problems.push(Problem {
                path,
                line,
                flaw: Flaw::BadConfig,
                what,
            });
            None
        }
    };
    let loaded = load::load(board)?;
    for path in loaded.nameless {
        let what = "its name is no text: give it another one".into();
        problems.push(Problem {
            path,
            line: 1,
            flaw: Flaw::BadEncoding,
            what,
        });
    }
    for (path, error) in loaded.unreadable {
        let what = format!("it can't be read ({error}): check its permissions");
        problems.push(Problem {
            path,
            line: 1,
            flaw: Flaw::Unreadable,
            what,
        });
    }
    let documents: Vec<(&Loaded, Document<'_>)> = loaded
        .files
        .iter()
        .map(|file| (file, file.document()))
        .collect();
    same_ids(&documents, &mut problems);
    for (file, document) in &documents {
        let mut tell = |line: usize, flaw: Flaw, what: String| {
            let path = file.path.clone();
            problems.push(Problem {
                path,
                line,
                flaw,
                what,
            });
        };
        contents(document, &mut tell);
        if let Some(config) = &config {
            values(document, config, &mut tell);
        }
    }
    dependencies(&documents, &mut problems);
    links(&board.index(), &mut problems);
    problems.sort_by(|a, b| (&a.path, a.line, a.flaw).cmp(&(&b.path, b.line, b.flaw)));
    Ok(Report {
        tasks: documents.len(),
        problems,
    })
}

/// What is wrong with one file by itself.
fn contents(document: &Document<'_>, tell: &mut impl FnMut(usize, Flaw, String)) {
    if let Err(error) = std::str::from_utf8(document.bytes()) {
        let line = document.line_of(error.valid_up_to());
        let what = "these bytes are no UTF-8 text: save the file as UTF-8".into();
        tell(line, Flaw::BadEncoding, what);
    }
    if document.title().is_empty() || document.bytes().first() == Some(&b'\n') {
        let what = "the first line is no title: write \"# Title\" there".into();
        tell(1, Flaw::NoTitle, what);
    }
    let lines = document.lines().max(1);
    for section in NEEDED {
        let name = section.name();
        match document.section(section) {
            None => {
                let what = format!(
                    "there is no section \"# {name}\": add it, or run tenure board migrate"
                );
                tell(lines, Flaw::MissingSection, what);
            }
            Some(found) if found.value.is_none() => {
                let what = format!("\"# {name}\" says nothing: write its value on the next line");
                tell(found.heading.line, Flaw::EmptySection, what);
            }
            Some(_) => {}
        }
    }
    for (section, line) in document.repeated() {
        let what = format!(
            "\"# {}\" is there already, and only the first counts",
            section.name()
        );
        tell(*line, Flaw::RepeatedSection, what);
    }
}

/// Values that the settings do not have.
fn values(document: &Document<'_>, config: &Config, tell: &mut impl FnMut(usize, Flaw, String)) {
    let mut check = |section: Section, flaw: Flaw, known: &dyn Fn(&str) -> bool, all: String| {
        let value = document
            .section(section)
            .and_then(|found| found.value.as_ref());
        let Some(value) = value else { return };
        let said = document.text(&value.bytes);
        if !known(&said) {
            let name = section.name().to_lowercase();
            tell(
                value.line,
                flaw,
                format!("unknown {name} {said:?}: it can be {all}"),
            );
        }
    };
    check(
        Section::Status,
        Flaw::UnknownStatus,
        &|said| config.status(said).is_some(),
        Level::names(config.statuses()),
    );
    check(
        Section::Priority,
        Flaw::UnknownPriority,
        &|said| config.priority(said).is_some(),
        Level::names(config.priorities()),
    );
    check(
        Section::Kind,
        Flaw::UnknownKind,
        &|said| config.kind(said).is_some(),
        config.kinds().join(", "),
    );
}

/// Ids that differ in nothing but letter case: one file to half of the world.
fn same_ids(documents: &[(&Loaded, Document<'_>)], problems: &mut Vec<Problem>) {
    let mut seen: HashMap<String, &str> = HashMap::new();
    for (file, _) in documents {
        if let Some(other) = seen.insert(file.id.to_lowercase(), &file.id) {
            problems.push(Problem {
                path: file.path.clone(),
                line: 1,
                flaw: Flaw::DuplicateId,
                what: format!(
                    "its id is that of {other}.md but for letter case: rename one of them"
                ),
            });
        }
    }
}

/// Dependencies that are no tasks, and circles.
fn dependencies(documents: &[(&Loaded, Document<'_>)], problems: &mut Vec<Problem>) {
    let numbers: HashMap<&str, usize> = documents
        .iter()
        .enumerate()
        .map(|(number, (file, _))| (file.id.as_str(), number))
        .collect();
    // For each task: on which it waits, and the line that says so.
    let mut waits: Vec<Vec<(usize, usize)>> = Vec::with_capacity(documents.len());
    for (file, document) in documents {
        let items = document
            .section(Section::DependsOn)
            .map(|found: &Found| found.items.iter());
        let mut edges = Vec::new();
        for item in items.into_iter().flatten() {
            let said = document.text(&item.bytes);
            match numbers.get(id_of(&said)) {
                Some(number) => edges.push((*number, item.line)),
                None => problems.push(Problem {
                    path: file.path.clone(),
                    line: item.line,
                    flaw: Flaw::DeadDependency,
                    what: format!("it depends on {said:?}, and there is no such task"),
                }),
            }
        }
        waits.push(edges);
    }
    for circle in circles(&waits) {
        let Some(((first, line), id)) = circle.first().and_then(|step| {
            let (file, _) = documents.get(step.0)?;
            Some((*step, &file.id))
        }) else {
            continue;
        };
        let ids = circle
            .iter()
            .filter_map(|(number, _)| documents.get(*number));
        let mut ids: Vec<&str> = ids.map(|(file, _)| file.id.as_str()).collect();
        ids.push(id);
        if let Some((file, _)) = documents.get(first) {
            problems.push(Problem {
                path: file.path.clone(),
                line,
                flaw: Flaw::Cycle,
                what: format!("it waits for itself: {}", ids.join(" -> ")),
            });
        }
    }
}

/// What is wrong with the index, as far as the tasks do not tell it better.
fn links(path: &Path, problems: &mut Vec<Problem>) {
    let entries = match index::read(path) {
        Ok(Some(entries)) => entries,
        Ok(None) => return,
        Err(BoardError::BadIndex { path, line, what }) => {
            problems.push(Problem {
                path,
                line,
                flaw: Flaw::BadIndex,
                what,
            });
            return;
        }
        Err(other) => {
            let (path, what) = (path.to_owned(), other.to_string());
            problems.push(Problem {
                path,
                line: 1,
                flaw: Flaw::BadIndex,
                what,
            });
            return;
        }
    };
    let mut seen = HashSet::new();
    let text = std::fs::read_to_string(path).unwrap_or_default();
    for entry in &entries {
        if !seen.insert(entry.link.as_str()) {
            let quoted = format!("{:?}", entry.link);
            let second = text.match_indices(&quoted).nth(1).map_or(0, |(at, _)| at);
            let line = text.get(..second).unwrap_or_default().matches('\n').count() + 1;
            problems.push(Problem {
                path: path.to_owned(),
                line,
                flaw: Flaw::DuplicateId,
                what: format!(
                    "{} is in the index twice: make it anew with tenure board rebuild-index --write",
                    entry.link
                ),
            });
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

    /// The problems of a board with these files: `file:line word`.
    fn problems(files: &[(&str, &[u8])]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tasks")).unwrap();
        fs::write(dir.path().join("config.json"), CONFIG).unwrap();
        for (name, bytes) in files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let board = Board::at(dir.path()).unwrap();
        let report = validate(&board).unwrap();
        let told = |problem: &Problem| {
            let file = problem.path.file_name().unwrap().to_string_lossy();
            format!("{file}:{} {}", problem.line, problem.flaw.word())
        };
        report.problems.iter().map(told).collect()
    }

    fn with(old: &str, new: &str) -> Vec<u8> {
        assert!(GOOD.contains(old));
        GOOD.replace(old, new).into_bytes()
    }

    #[test]
    fn every_problem_is_told_with_its_file_and_line() {
        let good = GOOD.as_bytes();
        assert!(problems(&[("tasks/1.md", good)]).is_empty());
        for (file, told) in [
            (with("TODO", "SOON"), "1.md:5 unknown_status"),
            (with("HIGH", "UTMOST"), "1.md:7 unknown_priority"),
            (with("task\n", "epic\n"), "1.md:9 unknown_kind"),
            (with("# Kind\ntask\n", ""), "1.md:7 missing_section"),
            (with("TODO\n", ""), "1.md:4 empty_section"),
            (with("# T\n", "\n"), "1.md:1 no_title"),
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
            assert_eq!(problems(&[("tasks/1.md", &file)]), [told]);
        }
    }

    #[test]
    fn a_file_that_can_not_be_read_is_a_problem_and_not_the_end() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::create_dir(dir.path().join("tasks")).unwrap();
        fs::write(dir.path().join("config.json"), CONFIG).unwrap();
        fs::write(dir.path().join("tasks/1.md"), GOOD).unwrap();
        // Root may read everything, but not what is larger than any address space.
        let huge = fs::File::create(dir.path().join("tasks/2.md")).unwrap();
        huge.set_len(1 << 60).unwrap();
        let board = Board::at(dir.path()).unwrap();
        let report = validate(&board).unwrap();
        assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
        assert_eq!(report.problems[0].flaw, Flaw::Unreadable);
        let config = Config::read(&board.config()).unwrap();
        assert!(load::tasks(&board, &config).is_err());
    }

    #[test]
    fn circles_and_ids_are_looked_at_across_files() {
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
    fn settings_and_index_are_looked_at_too() {
        let good = GOOD.as_bytes();
        let config: (&str, &[u8]) = ("config.json", b"{\n\"statuses\": 1}");
        assert_eq!(
            problems(&[("tasks/1.md", good), config]),
            ["config.json:2 bad_config"]
        );
        let index: (&str, &[u8]) = (
            "default.json",
            b"[{\"link\": \"board/tasks/1.md\"},\n{\"link\": \"board/tasks/1.md\"}]",
        );
        assert_eq!(
            problems(&[("tasks/1.md", good), index]),
            ["default.json:2 duplicate_id"]
        );
        let index: (&str, &[u8]) = ("default.json", b"{");
        assert_eq!(
            problems(&[("tasks/1.md", good), index]),
            ["default.json:1 bad_index"]
        );
    }
}
