//! `tenure store repair`: put right what was removed, damaged or restored.

use tenure::store::Key;
use tenure::wire::{ErrorCode, StoreRepairJson};

use crate::answer::{Answer, Failure};
use crate::args::{Global, StoreRepair};
use crate::context;

pub(super) fn repair(global: &Global, what: &StoreRepair) -> Result<Answer, Failure> {
    let key = what.key.as_deref().map(Key::parse).transpose()?;
    let tenure = context::open_existing(global)?;
    let Some(repaired) = tenure.repair(key.as_ref(), what.restored)? else {
        let message = "only a database of tenure and a store on an etcd cluster are repaired by this command, and only tokens of a cluster are raised. For others: tenure doctor --fix";
        return Err(Failure::new(ErrorCode::Unsupported, message));
    };
    let text = shown(&repaired);
    if repaired.left.is_empty() {
        return Ok(Answer::confirmed(global, repaired, text));
    }
    let message = format!("{}: {}", repaired.store, repaired.left.join("; "));
    Err(Failure::new(ErrorCode::Io, message)
        .verbatim(text)
        .details(repaired))
}

fn shown(repaired: &StoreRepairJson) -> String {
    let raised = repaired
        .raised_above
        .map(|above| format!("Raised the tokens: every new one is larger than {above}."));
    let done = repaired.done.iter().map(|what| format!("Done: {what}"));
    let left = repaired.left.iter().map(|what| format!("Left: {what}"));
    let lines: Vec<String> = raised.into_iter().chain(done).chain(left).collect();
    if lines.is_empty() {
        "Nothing had to be repaired.".to_owned()
    } else {
        lines.join("\n")
    }
}
