//! Every lock in a project: what `tenure locks list --all`, `doctor`, `status`, `why`, `timeline` and
//! `watch` print.

use serde::{Deserialize, Serialize};
use tenure_core::{EventKind, HolderId, Key, Token};
use tenure_tasks::Status;

use super::{
    EventJson, GrantJson, LeaseJson, LockJson, ReapedJson, TimeJson, VerdictWord, WaiterJson,
};

/// Every lock in a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllLocksJson {
    /// The stores of the project, its own first.
    pub stores: Vec<StoreLocksJson>,
    /// The locks of other tools.
    pub foreign: Vec<ForeignLockJson>,
    /// What was too large to be looked at as a whole, or could not be looked at, for people.
    pub left_out: Vec<String>,
}

/// The locks of one store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreLocksJson {
    /// The store, as `--store` takes it.
    pub store: String,
    /// What it is to the project: `own`, `exclusive_lock`, `board_lock`, `ledger`, `other_program`, or `chosen` if
    /// the caller named it.
    pub role: String,
    /// The keys that are held or waited for.
    pub locks: Vec<LockJson>,
    /// Why it can't be read, if it can't.
    pub error: Option<String>,
}

/// A lock of another tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForeignLockJson {
    /// The tool: `git`, `cargo`, or `pid file`.
    pub tool: String,
    /// The lock file.
    pub path: String,
    /// When it was last changed.
    pub since: Option<TimeJson>,
    /// What is known of its holder.
    pub verdict: VerdictWord,
    /// The same, for people.
    pub why: String,
    /// The processes that have it, or may have it.
    pub processes: Vec<ForeignProcessJson>,
}

/// A process and a lock of another tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForeignProcessJson {
    /// The process.
    pub pid: u32,
    /// Its command line; `null` if it has exited.
    pub command: Option<String>,
    /// What connects it with the lock.
    pub how: Connection,
}

/// What connects a process with a lock of another tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    /// It has the file open.
    Open,
    /// It has a kernel lock on the file.
    Locked,
    /// The file names it.
    Named,
    /// It is a process of that tool, works there, and may have made the file.
    Likely,
}

/// What is wrong in a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoctorJson {
    /// Whether there is no problem, after what was fixed.
    pub healthy: bool,
    /// Whether what can be fixed safely was only shown.
    pub dry_run: bool,
    /// What should be put right.
    pub problems: Vec<FindingJson>,
    /// What is worth knowing.
    pub notes: Vec<FindingJson>,
    /// What was done; empty without `--fix`.
    pub fixed: Vec<FixedJson>,
}

/// Something that the doctor found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FindingJson {
    /// What it is, for programs.
    pub code: String,
    /// The store that it is in.
    pub store: Option<String>,
    /// The key that it is about.
    pub key: Option<String>,
    /// What it is, for people.
    pub message: String,
    /// What was seen.
    pub evidence: Vec<String>,
    /// What it means.
    pub meaning: String,
    /// The command that puts it right, or words if no command does.
    pub fix: Option<String>,
    /// Whether `tenure doctor --fix` does it.
    pub safe: bool,
}

/// What `tenure doctor --fix` did with one store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FixedJson {
    /// The command that does the same.
    pub command: String,
    /// The leases that were ended.
    pub ended: Vec<ReapedJson>,
    /// The lock file that was removed, if that was to be done.
    pub removed: Option<String>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// What the histories of a project's stores prove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedJson {
    /// Whether every history could be read, and none shows holders that overlapped, or tokens that did not grow.
    pub sound: bool,
    /// The stores.
    pub stores: Vec<StoreVerifiedJson>,
}

/// What the history of a store proves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreVerifiedJson {
    /// The store.
    pub store: String,
    /// Whether it could be read, and there is no violation.
    pub sound: bool,
    /// Why its history can't be read.
    pub error: Option<String>,
    /// How many events its history has.
    pub events: usize,
    /// How many grants.
    pub grants: usize,
    /// Where two holders overlapped, or a token did not grow, for people.
    pub violations: Vec<String>,
    /// What the history can't prove, for people.
    pub unproven: Vec<String>,
}

/// A project and its stores at a glance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusJson {
    /// The root of the project; `null` if a store was chosen in a folder without a project.
    pub project: Option<String>,
    /// The daemon, for people.
    pub daemon: String,
    /// The caller's name.
    pub holder: HolderId,
    /// What the caller holds.
    pub held: Vec<GrantJson>,
    /// The keys that the caller waits for.
    pub waiting_for: Vec<Key>,
    /// The stores of the project.
    pub stores: Vec<StoreCountJson>,
    /// How many locks of other tools there are.
    pub foreign: usize,
    /// What could not be looked at besides stores, as sentences.
    pub left_out: Vec<String>,
    /// How many problems `tenure doctor` finds.
    pub problems: usize,
    /// How many notes it has.
    pub notes: usize,
}

/// How much is held in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreCountJson {
    /// The store.
    pub store: String,
    /// How many leases have not ended.
    pub held: usize,
    /// How many tickets there are.
    pub waiting: usize,
    /// Why it can't be read, if it can't: then the numbers are 0.
    pub error: Option<String>,
}

