//! [`FileStore`]: one lock at one place as a store, and its steps under the guard.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tenure_core::{ErrorKind, Key, Revision, StoreError};
use tenure_host::watch::Watches;
use tenure_host::{Bell, LivenessFolder, LivenessLock, bell};

use crate::Options;
use crate::state::{Loaded, Sidecar, State, StateFile};
use crate::step::Step;
use crate::view::{See as _, Seen};
use tenure_host::files::fault::explain;
use tenure_host::files::lock_watch::{Listen, Listener, LockWatch};
use tenure_host::files::places::Places;
use tenure_host::files::protocol::{FoundLock, LockProtocol};
use tenure_host::files::reader::Reader;
use tenure_host::files::step_lock::{PATIENCE, StepLock};

/// As whom to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listening {
    Waiter,
    Holder,
}

/// One lock at one place, with a queue, tokens and history in a folder beside it.
pub struct FileStore<S> {
    pub(crate) protocol: S,
    pub(crate) state_file: StateFile,
    pub(crate) folder: LivenessFolder,
    /// Ours. Begun when a lease or a ticket first needs it.
    pub(crate) lock_cell: OnceLock<LivenessLock>,
    beginning: Mutex<()>,
    /// One step of this object at a time.
    stepping: Mutex<()>,
    pub(crate) watches: Watches,
    pub(crate) bell: Bell,
    /// Hears what other programs do to the lock. `None` if the kernel can't tell.
    listener: OnceLock<Option<Listener>>,
    /// The same for a holder, who has to hear everything.
    holding: OnceLock<Option<Listener>>,
    pub(crate) options: Options,
}

impl<S: LockProtocol> FileStore<S> {
    /// A store of this lock, with this folder beside it. Nothing is written yet.
    pub fn new(protocol: S, sidecar: impl Into<PathBuf>, options: Options) -> Self {
        Self::with_sidecar(protocol, Sidecar::new(sidecar), options)
    }

    /// The same with a sidecar folder that was chosen by hand.
    pub fn with_sidecar(protocol: S, sidecar: Sidecar, options: Options) -> Self {
        Self {
            protocol,
            folder: sidecar.liveness_folder(),
            state_file: StateFile::new(sidecar),
            lock_cell: OnceLock::new(),
            beginning: Mutex::new(()),
            stepping: Mutex::new(()),
            watches: Watches::default(),
            bell: Bell::default(),
            listener: OnceLock::new(),
            holding: OnceLock::new(),
            options,
        }
    }

    /// The one key.
    pub fn key(&self) -> &Key {
        self.protocol.key()
    }

    /// The lock itself.
    pub fn protocol(&self) -> &S {
        &self.protocol
    }

    /// The folder beside it.
    pub fn sidecar(&self) -> &Sidecar {
        self.state_file.sidecar()
    }

    /// What stands at the place right now, whatever tenure knows beyond it.
    pub fn found(&self) -> Option<FoundLock> {
        self.protocol.read(self.protocol.path())
    }

    pub(crate) fn liveness_lock(&self) -> Result<&LivenessLock, StoreError> {
        if let Some(life) = self.lock_cell.get() {
            return Ok(life);
        }
        let _one_at_a_time = lock(&self.beginning);
        if let Some(life) = self.lock_cell.get() {
            return Ok(life);
        }
        self.sidecar().make()?;
        let life = LivenessLock::begin(&self.folder)
            .map_err(|error| explain("written", self.folder.path(), error))?;
        Ok(self.lock_cell.get_or_init(|| life))
    }

    /// Begins to hear what other programs do to the lock: whatever they do rings our bell.
    pub(crate) fn listen(&self, life: &LivenessLock, as_: Listening) {
        let (listener, listen) = match as_ {
            Listening::Waiter => (&self.listener, self.protocol.listen_for()),
            Listening::Holder => (&self.holding, Listen::Everything),
        };
        listener.get_or_init(|| {
            let (folder, lock) = (self.folder.clone(), life.id().clone());
            let ring = move || bell::ring(&folder, &lock);
            let watch = LockWatch::on(self.protocol.path(), listen);
            watch.and_then(|watch| watch.listen(ring)).ok()
        });
    }

    /// Refuses every key but the one.
    pub(crate) fn check_key(&self, key: &Key) -> Result<(), StoreError> {
        if key == self.protocol.key() {
            return Ok(());
        }
        let place = self.protocol.path().display();
        Err(StoreError::new(
            ErrorKind::Unsupported,
            format!("{place} is the lock of {} alone, not of {key}", self.key()),
        )
        .fix(format!("ask for {}, or name another store", self.key())))
    }

    /// Changes whenever anybody has changed anything, or the bell was rung.
    pub(crate) fn revision(&self, state: u64) -> Revision {
        let mut hasher = DefaultHasher::new();
        let place = self.protocol.path().symlink_metadata().ok();
        let place = place.map(|at| {
            let times = (at.mtime(), at.mtime_nsec(), at.ctime(), at.ctime_nsec());
            (at.dev(), at.ino(), at.size(), times)
        });
        (state, place, self.bell.generation()).hash(&mut hasher);
        Revision(hasher.finish())
    }

    fn guard(&self) -> Result<(MutexGuard<'_, ()>, StepLock), StoreError> {
        let one = lock(&self.stepping);
        let guard = StepLock::take(&self.sidecar().step_lock(), PATIENCE)?;
        Ok((one, guard))
    }

    /// One step that may change something. Bells are rung after it.
    pub(crate) fn write<T>(
        &self,
        verb: impl FnOnce(&mut Step<'_, S>) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        self.sidecar().make()?;
        let guard = self.guard()?;
        // Under the guard: time spent waiting for it must not count against anyone.
        let mut step = Step::new(self, self.options.clock.now());
        let answer = step
            .begin()
            .and_then(|()| verb(&mut step))
            .and_then(|answer| step.flush().map(|()| answer));
        let revision = self.revision(step.state.revision);
        let rings = std::mem::take(&mut step.rings);
        drop(guard);
        for lock in rings {
            bell::ring(&self.folder, &lock);
        }
        Ok((answer?, revision))
    }

    /// A consistent picture. It changes nothing, unless something has to be put right first.
    pub(crate) fn read<T>(
        &self,
        look: impl Fn(&Reader<'_>, &State, &Seen) -> T,
    ) -> Result<(T, Revision), StoreError> {
        // Nobody has ever used this lock through tenure.
        let guard = if self.sidecar().path().is_dir() {
            Some(self.guard()?)
        } else {
            None
        };
        let now = self.options.clock.now();
        let reader = Reader {
            folder: &self.folder,
            now: &now,
            us: self.lock_cell.get().map(LivenessLock::id),
            removal: self.protocol.removal(),
        };
        let (state, lost) = match self.state_file.load()? {
            Loaded::Known(state) => (state, false),
            Loaded::Lost(state, _) => (state, true),
        };
        let seen = reader.see(self.key(), &state, self.found());
        if !lost && state.pending.is_none() && !seen.needs_mending(&reader) {
            let answer = look(&reader, &state, &seen);
            return Ok((answer, self.revision(state.revision)));
        }
        drop(guard);
        let mended = self.write(|step| Ok(look(&step.reader(), &step.state, &step.seen)));
        match mended {
            // Whoever may not write sees it as it is.
            Err(error) if error.kind == ErrorKind::ReadOnly => {
                Ok((look(&reader, &state, &seen), self.revision(state.revision)))
            }
            mended => mended,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
