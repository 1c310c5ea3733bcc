//! Reservations of paths: who writes or reads which files of a repository.
//!
//! A reservation is a lease of the key [`Key::paths`], in a mode that names patterns of paths. All reservations of a
//! project have one queue.

use std::collections::HashMap;

use tenure_core::engine::LeaseQuery;
use tenure_core::{HolderId, Key, Lease, Moment, PathSet, Places, StoreError, Verdict, Waiter};

use crate::acquire::call_deadline;
use crate::ask::{Ask, Tie};
use crate::open::Tenure;
use crate::project::Target;

impl Tenure {
    /// Asks for a reservation. Unless it is tied to a process, the lease outlives the caller, and ends when it expires.
    ///
    /// ```
    /// use tenure::{Acquired, Config, StoreUrl, Tenure};
    /// use tenure::files::PathSet;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let database = folder.path().join("locks.db");
    /// let tenure = Tenure::open_with(&StoreUrl::Sqlite(database), Config::default())?;
    /// let api = PathSet::parse(["src/api/**", "Cargo.toml"])?;
    /// let Acquired::Granted(guard) = tenure.reserve(api).named("agent-1")?.acquire()? else {
    ///     panic!("they are reserved");
    /// };
    /// guard.leave_standing();
    /// let file = PathSet::parse(["src/api/mod.rs"])?;
    /// let refused = tenure.reserve(file).named("agent-2")?.acquire()?;
    /// assert!(matches!(refused, Acquired::Busy(_)));
    /// let reservations = tenure.reservations()?;
    /// assert!(reservations.covering("src/api/mod.rs").next().is_some());
    /// assert!(reservations.covering("src/lib.rs").next().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve(&self, paths: PathSet) -> Ask<'_> {
        Ask::new(self, Key::paths())
            .mode(paths.into())
            .tied_to(Tie::Nothing)
    }

    /// The reservations that some of these files and folders can be in, without the waiters. Nothing is written, and other
    /// reservations are not read if the store has an index.
    pub fn reservations_of(&self, targets: &[Target]) -> Result<Reservations, StoreError> {
        let mut places = Places::default();
        for target in targets {
            target.add_to(&mut places);
        }
        self.some_reservations(LeaseQuery::Near(&places))
    }

    /// The reservations of a holder, without those of others and the waiters. Nothing is written.
    pub fn reservations_by(&self, holder: &HolderId) -> Result<Reservations, StoreError> {
        self.some_reservations(LeaseQuery::Of(holder))
    }

    fn some_reservations(&self, query: LeaseQuery<'_>) -> Result<Reservations, StoreError> {
        let leases = self
            .store
            .some_leases(&Key::paths(), query, call_deadline())?;
        Ok(Reservations::new(self.clock.now(), leases, Vec::new()))
    }

    /// Who has reserved what, and who waits. Nothing is written.
    pub fn reservations(&self) -> Result<Reservations, StoreError> {
        let snapshot = self.store.inspect(&Key::paths(), call_deadline())?;
        Ok(Reservations::new(
            self.clock.now(),
            snapshot.leases,
            snapshot.queue,
        ))
    }
}

/// The reservations of a project at one time, and who waits for one.
#[derive(Debug)]
pub struct Reservations {
    now: Moment,
    leases: Vec<(Lease, Verdict)>,
    queue: Vec<Waiter>,
    index: ReservationIndex,
}

/// Where to find the reservations that may cover a path.
#[derive(Debug, Default)]
struct ReservationIndex {
    /// By the path of a pattern without wildcards.
    paths: HashMap<String, Vec<usize>>,
    /// By the folder that every path of a pattern with wildcards is below.
    folders: HashMap<String, Vec<usize>>,
    /// Those of everything: a holder has the key alone.
    everything: Vec<usize>,
}

impl Reservations {
    /// The reservations among these leases.
    pub fn new(now: Moment, leases: Vec<(Lease, Verdict)>, queue: Vec<Waiter>) -> Self {
        let mut index = ReservationIndex::default();
        for (number, (lease, verdict)) in leases.iter().enumerate() {
            if verdict.ended().is_some() {
                continue;
            }
            let Some(paths) = lease.mode.paths() else {
                index.everything.push(number);
                continue;
            };
            for pattern in paths.patterns() {
                let map = if pattern.is_path() {
                    &mut index.paths
                } else {
                    &mut index.folders
                };
                let place = pattern.place().to_owned();
                map.entry(place).or_default().push(number);
            }
        }
        Self {
            now,
            leases,
            queue,
            index,
        }
    }

    /// When they were read.
    pub fn now(&self) -> &Moment {
        &self.now
    }

    /// All of them, also those that have ended and that nobody has cleared away.
    pub fn all(&self) -> &[(Lease, Verdict)] {
        &self.leases
    }

    /// The waiters, in order.
    pub fn waiters(&self) -> &[Waiter] {
        &self.queue
    }

    /// Those that have not ended.
    pub fn standing(&self) -> impl Iterator<Item = &Lease> {
        let standing = self.leases.iter();
        let standing = standing.filter(|(_, verdict)| verdict.ended().is_none());
        standing.map(|(lease, _)| lease)
    }

    /// The reservations that cover a path, which is relative to the work tree and in normal form.
    pub fn covering<'a>(&'a self, path: &str) -> impl Iterator<Item = &'a Lease> + use<'a> {
        let slashes = path.match_indices('/').map(|(at, _)| at);
        let ends = slashes.chain([path.len()]);
        let above = ends.filter_map(move |end| path.get(..end));
        let of_paths = above
            .clone()
            .filter_map(|path| self.index.paths.get(path))
            .flatten();
        let of_folders = [""]
            .into_iter()
            .chain(above)
            .filter_map(|folder| self.index.folders.get(folder))
            .flatten();
        let covers = move |number: &&usize| {
            let lease = self.leases.get(**number).map(|(lease, _)| lease);
            let paths = lease.and_then(|lease| lease.mode.paths());
            paths.is_some_and(|paths| paths.covers(path).is_some())
        };
        let mut found: Vec<usize> = of_paths
            .chain(of_folders.filter(covers))
            .chain(&self.index.everything)
            .copied()
            .collect();
        found.sort_unstable();
        found.dedup();
        found
            .into_iter()
            .filter_map(|number| self.leases.get(number).map(|(lease, _)| lease))
    }

    /// The reservations that cover a file, or something in a folder.
    pub fn at(&self, target: &Target) -> Vec<&Lease> {
        if target.is_folder() {
            let standing = self.standing();
            standing
                .filter(|lease| target.is_reserved_by(&lease.mode))
                .collect()
        } else {
            self.covering(target.name()).collect()
        }
    }

    /// The reservations of this holder that have not ended.
    pub fn of<'a>(&'a self, holder: &'a HolderId) -> impl Iterator<Item = &'a Lease> {
        self.standing()
            .filter(move |lease| lease.holder.id == *holder)
    }
}
