//! Pid files: a tool writes the pid of its process, and removes the file when it ends.

use std::io::Read;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tenure::wire::{Connection, ForeignProcessJson};
use tenure_host::files::beneath::open;
use tenure_host::identity;

use super::{Candidate, ForeignVerdict, Tool};
use crate::processes::Processes;
use crate::scan;

/// Where tools put them, seen from the root.
const FOLDERS: [&str; 6] = ["", ".beads", "tmp/pids", "run", "var/run", ".pids"];

/// How much of a file is read.
const MOST_BYTES: u64 = 256;

pub(super) fn candidates(root: &Path, found: &mut Vec<Candidate>, left_out: &mut Vec<String>) {
    for folder in FOLDERS {
        let files = scan::entries(&root.join(folder), "pid files", left_out)
            .into_iter()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "pid"));
        for path in files {
            found.extend(Candidate::at(Tool::PidFile, path, left_out));
        }
    }
}

pub(super) fn judge(
    file: &Candidate,
    processes: &Processes,
) -> (ForeignVerdict, Vec<ForeignProcessJson>) {
    let mut text = Vec::new();
    let read = open(&file.path, OFlags::RDONLY, Mode::empty())
        .and_then(|open| open.take(MOST_BYTES).read_to_end(&mut text));
    if let Err(error) = read {
        return (
            ForeignVerdict::Unknown(format!("it can't be read ({})", error.kind())),
            Vec::new(),
        );
    }
    let (pid, host) = match parse(&text) {
        Ok(named) => named,
        Err(why) => return (ForeignVerdict::Malformed(why), Vec::new()),
    };
    let named = |command: Option<String>| {
        vec![ForeignProcessJson {
            pid,
            command,
            how: Connection::Named,
        }]
    };
    if let Some(host) = host.filter(|host| host != identity::host()) {
        let why = format!("it names pid {pid} on another machine, {host}");
        return (ForeignVerdict::Unknown(why), named(None));
    }
    match identity::start_time(pid) {
        Ok(None) => {
            let why = format!("pid {pid} has exited");
            let verdict = if processes.are_all() {
                ForeignVerdict::Dead(why)
            } else {
                ForeignVerdict::Unknown(format!(
                    "no process that is seen here has pid {pid}, but not all processes can be seen"
                ))
            };
            (verdict, named(None))
        }
        Ok(Some(_)) => {
            let seen = processes.with_pid(pid);
            let reused = seen
                .zip(file.since)
                .is_some_and(|(seen, since)| !seen.may_have_made(since));
            if reused {
                let why = format!(
                    "pid {pid} is another process now: it started after the file was written"
                );
                return (ForeignVerdict::Dead(why), named(None));
            }
            let command = seen.map(|seen| seen.command.clone());
            (
                ForeignVerdict::Alive(format!("pid {pid} runs")),
                named(command),
            )
        }
        Err(error) => (
            ForeignVerdict::Unknown(format!("pid {pid} can't be examined ({error})")),
            named(None),
        ),
    }
}

/// The pid, and the machine if the file names one: `4711`, or `4711 host` as git writes it.
fn parse(text: &[u8]) -> Result<(u32, Option<String>), String> {
    let begin = text
        .iter()
        .position(|byte| !byte.is_ascii_whitespace())
        .ok_or_else(|| "it is empty".to_owned())?;
    let rest = text.get(begin..).unwrap_or_default();
    let digits = rest
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(rest.len());
    let (number, after) = rest.split_at(digits);
    let pid = std::str::from_utf8(number)
        .ok()
        .and_then(|number| number.parse().ok())
        .filter(|pid| *pid > 0);
    let Some(pid) = pid else {
        return Err(format!("no pid at byte {begin}"));
    };
    match after.first() {
        None => Ok((pid, None)),
        Some(byte) if byte.is_ascii_whitespace() => {
            let line = after.split(|byte| *byte == b'\n').next();
            let host = String::from_utf8_lossy(line.unwrap_or_default());
            let host = host.trim();
            Ok((pid, (!host.is_empty()).then(|| host.to_owned())))
        }
        Some(_) => Err(format!(
            "the pid ends at byte {} with something else",
            begin + digits
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_with_or_without_a_host_is_read_and_anything_else_is_refused_at_its_byte() {
        assert_eq!(parse(b"4711\n"), Ok((4711, None)));
        assert_eq!(parse(b" 4711 host\n"), Ok((4711, Some("host".into()))));
        assert_eq!(parse(b"4711\n/a/folder\n"), Ok((4711, None)));
        assert_eq!(parse(b""), Err("it is empty".into()));
        assert_eq!(parse(b"  x"), Err("no pid at byte 2".into()));
        assert_eq!(
            parse(b"12x"),
            Err("the pid ends at byte 2 with something else".into())
        );
        assert!(parse(b"0").is_err());
        assert!(parse(b"99999999999999").is_err());
    }
}
