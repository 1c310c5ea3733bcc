//! The project, the settings, the store and the holder that a command works with.
//!
//! A command opens only what it needs.

use std::env::home_dir;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Once;

use tenure::ask::PARENT_LEASES;
use tenure::store::{Binding, Grant, HolderId, Key, Lease, StoreError, Token};
use tenure::wire::ErrorCode;
use tenure::{Config, Project, StoreUrl, Tenure, who};
use tenure_host::files::look;

use crate::answer::{Failure, complain, remark};
use crate::args::Global;
use crate::commands::daemon::autostart;
use crate::words;

/// The environment variable with the slot of the lease that a command runs under.
const SLOT: &str = "TENURE_SLOT";

/// Changes to the folder of `-C`. The command of `tenure run` inherits it.
pub(crate) fn change_folder(global: &Global) -> Result<(), Failure> {
    let Some(dir) = &global.dir else {
        return Ok(());
    };
    std::env::set_current_dir(dir).map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::NotFound => "there is no such folder".to_owned(),
            std::io::ErrorKind::NotADirectory => "is a file, not a folder".to_owned(),
            _ => error.to_string(),
        };
        let colon = if why.starts_with("is ") { "" } else { ":" };
        let message = format!("-C {}{colon} {why}", dir.display());
        Failure::new(ErrorCode::Usage, message)
    })
}

/// The current folder.
pub(crate) fn start() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        let message =
            format!("the current folder cannot be read ({error}): change to one that exists");
        Failure::new(ErrorCode::Io, message)
    })
}

/// Whether a command line without a command is about a project: that of the current folder, or of `-C`.
pub(crate) fn is_in_project(words: &[OsString]) -> bool {
    let status = [words, &["status".into()]].concat();
    let dir = crate::args::parse(&status).ok().map(|args| args.global.dir);
    let (Some(dir), Ok(here)) = (dir, std::env::current_dir()) else {
        return false;
    };
    let from = dir.map_or_else(|| here.clone(), |dir| here.join(dir));
    matches!(Project::find(&from, home_dir().as_deref()), Ok(Some(_)))
}

/// The project of the current folder, if it is in one.
pub(crate) fn find_project() -> Result<Option<Project>, Failure> {
    Ok(Project::find(&start()?, home_dir().as_deref())?)
}

/// The project of the current folder, if it is in one. A command whose store was named goes on without it
/// ([`project_if_found`]).
pub(crate) fn project_of(global: &Global) -> Result<Option<Project>, Failure> {
    match named_store(global) {
        Some(_) => Ok(project_if_found()),
        None => find_project(),
    }
}

/// The same for a command that only takes settings from it. To name the store is the way out of a worktree whose project
/// can't be found, so that is no reason to fail; but it is said, because the settings of the project are not used then.
pub(crate) fn project_if_found() -> Option<Project> {
    static SAID: Once = Once::new();
    find_project().unwrap_or_else(|failure| {
        SAID.call_once(|| {
            let why = failure.message().lines().next().unwrap_or_default();
            complain(&format!("the settings of the project are not used: {why}"));
        });
        None
    })
}

/// The project that `from` is in.
pub(crate) fn project(from: &Path) -> Result<Project, Failure> {
    let project = created(existing_project(from)?);
    let _ = project.create_state();
    Ok(project)
}

fn created(project: Project) -> Project {
    // Nothing of ours may show in git; a folder that can't be written can still be read.
    let _ = project.create();
    project
}

/// The same for a command that changes nothing.
pub(crate) fn existing_project(from: &Path) -> Result<Project, Failure> {
    let found = Project::find(from, home_dir().as_deref())?;
    found.ok_or_else(|| no_project(from))
}

fn no_project(from: &Path) -> Failure {
    let message = format!(
        "no tenure project in {} or any folder above it: run tenure init in the project's root\n  to lock without \
         a project, as flock does, name a file for the locks: --store sqlite:/tmp/locks.db",
        from.display()
    );
    Failure::new(ErrorCode::NotInitialised, message)
}

/// The settings of a project.
pub(crate) fn config(project: Option<&Project>) -> Result<Config, Failure> {
    let home = home_dir();
    Ok(match project {
        Some(project) => project.config(home.as_deref())?,
        None => Config::load(home.as_deref(), None)?,
    })
}

/// The same for a store that was chosen. If it is another program's, its own settings are a layer below.
pub(crate) fn config_for(store: &StoreUrl, project: Option<&Project>) -> Result<Config, Failure> {
    Ok(config(project)?.for_store(store, home_dir().as_deref())?)
}

/// The store that the caller named instead of the project's own: `--store`, or `TENURE_STORE`.
pub(crate) fn named_store(global: &Global) -> Option<OsString> {
    global.store.clone().or_else(StoreUrl::in_environment)
}

