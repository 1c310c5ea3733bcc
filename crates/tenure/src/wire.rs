//! What programs read: the types behind `--json`.
//!
//! The command prints them, and an HTTP API, an MCP server or a terminal view can use the same ones.
//!
//! 1. Field names are camelCase. Words that stand for a value are `snake_case`, error codes are
//!    `SCREAMING_SNAKE_CASE`.
//! 2. Times are RFC 3339 in UTC with milliseconds and a `Z`.
//! 3. A field without a value is `null`, not left out. A lease without an end has `"expiresAt": null`. Two
//!    fields of the ledger are older than this rule and are left out: see [`LedgerEventJson::flaw`] and
//!    [`LedgerLockBrokenJson::lock`].
//! 4. A key may have several leases, so they are always a list.
//!
//! Every type can be read back, so that a client is written against the same definitions. The words
//! that people read are not here: see the `tenure` command.

mod allow;
mod board;
mod code;
mod config;
mod daemon;
mod foreign;
mod guard;
mod kept;
mod lease;
mod ledger;
mod project;
mod reservation;
mod store;
mod sync;
mod task;
#[cfg(test)]
mod tests;
mod time;
mod view;

pub use self::allow::{AllowableJson, AllowablesJson};
pub use self::board::{
    BoardIndexJson, BoardJson, BoardMigrationJson, BoardProblemJson, BoardSetJson, BoardTaskJson,
    BoardValidationJson, MigratedFileJson,
};
pub use self::code::ErrorCode;
pub use self::config::{ConfigPathJson, ConfigPathsJson, SettingJson, SettingsJson};
pub use self::daemon::{
    CycleJson, DaemonEndJson, DaemonEndedJson, DaemonJson, DaemonLogJson, DaemonNotRunningJson,
    DaemonRunningJson, DaemonStartedJson, DaemonStatusJson, DaemonStillRunningJson,
    DaemonStoppedJson, DaemonUnidentifiedJson, LogLineJson, SkippedJson,
};
pub use self::foreign::{BoardBusyJson, ExclusiveAcquiredJson, ExclusiveReleasedJson};
pub use self::guard::{
    GuardBypassJson, GuardHookJson, GuardJson, GuardProblemJson, GuardRefusedJson,
};
pub use self::kept::{KeptFileJson, KeptFilesJson, RestoredFileJson};
pub use self::lease::{
    AcquiredJson, AskedJson, BusyJson, CleanupJson, DeadlockJson, EventJson, EvidenceJson,
    FencedJson, ForcedJson, GrantJson, HistoryJson, LeaseJson, LeasesJson, LockJson, LocksJson,
    LostJson, NotHolderJson, ReapedJson, ReleasedJson, ReleasedSeveralJson, RenewedJson,
    RequestJson, VerdictWord, WaiterJson,
};
pub use self::ledger::{
    AppendedJson, LedgerEventJson, LedgerFindingJson, LedgerJson, LedgerLockBrokenJson,
    LedgerLockJson, LedgerVerifiedJson, MalformedClaimJson, NodeClaimJson, NodeClaimedJson,
    NodeClaimsJson, NodeReapedJson, NodeRefreshedJson, NodeReleasedJson, NodesReapedJson,
    SequenceMismatchJson,
};
pub use self::project::{CompletionsJson, ManualJson, ProjectJson, SetupJson, ShellLibraryJson};
pub use self::reservation::{
    CheckJson, CheckedPathJson, ExtendedJson, ReservationJson, ReservationsJson, UnreservedJson,
};
pub use self::store::{StoreCheckJson, StoreCopyJson, StoreMemberJson, StoreRepairJson};
pub use self::sync::{
    SyncChangeJson, SyncCommitJson, SyncJson, SyncLogJson, SyncRemoteJson, SyncRestoreJson,
    SyncStatusJson,
};
pub use self::task::{
    ChangedTaskJson, DeletedSectionJson, DeletedTasksJson, LinesJson, ListedSectionJson, PastJson,
    SectionsJson, ShownTaskJson, StartedTaskJson, TaskBlockedJson, TaskEndedJson, TaskInputJson,
    TaskJson, TaskLockedJson, TaskLostJson, TasksJson, WorkJson,
};
pub use self::time::TimeJson;
pub use self::view::{
    AllLocksJson, Connection, DoctorJson, FindingJson, FixedJson, ForeignLockJson,
    ForeignProcessJson, SpanJson, StatusJson, StoreCountJson, StoreLocksJson, StoreVerifiedJson,
    TimelineJson, VerifiedJson, WaitSpanJson, WatchLineJson, WhyJson, WhyLinkJson,
};

use serde::{Deserialize, Serialize};

/// What a command prints with `--json`: `data` if it succeeded, `error` if it failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Envelope<T, D> {
    /// Whether the command succeeded.
    pub success: bool,
    /// The command.
    pub command: String,
    /// The subcommand, if the command has any.
    pub subcommand: Option<String>,
    /// What the command found or did.
    pub data: Option<T>,
    /// Why it failed.
    pub error: Option<ErrorJson<D>>,
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorJson<D> {
    /// For programs.
    pub code: ErrorCode,
    /// For people.
    pub message: String,
    /// What the code is about. The type depends on the code.
    pub details: D,
}
