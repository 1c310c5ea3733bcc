//! Sets of characters.

/// A set of characters, as ranges in order that do not touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set(pub(super) Vec<(char, char)>);

impl Set {
    pub(super) fn one(c: char) -> Self {
        Self(vec![(c, c)])
    }

    /// These characters, without `/`.
    pub(super) fn of(mut ranges: Vec<(char, char)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(char, char)> = Vec::new();
        for (low, high) in ranges {
            match merged.last_mut() {
                Some(last) if low <= last.1 => last.1 = last.1.max(high),
                _ => merged.push((low, high)),
            }
        }
        Self(merged).and(&Self::in_name())
    }

    /// Every character of a path.
    pub(super) fn any() -> Self {
        Self(vec![('\u{1}', char::MAX)])
    }

    /// Every character of a name.
    pub(super) fn in_name() -> Self {
        Self(vec![('\u{1}', '.'), ('0', char::MAX)])
    }

    pub(super) fn contains(&self, c: char) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&c))
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        let mut both = Vec::new();
        for (low, high) in &self.0 {
            for (other_low, other_high) in &other.0 {
                let (low, high) = (*low.max(other_low), *high.min(other_high));
                if low <= high {
                    both.push((low, high));
                }
            }
        }
        Self(both)
    }

    /// Every character of a name that is not in these ranges.
    pub(super) fn in_name_except(ranges: &[(char, char)]) -> Self {
        let mut set = Self::in_name();
        for (low, high) in ranges {
            let mut below = Vec::new();
            if let Some(end) = before(*low) {
                below.push(('\u{1}', end));
            }
            if let Some(begin) = after(*high) {
                below.push((begin, char::MAX));
            }
            set = set.and(&Self(below));
        }
        set
    }

    /// A character other than `/` and `.`, one that is easy to read if there is one.
    pub(super) fn other(&self) -> Option<char> {
        let readable = ['a', 'x', '0', 'A', '_', '-'];
        let plain = |c: &char| !matches!(c, '/' | '.');
        let readable = readable.into_iter().find(|c| self.contains(*c));
        readable.or_else(|| {
            let mut candidates = self.0.iter().flat_map(|(low, high)| {
                let first_few = (*low..=*high).take(3);
                let printable = (' '..='~').filter(move |c| (*low..=*high).contains(c));
                printable.chain(first_few)
            });
            candidates.find(plain)
        })
    }
}

fn before(c: char) -> Option<char> {
    ('\u{1}'..c).next_back()
}

fn after(c: char) -> Option<char> {
    (c..=char::MAX).nth(1)
}
