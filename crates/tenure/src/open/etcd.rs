//! Opens a store on an etcd cluster.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Clock, ErrorKind, StoreError};
use tenure_etcd::{Address, EtcdOptions, EtcdStore, Login, MemberCheck, MemoryFolder};
use tenure_host::HostClock;
use tenure_host::files::Access;
use tenure_tasks::TaskStore;

use super::{EtcdUrl, Tenure};
use crate::acquire::call_deadline;
use crate::config::Config;
use crate::wire::{StoreCheckJson, StoreMemberJson};

/// The environment variable with the password, for an address that names only the user.
const PASSWORD: &str = "TENURE_ETCD_PASSWORD";

/// How long the lease of `tenure run` lasts, unless the settings say otherwise: if its machine fails, other machines
/// wait so long.
const RUN_TIMEOUT: Duration = Duration::from_secs(30);

/// From how many seconds on two clocks are too different.
const CLOCKS_DIFFER: u64 = 5;

impl Tenure {
    /// Opens a store on an etcd cluster. Nothing is asked yet.
    pub(super) fn open_etcd(
        url: &EtcdUrl,
        access: Access,
        mut config: Config,
    ) -> Result<Self, StoreError> {
        let address = address(url)?;
        let identity = identity(&address);
        let clock: Arc<dyn Clock> = Arc::new(HostClock::new());
        let options = EtcdOptions {
            clock: Arc::clone(&clock),
            history_age: config.history.max_age,
            history_events: config.history.max_events,
            queue_grace: config.locking.queue_grace,
            read_only: access == Access::ReadOnly,
            memory: memory_folders(&identity),
            ..EtcdOptions::default()
        };
        let is_default = config.locking.run_timeout == Config::default().locking.run_timeout;
        if is_default && !config.is_set("locking.runTimeout") {
            config.locking.run_timeout = RUN_TIMEOUT;
        }
        let folder = match access {
            Access::ReadWrite => private_folder()?,
            Access::ReadOnly => private_folder_path(),
        };
        let store = Arc::new(EtcdStore::open(address, &folder.join(&identity), options)?);
        let tasks: Arc<dyn TaskStore> = Arc::clone(&store) as _;
        Ok(Self {
            tasks: Some(tasks),
            etcd: Some(Arc::clone(&store)),
            ..Self::local(store, clock, config, identity)
        })
    }

    /// The store, if it is an etcd cluster: its [`EtcdStore::comparisons`] let the caller's own transaction depend on a
    /// lease.
    ///
    /// ```no_run
    /// use tenure::{Acquired, Config, StoreUrl, Tenure};
    /// use tenure::store::call_deadline;
    ///
    /// let tenure = Tenure::open_with(&StoreUrl::parse("etcd://10.0.0.1:2379/team")?, Config::default())?;
    /// if let (Acquired::Granted(guard), Some(etcd)) = (tenure.ask("build")?.acquire()?, tenure.etcd()) {
    ///     let held = etcd.comparisons(guard.key(), guard.token(), call_deadline())?;
    ///     for comparison in held.iter().flatten() {
    ///         println!("{comparison}"); // a line for etcdctl txn
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn etcd(&self) -> Option<&EtcdStore> {
        self.etcd.as_deref()
    }

    /// Whether the store was restored from a backup, so that it grants nothing until it is repaired.
    pub fn was_restored(&self) -> Result<Option<StoreError>, StoreError> {
        match self.etcd() {
            Some(etcd) => etcd.was_restored(call_deadline()),
            None => Ok(None),
        }
    }

    /// Asks each member of an etcd cluster for its state, and adds it to what is known of the store.
    pub fn check_etcd(url: &EtcdUrl, found: &mut StoreCheckJson) -> Result<(), StoreError> {
        let clock: Arc<dyn Clock> = Arc::new(HostClock::new());
        let address = address(url)?;
        let check = tenure_etcd::check(&address, &clock)?;
        let follows = |one: &MemberCheck| one.status.as_ref().is_ok_and(|it| it.has_leader);
        let has_leader = check.members.iter().any(follows);
        found.cluster_size = check.size.and_then(|size| u64::try_from(size).ok());
        (found.login_required, found.user) = match check.login {
            None => (None, None),
            Some(Login::NotRequired) => (Some(false), None),
            Some(Login::Accepted(user)) => (Some(true), Some(user)),
            Some(_) => (Some(true), None),
        };
        found.members = check.members.iter().map(member).collect();
        let answers = || {
            check
                .members
                .iter()
                .filter_map(|one| one.status.as_ref().ok())
        };
        for one in &check.members {
            if let Err(error) = &one.status {
                let problem = format!("{} does not answer: {error}", one.endpoint);
                found.problems.push(problem);
            }
        }
        if answers().next().is_some() && !has_leader {
            let problem = "the cluster has no leader: a majority of its members must run and reach one another";
            found.problems.push(problem.to_owned());
        } else {
            let has_none = |one: &&MemberCheck| one.status.as_ref().is_ok_and(|it| !it.has_leader);
            let cut_off = check.members.iter().filter(has_none);
            found.problems.extend(cut_off.map(|one| {
                format!(
                    "{} has no leader: it does not reach the other members",
                    one.endpoint
                )
            }));
        }
        if let Some(full) =
            answers().find(|one| one.quota.is_some_and(|quota| one.size > quota / 10 * 9))
        {
            let problem = format!(
                "the database has {} bytes: its quota is almost used up",
                full.size
            );
            found.problems.push(problem);
        }
        for one in &check.members {
            let ahead = one
                .status
                .as_ref()
                .ok()
                .and_then(|status| status.clock_ahead);
            if let Some(ahead) = ahead.filter(|ahead| ahead.unsigned_abs() >= CLOCKS_DIFFER) {
                let (seconds, how) = (
                    ahead.unsigned_abs(),
                    if ahead > 0 { "ahead of" } else { "behind" },
                );
                found.problems.push(format!(
                    "the clock of {} is {seconds} s {how} this machine's: times in lists and histories are wrong, and so \
                     is the order of waiters with different priorities; set both clocks, for example by NTP",
                    one.endpoint
                ));
            }
        }
        found.problems.extend(check.refused);
        for alarm in &check.alarms {
            found.problems.push(match alarm.as_str() {
                "NOSPACE" => {
                    "alarm NOSPACE: the quota is used up, and every write is refused. Compact and \
                              defragment, then etcdctl alarm disarm"
                        .to_owned()
                }
                other => format!("alarm {other}"),
            });
        }
        found.alarms = check.alarms;
        if has_leader {
            let identity = identity(&address);
            let options = EtcdOptions {
                read_only: true,
                memory: memory_folders(&identity),
                ..EtcdOptions::default()
            };
            let store = EtcdStore::open(address, &private_folder_path().join(&identity), options)?;
            if let Ok(Some(restored)) = store.was_restored(call_deadline()) {
                found.problems.push(restored.to_string());
            }
        }
        let micros = |time: Duration| u64::try_from(time.as_micros()).ok();
        (found.p50_micros, found.p99_micros) = match check.latency {
            Some((p50, p99)) => (micros(p50), micros(p99)),
            None => (None, None),
        };
        Ok(())
    }
}

