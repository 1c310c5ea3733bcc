//! `tenure acquire`: hold a key without a running command.

use std::sync::Arc;

use serde_json::json;
use tenure::Tie;
use tenure::core::{Reason, Verdict};
use tenure::wire::ErrorCode;

use crate::answer::{Answer, Failure, remark};
use crate::args::{Acquire, Global};
use crate::context;
use crate::signals::Signals;
use crate::waiting;
use crate::words;

pub(crate) fn acquire(global: &Global, acquire: &Acquire) -> Result<Answer, Failure> {
    let tenure = context::open(global)?;
    let tie = acquire.pid.map_or(Tie::Nothing, Tie::Process);
    let mut ask = waiting::prepare(global, &tenure, &acquire.key, &acquire.asking)?.tied_to(tie);
    if global.holder.is_none() {
        ask = ask.called(context::caller(global)?);
    }
    let mut signals = Signals::catch()
        .map_err(|error| Failure::new(ErrorCode::Io, format!("the system refused ({error})")))?;
    let held = waiting::acquire(global, &tenure, &acquire.key, ask, &mut signals)?;
    let now = tenure.clock().now();
    let lease = held.lease().clone();
    let reason = held.reason();
    let token = lease.token.to_string();
    held.leave_standing();

    let name = if global.holder.is_some() {
        format!("--as {}", words::quoted(lease.holder.id.as_str()))
    } else {
        format!("--token {}", lease.token)
    };
    remark(
        global,
        &format!(
            "{} holds {} until {}; give it back with: tenure release {} {name}",
            lease.holder.id,
            lease.key,
            words::end(&now, &lease),
            words::quoted(lease.key.as_str())
        ),
    );
    let mut data = words::lease_json(&now, &lease, &Verdict::Alive);
    if let serde_json::Value::Object(fields) = &mut data {
        fields.retain(|name, _| !matches!(name.as_str(), "verdict" | "why" | "evidence"));
        fields.insert("reason".into(), json!(reason.word()));
    }
    // A token that nobody got to see is of no use to anybody, unless it was seen before.
    if reason == Reason::AlreadyOwned {
        return Ok(Answer::new(data, token));
    }
    let store = Arc::clone(tenure.store());
    let undo = move || {
        let _ = store.release(&lease.grant());
    };
    Ok(Answer::new(data, token).or_undo(undo))
}
