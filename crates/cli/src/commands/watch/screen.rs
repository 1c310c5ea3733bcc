//! The screen's state, [`Screen`]: what it shows, and what keys and the mouse do to it.
//!
//! Nothing is drawn here, and no store is read or changed: what a key asks for comes back as an [`Effect`].

use std::time::Duration;

use ratatui::crossterm::event::{
    KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use ratatui::layout::{Position, Rect};
use tenure::store::{HolderId, Moment};
use tenure::text::plural;
use tenure_view::watch::{Feed, daemon_in_words};

use super::rows::{self, Cell, Row, Sort, Table, Target, Tone};
use crate::commands::timeline::Lane;
use crate::words;

/// The parts of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Locks,
    Reservations,
    Tasks,
    History,
    Timeline,
}

impl Pane {
    pub(super) const ALL: [Self; 5] = [
        Self::Locks,
        Self::Reservations,
        Self::Tasks,
        Self::History,
        Self::Timeline,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Locks => "Locks",
            Self::Reservations => "Reservations",
            Self::Tasks => "Tasks",
            Self::History => "History",
            Self::Timeline => "Timeline",
        }
    }
}

/// What lies over the panes, and gets the keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Over {
    Nothing,
    /// A filter is typed; this one was there before.
    Filter(String),
    Help,
    Detail(Vec<String>),
    /// A release or a force that has to be confirmed.
    Question(Intent),
}

/// Something that changes a store.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Intent {
    Release(Target),
    Force(Target),
}

/// What a key asks for, besides a new look of the screen.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    None,
    Quit,
    /// Stop this process, as Ctrl+Z does.
    Suspend,
    /// Draw everything again.
    Repaint,
    /// Make the tables anew: the order is another one.
    Sort,
    Do(Intent),
}

/// The rows of a pane that pass the filter, which of them is selected, and which is the first on the screen.
#[derive(Debug, Default)]
pub(super) struct List {
    pub(super) visible: Vec<usize>,
    pub(super) selected: usize,
    pub(super) offset: usize,
    pub(super) height: usize,
}

/// A pane's table, and what is shown of it.
#[derive(Debug, Default)]
struct Part {
    table: Table,
    list: List,
}

#[derive(Debug, Default)]
struct Parts {
    locks: Part,
    reservations: Part,
    tasks: Part,
    history: Part,
    timeline: Part,
}

impl Parts {
    fn get(&self, pane: Pane) -> &Part {
        match pane {
            Pane::Locks => &self.locks,
            Pane::Reservations => &self.reservations,
            Pane::Tasks => &self.tasks,
            Pane::History => &self.history,
            Pane::Timeline => &self.timeline,
        }
    }

    fn get_mut(&mut self, pane: Pane) -> &mut Part {
        match pane {
            Pane::Locks => &mut self.locks,
            Pane::Reservations => &mut self.reservations,
            Pane::Tasks => &mut self.tasks,
            Pane::History => &mut self.history,
            Pane::Timeline => &mut self.timeline,
        }
    }
}

/// All keys, as the help lists them.
pub(super) const KEYS: [(&str, &str); 16] = [
    ("1 2 3 4 5, Tab", "go to a pane"),
    ("Up Down j k", "select a line"),
    ("PgUp PgDn", "a page up or down"),
    ("Home End g G", "the first or the last line"),
    ("Enter", "details of the line"),
    ("l", "jump to the lock of the line's key"),
    ("w", "jump to the next key that is waited for"),
    ("!", "jump to the next problem"),
    ("/", "filter the lines; Esc clears the filter"),
    ("s", "sort locks: key, oldest, ends soonest, most waiters"),
    ("r", "release a key of your own"),
    ("f", "take a key by force, after a question"),
    ("Ctrl+L", "draw the screen again"),
    ("Ctrl+Z", "suspend"),
    ("?", "this help"),
    ("q, Ctrl+C", "quit"),
];

/// The state of the screen.
pub(super) struct Screen {
    pub(super) me: HolderId,
    /// The project, or the store.
    pub(super) place: String,
    pub(super) daemon: String,
    pub(super) now: Moment,
    pub(super) focus: Pane,
    pub(super) sort: Sort,
    pub(super) filter: String,
    pub(super) over: Over,
    pub(super) message: Option<String>,
    pub(super) lanes: Vec<Lane>,
    parts: Parts,
    /// Where things were drawn, for the mouse.
    pub(super) tabs: Vec<(Pane, Rect)>,
    pub(super) bodies: Vec<(Pane, Rect)>,
}