fn member(one: &MemberCheck) -> StoreMemberJson {
    let endpoint = one.endpoint.clone();
    match &one.status {
        Ok(status) => StoreMemberJson {
            endpoint,
            error: None,
            version: Some(status.version.clone()),
            leader: status.is_leader,
            has_leader: Some(status.has_leader),
            size: Some(status.size),
            size_in_use: Some(status.size_in_use),
            quota: status.quota,
            clock_ahead_seconds: status.clock_ahead,
        },
        Err(error) => StoreMemberJson {
            endpoint,
            error: Some(error.clone()),
            ..StoreMemberJson::default()
        },
    }
}

/// The address, with its password.
fn address(url: &EtcdUrl) -> Result<Address, StoreError> {
    let mut address = Address::parse(url.secret())
        .map_err(|error| StoreError::new(ErrorKind::NotAStore, error.to_string()))?;
    address.files_in(url.folder());
    let Some((_, password)) = &mut address.login else {
        return Ok(address);
    };
    if !password.is_empty() {
        return Ok(address);
    }
    if let Some(given) = std::env::var(PASSWORD).ok().filter(|it| !it.is_empty()) {
        *password = given;
    } else if let Some(file) = &address.password_file {
        let read = fs::read_to_string(file).map_err(|error| {
            let what = format!("the password file {} can't be read", file.display());
            StoreError::new(ErrorKind::Io, what)
                .because(error)
                .fix("?password-file= of the address names it")
        })?;
        read.trim_end_matches(['\n', '\r']).clone_into(password);
    }
    Ok(address)
}

/// The same for every way to write the address of a store.
fn identity(address: &Address) -> String {
    let mut endpoints = address.endpoints.clone();
    endpoints.sort();
    let mut hasher = DefaultHasher::new();
    (endpoints, &address.prefix).hash(&mut hasher);
    format!("etcd-{:x}", hasher.finish())
}

/// Where this user's commands may remember a cluster: a folder that lasts if possible. Sandboxes may allow none of the first.
fn memory_folders(identity: &str) -> Vec<MemoryFolder> {
    let from = |name: &str| {
        let folder = PathBuf::from(std::env::var_os(name)?);
        folder.is_absolute().then_some(folder)
    };
    let state = from("XDG_STATE_HOME").or_else(|| Some(from("HOME")?.join(".local/state")));
    let temporary = private_folder_path();
    let lasting = state.into_iter().chain(from("XDG_RUNTIME_DIR"));
    let mut folders: Vec<MemoryFolder> = lasting
        .map(|trusted| MemoryFolder {
            trusted,
            below: Path::new("tenure").join(identity),
        })
        .collect();
    if let (Some(parent), Some(name)) = (temporary.parent(), temporary.file_name()) {
        folders.push(MemoryFolder {
            trusted: parent.to_owned(),
            below: Path::new(name).join("memory").join(identity),
        });
    }
    folders
}

/// Where the processes of this user on this machine prove that they run. It is the same however a process was
/// started, so it depends on no environment variable.
fn private_folder_path() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    Path::new("/tmp").join(format!("tenure-{user}"))
}

/// The same folder, made if it is not there. Another user could make it first: then it is refused.
fn private_folder() -> Result<PathBuf, StoreError> {
    let path = private_folder_path();
    let failed = |what: &str| StoreError::new(ErrorKind::Io, format!("{} {what}", path.display()));
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(failed("can't be made").because(error));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(&path);
    let found = found.map_err(|error| failed("can't be examined").because(error))?;
    let is_private = found.is_dir()
        && found.uid() == rustix::process::getuid().as_raw()
        && found.mode() & 0o022 == 0;
    if !is_private {
        return Err(failed("is not a private folder of this user").fix("remove it"));
    }
    // Often reached by a link: /var/run leads to /run.
    path.canonicalize()
        .map_err(|error| failed("can't be examined").because(error))
}
