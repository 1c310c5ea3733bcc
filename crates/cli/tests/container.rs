//! Containers that share a project's folder: the same machine, other pids, or another boot clock.
//!
//! unshare(1) stands in for a container: a pid namespace or a time namespace of its own, the same host name.

use crate::project;

use project::{Call, Project, until};

/// Runs a script in a container that ends with its first process, if this machine allows that.
fn container(project: &Project, script: &str) -> Option<Call> {
    let own_pids = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    unshared(project, &own_pids, script)
}

/// Runs a script in a time namespace whose boot clock is this many seconds ahead, if this machine allows
/// that.
fn shifted(project: &Project, ahead: i64, script: &str) -> Option<Call> {
    unshared(
        project,
        &["--time", "--boottime", &ahead.to_string()],
        script,
    )
}

fn unshared(project: &Project, namespaces: &[&str], script: &str) -> Option<Call> {
    let inside = |script: &str| {
        let mut command = project.program("unshare");
        command.arg("--map-root-user").args(namespaces);
        command.args(["sh", "-c", script]);
        project.prepare(command)
    };
    let try_out = inside("true").end();
    if try_out.code != 0 {
        tenure_testkit::left_out(&format!("unshare is refused here ({})", try_out.err.trim()));
        return None;
    }
    Some(inside(script))
}

#[test]
fn a_command_in_a_container_holds_its_key_outside_until_it_ends() {
    let project = Project::new();
    let script = "exec $TENURE run build --as inside --ttl 1h -- sh -c 'echo $$; exec sleep 300'";
    let Some(call) = container(&project, script) else {
        return;
    };
    let inside = call.start();
    until("the command runs", || !inside.out().is_empty());
    project
        .tenure("run build --no-wait -- true")
        .fails(6, &["locked by inside"]);
    project.tenure("locks cleanup").exits(0);
    let waiter = project.queue("build", "run build --wait 10m -- echo mine");
    inside.killed();
    assert_eq!(waiter.ended().exits(0).out, "mine\n");
    assert!(
        project.story("build").starts_with("granted 1, dead 1"),
        "{}",
        project.story("build")
    );
}

#[test]
fn a_waiter_in_a_container_is_woken_from_outside() {
    let project = Project::new();
    let mut held = project.hold("run build --ttl 1h");
    let script = "exec $TENURE run build --wait 10m -- echo mine";
    let Some(call) = container(&project, script) else {
        return;
    };
    let inside = call.start();
    project.until_waiting("build", 1);
    held.let_go();
    assert_eq!(inside.ended().exits(0).out, "mine\n");
}

#[test]
fn a_pid_of_another_container_is_never_judged() {
    let project = Project::new();
    // By now no process has that pid in the container, and another process may have it here.
    let script = "sleep 300 & $TENURE acquire build --as inside --ttl 1h --pid $! -q; kill $!";
    let Some(call) = container(&project, script) else {
        return;
    };
    call.end();
    let json = project.tenure("locks show build --json").exits(0).json();
    assert_eq!(json["data"]["leases"][0]["verdict"], "unknown", "{json}");
    assert!(
        json["data"]["leases"][0]["why"]
            .as_str()
            .unwrap()
            .contains("container"),
        "{json}"
    );
    let doctor = project.tenure("doctor --json").out;
    assert!(doctor.contains("\"hidden_holder\""), "{doctor}");
    project.tenure("doctor --fix --quiet");
    project.tenure("locks cleanup").exits(0);
    project.tenure("run build --no-wait -- true").exits(6);
    project.tenure("fence build --token 1").exits(0);
}

#[test]
fn a_shell_that_is_pid_1_names_itself_to_take_the_exclusive_lock() {
    let project = Project::new();
    let script = "$TENURE exclusive acquire --holder me; echo $?
        $TENURE exclusive acquire --holder me --pid $$ -q; echo $?
        $TENURE exclusive release; echo $?";
    let Some(call) = container(&project, script) else {
        return;
    };
    let said = call.end().exits(0);
    assert_eq!(said.out, "4\n0\nReleased the exclusive lock.\n0\n");
    assert!(
        said.err.contains("pid 1") && said.err.contains("--pid $$"),
        "{said:?}"
    );
}

// A time namespace shifts the boot clock and the start times of processes: neither may make a lease look expired or its
// holder dead.

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
