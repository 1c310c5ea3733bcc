//! `tenure completions`

use clap::CommandFactory;
use clap_complete::Shell;
use tenure::wire::CompletionsJson;

use crate::answer::Answer;
use crate::args::Args;

pub(crate) fn completions(shell: Shell) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "tenure", &mut script);
    let script = String::from_utf8_lossy(&script).trim_end().to_owned();
    let data = CompletionsJson {
        shell: shell.to_string(),
        script: script.clone(),
    };
    Answer::new(data, script)
}
