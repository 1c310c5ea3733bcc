//! The command to run: [`Program`], looked up before anything is locked for it.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use tenure::wire::ErrorCode;
use tenure_host::vfork::Exec;

use crate::answer::Failure;
use crate::words;

/// A command and its arguments.
pub(crate) struct Program<'a> {
    path: PathBuf,
    name: &'a OsStr,
    words: &'a [OsString],
}

impl<'a> Program<'a> {
    /// Looks the command up before the key is requested, so that a typing error is reported at once
    /// and not after the wait. `example` is a correct command line.
    pub(crate) fn find(words: &'a [OsString], example: &str) -> Result<Self, Failure> {
        let name = words.first().ok_or_else(|| {
            let message = format!("no command after --: for example {example}");
            Failure::new(ErrorCode::Usage, message)
        })?;
        Ok(Self {
            path: find_program(name)?,
            name,
            words,
        })
    }

    /// The command, ready to be started.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(self.name).args(self.words.iter().skip(1));
        command
    }

    /// The same, with standard input, output and error of tenure itself.
    pub(crate) fn exec(&self, environment: &[(&str, String)]) -> std::io::Result<Exec> {
        let words = self.words.iter().map(OsString::as_os_str);
        Exec::new(&self.path, words, environment)
    }

    /// The command as a person would type it, cut to one line.
    pub(crate) fn shown(&self) -> String {
        let words = self.words.iter();
        let words = words.map(|word| words::quoted(&word.to_string_lossy()));
        let text = words.collect::<Vec<_>>().join(" ");
        if text.chars().count() <= 120 {
            return text;
        }
        text.chars().take(119).chain(['…']).collect()
    }

    /// Why the command could not be started.
    pub(crate) fn not_started(&self, error: std::io::Error) -> Failure {
        match error.kind() {
            // The program itself was found before, so its interpreter is missing.
            std::io::ErrorKind::NotFound => {
                let why = "the interpreter that its first line names does not exist";
                not_executable(self.name, why)
            }
            std::io::ErrorKind::PermissionDenied => not_executable(self.name, &error.to_string()),
            _ if error.raw_os_error() == Some(libc::ENOEXEC) => {
                not_executable(self.name, &error.to_string())
            }
            _ => error.into(),
        }
    }
}

/// Looks for the program where `exec` would.
pub(crate) fn find_program(program: &OsStr) -> Result<PathBuf, Failure> {
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
        Some(path) => not_executable(program, &format!("{} has no x permission", path.display())),
        None => no_program(program),
    })
}

fn no_program(program: &OsStr) -> Failure {
    let message = format!(
        "{}: no such command: check its name and your PATH; nothing was locked",
        program.to_string_lossy()
    );
    Failure::new(ErrorCode::CommandNotFound, message)
}

fn not_executable(program: &OsStr, why: &str) -> Failure {
    let message = format!(
        "{}: cannot be executed ({why}): make it executable with chmod +x, or run it with its interpreter",
        program.to_string_lossy()
    );
    Failure::new(ErrorCode::CommandNotExecutable, message)
}
