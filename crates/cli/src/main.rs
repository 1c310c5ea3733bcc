//! The `tenure` command: arguments, words, exit codes. The rules are in `tenure-core`.
//!
//! | module | what it holds |
//! |---|---|
//! | `args` | the command line |
//! | `commands` | one file for each command |
//! | `context` | the project, the settings, the store and the holder that a command works with |
//! | `answer` | what a command prints: text or JSON |
//! | `exit` | exit codes |
//! | `words` | sentences about leases and tasks |
//! | `table` | tables |
//! | `help` | help pages, and advice on a command line that is wrong |
//! | `fit` | text cut and padded to a width |
//! | `waiting` | waiting for a key or a task, and what it looks like |
//! | `program` | the command to run: found, shown, or missing |
//! | `supervise` | a command while it runs |
//! | `stderr` | the last line of a command's standard error |
//! | `signals` | signals as a file descriptor |
//! | `terminal` | the terminal: asked, and lent to the command |

mod answer;
mod args;
mod commands;
mod context;
mod exit;
mod fit;
mod help;
mod program;
mod progress;
mod signals;
mod stderr;
mod supervise;
mod table;
mod terminal;
mod waiting;
mod words;

use crate::answer::Failure;
use crate::args::{Args, Command};
use crate::exit::Exit;

/// As much stack as a command needs.
const STACK: u64 = 2 * 1024 * 1024;

fn main() {
    tenure_host::signal::report_limits();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Stack);
    if limit.current.is_some_and(|limit| limit < STACK) {
        let thread = std::thread::Builder::new().stack_size(usize::try_from(STACK).unwrap_or(0));
        if let Ok(thread) = thread.spawn(run) {
            // It ends the process, unless it panics.
            let _ = thread.join();
            std::process::exit(Exit::Runtime.code());
        }
    }
    run();
}

fn run() {
    let mut words = args::typed::typed(std::env::args_os());
    if let Some(page) = help::asked(&words) {
        std::process::exit(answer::print_page(page));
    }
    if args::typed::is_alone(&words) && context::is_in_project(&words) {
        words.push("status".into());
    }
    let is_hook = args::typed::command(&words)
        .is_some_and(|at| words.get(at).is_some_and(|word| word == "hook"));
    let mut args = match args::parse(&words) {
        Ok(args) => args,
        Err(error) => match answer::bad_usage(error, &words) {
            2 if is_hook => std::process::exit(Exit::Runtime.code()),
            code => std::process::exit(code),
        },
    };
    if args.global.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let (command, subcommand) = args.names.clone();
    let global = args.global.clone();
    if !is_hook && !matches!(args.command, Command::Complete { .. }) {
        // They are no reason to fail, because others use the prefix.
        for slip in tenure::config::near_misses(std::env::vars_os()) {
            answer::remark(&global, &slip.to_string());
        }
    }
    let prepared = tenure::who::given_in_environment()
        .map_err(Failure::from)
        .and_then(|holder| {
            args.global.holder = args.global.holder.take().or(holder);
            context::change_folder(&args.global)
        });
    let outcome = match (prepared, &args.command) {
        (Ok(()), _) => dispatch(args),
        // It answers the agent, which may have to be refused.
        (Err(failure), Command::Hook(hook)) => {
            Ok(commands::hook::hook(&args.global, hook, Some(failure)))
        }
        (Err(failure), _) => Err(failure),
    };
    // A coding agent takes the exit code 2 of a hook for a refusal. A mistake in its configuration is none.
    let is_mistake = is_hook && outcome.is_err();
    let code = answer::print_outcome(&global, &command, subcommand.as_deref(), outcome);
    std::process::exit(if is_mistake {
        Exit::Runtime.code()
    } else {
        code
    });
}

fn dispatch(args: Args) -> Result<answer::Answer, Failure> {
    let global = args.global;
    match args.command {
        Command::Init { here } => commands::init::init(&global, here),
        Command::Run(run) => commands::run::run(&global, &run),
        Command::Acquire(acquire) => commands::acquire::acquire(&global, &acquire),
        Command::Renew(renew) => commands::renew::renew(&global, &renew),
        Command::Release(release) => commands::release::release(&global, &release),
        Command::Ask(request) => commands::ask::ask(&global, &request),
        Command::Force(force) => commands::force::force(&global, &force),
        Command::Fence(fence) => commands::fence::fence(&global, &fence),
        Command::Reserve(reserve) => commands::reserve::reserve(&global, &reserve),
        Command::Unreserve(unreserve) => commands::reserve::unreserve(&global, &unreserve),
        Command::Reservations => commands::reservations::reservations(&global),
        Command::Check(check) => commands::reservations::check(&global, &check),
        Command::Locks(locks) => commands::locks::locks(&global, locks),
        Command::Status => commands::status::status(&global),
        Command::Why(why) => commands::why::why(&global, &why.what),
        Command::Timeline(timeline) => commands::timeline::timeline(&global, &timeline),
        Command::Watch(watch) => commands::watch::watch(&global, &watch),
        Command::Allow(allow) => commands::allow::allow(&global, &allow),
        Command::Doctor(doctor) => commands::doctor::doctor(&global, &doctor),
        Command::Files(files) => commands::files::files(&global, files),
        Command::Guard(guard) => commands::guard::guard(&global, guard),
        Command::Tasks(tasks) => commands::tasks::tasks(&global, tasks),
        Command::Sections(sections) => commands::sections::sections(&global, &sections),
        Command::Exclusive(exclusive) => commands::exclusive::exclusive(&global, exclusive),
        Command::Daemon(daemon) => commands::daemon::daemon(&global, daemon),
        Command::Sync(sync) => commands::sync::sync(&global, &sync),
        Command::Board(board) => commands::board::board(&global, board),
        Command::ShellLib => Ok(commands::shell_lib::shell_lib()),
        Command::Ledger(ledger) => commands::ledger::ledger(&global, ledger),
        Command::Store(store) => commands::store::store(&global, store),
        Command::Hook(hook) => Ok(commands::hook::hook(&global, &hook, None)),
        Command::Setup(setup) => commands::setup::setup(&global, &setup),
        Command::Config(config) => commands::config::config(&global, &config),
        Command::Completions { shell } => Ok(commands::completions::completions(shell)),
        Command::Schema => Ok(commands::schema::schema()),
        Command::Complete { words } => Ok(commands::complete::complete(&words)),
        Command::Man { command, folder } => commands::man::man(&command, folder.as_deref()),
    }
}
