//! The screen, drawn: [`draw`].
//!
//! A small screen shows one pane. A large one shows all of them at once, the focused one among them.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use tenure::text::flat;

use super::rows::{self, Bar, Row, Tone};
use super::screen::{Intent, KEYS, Over, Pane, Screen};
use crate::args::Global;
use crate::commands::timeline;
use crate::fit;
use crate::table::{self, GAP};
use crate::words;

/// From this size on, all panes are shown at once.
const LARGE: (u16, u16) = (100, 30);

/// The widest name of a lane.
const LANE_NAME: usize = 24;

/// Which colours the terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Colours {
    None,
    Sixteen,
    True,
}

impl Colours {
    /// What the user and the terminal want.
    pub(super) fn of(global: &Global) -> Self {
        let set = |name: &str| std::env::var(name).unwrap_or_default();
        if global.no_color || !set("NO_COLOR").is_empty() {
            Self::None
        } else if matches!(set("COLORTERM").as_str(), "truecolor" | "24bit") {
            Self::True
        } else {
            Self::Sixteen
        }
    }

    fn tone(self, tone: Tone) -> Style {
        let plain = Style::new();
        let (sixteen, exact, modifier) = match tone {
            Tone::Plain => return plain,
            Tone::Mine => (Color::Cyan, Color::Rgb(86, 182, 194), Modifier::BOLD),
            Tone::Waiting => (Color::Yellow, Color::Rgb(229, 192, 123), Modifier::empty()),
            Tone::Good => (Color::Green, Color::Rgb(152, 195, 121), Modifier::empty()),
            Tone::Doubtful => (Color::Magenta, Color::Rgb(198, 120, 221), Modifier::empty()),
            Tone::Bad => (Color::Red, Color::Rgb(224, 108, 117), Modifier::BOLD),
            Tone::Faint => (Color::DarkGray, Color::Rgb(127, 132, 142), Modifier::DIM),
        };
        match self {
            Self::None => plain.add_modifier(modifier),
            Self::Sixteen => plain.fg(sixteen),
            Self::True => plain.fg(exact),
        }
    }

    fn bar(self) -> Style {
        match self {
            Self::None => Style::new().add_modifier(Modifier::REVERSED),
            Self::Sixteen => Style::new().bg(Color::Blue).fg(Color::White),
            Self::True => Style::new()
                .bg(Color::Rgb(40, 60, 90))
                .fg(Color::Rgb(230, 230, 230)),
        }
    }
}

/// Draws the screen, and notes where things are for the mouse.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &mut Screen, colours: Colours) {
    screen.tabs.clear();
    screen.bodies.clear();
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, screen, colours);
    draw_tabs(frame, tabs, screen, colours);
    if body.width >= LARGE.0 && frame.area().height >= LARGE.1 {
        for (pane, area) in places(screen, body) {
            draw_pane(frame, area, screen, pane, colours, true);
        }
    } else {
        draw_pane(frame, body, screen, screen.focus, colours, false);
    }
    draw_foot(frame, foot, screen, colours);
    draw_over(frame, body, screen, colours);
}

/// Where the panes are on a large screen. One that has little to show leaves its room to the others.
fn places(screen: &Screen, area: Rect) -> [(Pane, Rect); 5] {
    let third = area.height / 3;
    let needs = |pane| {
        let rows = screen.list(pane).visible.len().max(1);
        // With its title and its header.
        u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2)
    };
    let middle = needs(Pane::Reservations).max(needs(Pane::Tasks)).min(third);
    let most = area.height - middle - third;
    let [locks, middle, below] = Layout::vertical([
        Constraint::Length(needs(Pane::Locks).min(most)),
        Constraint::Length(middle),
        Constraint::Min(0),
    ])
    .areas(area);
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(1);
    let ([paths, tasks], [history, lanes]) = (halves.areas(middle), halves.areas(below));
    [
        (Pane::Locks, locks),
        (Pane::Reservations, paths),
        (Pane::Tasks, tasks),
        (Pane::History, history),
        (Pane::Timeline, lanes),
    ]
}

