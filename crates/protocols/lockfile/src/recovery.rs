//! What a step does first after a crash: recover a lost state, raise tokens after a reboot, and finish or
//! drop an interrupted step (G2, G10).

use std::sync::atomic::Ordering;

use tenure_core::{Epoch, StoreError, Token};
use tenure_host::files::atomic::PutResult;
use tenure_host::files::protocol::LockProtocol;
use tenure_host::files::takeover;

use crate::history::{self, AppendAttempt};
use crate::state::Pending;
use crate::step::{FileStep, change};
use crate::view::Picture;

/// By how much tokens jump if the ceiling is unknown: more than can be lost with the state.
const JUMP: u64 = 1 << 20;

impl<P: LockProtocol> FileStep<'_, P> {
    /// The state is lost: tokens continue above the ceiling, the queue starts empty, and the lock says
    /// who holds it.
    pub(super) fn recover_state(&mut self, flaw: &str) -> Result<(), StoreError> {
        let store = self.picture.store;
        let (token, event) = history::newest(store.sidecar());
        let in_lock = store.found().map(|found| found.lease.token);
        let known = token.max(in_lock.unwrap_or(Token::NONE));
        let state = &mut self.picture.state;
        state.newest = tokens_after(store.state_file.ceiling(), known);
        state.last_event = event;
        state.boot = Some(self.picture.now.epoch.clone());
        let note = format!("the state could not be read ({flaw}): the queue starts empty");
        store.sidecar().note(self.picture.now.wall, &note)?;
        // A lock that was about to be removed may be a live one.
        let aside = store.sidecar().aside();
        if self.protocol().read(&aside).is_some() {
            let (PutResult::Done | PutResult::Occupied) =
                change(&aside, self.protocol().put(&aside))?;
            change(&aside, self.protocol().discard(&aside))?;
        }
        self.save()
    }

    /// A power cut may have brought back an older state: tokens continue above the ceiling. Where the kernel does not
    /// name its boots, every store object takes the boot for a new one.
    pub(super) fn raise_tokens_after_reboot(&mut self) {
        let Picture {
            store, now, state, ..
        } = &mut self.picture;
        let is_new = |boot: &Epoch| {
            boot.differs(&now.epoch)
                || (!boot.same(&now.epoch)
                    && !store.has_raised_tokens.swap(true, Ordering::Relaxed))
        };
        if state.boot.as_ref().is_some_and(is_new) {
            state.newest = tokens_after(store.state_file.ceiling(), Token(state.newest));
            state.boot = Some(now.epoch.clone());
            self.dirty = true;
        }
    }

    /// Finishes a step of a process that was killed, or drops it if it had not touched the lock.
    pub(super) fn finish(&mut self, pending: Pending) -> Result<(), StoreError> {
        let (store, protocol) = (self.picture.store, self.protocol());
        let (next, aside) = (store.sidecar().next(), store.sidecar().aside());
        let replaced = pending.replaced.as_ref();
        let happened = match (&pending.granted, replaced) {
            (None, None) => true,
            (None, Some(stale)) => {
                change(&aside, takeover::removal_happened(protocol, &aside, stale))?
            }
            (Some((record, _)), stale) => {
                let lease = record.lease(store.key());
                change(
                    &next,
                    takeover::grant_happened(protocol, &next, &lease, stale),
                )?
            }
        };
        if happened {
            self.complete(pending, AppendAttempt::Repeated)
        } else {
            self.drop_pending()
        }
    }
}

/// Where tokens continue when the state may be older than the last grant.
fn tokens_after(ceiling: Option<Token>, known: Token) -> u64 {
    let jump = || Token(known.0.saturating_add(JUMP));
    ceiling.unwrap_or_else(jump).max(known).min(Token::MAX).0
}
