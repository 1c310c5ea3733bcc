//! Command lines that tenure does not know, and the ones that do what they mean.
//!
//! Only the table: the command translates by it, and a test walks it.

/// A spelling, and the one that tenure knows.
pub(crate) struct Habit {
    /// What is typed. An option may be anywhere in the command line. `_` stands for another word that has to
    /// follow, and `--` for a command.
    pub(crate) typed: &'static str,
    /// What stands instead. The other words follow, or take the place of `...`.
    pub(crate) meant: &'static str,
    /// What the test types after it. The tip works as it is printed.
    #[allow(dead_code, reason = "only the test reads it")]
    pub(crate) then: &'static str,
}

const fn habit(typed: &'static str, meant: &'static str, then: &'static str) -> Habit {
    Habit { typed, meant, then }
}

/// Spellings of earlier versions. They go on working, because they are in scripts and in the files of projects.
pub(crate) const EARLIER: [Habit; 4] = [
    habit("reserve --release", "unreserve", "--as me"),
    habit("locks release --force", "force", "build --reason why"),
    habit("sync --status", "sync status", "--json"),
    habit("sync --restore", "sync restore", "HEAD --yes"),
];

/// Spellings of other tools, of earlier versions and of people who guess. They are answered with a tip.
pub(crate) const HABITS: [Habit; 42] = [
    habit("ls", "locks list", ""),
    habit("list", "locks list", "--all"),
    habit("ps", "locks list", ""),
    habit("show", "locks show", "build"),
    habit("history", "locks history", "build"),
    habit("cleanup", "locks cleanup", ""),
    habit("lock --", "run", "free -- true"),
    habit("lock", "acquire", "free --as me"),
    habit("exec _", "run", "free true"),
    habit("with _", "run", "free -n -- true"),
    habit("wait _", "run ... -- true", "free --wait 5s"),
    habit("unlock", "release", "build --as me"),
    habit("free", "release", "build --as me"),
    habit("claim", "acquire", "free --as me"),
    habit("upgrade _", "acquire", "build --as me"),
    habit("upgrade", "version", ""),
    habit("steal", "force", "build"),
    habit("release --force", "force", "build"),
    habit("locks release", "force", "build"),
    habit("locks force", "force", "build"),
    habit("run --timeout", "run --wait", "5s free -- true"),
    habit("acquire --timeout", "acquire --wait", "5s free"),
    habit("reserve --timeout", "reserve --wait", "5s file"),
    habit("reserve release", "unreserve", "--as me"),
    habit("reserve extend", "reserve --extend", "--as me"),
    habit("reserve list", "reservations", ""),
    habit("reserve check", "check", "src --as me"),
    habit("add", "tasks add", "'Other task'"),
    habit("next", "tasks next", "--as me"),
    habit("work", "tasks work", "--as me -- true"),
    habit("start", "daemon start", ""),
    habit("stop", "daemon stop", ""),
    habit("tasks create", "tasks add", "'Other task'"),
    habit("tasks new", "tasks add", "'Other task'"),
    habit(
        "tasks start _",
        "tasks update ... --status in_progress",
        "One",
    ),
    habit("tasks start", "tasks next", "--as me"),
    habit(
        "tasks claim _",
        "tasks update ... --status in_progress",
        "One",
    ),
    habit("tasks claim", "tasks next", "--as me"),
    habit("tasks complete", "tasks done", "One"),
    habit("tasks finish", "tasks done", "One"),
    habit("tasks remove", "tasks delete", "One"),
    habit("sections remove", "sections rm", "Backend"),
];
