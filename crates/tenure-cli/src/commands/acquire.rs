//! `tenure acquire`: hold a key without running a command.

use std::sync::Arc;

use tenure::wire::AcquiredJson;
use tenure::{Tie, call_deadline};
use tenure_core::Reason;

use crate::answer::{Answer, Failure, remark};
use crate::args::{Acquire, Global};
use crate::context;
use crate::signals::Signals;
use crate::waiting;
use crate::words;

pub(crate) fn acquire(global: &Global, acquire: &Acquire) -> Result<Answer, Failure> {
    let tenure = context::open(global)?;
    let tie = acquire.pid.map_or(Tie::Nothing, Tie::Process);
    let mut ask = waiting::prepare(global, &tenure, &acquire.key, &acquire.request)?.tied_to(tie);
    if global.holder.is_none() {
        ask = ask.called(context::caller(global)?);
    }
    let mut signals = Signals::catch()?;
    let guard = waiting::acquire(global, &tenure, &acquire.key, ask, &mut signals)?;
    let now = tenure.clock().now();
    let lease = guard.lease().clone();
    let reason = guard.reason();
    let token = lease.token.to_string();
    guard.leave_standing();

    let name = if global.holder.is_some() {
        format!("--as {}", words::quoted(lease.holder.id.as_str()))
    } else {
        format!("--token {}", lease.token)
    };
    remark(
        global,
        &format!(
            "{} holds {} {}; to release it: tenure release {} {name}{}",
            lease.holder.id,
            lease.key,
            words::lasts(&now, &lease),
            words::quoted(lease.key.as_str()),
            words::in_store(global.store.as_deref())
        ),
    );
    let data = AcquiredJson::new(&now, &lease, reason);
    // If the answer cannot be written, the caller has no token and the lease is released. A caller
    // that owned the lease before has seen its token.
    if reason == Reason::AlreadyOwned {
        return Ok(Answer::new(data, token));
    }
    let store = Arc::clone(tenure.store());
    let undo = move || {
        let _ = store.release(&lease.grant(), call_deadline());
    };
    Ok(Answer::new(data, token).or_undo(undo))
}
