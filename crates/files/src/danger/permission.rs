//! What a person allows in spite of a refusal: [`Permissions`], a folder beside the store.
//!
//! ```text
//!   refused ── asked ── a person: tenure allow CODE ── allowed until ── the same command comes again ── used
//! ```
//!
//! 1. One small file for each request, named after its code. It holds the session, the folder and the whole line: a
//!    permission counts for nothing else.
//! 2. A hook that uses a permission renames its file first, which one process alone can do. So it is used once.
//! 3. The folder and its files are our user's own, and nobody else can write them; any other folder or file counts for
//!    nothing. Links are not followed.
//! 4. A request is dropped a day after it was made, and a permission when its time has passed. There are at most [`MOST`].

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use tenure::Project;
use tenure_core::{Clock, HolderId};
use tenure_host::HostClock;
use tenure_host::files::atomic::{self, Durability, PutResult};
use tenure_host::files::beneath::{open_folder, open_known, read};
use tenure_host::files::look::{self, if_there};
use tenure_host::files::permissions::create_folder;
use tenure_host::random::random_uuid;

/// No file is larger: a line of 64 KiB, with escapes.
const LARGEST: u64 = 512 * 1024;

/// The most requests that are kept. Of more, the oldest are dropped.
const MOST: usize = 50;

/// How long a request waits for a person.
const WAITS: Duration = Duration::from_secs(24 * 60 * 60);

/// The bits by which others than the owner use a folder or file.
const OTHERS: u32 = 0o077;

/// The characters of a code: none looks like another one.
const LETTERS: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";

/// A command that was refused, and that a person may allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What the person types.
    pub code: String,
    /// The session that wants to run it.
    pub session: HolderId,
    /// What people call the session.
    pub name: String,
    /// The folder that it is to run in.
    pub folder: String,
    /// The whole line.
    pub line: String,
    /// Why it was refused.
    pub why: String,
    /// When it was refused.
    pub asked: Timestamp,
    /// Until when it is allowed, if it is.
    pub allowed_until: Option<Timestamp>,
}

impl Request {
    /// A request of this session, without a code.
    pub fn new(session: HolderId, name: &str, folder: &Path, line: &str, why: &str) -> Self {
        Self {
            code: String::new(),
            session,
            name: name.to_owned(),
            folder: folder.display().to_string(),
            line: line.to_owned(),
            why: why.to_owned(),
            asked: now(),
            allowed_until: None,
        }
    }

    /// Whether it is about the same command of the same session.
    fn is_for(&self, session: &HolderId, folder: &Path, line: &str) -> bool {
        self.session == *session && self.folder == folder.display().to_string() && self.line == line
    }

    fn is_over(&self, now: Timestamp) -> bool {
        match self.allowed_until {
            Some(until) => until <= now,
            None => now.duration_since(self.asked).unsigned_abs() > WAITS,
        }
    }
}

/// The outcome of allowing a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Allowed {
    /// It may run once.
    Once(Request),
    /// No request waits under this code.
    Unknown,
}

/// The requests and permissions of a project, of this user.
#[derive(Debug, Clone)]
pub struct Permissions(PathBuf);

impl Permissions {
    /// Those of a project.
    pub fn of(project: &Project) -> Self {
        Self::in_folder(project.state())
    }

    /// Those in a folder. Each user has one of their own.
    fn in_folder(state: &Path) -> Self {
        Self(state.join(format!("allow-{}", geteuid().as_raw())))
    }

    /// Records that a command was refused, and returns the code. The same command has one code for as long as it waits.
    pub fn ask(&self, mut request: Request) -> io::Result<String> {
        self.create()?;
        let mut known = self.all()?;
        let now = now();
        known.sort_by_key(|request| request.asked);
        let over = known.len().saturating_sub(MOST - 1);
        for (number, old) in known.iter().enumerate() {
            if number < over || old.is_over(now) {
                atomic::unlink(&self.path(&old.code))?;
            } else if old.allowed_until.is_none()
                && old.is_for(&request.session, Path::new(&request.folder), &request.line)
            {
                return Ok(old.code.clone());
            }
        }
        loop {
            request.code = new_code();
            let bytes = serde_json::to_vec(&request)?;
            let temp = self.temp();
            match atomic::create(&self.path(&request.code), &temp, &bytes)? {
                PutResult::Done => return Ok(request.code),
                PutResult::Occupied => {}
            }
        }
    }

