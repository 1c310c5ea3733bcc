//! Freeing what is over in every store of a project.
//!
//! | store | where |
//! |---|---|
//! | the project's own | `.tenure/tenure.db` |
//! | the lock of its board | `.bilu/storage/lock` or `src/board/storage/lock`, if it is there |
//! | the claims of its ledger | the project's root, if it holds `ledger/` and `meta.json` |
//!
//! The exclusive locks were dealt with before. A database of another program (`steroids:PATH`) is left
//! to whoever names it: nothing is written beside it unasked.

use tenure::core::{Reap, StoreError};
use tenure::{Config, Project, StoreUrl, Tenure};
use tenure_board::Board;

/// What came of it.
pub(crate) struct Freed {
    /// How many leases.
    count: usize,
    /// Where it could not be done, and why.
    faults: Vec<String>,
}

impl Freed {
    pub(crate) fn failed(&self) -> bool {
        !self.faults.is_empty()
    }
}

impl std::fmt::Display for Freed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.count {
            0 if self.failed() => f.write_str("nothing freed")?,
            0 => f.write_str("nothing to free")?,
            1 => f.write_str("1 lease freed")?,
            many => write!(f, "{many} leases freed")?,
        }
        for fault in &self.faults {
            write!(f, ", {fault}")?;
        }
        Ok(())
    }
}

/// Frees what is over, and says what and why.
pub(crate) fn reap(
    project: &Project,
    own: &Tenure,
    config: &Config,
    say: &mut dyn FnMut(&str),
) -> Freed {
    let mut freed = Freed {
        count: 0,
        faults: Vec::new(),
    };
    freed.add("the project's store", reap_one(own, say));
    for url in others(project) {
        let reaped = Tenure::open(&url, config.clone()).and_then(|store| reap_one(&store, say));
        freed.add(&url.to_string(), reaped);
    }
    freed
}

impl Freed {
    fn add(&mut self, place: &str, reaped: Result<usize, StoreError>) {
        match reaped {
            Ok(count) => self.count += count,
            Err(error) => self
                .faults
                .push(format!("{place} can't be freed ({error})")),
        }
    }
}

/// The other stores that are there now. One that nobody holds anything in is not opened.
fn others(project: &Project) -> Vec<StoreUrl> {
    let root = project.root();
    let mut stores = Vec::new();
    let boards = [root.join(".bilu/board"), root.join("src/board")];
    let locks = boards.iter().filter_map(|board| Board::at(board).ok());
    let locks = locks.map(|board| board.lock()).filter(|lock| lock.exists());
    stores.extend(locks.map(StoreUrl::Mkdir));
    if root.join("ledger").is_dir() && root.join("meta.json").is_file() {
        stores.push(StoreUrl::Ledger(root.to_owned()));
    }
    stores
}

fn reap_one(store: &Tenure, say: &mut dyn FnMut(&str)) -> Result<usize, StoreError> {
    let reaped = store.store().reap(Reap::Free)?;
    for over in &reaped {
        let (key, holder) = (&over.lease.key, &over.lease.holder.id);
        say(&format!("Freed {key} of {holder}: {}", over.evidence));
    }
    Ok(reaped.len())
}
