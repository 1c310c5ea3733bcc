//! The project, the settings, the store and the holder a command works with.
//!
//! Nothing is opened that the command does not need.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use tenure::ask::made_up_name;
use tenure::core::{Grant, HolderId, Key, Lease, Token};
use tenure::host::identity;
use tenure::wire::ErrorCode;
use tenure::{Config, Project, StoreUrl, Tenure};

use crate::answer::Failure;
use crate::args::Global;
use crate::commands::daemon::autostart;

/// Tells commands that we start under which grants they run: `STORE:TOKEN,...`.
const WITHIN: &str = "TENURE_WITHIN";

/// Tells commands that we start which name was made up for them.
const MADE_UP: &str = "TENURE_MADE_UP";

/// Goes where `-C` says, so that everything, the command of `tenure run` too, is as if it had been
/// started there.
pub(crate) fn go(global: &Global) -> Result<(), Failure> {
    let Some(dir) = &global.dir else {
        return Ok(());
    };
    std::env::set_current_dir(dir).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such folder".to_owned(),
            std::io::ErrorKind::NotADirectory => {
                "that is a file: there is no such folder".to_owned()
            }
            _ => error.to_string(),
        };
        Failure::new(ErrorCode::Usage, format!("-C {}: {why}", dir.display()))
    })
}

/// Where we are.
pub(crate) fn start() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        let message =
            format!("the current folder can't be read ({error}): change to one that exists");
        Failure::new(ErrorCode::Io, message)
    })
}

/// Where the settings of whoever is asking are kept.
pub(crate) fn home() -> Option<PathBuf> {
    std::env::home_dir()
}

/// The project that `from` is in.
pub(crate) fn project(from: &Path) -> Result<Project, Failure> {
    Project::find(from, home().as_deref()).ok_or_else(|| {
        Failure::new(
            ErrorCode::NotInitialised,
            format!(
                "no tenure project in {} or any folder above it: run tenure init in the project's root, \
                 or name a store with --store sqlite:PATH or --store steroids:PATH",
                from.display()
            ),
        )
    })
}

/// The settings of a project.
pub(crate) fn config(project: Option<&Project>) -> Result<Config, Failure> {
    Ok(Config::load(
        home().as_deref(),
        project.map(Project::folder).as_deref(),
    )?)
}

/// Opens the store that the command works on.
pub(crate) fn open(global: &Global) -> Result<Tenure, Failure> {
    let start = start()?;
    let Some(url) = &global.store else {
        let project = project(&start)?;
        return Ok(Tenure::open(&project.store(), config(Some(&project))?)?);
    };
    let url = match StoreUrl::parse(url)? {
        StoreUrl::Sqlite(path) => StoreUrl::Sqlite(start.join(path)),
        StoreUrl::Steroids(path) => StoreUrl::Steroids(start.join(path)),
        StoreUrl::Exclusive(dir) => StoreUrl::Exclusive(start.join(dir)),
        StoreUrl::Mkdir(dir) => StoreUrl::Mkdir(start.join(dir)),
        StoreUrl::Ledger(dir) => StoreUrl::Ledger(start.join(dir)),
    };
    let config = config(Project::find(&start, home().as_deref()).as_ref())?;
    Ok(Tenure::open(&url, config)?)
}

/// The same for a command that changes tasks: what changed is to be shared, so the daemon is started
/// if the settings say so.
pub(crate) fn open_to_change(global: &Global) -> Result<Tenure, Failure> {
    let tenure = open(global)?;
    if tenure.config().daemon.autostart && global.store.is_none() {
        autostart(global);
    }
    Ok(tenure)
}

