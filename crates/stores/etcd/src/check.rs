//! Examines a cluster: [`check`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::{Clock, ErrorKind, StoreError};

use crate::address::Address;
use crate::client::Client;
use crate::cluster::{CHECK_MEMBERS, CallFailure, Cluster, now};
use crate::layout::Layout;
use crate::member_metrics::MemberMetrics;
use crate::memory::Memory;
use crate::proto::{
    AlarmResponse, Compare, Done, MemberListResponse, RangeRequest, RequestOp, StatusResponse,
    TxnRequest,
};

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
    /// How many members the cluster has.
    pub size: Option<usize>,
    /// Whether it asks for a login, and whether it accepts that of the address.
    pub login: Option<Login>,
    /// The alarms that are raised, such as `NOSPACE`.
    pub alarms: Vec<String>,
    /// How long a read takes that a majority confirms: half of them, and 99 of 100, are faster.
    pub latency: Option<(Duration, Duration)>,
    /// What the cluster refuses, as sentences.
    pub refused: Vec<String>,
}

/// What a cluster says of the login of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Login {
    /// It asks nobody for one.
    NotRequired,
    /// It accepts this user.
    Accepted(String),
    /// It asks for one, and does not accept that of the address.
    Refused,
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
    /// The limit, if it says so.
    pub quota: Option<u64>,
    /// How many seconds its clock is ahead of this machine's, or behind if negative, if it says so.
    pub clock_ahead: Option<i64>,
}

