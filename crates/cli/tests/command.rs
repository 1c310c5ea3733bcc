//! The command, tested as a person runs it.
//!
//! All of it is one program: fifty programs, each with the same helpers, took minutes to build, and each waited for
//! its slowest test alone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod agents;
mod agents_shell;
mod allow;
mod bad_input;
mod board;
mod board_edit;
mod board_project;
mod board_view;
mod ci;
mod configuration;
mod container;
mod daemon;
mod daemon_attack;
mod daemon_log;
mod daemon_verdicts;
mod database;
mod deadlock;
mod detached;
mod docs;
mod etcd;
mod etcd_away;
mod etcd_machines;
mod examined;
mod exclusive;
mod git_state;
mod guard;
mod half_evidence;
mod help;
mod hostile_text;
mod init;
mod kept;
mod killed;
mod ledger;
mod ledger_af;
mod ledger_crash;
mod ledger_mounts;
mod ledger_odd;
mod locks;
mod lost;
mod mkdir;
mod mkdir_shell_lib;
mod modes;
mod one_holder;
mod output;
mod past_waits;
mod planted;
mod project;
mod reservations;
mod run;
mod schema;
mod steroids;
mod steroids_protocol;
mod sync;
mod sync_command;
mod tasks_exchange;
mod tasks_fencing;
mod tasks_input;
mod tasks_next;
mod tasks_protocol;
mod tasks_work;
mod terminal;
mod two_users;
mod view;
mod waiting;
mod watch;
mod why;

/// A file that no line above names would never run.
#[test]
fn every_file_of_tests_is_part_of_this_program() {
    let this = include_str!("command.rs");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut unknown = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        if module != "command"
            && module != "fixtures"
            && !this.contains(&format!("\nmod {module};\n"))
        {
            unknown.push(name);
        }
    }
    assert!(unknown.is_empty(), "command.rs does not name {unknown:?}");
}
