//! `tenure ledger log`: print events, and wait for more.

use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::value::RawValue;
use tenure::protocols::ledger::{Dialect, Ledger, NodeId, RecordedEvent};
use tenure::store::Clock;
use tenure::text::flat;
use tenure::wire::{ErrorCode, LedgerEventJson};
use tenure_host::HostClock;

use crate::answer::{Answer, Failure, printed};
use crate::args::Global;
use crate::args::ledger::Log;
use crate::exit::Exit;
use crate::words;

/// Which events to print.
struct Filter<'a> {
    asked: &'a Log,
    node: Option<String>,
    since: Option<Timestamp>,
}

impl Filter<'_> {
    fn matches(&self, event: &RecordedEvent) -> bool {
        let (kind, at) = event.head();
        let kinds = &self.asked.kinds;
        if !kinds.is_empty() && !kind.is_some_and(|kind| kinds.contains(&kind)) {
            return false;
        }
        if let Some(since) = self.since
            && at.is_none_or(|at| at < since)
        {
            return false;
        }
        if let Some(owner) = &self.asked.owner
            && event.field("owner").as_ref() != Some(owner)
        {
            return false;
        }
        let node = self.node.as_ref();
        node.is_none_or(|node| event.nodes().contains(node))
    }
}

pub(super) fn log(global: &Global, ledger: &Ledger, asked: &Log) -> Result<Answer, Failure> {
    let node = asked.node.as_deref().map(NodeId::parse).transpose();
    let node = node.map_err(|error| Failure::new(ErrorCode::BadNode, error.to_string()))?;
    let now = HostClock::new().now().wall;
    let filter = Filter {
        asked,
        node: node.map(|node| node.to_string()),
        since: asked.since.map(|since| {
            let since = SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX);
            now.checked_sub(since).unwrap_or(Timestamp::MIN)
        }),
    };
    // The watch begins first, so that no event is missed while the existing ones are printed.
    let mut follow = asked.follow.then(|| ledger.follow(1)).transpose()?;
    let mut out = std::io::BufWriter::new(anstream::stdout().lock());
    let mut newest: VecDeque<String> = VecDeque::new();
    let mut seen = asked.from.unwrap_or(1).max(1).saturating_sub(1);
    for event in ledger.events(seen.saturating_add(1))? {
        let event = event?;
        seen = event.seq;
        let Some(line) = line(global, ledger.dialect(), &filter, &event) else {
            continue;
        };
        match asked.limit.filter(|limit| *limit > 0) {
            Some(limit) => {
                newest.push_back(line);
                if newest.len() > limit {
                    newest.pop_front();
                }
            }
            None => {
                if let Some(end) = end(writeln!(out, "{line}")) {
                    return end;
                }
            }
        }
    }
    let mut newest = newest.iter();
    let written = newest.try_for_each(|line| writeln!(out, "{line}"));
    if let Some(end) = end(written.and_then(|()| out.flush())) {
        return end;
    }
    if let Some(follow) = &mut follow {
        follow.skip_to(seen.saturating_add(1));
        loop {
            let event = follow.next(Duration::from_secs(3600))?;
            if let Some(event) = event
                && let Some(line) = line(global, ledger.dialect(), &filter, &event)
                && let Some(end) = end(writeln!(out, "{line}").and_then(|()| out.flush()))
            {
                return end;
            }
        }
    }
    Ok(Answer::silent(Exit::Done))
}

/// The outcome, if nothing more can be written.
fn end(written: std::io::Result<()>) -> Option<Result<Answer, Failure>> {
    let failed = written.is_err();
    failed.then(|| printed(written, "the output could not be written"))
}

fn line(
    global: &Global,
    dialect: Dialect,
    filter: &Filter<'_>,
    event: &RecordedEvent,
) -> Option<String> {
    if !filter.matches(event) {
        return None;
    }
    let flaw = event.flaw(dialect);
    if global.json {
        let text = event.text().ok();
        let line = LedgerEventJson {
            seq: event.seq,
            event: text.and_then(|text| RawValue::from_string(text).ok()),
            flaw,
        };
        return serde_json::to_string(&line).ok();
    }
    let (kind, at) = event.head();
    let at = at.map_or_else(|| "-".into(), words::time);
    let mut rest = event.text_without(&["type", "timestamp"]);
    if let Some(why) = flaw {
        rest = format!("can't be read: {why} {rest}");
    }
    let line = format!(
        "{:>6}  {at:<24}  {:<18} {rest}",
        event.seq,
        kind.as_deref().unwrap_or("-")
    );
    Some(flat(line.trim_end()))
}
