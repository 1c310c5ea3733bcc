//! The history of the shared tasks: [`log`], and [`plan_restore`] to go back to one of its commits.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tenure::store::call_deadline;
use tenure::wire::{SyncChangeJson, SyncCommitJson, TimeJson};
use tenure::{Project, Tenure};
use tenure_tasks::{ImportSummary, Replica, TaskCopy, TaskError};

use super::lines;
use super::outcome::SyncError;
use super::repository::{LOCAL, Oid, TaskRepository, Texts};
use tenure_git::{Environment, Git};

/// The newest commits of the shared tasks that changed any, at most so many.
pub fn log(
    project: &Project,
    tenure: &Tenure,
    limit: Option<usize>,
) -> Result<Vec<SyncCommitJson>, SyncError> {
    let Some(repository) = open(project, tenure)? else {
        return Ok(Vec::new());
    };
    let local = repository.resolve(&[LOCAL.to_owned()])?;
    if local.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    // Negative: no limit.
    let count = limit.map_or(-1, |limit| i32::try_from(limit).unwrap_or(-1));
    let count = format!("--max-count={count}");
    // A merge lists only what it has from none of its parents.
    let lines = repository.git.lines(&[
        "log",
        "-c",
        "--raw",
        "--no-abbrev",
        "--no-renames",
        "--format=%x01%H%x09%at%x09%an",
        &count,
        LOCAL,
    ])?;
    // The object before and after, by commit.
    let mut commits: Vec<(SyncCommitJson, Vec<(String, String)>)> = Vec::new();
    for line in &lines {
        if let Some(head) = line.strip_prefix('\u{1}') {
            let mut words = head.splitn(3, '\t');
            let mut next = || words.next().unwrap_or_default().to_owned();
            let (commit, at, author) = (next(), next(), next());
            let at = Timestamp::from_second(at.parse().unwrap_or(0)).unwrap_or_default();
            let commit = SyncCommitJson {
                commit,
                at: TimeJson(at),
                author,
                changes: Vec::new(),
            };
            commits.push((commit, Vec::new()));
        } else if let (Some((raw, path)), Some((_, objects))) =
            (line.split_once('\t'), commits.last_mut())
            && repository.inside(path).is_some_and(|path| is_task(&path))
        {
            let parents = raw.chars().take_while(|c| *c == ':').count();
            let words: Vec<&str> = raw.split_whitespace().collect();
            let object = |at: usize| words.get(at).map(ToString::to_string).unwrap_or_default();
            objects.push((object(parents + 1), object(2 * parents + 1)));
        }
    }
    let objects = commits.iter().flat_map(|(_, objects)| objects);
    let names = objects.flat_map(|(old, new)| [old.clone(), new.clone()]);
    let mut contents = repository.blobs(names)?.into_iter();
    let mut read = || {
        let mut replica = Replica::default();
        let text = String::from_utf8(contents.next().flatten().unwrap_or_default());
        let _ = lines::add_file(&mut replica, &text.unwrap_or_default());
        replica
    };
    let mut log = Vec::new();
    for (mut commit, objects) in commits {
        for _ in objects {
            let (old, new) = (read(), read());
            commit.changes.extend(change(&old, &new));
        }
        if !commit.changes.is_empty() {
            log.push(commit);
        }
    }
    Ok(log)
}

fn change(old: &Replica, new: &Replica) -> Option<SyncChangeJson> {
    let title = |task: &TaskCopy| task.title.value.clone();
    let (id, title, what) = if let Some(id) = new.deleted.keys().next() {
        let title = old.tasks.get(id).map(title).unwrap_or_default();
        (id, title, vec!["deleted"])
    } else {
        let (id, after) = new.tasks.iter().next()?;
        let what = match old.tasks.get(id) {
            Some(before) => differences(before, after),
            None => vec!["added"],
        };
        (id, title(after), what)
    };
    Some(SyncChangeJson {
        id: id.clone(),
        title,
        what: what.into_iter().map(str::to_owned).collect(),
    })
}

/// The names of the fields whose values differ.
fn differences(one: &TaskCopy, other: &TaskCopy) -> Vec<&'static str> {
    [
        ("title", one.title.value != other.title.value),
        (
            "description",
            one.description.value != other.description.value,
        ),
        ("section", one.section.value != other.section.value),
        ("priority", one.priority.value != other.priority.value),
        ("status", one.progress.value != other.progress.value),
        ("dependencies", present(one) != present(other)),
    ]
    .into_iter()
    .filter_map(|(name, differs)| differs.then_some(name))
    .collect()
}

/// The tasks that a task depends on.
fn present(copy: &TaskCopy) -> Vec<&String> {
    let edges = copy.depends_on.iter().filter(|(_, edge)| edge.value);
    edges.map(|(on, _)| on).collect()
}

/// What it takes to set the tasks back to an earlier commit. Nothing is done yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restore {
    /// The commit.
    pub commit: String,
    /// How many tasks have other values now.
    pub changed: usize,
    /// How many tasks were deleted since. A deletion is final, so they get new ids.
    pub deleted: usize,
    /// How many tasks are newer than the commit. They stay.
    pub newer: usize,
    lines: String,
}

