//! What becomes of something that a setting is about: [`Reaction`].

use super::value::Value;

/// What becomes of something that may harm others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reaction {
    /// It is refused.
    #[default]
    Refuse,
    /// It is done, and the one who does it is told.
    Warn,
    /// Nothing is said.
    Off,
}

impl Value for Reaction {
    type Accepted = ();

    fn read(text: &str, (): &()) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "refuse" => Ok(Self::Refuse),
            "warn" => Ok(Self::Warn),
            // A file of YAML may mean it.
            "off" | "false" => Ok(Self::Off),
            _ => Err(format!("{text:?} can't be used")),
        }
    }

    fn accepted((): &()) -> String {
        "refuse, warn or off".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn a_reaction_is_one_of_three_words() {
        for (text, reaction) in [
            ("refuse", Reaction::Refuse),
            ("Warn", Reaction::Warn),
            ("off", Reaction::Off),
            ("false", Reaction::Off),
        ] {
            assert_eq!(Reaction::read(text, &()), Ok(reaction), "{text}");
        }
        for text in ["", "true", "on", "refuse, warn"] {
            assert!(Reaction::read(text, &()).is_err(), "{text}");
        }
        assert_eq!(Config::default().agents.destructive, Reaction::Refuse);
    }
}
