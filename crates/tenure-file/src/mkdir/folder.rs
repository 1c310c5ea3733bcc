//! What is in the lock folder: [`Folder`], read through one open descriptor, so that all of it is of
//! one and the same folder, whatever is moved to its name meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tenure_core::{Binding, Epoch, Holder, HolderId, Lease, LivenessId, Process, Token};

use crate::outsider::written;

/// The pid of the holder.
pub(super) const PID: &str = "pid";
/// Since when, in seconds since 1970.
pub(super) const TS: &str = "ts";
/// What it runs.
pub(super) const CMD: &str = "cmd";
/// What tenure adds.
pub(super) const OURS: &str = "tenure";

/// All that a lock consists of.
pub(super) const NAMES: [&str; 4] = [PID, TS, CMD, OURS];

/// The longest file that is read.
const LONGEST: u64 = 1 << 16;

/// What stands at a path.
#[derive(Debug)]
pub(super) enum There {
    /// A folder.
    Folder(Folder),
    /// Something that is no folder.
    NoFolder {
        file: (u64, u64),
        written: Timestamp,
    },
}

/// A lock folder.
#[derive(Debug)]
pub(super) struct Folder {
    /// Open for as long as this is kept: nobody else's folder can have its number until then.
    pub(super) open: OwnedFd,
    /// The device and inode.
    pub(super) file: (u64, u64),
    pub(super) written: Timestamp,
    pub(super) contents: Contents,
}

/// What is in it.
#[derive(Debug)]
pub(super) enum Contents {
    /// What tenure wrote; the other files need not be looked at.
    Ours(Extra, Vec<u8>),
    /// Tenure wrote it, but this one can't read it.
    Unknown(String, Vec<u8>),
    /// What another program wrote, as far as it has.
    Theirs(Theirs),
}

/// A lock of another program.
#[derive(Debug, Default)]
pub(super) struct Theirs {
    pub(super) pid: Option<Vec<u8>>,
    pub(super) ts: Option<Vec<u8>>,
    pub(super) cmd: Option<Vec<u8>>,
    /// Something that no lock has.
    pub(super) stranger: Option<String>,
}

impl Theirs {
    /// The pid, if one is written there.
    pub(super) fn pid(&self) -> Option<i64> {
        text(self.pid.as_ref()?)?.parse().ok()
    }

    pub(super) fn since(&self) -> Option<Timestamp> {
        let seconds = text(self.ts.as_ref()?)?.parse().ok()?;
        Timestamp::from_second(seconds).ok()
    }

    /// What it runs, on one line.
    pub(super) fn command(&self) -> Option<String> {
        let text = String::from_utf8_lossy(self.cmd.as_ref()?);
        let line = text.trim().replace(char::is_control, " ");
        (!line.is_empty()).then_some(line)
    }

    /// All of it as one text, to tell it from others.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let parts = [&self.pid, &self.ts, &self.cmd];
        let mut all = Vec::new();
        for part in parts {
            match part {
                Some(bytes) => all.extend([b"+".as_slice(), bytes.as_slice(), b"\0"].concat()),
                None => all.extend(b"-\0"),
            }
        }
        all.extend(self.stranger.as_deref().unwrap_or_default().as_bytes());
        all
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().map(str::trim)
}

/// What tenure adds in the file `tenure`: one line of JSON. A lock that has it is tenure's, whatever
/// somebody writes into the other files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Extra {
    holder: HolderId,
    token: Token,
    acquired_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    command: Option<String>,
    host: String,
    pid: u32,
    /// When the process started, in ticks since boot.
    started: u64,
    boot: Epoch,
    namespace: String,
    /// Its life lock, in `live/` of the side folder.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    life: Option<LivenessId>,
}

impl Extra {
    /// Of a lease; `None` if that is tied to no process.
    pub(super) fn of(lease: &Lease) -> Option<Self> {
        let process = lease.holder.process()?.clone();
        Some(Self {
            holder: lease.holder.id.clone(),
            token: lease.token,
            acquired_at: lease.acquired_at,
            command: lease.holder.command.clone(),
            host: process.host,
            pid: process.pid,
            started: process.started,
            boot: process.boot,
            namespace: process.namespace,
            life: lease.holder.liveness_lock().cloned(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn acquired_at(&self) -> Timestamp {
        self.acquired_at
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    /// What the file `cmd` says: one line.
    pub(super) fn cmd(&self) -> String {
        let words = self.command.as_deref().unwrap_or(self.holder.as_str());
        words.replace(char::is_control, " ")
    }

    pub(super) fn into_holder(self) -> Holder {
        let process = Process {
            pid: self.pid,
            started: self.started,
            boot: self.boot,
            namespace: self.namespace,
            host: self.host.clone(),
        };
        Holder {
            id: self.holder,
            host: self.host,
            command: self.command,
            binding: match self.life {
                Some(lock) => Binding::LivenessLock { lock, process },
                None => Binding::Process { process },
            },
        }
    }
}

/// Reads what stands at `path`; `None` if nothing does. No link leads anywhere else.
pub(super) fn read(path: &Path) -> io::Result<Option<There>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = match openat(CWD, path, flags, Mode::empty()) {
        Ok(open) => open,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => return no_folder(path),
        Err(error) => return Err(error.into()),
    };
    let folder = File::from(open);
    let known = folder.metadata()?;
    let open = OwnedFd::from(folder);
    let contents = match part(&open, OURS)? {
        Some(bytes) => match serde_json::from_slice(&bytes) {
            Ok(extra) => Contents::Ours(extra, bytes),
            Err(error) => Contents::Unknown(error.to_string(), bytes),
        },
        None => Contents::Theirs(Theirs {
            pid: part(&open, PID)?,
            ts: part(&open, TS)?,
            cmd: part(&open, CMD)?,
            stranger: stranger(&open)?,
        }),
    };
    Ok(Some(There::Folder(Folder {
        open,
        file: (known.dev(), known.ino()),
        written: written(&known),
        contents,
    })))
}

fn no_folder(path: &Path) -> io::Result<Option<There>> {
    match path.symlink_metadata() {
        Ok(known) => Ok(Some(There::NoFolder {
            file: (known.dev(), known.ino()),
            written: written(&known),
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// One file of it. What is no file, or too long for one, is as good as empty.
fn part(folder: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(Some(Vec::new())),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(LONGEST).read_to_end(&mut bytes)?;
    }
    Ok(Some(bytes))
}

/// The first name in the folder that no lock has.
pub(super) fn stranger(folder: &OwnedFd) -> io::Result<Option<String>> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let is_known = name == "." || name == ".." || NAMES.iter().any(|known| name == *known);
        if !is_known {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}
