//! The terminal of the screen: entered, left on every exit, and its input.
//!
//! 1. However this process ends, the terminal is left as it was: on return, on an error, on a panic, and on a signal
//!    that ends or stops the process. (SIGKILL can't be caught.) A panic of another thread than the one that draws ends
//!    the process, which would otherwise go on without a screen.
//! 2. A signal is handled by a thread of its own, so that it does not wait for a store that is slow to answer. Nothing
//!    is drawn after the terminal was left: who draws has [`DRAWING`].
//! 3. Input is read by a thread that blocks, so that an idle screen costs nothing.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{self, DisableMouseCapture, EnableMouseCapture, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;
use tenure_host::signal::is_ignored;

use crate::signals::stop_here;

/// Whether the terminal is the screen's.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Held by the thread that writes to the terminal.
static DRAWING: Mutex<()> = Mutex::new(());

/// How long a signal waits for a drawing to end: the terminal may not take any more output.
const PATIENCE: Duration = Duration::from_millis(10);
const ATTEMPTS: usize = 50;

/// The exit code of a panic, as Rust has it.
const PANICKED: i32 = 101;

/// Something for the screen.
#[derive(Debug)]
pub(super) enum Input {
    Event(Event),
    /// The size changed, or the screen has to be drawn again.
    Repaint,
    /// There is no more input: the terminal is gone.
    End,
}

/// The terminal while it shows the screen.
pub(super) struct Terminal {
    screen: ratatui::Terminal<CrosstermBackend<io::Stdout>>,
    inputs: Receiver<Input>,
    ready: UnixStream,
}

/// Sends input to the loop, and wakes it up.
#[derive(Debug)]
struct Inbox {
    inputs: Sender<Input>,
    wake: UnixStream,
}

impl Inbox {
    fn send(&self, input: Input) {
        let _ = self.inputs.send(input);
        let _ = (&self.wake).write(b"!");
    }
}

impl Terminal {
    /// Enters the terminal, and listens to it and to signals.
    pub(super) fn enter() -> io::Result<Self> {
        let (send, inputs) = channel();
        let (ready, wake) = UnixStream::pair()?;
        ready.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        let for_signals = Inbox {
            inputs: send.clone(),
            wake: wake.try_clone()?,
        };
        let inbox = Inbox { inputs: send, wake };
        let end = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP];
        let caught = end.into_iter().filter(|signal| !is_ignored(*signal));
        let mut signals = Signals::new(caught.chain([SIGWINCH, SIGCONT]))?;
        leave_on_panic();
        let screen = ratatui::Terminal::new(CrosstermBackend::new(io::stdout()))?;
        // What is done from here on is undone by `drop`.
        let terminal = Self {
            screen,
            inputs,
            ready,
        };
        enter()?;
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    handle(signal, &for_signals);
                }
            })?;
        std::thread::Builder::new()
            .name("input".into())
            .spawn(move || {
                while let Ok(event) = event::read() {
                    inbox.send(Input::Event(event));
                }
                inbox.send(Input::End);
            })?;
        Ok(terminal)
    }

    /// Draws the screen, or all of it again.
    pub(super) fn draw(
        &mut self,
        again: bool,
        draw: impl FnOnce(&mut ratatui::Frame<'_>),
    ) -> io::Result<()> {
        let _drawing = drawing();
        if !ENTERED.load(Ordering::SeqCst) {
            return Ok(());
        }
        if again {
            // `clear` would ask the terminal where its cursor is, and the answer goes to the thread that reads.
            let size = self.screen.size()?;
            self.screen
                .resize(Rect::new(0, 0, size.width, size.height))?;
        }
        self.screen.draw(draw)?;
        Ok(())
    }

    /// The input since the last call.
    pub(super) fn inputs(&mut self) -> Vec<Input> {
        let mut bytes = [0; 64];
        while io::Read::read(&mut self.ready, &mut bytes).is_ok_and(|read| read > 0) {}
        self.inputs.try_iter().collect()
    }

    /// Stops this process until it is continued.
    pub(super) fn suspend() {
        let _drawing = drawing();
        leave();
        stop_here();
        let _ = enter();
    }
}

impl AsFd for Terminal {
    /// Readable when there is input.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _drawing = drawing();
        leave();
    }
}

fn drawing() -> MutexGuard<'static, ()> {
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn enter() -> io::Result<()> {
    ENTERED.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture, Hide)
}