impl Screen {
    pub(super) fn new(me: HolderId, place: String, now: Moment) -> Self {
        Self {
            me,
            place,
            daemon: String::new(),
            now,
            focus: Pane::Locks,
            sort: Sort::default(),
            filter: String::new(),
            over: Over::Nothing,
            message: None,
            lanes: Vec::new(),
            parts: Parts::default(),
            tabs: Vec::new(),
            bodies: Vec::new(),
        }
    }

    /// Takes over what was read.
    pub(super) fn see(&mut self, feed: &Feed) {
        self.now = feed.now().clone();
        self.daemon = daemon_in_words(feed.daemon());
        self.lanes = rows::timeline(feed);
        let timeline = rows::lane_rows(&self.lanes);
        self.show([
            rows::locks(feed, &self.me, self.sort),
            rows::reservations(feed, &self.me),
            rows::tasks(feed),
            rows::history(feed),
            timeline,
        ]);
    }

    /// Takes over new tables. What was selected stays selected.
    fn show(&mut self, tables: [Table; 5]) {
        for (pane, table) in Pane::ALL.into_iter().zip(tables) {
            let selected = self.selected(pane).map(|row| row.id.clone());
            self.parts.get_mut(pane).table = table;
            self.apply_filter(pane, selected);
        }
    }

    pub(super) fn table(&self, pane: Pane) -> &Table {
        &self.parts.get(pane).table
    }

    pub(super) fn list(&self, pane: Pane) -> &List {
        &self.parts.get(pane).list
    }

    fn list_mut(&mut self, pane: Pane) -> &mut List {
        &mut self.parts.get_mut(pane).list
    }

    /// The selected row of a pane.
    pub(super) fn selected(&self, pane: Pane) -> Option<&Row> {
        let list = self.list(pane);
        let row = self
            .table(pane)
            .rows
            .get(*list.visible.get(list.selected)?)?;
        (!row.is_title).then_some(row)
    }

    /// The rows that are on the screen if `height` of them fit, with their place in the table. The selected one is
    /// among them.
    pub(super) fn window(&mut self, pane: Pane, height: usize) -> Vec<usize> {
        let list = self.list_mut(pane);
        list.height = height;
        let last = list.visible.len().saturating_sub(1);
        list.selected = list.selected.min(last);
        let lowest = (list.selected + 1).saturating_sub(height);
        list.offset = list.offset.clamp(lowest, list.selected.max(lowest));
        // No empty lines below if there are rows above.
        list.offset = list.offset.min(list.visible.len().saturating_sub(height));
        let rows = list.visible.iter().skip(list.offset).take(height);
        rows.copied().collect()
    }

    /// How long until something on the screen reads differently.
    pub(super) fn changes_in(&self) -> Option<Duration> {
        let mut soonest: Option<Duration> = None;
        for (pane, body) in &self.bodies {
            let list = self.list(*pane);
            let shown = list.visible.iter().skip(list.offset).take(list.height);
            let rows = shown.filter_map(|at| self.table(*pane).rows.get(*at));
            let cells = rows.flat_map(|row| &row.cells);
            let mut changes: Vec<Duration> = cells
                .filter_map(|cell| cell.changes_in(&self.now))
                .collect();
            if *pane == Pane::Timeline && self.lanes.iter().any(is_open) {
                // A bar grows by one column.
                let columns = u32::from(body.width.max(1));
                changes.push((self.period() / columns).max(Duration::from_secs(1)));
            }
            soonest = changes.into_iter().chain(soonest).min();
        }
        soonest
    }

    /// How long the period of the timeline is.
    fn period(&self) -> Duration {
        let begin = rows::timeline_begin(&self.lanes, self.now.wall);
        Duration::try_from(self.now.wall.duration_since(begin)).unwrap_or_default()
    }

