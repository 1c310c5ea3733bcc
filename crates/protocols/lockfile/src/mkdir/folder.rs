//! [`LockFolder`]: the files of a lock folder, read through one open descriptor. All of them belong to
//! the same folder, even if another folder takes its name meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tenure_core::text::flat;
use tenure_core::{Epoch, Holder, HolderId, Lease, LivenessId, Process, Token};

use tenure_host::files::beneath::{self, Refused};

use crate::foreign_holder::{modified, recorded_binding};

/// The pid of the holder.
pub(super) const PID: &str = "pid";
/// When the holder took the lock, in seconds since 1970.
pub(super) const TS: &str = "ts";
/// The holder's command.
pub(super) const CMD: &str = "cmd";
/// The file that tenure adds: [`TenureFile`].
pub(super) const TENURE: &str = "tenure";

/// All files of a lock.
pub(super) const NAMES: [&str; 4] = [PID, TS, CMD, TENURE];

/// The largest file that is read, in bytes.
const MAX_LENGTH: u64 = 1 << 16;

/// What is at the path of a lock.
#[derive(Debug)]
pub(super) enum LockEntry {
    /// A folder.
    Folder(LockFolder),
    /// A file or a link.
    NotAFolder {
        file: (u64, u64),
        modified: Timestamp,
    },
}

/// A lock folder.
#[derive(Debug)]
pub(super) struct LockFolder {
    /// While this is open, no new folder can get the same inode number.
    pub(super) open: OwnedFd,
    /// The device and inode.
    pub(super) file: (u64, u64),
    pub(super) modified: Timestamp,
    pub(super) contents: FolderContents,
}

/// The contents of a lock folder.
#[derive(Debug)]
pub(super) enum FolderContents {
    /// Tenure wrote the lock: its own file, parsed and as bytes. The other files do not count.
    Tenure(TenureFile, Vec<u8>),
    /// Tenure wrote the lock, but its file can't be parsed: the reason, and the bytes.
    UnreadableTenure(String, Vec<u8>),
    /// Another program wrote the lock, or is still writing it.
    Foreign(ForeignFiles),
}

/// The files of another program's lock.
#[derive(Debug, Default)]
pub(super) struct ForeignFiles {
    pub(super) pid: Option<Vec<u8>>,
    pub(super) ts: Option<Vec<u8>>,
    pub(super) cmd: Option<Vec<u8>>,
    /// The name of a file that no lock has.
    pub(super) unexpected: Option<String>,
}

impl ForeignFiles {
    /// The pid, if there is a valid one.
    pub(super) fn pid(&self) -> Option<i64> {
        text(self.pid.as_ref()?)?.parse().ok()
    }

    pub(super) fn since(&self) -> Option<Timestamp> {
        let seconds = text(self.ts.as_ref()?)?.parse().ok()?;
        Timestamp::from_second(seconds).ok()
    }

    /// The command, on one line.
    pub(super) fn command(&self) -> Option<String> {
        let text = String::from_utf8_lossy(self.cmd.as_ref()?);
        let line = flat(text.trim());
        (!line.is_empty()).then_some(line)
    }

    /// All files as one byte string, for the fingerprint.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let parts = [&self.pid, &self.ts, &self.cmd];
        let mut all = Vec::new();
        for part in parts {
            match part {
                Some(bytes) => all.extend([b"+".as_slice(), bytes.as_slice(), b"\0"].concat()),
                None => all.extend(b"-\0"),
            }
        }
        all.extend(self.unexpected.as_deref().unwrap_or_default().as_bytes());
        all
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().map(str::trim)
}

/// The file `tenure`: one line of JSON. A lock that has it is tenure's, whatever another program
/// writes into the other files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TenureFile {
    holder: HolderId,
    pub(super) token: Token,
    pub(super) acquired_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    command: Option<String>,
    host: String,
    pub(super) pid: u32,
    /// The start time of the process, in ticks since boot.
    started: u64,
    boot: Epoch,
    namespace: String,
    /// Its liveness lock, in `live/` of the sidecar.
    #[serde(rename = "life", skip_serializing_if = "Option::is_none", default)]
    liveness_lock: Option<LivenessId>,
}

impl TenureFile {
    /// The file for a lease; `None` if no process is attached to the lease.
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
            liveness_lock: lease.holder.liveness_lock().cloned(),
        })
    }

    /// The contents of the file `cmd`: one line.
    pub(super) fn cmd(&self) -> String {
        let command = self.command.as_deref().unwrap_or(self.holder.as_str());
        flat(command)
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
            binding: recorded_binding(process, self.liveness_lock),
        }
    }
}

/// Reads the lock at `path`, without following a link; `None` if nothing is there.
pub(super) fn read(path: &Path) -> io::Result<Option<LockEntry>> {
    let folder = match beneath::open_folder(path) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if Refused::of(&error).is_some_and(|it| it.is_at(path)) => {
            return not_a_folder(path);
        }
        Err(error) => return Err(error),
    };
    let known = folder.metadata()?;
    let open = OwnedFd::from(folder);
    let contents = match read_file(&open, TENURE)? {
        Some(bytes) => match serde_json::from_slice::<TenureFile>(&bytes) {
            Ok(file) if file.token.may_be_granted() => FolderContents::Tenure(file, bytes),
            Ok(file) => {
                FolderContents::UnreadableTenure(format!("its token is {}", file.token), bytes)
            }
            Err(error) => FolderContents::UnreadableTenure(error.to_string(), bytes),
        },
        None => FolderContents::Foreign(ForeignFiles {
            pid: read_file(&open, PID)?,
            ts: read_file(&open, TS)?,
            cmd: read_file(&open, CMD)?,
            unexpected: unexpected_entry(&open)?,
        }),
    };
    Ok(Some(LockEntry::Folder(LockFolder {
        open,
        file: (known.dev(), known.ino()),
        modified: modified(&known),
        contents,
    })))
}

fn not_a_folder(path: &Path) -> io::Result<Option<LockEntry>> {
    match path.symlink_metadata() {
        Ok(known) => Ok(Some(LockEntry::NotAFolder {
            file: (known.dev(), known.ino()),
            modified: modified(&known),
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads one file of the folder. An entry that is not a regular file counts as empty.
fn read_file(folder: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP | Errno::NXIO) => return Ok(Some(Vec::new())),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = Vec::new();
    if file.metadata()?.is_file() {
        file.take(MAX_LENGTH).read_to_end(&mut bytes)?;
    }
    Ok(Some(bytes))
}

/// The first name in the folder that is not of a lock.
pub(super) fn unexpected_entry(folder: &OwnedFd) -> io::Result<Option<String>> {
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
