//! Databases: damage, a log that grew, permissions, and what killed processes left.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tenure::StoreUrl;
use tenure_host::files::look;
use tenure_sqlite::Checked;

use super::{Extent, Finding, Remedy};
use crate::processes::Processes;

/// A log above this size was not emptied by many commits.
const LONG_LOG: u64 = 64 << 20;

/// Without an extent, the database can't be read, which is reported elsewhere.
pub(super) fn examine(
    url: &StoreUrl,
    path: &Path,
    check: Option<Extent>,
    found: &mut Vec<Finding>,
) {
    if let Some(extent) = check {
        let part = match extent {
            Extent::Whole => Checked::Whole,
            Extent::Glance => Checked::Locks,
        };
        match tenure_sqlite::integrity(path, part) {
            Ok(problems) if problems.is_empty() => {}
            Ok(problems) => {
                let mut finding = Finding::problem(
                    "damaged_database",
                    format!("{} is damaged", path.display()),
                )
                .store(url)
                .means("Some of its content is lost or wrong. Stop every process that uses it before you repair it.")
                .remedy(Remedy::Advice(
                    "restore it from a copy, or save what can be read with the command .recover of sqlite3".into(),
                ));
                finding.evidence = problems;
                found.push(finding);
            }
            Err(error) => found.push(
                Finding::problem(
                    "damaged_database",
                    format!("{} can't be checked", path.display()),
                )
                .store(url)
                .seen(error.to_string())
                .means("Commands that use it may fail."),
            ),
        }
    }
    let log = beside(path, "-wal");
    if let Some(at) = at(url, &log, found)
        && at.len() > LONG_LOG
    {
        let file = (at.dev(), at.ino());
        let readers = Processes::read();
        let readers = readers.having_open(&log, file);
        let mut finding = Finding::problem(
            "long_log",
            format!("the log of {} has grown to {} MiB", path.display(), at.len() >> 20),
        )
        .store(url)
        .means("A process that reads without an end keeps it from being emptied. Every command reads it, and becomes slower.")
        .remedy(Remedy::Advice("end the process that reads".into()));
        for reader in readers {
            finding = finding.seen(format!(
                "pid {} has it open: {}",
                reader.pid, reader.command
            ));
        }
        found.push(finding);
    }
    permissions(url, path, found);
}

/// The log and its index must be as writable for the group as the database is.
fn permissions(url: &StoreUrl, path: &Path, found: &mut Vec<Finding>) {
    let Some(database) = at(url, path, found) else {
        return;
    };
    let writers = database.mode() & 0o060;
    for end in ["-wal", "-shm"] {
        let file = beside(path, end);
        let Some(at) = at(url, &file, found) else {
            continue;
        };
        if at.mode() & writers != writers || (writers != 0 && at.gid() != database.gid()) {
            found.push(
                Finding::problem(
                    "permissions",
                    format!("{} is not as writable as its database", file.display()),
                )
                .store(url)
                .seen(format!(
                    "its mode is {:o} and its group {}, those of the database {:o} and {}",
                    at.mode() & 0o777,
                    at.gid(),
                    database.mode() & 0o777,
                    database.gid()
                ))
                .means("Other users of the group can't use the database.")
                .remedy(Remedy::Chmod(path.to_owned(), file)),
            );
        }
    }
}

/// What is at a path; `None` if nothing is, or if it can't be looked at, which is reported.
fn at(url: &StoreUrl, path: &Path, found: &mut Vec<Finding>) -> Option<Metadata> {
    look::at(path).unwrap_or_else(|error| {
        let what = format!("{} can't be examined", path.display());
        found.push(Finding::unexamined(what, &error).store(url));
        None
    })
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut file = path.as_os_str().to_owned();
    file.push(end);
    file.into()
}
