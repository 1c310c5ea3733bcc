//! `tenure sections`: groups of tasks that one runner works on at a time.

use serde_json::json;
use tenure::core::Verdict;

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::tasks::Sections;
use crate::context;
use crate::table::Table;
use crate::words;

pub(crate) fn sections(global: &Global, sections: &Sections) -> Result<Answer, Failure> {
    match sections {
        Sections::Add { name } => {
            let tenure = context::open_to_change(global)?;
            let section = tenure.tasks()?.add_section(name, tenure::call_deadline())?;
            let text = if global.quiet {
                section.id.clone()
            } else {
                format!("Added section \"{}\" ({}).", section.name, section.id)
            };
            Ok(Answer::new(json!(section), text))
        }
        Sections::List => list(&context::open(global)?),
    }
}

fn list(tenure: &tenure::Tenure) -> Result<Answer, Failure> {
    let sections = tenure.tasks()?.sections(tenure::call_deadline())?;
    if sections.is_empty() {
        return Ok(Answer::new(
            json!({ "sections": [] }),
            "No sections. Add one with: tenure sections add NAME",
        ));
    }
    let now = tenure.clock().now();
    let mut rows = Table::new(&["ID", "NAME", "TASKS", "OPEN", "RUNNER", "REMAINING"]);
    let mut data = Vec::new();
    for tenure::core::task::SectionSummary {
        section,
        tasks,
        open,
    } in sections
    {
        let lease = match section.key() {
            Ok(key) => {
                let snapshot = tenure.store().inspect(&key, tenure::call_deadline())?;
                snapshot.leases.into_iter().next()
            }
            Err(_) => None,
        };
        let (runner, remaining) = match &lease {
            Some((lease, verdict)) => (
                lease.holder.id.to_string(),
                words::until(&now, lease, verdict),
            ),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let held = lease
            .as_ref()
            .filter(|(_, verdict)| matches!(verdict, Verdict::Alive | Verdict::Unknown(_)));
        data.push(json!({
            "id": section.id,
            "name": section.name,
            "tasks": tasks,
            "open": open,
            "lockedBy": held.map(|(lease, _)| lease.holder.id.as_str()),
            "expiresAt": held.and_then(|(lease, _)| words::expires_at(&now, lease)),
        }));
        rows.row([
            words::short(&section.id).to_owned(),
            section.name,
            tasks.to_string(),
            open.to_string(),
            runner,
            remaining,
        ]);
    }
    Ok(Answer::new(json!({ "sections": data }), rows.text()))
}
