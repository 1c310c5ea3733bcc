//! The known name that a misspelt one was probably meant to be.

/// The candidate closest to `word`, if any is close enough to be worth suggesting. Letter case and
/// punctuation do not count: `task_timeout` is `taskTimeout`.
pub(super) fn nearest<T: AsRef<str>>(
    word: &str,
    candidates: impl IntoIterator<Item = T>,
) -> Option<T> {
    let word = letters(word);
    // A third of the letters wrong is a slip. More is another word.
    let tolerance = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| {
            let distance = strsim::levenshtein(&word, &letters(candidate.as_ref()));
            (distance, candidate)
        })
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn letters(word: &str) -> String {
    // Names are short. Comparing a very long word would take time and find nothing.
    word.chars()
        .filter(|c| c.is_alphanumeric())
        .take(100)
        .flat_map(char::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 4] = [
        "taskTimeout",
        "sectionTimeout",
        "waitTimeout",
        "pollInterval",
    ];

    #[test]
    fn a_slip_finds_the_name_that_was_meant() {
        for (slip, meant) in [
            ("taskTimout", "taskTimeout"),
            ("tasktimeout", "taskTimeout"),
            ("task_timeout", "taskTimeout"),
            ("TASK-TIMEOUT", "taskTimeout"),
            ("sectoinTimeout", "sectionTimeout"),
        ] {
            assert_eq!(nearest(slip, KEYS), Some(meant));
        }
    }

    #[test]
    fn another_word_finds_nothing() {
        assert_eq!(nearest("colour", KEYS), None);
        assert_eq!(nearest("poll", KEYS), None, "half a name is not a slip");
        assert_eq!(nearest("", KEYS), None);
        assert_eq!(nearest("x".repeat(1_000_000).as_str(), KEYS), None);
    }
}
