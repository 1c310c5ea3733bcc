//! A deadlock: [`Cycle`], a chain of waits that would never end.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::holder::HolderId;
use crate::key::Key;
use crate::lease::{Grant, Lease, Token};
use crate::waits::Wanted;

/// One wait of a cycle: a waiter waits for a key that a holder holds.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// Finds the chain that would lead back to `waiter` if it waited for these grants. `next` returns the waits of the
/// holder of a grant. `ours` returns whether the waiter itself could release a grant, or runs under it.
///
/// A grant can end if every wait of its holder can. Those of the waiter can't, because it waits. What is left is stuck,
/// and the chain leads through stuck grants only: a wait for any of several slots is part of it if all of them are stuck.
///
/// A name counts as one actor. Two processes that share a name and wait for each other's keys are reported
/// as a cycle, even if each could proceed alone. [`crate::decide`] handles a wait for a key that the waiter's
/// own name holds, because it can distinguish a nested command from a second process.
pub fn find<E>(
    waiter: &HolderId,
    wanted: &Wanted,
    ours: impl Fn(&Grant) -> bool,
    mut next: impl FnMut(&Grant) -> Result<Vec<Wanted>, E>,
) -> Result<Option<Cycle>, E> {
    let mut wanted = wanted.clone();
    wanted.all.retain(|held| !ours(held));
    if wanted.any.iter().any(&ours) {
        wanted.any.clear();
    }
    let mut search = Search {
        ours,
        actors: vec![Actor::new(waiter.clone(), vec![wanted])],
        numbers: HashMap::new(),
    };
    search.follow(&mut next)?;
    while (0..search.actors.len()).any(|number| search.can_end_now(number)) {}
    Ok(search.chain())
}

/// The waiter, and the holders that its wait leads to.
struct Search<O> {
    ours: O,
    /// The waiter is the first.
    actors: Vec<Actor>,
    /// The number of the holder of a grant.
    numbers: HashMap<(HolderId, Token), usize>,
}

/// The waiter, or the holder of a grant that is not ours.
struct Actor {
    name: HolderId,
    waits: Vec<Wanted>,
    /// Whether all its waits can end.
    can_end: bool,
}

impl Actor {
    fn new(name: HolderId, waits: Vec<Wanted>) -> Self {
        Self {
            name,
            can_end: waits.is_empty(),
            waits,
        }
    }
}