    /// The locks and waiters in a few words.
    pub(super) fn counts(&self) -> String {
        let rows = &self.table(Pane::Locks).rows;
        let waiting = rows.iter().filter(|row| row.tone == Tone::Waiting).count();
        let problems = rows.iter().filter(|row| row.is_problem).count();
        let held = plural::count(self.table(Pane::Locks).count, "lock");
        let mut text = format!("{held}, {waiting} waiting");
        if problems > 0 {
            text = format!("{text}, {}", plural::count(problems, "problem"));
        }
        text
    }

    /// Shows the rows that pass the filter. The row with this id stays selected.
    fn apply_filter(&mut self, pane: Pane, selected: Option<String>) {
        let now = &self.now;
        let wanted = self.filter.to_lowercase();
        let table = self.table(pane);
        let passes = |row: &Row| {
            wanted.is_empty()
                || row.cells.iter().any(|cell| match cell {
                    Cell::Text(text) => text.to_lowercase().contains(&wanted),
                    other => other.at(now).contains(&wanted),
                })
        };
        let mut visible = Vec::new();
        let mut title = None;
        for (at, row) in table.rows.iter().enumerate() {
            if row.is_title {
                title = Some(at);
            } else if passes(row) {
                visible.extend(title.take());
                visible.push(at);
            }
        }
        let list = self.list_mut(pane);
        list.visible = visible;
        list.selected = list.selected.min(list.visible.len().saturating_sub(1));
        self.step(pane, 0);
        if let Some(id) = selected {
            self.select(pane, |row| row.id == id);
        }
    }

    /// Selects the first row for which this holds, and tells whether there is one.
    fn select(&mut self, pane: Pane, is_it: impl Fn(&Row) -> bool) -> bool {
        let rows = &self.table(pane).rows;
        let is_it = |at: &usize| rows.get(*at).is_some_and(|row| !row.is_title && is_it(row));
        let found = self.list(pane).visible.iter().position(is_it);
        if let Some(found) = found {
            self.list_mut(pane).selected = found;
        }
        found.is_some()
    }

    /// Moves the selection by so many rows, and off a title.
    fn step(&mut self, pane: Pane, by: isize) {
        let rows: Vec<bool> = {
            let table = self.table(pane);
            let visible = self.list(pane).visible.iter();
            visible
                .map(|at| table.rows.get(*at).is_some_and(|row| row.is_title))
                .collect()
        };
        let last = rows.len().saturating_sub(1);
        let from = self.list(pane).selected;
        let to = from.saturating_add_signed(by).min(last);
        let is_row = |at: &usize| rows.get(*at).is_some_and(|is_title| !is_title);
        let below = (to..rows.len()).find(is_row);
        let above = (0..=to).rev().find(is_row);
        let found = if by < 0 {
            above.or(below)
        } else {
            below.or(above)
        };
        self.list_mut(pane).selected = found.unwrap_or(0);
    }