fn columns(area: Rect) -> usize {
    usize::from(area.width)
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, screen: &Screen, colours: Colours) {
    let right = format!("{}   daemon: {}", screen.counts(), screen.daemon);
    let room = columns(area).saturating_sub(fit::width(&right) + 3);
    let left = format!(" tenure  {}", screen.place);
    let left = fit::filled(&fit::middle(&left, room), room);
    let line = fit::cut(&format!("{left}  {right}"), columns(area));
    let line = fit::filled(&line, columns(area));
    frame.render_widget(Line::styled(line, colours.bar()), area);
}

fn draw_tabs(frame: &mut Frame<'_>, area: Rect, screen: &mut Screen, colours: Colours) {
    let mut x = area.x;
    for (number, pane) in (1..).zip(Pane::ALL) {
        let text = format!(" {number} {} {} ", pane.title(), screen.table(pane).count);
        let width = u16::try_from(fit::width(&text)).unwrap_or(u16::MAX);
        let place = Rect::new(x, area.y, width, 1).intersection(area);
        let style = if pane == screen.focus {
            colours.bar().add_modifier(Modifier::BOLD)
        } else {
            Style::new()
        };
        frame.render_widget(Line::styled(text, style), place);
        screen.tabs.push((pane, place));
        x = x.saturating_add(width);
    }
    let sort = format!("sort: {} ", screen.sort.word());
    let width = u16::try_from(fit::width(&sort)).unwrap_or(u16::MAX);
    if x.saturating_add(width) <= area.right() {
        let place = Rect::new(area.right() - width, area.y, width, 1);
        frame.render_widget(Line::styled(sort, colours.tone(Tone::Faint)), place);
    }
}

fn draw_foot(frame: &mut Frame<'_>, area: Rect, screen: &Screen, colours: Colours) {
    let line = match (&screen.over, &screen.message) {
        (Over::Filter(_), _) => Line::from(format!("/{}█", screen.filter)),
        (_, Some(message)) => {
            let text = fit::cut(&flat(message), columns(area));
            Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
        }
        _ if !screen.filter.is_empty() => Line::from(format!(
            "filter: {} (Esc clears)  ? help  q quit",
            screen.filter
        )),
        _ => Line::styled(
            "? help  q quit  / filter  s sort  Enter details  r release  f force",
            colours.tone(Tone::Faint),
        ),
    };
    frame.render_widget(line, area);
}

fn draw_pane(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &mut Screen,
    pane: Pane,
    colours: Colours,
    titled: bool,
) {
    let [title, header, body] = Layout::vertical([
        Constraint::Length(u16::from(titled)),
        Constraint::Length(1),
        Constraint::Min(0),
    ])
    .areas(area);
    if titled {
        let text = format!(" {} {}", pane.title(), screen.table(pane).count);
        let style = if pane == screen.focus {
            colours.bar().add_modifier(Modifier::BOLD)
        } else {
            Style::new().add_modifier(Modifier::UNDERLINED)
        };
        let text = fit::filled(&fit::cut(&text, columns(area)), columns(area));
        frame.render_widget(Line::styled(text, style), title);
    }
    screen.bodies.push((pane, body));
    let shown = screen.window(pane, usize::from(body.height));
    if pane == Pane::Timeline {
        draw_lanes(frame, header, body, screen, &shown, colours);
        return;
    }
    let table = screen.table(pane);
    let rows: Vec<&Row> = shown.iter().filter_map(|at| table.rows.get(*at)).collect();
    let cells = |row: &&Row| -> Vec<String> {
        let cells = row.cells.iter();
        cells.map(|cell| flat(&cell.at(&screen.now))).collect()
    };
    let cells: Vec<Vec<String>> = rows.iter().map(cells).collect();
    if rows.is_empty() {
        let text = match (screen.filter.is_empty(), pane) {
            (false, _) => "Nothing passes the filter.",
            (true, Pane::Locks) => "No locks.",
            (true, Pane::Reservations) => "No reservations.",
            (true, Pane::Tasks) => "No tasks.",
            (true, _) => "No events yet.",
        };
        frame.render_widget(Line::styled(text, colours.tone(Tone::Faint)), body);
        return;
    }
    let names = table.header;
    let widths = table::widths(names, &cells, columns(area));
    let heading: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let faint = colours.tone(Tone::Faint).add_modifier(Modifier::BOLD);
    let heading = table::line(names, &heading, &widths);
    frame.render_widget(Line::styled(heading, faint), header);
    let selected = screen.selected(pane).map(|row| row.id.as_str());
    for ((row, cells), place) in rows.iter().zip(&cells).zip(body.rows()) {
        let text = match cells.as_slice() {
            [title] => title.clone(),
            cells => table::line(names, cells, &widths),
        };
        let text = fit::filled(&fit::cut(&text, columns(area)), columns(area));
        let mut style = colours.tone(row.tone);
        if selected == Some(row.id.as_str()) && pane == screen.focus {
            style = style.add_modifier(Modifier::REVERSED);
        }
        frame.render_widget(Line::styled(text, style), place);
    }
}

