//! Which task or section a caller means.

/// How many candidates an ambiguous name lists at most.
pub const CANDIDATES: usize = 20;

/// The shortest prefix of an id that is accepted.
pub const SHORTEST_PREFIX: usize = 4;

/// The only match among several: an exact match goes before matches that differ in the case of
/// letters. Fails with the best matches, if there are several.
pub fn only<T>(found: Vec<T>, exactly: impl Fn(&T) -> bool) -> Result<Option<T>, Vec<T>> {
    let (exact, other): (Vec<T>, Vec<T>) = found.into_iter().partition(exactly);
    let mut best = if exact.is_empty() { other } else { exact };
    match best.len() {
        0 | 1 => Ok(best.pop()),
        _ => Err(best),
    }
}
