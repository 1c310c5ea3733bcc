//! What programs read: the types behind `--json`.
//!
//! 1. Field names are camelCase; error codes are `SCREAMING_SNAKE_CASE`.
//! 2. Times are RFC 3339 in UTC with a `Z`.
//! 3. A field without a value is `null`; it is never left out.
//!
//! This module does not print anything: see the `tenure` command for the words that people read.

mod code;

pub use code::ErrorCode;
