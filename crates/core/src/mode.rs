//! How a key is held: [`Mode`].

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::path_pattern::PathPattern;
use crate::path_set::PathSet;
use crate::places::TOP;

/// How a key is held.
///
/// ```
/// use tenure_core::Mode;
///
/// let four: Mode = "slots:4".parse().unwrap();
/// assert!(four.admits(&four));
/// assert!(!four.admits(&Mode::Shared));
/// assert_eq!(four.to_string(), "slots:4");
///
/// let api: Mode = "paths:src/api/**".parse().unwrap();
/// assert!(api.admits(&"paths:docs README.md".parse().unwrap()));
/// assert!(!api.admits(&"shared-paths:src".parse().unwrap()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub enum Mode {
    /// By one holder, and by no other in any mode.
    #[default]
    Exclusive,
    /// By any number of holders.
    Shared,
    /// By at most this many holders, each of which has a slot of its own.
    Slots(NonZeroU32),
    /// By any number of holders that have reserved paths without a conflict.
    Paths(Arc<PathSet>),
}

impl Mode {
    /// Whether one holder in this mode and one in `other` can hold a key together, if there is a slot for
    /// each of them.
    pub fn admits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Paths(one), Self::Paths(two)) => one.conflict(two).is_none(),
            _ => self == other && !self.is_exclusive(),
        }
    }

    /// Whether a holder can have the key in this mode and in `other` at the same time, as two leases: other paths.
    pub fn is_additional(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Paths(one), Self::Paths(two)) => !one.same_paths(two),
            _ => false,
        }
    }

    /// How many holders there may be.
    pub fn room(&self) -> usize {
        match self {
            Self::Exclusive => 1,
            Self::Shared | Self::Paths(_) => usize::MAX,
            Self::Slots(slots) => usize::try_from(slots.get()).unwrap_or(usize::MAX),
        }
    }

    /// Whether there is only one holder.
    pub fn is_exclusive(&self) -> bool {
        *self == Self::Exclusive
    }

    /// The paths, if there are some.
    pub fn paths(&self) -> Option<&PathSet> {
        match self {
            Self::Paths(paths) => Some(paths),
            _ => None,
        }
    }

    /// The places of its patterns, some perhaps twice; without paths, the top of the work tree.
    pub fn places(&self) -> impl Iterator<Item = &str> {
        let patterns = self.paths().map(PathSet::patterns);
        let everywhere = patterns.is_none().then_some(TOP);
        let patterns = patterns.into_iter().flatten();
        patterns.map(PathPattern::place).chain(everywhere)
    }

    /// The mode as it is shown: without telling which paths are known to be files.
    #[must_use]
    pub fn shown(&self) -> Self {
        match self {
            Self::Paths(paths) => paths.shown().into(),
            other => other.clone(),
        }
    }

    /// Whether holders in the two modes could neither hold a key together nor wait for each other sensibly: the
    /// number of slots belongs to the key while it is held or waited for.
    pub fn contradicts(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exclusive, _) | (_, Self::Exclusive) | (Self::Paths(_), Self::Paths(_)) => false,
            _ => self != other,
        }
    }
}

impl From<PathSet> for Mode {
    fn from(paths: PathSet) -> Self {
        Self::Paths(Arc::new(paths))
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Slots(slots) => write!(f, "slots:{slots}"),
            Self::Paths(paths) if paths.is_shared() => {
                write!(f, "{SHARED_PATHS}{}", paths.stored())
            }
            Self::Paths(paths) => write!(f, "{PATHS}{}", paths.stored()),
        }
    }
}

const PATHS: &str = "paths:";
const SHARED_PATHS: &str = "shared-paths:";

/// A text that names no [`Mode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no mode: exclusive, shared, slots:N, paths:PATTERN or shared-paths:PATTERN")]
pub struct BadMode(String);

impl FromStr for Mode {
    type Err = BadMode;

    fn from_str(text: &str) -> Result<Self, BadMode> {
        let bad = || BadMode(text.to_owned());
        if let Some(paths) = text.strip_prefix(PATHS) {
            return PathSet::from_stored(paths).map(Self::from).ok_or_else(bad);
        }
        if let Some(paths) = text.strip_prefix(SHARED_PATHS) {
            let paths = PathSet::from_stored(paths).ok_or_else(bad)?;
            return Ok(paths.shared().into());
        }
        match text {
            "exclusive" => Ok(Self::Exclusive),
            "shared" => Ok(Self::Shared),
            _ => {
                let slots = text.strip_prefix("slots:").ok_or_else(bad)?;
                slots.parse().map(Self::Slots).map_err(|_| bad())
            }
        }
    }
}

impl TryFrom<String> for Mode {
    type Error = BadMode;

    fn try_from(text: String) -> Result<Self, BadMode> {
        text.parse()
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        mode.to_string()
    }
}
