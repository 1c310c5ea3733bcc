//! The names that the environment gives.

use tenure_core::{BadName, HolderId};

use super::NoName;

/// The variable with the name that tenure generated for a command which it runs.
pub const GENERATED: &str = "TENURE_GENERATED_HOLDER";

/// The agents that set a variable with the session's id for the commands that they run. In a sub-agent of Codex, the thread
/// is the sub-agent's.
const SESSIONS: [(&str, &[&str]); 3] = [
    ("claude-code", &["CLAUDE_CODE_SESSION_ID"]),
    ("codex", &["CODEX_SESSION_ID", "CODEX_THREAD_ID"]),
    ("gemini", &["GEMINI_SESSION_ID"]),
];

/// The most push options that are looked at.
const MOST_OPTIONS: usize = 100;

/// The value of a variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The name in `TENURE_HOLDER`, or else that of a CI job. A name that `tenure run` generated for its command does not
/// count: every process that the command starts would share it.
pub fn given_in_environment() -> Result<Option<String>, NoName> {
    let given = std::env::var_os("TENURE_HOLDER").filter(|holder| !holder.is_empty());
    let generated = std::env::var_os(GENERATED);
    let Some(holder) = given.filter(|holder| generated.as_ref() != Some(holder)) else {
        return Ok(ci_job());
    };
    holder.into_string().map(Some).map_err(NoName::NotText)
}

/// A name for the CI job that this process belongs to. Every step of a job is a shell of its own, so without
/// this, a step could not release what an earlier step took. The name is unique to the job: a workflow's jobs
/// run beside each other, and may share a machine.
pub(super) fn ci_job() -> Option<String> {
    let or_none = |name: &str| variable(name).unwrap_or_else(|| "-".to_owned());
    let name =
        if let (Some(run), Some(runner)) = (variable("GITHUB_RUN_ID"), variable("RUNNER_NAME")) {
            let (attempt, job) = (or_none("GITHUB_RUN_ATTEMPT"), or_none("GITHUB_JOB"));
            // The jobs of a matrix differ by their runner only.
            format!("github-{run}.{attempt}-{job}@{runner}")
        } else if let Some(job) = variable("CI_JOB_ID") {
            format!("gitlab-{job}")
        } else if let Some(tag) = variable("BUILD_TAG").filter(|tag| tag.starts_with("jenkins-")) {
            // The stages of a build differ by their executor only.
            let (executor, node) = (or_none("EXECUTOR_NUMBER"), or_none("NODE_NAME"));
            format!("{tag}.{executor}@{node}")
        } else if let Some(job) = variable("BUILDKITE_JOB_ID") {
            format!("buildkite-{job}")
        } else if let Some(job) = variable("CIRCLE_WORKFLOW_JOB_ID") {
            format!("circleci-{job}")
        } else {
            let job = variable("SYSTEM_JOBID").filter(|_| variable("TF_BUILD").is_some())?;
            format!("azure-{job}")
        };
    HolderId::parse(&name).is_ok().then_some(name)
}

/// The sessions of coding agents: several, if one agent runs another.
pub(super) fn sessions() -> Vec<HolderId> {
    let sessions = SESSIONS.into_iter();
    sessions
        .filter_map(|(agent, names)| {
            let id = names.iter().find_map(|name| variable(name))?;
            super::session(agent, &id).ok()
        })
        .collect()
}

/// The holder in the push option `tenure-holder`, in the hook of a server.
pub(super) fn pusher() -> Result<Option<HolderId>, BadName> {
    let count = variable("GIT_PUSH_OPTION_COUNT").and_then(|count| count.parse().ok());
    let options = 0..count.unwrap_or(0).min(MOST_OPTIONS);
    let mut options = options.filter_map(|number| variable(&format!("GIT_PUSH_OPTION_{number}")));
    let name = options.find_map(|option| Some(option.strip_prefix("tenure-holder=")?.to_owned()));
    name.map(HolderId::parse).transpose()
}
