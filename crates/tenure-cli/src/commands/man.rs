//! `tenure man`

use clap::CommandFactory;
use tenure::wire::{ErrorCode, ManualJson};

use crate::answer::{Answer, Failure};
use crate::args::Args;

pub(crate) fn man(command: Option<&str>) -> Result<Answer, Failure> {
    let mut all = Args::command();
    all.build();
    let page = match command {
        None => all,
        Some(name) => {
            let names = || {
                all.get_subcommands()
                    .map(clap::Command::get_name)
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            let found = all.find_subcommand(name).cloned();
            found
                .map(|page| page.name(format!("tenure-{name}").leak() as &'static str))
                .ok_or_else(|| {
                    Failure::new(
                        ErrorCode::NotFound,
                        format!("there is no command {name}: the commands are {}", names()),
                    )
                })?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut text)
        .map_err(|error| Failure::new(ErrorCode::Io, error.to_string()))?;
    let text = String::from_utf8_lossy(&text).trim_end().to_owned();
    let data = ManualJson { page: text.clone() };
    Ok(Answer::new(data, text))
}
