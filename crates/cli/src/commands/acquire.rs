//! `tenure acquire`: hold a key without running a command.

use std::sync::Arc;

use serde::Serialize;
use tenure::ask::Tie;
use tenure::store::{Grant, Key, Lease, Moment, Reason, call_deadline};
use tenure::wire::AcquiredJson;
use tenure::{Guard, Tenure};

use crate::answer::{Answer, Failure, remark};
use crate::args::{Acquire, Global};
use crate::commands::run::granted;
use crate::context;
use crate::signals::Signals;
use crate::waiting;
use crate::words;

pub(crate) fn acquire(global: &Global, acquire: &Acquire) -> Result<Answer, Failure> {
    let tenure = context::open_for_locks(global)?;
    let tie = acquire.pid.map_or(Tie::Nothing, Tie::Process);
    let keys = acquire.keys.all();
    let mut ask = waiting::prepare(global, &tenure, &keys, &acquire.request)?.tied_to(tie);
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
    let what = words::all_of(ask.keys());
    let guard = waiting::acquire(global, &tenure, &what, ask, &mut signals)?;
    let now = tenure.clock().now();
    let data = granted(&now, &guard);
    for (lease, reason) in guard.granted() {
        say_held(global, &now, lease, reason);
    }
    Ok(hand_over(&tenure, guard, data))
}

/// Leaves what was granted to the caller, and prints the tokens. If the answer can't be written, the caller has no token
/// and the new leases are released.
pub(crate) fn hand_over(tenure: &Tenure, guard: Guard, data: impl Serialize) -> Answer {
    let tokens: Vec<String> = guard.leases().map(|it| it.token.to_string()).collect();
    // A caller that owned a lease before has seen its token.
    let new = guard
        .granted()
        .filter(|(_, reason)| *reason != Reason::AlreadyOwned);
    let new: Vec<Grant> = new.map(|(lease, _)| lease.grant()).collect();
    guard.leave_standing();
    let store = Arc::clone(tenure.store());
    let undo = move || {
        for grant in &new {
            let _ = store.release(grant, call_deadline());
        }
    };
    Answer::new(data, tokens.join("\n")).or_undo(undo)
}

/// What proves to a later command that it is about this lease.
pub(crate) fn proof(global: &Global, lease: &Lease) -> String {
    if global.holder.is_some() {
        format!("--as {}", words::quoted(lease.holder.id.as_str()))
    } else {
        format!("--token {}", lease.token)
    }
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
    let keys = acquire.keys.all();
    let [key] = keys.as_slice() else {
        return Ok(None);
    };
    let key = Key::parse(*key)?;
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
            "{held} {}; to release it: tenure release {} {}{}",
            words::lasts(now, lease),
            words::quoted(lease.key.as_str()),
            proof(global, lease),
            words::in_store(global.store.as_deref())
        ),
    );
}
