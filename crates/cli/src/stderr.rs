//! The last line of a command's standard error: [`StderrTee`] copies it to ours and remembers the end.

use std::io::{IsTerminal, PipeReader, PipeWriter, Read, Write};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use anstream::adapter::strip_str;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tenure::text::flat;

/// How many bytes of the end are remembered.
const TAIL: usize = 4096;

/// The longest last line, in characters.
const LONGEST: usize = 300;

/// A thread that copies a command's standard error to ours.
pub(crate) struct StderrTee {
    /// The thread ends when this is dropped.
    stop: PipeWriter,
    thread: JoinHandle<Vec<u8>>,
}

impl StderrTee {
    /// Redirects the command's standard error. On a terminal it does nothing, because the command
    /// should find the terminal there.
    pub(crate) fn attach(command: &mut Command) -> std::io::Result<Option<Self>> {
        if std::io::stderr().is_terminal() {
            return Ok(None);
        }
        let (read, write) = std::io::pipe()?;
        command.stderr(Stdio::from(write));
        let flags = fcntl_getfl(&read)?;
        fcntl_setfl(&read, flags | OFlags::NONBLOCK)?;
        let (stopped, stop) = std::io::pipe()?;
        let thread = std::thread::Builder::new()
            .name("stderr".into())
            .spawn(move || copy(read, &stopped))?;
        Ok(Some(Self { stop, thread }))
    }

    /// The last line that the command wrote. Everything in the pipe is copied first; what processes
    /// that the command left behind write later is dropped.
    pub(crate) fn last_line(self) -> Option<String> {
        drop(self.stop);
        let tail = self.thread.join().ok()?;
        let text = String::from_utf8_lossy(&tail);
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        let line = flat(&strip_str(line).to_string());
        Some(line.chars().take(LONGEST).collect())
    }
}

fn copy(mut pipe: PipeReader, stopped: &PipeReader) -> Vec<u8> {
    let mut tail = Vec::new();
    let mut chunk = [0; 8192];
    loop {
        let stopping = {
            let mut fds = [
                PollFd::new(&pipe, PollFlags::IN),
                PollFd::new(stopped, PollFlags::IN),
            ];
            if poll(&mut fds, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
                return tail;
            }
            fds.last().is_some_and(|fd| !fd.revents().is_empty())
        };
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => return tail,
                Ok(count) => {
                    let bytes = chunk.get(..count).unwrap_or_default();
                    let _ = std::io::stderr().write_all(bytes);
                    tail.extend_from_slice(bytes);
                    let too_many = tail.len().saturating_sub(TAIL);
                    tail.drain(..too_many);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => return tail,
            }
        }
        if stopping {
            return tail;
        }
    }
}