impl<O: Fn(&Grant) -> bool> Search<O> {
    /// Finds every holder that the waits lead to.
    fn follow<E>(
        &mut self,
        next: &mut impl FnMut(&Grant) -> Result<Vec<Wanted>, E>,
    ) -> Result<(), E> {
        let mut open = 0;
        while let Some(actor) = self.actors.get(open) {
            open += 1;
            for wanted in actor.waits.clone() {
                for held in &wanted.all {
                    self.add(held, next)?;
                }
                for held in &wanted.any {
                    self.add(held, next)?;
                    // One that can end is enough.
                    if !self.is_stuck(held) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn add<E>(
        &mut self,
        held: &Grant,
        next: &mut impl FnMut(&Grant) -> Result<Vec<Wanted>, E>,
    ) -> Result<(), E> {
        if !(self.ours)(held) && self.number(held).is_none() {
            let actor = Actor::new(held.holder.clone(), next(held)?);
            let id = (held.holder.clone(), held.token);
            self.numbers.insert(id, self.actors.len());
            self.actors.push(actor);
        }
        Ok(())
    }

    fn number(&self, held: &Grant) -> Option<usize> {
        let id = (held.holder.clone(), held.token);
        self.numbers.get(&id).copied()
    }

    /// Whether a grant is not known to end. Ours does not.
    fn is_stuck(&self, held: &Grant) -> bool {
        let actor = self.number(held).and_then(|number| self.actors.get(number));
        !actor.is_some_and(|actor| actor.can_end)
    }

    /// The stuck grants that keep a wait from its end; none if it can end.
    fn in_the_way<'a>(&self, wanted: &'a Wanted) -> Vec<&'a Grant> {
        let all = wanted.all.iter().filter(|held| self.is_stuck(held));
        let any = wanted.any.iter();
        let any_can_end = wanted.any.iter().any(|held| !self.is_stuck(held));
        all.chain(any.filter(|_| !any_can_end)).collect()
    }

    /// Finds out that one more actor's waits can end; `false` if they can't, or were known to.
    fn can_end_now(&mut self, number: usize) -> bool {
        let Some(actor) = self.actors.get(number).filter(|actor| !actor.can_end) else {
            return false;
        };
        let can_end = (actor.waits.iter()).all(|wanted| self.in_the_way(wanted).is_empty());
        if let Some(actor) = self.actors.get_mut(number) {
            actor.can_end = can_end;
        }
        can_end
    }

    /// The waits from the waiter to a grant of ours, through stuck grants.
    fn chain(&self) -> Option<Cycle> {
        let mut seen = HashSet::new();
        let mut open = vec![(0, Vec::new())];
        while let Some((number, path)) = open.pop() {
            let actor = self.actors.get(number)?;
            for held in actor.waits.iter().flat_map(|it| self.in_the_way(it)) {
                let mut longer: Vec<Wait> = path.clone();
                longer.push(Wait {
                    waiter: actor.name.clone(),
                    key: held.key.clone(),
                    holder: held.holder.clone(),
                });
                match self.number(held) {
                    Some(next) if seen.insert(next) => open.push((next, longer)),
                    None if (self.ours)(held) => return Some(Cycle(longer)),
                    _ => {}
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> HolderId {
        HolderId::parse(text).unwrap()
    }

    fn held(key: &str, by: &str) -> Grant {
        Grant {
            key: Key::parse(key).unwrap(),
            holder: id(by),
            token: Token(1),
        }
    }

    fn all_of(key: &str, by: &str) -> Wanted {
        Wanted {
            all: vec![held(key, by)],
            any: Vec::new(),
        }
    }

    fn look(
        waiter: &str,
        wants: &str,
        held_by: &str,
        waits: &[(&str, &str, &str)],
    ) -> Option<String> {
        let ours = |holding: &Grant| holding.holder.as_str() == waiter;
        let next = |holding: &Grant| {
            Ok::<_, ()>(
                waits
                    .iter()
                    .filter(|(who, _, _)| *who == holding.holder.as_str())
                    .map(|(_, wants, by)| all_of(wants, by))
                    .collect(),
            )
        };
        find(&id(waiter), &all_of(wants, held_by), ours, next)
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

    /// Whether a wait of c for x, which a holds, leads back. Actor a waits for any of two slots, which b and d have.
    fn leads_back_through_slots(waits: &[(&str, &str)]) -> bool {
        let ours = |holding: &Grant| holding.holder.as_str() == "c";
        let next = |holding: &Grant| {
            let any = vec![held("s", "b"), held("s", "d")];
            let all = waits
                .iter()
                .filter(|(who, _)| *who == holding.holder.as_str());
            let all: Vec<_> = all.map(|(_, by)| all_of("y", by)).collect();
            Ok::<_, ()>(match holding.holder.as_str() {
                "a" => vec![Wanted {
                    all: Vec::new(),
                    any,
                }],
                _ => all,
            })
        };
        let cycle = find(&id("c"), &all_of("x", "a"), ours, next).unwrap();
        cycle.is_some()
    }

    #[test]
    fn a_wait_for_any_slot_is_part_of_a_cycle_only_if_no_holder_of_one_can_end_it() {
        assert!(leads_back_through_slots(&[("b", "c"), ("d", "c")]));
        assert!(!leads_back_through_slots(&[("b", "c")]));
        assert!(!leads_back_through_slots(&[("d", "c")]));
    }

    #[test]
    fn a_holder_of_a_slot_that_waits_for_a_waiter_for_one_can_t_end_its_wait() {
        assert!(leads_back_through_slots(&[("b", "a"), ("d", "c")]));
        assert!(leads_back_through_slots(&[("b", "c"), ("d", "a")]));
        assert!(!leads_back_through_slots(&[("b", "a")]));
    }
}
