//! Times: [`TimeJson`].

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

/// A time, written in RFC 3339 in UTC with milliseconds: `2026-11-16T05:14:00.000Z`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, schemars::JsonSchema,
)]
#[schemars(with = "String", extend("format" = "date-time"))]
#[serde(transparent)]
pub struct TimeJson(pub Timestamp);

impl From<Timestamp> for TimeJson {
    fn from(at: Timestamp) -> Self {
        Self(at)
    }
}

impl fmt::Display for TimeJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl Serialize for TimeJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
