//! Adding, changing and deleting tasks and sections. None of this begins or ends work, but all of it respects the locks of
//! the runners that work.

use tenure_core::event::{Event, EventKind};
use tenure_core::holder::HolderId;
use tenure_core::lease::Token;
use tenure_core::mode::Mode;

use super::flow::{self, existing, may_move, ring_all_seekers, ring_waiters, vacate, wake_seekers};
use super::lines::check_name;
use super::sections::may_delete;
use super::step::{section_key, task_key};
use super::{
    Change, Changed, DeletedSection, DeletedTask, Edit, NewTask, Proof, Section, Task, TaskError,
    TaskStep, check_description, check_id, check_title,
};

/// What these verbs need of a step.
pub trait EditStep: TaskStep {
    /// Says which tasks will be asked for with their locks, so that a store that is far away can read them at once.
    fn expect_locks(&mut self, _ids: &[String]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The section with this id.
    fn section(&mut self, id: &str) -> Result<Option<Section>, Self::Error>;

    /// The section of this whole name, in any case of letters.
    fn section_named(&mut self, name: &str) -> Result<Option<Section>, Self::Error>;

    /// Writes a section that is new.
    fn insert_section(&mut self, section: &Section) -> Result<(), Self::Error>;

    /// Removes a section that has no tasks.
    fn erase_section(&mut self, section: &Section) -> Result<(), Self::Error>;

    /// How many tasks a section has, and how many of them are open.
    fn count_tasks(&mut self, section: &str) -> Result<(u64, u64), Self::Error>;

    /// The tasks of a section for which there may be a lease or a ticket.
    fn maybe_locked(&mut self, section: &str) -> Result<Vec<String>, Self::Error>;

    /// Moves all tasks of a section, as a change of now.
    fn move_tasks(&mut self, from: &Section, to: Option<&Section>) -> Result<(), Self::Error>;

    /// Writes a task, without its dependencies: it has none then.
    fn put_task(&mut self, task: &Task, before: Option<&Task>) -> Result<(), Self::Error>;

    /// The oldest task with exactly this title.
    fn titled(&mut self, title: &str) -> Result<Option<Task>, Self::Error>;

    /// Writes the fields of an edit, without the dependencies that it adds, as a change of now.
    fn set_fields(&mut self, id: &str, edit: &Edit) -> Result<(), Self::Error>;

    /// Makes a task depend on another, which exists.
    fn add_dependency(&mut self, id: &str, on: &str) -> Result<(), Self::Error>;

    /// Whether a task is `on` or depends on it, at any distance.
    fn reaches(&mut self, id: &str, on: &str) -> Result<bool, Self::Error>;

    /// Removes a task, and the dependencies on it. Returns how many tasks depended on it.
    fn erase_task(&mut self, task: &Task) -> Result<usize, Self::Error>;

    /// Records an event in the history.
    fn record_event(&mut self, event: &Event) -> Result<(), Self::Error>;
}

/// Adds a section. Fails with [`TaskError::SectionExists`] if one has this name, in any case of letters, or this id.
pub fn add_section<S: EditStep>(step: &mut S, id: &str, name: &str) -> Result<Section, S::Error> {
    check_name(name)?;
    check_id("id of the section", id)?;
    let taken = match step.section_named(name)? {
        Some(section) => Some(section),
        None => step.section(id)?,
    };
    if let Some(taken) = taken {
        return Err(TaskError::SectionExists(taken).into());
    }
    let section = Section {
        id: id.to_owned(),
        name: name.to_owned(),
    };
    step.insert_section(&section)?;
    Ok(section)
}

/// The section with this id, which has to exist.
fn existing_section<S: EditStep>(step: &mut S, id: &str) -> Result<Section, S::Error> {
    let section = step.section(id)?;
    Ok(section.ok_or_else(|| TaskError::NoSection(id.to_owned()))?)
}

/// Adds a task with this id, which is new.
pub fn add_task<S: EditStep>(step: &mut S, id: &str, new: &NewTask) -> Result<Task, S::Error> {
    check_title(&new.title)?;
    check_description(new.description.as_deref().unwrap_or_default())?;
    let section = match &new.section {
        Some(section) => Some(existing_section(step, section)?),
        None => None,
    };
    let task = Task {
        description: new.description.clone(),
        section,
        priority: new.priority,
        ..Task::new(id.to_owned(), new.title.clone(), step.now().wall)
    };
    step.put_task(&task, None)?;
    for on in &new.depends_on {
        depend(step, id, on)?;
    }
    wake_seekers(step)?;
    existing(step, id)
}

/// Adds a task, if none has its title.
pub fn add_task_once<S: EditStep>(
    step: &mut S,
    id: &str,
    new: &NewTask,
) -> Result<(Task, bool), S::Error> {
    match step.titled(&new.title)? {
        Some(task) => Ok((task, false)),
        None => Ok((add_task(step, id, new)?, true)),
    }
}

/// Ends work on a task, or sets its status by hand, and changes its fields.
pub fn change_task<S: EditStep>(
    step: &mut S,
    id: &str,
    proof: &Proof,
    change: &Change,
    edit: &Edit,
) -> Result<Changed, S::Error> {
    let mut changed = flow::change(step, id, proof, change)?;
    if !edit.is_empty() {
        changed.task = edit_task(step, id, edit)?;
    }
    Ok(changed)
}

/// Changes the fields of a task, but not its status.
pub fn edit_task<S: EditStep>(step: &mut S, id: &str, edit: &Edit) -> Result<Task, S::Error> {
    let before = existing(step, id)?;
    if edit.is_empty() {
        return Ok(before);
    }
    edit.title.as_deref().map_or(Ok(()), check_title)?;
    check_description(edit.description.as_deref().unwrap_or_default())?;
    if let Some(section) = &edit.section {
        may_move(step, &before)?;
        if !section.is_empty() {
            existing_section(step, section)?;
        }
        ring_waiters(step, &before)?;
    }
    step.set_fields(id, edit)?;
    for on in &edit.add_dependencies {
        depend(step, id, on)?;
    }
    wake_seekers(step)?;
    existing(step, id)
}

/// Makes a task depend on another.
fn depend<S: EditStep>(step: &mut S, id: &str, on: &str) -> Result<(), S::Error> {
    let (task, on) = (existing(step, id)?, existing(step, on)?);
    if step.reaches(&on.id, &task.id)? {
        return Err(TaskError::Circle {
            task: task.title,
            on: on.title,
        }
        .into());
    }
    step.add_dependency(&task.id, &on.id)
}

/// Deletes tasks that no runner works on, all or none.
pub fn delete_tasks<S: EditStep>(
    step: &mut S,
    ids: &[String],
) -> Result<Vec<DeletedTask>, S::Error> {
    step.expect_locks(ids)?;
    let mut deleted = Vec::new();
    for id in ids {
        let task = existing(step, id)?;
        may_move(step, &task)?;
        let dependents = remove_task(step, &task)?;
        deleted.push(DeletedTask { task, dependents });
    }
    ring_all_seekers(step)?;
    Ok(deleted)
}

/// Removes a task, its lease, and the tickets of its waiters. Returns how many tasks depended on it.
pub fn remove_task<S: EditStep>(step: &mut S, task: &Task) -> Result<usize, S::Error> {
    vacate(step, &task_key(&task.id)?)?;
    step.erase_task(task)
}

/// Removes a section that has no tasks, its lease, and the tickets of its waiters.
pub fn remove_section<S: EditStep>(step: &mut S, section: &Section) -> Result<(), S::Error> {
    vacate(step, &section_key(section)?)?;
    step.erase_section(section)
}

/// Deletes a section that no other runner holds. Its tasks move to another section first, or (if `move_to` is
/// empty) to none.
pub fn delete_section<S: EditStep>(
    step: &mut S,
    id: &str,
    move_to: Option<&str>,
    caller: &HolderId,
) -> Result<DeletedSection, S::Error> {
    let section = existing_section(step, id)?;
    may_delete(step, &section, caller)?;
    let (tasks, open) = step.count_tasks(id)?;
    let moved_to = match move_to {
        None if tasks > 0 => {
            return Err(TaskError::SectionInUse {
                section,
                tasks,
                open,
            }
            .into());
        }
        None | Some("") => None,
        Some(other) if other == id => {
            let (what, problem) = (
                "section to move the tasks to",
                "is the one to delete: name another one",
            );
            return Err(TaskError::bad_text(what, problem).into());
        }
        Some(other) => Some(existing_section(step, other)?),
    };
    for id in step.maybe_locked(id)? {
        let task = existing(step, &id)?;
        may_move(step, &task)?;
        ring_waiters(step, &task)?;
    }
    step.move_tasks(&section, moved_to.as_ref())?;
    remove_section(step, &section)?;
    ring_all_seekers(step)?;
    let deleted = DeletedSection {
        section,
        moved: tasks,
        moved_to,
    };
    let event = Event {
        id: 0,
        at: step.now().wall,
        key: section_key(&deleted.section)?,
        kind: EventKind::Deleted,
        mode: Mode::Exclusive,
        token: Token::NONE,
        holder: caller.clone(),
        times: 1,
        reason: Some(deleted.to_string()),
        evidence: None,
        waited: None,
    };
    step.record_event(&event)?;
    Ok(deleted)
}