/// What keeps a key from the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyJson {
    /// What was asked for.
    pub asked: String,
    /// Whether nothing holds it. Not while something is unread.
    pub free: bool,
    /// Where it may be held, but could not be looked at, as sentences.
    pub unread: Vec<String>,
    /// The locks in the way, and what their holders wait for in turn.
    pub chain: Vec<WhyLinkJson>,
    /// What can be done, as commands.
    pub commands: Vec<String>,
}

/// One lock in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyLinkJson {
    /// How deep in the chain it is: 0 is what was asked for.
    pub depth: usize,
    /// The store; empty for a lock of another tool.
    pub store: String,
    /// The lease; `null` if the key is free and another waiter is first in the queue.
    pub lease: Option<LeaseJson>,
    /// The lock file, for a lock of another tool.
    pub path: Option<String>,
    /// The queue.
    pub queue: Vec<WaiterJson>,
}

/// Who held what when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineJson {
    /// The beginning of what is shown.
    pub from: TimeJson,
    /// The end: now.
    pub to: TimeJson,
    /// The grants, by store and key, the oldest first.
    pub spans: Vec<SpanJson>,
    /// The waits that go on. A wait that ended with a grant is in its span; abandoned waits are not recorded.
    pub waits: Vec<WaitSpanJson>,
    /// The stores whose history can't be read, and events that can't be understood, for people.
    pub left_out: Vec<String>,
}

/// A wait that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitSpanJson {
    /// The store, as seen from the project.
    pub store: String,
    /// The key.
    pub key: Key,
    /// The waiter.
    pub holder: HolderId,
    /// Since when.
    pub from: TimeJson,
}

/// One grant, from its beginning to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpanJson {
    /// The store, as seen from the project.
    pub store: String,
    /// The key.
    pub key: Key,
    /// The holder.
    pub holder: HolderId,
    /// The token.
    pub token: Token,
    /// Since when its holder waited for it; `null` if it did not.
    #[serde(default)]
    pub waited_since: Option<TimeJson>,
    /// When it began; `null` if the history does not reach back.
    pub from: Option<TimeJson>,
    /// When it ended; `null` if it has not.
    pub to: Option<TimeJson>,
    /// How it ended.
    pub end: Option<EventKind>,
    /// Whether it was taken over from a dead holder, or after it had expired.
    pub taken_over: bool,
}

/// One line of `tenure watch --json`. `at` is when it was noticed; an event has the time at which it happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum WatchLineJson {
    /// A store is watched from here on.
    Start {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
        /// Its newest event, for `--since`; 0 if there is none.
        last_event: u64,
    },
    /// An event was recorded.
    Event {
        /// The store.
        store: String,
        /// Its number, for `--since`.
        id: u64,
        /// The event.
        #[serde(flatten)]
        event: Box<EventJson>,
    },
    /// Events are missing.
    Gap {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
        /// The last event before the gap.
        after: u64,
        /// The first one after it.
        next: Option<u64>,
        /// `pruned`, or `begun_anew` if the store was recreated.
        cause: String,
    },
    /// A holder waits for a key.
    Waits {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
        /// The key.
        key: Key,
        /// The waiter.
        #[serde(flatten)]
        waiter: Box<WaiterJson>,
    },
    /// A waiter is in the queue no more.
    LeftQueue {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
        /// The key.
        key: Key,
        /// The waiter.
        holder: HolderId,
    },
    /// The verdict on a lease changed.
    Judged {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
        /// The lease, with the verdict on its holder.
        #[serde(flatten)]
        lease: Box<LeaseJson>,
    },
    /// Another program holds a key, by its own protocol.
    HeldByOther {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
        /// The key.
        key: Key,
        /// The holder.
        holder: HolderId,
    },
    /// Another program holds a key no more.
    FreedByOther {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
        /// The key.
        key: Key,
        /// The holder.
        holder: HolderId,
    },
    /// A lock file of another tool appeared, or what is known of its holder changed.
    Foreign {
        /// When.
        at: TimeJson,
        /// The lock.
        #[serde(flatten)]
        lock: Box<ForeignLockJson>,
    },
    /// A lock file of another tool is gone.
    ForeignGone {
        /// When.
        at: TimeJson,
        /// The lock file.
        path: String,
    },
    /// A task was added, or has another status.
    Task {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
        /// Its id.
        id: String,
        /// Its title.
        title: String,
        /// Its status.
        status: Status,
        /// Its status before; `null` if it is new.
        was: Option<Status>,
        /// Its last runner.
        runner: Option<HolderId>,
    },
    /// A task was deleted.
    TaskGone {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
        /// Its id.
        id: String,
    },
    /// A store appeared, or can be read or not, other than before.
    Store {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
        /// Why it can't be read; `null` if it can.
        error: Option<String>,
    },
    /// A store is gone.
    StoreGone {
        /// When.
        at: TimeJson,
        /// The store.
        store: String,
    },
    /// The daemon started, stopped, or skips its cycles.
    Daemon {
        /// When.
        at: TimeJson,
        /// Its state, for people.
        state: String,
    },
    /// Something could not be looked at.
    LeftOut {
        /// When.
        at: TimeJson,
        /// What, as a sentence.
        what: String,
    },
}
