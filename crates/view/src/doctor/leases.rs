//! Leases that have ended, that can't be verified or understood, and waits that never end.

use std::time::Duration;

use jiff::SignedDuration;
use tenure::StoreUrl;
use tenure::project::StoreRole;
use tenure_core::{Doubt, KeyKind, Lease, Moment, Process, Snapshot, Verdict};
use tenure_host::files::beneath::read_linked;
use tenure_host::identity;

use super::{Finding, Remedy};
use crate::overview::{Overview, StoreView, lock_path};
use crate::waits::Waits;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// How far clocks may differ before it is reported.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_secs(5);

pub(super) fn examine(now: &Moment, store: &StoreView, found: &mut Vec<Finding>) {
    if let Some(error) = &store.error {
        let mut finding =
            Finding::problem("unreadable_store", format!("{} can't be read", store.url))
                .store(&store.url)
                .seen(&error.what)
                .means("Commands that use it fail, and its locks are not in this report.");
        if let Some(cause) = error.cause() {
            finding = finding.seen(cause.to_string());
        }
        if let Some(fix) = &error.fix {
            finding = finding.remedy(Remedy::Advice(fix.clone()));
        }
        found.push(finding);
    }
    let cleanup = cleanup(store);
    for lock in &store.locks {
        for (lease, verdict) in &lock.leases {
            judge(now, store, lock, lease, verdict, &cleanup, found);
        }
        // One that can't be understood is judged with its lease.
        let is_judged = lock
            .leases
            .iter()
            .any(|(_, verdict)| *verdict == Verdict::Malformed);
        // Another program's row of a task or section is no record of ours.
        let is_ours = match &store.url {
            StoreUrl::Etcd(_) => true,
            _ => {
                lock.leases.is_empty()
                    || !matches!(lock.key.kind(), KeyKind::Task(_) | KeyKind::Section(_))
            }
        };
        if is_ours && !lock.problems.is_empty() && !is_judged {
            let key = &lock.key;
            let mut finding = Finding::problem(
                "malformed",
                format!("a record of {key} can't be understood"),
            );
            finding.evidence.extend(lock.problems.iter().cloned());
            let repair = Remedy::Command(format!("tenure store repair {key}"));
            let means = "What can't be understood is left out; the rest counts.";
            found.push(
                finding
                    .store(&store.url)
                    .key(key)
                    .means(means)
                    .remedy(repair),
            );
        }
    }
}

/// What ends the leases of a store that have ended.
fn cleanup(store: &StoreView) -> Remedy {
    let url = store.url.clone();
    match (store.role, &store.url) {
        (StoreRole::OtherProgram, StoreUrl::Steroids(path)) => {
            // Tenure writes there only if it was used there before.
            let mut side = path.as_os_str().to_owned();
            side.push("-tenure");
            if std::path::Path::new(&side).exists() {
                Remedy::Cleanup(url)
            } else {
                Remedy::CleanupByHand(url)
            }
        }
        _ => Remedy::Cleanup(url),
    }
}

/// Whether a holder is on another machine that has this machine's name: its boot is another one, and its lease is younger
/// than this machine's.
fn is_of_namesake(lease: &Lease, verdict: &Verdict) -> bool {
    let is_here = |process: &Process| {
        process.host.eq_ignore_ascii_case(identity::host())
            && process.boot.differs(identity::boot())
    };
    *verdict == Verdict::Unknown(Doubt::OtherHost) && lease.holder.process().is_some_and(is_here)
}

