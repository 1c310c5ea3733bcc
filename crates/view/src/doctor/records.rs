//! Events and tasks of a store that can't be understood.

use tenure::StoreUrl;
use tenure::store::call_deadline;
use tenure::tasks::TaskError;
use tenure::text::plural;
use tenure_core::{ErrorKind, HistoryQuery};
use tenure_tasks::TaskQuery;

use super::{Finding, Remedy};
use crate::overview::StoreView;

pub(super) fn examine(store: &StoreView, found: &mut Vec<Finding>) {
    let Some(tenure) = &store.tenure else { return };
    let query = HistoryQuery::default();
    match tenure.store().damaged_events(&query, call_deadline()) {
        Ok(events) if events.is_empty() => {}
        Ok(events) => {
            let what = format!(
                "{} of the history can't be understood",
                plural::count(events.len(), "event")
            );
            let mut finding = Finding::problem("damaged_event", what).means(
                "What happened then is not known: the history proves less, and the guard does not judge by it.",
            );
            finding.evidence = events;
            let repair = Remedy::Command("tenure store repair".to_owned());
            found.push(finding.store(&store.url).remedy(repair));
        }
        Err(error) if error.kind == ErrorKind::Unsupported => {}
        Err(error) => found.push(
            Finding::problem("unreadable_history", "the history can't be read")
                .store(&store.url)
                .seen(error.to_string()),
        ),
    }
    let Ok(tasks) = tenure.tasks() else {
        // It holds locks only.
        return;
    };
    match tasks.tasks(&TaskQuery::default(), call_deadline()) {
        Ok(tasks) => {
            for task in tasks {
                let Some(problem) = task.problem else {
                    continue;
                };
                let what = format!("the task {} can't be understood", task.id);
                let finding = Finding::problem("damaged_task", what)
                    .seen(problem)
                    .means("It is shown with stand-ins, and nobody is given it.");
                let repair = format!("tenure store repair task:{}", task.id);
                found.push(repaired(store, finding, &repair));
            }
        }
        Err(TaskError::Store(error)) if error.kind == ErrorKind::Unsupported => {}
        Err(error) => {
            let finding = Finding::problem("unreadable_tasks", "the tasks can't be read")
                .seen(error.to_string())
                .means("Commands that list or change tasks fail.");
            found.push(repaired(store, finding, "tenure store repair"));
        }
    }
}

/// A finding of a store, with the command that repairs it, if the store has one.
fn repaired(store: &StoreView, finding: Finding, command: &str) -> Finding {
    let finding = finding.store(&store.url);
    match &store.url {
        StoreUrl::Etcd(_) => finding.remedy(Remedy::Command(command.to_owned())),
        _ => finding.remedy(Remedy::Advice(
            "correct the row with the program that wrote it".into(),
        )),
    }
}
