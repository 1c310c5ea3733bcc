//! Where reservations of paths can meet: [`Places`].
//!
//! Every pattern has a *place* ([`PathPattern::place`]): its path, or the folder that all of its wildcards are in. The
//! place is the path itself or a folder above it, for every path that the pattern covers. So two patterns have a path in
//! common only if the place of one is that of the other, or above or below it. A store that can find reservations by
//! their places reads those, and leaves the others unread.
//!
//! What this does not do: it decides nothing. Patterns whose places meet need not overlap.

use std::collections::BTreeSet;

use crate::mode::Mode;
use crate::path_pattern::PathPattern;

/// The place of a mode without paths: the top of the work tree, which is above everything.
pub const TOP: &str = "";

/// Where the reservations are that a caller has to know of.
///
/// ```
/// use tenure_core::{Mode, Places};
///
/// let mut places = Places::default();
/// places.add_file("src/api/mod.rs");
/// let meets = |mode: &str| places.meet(&mode.parse::<Mode>().unwrap());
/// assert!(meets("paths:src") && meets("paths:src/*/x") && meets("paths:**") && meets("exclusive"));
/// assert!(!meets("paths:src/lib.rs") && !meets("paths:src/api/mod.rs/below docs/*"));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    at: BTreeSet<String>,
    below: BTreeSet<String>,
}

impl Places {
    /// Where the reservations are that a claim in this mode can conflict with; `None` if they can be anywhere.
    pub fn of(mode: &Mode) -> Option<Self> {
        let mut places = Self::default();
        for pattern in mode.paths()?.patterns() {
            places.add_pattern(pattern);
        }
        (!places.below.contains(TOP)).then_some(places)
    }

    /// Adds the places of what can cover this path, which is in normal form.
    pub fn add_file(&mut self, path: &str) {
        self.at.insert(TOP.to_owned());
        // From the longest to the shortest: the folders above a known one are known.
        let slashes = path.rmatch_indices('/').map(|(at, _)| at);
        for end in std::iter::once(path.len()).chain(slashes) {
            if !self.at.insert(path.get(..end).unwrap_or(path).to_owned()) {
                break;
            }
        }
    }

    /// Adds the places of what can have a path in common with this pattern.
    pub fn add_pattern(&mut self, pattern: &PathPattern) {
        self.add_file(pattern.place());
        self.below.insert(pattern.place().to_owned());
    }

    /// These places.
    pub fn at(&self) -> impl Iterator<Item = &str> {
        self.at.iter().map(String::as_str)
    }

    /// And all that are below one of these folders.
    pub fn below(&self) -> impl Iterator<Item = &str> {
        self.below.iter().map(String::as_str)
    }

    /// Whether a reservation in this mode is at one of these places. One without paths is everywhere.
    pub fn meet(&self, mode: &Mode) -> bool {
        mode.places().any(|place| {
            let is_above = |folder: &&str| self.below.contains(*folder);
            self.at.contains(place) || folders_above(place).any(|folder| is_above(&folder))
        })
    }
}

/// The folders that a place is in, with the top of the work tree.
fn folders_above(place: &str) -> impl Iterator<Item = &str> {
    let slashes = place.match_indices('/');
    let folders = slashes.filter_map(|(at, _)| place.get(..at));
    std::iter::once(TOP)
        .filter(|_| !place.is_empty())
        .chain(folders)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::path_set::PathSet;

    /// Few names, so that many of them meet.
    fn path() -> impl Strategy<Value = String> {
        prop::collection::vec(
            prop::sample::select(vec!["a", "b", "ab", "a b", "a.c"]),
            1..5,
        )
        .prop_map(|names| names.join("/"))
    }

    fn pattern() -> impl Strategy<Value = String> {
        let name = prop::sample::select(vec![
            "a", "b", "ab", "a.c", "*", "**", "a*", "?", "[ab]", "{a,b}", "{a/b,ab}", "*.c", "a\\*",
        ]);
        prop::collection::vec(name, 1..5).prop_map(|names| names.join("/"))
    }

    /// A set as the store has it. Some of its texts are no patterns: those conflict with all that begins like them.
    fn set() -> impl Strategy<Value = PathSet> {
        let kinds = (prop::collection::vec(pattern(), 1..4), path(), 0..8_u8);
        kinds.prop_map(|(patterns, file, kind)| {
            let mut patterns: Vec<PathPattern> = patterns
                .iter()
                .map(|text| PathPattern::parse(text).unwrap())
                .collect();
            match kind {
                0 => patterns = vec![PathPattern::file(&file).unwrap()],
                1 => patterns.push(PathPattern::file(&file).unwrap()),
                2 => patterns.push(PathPattern::from_normal(format!("{file}/[z"))),
                3 => patterns = vec![PathPattern::from_normal(format!("{file}[z"))],
                _ => {}
            }
            PathSet::new(patterns).unwrap()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn reservations_in_conflict_meet_at_their_places(one in set(), two in set()) {
            let (one, two) = (Mode::from(one), Mode::from(two));
            for (one, two) in [(&one, &two), (&two, &one)] {
                let meet = Places::of(one).is_none_or(|places| places.meet(two));
                prop_assert!(one.admits(two) || meet, "{one} and {two}");
            }
        }

        #[test]
        fn what_covers_a_path_is_at_its_places(set in set(), path in path()) {
            let mut places = Places::default();
            places.add_file(&path);
            let covers = set.covers(&path).is_some();
            prop_assert!(!covers || places.meet(&set.clone().into()), "{set} and {path}");
        }
    }

    #[test]
    fn a_claim_meets_few_of_many_reservations() {
        let claim: Mode = "paths:src/m7/f1.rs".parse().unwrap();
        let places = Places::of(&claim).unwrap();
        let modes = (0..100).map(|n| format!("paths:src/m{n}/f1.rs src/m{n}/*.txt"));
        let met = modes.filter(|mode| places.meet(&mode.parse().unwrap()));
        assert_eq!(met.count(), 1);
        for everywhere in ["paths:**", "paths:*.rs", "exclusive", "shared"] {
            assert_eq!(Places::of(&everywhere.parse().unwrap()), None);
            assert!(places.meet(&everywhere.parse().unwrap()), "{everywhere}");
        }
    }
}
