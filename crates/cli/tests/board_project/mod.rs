//! A project with a board in it.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::project::Project;

/// The lock of every board here.
pub(crate) const LOCK: &str = ".bilu/storage/lock";

/// The sample board.
pub(crate) fn sample() -> Project {
    let project = empty();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/board/board");
    for entry in fs::read_dir(sample.join("tasks")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(
            entry.path(),
            project.path(".bilu/board/tasks").join(entry.file_name()),
        )
        .unwrap();
    }
    project
}

/// A board with the settings of the sample and no task.
pub(crate) fn empty() -> Project {
    let project = Project::uninitialised();
    fs::create_dir_all(project.path(".bilu/board/tasks")).unwrap();
    let config =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/board/board/config.json");
    fs::copy(config, project.path(".bilu/board/config.json")).unwrap();
    project
}

/// The name of a task file.
pub(crate) fn task(id: &str) -> String {
    format!(".bilu/board/tasks/{id}.md")
}

/// A task file as the sample has them.
pub(crate) fn text(title: &str, status: &str, priority: &str) -> String {
    format!(
        "# {title}\n\nWords of the author.\n\n# Description\nIn short.\n# Status\n{status}\n# Priority\n{priority}\n# Kind\ntask\n# Tags\n- backend\n# depends_on\n"
    )
}

/// A task file with very many lines, its sections last.
pub(crate) fn long(lines: usize) -> String {
    let mut file = String::from("# A long one\n");
    for line in 0..lines {
        writeln!(file, "line {line} of what the author has to say").unwrap();
    }
    file.push_str("# Description\nLong.\n# Status\nTODO\n# Priority\nHIGH\n# Kind\ntask\n");
    file
}

/// Makes the lock as a shell does, held by this process.
pub(crate) fn hold_as_shell(project: &Project, pid: u32) {
    fs::create_dir_all(project.path(LOCK)).unwrap();
    project.write(&format!("{LOCK}/pid"), &format!("{pid}\n"));
    project.write(&format!("{LOCK}/cmd"), "bilu board --edit\n");
}

/// Gives it back as a shell does.
pub(crate) fn release_as_shell(project: &Project) {
    fs::remove_dir_all(project.path(LOCK)).unwrap();
}

/// What stands in the tasks' folder besides task files.
pub(crate) fn litter(project: &Project) -> Vec<String> {
    let entries = fs::read_dir(project.path(".bilu/board/tasks")).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.as_bytes().ends_with(b".md"))
        .collect()
}
