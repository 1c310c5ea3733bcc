//! `tenure watch`: what changes in a project, live on a terminal, elsewhere as lines.
//!
//! | file | what it holds |
//! |---|---|
//! | `lines` | changes as lines, for people and programs |
//! | `rows` | what the tables of the screen hold |
//! | `screen` | the screen's state: what keys and the mouse do to it |
//! | `draw` | the screen, drawn |
//! | `terminal` | the terminal: entered, left, and its input |
//! | `live` | the loop: wait for a change or a key, look, draw |
//!
//! What is shown is read by `tenure_view::watch`, which opens every store read-only. Only a release or a force that the
//! user asks for opens a store for writing.

mod draw;
mod lines;
mod live;
mod rows;
mod screen;
mod terminal;

use std::io::IsTerminal;
use std::time::Duration;

use tenure::wire::ErrorCode;
use tenure::{Config, StoreUrl};
use tenure_view::watch::Feed;

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::view::Watch;
use crate::context;

/// The pause after the first change: a change often comes with others.
const SETTLE: Duration = Duration::from_millis(20);

/// The longest pause between two looks while changes go on.
const LONGEST: Duration = Duration::from_secs(2);

/// A look that took long is not repeated at once, so that watching a busy store costs a tenth of a core at most.
const DISTANCE: u32 = 10;

pub(crate) fn watch(global: &Global, asked: &Watch) -> Result<Answer, Failure> {
    let chosen = context::chosen_url(global)?;
    let project = match &chosen {
        // A store that is named needs no project.
        Some(_) => context::project_of(global)?,
        None => Some(context::existing_project(&context::start()?)?),
    };
    let config: Config = context::config(project.as_ref())?;
    let own = chosen
        .clone()
        .or_else(|| project.as_ref().map(tenure::Project::store));
    let since = asked
        .since
        .iter()
        .map(|event| position(global, event, own.as_ref()))
        .collect::<Result<Vec<_>, _>>()?;
    let is_screen = std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
    let as_lines = global.json || !since.is_empty() || !is_screen;
    let feed = Feed::new(project, chosen, config, since.clone());
    if as_lines {
        lines::follow(global, feed, &since)
    } else {
        live::show(global, feed)
    }
}

/// The store and the number of an event, as `--since` takes it.
fn position(
    global: &Global,
    event: &str,
    own: Option<&StoreUrl>,
) -> Result<(StoreUrl, u64), Failure> {
    let bad = || {
        let message = format!(
            "--since {event}: give the number of an event, as tenure watch --json prints it, or STORE#NUMBER, for example \
             --since 1234 or --since ledger:.#12"
        );
        Failure::new(ErrorCode::Usage, message)
    };
    let (store, number) = match event.rsplit_once('#') {
        Some((store, number)) => {
            let store = context::located(global, &context::start()?, store.as_ref())?;
            (store, number)
        }
        None => (own.cloned().ok_or_else(bad)?, event),
    };
    Ok((store, number.parse().map_err(|_| bad())?))
}
