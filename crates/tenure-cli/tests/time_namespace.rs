//! A time namespace shifts the boot clock and the start times of processes: neither may make a lease look
//! expired or its holder dead.

mod project;

use project::{Call, Project};

/// Runs a script in a time namespace whose boot clock is this many seconds ahead, if this machine allows
/// that.
fn shifted(project: &Project, ahead: i64, script: &str) -> Option<Call> {
    let inside = |script: &str| {
        let mut command = project.program("unshare");
        command.args(["--map-root-user", "--time", "--boottime"]);
        command.args([&ahead.to_string(), "sh", "-c", script]);
        project.prepare(command)
    };
    let try_out = inside("true").end();
    if try_out.code != 0 {
        eprintln!("skipped: no time namespaces here ({})", try_out.err.trim());
        return None;
    }
    Some(inside(script))
}

#[test]
fn a_detached_lease_is_not_expired_where_the_boot_clock_is_ahead() {
    let project = Project::new();
    project
        .tenure("acquire build --as outside --ttl 10m")
        .exits(0);
    let ask = "exec $TENURE run build --no-wait -- true";
    for ahead in [3600, -3600] {
        let Some(call) = shifted(&project, ahead, ask) else {
            return;
        };
        call.end().fails(6, &["locked by outside"]);
    }
    project.tenure("locks cleanup").exits(0);
    assert_eq!(project.story("build"), "granted 1");
}

#[test]
fn a_lease_of_a_process_is_not_dead_where_start_times_are_shifted() {
    let project = Project::new();
    let mut sleeper = project.program("sleep").arg("300").spawn().unwrap();
    let pid = sleeper.id();
    project
        .tenure(&format!("acquire build --as outside --ttl 1h --pid {pid}"))
        .exits(0);
    let ask = "exec $TENURE run build --no-wait -- true";
    if let Some(call) = shifted(&project, 3600, ask) {
        call.end().fails(6, &["locked by outside"]);
    }
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    project.tenure("run build --no-wait -- true").exits(0);
}

#[test]
fn a_lease_that_was_granted_where_the_boot_clock_is_ahead_expires_in_time() {
    let project = Project::new();
    let grant = "exec $TENURE acquire build --as inside --ttl 1s";
    let Some(call) = shifted(&project, 3600, grant) else {
        return;
    };
    call.end().exits(0);
    project.tenure("run build --wait 1m -- echo mine").exits(0);
}
