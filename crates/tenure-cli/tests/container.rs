//! Containers that share a project's folder: the same machine, other pids.
//!
//! unshare(1) stands in for a container: its own pid namespace, the same host name.

mod project;

use project::{Call, Project, until};

/// Runs a script in a container that ends with its first process, if this machine allows that.
fn container(project: &Project, script: &str) -> Option<Call> {
    let inside = |script: &str| {
        let mut command = project.program("unshare");
        command.args([
            "--map-root-user",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
            script,
        ]);
        project.prepare(command)
    };
    let try_out = inside("true").end();
    if try_out.code != 0 {
        eprintln!("skipped: no containers here ({})", try_out.err.trim());
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