/// Leaves the terminal as it was. Does nothing if that was done already.
fn leave() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let _ = execute!(
            io::stdout(),
            DisableMouseCapture,
            LeaveAlternateScreen,
            Show
        );
        let _ = disable_raw_mode();
    }
}

/// A panic is reported on the terminal as it was, and ends this process.
fn leave_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = std::panic::take_hook();
        let draws = std::thread::current().id();
        std::panic::set_hook(Box::new(move |panic| {
            let was_entered = ENTERED.load(Ordering::SeqCst);
            leave();
            report(panic);
            if was_entered && std::thread::current().id() != draws {
                std::process::exit(PANICKED);
            }
        }));
    });
}

fn handle(signal: i32, inbox: &Inbox) {
    match signal {
        SIGWINCH => {}
        SIGTSTP => Terminal::suspend(),
        // A shell may have used the terminal meanwhile.
        SIGCONT => {
            let _drawing = drawing();
            if ENTERED.load(Ordering::SeqCst) {
                let _ = enter();
            }
        }
        end => {
            let _drawing = (0..ATTEMPTS).find_map(|_| match DRAWING.try_lock() {
                Ok(drawing) => Some(drawing),
                Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(std::sync::TryLockError::WouldBlock) => {
                    std::thread::sleep(PATIENCE);
                    None
                }
            });
            leave();
            let _ = signal_hook::low_level::emulate_default_handler(end);
            // It was to end this process, and could not.
            std::process::exit(128 + end);
        }
    }
    inbox.send(Input::Repaint);
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Says to the test that runs again on a terminal where it is to panic.
    const WHERE: &str = "TENURE_TEST_PANIC_IN";

    /// Enters the terminal and panics; on the terminal only.
    fn panic_in(place: &str) {
        let mut terminal = Terminal::enter().unwrap();
        terminal
            .draw(false, |frame| {
                frame.render_widget("the screen", frame.area());
            })
            .unwrap();
        match place {
            "drawing" => terminal.draw(false, |_| panic!("while it draws")).unwrap(),
            "the loop" => panic!("between two drawings"),
            _ => {
                let other = std::thread::spawn(|| panic!("in another thread"));
                let _ = other.join();
                panic!("it goes on without a screen");
            }
        }
    }

    /// script(1) makes the terminal and runs this test again on it.
    #[test]
    fn a_panic_leaves_the_terminal_clean_and_its_message_readable() {
        if let Ok(place) = std::env::var(WHERE) {
            return panic_in(&place);
        }
        let this = std::env::current_exe().unwrap();
        let name = "a_panic_leaves_the_terminal_clean_and_its_message_readable";
        for (place, message) in [
            ("drawing", "while it draws"),
            ("the loop", "between two drawings"),
            ("a thread", "in another thread"),
        ] {
            let line = format!(
                "stty -a > before; \"$THIS\" {name} --nocapture --test-threads=1; code=$?; \
                 stty -a > after; exit $code"
            );
            let dir = tempfile::tempdir().unwrap();
            let said = Command::new("script")
                .args(["--quiet", "--return", "--command", &line, "/dev/null"])
                .current_dir(dir.path())
                .env("SHELL", "/bin/sh")
                .env("TERM", "xterm")
                .env("THIS", &this)
                .env(WHERE, place)
                .stdin(std::process::Stdio::null())
                .output()
                .unwrap();
            let out = String::from_utf8_lossy(&said.stdout).into_owned();
            assert_eq!(said.status.code(), Some(PANICKED), "{place}: {out:?}");
            let read = |file| std::fs::read_to_string(dir.path().join(file)).unwrap();
            assert!(read("before").contains("icanon"), "{}", read("before"));
            assert_eq!(read("before"), read("after"), "{place}: raw mode is left");
            let shown = out.find("\x1b[?1049h").and_then(|at| out.get(at..));
            let shown = shown.unwrap_or_else(|| panic!("{place}: {out:?}"));
            let (before, _) = shown.split_once(message).unwrap_or_default();
            for undone in ["\x1b[?1049l", "\x1b[?25h", "\x1b[?1000l"] {
                assert!(before.contains(undone), "{place}, {undone:?}: {out:?}");
            }
            assert!(!out.contains("without a screen"), "{place}: {out:?}");
        }
    }
}
