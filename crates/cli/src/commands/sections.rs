//! `tenure sections`: groups of tasks that one runner works on at a time.

use tenure::Tenure;
use tenure::store::{Snapshot, Verdict, call_deadline};
use tenure::text::flat;
use tenure::wire::{DeletedSectionJson, ListedSectionJson, SectionsJson};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::tasks::Sections;
use crate::commands::tasks::section_to_change;
use crate::context;
use crate::table::Table;
use crate::words;

pub(crate) fn sections(global: &Global, sections: &Sections) -> Result<Answer, Failure> {
    match sections {
        Sections::Add { name } => {
            let tenure = context::open_to_add(global)?;
            let section = tenure.tasks()?.add_section(name, call_deadline())?;
            let text = if global.quiet {
                section.id.clone()
            } else {
                let (name, id) = (flat(&section.name), &section.id);
                format!("Added section \"{name}\" ({id}).")
            };
            Ok(Answer::new(section, text))
        }
        Sections::List => list(&context::open_existing(global)?),
        Sections::Rm { section, move_to } => rm(global, section, move_to.as_deref()),
    }
}

fn rm(global: &Global, given: &str, move_to: Option<&str>) -> Result<Answer, Failure> {
    let tenure = context::open_to_change(global)?;
    let tasks = tenure.tasks()?;
    let id_of = |given: &str| match given {
        "" => Ok(String::new()),
        given => section_to_change(&tenure, given),
    };
    let section = section_to_change(&tenure, given)?;
    let move_to = move_to.map(id_of).transpose()?;
    let caller = context::caller(global)?;
    let deleted = tasks.delete_section(&section, move_to.as_deref(), &caller, call_deadline())?;
    let text = format!("Deleted {deleted}.");
    let data = DeletedSectionJson::from(&deleted);
    Ok(Answer::confirmed(global, data, text))
}

fn list(tenure: &Tenure) -> Result<Answer, Failure> {
    let sections = tenure.tasks()?.sections(call_deadline())?;
    if sections.is_empty() {
        return Ok(Answer::new(
            SectionsJson::default(),
            "No sections. Add one with: tenure sections add NAME",
        ));
    }
    let now = tenure.clock().now();
    let mut rows = Table::new(&["ID", "NAME", "TASKS", "OPEN", "HOLDER", "REMAINING"]);
    let mut data = SectionsJson::default();
    for summary in sections {
        let section = &summary.section;
        let snapshot = match section.key() {
            Ok(key) => Some(tenure.store().inspect(&key, call_deadline())?),
            Err(_) => None,
        };
        let lease = snapshot.as_ref().and_then(Snapshot::lease);
        let none = || "-".to_owned();
        rows.row([
            words::short(&section.id).to_owned(),
            section.name.clone(),
            summary.tasks.to_string(),
            summary.open.to_string(),
            lease.map_or_else(none, |(lease, _)| lease.holder.id.to_string()),
            lease.map_or_else(none, |(lease, verdict)| words::until(&now, lease, verdict)),
        ]);
        let held = lease
            .filter(|(_, verdict)| matches!(verdict, Verdict::Alive | Verdict::Unknown(_)))
            .map(|(lease, _)| lease);
        data.sections
            .push(ListedSectionJson::new(&now, &summary, held));
    }
    Ok(Answer::new(data, rows.text()))
}
