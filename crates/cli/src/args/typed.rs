//! What was typed, in the spelling that the parser knows.

use std::ffi::OsString;

use super::board;
use super::habits::{EARLIER, HABITS, Habit};

/// Global options that are followed by a value.
const WITH_VALUE: [&str; 3] = ["-C", "--store", "--as"];

/// Commands that list when no subcommand is given.
const LISTS: [&str; 4] = ["files", "locks", "tasks", "sections"];

/// The words of a command line, with `board --list` as `board list`, `locks` as `locks list`, and the spellings of
/// earlier versions as those of this one.
pub(crate) fn typed(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if let Some(now) = EARLIER.iter().find_map(|habit| respelled(&words, habit)) {
        return now;
    }
    let Some(at) = command(&words) else {
        return words;
    };
    let rest = words.split_off(at + 1);
    let name = words.last().and_then(|word| word.to_str());
    match name {
        Some("board") => words.extend(board::spelled(rest)),
        Some(name) if LISTS.contains(&name) && command_in(&rest).is_none() => {
            let asks_for_help = |word: &OsString| word == "-h" || word == "--help";
            if !rest.iter().any(asks_for_help) {
                words.push("list".into());
            }
            words.extend(rest);
        }
        _ => words.extend(rest),
    }
    words
}

/// The command line that does what these words mean, if they are a habit from elsewhere.
pub(crate) fn meant(words: &[OsString]) -> Option<Vec<OsString>> {
    HABITS.iter().find_map(|habit| respelled(words, habit))
}

/// The words with the habit's spelling replaced, if they have it.
fn respelled(words: &[OsString], habit: &Habit) -> Option<Vec<OsString>> {
    let mut at = command(words)?;
    let (before, mut rest) = (words.get(..at)?.to_vec(), words.get(at..)?.to_vec());
    let mut meant: Vec<OsString> = habit.meant.split(' ').map(OsString::from).collect();
    at = 0;
    for name in habit.typed.split(' ') {
        if name == "_" {
            command_in(rest.get(at..)?)?;
        } else if name == "--" {
            rest.iter().any(|word| word == "--").then_some(())?;
        } else if name.starts_with('-') {
            let instead = meant.pop_if(|word| word.as_encoded_bytes().starts_with(b"-"));
            replace_option(&mut rest, name, instead)?;
        } else {
            at += command_in(rest.get(at..)?)?;
            (rest.get(at)? == name).then(|| rest.remove(at))?;
        }
    }
    match meant.iter().position(|word| word == "...") {
        Some(place) => drop(meant.splice(place..=place, rest)),
        None => meant.extend(rest),
    }
    Some([before, meant].concat())
}

/// Removes an option, or puts another one in its place. A value stays where it is.
fn replace_option(words: &mut Vec<OsString>, name: &str, instead: Option<OsString>) -> Option<()> {
    let mut given = words.iter().take_while(|word| *word != "--");
    let (at, value) = given.by_ref().enumerate().find_map(|(at, word)| {
        let value = word.to_str()?.strip_prefix(name)?;
        let value = value.strip_prefix('=').or(value.is_empty().then_some(""))?;
        Some((at, OsString::from(value)))
    })?;
    let value = Some(value).filter(|value| !value.is_empty());
    words.splice(at..=at, instead.into_iter().chain(value));
    Some(())
}

/// Where the command is, after the program's name and the global options.
pub(crate) fn command(words: &[OsString]) -> Option<usize> {
    command_in(words.get(1..)?).map(|at| at + 1)
}

/// Whether there is no command, and nothing else that the parser has to judge.
pub(crate) fn is_alone(words: &[OsString]) -> bool {
    // With a word behind them, global options are followed by a command; any other option is not.
    command(words).is_none() && {
        let with_word = [words, &["word".into()]].concat();
        command(&with_word) == Some(words.len())
    }
}

/// The first word that is neither an option nor the value of a global option. An option that is not
/// global ends the search: it belongs to a command that was left out.
fn command_in(words: &[OsString]) -> Option<usize> {
    const FLAGS: [&str; 5] = ["--json", "-q", "--quiet", "--no-color", "--no-daemon"];
    let mut at = 0;
    loop {
        match words.get(at)?.to_str() {
            Some(word) if WITH_VALUE.contains(&word) => at += 2,
            Some(word) if FLAGS.contains(&word) => at += 1,
            Some(word) if word.starts_with("--store=") || word.starts_with("--as=") => at += 1,
            Some(word) if word.starts_with("-C") => at += 1,
            Some(word) if word.starts_with('-') => return None,
            _ => return Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(words: &str) -> String {
        let words = typed(words.split(' ').map(OsString::from));
        let words = words.into_iter().map(|word| word.into_string().unwrap());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn only_spellings_of_the_bilu_tool_are_translated() {
        for (typed, expected) in [
            ("t board --list", "t board list"),
            (
                "t -C x board --json --list -f status -fv todo",
                "t -C x board list --json -f status --filter-value todo",
            ),
            (
                "t board --rebuild-index --write",
                "t board rebuild-index --write",
            ),
            ("t board --validate --list", "t board validate --list"),
            ("t board list --list", "t board list --list"),
            ("t board", "t board"),
            (
                "t --as board run board -- x --list",
                "t --as board run board -- x --list",
            ),
            ("t run k -- board --list", "t run k -- board --list"),
            ("t", "t"),
        ] {
            assert_eq!(translated(typed), expected);
        }
    }

    #[test]
    fn the_spellings_of_earlier_versions_are_translated() {
        for (typed, expected) in [
            ("t reserve --release a b --as me", "t unreserve a b --as me"),
            ("t --as me reserve x --release", "t --as me unreserve x"),
            ("t reserve x -- --release", "t reserve x -- --release"),
            ("t locks release k --force", "t force k"),
            ("t locks --json release k --force", "t force --json k"),
            ("t locks release k", "t locks release k"),
            ("t sync --restore=3f --yes", "t sync restore 3f --yes"),
            (
                "t run k -- reserve --release",
                "t run k -- reserve --release",
            ),
        ] {
            assert_eq!(translated(typed), expected);
        }
    }

    #[test]
    fn only_global_options_leave_tenure_alone() {
        for (typed, expected) in [
            ("t", true),
            ("t --json -C /x --as=me", true),
            ("t -h", false),
            ("t --version", false),
            ("t --frobnicate", false),
            ("t -C", false),
            ("t locks", false),
        ] {
            let words: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
            assert_eq!(is_alone(&words), expected, "{typed}");
        }
    }

    #[test]
    fn locks_tasks_and_sections_list_when_nothing_else_is_said() {
        for (typed, expected) in [
            ("t locks", "t locks list"),
            ("t --json tasks", "t --json tasks list"),
            ("t tasks --ready", "t tasks list --ready"),
            ("t sections --as=me -C/x", "t sections list --as=me -C/x"),
            ("t tasks --as me next", "t tasks --as me next"),
            ("t tasks --help", "t tasks --help"),
            ("t locks show build", "t locks show build"),
            ("t run locks -- x", "t run locks -- x"),
        ] {
            assert_eq!(translated(typed), expected);
        }
    }
}
