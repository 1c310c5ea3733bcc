//! A request for a key or a task, built step by step: [`Ask`].

use std::cell::{Cell, OnceCell};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Uid;
use tenure_core::{
    Acquired, Binding, Claim, ErrorKind, Holder, HolderId, Key, KeyKind, Mode, Patience, Priority,
    StoreError, Token, Withdrawal,
};
use tenure_host::identity;

use crate::Error;
use crate::acquire::{self, Keys, WaitContext, WaitLimits};
pub use crate::acquire::{Cancel, Progress};
use crate::guard::{Guard, Renewal};
use crate::open::Tenure;
use crate::text::duration;

/// The shortest time to live. A lease is renewed every third of it, and a busy machine may be late.
pub const MIN_TTL: Duration = Duration::from_millis(100);

/// The longest time to live.
pub const MAX_TTL: Duration = Duration::from_secs(30 * 24 * 3600);

/// The environment variable with the leases that a command of `tenure run` runs under: `STORE:TOKEN,...`.
pub const PARENT_LEASES: &str = "TENURE_PARENT_LEASES";

/// What the lease is tied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tie {
    /// This process: the guard renews the lease while the process runs, and the lease ends with it.
    ThisProcess,
    /// Another process: the lease ends with it, or when it expires.
    Process(u32),
    /// Nothing: the lease ends when it expires.
    Nothing,
}

/// A builder of a request for a key ([`Tenure::ask`]) or for a task ([`Tenure::ask_for_task`]).
#[must_use]
pub struct Ask<'a, W = Key> {
    pub(crate) tenure: &'a Tenure,
    pub(crate) wanted: W,
    pub(crate) holder: Option<HolderId>,
    made_up: OnceCell<HolderId>,
    pub(crate) named: bool,
    pub(crate) command: Option<String>,
    pub(crate) tie: Tie,
    pub(crate) ttl: Option<Duration>,
    pub(crate) priority: Priority,
    pub(crate) wait: Option<Duration>,
    pub(crate) on_timeout: Withdrawal,
    pub(crate) tick: Duration,
    pub(crate) within: Vec<Token>,
    mode: Mode,
    /// The keys that are asked for together with the wanted one.
    also: Vec<Key>,
    pub(crate) renewal: Renewal,
}

impl<'a, W> Ask<'a, W> {
    pub(crate) fn new(tenure: &'a Tenure, wanted: W) -> Self {
        Self {
            tenure,
            wanted,
            holder: None,
            made_up: OnceCell::new(),
            named: false,
            command: None,
            tie: Tie::ThisProcess,
            ttl: None,
            priority: Priority::default(),
            wait: None,
            on_timeout: Withdrawal::Leave,
            tick: Duration::MAX,
            within: Vec::new(),
            mode: Mode::Exclusive,
            also: Vec::new(),
            renewal: Renewal::FromTheStart,
        }
    }

    /// Sets the holder's name. A later request under the same name counts as the same holder. Without
    /// this, a unique name is generated.
    pub fn named(mut self, holder: &str) -> Result<Self, Error> {
        self.holder = Some(HolderId::parse_new(holder)?);
        self.named = true;
        Ok(self)
    }

    /// Sets a generated name. It is displayed and recorded, but another request under the same name counts
    /// as another holder.
    pub fn called(mut self, holder: HolderId) -> Self {
        self.holder = Some(holder);
        self.named = false;
        self
    }

    /// Ties the lease to something other than this process.
    pub fn tied_to(mut self, tie: Tie) -> Self {
        self.tie = tie;
        self
    }

    /// Sets the command that the holder runs, which waiters see.
    pub fn command(mut self, command: impl Into<String>) -> Self {
        self.command = Some(command.into());
        self
    }

    /// How long the lease lasts unless it is renewed. Refused by a store whose leases do not expire
    /// ([`tenure_core::Capabilities::expiry`]).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Sets the priority.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Waits for at most this long, also for a key that another request of this process holds: that may
    /// come from another thread.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Keeps the ticket for a grace period when the wait ends without the key, so that a later request
    /// under the same name can resume it.
    pub fn keep_place(mut self) -> Self {
        self.on_timeout = Withdrawal::Park;
        self
    }

    /// Calls the observer at least this often.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the grants under which this process runs, so that it does not wait for itself.
    pub fn within(mut self, grants: Vec<Token>) -> Self {
        self.within = grants;
        self
    }

    /// Does not start to renew before [`Guard::start_renewal`]: for a caller that usually finishes within
    /// milliseconds and needs no renewal threads.
    pub fn renew_later(mut self) -> Self {
        self.renewal = Renewal::Later;
        self
    }