fn draw_lanes(
    frame: &mut Frame<'_>,
    header: Rect,
    body: Rect,
    screen: &Screen,
    shown: &[usize],
    colours: Colours,
) {
    let to = screen.now.wall;
    let from = rows::timeline_begin(&screen.lanes, to);
    let table = screen.table(Pane::Timeline);
    let names = table.rows.iter().flat_map(|row| &row.cells);
    let name = names.map(|cell| fit::width(&cell.at(&screen.now))).max();
    let name = name.unwrap_or(0).min(LANE_NAME).min(columns(body) / 3);
    let width = columns(body).saturating_sub(name + GAP);
    if shown.is_empty() {
        let text = "Nothing was held in the last hour.";
        frame.render_widget(Line::styled(text, colours.tone(Tone::Faint)), body);
        return;
    }
    let (begin, end) = (timeline::clock(from), timeline::clock(to));
    let gap = width.saturating_sub(begin.len() + end.len());
    let scale = format!("{}{begin}{}{end}", " ".repeat(name + GAP), " ".repeat(gap));
    frame.render_widget(
        Line::styled(fit::cut(&scale, columns(header)), colours.tone(Tone::Faint)),
        header,
    );
    let selected = screen.selected(Pane::Timeline).map(|row| row.id.as_str());
    for (at, place) in shown.iter().zip(body.rows()) {
        let Some(row) = table.rows.get(*at) else {
            continue;
        };
        let cell = row
            .cells
            .first()
            .map_or_else(String::new, |cell| cell.at(&screen.now));
        let label = fit::filled(&fit::middle(&flat(&cell), name), name + GAP);
        let mut style = Style::new();
        if selected == Some(row.id.as_str()) && screen.focus == Pane::Timeline {
            style = style.add_modifier(Modifier::REVERSED);
        }
        let mut spans = vec![Span::styled(label, style)];
        match row.bar {
            Some(Bar::Grants(lane)) => {
                let bar = screen.lanes.get(lane);
                let bar = bar.map_or_else(String::new, |lane| timeline::bar(lane, from, to, width));
                spans.extend(bar.chars().map(|cell| {
                    let tone = match cell {
                        '█' | '▒' => Tone::Good,
                        '✗' => Tone::Bad,
                        '░' => Tone::Waiting,
                        _ => Tone::Faint,
                    };
                    Span::styled(cell.to_string(), colours.tone(tone))
                }));
            }
            Some(Bar::Wait(since)) => {
                let bar = timeline::wait_bar(since, from, to, width);
                spans.push(Span::styled(bar, colours.tone(Tone::Waiting)));
            }
            None => {}
        }
        frame.render_widget(Line::from(spans), place);
    }
}

