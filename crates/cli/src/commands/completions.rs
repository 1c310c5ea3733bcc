//! `tenure completions`: a script for each shell, which calls `tenure complete`.

use clap::ValueEnum;
use tenure::wire::CompletionsJson;

use crate::answer::Answer;

/// A shell that tenure has completions for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn completions(shell: Shell) -> Answer {
    let (name, script) = match shell {
        Shell::Bash => ("bash", include_str!("completions/tenure.bash")),
        Shell::Zsh => ("zsh", include_str!("completions/tenure.zsh")),
        Shell::Fish => ("fish", include_str!("completions/tenure.fish")),
    };
    let script = script.trim_end();
    let data = CompletionsJson {
        shell: name.to_owned(),
        script: script.to_owned(),
    };
    Answer::new(data, script)
}
