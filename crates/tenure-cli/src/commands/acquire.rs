//! `tenure acquire`: hold a key without running a command.

use std::sync::Arc;

use tenure::wire::AcquiredJson;
use tenure::{Tenure, Tie, call_deadline};
use tenure_core::{Key, Lease, Moment, Reason};

use crate::answer::{Answer, Failure, remark};
use crate::args::{Acquire, Global};
use crate::context;
use crate::signals::Signals;
use crate::waiting;
use crate::words;

pub(crate) fn acquire(global: &Global, acquire: &Acquire) -> Result<Answer, Failure> {
    let tenure = context::open_for_locks(global)?;
    let tie = acquire.pid.map_or(Tie::Nothing, Tie::Process);
    let mut ask = waiting::prepare(global, &tenure, &acquire.key, &acquire.request)?.tied_to(tie);
    if global.holder.is_none() {
        // No other shell has this name, so a repeated request is the same holder's.
        ask = ask.named(context::caller(global)?.as_str())?;
    }
    if let Some(lease) = tied_to_caller(global, &tenure, acquire)? {
        let now = tenure.clock().now();
        say_held(global, &now, &lease, Reason::AlreadyOwned);
        let data = AcquiredJson::new(&now, &lease, Reason::AlreadyOwned);
        return Ok(Answer::new(data, lease.token.to_string()));
    }
    let mut signals = Signals::catch()?;
    let guard = waiting::acquire(global, &tenure, &acquire.key, ask, &mut signals)?;
    let now = tenure.clock().now();
    let lease = guard.lease().clone();
    let reason = guard.reason();
    let token = lease.token.to_string();
    guard.leave_standing();

    say_held(global, &now, &lease, reason);
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

/// A lease on the key that the calling shell took with `--pid $$`, for a request without `--pid`: the shell
/// would wait for its own end.
fn tied_to_caller(
    global: &Global,
    tenure: &Tenure,
    acquire: &Acquire,
) -> Result<Option<Lease>, Failure> {
    if acquire.pid.is_some() || global.holder.is_some() {
        return Ok(None);
    }
    let key = Key::parse(acquire.key.as_str())?;
    let found = tenure.store().inspect(&key, call_deadline())?.leases;
    let mut held = found
        .into_iter()
        .filter(|(_, verdict)| verdict.ended().is_none());
    Ok(held
        .find(|(lease, _)| {
            lease.holder.process().is_some() && context::is_held_by_caller(global, lease)
        })
        .map(|(lease, _)| lease))
}

/// Tells a person what is held, and how to release it.
fn say_held(global: &Global, now: &Moment, lease: &Lease, reason: Reason) {
    let name = if global.holder.is_some() {
        format!("--as {}", words::quoted(lease.holder.id.as_str()))
    } else {
        format!("--token {}", lease.token)
    };
    let held = if reason == Reason::AlreadyOwned {
        format!(
            "you hold {} already, as {}, with token {},",
            lease.key, lease.holder.id, lease.token
        )
    } else {
        format!("{} holds {}", lease.holder.id, lease.key)
    };
    remark(
        global,
        &format!(
            "{held} {}; to release it: tenure release {} {name}{}",
            words::lasts(now, lease),
            words::quoted(lease.key.as_str()),
            words::in_store(global.store.as_deref())
        ),
    );
}
