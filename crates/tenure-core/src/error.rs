//! What is wrong, where, and the way out: [`StoreError`] (G11).

use std::fmt;

/// What sort of failure it is: the caller's next step depends on it, its words do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Somebody else holds the store itself for too long. Trying again may help.
    Contended,
    /// No space left.
    Full,
    /// It may not be written.
    ReadOnly,
    /// Something else is in its place.
    NotAStore,
    /// A newer tenure wrote it.
    TooNew,
    /// It can't be read.
    Damaged,
    /// What the key names does not exist.
    NotFound,
    /// The store can't do this.
    Unsupported,
    /// The write may or may not have happened.
    OutcomeUnknown,
    /// Anything else that the system reports.
    Io,
}

/// A failure of a store. Never used for contention, which is an outcome.
#[derive(Debug)]
pub struct StoreError {
    /// The sort.
    pub kind: ErrorKind,
    /// What is wrong, and where.
    pub what: String,
    /// How to fix it.
    pub fix: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl StoreError {
    /// A failure of this sort.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            fix: None,
            source: None,
        }
    }

    /// The same with the way out.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// The same with what caused it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        if let Some(fix) = &self.fix {
            write!(f, ": {fix}")?;
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