/// Asks each member of a cluster for its state. A member that does not answer is part of the result.
pub fn check(address: &Address, clock: &Arc<dyn Clock>) -> Result<Check, StoreError> {
    let cluster = Arc::new(Cluster::new(address.clone(), Memory::default())?);
    let members = std::thread::scope(|scope| {
        let ask = |endpoint| scope.spawn(move || member(address, endpoint, clock));
        let asked: Vec<_> = address
            .endpoints
            .iter()
            .map(String::as_str)
            .map(ask)
            .collect();
        let answers = asked.into_iter().map(|asked| match asked.join() {
            Ok(answer) => answer,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        answers.collect::<Result<_, _>>()
    })?;
    let mut result = Check {
        members,
        ..Check::default()
    };
    // Without a leader, nothing else has an answer.
    let follows = |member: &MemberCheck| member.status.as_ref().is_ok_and(|it| it.has_leader);
    if !result.members.iter().any(follows) {
        return Ok(result);
    }
    result.login = login(address);
    match call(&cluster, "/etcdserverpb.Maintenance/Alarm") {
        Ok(AlarmResponse { alarms }) => result.alarms = AlarmResponse { alarms }.names(),
        Err(failure) => result.refuse(failure),
    }
    let members = call(&cluster, "/etcdserverpb.Cluster/MemberList");
    result.size = members
        .ok()
        .map(|MemberListResponse { members }| members.len());
    result.latency = latency(&cluster);
    if let Err(failure) = try_to_write(&cluster) {
        result.refuse(failure);
    }
    Ok(result)
}

impl Check {
    /// Keeps what the cluster refuses this user, each sentence once. Everything else shows elsewhere.
    fn refuse(&mut self, failure: CallFailure) {
        if let CallFailure::Refused(error) = failure
            && error.kind == ErrorKind::ReadOnly
            && !self.refused.contains(&error.what)
        {
            self.refused.push(error.what);
        }
    }
}

/// Asks one member for its state. That needs no login, at least before etcd 3.6.
fn member(
    address: &Address,
    endpoint: &str,
    clock: &Arc<dyn Clock>,
) -> Result<MemberCheck, StoreError> {
    let one = |login| {
        let address = Address {
            endpoints: vec![endpoint.to_owned()],
            login,
            ..address.clone()
        };
        Ok(Arc::new(Cluster::new(address, Memory::default())?))
    };
    let status = |member: &Arc<Cluster>| member.ask_once(soon(), &(), |client, ()| client.status());
    let mut member = one(None)?;
    let mut answer = status(&member);
    if matches!(answer, Err(CallFailure::Refused(_))) && address.login.is_some() {
        member = one(address.login.clone())?;
        answer = status(&member);
    }
    let is_encrypted = address.tls.is_some();
    let metrics = answer.is_ok().then(|| {
        let request = (endpoint.to_owned(), Arc::clone(clock));
        let ask = |client: Client, (endpoint, clock): (String, Arc<dyn Clock>)| async move {
            let now = || clock.now().wall;
            Ok(if is_encrypted {
                MemberMetrics::encrypted(client.channel(), &endpoint, now).await
            } else {
                MemberMetrics::plain(&endpoint, now).await
            })
        };
        let metrics = member.ask_once(soon(), &request, ask);
        metrics.ok().flatten()
    });
    Ok(MemberCheck {
        endpoint: endpoint.to_owned(),
        status: match answer {
            Ok(status) => Ok(member_status(status, metrics.flatten().unwrap_or_default())),
            Err(failure) => Err(said(failure)),
        },
    })
}

/// Whether the cluster asks for a login. A wrong one is answered differently from one that nobody needs.
fn login(address: &Address) -> Option<Login> {
    let anonymous = Address {
        login: None,
        ..address.clone()
    };
    let anonymous = Arc::new(Cluster::new(anonymous, Memory::default()).ok()?);
    let login = address.login.clone().unwrap_or_default();
    let ask = |client: Client, (user, password): (String, String)| async move {
        client.authenticate(&user, &password).await
    };
    match anonymous.ask(soon(), &login, ask) {
        Ok(None) => Some(Login::NotRequired),
        Ok(Some(_)) => Some(Login::Accepted(login.0)),
        Err(CallFailure::Refused(_)) => Some(Login::Refused),
        Err(_) => None,
    }
}

/// A transaction that would write below the prefix, if something were true that never is: the cluster checks the
/// permission for it all the same.
fn try_to_write(cluster: &Arc<Cluster>) -> Result<(), CallFailure> {
    let key = Layout::new(&cluster.address().prefix).version();
    let never = [Compare::missing(key.clone()), Compare::present(key.clone())];
    let request = TxnRequest::only_if(never, [RequestOp::put(key, "")]);
    cluster.ask(soon(), &request, Client::txn).map(|_| ())
}

/// A call without arguments.
fn call<A>(cluster: &Arc<Cluster>, path: &'static str) -> Result<A, CallFailure>
where
    A: prost::Message + Default + 'static,
{
    let call = |client: Client, path| async move { client.call(path, Done {}).await };
    cluster.ask_once(soon(), &path, call)
}

fn soon() -> Instant {
    now() + LIMIT
}

fn said(failure: CallFailure) -> String {
    let error = match failure {
        CallFailure::NoAnswer(error) if error.cause().is_none() => {
            return "it is silent".to_owned();
        }
        failure => failure.into_error(),
    };
    let cause = error.cause().map(ToString::to_string);
    let said = cause.unwrap_or(error.what);
    match error.fix.filter(|fix| fix != CHECK_MEMBERS) {
        Some(fix) => format!("{said}: {fix}"),
        None => said,
    }
}

fn member_status(status: StatusResponse, metrics: MemberMetrics) -> MemberStatus {
    let size = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
    let id = status.header.map_or(0, |header| header.member_id);
    let quota = Some(size(status.db_size_quota)).filter(|quota| *quota > 0);
    MemberStatus {
        version: status.version,
        is_leader: status.leader == id && id != 0,
        has_leader: status.leader != 0,
        size: size(status.db_size),
        size_in_use: size(status.db_size_in_use),
        quota: quota.or(metrics.quota),
        clock_ahead: metrics.clock_ahead,
    }
}

fn latency(cluster: &Arc<Cluster>) -> Option<(Duration, Duration)> {
    let key = Layout::new(&cluster.address().prefix).version();
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let range = RangeRequest::one(key.clone());
        let began = now();
        cluster.ask_once(soon(), &range, Client::range).ok()?;
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