/// The name in the environment that somebody chose. One that `tenure run` made up for its command is
/// no such name: whatever that command starts would share it.
pub(crate) fn holder_of_the_environment() -> Result<Option<String>, Failure> {
    let Some(holder) = std::env::var_os("TENURE_HOLDER").filter(|holder| !holder.is_empty()) else {
        return Ok(None);
    };
    if std::env::var_os(MADE_UP).as_ref() == Some(&holder) {
        return Ok(None);
    }
    holder.into_string().map(Some).map_err(|holder| {
        let message = format!(
            "TENURE_HOLDER={} is not UTF-8 text: name the holder with --as",
            holder.display()
        );
        Failure::new(ErrorCode::BadName, message)
    })
}

/// The grants of this store under which this process runs, so that it does not wait for itself.
pub(crate) fn within(tenure: &Tenure) -> Vec<Token> {
    let text = std::env::var(WITHIN).unwrap_or_default();
    let ours = text.split(',').filter_map(|grant| grant.rsplit_once(':'));
    ours.filter(|(store, _)| *store == tenure.identity())
        .filter_map(|(_, token)| token.parse().ok().map(Token))
        .collect()
}

/// The environment of a command that runs under a grant, and perhaps under others around it.
pub(crate) fn environment(
    global: &Global,
    tenure: &Tenure,
    lease: &Lease,
    others: &[Token],
) -> Vec<(&'static str, String)> {
    let around = std::env::var(WITHIN).ok().filter(|text| !text.is_empty());
    let ours = others
        .iter()
        .chain([&lease.token])
        .map(|token| format!("{}:{token}", tenure.identity()));
    let within: Vec<String> = around.into_iter().chain(ours).collect();
    let holder = lease.holder.id.to_string();
    let made_up = if global.holder.is_none() {
        holder.clone()
    } else {
        String::new()
    };
    vec![
        ("TENURE_KEY", lease.key.to_string()),
        ("TENURE_TOKEN", lease.token.to_string()),
        ("TENURE_HOLDER", holder),
        (MADE_UP, made_up),
        (WITHIN, within.join(",")),
    ]
}

/// The name that was given with `--as` or in the environment.
pub(crate) fn named(global: &Global) -> Result<Option<HolderId>, Failure> {
    Ok(global.holder.clone().map(HolderId::parse).transpose()?)
}

/// The name of whoever typed this: the given one, or one made up from the shell it was typed in,
/// so that `acquire` and `release` in one script are the same holder.
pub(crate) fn caller(global: &Global) -> Result<HolderId, Failure> {
    if let Some(named) = named(global)? {
        return Ok(named);
    }
    Ok(made_up_name(shell()))
}

/// The process that called this, most often a shell: the one that goes on when this is done.
pub(crate) fn shell() -> u32 {
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    u32::try_from(parent).unwrap_or(0)
}

/// The name of a runner: the given one, or one made up from the shell it was typed in that no other
/// shell has, in no other container and after no restart, so that it may be taken for the same.
pub(crate) fn runner(global: &Global) -> Result<HolderId, Failure> {
    if let Some(named) = named(global)? {
        return Ok(named);
    }
    let shell = shell();
    let name = made_up_name(shell);
    let tag = identity::process(shell)
        .ok()
        .flatten()
        .map_or(0, |process| {
            let mut hasher = DefaultHasher::new();
            (process.started, &process.boot.0, &process.namespace).hash(&mut hasher);
            hasher.finish() & 0xffff_ffff
        });
    Ok(HolderId::parse(format!("{name}-{tag:08x}"))?)
}

/// The grant that the caller means: by its token, or by the caller's name.
pub(crate) fn grant(
    global: &Global,
    key: &Key,
    token: Option<u64>,
    lease: &Lease,
) -> Result<Grant, Failure> {
    let token = token.map(Token);
    // A token proves the grant by itself, unless a name says otherwise.
    let holder = match (named(global)?, token) {
        (Some(named), _) => named,
        (None, Some(_)) => lease.holder.id.clone(),
        (None, None) => caller(global)?,
    };
    Ok(Grant {
        key: key.clone(),
        holder,
        token: token.unwrap_or(lease.token),
    })
}
