//! Examines a cluster: [`check`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::StoreError;

use crate::address::Address;
use crate::client::Client;
use crate::cluster::{Cluster, Failure, now};
use crate::layout::Layout;
use crate::proto::{AlarmResponse, Done, RangeRequest, StatusResponse};

/// How long one member has for its answers.
const LIMIT: Duration = Duration::from_secs(3);

/// How many reads are timed.
const READS: usize = 50;

/// What is known of a cluster.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Check {
    /// Each member of the address.
    pub members: Vec<MemberCheck>,
    /// The alarms that are raised, such as `NOSPACE`.
    pub alarms: Vec<String>,
    /// How long a read takes that a majority confirms: half of them, and 99 of 100, are faster.
    pub latency: Option<(Duration, Duration)>,
}

/// What is known of a member.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MemberCheck {
    /// `HOST:PORT`.
    pub endpoint: String,
    /// Its answer, or why there is none.
    pub status: Result<MemberStatus, String>,
}

/// What a member says of itself.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its version of etcd.
    pub version: String,
    /// Whether it is the leader.
    pub is_leader: bool,
    /// Whether it knows a leader.
    pub has_leader: bool,
    /// The size of its database, in bytes.
    pub size: u64,
    /// How much of that is in use.
    pub size_in_use: u64,
    /// The limit, if it says so: etcd before 3.6 does not.
    pub quota: Option<u64>,
}

/// Asks each member of a cluster for its state. A member that does not answer is part of the result.
pub fn check(address: &Address) -> Result<Check, StoreError> {
    let mut result = Check::default();
    for endpoint in &address.endpoints {
        let one = Address {
            endpoints: vec![endpoint.clone()],
            ..address.clone()
        };
        let member = Arc::new(Cluster::new(one)?);
        let status = member.ask_once(soon(), |client: Client| async move {
            let path = "/etcdserverpb.Maintenance/Status";
            client.call::<_, StatusResponse>(path, Done {}).await
        });
        result.members.push(MemberCheck {
            endpoint: endpoint.clone(),
            status: match status {
                Ok(status) => Ok(member_status(status)),
                Err(failure) => Err(said(failure)),
            },
        });
    }
    let cluster = Arc::new(Cluster::new(address.clone())?);
    let alarms = cluster.ask(soon(), |client: Client| async move {
        let path = "/etcdserverpb.Maintenance/Alarm";
        client.call::<_, AlarmResponse>(path, Done {}).await
    });
    result.alarms = alarms.map_or_else(|_| Vec::new(), |answer| answer.names());
    result.latency = latency(&cluster);
    Ok(result)
}

fn soon() -> Instant {
    now() + LIMIT
}

fn said(failure: Failure) -> String {
    let error = failure.into_error();
    error
        .cause()
        .map_or(error.what.clone(), ToString::to_string)
}

fn member_status(status: StatusResponse) -> MemberStatus {
    let size = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
    let id = status.header.map_or(0, |header| header.member_id);
    MemberStatus {
        version: status.version,
        is_leader: status.leader == id && id != 0,
        has_leader: status.leader != 0,
        size: size(status.db_size),
        size_in_use: size(status.db_size_in_use),
        quota: Some(size(status.db_size_quota)).filter(|quota| *quota > 0),
    }
}

fn latency(cluster: &Arc<Cluster>) -> Option<(Duration, Duration)> {
    let key = Layout::new(&cluster.address().prefix).version();
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let range = RangeRequest::one(key.clone());
        let began = now();
        cluster
            .ask_once(soon(), move |client: Client| {
                let range = range.clone();
                async move { client.range(range).await }
            })
            .ok()?;
        times.push(now().saturating_duration_since(began));
    }
    times.sort();
    let at = |percent: usize| {
        times
            .get(times.len().saturating_sub(1) * percent / 100)
            .copied()
    };
    at(50).zip(at(99))
}
