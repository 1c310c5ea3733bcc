//! One file for each command.

pub(crate) mod acquire;
pub(crate) mod board;
pub(crate) mod complete;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod daemon;
pub(crate) mod doctor;
pub(crate) mod exclusive;
pub(crate) mod fence;
pub(crate) mod init;
pub(crate) mod ledger;
pub(crate) mod locks;
pub(crate) mod man;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod reservations;
pub(crate) mod reserve;
pub(crate) mod run;
pub(crate) mod sections;
pub(crate) mod shell_lib;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod sync;
pub(crate) mod tasks;
pub(crate) mod timeline;
pub(crate) mod why;
