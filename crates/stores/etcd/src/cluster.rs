//! Talks to the cluster: [`Cluster`].
//!
//! The client is asynchronous, the stores of tenure are not. A call blocks until the answer or the deadline; what runs
//! meanwhile, and between calls, is the matter of `driver`.
//!
//! One member is asked at a time. If it does not answer, the next attempt asks the next one: a member
//! that is stopped or cut off looks alive to its clients for a long time.
//!
//! The processes of a machine share what they learn (`memory`): which member answered, and that none did. For
//! [`SILENCE`] after a process has waited in vain, others ask briefly and fail at once. Each of them tries, so the first one after the
//! cluster is back succeeds.

use std::error::Error as _;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tenure_core::{Epoch, ErrorKind, StoreError};
use tenure_host::clock::since_boot;
use tenure_host::identity;
use tenure_host::interrupt::is_interrupted;
use tonic::{Code, Status};

use crate::address::{Address, Tls};
use crate::client::{Client, Connecting, LEASE_NOT_FOUND, TlsFiles};
use crate::driver::Driver;
use crate::hindrance::{Hindrance, innermost, speaks_plain, speaks_tls};
use crate::memory::Memory;
use tenure_host::lock;

/// How long one member has for its answer, before the next one is asked.
const ATTEMPT: Duration = Duration::from_secs(2);

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a cluster that has never answered this process is asked. One that has may just elect a leader.
const NEVER_REACHED: Duration = Duration::from_secs(5);

/// How long a process that has waited in vain spares the others of its machine the same wait.
const SILENCE: Duration = Duration::from_secs(30);

/// How long a cluster is asked that was silent a moment ago, by a process that it has never answered. Enough for a new
/// connection with a login.
const BRIEF: Duration = Duration::from_millis(500);

/// The topic of [`Reach`].
const REACH: &str = "reach";

/// How the cluster was reached last, by any process of this machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Reach {
    /// The member that is asked first.
    member: Option<String>,
    /// When a process last waited in vain: the boot, and the time since then.
    silent: Option<(Epoch, Duration)>,
}

impl Reach {
    /// How long ago the cluster was silent, if that still counts.
    fn silence(&self) -> Option<Duration> {
        let (boot, at) = self.silent.as_ref()?;
        let ago = since_boot().checked_sub(*at)?;
        (boot.same(identity::boot()) && ago < SILENCE).then_some(ago)
    }
}

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) enum CallFailure {
    /// No member answered in time, or the answer got lost. A write may have happened.
    NoAnswer(StoreError),
    /// The cluster refused. Nothing has happened.
    Refused(StoreError),
    /// The etcd lease of a key has ended. Nothing has happened.
    LeaseEnded,
    /// The revision that was asked for has been compacted away.
    Compacted,
}

impl CallFailure {
    /// As the error of a call that changes nothing.
    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Self::NoAnswer(error) | Self::Refused(error) => error,
            Self::LeaseEnded => StoreError::new(ErrorKind::Io, "an etcd lease ended too early"),
            Self::Compacted => StoreError::new(
                ErrorKind::Contended,
                "the cluster was compacted while it was read",
            )
            .fix("try again"),
        }
    }
}

/// A cluster.
pub(crate) struct Cluster {
    address: Address,
    connecting: Connecting,
    members: Mutex<Members>,
    /// When a member last answered.
    answered: Mutex<Option<Instant>>,
    /// How many attempts in a row had no answer.
    unanswered: AtomicUsize,
    /// How many of those failed for a reason that stays until a person removes it.
    hindered: AtomicUsize,
    pub(crate) memory: Memory,
    /// As it was remembered when this process began, or as it was kept since.
    reach: Mutex<Reach>,
    pub(crate) driver: Driver,
}

/// Which member is asked, and the connection to it.
struct Members {
    current: usize,
    client: Option<Client>,
}