/// Refuses `--store`, for a command that has a store of its own.
pub(crate) fn refuse_option(global: &Global, why: &str) -> Result<(), Failure> {
    match global.store {
        Some(_) => Err(Failure::new(ErrorCode::Usage, why)),
        None => Ok(()),
    }
}

/// Refuses a store that was chosen, for a command that works on the project's own.
pub(crate) fn refuse_store(global: &Global, why: &str) -> Result<(), Failure> {
    let fix = match (&global.store, named_store(global), chosen_url(global)?) {
        (_, None, None) => return Ok(()),
        (Some(_), ..) => "leave --store out, or name the project with -C".to_owned(),
        (None, Some(_), _) => "unset TENURE_STORE for this command".to_owned(),
        (None, None, Some(url)) => format!("store.url chooses {url}; see tenure config show"),
    };
    Err(Failure::new(ErrorCode::Usage, format!("{why}: {fix}")))
}

/// Opens the store that the command works on.
pub(crate) fn open(global: &Global) -> Result<Tenure, Failure> {
    open_by(global, Tenure::open_with)
}

/// The same for a command that changes locks and no tasks.
pub(crate) fn open_for_locks(global: &Global) -> Result<Tenure, Failure> {
    open_by(global, Tenure::open_for_locks)
}

fn open_by(
    global: &Global,
    open: fn(&StoreUrl, Config) -> Result<Tenure, StoreError>,
) -> Result<Tenure, Failure> {
    if let Some(url) = named_url(global)? {
        return Ok(open(&url, config_for(&url, project_if_found().as_ref())?)?);
    }
    let start = start()?;
    let found = Project::find(&start, home_dir().as_deref())?;
    let config = config(found.as_ref())?;
    if let Some(url) = config.store_url() {
        return Ok(open(&url, config)?);
    }
    let project = created(found.ok_or_else(|| no_project(&start))?);
    if let Some(unused) = project.unused_store() {
        let unused = words::quoted_bytes(&unused.to_os_string());
        let message = format!(
            "{unused} is not used any more: all worktrees share {}\n  to bring its tasks over: \
             tenure --store {unused} tasks export | tenure tasks import -\n  then remove it",
            project.state().display()
        );
        remark(global, &message);
    }
    Ok(project.open_store(config, open)?)
}

/// The store that was chosen instead of the project's own, with its whole path: by `--store`, by `TENURE_STORE`, or by
/// a configuration file.
pub(crate) fn chosen_url(global: &Global) -> Result<Option<StoreUrl>, Failure> {
    if let Some(url) = named_url(global)? {
        return Ok(Some(url));
    }
    Ok(config(find_project()?.as_ref())?.store_url())
}

/// The same, with settings that were read before.
pub(crate) fn chosen_by(global: &Global, config: &Config) -> Result<Option<StoreUrl>, Failure> {
    Ok(named_url(global)?.or_else(|| config.store_url()))
}

/// The store that `--store` or `TENURE_STORE` names, with its whole path.
pub(crate) fn named_url(global: &Global) -> Result<Option<StoreUrl>, Failure> {
    let located = |url: OsString| located(global, &start()?, &url);
    named_store(global).map(located).transpose()
}

/// A store that was named, with its path seen from `start`.
pub(crate) fn located(global: &Global, start: &Path, url: &OsStr) -> Result<StoreUrl, Failure> {
    let url = StoreUrl::seen_from(start, url)?;
    if let StoreUrl::Etcd(url) = &url
        && global.store.is_some()
        && url.has_password()
    {
        let message = "a password on the command line can be read by every user of this machine: put the \
                       address into TENURE_STORE, or the password into TENURE_ETCD_PASSWORD";
        return Err(Failure::new(ErrorCode::Usage, message));
    }
    Ok(url)
}

/// The same for a command that needs something that is there: a store that does not exist is an error, most
/// likely a typing error, and is not made. The store of a project is made on demand.
pub(crate) fn open_existing(global: &Global) -> Result<Tenure, Failure> {
    refuse_missing_store(global)?;
    open(global)
}

/// The same for a command that changes locks and no tasks.
pub(crate) fn open_existing_for_locks(global: &Global) -> Result<Tenure, Failure> {
    refuse_missing_store(global)?;
    open_for_locks(global)
}

/// Opens the store that the command works on, to read it; `None` if nothing was stored yet.
pub(crate) fn open_to_read(
    global: &Global,
    open: fn(&StoreUrl, Config) -> Result<Tenure, StoreError>,
) -> Result<Option<Tenure>, Failure> {
    refuse_missing_store(global)?;
    let is_missing =
        |url: &StoreUrl| matches!(url, StoreUrl::Sqlite(path) if !look::may_be_there(path));
    if let Some(url) = chosen_url(global)? {
        let config = config(project_of(global)?.as_ref())?;
        let open = (!is_missing(&url)).then(|| open(&url, config));
        return Ok(open.transpose()?);
    }
    let project = existing_project(&start()?)?;
    if is_missing(&project.store()) {
        return Ok(None);
    }
    Ok(Some(project.read_store(config(Some(&project))?, open)?))
}

