//! `tenure doctor`: what is wrong in the project, and how to put it right.

use tenure::text::{flat, plural};
use tenure::wire::{CleanupJson, DoctorJson, FindingJson, FixedJson};
use tenure_view::Overview;
use tenure_view::doctor::{self, Extent, Finding, Fixed, Remedy, Severity};

use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::view::Doctor;
use crate::commands::locks::all::{self, Place, from_here};
use crate::context;
use crate::exit::Exit;
use crate::fit;
use crate::words;

/// The columns of the report.
const WIDTH: usize = 80;

pub(crate) fn doctor(global: &Global, asked: &Doctor) -> Result<Answer, Failure> {
    let (place, overview) = all::look_anyway(global)?;
    let mut found = doctor::examine(place.project.as_ref(), &overview, Extent::Whole);
    let mut lines = Vec::new();
    let mut fixed = Vec::new();
    if asked.fix && asked.dry_run {
        lines.extend(planned(&place, &found));
    } else if asked.fix {
        let config = context::config(place.project.as_ref()).unwrap_or_default();
        let safe = |one: &&Finding| one.remedy.as_ref().is_some_and(Remedy::is_safe);
        for finding in found.iter().filter(safe) {
            remark(global, &format!("to be ended: {}", finding.what));
        }
        let done = doctor::fix(&found, &config);
        lines.extend(done.iter().flat_map(|fixed| report(&place, fixed)));
        fixed = done
            .iter()
            .map(|fixed| fixed_json(&place, &overview, fixed))
            .collect();
        // What is left, as it is now.
        let (_, overview) = all::look_anyway(global)?;
        found = doctor::examine(place.project.as_ref(), &overview, Extent::Whole);
    }
    if asked.fix && !lines.is_empty() {
        lines.push(String::new());
    }
    let of = |severity: Severity| found.iter().filter(move |one| one.severity == severity);
    let problems = of(Severity::Problem).count();
    lines.extend(text(&place, &overview, &found, problems));
    let data = DoctorJson {
        healthy: problems == 0,
        dry_run: asked.dry_run,
        problems: of(Severity::Problem).map(|one| json(&place, one)).collect(),
        notes: of(Severity::Note).map(|one| json(&place, one)).collect(),
        fixed,
    };
    let mut answer = Answer::new(data, lines.join("\n"));
    if problems > 0 {
        answer.exit = Exit::Runtime;
    }
    if global.quiet && !global.json {
        answer.text = String::new();
    }
    Ok(answer)
}

fn text(place: &Place, overview: &Overview, found: &[Finding], problems: usize) -> Vec<String> {
    let notes = found.len() - problems;
    let stores = overview.stores.len();
    let looked = format!(
        "{} and {} of other tools",
        plural::count(stores, "store"),
        plural::count(overview.foreign.len(), "lock")
    );
    let mut lines = vec![match (problems, notes) {
        (0, 0) => format!("Healthy: {looked} examined, nothing is wrong."),
        (0, notes) => format!(
            "Healthy: {looked} examined, {} below.",
            plural::count(notes, "note")
        ),
        (problems, 0) => format!("{} ({looked} examined)", plural::count(problems, "problem")),
        (problems, notes) => format!(
            "{} and {} ({looked} examined)",
            plural::count(problems, "problem"),
            plural::count(notes, "note")
        ),
    }];
    for (number, finding) in found.iter().enumerate() {
        lines.push(String::new());
        let mark = match finding.severity {
            Severity::Problem => format!("{}. ", number + 1),
            Severity::Note => "Note: ".to_owned(),
        };
        paragraph(&mut lines, &mark, &finding.what);
        for evidence in &finding.evidence {
            paragraph(&mut lines, "   seen:  ", evidence);
        }
        if !finding.meaning.is_empty() {
            paragraph(&mut lines, "   means: ", &finding.meaning);
        }
        match &finding.remedy {
            None => {}
            Some(Remedy::Advice(advice)) => paragraph(&mut lines, "   do:    ", advice),
            Some(remedy @ Remedy::VerifyLedger(_)) => {
                let all = command(place, remedy);
                lines.push(format!("   all:   {all}"));
            }
            Some(remedy) => {
                // In one line, to be copied.
                lines.push(format!("   fix:   {}", command(place, remedy)));
                if remedy.is_safe() {
                    lines.push("          (safe: tenure doctor --fix does it)".to_owned());
                }
            }
        }
    }
    lines
}

