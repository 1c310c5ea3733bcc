//! A deadlock: [`Cycle`], a chain of waits that would never end.

use std::collections::HashSet;
use std::fmt;

use crate::holder::HolderId;
use crate::key::Key;
use crate::lease::{Lease, Token};

/// One wait of a cycle: a waiter waits for a key that a holder holds.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Wait {
    /// The waiter.
    pub waiter: HolderId,
    /// The key that it waits for.
    pub key: Key,
    /// The holder of that key.
    pub holder: HolderId,
}

impl Wait {
    /// `waiter` waits for the key of `lease`.
    pub fn on(waiter: &HolderId, lease: &Lease) -> Self {
        Self {
            waiter: waiter.clone(),
            key: lease.key.clone(),
            holder: lease.holder.id.clone(),
        }
    }
}

/// A chain of waits that leads back to its beginning. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Cycle(pub Vec<Wait>);

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, wait) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(
                f,
                "{} waits for {} which {} holds",
                wait.waiter, wait.key, wait.holder
            )?;
        }
        Ok(())
    }
}

/// One grant that a holder has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holding {
    /// The key.
    pub key: Key,
    /// The holder.
    pub holder: HolderId,
    /// The token of the grant.
    pub token: Token,
}

impl From<&Lease> for Holding {
    fn from(lease: &Lease) -> Self {
        Self {
            key: lease.key.clone(),
            holder: lease.holder.id.clone(),
            token: lease.token,
        }
    }
}

/// Finds the chain that would lead back to `waiter` if it waited for these grants. `next` returns what the
/// holder of a grant waits for in turn. `ours` returns whether the waiter itself could release a grant, or
/// runs under it.
///
/// A name counts as one actor. Two processes that share a name and wait for each other's keys are reported
/// as a cycle, even if each could proceed alone. [`crate::decide`] handles a wait for a key that the waiter's
/// own name holds, because it can distinguish a nested command from a second process.
pub fn find<E>(
    waiter: &HolderId,
    wanted: &[Holding],
    ours: impl Fn(&Holding) -> bool,
    mut next: impl FnMut(&Holding) -> Result<Vec<Holding>, E>,
) -> Result<Option<Cycle>, E> {
    let wait = |waiter: &HolderId, held: &Holding| Wait {
        waiter: waiter.clone(),
        key: held.key.clone(),
        holder: held.holder.clone(),
    };
    let mut seen: HashSet<(HolderId, Token)> = HashSet::new();
    let mut open = Vec::new();
    for held in wanted {
        if !ours(held) && seen.insert((held.holder.clone(), held.token)) {
            open.push((vec![wait(waiter, held)], held.clone()));
        }
    }
    while let Some((path, at)) = open.pop() {
        for held in next(&at)? {
            let mut longer = path.clone();
            longer.push(wait(&at.holder, &held));
            if ours(&held) {
                return Ok(Some(Cycle(longer)));
            }
            if seen.insert((held.holder.clone(), held.token)) {
                open.push((longer, held));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> HolderId {
        HolderId::parse(text).unwrap()
    }

    fn held(key: &str, by: &str) -> Holding {
        Holding {
            key: Key::parse(key).unwrap(),
            holder: id(by),
            token: Token(1),
        }
    }

    fn look(
        waiter: &str,
        wants: &str,
        held_by: &str,
        waits: &[(&str, &str, &str)],
    ) -> Option<String> {
        let ours = |holding: &Holding| holding.holder.as_str() == waiter;
        let next = |holding: &Holding| {
            Ok::<_, ()>(
                waits
                    .iter()
                    .filter(|(who, _, _)| *who == holding.holder.as_str())
                    .map(|(_, wants, by)| held(wants, by))
                    .collect(),
            )
        };
        find(&id(waiter), &[held(wants, held_by)], ours, next)
            .unwrap()
            .map(|cycle| cycle.to_string())
    }

    #[test]
    fn two_waiters_that_wait_for_each_other_are_a_cycle() {
        assert_eq!(
            look("b", "x", "a", &[("a", "y", "b")]).unwrap(),
            "b waits for x which a holds, a waits for y which b holds"
        );
    }

    #[test]
    fn a_longer_chain_is_found_through_a_branch() {
        let waits = [
            ("a", "p", "z"),
            ("a", "y", "b"),
            ("b", "w", "c"),
            ("z", "q", "nobody"),
        ];
        let words = look("c", "x", "a", &waits).unwrap();
        assert!(words.ends_with("b waits for w which c holds"), "{words}");
    }

    #[test]
    fn a_chain_that_ends_is_no_cycle() {
        assert_eq!(look("c", "x", "a", &[("a", "y", "b")]), None);
    }

    #[test]
    fn the_search_ends_at_a_cycle_that_does_not_include_the_waiter() {
        assert_eq!(
            look("c", "x", "a", &[("a", "y", "b"), ("b", "x", "a")]),
            None
        );
    }
}
