//! Which known name somebody probably meant.

/// The candidate that is closest to `word`, if any is close enough to be worth naming. Case and
/// punctuation do not count: `task_timeout` is `taskTimeout`.
pub(super) fn closest<T: AsRef<str>>(
    word: &str,
    candidates: impl IntoIterator<Item = T>,
) -> Option<T> {
    let word = letters(word);
    // A third of the letters wrong is a slip. More is another word.
    let tolerance = (word.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(&word, &letters(candidate.as_ref())), candidate))
        .filter(|(distance, _)| *distance <= tolerance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn letters(word: &str) -> Vec<char> {
    // Names are short. A very long word is none of them, and comparing it would only take time.
    word.chars()
        .filter(|c| c.is_alphanumeric())
        .take(100)
        .flat_map(char::to_lowercase)
        .collect()
}

/// How many letters must be added, removed or replaced to turn one word into the other.
fn distance(left: &[char], right: &[char]) -> usize {
    // `row` holds the distances of the letters of `left` seen so far to each beginning of `right`.
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.iter().enumerate() {
        let mut diagonal = index;
        let mut before = index + 1;
        let mut next = vec![before];
        for (other, above) in right.iter().zip(row.iter().skip(1)) {
            let replaced = diagonal + usize::from(letter != other);
            before = replaced.min(above + 1).min(before + 1);
            diagonal = *above;
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
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
            assert_eq!(closest(slip, KEYS), Some(meant));
        }
    }

    #[test]
    fn another_word_finds_nothing() {
        assert_eq!(closest("colour", KEYS), None);
        assert_eq!(closest("poll", KEYS), None, "half a name is not a slip");
        assert_eq!(closest("", KEYS), None);
        assert_eq!(closest("x".repeat(1_000_000).as_str(), KEYS), None);
    }

    #[test]
    fn the_distance_counts_added_removed_and_replaced_letters() {
        let count = |left: &str, right: &str| distance(&letters(left), &letters(right));
        assert_eq!(count("kitten", "sitting"), 3);
        assert_eq!(count("", "abc"), 3);
        assert_eq!(count("abc", ""), 3);
        assert_eq!(count("abc", "abc"), 0);
        assert_eq!(count("ab", "ba"), 2);
    }
}