fn judge(
    now: &Moment,
    store: &StoreView,
    lock: &Snapshot,
    lease: &Lease,
    verdict: &Verdict,
    cleanup: &Remedy,
    found: &mut Vec<Finding>,
) {
    let key = &lock.key;
    let holder = &lease.holder;
    let of = (lock.leases.len() > 1).then(|| holder.id.clone());
    let force = || Remedy::Force(store.url.clone(), key.clone(), of.clone());
    let add = |finding: Finding| finding.store(&store.url).key(key);
    if let Some(since) = lease
        .since()
        .filter(|since| *since > now.wall + CLOCK_SLACK)
    {
        let ahead = since.duration_since(now.wall).unsigned_abs();
        found.push(add(Finding::problem(
            "clock",
            format!("{key} was granted to {holder} in the future"),
        )
        .seen(format!("by {} seconds", Duration::as_secs(&ahead)))
        .means("The clock of this machine and that of the holder differ, or one was set back. An end by the wall clock comes too late or too early.")
        .remedy(Remedy::Advice("set both clocks, for example with NTP".into()))));
    }
    match verdict {
        Verdict::Unknown(_) if is_of_namesake(lease, verdict) => found.push(add(Finding::problem(
            "same_host_name",
            format!("{key} is held by {holder}, on a machine that has this machine's name"),
        )
        .seen("its boot is another one, and it was granted after this machine was started")
        .means("Two machines are called the same, so a holder that was there before this machine was started looks as if it had ended with a restart.")
        .remedy(Remedy::Advice(format!("give one of the machines another name than {}", identity::host()))))),
        Verdict::Dead(evidence) | Verdict::Expired(evidence) => {
            let (code, what) = match verdict {
                Verdict::Dead(_) => ("dead_holder", format!("{holder} has exited")),
                _ => ("expired", format!("the lease of {holder} has expired")),
            };
            found.push(add(Finding::problem(
                code,
                format!("{key}: {what} but is still listed"),
            )
            .seen(evidence.to_string())
            .means("Nothing is blocked; the next request takes it over.")
            .remedy(cleanup.clone())));
        }
        Verdict::Malformed => {
            let mut finding = add(Finding::problem(
                "malformed",
                format!("the record of {key} can't be understood"),
            )
            .means(match lease.expires {
                Some(_) => "It counts as held until its end: a holder that can't be read may be alive.",
                None => "It counts as held, and never as ended: a holder that can't be read may be alive.",
            })
            .remedy(force()));
            finding.evidence.extend(lock.problems.iter().cloned());
            if let Some((what, remedy)) = flaw(&store.url) {
                finding = finding.seen(what);
                finding.remedy = remedy.or(finding.remedy);
            }
            if finding.evidence.is_empty() {
                finding = finding.seen(verdict.to_string());
            }
            found.push(finding);
        }
        Verdict::Unknown(Doubt::OtherNamespace) => found.push(add(Finding::note(
            "hidden_holder",
            format!("{key} is held by {holder}, in another container"),
        )
        .seen(Doubt::OtherNamespace.to_string())
        .means("Its end can't be proven from here. It can in that container, and by a holder that uses tenure run.")
        .remedy(force()))),
        Verdict::Unknown(doubt) if lease.expires.is_none() => found.push(add(Finding::note(
            "unverified",
            format!("{key} is held by {holder}, which can't be verified"),
        )
        .seen(doubt.to_string())
        .means("It has no end of its own and is never taken over. If you know that its holder has ended, take it away.")
        .remedy(force()))),
        Verdict::Unknown(_) | Verdict::Alive => {}
    }
}

/// Waiters that wait for each other, also in several stores.
pub(super) fn cycles(overview: &Overview, found: &mut Vec<Finding>) {
    for circle in Waits::of(overview).circles() {
        let Some((first, _)) = circle.first().copied() else {
            continue;
        };
        let is_one_store = circle
            .iter()
            .all(|(wait, _)| std::ptr::eq(wait.store, first.store));
        let waiter = &first.waiter.holder;
        let is_here = |process: &&Process| {
            identity::process(process.pid).is_ok_and(|now| now.as_ref() == Some(process))
        };
        let remedy = match waiter.process().filter(is_here) {
            Some(process) => Remedy::Command(format!("kill {}", process.pid)),
            None => Remedy::Advice(format!("stop one of them, for example {waiter}")),
        };
        let mut finding = Finding::problem("deadlock", "waiters wait for each other, for ever")
            .store(&first.store.url)
            .key(&first.lock.key);
        for (wait, lease) in &circle {
            let place = if is_one_store {
                String::new()
            } else {
                format!(" in {}", wait.store.url)
            };
            finding = finding.seen(format!(
                "{} waits for {}{place}, which {} holds",
                wait.waiter.holder, lease.key, lease.holder
            ));
        }
        found.push(
            finding
                .means(format!(
                    "None of them goes on until one gives up. The command ends the wait of {}.",
                    waiter.id
                ))
                .remedy(remedy),
        );
    }
}

/// What is wrong with the file or folder of a lock, with the byte where it breaks; and what puts it right, if force does
/// not.
fn flaw(url: &StoreUrl) -> Option<(String, Option<Remedy>)> {
    let path = lock_path(url)?;
    let is_folder = matches!(url, StoreUrl::Mkdir(_));
    let shown = path.display();
    let kind = std::fs::symlink_metadata(&path).ok()?.file_type();
    let wrong = match (is_folder, kind.is_dir(), kind.is_file()) {
        (false, true, _) => Some("is a folder, not a file"),
        (true, _, true) => Some("is a file, not a folder"),
        (_, false, false) => Some("is neither a file nor a folder"),
        _ => None,
    };
    if let Some(wrong) = wrong {
        // It is no lock of any program, so that no command of tenure removes it.
        return Some((format!("{shown} {wrong}"), Some(Remedy::MoveAside(path))));
    }
    if is_folder {
        return None;
    }
    let text = read_linked(&path, LARGEST).ok()?;
    let Err(error) = serde_json::from_slice::<serde_json::Value>(&text) else {
        let what = format!("{shown} is JSON, but lacks a field or has one of a wrong type");
        return Some((what, None));
    };
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let byte = (before + error.column()).min(text.len());
    let what = format!("{shown} breaks at byte {byte} of {}: {error}", text.len());
    Some((what, None))
}