fn draw_over(frame: &mut Frame<'_>, area: Rect, screen: &Screen, colours: Colours) {
    let (title, lines) = match &screen.over {
        Over::Nothing | Over::Filter(_) => return,
        Over::Help => {
            let keys = KEYS.iter().map(|(keys, what)| format!("{keys:<16}{what}"));
            let mouse = "Mouse           select, scroll, click twice for details";
            let you = format!("You are {}.", screen.me);
            let lines = keys.chain([mouse.to_owned(), String::new(), you]);
            (" Keys ", lines.collect())
        }
        Over::Detail(lines) => (" Details ", lines.clone()),
        Over::Question(intent) => (" Sure? ", question(intent)),
    };
    let widest = lines.iter().map(|line| fit::width(line)).max().unwrap_or(0) + 4;
    let width = u16::try_from(widest).unwrap_or(u16::MAX).min(area.width);
    let inner = usize::from(width.saturating_sub(4).max(1));
    let high: usize = lines
        .iter()
        .map(|line| fit::width(line).div_ceil(inner).max(1))
        .sum();
    let height = u16::try_from(high + 2).unwrap_or(u16::MAX).min(area.height);
    let place = Rect::new(
        area.x + (area.width - width) / 2,
        area.y + (area.height - height) / 2,
        width,
        height,
    );
    let block = Block::bordered()
        .title(title)
        .border_style(colours.tone(Tone::Waiting))
        .padding(ratatui::widgets::Padding::horizontal(1));
    let lines: Vec<Line<'_>> = lines.iter().map(|line| Line::from(flat(line))).collect();
    frame.render_widget(Clear, place);
    let text = Paragraph::new(lines)
        .block(block)
        .wrap(Wrap { trim: false });
    frame.render_widget(text, place);
}

fn question(intent: &Intent) -> Vec<String> {
    let (Intent::Release(target) | Intent::Force(target)) = intent;
    let lease = &target.lease;
    let what = words::held_subject(lease);
    let mut lines = vec![match intent {
        Intent::Release(_) => format!("Release {what} while its command runs?"),
        Intent::Force(_) => format!("End the lease of {} on {what}?", lease.holder.id),
    }];
    // A reservation has a reason in its place.
    let command = lease.holder.command.as_ref();
    if let Some(command) = command.filter(|_| lease.mode.paths().is_none()) {
        lines.push(format!("It runs: {command}"));
    }
    if matches!(intent, Intent::Force(_)) {
        lines
            .push("A command of tenure run is stopped. Any other holder may go on working.".into());
        lines.push("It is recorded.".into());
    }
    lines.push(String::new());
    lines.push("y: yes   any other key: no".to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::screen::tests::{key, screen};
    use super::*;

    fn drawn(screen: &mut Screen, width: u16, height: u16, colours: Colours) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, screen, colours)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        buffer
            .content()
            .chunks(usize::from(width).max(1))
            .map(|line| line.iter().map(|cell| cell.symbol()).collect())
            .collect()
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        let mut screen = screen(&["build", "deploy", "日本語のとても長い鍵の名前"]);
        for (width, height) in [
            (0, 0),
            (1, 1),
            (3, 2),
            (20, 5),
            (80, 24),
            (139, 60),
            (200, 60),
        ] {
            for over in [
                Over::Nothing,
                Over::Help,
                Over::Detail(vec!["x".repeat(300)]),
            ] {
                screen.over = over;
                for colours in [Colours::None, Colours::Sixteen, Colours::True] {
                    drawn(&mut screen, width, height, colours);
                }
            }
        }
    }

    #[test]
    fn the_selected_line_stays_on_the_screen() {
        let keys: Vec<String> = (0..100).map(|number| format!("k{number:02}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let mut screen = screen(&keys);
        let shows = |screen: &mut Screen, text: &str| {
            let lines = drawn(screen, 80, 24, Colours::None);
            lines.iter().any(|line| line.starts_with(text))
        };
        assert!(shows(&mut screen, "k00") && shows(&mut screen, "k19"));
        assert!(!shows(&mut screen, "k20"));
        screen.key(key('G'));
        assert!(shows(&mut screen, "k99") && shows(&mut screen, "k80"));
        screen.key(key('k'));
        assert!(shows(&mut screen, "k99"), "it scrolls only if it must");
        screen.key(key('g'));
        assert!(shows(&mut screen, "k00"));
    }

    #[test]
    fn names_are_shortened_before_the_line_is_cut() {
        let long = "a-very-long-key-".repeat(8);
        let mut screen = screen(&[&long]);
        let lines = drawn(&mut screen, 60, 24, Colours::None);
        assert!(
            lines[3].contains('…') && lines[3].contains("alive"),
            "{}",
            lines[3]
        );
    }
}
