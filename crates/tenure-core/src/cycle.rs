//! A wait that would never end: [`Cycle`].

use std::collections::HashSet;
use std::fmt;

use crate::holder::HolderId;
use crate::key::Key;
use crate::lease::Token;

/// One step of a cycle: somebody waits for what another holds.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Step {
    /// Who waits.
    pub waiter: HolderId,
    /// For what.
    pub key: Key,
    /// Who holds that.
    pub holder: HolderId,
}

/// A chain of waits that leads back to its beginning. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Cycle(pub Vec<Step>);

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            write!(
                f,
                "{} waits for {} which {} holds",
                step.waiter, step.key, step.holder
            )?;
        }
        Ok(())
    }
}

/// Who holds something, and by which grant.
pub type Held = (HolderId, Token);

/// Looks for the chain that would lead back to `waiter` if it waited for `key`, which `holder`
/// holds. `next` tells for a grant what its holder waits for, and who holds that; `ours` whether a
/// grant is one that the waiter itself could give back, or runs under.
///
/// A name is taken for one actor. Two processes that share a name and wait for one another's keys
/// look like a cycle even if each could go on alone; waiting for the very key that one's own name
/// holds is left to [`crate::decide`], which can tell a nested command from a second process.
pub fn find<E>(
    waiter: &HolderId,
    key: &Key,
    holder: &Held,
    ours: impl Fn(&Held) -> bool,
    mut next: impl FnMut(&Held) -> Result<Vec<(Key, Held)>, E>,
) -> Result<Option<Cycle>, E> {
    if ours(holder) {
        return Ok(None);
    }
    let first = Step {
        waiter: waiter.clone(),
        key: key.clone(),
        holder: holder.0.clone(),
    };
    let mut seen = HashSet::from([holder.clone()]);
    let mut open = vec![(vec![first], holder.clone())];
    while let Some((path, at)) = open.pop() {
        for (key, holder) in next(&at)? {
            let mut longer = path.clone();
            longer.push(Step {
                waiter: at.0.clone(),
                key,
                holder: holder.0.clone(),
            });
            if ours(&holder) {
                return Ok(Some(Cycle(longer)));
            }
            if seen.insert(holder.clone()) {
                open.push((longer, holder));
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

    fn key(text: &str) -> Key {
        Key::parse(text).unwrap()
    }

    fn look(
        waiter: &str,
        wants: &str,
        held_by: &str,
        waits: &[(&str, &str, &str)],
    ) -> Option<String> {
        let held = |by: &str| (id(by), Token(1));
        let ours = |(holder, _): &Held| holder.as_str() == waiter;
        find(
            &id(waiter),
            &key(wants),
            &held(held_by),
            ours,
            |(holder, _)| {
                Ok::<_, ()>(
                    waits
                        .iter()
                        .filter(|(who, _, _)| *who == holder.as_str())
                        .map(|(_, wants, by)| (key(wants), held(by)))
                        .collect(),
                )
            },
        )
        .unwrap()
        .map(|cycle| cycle.to_string())
    }

    #[test]
    fn two_that_wait_for_one_another_are_spelled_out() {
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
    fn a_cycle_among_others_does_not_keep_us_looking_for_ever() {
        assert_eq!(
            look("c", "x", "a", &[("a", "y", "b"), ("b", "x", "a")]),
            None
        );
    }
}
