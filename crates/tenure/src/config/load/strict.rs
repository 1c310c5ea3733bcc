//! Whether `guard.strict` is on although the settings can't be read: [`Config::is_strict`].

use std::fs;
use std::path::Path;

use super::super::{Config, paths};
use super::file;

/// The setting, and its environment variable.
const KEY: &str = "guard.strict";
const VARIABLE: &str = "TENURE_GUARD_STRICT";

impl Config {
    /// Whether `guard.strict` is on. If a file can't be understood, a line `strict: true` in it counts: who asked that
    /// nothing passes unchecked did not mean "until there is a mistake in this file".
    pub fn is_strict(home: Option<&Path>, project: Option<&Path>) -> bool {
        if let Ok(config) = Self::load(home, project) {
            return config.guard.strict;
        }
        let mut strict = false;
        for path in paths(home, project) {
            match file::read(&path) {
                Ok(made) => {
                    let mut made = made.iter().rev();
                    if let Some(last) = made.find(|it| it.definition.key == KEY) {
                        strict = is_on(&last.text);
                    }
                }
                Err(_) => strict |= fs::read(&path).is_ok_and(|text| says_strict(&text)),
            }
        }
        std::env::var(VARIABLE).map_or(strict, |text| is_on(&text))
    }
}

fn is_on(text: &str) -> bool {
    text.trim() == "true"
}

fn says_strict(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines().map(str::trim);
    lines.any(|line| {
        let value = line
            .strip_prefix("strict:")
            .or_else(|| line.strip_prefix("guard.strict:"));
        value.is_some_and(|value| is_on(value.split('#').next().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_in_the_settings_does_not_switch_strictness_off() {
        let folder = tempfile::tempdir().unwrap();
        let is_strict = |text: &[u8]| {
            fs::write(folder.path().join("config.yaml"), text).unwrap();
            Config::is_strict(None, Some(folder.path()))
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
    }
}
