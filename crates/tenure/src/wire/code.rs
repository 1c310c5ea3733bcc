//! Why a command failed, for programs: [`ErrorCode`].

use serde::{Deserialize, Serialize};

/// The `code` of an error. Programs match on it; the message beside it is for people and may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum ErrorCode {
    /// A shortened name matches more than one thing.
    Ambiguous,
    /// The board's `config.json` cannot be used.
    BadBoardConfig,
    /// A setting has a value that is not allowed.
    BadConfig,
    /// An event that may not be appended to a ledger.
    BadEvent,
    /// The board's index cannot be read.
    BadIndex,
    /// A line of an import file is wrong.
    BadLine,
    /// A key or a holder has a name that is not allowed.
    BadName,
    /// A ledger has no node with such a name.
    BadNode,
    /// A store URL that names no store.
    BadStore,
    /// A title, description or reason that is not allowed.
    BadText,
    /// A time to live outside the limits.
    BadTtl,
    /// A board with problems.
    BoardInvalid,
    /// A dependency that would make a task wait for itself.
    CircularDependency,
    /// The command after `--` exists but cannot be executed.
    CommandNotExecutable,
    /// The command after `--` does not exist.
    CommandNotFound,
    /// The daemon started and ended again.
    DaemonEnded,
    /// The daemon could not be started.
    DaemonFailed,
    /// A daemon runs already.
    DaemonRunning,
    /// The daemon did not stop in time.
    DaemonStillRunning,
    /// It cannot be determined which process is the daemon.
    DaemonUnknown,
    /// A wait that would never end.
    Deadlock,
    /// Another program holds the exclusive lock.
    ExclusiveLocked,
    /// The process to tie a lease to belongs to another user.
    HiddenProcess,
    /// A history shows holders that overlapped, or tokens that did not grow.
    HistoryNotSound,
    /// A signal ended the command.
    Interrupted,
    /// A file operation or another call of the operating system failed.
    Io,
    /// The lease ended while its holder still relied on it.
    LeaseLost,
    /// Another program holds the ledger's lock.
    LedgerLocked,
    /// A ledger with problems.
    LedgerNotSound,
    /// Another program holds the board's lock.
    LockBusy,
    /// A lock file that cannot be parsed.
    LockMalformed,
    /// No lock has this name.
    LockNotFound,
    /// Another holder has the key.
    Locked,
    /// The board has no index.
    NoIndex,
    /// There is no log.
    NoLog,
    /// There is no board here.
    NoBoard,
    /// The process to tie a lease to does not exist.
    NoProcess,
    /// A task file lacks the section to change.
    NoSection,
    /// No task is left to do.
    NoTaskLeft,
    /// Another owner has claimed the node.
    NodeLocked,
    /// The file or database exists but is no store.
    NotAStore,
    /// No such thing.
    NotFound,
    /// There is no project here.
    NotInitialised,
    /// The process runs in another container.
    OtherContainer,
    /// The key is held or waited for in another mode: with another number of slots, for example.
    OtherMode,
    /// A write whose outcome is unknown.
    OutcomeUnknown,
    /// Only the holder may do this, or force is needed.
    PermissionDenied,
    /// Another runner holds the section.
    SectionLocked,
    /// A section with this name exists already.
    SectionExists,
    /// The section has tasks.
    SectionNotEmpty,
    /// No such section.
    SectionNotFound,
    /// The ledger's newest event is not the expected one.
    SequenceMismatch,
    /// Too many processes write to the store at once.
    StoreContended,
    /// The store is damaged.
    StoreDamaged,
    /// No space is left for the store.
    StoreFull,
    /// The store may not be written.
    StoreReadOnly,
    /// A newer version of tenure made the store.
    StoreTooNew,
    /// The tasks could not be synced.
    SyncFailed,
    /// The sync was put off.
    SyncPutOff,
    /// The task waits for other tasks.
    TaskBlocked,
    /// Another runner finished the task.
    TaskDone,
    /// Another runner holds the task.
    TaskLocked,
    /// No such task.
    TaskNotFound,
    /// Every task that is left waits for other tasks.
    TasksBlocked,
    /// The store has other values of the same tasks.
    TasksDiffer,
    /// At least one task failed.
    TasksFailed,
    /// Every task that is left is left to other runners.
    TasksLeft,
    /// Every task that is left failed before and is retried later.
    TasksLater,
    /// Other runners hold every task that is ready.
    TasksLocked,
    /// A value that the board does not know.
    UnknownValue,
    /// The store cannot do this.
    Unsupported,
    /// The command line makes no sense.
    Usage,
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn a_code_is_written_in_upper_case_with_underscores() {
        let text = |code: ErrorCode| serde_json::to_string(&code).unwrap();
        assert_eq!(text(ErrorCode::Io), r#""IO""#);
        assert_eq!(text(ErrorCode::NotAStore), r#""NOT_A_STORE""#);
        assert_eq!(text(ErrorCode::LeaseLost), r#""LEASE_LOST""#);
    }
}
