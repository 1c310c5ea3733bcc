//! What `store check`, `store repair` and `store copy` print.

use serde::{Deserialize, Serialize};
use tenure_core::Repaired;

/// The state of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreCheckJson {
    /// The store, without user and password.
    pub store: String,
    /// The members of its cluster that the address names; none for a store of this machine.
    pub members: Vec<StoreMemberJson>,
    /// How many members the cluster has; `null` if it does not say, and for a store of this machine.
    pub cluster_size: Option<u64>,
    /// Whether the cluster asks for a login; `null` if it does not say, and for a store of this machine.
    pub login_required: Option<bool>,
    /// The user of the address, if the cluster accepted it.
    pub user: Option<String>,
    /// The alarms that the cluster has raised.
    pub alarms: Vec<String>,
    /// How many microseconds half of all reads take at most.
    pub p50_micros: Option<u64>,
    /// How many microseconds 99 of 100 reads take at most.
    pub p99_micros: Option<u64>,
    /// How many keys are held; `null` if the store can't be read.
    pub held: Option<u64>,
    /// How many processes wait.
    pub waiting: Option<u64>,
    /// How many events the history has.
    pub events: Option<u64>,
    /// How many tasks there are; `null` if the store keeps none.
    pub tasks: Option<u64>,
    /// How many sections there are; `null` if the store keeps none.
    pub sections: Option<u64>,
    /// What is wrong, as sentences.
    pub problems: Vec<String>,
}

/// A member of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreMemberJson {
    /// `HOST:PORT`.
    pub endpoint: String,
    /// Why it does not answer, if it does not.
    pub error: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Whether it is the leader.
    pub leader: bool,
    /// Whether it knows a leader; `null` if it does not answer. One without is cut off from the majority, and refuses every
    /// call.
    pub has_leader: Option<bool>,
    /// The size of its database, in bytes.
    pub size: Option<u64>,
    /// How much of that is in use.
    pub size_in_use: Option<u64>,
    /// The limit, if it says so.
    pub quota: Option<u64>,
    /// How many seconds its clock is ahead of this machine's, or behind if negative. `0` is less than a second; `null` if
    /// it does not say.
    pub clock_ahead_seconds: Option<i64>,
}

/// The tasks and sections that were copied from one store to another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreCopyJson {
    /// The store they were copied from.
    pub from: String,
    /// The store they were copied to.
    pub to: String,
    /// How many tasks the first store has. The second one has them all.
    pub tasks: u64,
    /// How many sections it has.
    pub sections: u64,
    /// How many of the tasks are new in the second store.
    pub added_tasks: u64,
    /// How many of the sections are.
    pub added_sections: u64,
}

/// What was repaired in a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreRepairJson {
    /// The store, without user and password.
    pub store: String,
    /// The number that every new token is larger than, if tokens were raised.
    pub raised_above: Option<u64>,
    /// What was done, as sentences.
    pub done: Vec<String>,
    /// What is left to do, as sentences.
    pub left: Vec<String>,
}

impl StoreRepairJson {
    /// What was repaired in this store.
    pub fn new(store: String, repaired: Repaired) -> Self {
        Self {
            store,
            raised_above: repaired.raised_above,
            done: repaired.done,
            left: repaired.left,
        }
    }
}