    /// Selects the next row after the selected one for which this holds, from the top again after the last.
    fn jump(&mut self, what: &str, is_it: impl Fn(&Row) -> bool) {
        let pane = self.focus;
        let list = self.list(pane);
        let rows = &self.table(pane).rows;
        let many = list.visible.len();
        let found = (1..=many)
            .map(|by| (list.selected + by) % many.max(1))
            .find(|at| {
                let row = list.visible.get(*at).and_then(|at| rows.get(*at));
                row.is_some_and(|row| !row.is_title && is_it(row))
            });
        match found {
            Some(found) => self.list_mut(pane).selected = found,
            None => self.message = Some(format!("There is no {what} in this list.")),
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Effect {
        if key.kind == KeyEventKind::Release {
            return Effect::None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Effect::Quit,
                KeyCode::Char('z') => Effect::Suspend,
                KeyCode::Char('l') => Effect::Repaint,
                _ => Effect::None,
            };
        }
        self.message = None;
        match std::mem::replace(&mut self.over, Over::Nothing) {
            Over::Nothing => self.plain_key(key.code),
            Over::Filter(before) => {
                self.filter_key(key.code, before);
                Effect::None
            }
            Over::Question(intent) => {
                if let KeyCode::Char('y' | 'Y') = key.code {
                    return Effect::Do(intent);
                }
                self.message = Some("Nothing was changed.".to_owned());
                Effect::None
            }
            Over::Help | Over::Detail(_) => Effect::None,
        }
    }

    fn plain_key(&mut self, code: KeyCode) -> Effect {
        let pane = self.focus;
        let page = isize::try_from(self.list(pane).height.max(2) - 1).unwrap_or(1);
        match code {
            KeyCode::Char('q') => return Effect::Quit,
            KeyCode::Char('?') => self.over = Over::Help,
            KeyCode::Char(number @ '1'..='5') => {
                let at = usize::try_from(u32::from(number) - u32::from('1')).unwrap_or(0);
                self.focus = Pane::ALL.get(at).copied().unwrap_or(pane);
            }
            KeyCode::Tab => self.focus = next(pane, 1),
            KeyCode::BackTab => self.focus = next(pane, Pane::ALL.len() - 1),
            KeyCode::Down | KeyCode::Char('j') => self.step(pane, 1),
            KeyCode::Up | KeyCode::Char('k') => self.step(pane, -1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.step(pane, page),
            KeyCode::PageUp => self.step(pane, -page),
            KeyCode::Home | KeyCode::Char('g') => self.step(pane, isize::MIN + 1),
            KeyCode::End | KeyCode::Char('G') => self.step(pane, isize::MAX),
            KeyCode::Char('/') => self.over = Over::Filter(self.filter.clone()),
            KeyCode::Esc => self.set_filter(String::new()),
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.message = Some(format!("Locks are sorted: {}.", self.sort.word()));
                return Effect::Sort;
            }
            KeyCode::Char('w') => self.jump("key that is waited for", |row| row.is_waited_for),
            KeyCode::Char('!') => self.jump("problem", |row| row.is_problem),
            KeyCode::Char('l') => self.jump_to_lock(),
            KeyCode::Enter => {
                if let Some(row) = self.selected(pane).filter(|row| !row.detail.is_empty()) {
                    self.over = Over::Detail(row.detail.clone());
                }
            }
            KeyCode::Char('r') => return self.release(),
            KeyCode::Char('f') => self.force(),
            _ => {}
        }
        Effect::None
    }

    fn filter_key(&mut self, code: KeyCode, before: String) {
        let mut filter = self.filter.clone();
        match code {
            KeyCode::Enter => return,
            KeyCode::Esc => return self.set_filter(before),
            KeyCode::Backspace => {
                filter.pop();
            }
            KeyCode::Char(c) => filter.push(c),
            _ => {}
        }
        self.set_filter(filter);
        self.over = Over::Filter(before);
    }

    fn set_filter(&mut self, filter: String) {
        self.filter = filter;
        for pane in Pane::ALL {
            let selected = self.selected(pane).map(|row| row.id.clone());
            self.apply_filter(pane, selected);
        }
    }

    fn jump_to_lock(&mut self) {
        let Some(key) = self.selected(self.focus).and_then(|row| row.key.clone()) else {
            self.message = Some("This line is about no key.".to_owned());
            return;
        };
        if !self.filter.is_empty() {
            self.set_filter(String::new());
        }
        if self.select(Pane::Locks, |row| row.key.as_ref() == Some(&key)) {
            self.focus = Pane::Locks;
        } else {
            self.message = Some(format!("{} is free.", key.1));
        }
    }

    /// The lease of the selected line.
    fn target(&mut self) -> Option<Target> {
        let target = self.selected(self.focus).and_then(|row| row.target.clone());
        if target.is_none() {
            self.message = Some("Select a lease in Locks or Reservations first.".to_owned());
        }
        target
    }

    fn release(&mut self) -> Effect {
        let Some(target) = self.target() else {
            return Effect::None;
        };
        if !target.is_mine {
            self.message = Some(format!(
                "{} is held by {}, and you are {}: f takes it by force.",
                words::held_subject(&target.lease),
                target.lease.holder.id,
                self.me
            ));
            return Effect::None;
        }
        if target.lease.holder.binding.is_kept() {
            self.over = Over::Question(Intent::Release(target));
            return Effect::None;
        }
        Effect::Do(Intent::Release(target))
    }

    fn force(&mut self) {
        if let Some(target) = self.target() {
            self.over = Over::Question(Intent::Force(target));
        }
    }

    pub(super) fn mouse(&mut self, event: MouseEvent) -> Effect {
        let at = Position::new(event.column, event.row);
        let under = |places: &[(Pane, Rect)]| {
            let mut places = places.iter();
            places.find(|(_, area)| area.contains(at)).copied()
        };
        match event.kind {
            MouseEventKind::ScrollDown | MouseEventKind::ScrollUp => {
                let pane = under(&self.bodies).map_or(self.focus, |(pane, _)| pane);
                let down = event.kind == MouseEventKind::ScrollDown;
                self.step(pane, if down { 3 } else { -3 });
            }
            MouseEventKind::Down(MouseButton::Left) => {
                if matches!(self.over, Over::Help | Over::Detail(_)) {
                    self.over = Over::Nothing;
                } else if let Some((pane, _)) = under(&self.tabs) {
                    self.focus = pane;
                } else if let Some((pane, body)) = under(&self.bodies) {
                    self.focus = pane;
                    let list = self.list(pane);
                    let row = list.offset + usize::from(at.y.saturating_sub(body.y));
                    if row < list.visible.len() {
                        let again = row == list.selected;
                        self.list_mut(pane).selected = row;
                        self.step(pane, 0);
                        // A second click shows more.
                        if again {
                            return self.plain_key(KeyCode::Enter);
                        }
                    }
                }
            }
            _ => {}
        }
        Effect::None
    }
}

fn next(pane: Pane, by: usize) -> Pane {
    let at = Pane::ALL.iter().position(|known| *known == pane);
    let at = (at.unwrap_or(0) + by) % Pane::ALL.len();
    Pane::ALL.get(at).copied().unwrap_or(pane)
}

/// Whether a lane grows.
fn is_open(lane: &Lane) -> bool {
    !lane.waits.is_empty() || lane.spans.iter().any(|span| span.end.is_none())
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::Timestamp;
    use tenure::StoreUrl;
    use tenure::store::{Epoch, Holder, Key, Lease, Token};

    use super::*;

    pub(in super::super) fn key(c: char) -> KeyEvent {
        KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE)
    }

