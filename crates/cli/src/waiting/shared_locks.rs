//! A key of another program's database (`steroids:`) that is busy, in the words of that program's protocol.

use tenure::store::{Key, KeyKind, Lease, Verdict};
use tenure::text::flat;
use tenure::wire::{BusyJson, ErrorCode};
use tenure::{Busy, Tenure};

use crate::answer::Failure;
use crate::words;

/// The refusal that the protocol prescribes. `None` in any other store. Where the protocol has no words, people read
/// tenure's `text`: about a malformed row, and about a free key that another waiter is about to be granted.
pub(super) fn refusal(
    tenure: &Tenure,
    busy: &Busy,
    (text, details): &(String, BusyJson),
) -> Option<Failure> {
    let name = title(tenure, &busy.key)?;
    let Some((lease, verdict)) = held(busy) else {
        let code = match busy.key.kind() {
            KeyKind::Section(_) => ErrorCode::SectionLocked,
            _ => ErrorCode::TaskLocked,
        };
        return Some(Failure::new(code, text).details(details));
    };
    let refused = match (busy.key.kind(), lease.key.kind()) {
        (KeyKind::Task(task), KeyKind::Section(section)) => {
            let what = format!("Section {} of task {name}", title(tenure, &lease.key)?);
            words::held_by_runner(
                &what,
                Some(task.to_owned()),
                Some(section.to_owned()),
                lease,
            )
        }
        (KeyKind::Section(section), _) => {
            let what = format!("Section {name}");
            words::held_by_runner(&what, None, Some(section.to_owned()), lease)
        }
        _ => {
            let id = busy.key.id().to_owned();
            words::held_by_runner(&format!("Task {name}"), Some(id), None, lease)
        }
    };
    Some(match verdict {
        Verdict::Malformed => refused.text(text),
        _ => refused,
    })
}

/// What is locked, at the beginning of a wait. `None` in any other store.
pub(super) fn locked(tenure: &Tenure, busy: &Busy) -> Option<String> {
    let key = held(busy).map_or(&busy.key, |(lease, _)| &lease.key);
    let kind = match key.kind() {
        KeyKind::Section(_) => "Section",
        _ => "Task",
    };
    Some(format!("{kind} {}", title(tenure, key)?))
}

/// The lease that keeps the key, with the verdict on it.
fn held(busy: &Busy) -> Option<&(Lease, Verdict)> {
    busy.lease()
        .filter(|(_, verdict)| verdict.ended().is_none())
}

/// What the other program calls a task or a section, in quotes.
fn title(tenure: &Tenure, key: &Key) -> Option<String> {
    let name = tenure.foreign_name(key)?;
    Some(format!("\"{}\"", flat(&name)))
}