impl Restore {
    /// Sets the tasks back, all or none.
    pub fn apply(&self, tenure: &Tenure) -> Result<ImportSummary, TaskError> {
        tenure.tasks()?.import(&self.lines, call_deadline())
    }
}

/// Finds out what differs between an earlier commit of the shared tasks and now.
pub fn plan_restore(project: &Project, tenure: &Tenure, name: &str) -> Result<Restore, SyncError> {
    let unknown = || {
        SyncError::Other(format!(
            "there is no commit {name} of shared tasks: tenure sync log lists them"
        ))
    };
    let repository = open(project, tenure)?.ok_or_else(unknown)?;
    let found = repository.git.lines(&[
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &format!("{name}^{{commit}}"),
    ]);
    let commit: Oid = found
        .ok()
        .and_then(|lines| lines.into_iter().next())
        .ok_or_else(unknown)?;
    let mut paths = repository.changed(None, &commit)?;
    paths.push(lines::MARKER.0.to_owned());
    let mut texts = Texts::new();
    repository.read(paths.iter().map(|path| (&commit, path)), &mut texts)?;
    check_markers(std::slice::from_ref(&commit), &texts)?;
    let then = parse(&texts)?;
    let now = tenure.tasks()?.replica(call_deadline())?;
    let mut ids: BTreeMap<&String, String> = BTreeMap::new();
    for id in then.tasks.keys().filter(|id| !now.tasks.contains_key(*id)) {
        ids.insert(id, tenure_host::random_uuid().to_string());
    }
    let known = |id: &String| ids.get(id).unwrap_or(id).clone();
    let (mut text, mut changed) = (String::new(), 0);
    for (id, task) in &then.tasks {
        match now.tasks.get(id) {
            Some(now) if differences(task, now).is_empty() => continue,
            Some(_) => changed += 1,
            None => {}
        }
        let waits: Vec<String> = present(task).into_iter().map(known).collect();
        let progress = &task.progress.value;
        let mut line = Map::new();
        for (name, value) in [
            ("id", json!(known(id))),
            ("title", json!(task.title.value)),
            ("section", json!(task.section.value)),
            ("status", json!(progress.status())),
            ("priority", json!(task.priority.value)),
            ("description", json!(task.description.value)),
            ("dependsOn", json!(waits)),
            ("createdAt", json!(task.created_at)),
            ("attempts", json!(progress.attempts)),
            ("lastError", json!(progress.last_error)),
        ] {
            if !value.is_null() {
                line.insert(name.to_owned(), value);
            }
        }
        text.push_str(&Value::Object(line).to_string());
        text.push('\n');
    }
    Ok(Restore {
        commit,
        changed,
        deleted: ids.len(),
        newer: now
            .tasks
            .keys()
            .filter(|id| !then.tasks.contains_key(*id))
            .count(),
        lines: text,
    })
}

pub(super) fn open<'a>(
    project: &'a Project,
    tenure: &'a Tenure,
) -> Result<Option<TaskRepository<'a>>, SyncError> {
    let git = Git::at(project.root(), Environment::WithoutIndex);
    Ok(TaskRepository::find(git, &tenure.config().sync.reference)?)
}

/// Refuses commits that hold something else than tasks, or a newer format.
pub(super) fn check_markers(tips: &[Oid], texts: &Texts) -> Result<(), SyncError> {
    let marker = lines::MARKER.0.to_owned();
    for tip in tips {
        let Some(Some(bytes)) = texts.get(&(tip.clone(), marker.clone())) else {
            return Err(SyncError::Foreign(tip.clone()));
        };
        let text = String::from_utf8_lossy(bytes);
        let read = lines::add_file(&mut Replica::default(), &text);
        read.map_err(|error| unreadable(tip, &marker, error.to_string()))?;
    }
    Ok(())
}

/// Merges the files of commits.
pub(super) fn parse(texts: &Texts) -> Result<Replica, SyncError> {
    let mut replica = Replica::default();
    for ((commit, path), bytes) in texts {
        let Some(bytes) = bytes
            .as_ref()
            .filter(|_| is_task(path) || is_about_sections(path))
        else {
            continue;
        };
        let bad = |why: String| unreadable(commit, path, why);
        let text = std::str::from_utf8(bytes).map_err(|_| bad("it is not UTF-8 text".into()))?;
        let read = if is_task(path) {
            lines::add_file(&mut replica, text)
        } else {
            lines::add_lines(&mut replica, text)
        };
        read.map_err(|error| bad(error.to_string()))?;
    }
    replica.tidy();
    Ok(replica)
}

/// Whether this is the path of a task.
fn is_task(path: &str) -> bool {
    path.contains('/') && path.strip_suffix(".json").is_some()
}

fn is_about_sections(path: &str) -> bool {
    path == lines::SECTIONS || path == lines::SECTION_CHANGES
}

fn unreadable(commit: &str, path: &str, why: String) -> SyncError {
    let short = commit.get(..12).unwrap_or(commit);
    SyncError::Unreadable(format!("{path} in commit {short}"), why)
}
