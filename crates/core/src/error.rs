//! [`StoreError`]: what is wrong, where, and how to fix it (G11).

use std::error::Error;
use std::fmt;

use crate::key::Key;
use crate::mode::Mode;

/// The kind of a failure. The caller decides by the kind what to do next, never by the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another process has kept the store itself locked for too long. A retry may succeed.
    Contended,
    /// No space is left.
    Full,
    /// The store is read-only for this process.
    ReadOnly,
    /// Something that is not a store is at the store's path.
    NotAStore,
    /// A newer version of tenure wrote the store.
    TooNew,
    /// The store cannot be read.
    Damaged,
    /// The store was removed while it was in use, or another one is in its place. What was held in it is lost.
    Gone,
    /// The object that the key names does not exist.
    NotFound,
    /// The store does not support the operation.
    Unsupported,
    /// The key is held or waited for in a mode that contradicts the claim's.
    OtherMode,
    /// The write may or may not have happened.
    OutcomeUnknown,
    /// The servers of the store can't be reached, or do not answer. Nothing has happened. A retry may succeed.
    Unreachable,
    /// Any other failure that the operating system reports.
    Io,
}

/// A failure of a store. Contention is never an error: it is an outcome.
///
/// The message contains the cause. [`Error::source`] therefore continues below the cause, so that
/// a program that prints the whole chain shows every cause once.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoreError {
    /// The kind.
    pub kind: ErrorKind,
    /// What is wrong, and where.
    pub what: String,
    /// How to fix it.
    pub fix: Option<String>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// Creates an error without a fix and without a cause.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            fix: None,
            cause: None,
        }
    }

    /// A verb that writes was refused, because the store at `place` was opened read-only.
    pub fn opened_read_only(place: impl fmt::Display) -> Self {
        let what = format!("{place} was opened read-only: nothing was changed");
        Self::new(ErrorKind::ReadOnly, what).fix("open it for writing to change it")
    }

    /// A claim on this key was refused, because the store has one holder for each key.
    pub fn one_holder_only(key: &Key, mode: &Mode) -> Self {
        let what = format!(
            "{key} can have only one holder in this store, so it can't be {}",
            mode.shown()
        );
        Self::new(ErrorKind::Unsupported, what)
            .fix("hold it exclusively, or use a store of tenure's own")
    }

    /// A claim on several keys was refused, because the store grants this key only by itself.
    pub fn one_key_at_a_time(key: &Key) -> Self {
        let what = format!("{key} can't be held together with other keys in one step");
        Self::new(ErrorKind::Unsupported, what).fix("ask for it alone, in a command of its own")
    }

    /// A claim on this key was refused, because the key is held or waited for in a mode that contradicts it.
    pub fn other_mode(key: &Key, asked: &Mode, found: &Mode) -> Self {
        let (asked, found) = (asked.shown(), found.shown());
        let what = format!("{key} is held or waited for as {found}, so it can't be {asked}");
        Self::new(ErrorKind::OtherMode, what)
            .fix("ask for it in the same way, or when no process holds it or waits for it")
    }

    /// A claim for paths was refused, because its patterns take too long to compare with those of others.
    pub fn too_complex(mode: &Mode) -> Self {
        let many = mode.paths().map_or(0, |paths| paths.patterns().len());
        let what = format!(
            "it would take too long to compare these patterns ({many}) with those that are reserved or waited for: nothing was reserved"
        );
        Self::new(ErrorKind::Unsupported, what)
            .fix("reserve fewer patterns, or some with fewer * and a longer beginning without wildcards, such as src/api/**")
    }

    /// Adds how to fix it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Adds the error that caused it.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The error that caused it, for example to look at its type.
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(cause) = &self.cause {
            write!(f, " ({cause})")?;
        }
        if let Some(fix) = &self.fix {
            write!(f, ": {fix}")?;
        }
        Ok(())
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_ref().and_then(|cause| cause.source())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|layer| layer as _)
        }
    }

    /// The whole chain, as most programs print it.
    fn chain(error: &(dyn Error + 'static)) -> Vec<String> {
        let mut messages = vec![error.to_string()];
        let mut next = error.source();
        while let Some(error) = next {
            messages.push(error.to_string());
            next = error.source();
        }
        messages
    }

    #[test]
    fn a_chain_shows_every_cause_once() {
        let disk = Layer(
            "input/output error",
            Some(Box::new(Layer("bad sector", None))),
        );
        let error = StoreError::new(ErrorKind::Io, "a.db cannot be read")
            .because(disk)
            .fix("check the disk");
        assert_eq!(
            chain(&error),
            [
                "a.db cannot be read (input/output error): check the disk",
                "bad sector"
            ]
        );
        assert_eq!(
            error.cause().map(ToString::to_string).as_deref(),
            Some("input/output error")
        );
    }

    #[test]
    fn an_error_without_a_cause_has_no_source() {
        let error = StoreError::new(ErrorKind::Full, "no space left for a.db");
        assert_eq!(chain(&error), ["no space left for a.db"]);
        assert!(error.cause().is_none());
    }
}
