//! The loop of the screen: waits for a change, a key or the time when something reads differently; looks; draws.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ratatui::crossterm::event::Event;
use rustix::event::{PollFd, PollFlags, poll};
use tenure::Tenure;
use tenure::store::{Clock, Forced, Lease, Released, call_deadline};
use tenure_host::HostClock;
use tenure_host::clock::since_boot;
use tenure_host::time_limit::TimeLimit;
use tenure_view::watch::{Alarm, Feed};

use super::draw::{Colours, draw};
use super::screen::{Effect, Intent, Screen};
use super::terminal::{Input, Terminal};
use super::{DISTANCE, LONGEST, SETTLE};
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::context;
use crate::exit::Exit;
use crate::words;

/// Shows the screen until it is closed.
pub(super) fn show(global: &Global, mut feed: Feed) -> Result<Answer, Failure> {
    let me = context::caller(global)?;
    let colours = Colours::of(global);
    let mut alarm = Alarm::default();
    let mut distance = look(&mut alarm, &mut feed, None);
    let place = match feed.project() {
        Some(project) => project.root().display().to_string(),
        None => feed
            .overview()
            .stores
            .first()
            .map_or_else(String::new, |view| view.url.to_string()),
    };
    let mut screen = Screen::new(me, place, feed.now().clone());
    screen.see(&feed);
    let mut terminal = Terminal::enter()?;
    let mut looked = since_boot();
    let mut look_at = looked + alarm.look_by(&feed);
    let mut is_rung = false;
    let mut again = true;
    loop {
        screen.now = HostClock::new().now();
        terminal.draw(std::mem::take(&mut again), |frame| {
            draw(frame, &mut screen, colours);
        })?;
        let tick = screen.changes_in().map(|time| since_boot() + time);
        let until = tick.map_or(look_at, |tick| tick.min(look_at));
        let woken = {
            // While a look is due anyway, further changes are no reason to wake up.
            let changes: Vec<BorrowedFd<'_>> = if is_rung {
                Vec::new()
            } else {
                alarm.fds().collect()
            };
            wait(&terminal, &changes, until)?
        };
        if woken.hung_up {
            return Ok(Answer::silent(Exit::Done));
        }
        for input in terminal.inputs() {
            let effect = match input {
                Input::Event(Event::Key(key)) => screen.key(key),
                Input::Event(Event::Mouse(mouse)) => screen.mouse(mouse),
                Input::Event(_) => Effect::None,
                Input::Repaint => Effect::Repaint,
                Input::End => Effect::Quit,
            };
            match effect {
                Effect::None => {}
                Effect::Quit => return Ok(Answer::silent(Exit::Done)),
                Effect::Repaint => again = true,
                Effect::Sort => screen.see(&feed),
                Effect::Suspend => {
                    Terminal::suspend();
                    again = true;
                }
                Effect::Do(intent) => {
                    screen.message = Some(match run(&feed, &screen, &intent) {
                        Ok(done) => done,
                        Err(failure) => failure.message().replace('\n', " "),
                    });
                    look_at = since_boot();
                }
            }
        }
        if woken.by_change && alarm.take() {
            is_rung = true;
            look_at = look_at.min((looked + distance).max(since_boot() + SETTLE));
        }
        if since_boot() >= look_at {
            alarm.take();
            distance = look(&mut alarm, &mut feed, Some(&mut screen));
            looked = since_boot();
            look_at = looked + alarm.look_by(&feed);
            is_rung = false;
        }
    }
}

/// Looks, and tells how long to leave the stores alone then.
fn look(alarm: &mut Alarm, feed: &mut Feed, screen: Option<&mut Screen>) -> Duration {
    let began = since_boot();
    alarm.look(feed);
    if let Some(screen) = screen {
        screen.see(feed);
    }
    (since_boot().saturating_sub(began) * DISTANCE).min(LONGEST)
}

struct Woken {
    hung_up: bool,
    by_change: bool,
}

/// Waits for input, a change, or the time.
fn wait(terminal: &Terminal, changes: &[BorrowedFd<'_>], until: Duration) -> io::Result<Woken> {
    // Not earlier than asked for: what is drawn then reads differently.
    let left = until.saturating_sub(since_boot()) + Duration::from_millis(1);
    let limit = TimeLimit::after(left);
    let stdin = io::stdin();
    let mut fds = vec![
        PollFd::new(terminal, PollFlags::IN),
        // Its input is read by a thread; this is about its end.
        PollFd::new(&stdin, PollFlags::empty()),
    ];
    fds.extend(changes.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
    match poll(&mut fds, Some(&limit.timespec())) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = fds.iter().map(|fd| fd.revents());
    let _input = ready.next();
    let terminal = ready.next().unwrap_or(PollFlags::empty());
    Ok(Woken {
        hung_up: terminal.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
        by_change: ready.any(|events| !events.is_empty()),
    })
}

/// Releases a lease, or ends it by force.
fn run(feed: &Feed, screen: &Screen, intent: &Intent) -> Result<String, Failure> {
    let (Intent::Release(target) | Intent::Force(target)) = intent;
    let tenure = Tenure::open_for_locks(&target.store, feed.config().clone())?;
    let (key, holder) = (&target.lease.key, &target.lease.holder.id);
    let (what, grant) = (words::held_subject(&target.lease), target.lease.grant());
    let now = tenure.store().inspect(key, call_deadline())?;
    let is_it = |lease: &Lease| lease.token == target.lease.token && lease.holder.id == *holder;
    if !now.leases.iter().any(|(lease, _)| is_it(lease)) {
        return Ok(format!(
            "This lease on {what} has ended already; nothing was changed."
        ));
    }
    let done = match intent {
        Intent::Release(_) => {
            let released = tenure.store().release(&grant, call_deadline())?;
            matches!(released, Released::Freed(_)).then(|| format!("Released {what}."))
        }
        Intent::Force(_) => {
            let (by, reason) = (&screen.me, Some("tenure watch"));
            let forced = tenure
                .store()
                .force_one(&grant, by, reason, call_deadline())?;
            matches!(forced, Forced::Freed(_))
                .then(|| format!("Took {what} from {holder}; recorded as forced by {by}."))
        }
    };
    Ok(done.unwrap_or_else(|| format!("This lease on {what} had ended already.")))
}