    fn now() -> Moment {
        Moment {
            wall: Timestamp::from_second(1_000_000).unwrap(),
            ticks: Duration::from_secs(1000),
            epoch: Epoch("here".into()),
        }
    }

    fn lease(key: Key, holder: &str, is_kept: bool) -> Lease {
        let binding = if is_kept {
            serde_json::json!({ "kind": "session", "session": "x" })
        } else {
            serde_json::json!({ "kind": "detached" })
        };
        Lease {
            key,
            holder: Holder {
                id: HolderId::parse(holder).unwrap(),
                binding: serde_json::from_value(binding).unwrap(),
                ..Holder::unreadable()
            },
            mode: tenure::Mode::Exclusive,
            slot: None,
            token: Token(1),
            acquired_at: Lease::UNKNOWN_TIME,
            expires: None,
            heartbeat_at: Lease::UNKNOWN_TIME,
            ttl: Duration::ZERO,
        }
    }

    /// A screen of `me` with these keys. Every other one is `me`'s, the third is a problem and waited for.
    pub(in super::super) fn screen(keys: &[&str]) -> Screen {
        let me = HolderId::parse("me").unwrap();
        let mut screen = Screen::new(me, "/project".into(), now());
        let mut rows = Vec::new();
        for (number, name) in keys.iter().enumerate() {
            let is_mine = number % 2 == 0;
            let holder = if is_mine { "me" } else { "other" };
            let cells = [name, holder, "1 make", "1s", "2m", "0", "alive"];
            let mut row = Row::new(
                format!("id {name}"),
                cells.map(|cell| Cell::Text(cell.to_owned())).into(),
            );
            let (store, key) = (StoreUrl::Memory, Key::parse(*name).unwrap());
            row.key = Some((store.clone(), key.clone()));
            row.detail = vec![format!("about {name}")];
            row.is_problem = number == 2;
            row.is_waited_for = number == 2;
            row.target = Some(Target {
                store,
                lease: lease(key, holder, number == 4),
                is_mine,
            });
            rows.push(row);
        }
        let table = Table {
            header: &[
                "KEY", "HOLDER", "PROCESS", "SINCE", "LEFT", "WAITING", "STATE",
            ],
            count: rows.len(),
            rows,
        };
        let empty = Table::default;
        screen.show([table, empty(), empty(), empty(), empty()]);
        screen
    }

    fn selected(screen: &Screen) -> &str {
        screen
            .selected(Pane::Locks)
            .map_or("", |row| row.id.as_str())
    }

