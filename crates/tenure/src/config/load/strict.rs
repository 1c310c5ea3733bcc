//! Whether `guard.strict` is on although the settings can't be read: [`Config::is_strict`].

use std::path::Path;

use super::super::value::Value;
use super::super::{Config, paths};
use super::{file, yaml};

/// The setting, and its environment variable.
const KEY: &str = "guard.strict";
const VARIABLE: &str = "TENURE_GUARD_STRICT";

impl Config {
    /// Whether `guard.strict` is on. If a file can't be understood, it is where the text of the file turns it on, and where
    /// it `was_on` when the guard's hooks were installed: who asked that nothing passes unchecked did not mean "until there
    /// is a mistake in this file".
    pub fn is_strict(
        home: Option<&Path>,
        project: Option<&Path>,
        was_on: impl Fn() -> bool,
    ) -> bool {
        if let Ok(config) = Self::load(home, project) {
            return config.guard.strict;
        }
        let mut strict = false;
        for path in paths(home, project) {
            if let Ok(made) = file::read(&path, yaml::assignments) {
                let mut made = made.iter().rev();
                if let Some(last) = made.find(|it| it.definition.key == KEY) {
                    strict = is_on(last.text.trim());
                }
            } else {
                // Only a regular file is read: a pipe would block.
                let text = file::bytes(&path).ok().flatten();
                strict |= text.is_some_and(|text| says_strict(&text)) || was_on();
            }
        }
        let given = std::env::var(VARIABLE).ok();
        given
            .and_then(|text| bool::read(text.trim(), &()).ok())
            .unwrap_or(strict)
    }
}

fn is_on(text: &str) -> bool {
    bool::read(text, &()) == Ok(true)
}

/// Whether a text says `strict: true` in any style of YAML or JSON, outside of comments.
fn says_strict(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let lines = text.lines().map(|line| {
        let is_comment = |(at, _): &(usize, &str)| {
            let before = line.get(..*at).unwrap_or_default();
            before.is_empty() || before.ends_with(char::is_whitespace)
        };
        let comment = line.match_indices('#').find(is_comment);
        comment.map_or(line, |(at, _)| line.get(..at).unwrap_or_default())
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let inner = |text: &str| -> String {
        let is_blank = |c: char| c.is_whitespace() || c == '"' || c == '\'';
        text.trim_start_matches(is_blank).to_owned()
    };
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices("strict").any(|(at, key)| {
        let (before, after) = text.split_at_checked(at).unwrap_or_default();
        let after = inner(after.strip_prefix(key).unwrap_or_default());
        let value = after.strip_prefix(':').map(inner).unwrap_or_default();
        let value = value.split(|c| !is_word(c)).next().unwrap_or_default();
        !before.ends_with(is_word) && is_on(value)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_mistake_in_the_settings_does_not_switch_strictness_off() {
        let folder = tempfile::tempdir().unwrap();
        let is_strict = |text: &[u8]| {
            fs::write(folder.path().join("config.yaml"), text).unwrap();
            Config::is_strict(None, Some(folder.path()), || false)
        };
        assert!(is_strict(b"guard:\n  strict: true\n"));
        for mistake in ["queue:\n  x: [", "guard: {{", "sync:\n  enabled: perhaps\n"] {
            for (on, line) in [(true, "strict: true # ours"), (false, "strict: false")] {
                let text = format!("guard:\n  {line}\n{mistake}");
                assert_eq!(is_strict(text.as_bytes()), on, "{text}");
            }
            assert!(!is_strict(mistake.as_bytes()));
        }
        assert!(is_strict(b"guard:\n  strict: true\nlocking:\n  x: \xff\n"));
        for text in [
            "guard: {strict: true",
            "{\"guard\": {\"strict\": true",
            "{\"guard\":\n{\"strict\":\n\"true\"}, [",
            "guard:\n  strict: \"true\"\nx: [",
            "'strict' : 'true'\nx: [",
            "guard.strict: true # ours\nx: [",
            "guard:\n  strict: Yes\nx: [",
        ] {
            assert!(is_strict(text.as_bytes()), "{text}");
        }
        for text in [
            "guard: {strict: false",
            "# strict: true\nx: [",
            "guard: {strict: truest",
            "unstrict: true\nx: [",
            "strict: [\ntrue",
        ] {
            assert!(!is_strict(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_was_installed_counts_if_the_settings_can_t_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("config.yaml");
        let is_strict = |was_on: bool| Config::is_strict(None, Some(folder.path()), || was_on);
        fs::create_dir(&place).unwrap();
        assert!(is_strict(true) && !is_strict(false));
        fs::remove_dir(&place).unwrap();
        std::os::unix::fs::symlink(&place, &place).unwrap();
        assert!(is_strict(true) && !is_strict(false));
        fs::remove_file(&place).unwrap();
        fs::write(&place, "guard: [").unwrap();
        assert!(is_strict(true) && !is_strict(false));
        fs::write(&place, "guard:\n  strict: false\n").unwrap();
        assert!(!is_strict(true));
    }
}
