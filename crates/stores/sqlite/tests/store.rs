//! The store on real databases, with real processes.
//!
//! All of it is one program: it is built faster than many, and its tests wait for one another less.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod battery;
mod clocks;
mod clones;
mod contention;
mod creation;
mod damage;
mod full_disk;
mod history;
mod links;
mod liveness_files;
mod lock_tables;
mod names;
mod read_only;
mod refusals;
mod reservations;
mod steroids;
mod steroids_battery;
mod steroids_contest;
mod steroids_killed;
mod steroids_refusals;
mod task_battery;
mod task_battery_broken;
mod tasks_crash;
mod tasks_exchange;
mod tasks_flow;
mod tasks_merge;
mod tasks_model;
mod tasks_next;
mod tasks_stamps;
mod tool;
mod upgrade;
mod upgrade_tasks;
mod world;
