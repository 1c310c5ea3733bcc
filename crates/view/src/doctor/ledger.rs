//! Ledgers: gaps, strange names, claims that overlapped, claim files and the ledger lock.

use std::path::Path;

use tenure::StoreUrl;
use tenure_core::StoreError;
use tenure_ledger::{Access, Ledger, Options, Severity as LedgerSeverity};

use super::{Extent, Finding, Remedy, Severity};

/// `is_read` tells whether its claims could be read.
pub(super) fn examine(
    url: &StoreUrl,
    root: &Path,
    is_read: bool,
    extent: Extent,
    found: &mut Vec<Finding>,
) {
    let options = Options {
        access: Access::ReadOnly,
        ..Options::default()
    };
    let ledger = match Ledger::open(root, options) {
        Ok(ledger) => ledger,
        Err(error) => {
            // Otherwise it is reported as a store that can't be read.
            if is_read {
                found.push(unchecked(url, root, &error));
            }
            return;
        }
    };
    let lock = ledger.locked_by();
    if let Some(lock) = lock.filter(|lock| lock.dead) {
        found.push(
            Finding::problem(
                "dead_ledger_lock",
                format!("the ledger lock is held by {lock}"),
            )
            .store(url)
            .seen("its process has exited")
            .means("Other programs can't write to the ledger until it is removed.")
            .remedy(Remedy::BreakDeadLock(root.to_owned())),
        );
    }
    if extent == Extent::Glance {
        return;
    }
    let verified = match ledger.verify() {
        Ok(verified) => verified,
        Err(error) => {
            found.push(unchecked(url, root, &error));
            return;
        }
    };
    for finding in verified.findings {
        let severity = match finding.severity {
            LedgerSeverity::Error => Severity::Problem,
            LedgerSeverity::Warning | LedgerSeverity::Note => Severity::Note,
        };
        // Reported above, with its remedy.
        if finding.code == "dead_lock" {
            continue;
        }
        let (what, seen) = match finding.event {
            Some(event) => (
                format!("event {event} of the ledger is not right"),
                format!("event {event}: {}", finding.what),
            ),
            None => (
                "the ledger has something that does not belong there".to_owned(),
                finding.what,
            ),
        };
        let means = match severity {
            Severity::Problem => {
                "Until it is repaired by hand, programs may refuse the ledger. tenure only appends to it, and changes nothing here."
            }
            Severity::Note => {
                "It does no harm. tenure only appends to a ledger, and changes nothing here."
            }
        };
        found.push(
            Finding::new(severity, finding.code, what)
                .store(url)
                .seen(seen)
                .means(means)
                .remedy(Remedy::VerifyLedger(root.to_owned())),
        );
    }
}

fn unchecked(url: &StoreUrl, root: &Path, error: &StoreError) -> Finding {
    Finding::problem("ledger", format!("{} can't be checked", root.display()))
        .store(url)
        .seen(error.to_string())
}