    fn types(screen: &mut Screen, text: &str) -> Effect {
        text.chars().fold(Effect::None, |_, c| screen.key(key(c)))
    }

    #[test]
    fn the_selection_follows_its_line() {
        let mut screen = screen(&["a", "b", "c"]);
        types(&mut screen, "jj");
        assert_eq!(selected(&screen), "id c");
        let mut rows = screen.parts.locks.table.rows.clone();
        rows.reverse();
        let table = Table {
            rows,
            ..Table::default()
        };
        let empty = Table::default;
        screen.show([table, empty(), empty(), empty(), empty()]);
        assert_eq!(selected(&screen), "id c", "it is the first one now");
        screen.show([empty(), empty(), empty(), empty(), empty()]);
        assert_eq!(selected(&screen), "");
        types(&mut screen, "jkgGw!rfl");
    }

    #[test]
    fn a_filter_hides_lines_while_it_is_typed_and_escape_restores_it() {
        let mut screen = screen(&["alpha", "beta", "gamma"]);
        types(&mut screen, "/ALP");
        assert_eq!(screen.list(Pane::Locks).visible, [0]);
        screen.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
        assert_eq!(screen.over, Over::Nothing);
        types(&mut screen, "/x");
        assert!(screen.list(Pane::Locks).visible.is_empty());
        screen.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
        assert_eq!(screen.filter, "ALP", "the filter before");
        screen.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
        assert_eq!(screen.list(Pane::Locks).visible.len(), 3);
        assert_eq!(
            types(&mut screen, "/q"),
            Effect::None,
            "q is a letter of the filter"
        );
    }

    #[test]
    fn one_releases_ones_own_and_forces_only_after_a_yes() {
        let mut screen = screen(&["a", "b", "c", "d", "e"]);
        let is_release = |effect: &Effect, of: &str| matches!(effect, Effect::Do(Intent::Release(target)) if target.lease.key.as_str() == of);
        assert!(is_release(&types(&mut screen, "r"), "a"));
        assert_eq!(types(&mut screen, "jr"), Effect::None);
        assert!(screen.message.as_ref().unwrap().contains("held by other"));
        // A command runs under this one.
        assert_eq!(types(&mut screen, "Gr"), Effect::None);
        assert!(matches!(screen.over, Over::Question(Intent::Release(_))));
        assert!(is_release(&types(&mut screen, "y"), "e"));
        for no in ['n', 'q', ' '] {
            assert_eq!(types(&mut screen, "f"), Effect::None);
            assert_eq!(screen.key(key(no)), Effect::None);
        }
        let forced = types(&mut screen, "gfy");
        assert!(
            matches!(forced, Effect::Do(Intent::Force(target)) if target.lease.key.as_str() == "a")
        );
        screen.focus = Pane::Tasks;
        assert_eq!(types(&mut screen, "rf"), Effect::None);
        assert_eq!(screen.over, Over::Nothing);
    }

    #[test]
    fn jumps_go_on_from_the_selected_line_and_begin_again_at_the_top() {
        let mut screen = screen(&["a", "b", "c", "d"]);
        for jump in ["w", "!", "Gw", "!"] {
            types(&mut screen, jump);
            assert_eq!(selected(&screen), "id c", "{jump}");
        }
        types(&mut screen, "/d");
        screen.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
        types(&mut screen, "w");
        assert!(
            screen
                .message
                .as_ref()
                .unwrap()
                .contains("no key that is waited for")
        );
    }

    #[test]
    fn titles_are_skipped() {
        let mut screen = screen(&["a", "b"]);
        let mut rows = std::mem::take(&mut screen.parts.locks.table.rows);
        rows.insert(0, Row::title("one".into()));
        rows.insert(2, Row::title("two".into()));
        let table = Table {
            rows,
            ..Table::default()
        };
        let empty = Table::default;
        screen.show([table, empty(), empty(), empty(), empty()]);
        assert_eq!(selected(&screen), "id a");
        types(&mut screen, "j");
        assert_eq!(selected(&screen), "id b");
        types(&mut screen, "k");
        assert_eq!(selected(&screen), "id a");
        types(&mut screen, "kk");
        assert_eq!(selected(&screen), "id a");
        types(&mut screen, "/b");
        assert_eq!(screen.list(Pane::Locks).visible, [2, 3], "with its title");
    }
}