/// Refuses a store that the caller chose and that does not exist.
fn refuse_missing_store(global: &Global) -> Result<(), Failure> {
    let Some(StoreUrl::Sqlite(path)) = named_url(global)? else {
        return Ok(());
    };
    if !matches!(path.try_exists(), Ok(false)) {
        return Ok(());
    }
    let shown = path.display();
    let message = match path.parent().filter(|folder| !folder.is_dir()) {
        Some(folder) => format!(
            "there is no store {shown}: the folder {} does not exist; check the path",
            folder.display()
        ),
        None => format!(
            "there is no store {shown}: check the path; a command that adds something would make it"
        ),
    };
    Err(Failure::new(ErrorCode::NotFound, message))
}

/// The same for a command that changes tasks. It starts the daemon if the settings say so, because
/// the daemon shares the change.
pub(crate) fn open_to_change(global: &Global) -> Result<Tenure, Failure> {
    let tenure = open_existing(global)?;
    autostart(global, &tenure);
    Ok(tenure)
}

/// The same for a command that adds tasks.
pub(crate) fn open_to_add(global: &Global) -> Result<Tenure, Failure> {
    let tenure = open(global)?;
    autostart(global, &tenure);
    Ok(tenure)
}

/// The environment of a command that runs under these leases, under `others` of the same store, and
/// under the leases that tenure itself runs under.
pub(crate) fn environment(
    global: &Global,
    tenure: &Tenure,
    leases: &[&Lease],
    others: &[Token],
) -> Vec<(&'static str, String)> {
    let Some(lease) = leases.first() else {
        return Vec::new();
    };
    let around = std::env::var(PARENT_LEASES).ok();
    let around = around.filter(|text| !text.is_empty());
    let ours = others
        .iter()
        .chain(leases.iter().map(|lease| &lease.token))
        .map(|token| format!("{}:{token}", tenure.identity()));
    let within: Vec<String> = around.into_iter().chain(ours).collect();
    let lines = |of: &dyn Fn(&Lease) -> String| {
        let lines: Vec<String> = leases.iter().map(|lease| of(lease)).collect();
        lines.join("\n")
    };
    let holder = lease.holder.id.to_string();
    let made_up = match global.holder {
        Some(_) => String::new(),
        None => holder.clone(),
    };
    let mut variables = vec![
        ("TENURE_KEY", lease.key.to_string()),
        ("TENURE_TOKEN", lease.token.to_string()),
        ("TENURE_KEYS", lines(&|lease| lease.key.to_string())),
        ("TENURE_TOKENS", lines(&|lease| lease.token.to_string())),
        ("TENURE_HOLDER", holder),
        (who::GENERATED, made_up),
        (PARENT_LEASES, within.join(",")),
    ];
    let slot = lease.slot.map(|slot| slot.to_string());
    // The slot of a lease around this one is no slot of this key.
    let slot = slot.or_else(|| std::env::var_os(SLOT).map(|_| String::new()));
    variables.extend(slot.map(|slot| (SLOT, slot)));
    variables
}

/// The name that was given with `--as` or in the environment.
pub(crate) fn named(global: &Global) -> Result<Option<HolderId>, Failure> {
    Ok(global.holder.clone().map(HolderId::parse).transpose()?)
}

/// The name of the caller of every command that ends before its lease does; see [`tenure::who`].
///
/// A command that holds a lease while it runs, such as `run`, is a holder of its own.
pub(crate) fn caller(global: &Global) -> Result<HolderId, Failure> {
    // A folder that is gone has no project, and its commands still have a name.
    let project = || find_project().ok().flatten();
    Ok(match named(global)? {
        Some(name) => name,
        None => who::name(None, project().as_ref())?,
    })
}

/// Whether a lease is one that the calling shell took without `--as`, by a command that has ended. As long as
/// the shell waits for this command, only this command could release it.
pub(crate) fn is_held_by_caller(global: &Global, lease: &Lease) -> bool {
    let ends_with_shell = match &lease.holder.binding {
        Binding::Detached => true,
        Binding::Process { process } => process.pid == shell(),
        _ => false,
    };
    ends_with_shell
        && global.holder.is_none()
        && caller(global).is_ok_and(|caller| caller == lease.holder.id)
}

/// The calling process, most often a shell.
pub(crate) fn shell() -> u32 {
    tenure_host::caller::parent().unwrap_or(0)
}

/// The lease that the caller means: by its token, or by the caller's name.
pub(crate) fn grant(
    global: &Global,
    key: &Key,
    token: Option<u64>,
    lease: &Lease,
) -> Result<Grant, Failure> {
    let token = token.map(Token);
    // A token is proof enough, unless the caller also gives a name.
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
