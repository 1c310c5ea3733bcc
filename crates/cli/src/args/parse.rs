//! Parses the command line: [`parse`].
//!
//! The parser of all commands takes longer to build than a lock takes to get. The commands that scripts call
//! most often have a parser of their own. If it does not understand the command line, the parser of all
//! commands has the word: so help texts, suggestions and errors exist once.

use std::ffi::OsString;
use std::mem::ManuallyDrop;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use super::{Acquire, Args, Command, Fence, Global, Release, Renew, Run, typed};

#[derive(Debug, Parser)]
#[command(name = "tenure")]
struct Short {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Frequent,
}

#[derive(Debug, Subcommand)]
#[command(defer = true)]
enum Frequent {
    Run(Run),
    Acquire(Acquire),
    Renew(Renew),
    Release(Release),
    Fence(Fence),
}

/// The command line with these words.
pub(crate) fn parse(words: &[OsString]) -> Result<Args, clap::Error> {
    let is_frequent = typed::command(words)
        .and_then(|at| words.get(at)?.to_str())
        .is_some_and(Frequent::has_subcommand);
    if is_frequent && let Ok((short, names)) = parse_as::<Short>(words) {
        return Ok(Args {
            names,
            global: short.global,
            command: match short.command {
                Frequent::Run(run) => Command::Run(run),
                Frequent::Acquire(acquire) => Command::Acquire(acquire),
                Frequent::Renew(renew) => Command::Renew(renew),
                Frequent::Release(release) => Command::Release(release),
                Frequent::Fence(fence) => Command::Fence(fence),
            },
        });
    }
    let (mut args, names) = parse_as::<Args>(words)?;
    args.names = names;
    match &args.command {
        Command::Hook(hook) => args.names.1 = hook.tool.map(|tool| tool.name().to_owned()),
        Command::Setup(setup) => args.names.1 = Some(setup.what.name().to_owned()),
        _ => {}
    }
    // `reserve release` is no wish for a file of this name, unless there is one.
    if let Command::Reserve(reserve) = &args.command
        && let Some(first) = reserve.patterns.first()
        && typed::meant(words).is_some()
        && !args
            .global
            .dir
            .clone()
            .unwrap_or_default()
            .join(first)
            .exists()
    {
        return Err(Args::command().error(ErrorKind::InvalidSubcommand, ""));
    }
    Ok(args)
}

/// As [`Parser::try_parse_from`], which also takes the parser apart again: this process has no use for its
/// memory. Beside the arguments, the names of the command and of the one below it.
fn parse_as<T: Parser>(words: &[OsString]) -> Result<(T, (String, Option<String>)), clap::Error> {
    let mut parser = ManuallyDrop::new(T::command());
    let mut matches = ManuallyDrop::new(parser.try_get_matches_from_mut(words)?);
    let (name, below) = matches.subcommand().unzip();
    let below = below.and_then(clap::ArgMatches::subcommand_name);
    let names = (
        name.unwrap_or_default().to_owned(),
        below.map(str::to_owned),
    );
    match T::from_arg_matches_mut(&mut matches) {
        Ok(args) => Ok((args, names)),
        Err(error) => Err(error.format(&mut parser)),
    }
}
