//! Exit codes: [`Exit`], and the one that each [`ErrorCode`] ends with.

use tenure::wire::ErrorCode;

/// What a command ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: done.
    Done,
    /// 1: something failed at run time.
    Runtime,
    /// 2: the command line or a setting is wrong.
    Usage,
    /// 3: there is no project here.
    NotInitialised,
    /// 4: no such thing.
    NotFound,
    /// 5: the caller is not the holder, or force is needed.
    NotAllowed,
    /// 6: busy, or the wait timed out.
    Locked,
    /// 7: the lease was lost while it was held.
    Lost,
    /// 8: the newest event is not the expected one.
    Mismatch,
    /// Any other: the exit code of the command that tenure ran, or 128 plus a signal's number.
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

    /// The code that a shell reports for a process ended by this signal.
    pub(crate) fn signal(signal: i32) -> Self {
        Self::Other(128 + signal)
    }
}

impl From<ErrorCode> for Exit {
    fn from(code: ErrorCode) -> Self {
        use ErrorCode as E;
        match code {
            E::Ambiguous
            | E::BadConfig
            | E::BadEvent
            | E::BadLine
            | E::BadName
            | E::BadNode
            | E::BadStore
            | E::BadText
            | E::BadTtl
            | E::CircularDependency
            | E::UnknownValue
            | E::OtherMode
            | E::Unsupported
            | E::Usage => Self::Usage,
            E::NoBoard | E::NotInitialised => Self::NotInitialised,
            E::LockNotFound
            | E::NoLog
            | E::NoProcess
            | E::NoTaskLeft
            | E::NotFound
            | E::SectionNotFound
            | E::TaskDone
            | E::TaskNotFound
            | E::TasksBlocked
            | E::TasksLeft => Self::NotFound,
            E::HiddenProcess
            | E::OtherContainer
            | E::PermissionDenied
            | E::SectionNotEmpty
            | E::TaskBlocked => Self::NotAllowed,
            E::DaemonRunning
            | E::Deadlock
            | E::ExclusiveLocked
            | E::LedgerLocked
            | E::Locked
            | E::NodeLocked
            | E::SectionLocked
            | E::TaskLocked
            | E::TasksLater
            | E::TasksLocked => Self::Locked,
            E::LeaseLost => Self::Lost,
            E::SequenceMismatch => Self::Mismatch,
            E::CommandNotExecutable => Self::Other(126),
            E::CommandNotFound => Self::Other(127),
            // LOCK_BUSY and BOARD_INVALID: the board's protocol prescribes 1.
            _ => Self::Runtime,
        }
    }
}
