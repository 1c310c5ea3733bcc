//! English plurals: [`count`].

use std::fmt::Display;

/// "1 task", "2 tasks", "2 dependencies".
pub fn count<N: Copy + Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) {
        return format!("{number} {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_is_singular_and_zero_is_plural() {
        assert_eq!(count(0_u64, "task"), "0 tasks");
        assert_eq!(count(1_usize, "task"), "1 task");
        assert_eq!(count(2_u64, "task"), "2 tasks");
        assert_eq!(count(2_u64, "dependency"), "2 dependencies");
    }
}
