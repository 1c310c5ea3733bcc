//! Exit codes, in one place.

/// What a command ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done.
    Done,
    /// 1: something failed while running.
    Runtime,
    /// 2: what was typed or configured makes no sense.
    Usage,
    /// 3: there is no project here.
    NotInitialised,
    /// 4: no such thing.
    NotFound,
    /// 5: not the holder, or force is needed.
    NotAllowed,
    /// 6: busy, or the wait ran out.
    Locked,
    /// 7: the lease was lost while it was held.
    Lost,
    /// 8: another event is the newest than was expected.
    Mismatch,
    /// Any other: the command's own, or 128 and a signal.
    Other(i32),
}

impl Exit {
    /// The number.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Done => 0,
            Self::Runtime => 1,
            Self::Usage => 2,
            Self::NotInitialised => 3,
            Self::NotFound => 4,
            Self::NotAllowed => 5,
            Self::Locked => 6,
            Self::Lost => 7,
            Self::Mismatch => 8,
            Self::Other(code) => code,
        }
    }

    /// What a shell says of a process that a signal ended.
    pub(crate) fn signal(signal: i32) -> Self {
        Self::Other(128 + signal)
    }
}
