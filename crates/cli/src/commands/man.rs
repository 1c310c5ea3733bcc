//! `tenure man`

use std::path::Path;

use clap::{Command, CommandFactory};
use tenure::text::plural;
use tenure::wire::{ErrorCode, ManualJson};

use crate::answer::{Answer, Failure};
use crate::args::Args;

pub(crate) fn man(words: &[String], folder: Option<&Path>) -> Result<Answer, Failure> {
    let mut tree = Args::command();
    tree.build();
    if let Some(folder) = folder {
        return write_all(tree, folder);
    }
    let mut command = &tree;
    for word in words {
        command = command.find_subcommand(word).ok_or_else(|| {
            let names: Vec<&str> = visible(command).map(Command::get_name).collect();
            let message = if names.is_empty() {
                format!(
                    "'{}' has no subcommands",
                    command.get_bin_name().unwrap_or_default()
                )
            } else {
                format!(
                    "there is no command '{word}': the commands are {}",
                    names.join(", ")
                )
            };
            Failure::new(ErrorCode::Usage, message)
        })?;
    }
    let page = page(command).map_err(|error| Failure::new(ErrorCode::Io, error.to_string()))?;
    let data = ManualJson { page: page.clone() };
    Ok(Answer::new(data, page))
}

/// Writes a page for each command: `tenure.1`, `tenure-run.1`, `tenure-locks-list.1`.
fn write_all(tree: Command, folder: &Path) -> Result<Answer, Failure> {
    let refused = |error: std::io::Error| {
        let message = format!(
            "the pages can't be written to {} ({error})",
            folder.display()
        );
        Failure::new(ErrorCode::Io, message)
    };
    std::fs::create_dir_all(folder).map_err(refused)?;
    let mut left = vec![tree];
    let mut pages = Vec::new();
    while let Some(command) = left.pop() {
        let name = command.get_display_name().unwrap_or("tenure");
        let path = folder.join(format!("{name}.1"));
        std::fs::write(&path, page(&command).map_err(refused)?).map_err(refused)?;
        pages.push(path.display().to_string());
        left.extend(visible(&command).cloned());
    }
    pages.sort();
    let count = plural::count(pages.len(), "page");
    let text = format!("Wrote {count} to {}", folder.display());
    Ok(Answer::new(pages, text))
}

pub(super) fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

fn page(command: &Command) -> std::io::Result<String> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone())
        .source(concat!("tenure ", env!("CARGO_PKG_VERSION")))
        .render(&mut text)?;
    Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
}