impl Cluster {
    /// Connects to nothing yet.
    pub(crate) fn new(address: Address, memory: Memory) -> Result<Self, StoreError> {
        let reach: Reach = memory.recall(REACH).unwrap_or_default();
        let first = |member: &String| address.endpoints.iter().position(|one| one == member);
        let current = reach.member.as_ref().and_then(first).unwrap_or(0);
        let connecting = Connecting {
            timeout: ATTEMPT,
            login: address.login.clone(),
            tls: address.tls.as_ref().map(tls_files).transpose()?,
        };
        Ok(Self {
            address,
            connecting,
            members: Mutex::new(Members {
                current,
                client: None,
            }),
            answered: Mutex::new(None),
            unanswered: AtomicUsize::new(0),
            hindered: AtomicUsize::new(0),
            memory,
            reach: Mutex::new(reach),
            driver: Driver::new().map_err(no_thread)?,
        })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    fn members(&self) -> MutexGuard<'_, Members> {
        lock(&self.members)
    }

    /// The member that is asked next.
    pub(crate) fn current(&self) -> usize {
        self.members().current
    }

    /// The connection to the current member, if there is one.
    fn connection(&self) -> Option<(usize, Client)> {
        let members = self.members();
        let client = members.client.clone()?;
        Some((members.current, client))
    }

    /// The connection to the current member.
    pub(crate) async fn client(&self) -> Result<(usize, Client), Status> {
        if let Some(connected) = self.connection() {
            return Ok(connected);
        }
        let current = self.current();
        let client = Client::connect(self.endpoint(current), &self.connecting).await?;
        let mut members = self.members();
        if members.current == current {
            members.client = Some(client.clone());
        }
        Ok((current, client))
    }

    /// The address of a member.
    fn endpoint(&self, member: usize) -> &str {
        let count = self.address.endpoints.len().max(1);
        let endpoint = self.address.endpoints.get(member % count);
        endpoint.map(String::as_str).unwrap_or_default()
    }

    /// Asks another member from here on, unless another call has already changed it.
    pub(crate) fn give_up_on(&self, member: usize) {
        let mut members = self.members();
        if members.current == member {
            members.current = member.wrapping_add(1);
            members.client = None;
        }
    }

    /// Whether there is time for another attempt.
    pub(crate) fn may_try_again(&self, by: Instant, began: Instant) -> bool {
        // A round of all members is enough if nothing is going to change.
        let round = self.address.endpoints.len();
        let is_enough = self.hindered.load(Ordering::Relaxed) >= round
            || self.answered().is_none()
                && self.was_silent(began)
                && self.unanswered.load(Ordering::Relaxed) >= round;
        let in_time = remaining(self.asked_until(by, began)) > PAUSE;
        let may = in_time && !is_enough && !is_interrupted();
        self.note_silence(began, !may);
        may
    }

    /// Remembers that a call has waited in vain. Not only at its end: a process may have less time than a call may take.
    fn note_silence(&self, began: Instant, is_over: bool) {
        let mut reach = lock(&self.reach).clone();
        // So long have two members for their answers, or the only one: a new leader is elected faster.
        let members = if self.address.endpoints.len() > 1 {
            2
        } else {
            1
        };
        let in_vain = began.elapsed() >= ATTEMPT * members;
        let is_noted = reach.silence().is_some_and(|ago| ago < began.elapsed());
        if in_vain && (is_over || !is_noted) {
            reach.silent = Some((identity::boot().clone(), since_boot()));
        } else if !is_over || reach.silent.is_none() {
            return;
        }
        reach.member = Some(self.endpoint(self.current()).to_owned());
        self.keep(reach);
    }

    /// How long a call is tried that began at this time.
    pub(crate) fn asked_until(&self, by: Instant, began: Instant) -> Instant {
        match self.answered() {
            Some(_) => by,
            None if self.was_silent(began) => by.min(began + BRIEF),
            None => by.min(began + NEVER_REACHED),
        }
    }

    /// Whether a call of this machine waited for the cluster in vain a moment before this time.
    fn was_silent(&self, began: Instant) -> bool {
        let silence = lock(&self.reach).silence();
        silence.is_some_and(|ago| ago >= began.elapsed())
    }

    /// Remembers which member answered, unless new processes ask that one first anyway.
    fn remember_answer(&self, member: usize) {
        let endpoint = self.endpoint(member);
        let is_first = {
            let reach = lock(&self.reach);
            let first = reach.member.as_deref();
            reach.silent.is_none() && first.unwrap_or(self.endpoint(0)) == endpoint
        };
        if !is_first {
            self.keep(Reach {
                member: Some(endpoint.to_owned()),
                silent: None,
            });
        }
    }

    fn keep(&self, new: Reach) {
        let mut reach = lock(&self.reach);
        if *reach != new {
            self.memory.keep(REACH, &new);
            *reach = new;
        }
    }

