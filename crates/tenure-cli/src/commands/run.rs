//! `tenure run`: a command while holding a key.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;
use tenure::core::Released;
use tenure::host::Tied;
use tenure::{Held, Loss, Tenure};

use crate::answer::{Answer, Failure, complain};
use crate::args::{Global, Run};
use crate::context;
use crate::exit::Exit;
use crate::signals::Signals;
use crate::supervise::{Ended, supervise};
use crate::terminal::Terminal;
use crate::waiting;
use crate::words;

pub(crate) fn run(global: &Global, run: &Run) -> Result<Answer, Failure> {
    let (program, arguments) = run.command.split_first().ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            "USAGE",
            "no command after --: for example tenure run build -- make all",
        )
    })?;
    // Before anything is asked for: nobody should wait half an hour for a typing error.
    let path = find_program(program)?;
    let tenure = context::open(global)?;
    let ask =
        waiting::prepare(global, &tenure, &run.key, &run.asking)?.command(shown(&run.command));
    let mut signals = Signals::catch().map_err(broken)?;
    let mut held = waiting::acquire(global, &tenure, &run.key, ask, &mut signals)?;

    let mut command = std::process::Command::new(path);
    command
        .arg0(program)
        .args(arguments)
        .envs(context::environment(global, &tenure, held.lease()));
    let terminal = Terminal::find();
    let lent = terminal.filter(|terminal| terminal.is_for_us_alone());
    let lent = lent.as_ref().map(Terminal::as_fd);
    let tied = match Tied::spawn(&mut command, tenure.store().heirloom(), lent) {
        Ok(tied) => tied,
        Err(error) => {
            let failure = not_started(program, error);
            let _freed = held.release()?;
            return Err(failure);
        }
    };
    let (lost, tell) = {
        let lost = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| broken(error.into()))?;
        let tell = lost.try_clone().map_err(broken)?;
        (lost, tell)
    };
    // A command of a few milliseconds needs no thread that renews its lease: what happens to the
    // lease meanwhile is seen when it is given back.
    let keep_alive = || {
        held.keep_alive(move || {
            let _ = rustix::io::write(&tell, &1u64.to_ne_bytes());
        });
    };
    let grace = tenure.config().run.kill_grace;
    let ended =
        supervise(&tied, &mut signals, terminal, &lost, grace, keep_alive).map_err(broken)?;
    tied.untie();
    let exit = finish(&tenure, held, ended)?;
    if ended.had_terminal {
        like_the_terminal(ended);
    }
    Ok(Answer::silent(exit))
}

/// Gives the key back and says what the whole ends with.
fn finish(tenure: &Tenure, held: Held, ended: Ended) -> Result<Exit, Failure> {
    let key = held.key().clone();
    let token = held.token();
    let loss = held.take_loss();
    let loss = match (loss, held.release()) {
        (Some(loss), _) => Some(loss),
        (None, Ok(Released::AlreadyGone(by))) => Some(Loss::Taken(by)),
        (None, Ok(Released::Freed(_))) => None,
        (None, Err(error)) => {
            // It ends with this process all the same, which others can prove.
            complain(&format!("{key} could not be given back in order: {error}"));
            None
        }
    };
    let Some(loss) = loss else {
        let code = ended.status.code();
        return Ok(code.map_or_else(
            || Exit::signal(ended.status.signal().unwrap_or(0)),
            Exit::Other,
        ));
    };
    let stopped = if ended.lost {
        "; its command was stopped"
    } else {
        "; its command had just ended"
    };
    let why = match &loss {
        Loss::Taken(Some(by)) => format!(
            "{} has it now, with token {}",
            words::held(&tenure.clock().now(), by),
            by.token
        ),
        Loss::Taken(None) => {
            format!(
                "it was taken away (tenure locks history {} tells by whom)",
                words::quoted(key.as_str())
            )
        }
        Loss::Unrenewed(error) => format!("it could not be renewed: {error}"),
    };
    let by = match &loss {
        Loss::Taken(by) => by.as_ref().map(|by| by.holder.id.as_str().to_owned()),
        Loss::Unrenewed(_) => None,
    };
    Err(Failure::new(
        Exit::Lost,
        "LEASE_LOST",
        format!("the lease on {key} (token {token}) was lost: {why}{stopped}"),
    )
    .details(serde_json::json!({ "key": key, "token": token, "lockedBy": by })))
}

/// A command that Ctrl+C or Ctrl+\ ended on a terminal that we lent it: the shell around us must
/// hear of it too, or a script would go on as if nothing had been typed.
fn like_the_terminal(ended: Ended) {
    let Some(signal) = ended.status.signal() else {
        return;
    };
    let Some(named) = Signal::from_named_raw(signal) else {
        return;
    };
    if !ended.lost && (named == Signal::INT || named == Signal::QUIT) {
        Terminal::pass_on(named);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

/// The command as people would type it, cut to what fits a line.
fn shown(command: &[OsString]) -> String {
    let words = command
        .iter()
        .map(|word| words::quoted(&word.to_string_lossy()));
    let text = words
        .collect::<Vec<_>>()
        .join(" ")
        .replace(char::is_control, " ");
    if text.chars().count() <= 120 {
        return text;
    }
    text.chars().take(119).chain(['…']).collect()
}

/// Looks for the program where exec would.
fn find_program(program: &OsStr) -> Result<PathBuf, Failure> {
    let candidates: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![PathBuf::from(program)]
    } else {
        let path =
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .collect()
    };
    let runs = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.is_empty() {
        return Err(no_program(program));
    }
    if let Some(found) = candidates.iter().find(|path| runs(path)) {
        return Ok(found.clone());
    }
    Err(match candidates.iter().find(|path| path.exists()) {
        Some(path) => not_executable(program, &format!("{} may not be executed", path.display())),
        None => no_program(program),
    })
}

fn no_program(program: &OsStr) -> Failure {
    Failure::new(
        Exit::Other(127),
        "COMMAND_NOT_FOUND",
        format!(
            "{}: no such command: check its name and your PATH; nothing was locked",
            program.to_string_lossy()
        ),
    )
}

fn not_executable(program: &OsStr, why: &str) -> Failure {
    Failure::new(
        Exit::Other(126),
        "COMMAND_NOT_EXECUTABLE",
        format!(
            "{}: can't be executed ({why}): make it executable with chmod +x, or run it with its interpreter",
            program.to_string_lossy()
        ),
    )
}

fn not_started(program: &OsStr, error: std::io::Error) -> Failure {
    match error.kind() {
        // The program was there a moment ago: what is missing is the one on its first line.
        std::io::ErrorKind::NotFound => not_executable(
            program,
            "the interpreter that its first line names does not exist",
        ),
        std::io::ErrorKind::PermissionDenied => not_executable(program, &error.to_string()),
        _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
            not_executable(program, &error.to_string())
        }
        _ => broken(error),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
fn broken(error: std::io::Error) -> Failure {
    Failure::new(Exit::Runtime, "IO", format!("the system refused ({error})"))
}