    /// What waits for a person, the oldest first.
    pub fn waiting(&self) -> io::Result<Vec<Request>> {
        let now = now();
        let mut waiting = self.all()?;
        waiting.retain(|request| request.allowed_until.is_none() && !request.is_over(now));
        waiting.sort_by_key(|request| request.asked);
        Ok(waiting)
    }

    /// Allows a request, for so long. Allowing it again begins the time anew.
    pub fn allow(&self, code: &str, time: Duration) -> io::Result<Allowed> {
        let now = now();
        let code = spelled(code);
        let found = self.all()?.into_iter().find(|request| request.code == code);
        let Some(mut request) = found.filter(|request| !request.is_over(now)) else {
            return Ok(Allowed::Unknown);
        };
        let until = now.checked_add(time).map_err(io::Error::other)?;
        request.allowed_until = Some(until);
        let bytes = serde_json::to_vec(&request)?;
        atomic::replace(&self.path(&code), &self.temp(), &bytes, Durability::Crash)?;
        Ok(Allowed::Once(request))
    }

    /// Uses a permission up; `false` if there is none for this very command.
    pub fn take(&self, session: &HolderId, folder: &Path, line: &str) -> io::Result<bool> {
        for request in self.all()? {
            if request.allowed_until.is_none() || !request.is_for(session, folder, line) {
                continue;
            }
            let aside = self.temp();
            if !atomic::take_aside(&self.path(&request.code), &aside)? {
                // Another process has used it just now.
                continue;
            }
            let taken = Self::read_own(&aside);
            atomic::unlink(&aside)?;
            let now = now();
            let is_valid = |it: Request| it.allowed_until.is_some() && !it.is_over(now);
            if taken.is_some_and(is_valid) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn path(&self, code: &str) -> PathBuf {
        self.0.join(format!("{code}.json"))
    }

    /// A name that nothing has.
    fn temp(&self) -> PathBuf {
        self.0.join(format!("{}.tmp", random_uuid().simple()))
    }

    /// Makes the folder, for this user alone.
    fn create(&self) -> io::Result<()> {
        let is_new = create_folder(&self.0)?;
        let folder = open_folder(&self.0)?;
        let known = folder.metadata()?;
        if known.uid() != geteuid().as_raw() {
            return Err(io::Error::other(format!(
                "{} belongs to another user: remove it",
                self.0.display()
            )));
        }
        if is_new || known.mode() & OTHERS != 0 {
            folder.set_permissions(fs::Permissions::from_mode(0o700))?;
        }
        Ok(())
    }

    /// All requests of this user that can be understood.
    fn all(&self) -> io::Result<Vec<Request>> {
        let folder = match open_folder(&self.0) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(look::unreadable(&self.0, &error)),
        };
        let known = folder.metadata()?;
        if known.uid() != geteuid().as_raw() || known.mode() & OTHERS != 0 {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for file in if_there(fs::read_dir(&self.0))?.into_iter().flatten() {
            let path = file?.path();
            let is_request = path.extension().is_some_and(|end| end == "json");
            let request = is_request.then(|| Self::read_own(&path)).flatten();
            // A file under another name is not what we wrote.
            all.extend(request.filter(|request| self.path(&request.code) == path));
        }
        Ok(all)
    }

    fn read_own(path: &Path) -> Option<Request> {
        let (_, known) = open_known(path, OFlags::RDONLY).ok()?;
        let is_ours = known.uid() == geteuid().as_raw() && known.mode() & OTHERS == 0;
        is_ours.then_some(())?;
        serde_json::from_slice(&read(path, LARGEST).ok()?).ok()
    }
}

/// What people's clocks show.
fn now() -> Timestamp {
    HostClock::new().now().wall
}

/// A code such as `k7qa-m9xd`.
fn new_code() -> String {
    let letters = random_uuid();
    let letters = letters.as_bytes().iter().take(8).enumerate();
    let mut code = String::new();
    for (number, byte) in letters {
        if number == 4 {
            code.push('-');
        }
        let letter = LETTERS.get(usize::from(*byte) % LETTERS.len());
        code.extend(letter.map(|letter| char::from(*letter)));
    }
    code
}

/// A code as a person may type it: in capitals, without the dash.
fn spelled(code: &str) -> String {
    let letters = code.trim().to_ascii_lowercase().replace('-', "");
    match letters.split_at_checked(4) {
        Some((one, two)) => format!("{one}-{two}"),
        None => letters,
    }
}

#[cfg(test)]
mod tests;