    fn answered(&self) -> Option<Instant> {
        *lock(&self.answered)
    }

    /// Whether the cluster answers: a member has done so lately.
    pub(crate) fn answers(&self) -> bool {
        self.answered()
            .is_some_and(|at| remaining(at + ATTEMPT) > Duration::ZERO)
    }

    /// Asks until there is an answer, for calls that may be made twice.
    pub(crate) fn ask<Q, T, F>(
        self: &Arc<Self>,
        by: Instant,
        request: &Q,
        job: impl Fn(Client, Q) -> F,
    ) -> Result<T, CallFailure>
    where
        Q: Clone,
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let began = now();
        loop {
            match self.ask_once(self.asked_until(by, began), request, &job) {
                Err(CallFailure::NoAnswer(error)) => {
                    if is_interrupted() {
                        let what = "interrupted while the cluster did not answer";
                        return Err(CallFailure::Refused(
                            StoreError::new(ErrorKind::Contended, what).because(error),
                        ));
                    }
                    if !self.may_try_again(by, began) {
                        return Err(CallFailure::NoAnswer(error));
                    }
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
    }

    /// Ends etcd leases. Best effort.
    pub(crate) fn revoke(self: &Arc<Self>, etcd_leases: &[i64], by: Instant) {
        let _ = self.ask_once(by, &etcd_leases.to_vec(), |client, ended| async {
            client.revoke(ended).await;
            Ok(())
        });
    }

    /// Whether the last attempt to ask it was in vain.
    pub(crate) fn is_away(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > 0
    }

    /// Asks one member, once.
    pub(crate) fn ask_once<Q, T, F>(
        self: &Arc<Self>,
        by: Instant,
        request: &Q,
        job: impl Fn(Client, Q) -> F,
    ) -> Result<T, CallFailure>
    where
        Q: Clone,
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let answer = self.attempt(by, |client| job(client, request.clone()));
        if matches!(answer, Err(CallFailure::NoAnswer(_))) {
            self.unanswered.fetch_add(1, Ordering::Relaxed);
        } else {
            self.unanswered.store(0, Ordering::Relaxed);
            self.hindered.store(0, Ordering::Relaxed);
        }
        answer
    }

    fn attempt<T, F>(
        self: &Arc<Self>,
        by: Instant,
        job: impl FnOnce(Client) -> F,
    ) -> Result<T, CallFailure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let limit = || remaining(by).min(ATTEMPT);
        let current = self.current();
        let connected = if let Some(connected) = self.connection() {
            Some(Ok(connected))
        } else {
            let cluster = Arc::clone(self);
            self.run(limit(), async move { cluster.client().await })?
        };
        let (member, answer) = match connected {
            Some(Ok((member, client))) => (member, self.run(limit(), job(client))?),
            failed => {
                self.give_up_on(current);
                (current, failed.and_then(Result::err).map(Err))
            }
        };
        match answer {
            Some(Ok(answer)) => {
                *lock(&self.answered) = Some(now());
                self.remember_answer(member);
                Ok(answer)
            }
            Some(Err(status)) => {
                let failure = self.explain_failed(member, &status);
                if matches!(failure, CallFailure::NoAnswer(_)) {
                    self.give_up_on(member);
                }
                Err(failure)
            }
            None => {
                self.give_up_on(member);
                Err(self.silent())
            }
        }
    }

