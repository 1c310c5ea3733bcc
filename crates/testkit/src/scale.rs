//! How long the tests with random kills and races go on: [`scaled`].
//!
//! `make test` runs each of them long enough to find what it is for on most runs; `make soak` multiplies all
//! of them. There is one variable for every crate, so that a soak needs no list of tests.

/// The variable that holds the scale, a whole number.
pub const SCALE: &str = "TENURE_BATTERY_SCALE";

/// The scale: 1, unless the variable says otherwise.
pub fn scale() -> u64 {
    std::env::var(SCALE).map_or(1, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{SCALE} is {text:?}: it must be a whole number"))
    })
}

/// The number of rounds, times the scale.
pub fn scaled(rounds: usize) -> usize {
    rounds * usize::try_from(scale()).unwrap()
}