/// Text behind a mark, broken into lines below each other. Only a name that is too long goes beyond the width.
fn paragraph(lines: &mut Vec<String>, mark: &str, text: &str) {
    let indent = " ".repeat(fit::width(mark));
    let mut line = mark.to_owned();
    let mut is_empty = true;
    for word in flat(text).split_whitespace() {
        if !is_empty && fit::width(&line) + 1 + fit::width(word) > WIDTH {
            lines.push(std::mem::replace(&mut line, indent.clone()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
}

/// The command that a remedy is.
fn command(place: &Place, remedy: &Remedy) -> String {
    let text = match remedy {
        Remedy::Cleanup(url) | Remedy::CleanupByHand(url) => {
            format!("tenure locks cleanup{}", place.in_store(url))
        }
        Remedy::BreakDeadLock(root) => format!(
            "tenure ledger break-lock --dir {}",
            words::quoted_bytes(from_here(root).as_os_str())
        ),
        Remedy::Force(url, key, of) => {
            words::force_command(key.as_str(), of.as_ref(), &place.in_store(url))
        }
        Remedy::Remove(path) => {
            format!("rm -- {}", words::quoted_bytes(from_here(path).as_os_str()))
        }
        Remedy::MoveAside(path) => {
            let mut aside = from_here(path).into_os_string();
            let from = words::quoted_bytes(&aside);
            aside.push(".aside");
            format!("mv -n -- {from} {}", words::quoted_bytes(&aside))
        }
        Remedy::Chmod(like, file) => {
            let like = words::quoted_bytes(from_here(like).as_os_str());
            let file = words::quoted_bytes(from_here(file).as_os_str());
            format!("chgrp --reference={like} {file} && chmod --reference={like} {file}")
        }
        Remedy::VerifyLedger(root) => format!(
            "tenure ledger verify --dir {}",
            words::quoted_bytes(from_here(root).as_os_str())
        ),
        Remedy::DropGitLock(_) => "tenure doctor --fix".to_owned(),
        Remedy::Command(text) => text.clone(),
        Remedy::Advice(text) => return text.clone(),
    };
    place.copied(text)
}

fn planned(place: &Place, found: &[Finding]) -> Vec<String> {
    let safe = doctor::safe_remedies(found);
    if safe.is_empty() {
        return vec!["Nothing can be fixed safely.".to_owned()];
    }
    safe.iter()
        .map(|remedy| format!("Would run: {}", command(place, remedy)))
        .collect()
}

fn report(place: &Place, fixed: &Fixed) -> Vec<String> {
    let command = command(place, &fixed.remedy);
    let mut lines = vec![format!("Ran: {command}")];
    match &fixed.ended {
        Err(error) => lines.push(format!("  It failed: {error}")),
        Ok(ended) => {
            lines.extend(ended.iter().map(|reaped| {
                format!(
                    "  Ended the lease of {} on {}: {}",
                    reaped.lease.holder.id, reaped.lease.key, reaped.evidence
                )
            }));
            lines.extend(fixed.lock.iter().map(|lock| {
                format!("  Removed the ledger lock of {lock}: its process has exited")
            }));
            lines.extend(
                fixed
                    .removed
                    .iter()
                    .map(|path| format!("  Removed {}: its process has exited", path.display())),
            );
            if lines.len() == 1 {
                lines.push("  Nothing was left to do.".to_owned());
            }
        }
    }
    lines
}

fn json(place: &Place, finding: &Finding) -> FindingJson {
    FindingJson {
        code: finding.code.to_owned(),
        store: finding.store.as_ref().map(ToString::to_string),
        key: finding.key.as_ref().map(ToString::to_string),
        message: finding.what.clone(),
        evidence: finding.evidence.clone(),
        meaning: finding.meaning.clone(),
        fix: finding.remedy.as_ref().map(|remedy| command(place, remedy)),
        safe: finding.remedy.as_ref().is_some_and(Remedy::is_safe),
    }
}

fn fixed_json(place: &Place, overview: &Overview, fixed: &Fixed) -> FixedJson {
    let ended = fixed.ended.as_ref().map_or(&[][..], Vec::as_slice);
    FixedJson {
        command: command(place, &fixed.remedy),
        ended: CleanupJson::new(&overview.now, false, ended).ended,
        removed: fixed
            .lock
            .as_ref()
            .map(|lock| &lock.path)
            .or(fixed.removed.as_ref())
            .map(|path| path.display().to_string()),
        error: fixed.ended.as_ref().err().map(ToString::to_string),
    }
}