    /// Runs a job; `None` if it took longer than `limit`.
    fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        job: impl Future<Output = T> + Send + 'static,
    ) -> Result<Option<T>, CallFailure> {
        let done = self.driver.run(limit, job);
        done.map_err(|error| CallFailure::Refused(no_thread(error)))
    }

    /// No member answered.
    fn silent(&self) -> CallFailure {
        CallFailure::NoAnswer(
            StoreError::new(
                ErrorKind::Unreachable,
                format!("{} does not answer", self.address),
            )
            .fix(CHECK_MEMBERS),
        )
    }

    /// What an error of the client means, after the member was looked at once more: why it can't be talked to may be known.
    fn explain_failed(&self, member: usize, status: &Status) -> CallFailure {
        let failure = self.explain(status);
        let CallFailure::NoAnswer(error) = failure else {
            return failure;
        };
        let is_new = self.answered().is_none() && status.source().is_some();
        let endpoint = self.endpoint(member).to_owned();
        let is_encrypted = self.address.tls.is_some();
        let certificate = Hindrance::of_certificate(status).filter(|_| is_encrypted);
        let hindrance = match certificate {
            None if is_new => {
                let asked = self.run(BRIEF, async move {
                    if is_encrypted {
                        speaks_plain(&endpoint).await.then_some(Hindrance::IsPlain)
                    } else {
                        speaks_tls(&endpoint)
                            .await
                            .then_some(Hindrance::IsEncrypted)
                    }
                });
                asked.ok().flatten().flatten()
            }
            certificate => certificate,
        };
        let hindrance = hindrance.or_else(|| Hindrance::of_name(status));
        let Some(hindrance) = hindrance else {
            self.hindered.store(0, Ordering::Relaxed);
            return CallFailure::NoAnswer(error);
        };
        self.hindered.fetch_add(1, Ordering::Relaxed);
        let (why, fix) = hindrance.words(&innermost(status));
        let what = format!("{} can't be reached", self.address);
        let error = StoreError::new(ErrorKind::Unreachable, what);
        CallFailure::NoAnswer(error.because(why).fix(fix))
    }

    /// What an error of the client means.
    pub(crate) fn explain(&self, status: &Status) -> CallFailure {
        let message = status.message();
        let refused = |kind, what: String, fix: &str| {
            CallFailure::Refused(StoreError::new(kind, what).fix(fix))
        };
        let bad_login = || {
            refused(
                ErrorKind::ReadOnly,
                format!("{} does not accept the login: {message}", self.address),
                "check the user and the password of the address: etcd://USER:PASSWORD@HOST",
            )
        };
        match status.code() {
            Code::NotFound if message.contains(LEASE_NOT_FOUND) => CallFailure::LeaseEnded,
            Code::OutOfRange if message.contains("compacted") => CallFailure::Compacted,
            Code::ResourceExhausted if message.contains("space exceeded") => refused(
                ErrorKind::Full,
                format!("{} has no space left: {message}", self.address),
                "compact and defragment the cluster or raise its quota, then disarm the alarm: tenure store check shows it",
            ),
            Code::PermissionDenied => refused(
                ErrorKind::ReadOnly,
                format!("{} does not allow it: {message}", self.address),
                "give the user of the address read and write permission for the prefix, or name another prefix",
            ),
            Code::InvalidArgument
                if message.contains("authentication") || message.contains("user name") =>
            {
                bad_login()
            }
            Code::InvalidArgument | Code::FailedPrecondition | Code::Unimplemented
                if !message.contains("auth store is old") =>
            {
                let what = format!("{} can't be used: {message}", self.address);
                CallFailure::Refused(StoreError::new(ErrorKind::Io, what))
            }
            // Also a login that is too old (Unauthenticated): the next connection logs in again.
            _ => CallFailure::NoAnswer(self.unreachable(status)),
        }
    }

    fn unreachable(&self, status: &Status) -> StoreError {
        let what = format!("{} can't be reached", self.address);
        StoreError::new(ErrorKind::Unreachable, what)
            .because(innermost(status))
            .fix(CHECK_MEMBERS)
    }
}

pub(crate) const CHECK_MEMBERS: &str =
    "check that a majority of its members run and can be reached: tenure store check";

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cluster({})", self.address)
    }
}

/// How much time is left.
pub(crate) fn remaining(by: Instant) -> Duration {
    by.saturating_duration_since(now())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the deadline of one call, not the end of a lease: sleep need not count"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn no_thread(error: std::io::Error) -> StoreError {
    StoreError::new(
        ErrorKind::Io,
        "the thread that talks to etcd can't be started",
    )
    .because(error)
}

fn tls_files(tls: &Tls) -> Result<TlsFiles, StoreError> {
    let read = |path: &std::path::PathBuf| {
        std::fs::read(path).map_err(|error| {
            StoreError::new(ErrorKind::Io, format!("{} can't be read", path.display()))
                .because(error)
                .fix("the address of the store names it")
        })
    };
    Ok(TlsFiles {
        ca: tls.ca.as_ref().map(read).transpose()?,
        client: match &tls.client {
            Some((cert, key)) => Some((read(cert)?, read(key)?)),
            None => None,
        },
    })
}
