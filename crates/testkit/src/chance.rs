//! Reproducible random numbers: [`Chance`].

use std::time::Duration;

use tenure_core::Clock;
use tenure_host::HostClock;

/// The environment variable with the seed.
pub const SEED: &str = "TENURE_BATTERY_SEED";

/// A source of random numbers. The same seed gives the same numbers.
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The numbers of this seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed from the environment, or a new one.
    pub fn seed() -> u64 {
        if let Ok(text) = std::env::var(SEED) {
            return text
                .parse()
                .unwrap_or_else(|_| panic!("{SEED} is {text:?}: it must be a whole number"));
        }
        let nanos = HostClock::new().now().wall.as_nanosecond().to_le_bytes();
        let low = u64::from_le_bytes(nanos[..8].try_into().unwrap());
        Self(low ^ u64::from(std::process::id()) << 40).next() >> 16
    }

    /// A separate source that depends on this seed and on a name.
    #[must_use]
    pub fn apart(seed: u64, name: &str) -> Self {
        let mut chance = Self(seed);
        for byte in name.bytes() {
            chance.0 = chance.next() ^ u64::from(byte);
        }
        chance
    }

    /// The next number (splitmix64).
    #[expect(
        clippy::should_implement_trait,
        reason = "an endless source is no iterator to be collected"
    )]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// An index into something of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap())).unwrap()
    }

    /// True with a probability of one in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A time up to `longest`.
    pub fn time(&mut self, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.as_nanos()).unwrap();
        Duration::from_nanos(self.below(nanos + 1))
    }

    /// A time up to `longest` that is usually short.
    pub fn mostly_short(&mut self, longest: Duration) -> Duration {
        let once = self.time(longest);
        let twice = self.time(once);
        self.time(twice)
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_name_others() {
        let numbers = |name| {
            let mut chance = Chance::apart(7, name);
            (0..4).map(|_| chance.next()).collect::<Vec<_>>()
        };
        assert_eq!(numbers("a"), numbers("a"));
        assert_ne!(numbers("a"), numbers("b"));
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<u8> = (0..50).collect();
        Chance::from_seed(1).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
