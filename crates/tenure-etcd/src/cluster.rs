//! Talks to the cluster: [`Cluster`].
//!
//! The client is asynchronous, the stores of tenure are not. A call blocks until the answer or the deadline; what runs
//! meanwhile, and between calls, is the matter of `driver`.
//!
//! One member is asked at a time. If it does not answer, the next attempt asks the next one: a member
//! that is stopped or cut off looks alive to its clients for a long time.

use std::error::Error as _;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tenure_core::{ErrorKind, StoreError};
use tenure_host::interrupt::is_interrupted;
use tonic::{Code, Status};

use crate::address::{Address, Tls};
use crate::client::{Client, Connecting, LEASE_NOT_FOUND, TlsFiles, reasons};
use crate::driver::Driver;
use crate::store::lock;

/// How long one member has for its answer, before the next one is asked.
const ATTEMPT: Duration = Duration::from_secs(2);

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a cluster that has never answered this process is asked. One that has may just elect a leader.
const NEVER_REACHED: Duration = Duration::from_secs(5);

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// No member answered in time, or the answer got lost. A write may have happened.
    NoAnswer(StoreError),
    /// The cluster refused. Nothing has happened.
    Refused(StoreError),
    /// The etcd lease of a key has ended. Nothing has happened.
    LeaseEnded,
    /// The revision that was asked for has been compacted away.
    Compacted,
}

impl Failure {
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
    pub(crate) driver: Driver,
}

/// Which member is asked, and the connection to it.
struct Members {
    current: usize,
    client: Option<Client>,
}

impl Cluster {
    /// Connects to nothing yet.
    pub(crate) fn new(address: Address) -> Result<Self, StoreError> {
        let connecting = Connecting {
            timeout: ATTEMPT,
            login: address.login.clone(),
            tls: address.tls.as_ref().map(tls_files).transpose()?,
        };
        Ok(Self {
            address,
            connecting,
            members: Mutex::new(Members {
                current: 0,
                client: None,
            }),
            answered: Mutex::new(None),
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
        let count = self.address.endpoints.len().max(1);
        let member = self.address.endpoints.get(current % count);
        let member = member.map(String::as_str).unwrap_or_default();
        let client = Client::connect(member, &self.connecting).await?;
        let mut members = self.members();
        if members.current == current {
            members.client = Some(client.clone());
        }
        Ok((current, client))
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
        let by = match self.answered() {
            Some(_) => by,
            None => by.min(began + NEVER_REACHED),
        };
        remaining(by) > PAUSE && !is_interrupted()
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
    pub(crate) fn ask<T, F>(
        self: &Arc<Self>,
        by: Instant,
        job: impl Fn(Client) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let began = now();
        loop {
            match self.ask_once(by, &job) {
                Err(Failure::NoAnswer(error)) => {
                    if is_interrupted() {
                        let what = "interrupted while the cluster did not answer";
                        return Err(Failure::Refused(
                            StoreError::new(ErrorKind::Contended, what).because(error),
                        ));
                    }
                    if !self.may_try_again(by, began) {
                        return Err(Failure::NoAnswer(error));
                    }
                    std::thread::sleep(PAUSE);
                }
                other => return other,
            }
        }
    }

    /// Asks one member, once.
    pub(crate) fn ask_once<T, F>(
        self: &Arc<Self>,
        by: Instant,
        job: impl Fn(Client) -> F,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let limit = remaining(by).min(ATTEMPT);
        let current = self.current();
        let connected = if let Some(connected) = self.connection() {
            Some(Ok(connected))
        } else {
            let cluster = Arc::clone(self);
            self.run(limit, async move { cluster.client().await })?
        };
        let (member, client) = match connected {
            Some(Ok(connected)) => connected,
            Some(Err(status)) => {
                self.give_up_on(current);
                return Err(self.explain(&status));
            }
            None => {
                self.give_up_on(current);
                return Err(self.silent());
            }
        };
        let limit = remaining(by).min(ATTEMPT);
        match self.run(limit, job(client))? {
            Some(Ok(answer)) => {
                *lock(&self.answered) = Some(now());
                Ok(answer)
            }
            Some(Err(status)) => {
                let failure = self.explain(&status);
                if matches!(failure, Failure::NoAnswer(_)) {
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
    ) -> Result<Option<T>, Failure> {
        let done = self.driver.run(limit, job);
        done.map_err(|error| Failure::Refused(no_thread(error)))
    }

    /// No member answered.
    fn silent(&self) -> Failure {
        Failure::NoAnswer(
            StoreError::new(
                ErrorKind::Unreachable,
                format!("{} does not answer", self.address),
            )
            .fix(CHECK_MEMBERS),
        )
    }

    /// What an error of the client means.
    pub(crate) fn explain(&self, status: &Status) -> Failure {
        let message = status.message();
        let refused =
            |kind, what: String, fix: &str| Failure::Refused(StoreError::new(kind, what).fix(fix));
        let bad_login = || {
            refused(
                ErrorKind::ReadOnly,
                format!("{} does not accept the login: {message}", self.address),
                "check the user and the password of the address: etcd://USER:PASSWORD@HOST",
            )
        };
        match status.code() {
            Code::NotFound if message.contains(LEASE_NOT_FOUND) => Failure::LeaseEnded,
            Code::OutOfRange if message.contains("compacted") => Failure::Compacted,
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
                Failure::Refused(StoreError::new(ErrorKind::Io, what))
            }
            // Also a login that is too old (Unauthenticated): the next connection logs in again.
            _ => Failure::NoAnswer(self.unreachable(status)),
        }
    }

    fn unreachable(&self, status: &Status) -> StoreError {
        // The message of an error of the connection says no more than "transport error".
        let why = match status.source() {
            Some(cause) => reasons(cause),
            None => status.message().to_owned(),
        };
        let fix = if why.to_lowercase().contains("certificate") {
            "check ?ca=, ?cert= and ?key= of the address, and when the certificates expire"
        } else {
            CHECK_MEMBERS
        };
        let what = format!("{} can't be reached", self.address);
        StoreError::new(ErrorKind::Unreachable, what)
            .because(why)
            .fix(fix)
    }
}

const CHECK_MEMBERS: &str =
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