    /// Where the wait takes place, and who observes it.
    pub(crate) fn context<'c>(
        &'c self,
        cancel: &'c Cancel,
        observer: &'c mut dyn FnMut(Progress<'_>),
    ) -> WaitContext<'c> {
        WaitContext {
            store: &self.tenure.store,
            clock: &*self.tenure.clock,
            waiting: self.wait.map(|limit| WaitLimits {
                limit,
                poll: self.tenure.config.locking.poll_interval,
                tick: self.tick,
                on_timeout: self.on_timeout,
            }),
            cancel,
            observer,
        }
    }

    pub(crate) fn patience(&self) -> Patience {
        if self.wait.is_some() {
            Patience::Queue
        } else {
            Patience::Try
        }
    }

    /// The holder of the lease, and the binding of the process that waits for it.
    pub(crate) fn who(&self) -> Result<(Holder, Binding), Error> {
        let binding = match self.tie {
            Tie::ThisProcess => self.tenure.store.this_process()?,
            Tie::Nothing => Binding::Detached,
            Tie::Process(pid) => match identity::process(pid) {
                Ok(Some(process)) => Binding::Process { process },
                Ok(None) => return Err(Error::NoProcess(pid)),
                Err(error) => return Err(Error::HiddenProcess { pid, error }),
            },
        };
        // Only a wait needs a process that can be woken.
        let asker = match (&binding, self.wait) {
            (kept, _) if kept.is_kept() => binding.clone(),
            (_, None) => binding.clone(),
            (_, Some(_)) => self.tenure.store.this_process()?,
        };
        // Generated once, so that every attempt uses the same name.
        let made_up = || self.made_up.get_or_init(next_generated_name).clone();
        let holder = Holder {
            id: self.holder.clone().unwrap_or_else(made_up),
            host: identity::host().to_owned(),
            command: self.command.clone(),
            binding,
        };
        Ok((holder, asker))
    }

    /// The time to live that the caller set, or else this one.
    pub(crate) fn ttl_or(&self, usual: Duration) -> Result<Duration, Error> {
        if self.ttl.is_some() && !self.tenure.store.capabilities().expiry {
            return Err(Error::NoExpiry);
        }
        let ttl = self.ttl.unwrap_or(usual);
        if (MIN_TTL..=MAX_TTL).contains(&ttl) {
            return Ok(ttl);
        }
        Err(Error::Ttl {
            given: duration::format(ttl),
            min: duration::format(MIN_TTL),
            max: duration::format(MAX_TTL),
        })
    }
}

impl Ask<'_, Key> {
    /// Holds the key in this mode, instead of alone. Refused by a store in which a key has one holder
    /// ([`tenure_core::Capabilities::modes`]).
    ///
    /// ```
    /// use tenure::{Acquired, Config, Mode, StoreUrl, Tenure};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let database = folder.path().join("locks.db");
    /// let tenure = Tenure::open_with(&StoreUrl::Sqlite(database), Config::default())?;
    /// let one = tenure.ask("db")?.mode(Mode::Shared).acquire()?;
    /// let two = tenure.ask("db")?.mode(Mode::Shared).acquire()?;
    /// assert!(matches!((one, two), (Acquired::Granted(_), Acquired::Granted(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Asks for another key as well: all of them are granted in one step, or none. A wait holds none of them. A key that
    /// is named twice counts once. Refused by a store that grants one key at a time
    /// ([`tenure_core::Capabilities::several`]).
    ///
    /// ```
    /// use tenure::{Acquired, Config, Tenure};
    /// use tenure::store::MemoryStore;
    ///
    /// let tenure = Tenure::with_store(std::sync::Arc::new(MemoryStore::default()), Config::default());
    /// let Acquired::Granted(both) = tenure.ask("build")?.and("deploy")?.acquire()? else {
    ///     panic!("one of them is held");
    /// };
    /// assert_eq!(both.leases().count(), 2);
    /// assert!(matches!(tenure.ask("deploy")?.acquire()?, Acquired::Busy(_)));
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn and(mut self, key: &str) -> Result<Self, Error> {
        let key = Key::parse_new(key)?;
        if key != self.wanted && !self.also.contains(&key) {
            self.also.push(key);
        }
        Ok(self)
    }

    /// The keys that are asked for, in the order in which they were named.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.wanted).chain(&self.also)
    }

    /// Makes the request. The guard renews its lease by itself from here on.
    pub fn acquire(self) -> Result<Acquired<Guard>, Error> {
        self.acquire_watched(&Cancel::default(), &mut |_| {})
    }

    /// Makes the request. `cancel` ends a wait, and `observer` is called during it.
    pub fn acquire_watched(
        self,
        cancel: &Cancel,
        observer: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Acquired<Guard>, Error> {
        let claims = self.claims()?;
        let request = Keys {
            store: &*self.tenure.store,
            claims: &claims,
            queued: Cell::new(false),
        };
        let answer = acquire::acquire(&request, &mut self.context(cancel, observer))?;
        answer.try_map(|(granted, asked)| {
            let mut granted = granted.into_iter();
            let Some(first) = granted.next() else {
                let what = "the store granted none of the keys";
                return Err(StoreError::new(ErrorKind::Damaged, what).into());
            };
            let granted = (first, granted.collect());
            Ok(Guard::new(
                self.tenure,
                granted,
                &asked,
                self.tie,
                self.renewal,
            ))
        })
    }

    /// The claims on all keys.
    fn claims(&self) -> Result<Vec<Claim>, Error> {
        let ttl = self.ttl_or(self.default_ttl())?;
        let (holder, asker) = self.who()?;
        if let (Mode::Slots(_), [_, ..]) = (&self.mode, self.also.as_slice()) {
            let what = "slots are for one key: several keys can be held alone or shared";
            let error = StoreError::new(ErrorKind::Unsupported, what);
            return Err(error.fix("ask for the slot in a command of its own").into());
        }
        let claim = |key: &Key| Claim {
            key: key.clone(),
            mode: self.mode.clone(),
            holder: holder.clone(),
            asker: asker.clone(),
            named: self.named,
            ttl,
            priority: self.priority,
            patience: self.patience(),
            within: self.within.clone(),
        };
        Ok(self.keys().map(claim).collect())
    }

    fn default_ttl(&self) -> Duration {
        let locking = &self.tenure.config.locking;
        match (self.tie, self.wanted.kind()) {
            (Tie::ThisProcess, _) => locking.run_timeout,
            (_, KeyKind::Section(_)) => locking.section_timeout,
            (_, KeyKind::Task(_) | KeyKind::Node(_) | KeyKind::Named(_)) => locking.task_timeout,
        }
    }
}

impl Tenure {
    /// The leases of this store that this process runs under, because `tenure run` started it. It must not wait for
    /// itself.
    pub fn parent_leases(&self) -> Vec<Token> {
        let text = std::env::var(PARENT_LEASES).unwrap_or_default();
        let grants = text.split(',').filter_map(|grant| grant.rsplit_once(':'));
        grants
            .filter(|(store, _)| *store == self.identity())
            .filter_map(|(_, token)| token.parse().ok().map(Token))
            .collect()
    }
}

/// A generated name for one request of this process. The second and later names are numbered, to distinguish
/// threads.
fn next_generated_name() -> HolderId {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let name = generated_name(std::process::id());
    match ASKED.fetch_add(1, Ordering::Relaxed) {
        0 => name,
        number => HolderId::parse(format!("{name}.{}", number + 1)).unwrap_or(name),
    }
}

/// A name for a caller that gave none: user, host, and a pid that makes it unique.
pub fn generated_name(pid: u32) -> HolderId {
    let named = |name| std::env::var(name).ok().filter(|user| !user.is_empty());
    let user = named("USER").or_else(|| named("LOGNAME"));
    let user = user.unwrap_or_else(user_name);
    HolderId::parse(format!("{user}@{}:{pid}", identity::host()))
        .unwrap_or_else(|_| HolderId::unreadable())
}

/// The name of the user of this process, looked up once.
fn user_name() -> String {
    static KNOWN: OnceLock<(Uid, String)> = OnceLock::new();
    let uid = rustix::process::getuid();
    let look_up = || {
        let id = uid.as_raw().to_string();
        let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
        user_of(&id, &passwd).unwrap_or_else(|| format!("uid{id}"))
    };
    match KNOWN.get_or_init(|| (uid, look_up())) {
        (of, name) if *of == uid => name.clone(),
        // It has become another user since.
        _ => look_up(),
    }
}

/// The name of a user in the lines of `/etc/passwd`. Read by hand: the C library would load plug-ins, which
/// a static program can't.
fn user_of(uid: &str, passwd: &[u8]) -> Option<String> {
    passwd.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, of) = (fields.next()?, fields.nth(1)?);
        let name = std::str::from_utf8(name).ok()?;
        (of == uid.as_bytes() && !name.is_empty()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_by_the_line_with_its_id() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\n# broken\nme:x:1000:1000::/home/me:/bin/sh\n";
        assert_eq!(user_of("0", passwd).as_deref(), Some("root"));
        assert_eq!(user_of("1000", passwd).as_deref(), Some("me"));
        assert_eq!(user_of("100", passwd), None);
    }
}
