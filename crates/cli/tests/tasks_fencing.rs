//! A late runner changes nothing (G7).

use crate::project;

use project::{Project, Said, process, until};
use rustix::process::Signal;
use serde_json::Value;

/// The id that a command printed.
#[track_caller]
fn id(said: Said) -> String {
    said.exits(0).out.trim().to_owned()
}

/// A task in a section that runner A started, and a way in which A loses its lease.
struct Scene {
    project: Project,
    key: String,
    token: u64,
}

/// How A loses its lease.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Expired,
    Killed,
    Forced,
}

impl Scene {
    fn new(loss: Loss) -> Self {
        let project = Project::new();
        let section = id(project.tenure("sections add S --quiet"));
        let task = id(project.tenure("tasks add one --section S --quiet"));
        project.tenure("tasks add two --section S").exits(0);
        let mut agent = project.program("sleep").arg("300").spawn().unwrap();
        let ttl = match loss {
            Loss::Expired => "--ttl 300ms".to_owned(),
            Loss::Killed => format!("--pid {}", agent.id()),
            Loss::Forced => String::new(),
        };
        let said = project
            .tenure(&format!(
                "tasks update one --status in_progress --as a --json {ttl}"
            ))
            .exits(0);
        let key = format!("task:{task}");
        let section = format!("section:{section}");
        match loss {
            Loss::Expired => {
                until("it has expired", || project.verdict(&key) == "expired");
                let force = format!("force {section}");
                project.tenure(&force).exits(0);
            }
            Loss::Killed => {}
            Loss::Forced => {
                for key in [&key, &section] {
                    project.tenure(&format!("force {key}")).exits(0);
                }
            }
        }
        process::signal(agent.id(), Signal::KILL);
        agent.wait().unwrap();
        let token = said.json()["data"]["token"].as_u64().unwrap();
        Self {
            project,
            key,
            token,
        }
    }

    fn b_takes_over(&self) {
        let said = self.project.tenure("tasks next --as b --json").exits(0);
        assert_eq!(said.json()["data"]["title"], "one");
    }

    /// All tasks, locks and events.
    fn state(&self) -> Vec<Value> {
        let history = self.project.tenure("locks history --json").exits(0).json();
        let locks = self.project.tenure("locks list --json").exits(0).json();
        let keys: Vec<Value> = locks["data"]["locks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|lock| {
                serde_json::json!([
                    lock["key"],
                    lock["leases"][0]["holder"],
                    lock["leases"][0]["expiresAt"]
                ])
            })
            .collect();
        let tasks = self.project.tenure("tasks list --json").exits(0).json();
        vec![history, Value::Array(keys), tasks]
    }

    /// Every way in which A could still change the task is refused and changes nothing.
    #[track_caller]
    fn a_is_refused(&self, words: &[&str]) {
        let before = self.state();
        let token = format!("--token {}", self.token);
        let both = format!("{token} --as a");
        for proof in ["--as a", token.as_str(), both.as_str()] {
            for change in [
                "completed",
                "failed --error late",
                "review",
                "skipped",
                "pending",
                "completed --title late",
            ] {
                let call = format!("tasks update one {proof} --status {change}");
                let said = self.project.tenure(&call).fails(7, words);
                assert_eq!(said.out, "", "{call}");
            }
            let call = format!("tasks update one {proof} --status completed --json");
            let said = self.project.tenure(&call).exits(7);
            assert_eq!(said.error(), "LEASE_LOST");
            assert_eq!(said.err, "");
            assert_eq!(self.state(), before, "{proof}");
        }
    }
}

#[test]
fn a_runner_that_was_taken_over_is_refused_and_told_the_new_holder() {
    for loss in [Loss::Expired, Loss::Killed, Loss::Forced] {
        let scene = Scene::new(loss);
        scene.b_takes_over();
        scene.a_is_refused(&["was lost", "held by b", "nothing was changed"]);
        // The new holder is not affected.
        scene
            .project
            .tenure("tasks update one --status completed --as b")
            .exits(0);
    }
}

#[test]
fn a_runner_that_was_taken_over_is_refused_after_the_new_holder_finished() {
    for loss in [Loss::Expired, Loss::Killed, Loss::Forced] {
        let scene = Scene::new(loss);
        scene.b_takes_over();
        scene
            .project
            .tenure("tasks update one --status failed --error broken --as b")
            .exits(0);
        scene.a_is_refused(&["was lost", "b got it", "failed"]);
    }
}

#[test]
fn a_runner_that_lost_its_lease_by_force_is_refused_even_if_the_task_is_free() {
    let scene = Scene::new(Loss::Forced);
    scene.a_is_refused(&["was lost", "nothing was changed"]);
}

#[test]
fn a_late_runner_is_accepted_if_no_other_runner_took_the_task() {
    for loss in [Loss::Expired, Loss::Killed] {
        for by_token in [true, false] {
            let scene = Scene::new(loss);
            let proof = if by_token {
                format!("--token {}", scene.token)
            } else {
                "--as a".to_owned()
            };
            let said = scene
                .project
                .tenure(&format!("tasks update one --status completed {proof}"));
            said.exits(0);
            assert_eq!(scene.project.verdict(&scene.key), "free", "{loss:?}");
        }
    }
}

#[test]
fn a_runner_that_starts_the_task_again_is_no_longer_late() {
    let scene = Scene::new(Loss::Expired);
    scene.b_takes_over();
    let project = &scene.project;
    // It cannot start the task while the other runner holds it.
    project
        .tenure("tasks update one --status in_progress --as a --no-wait")
        .exits(6);
    scene.a_is_refused(&["held by b"]);
    project
        .tenure("tasks update one --status pending --as b")
        .exits(0);
    scene.a_is_refused(&["was lost"]);
    let said = project
        .tenure("tasks update one --status in_progress --as a --no-wait --json")
        .exits(0);
    let token = said.json()["data"]["token"].as_u64().unwrap();
    assert!(token > scene.token);
    // Its old token is still refused.
    project
        .tenure(&format!(
            "tasks update one --status completed --token {}",
            scene.token
        ))
        .fails(7, &["held by a"]);
    project
        .tenure("tasks update one --status completed --as a")
        .exits(0);
}

#[test]
fn a_runner_that_never_held_the_task_is_told_that_it_is_locked() {
    let scene = Scene::new(Loss::Expired);
    scene.b_takes_over();
    let before = scene.state();
    let said = scene
        .project
        .tenure("tasks update one --status completed --as c --json")
        .exits(6);
    assert_eq!(said.error(), "TASK_LOCKED");
    scene
        .project
        .tenure("tasks update one --status completed")
        .fails(6, &["locked by runner b", "--as", "--token"]);
    for token in [0, 999] {
        scene
            .project
            .tenure(&format!(
                "tasks update one --status completed --token {token}"
            ))
            .exits(7);
    }
    assert_eq!(scene.state(), before);
}

#[test]
fn a_token_of_another_key_proves_nothing() {
    let project = Project::new();
    project.tenure("tasks add one").exits(0);
    project.tenure("tasks add two").exits(0);
    let token = |title: &str| {
        let words = format!("tasks update {title} --status in_progress --as a --json");
        project.tenure(&words).exits(0).json()["data"]["token"]
            .as_u64()
            .unwrap()
    };
    let (one, two) = (token("one"), token("two"));
    assert_ne!(one, two);
    project
        .tenure(&format!(
            "tasks update one --status completed --token {two}"
        ))
        .exits(7);
    project
        .tenure(&format!(
            "tasks update one --status completed --token {one}"
        ))
        .exits(0);
}

#[test]
fn a_runner_whose_task_was_taken_over_while_it_was_stopped_writes_nothing() {
    let project = Project::new();
    let task = id(project.tenure("tasks add one --quiet"));
    let key = format!("task:{task}");
    let runner = project
        .call("tasks work --as a --ttl 1s")
        .sh("echo $$; if mkdir first 2> /dev/null; then exec sleep 300; fi")
        .start();
    until("it works", || runner.out().ends_with('\n'));
    let command = runner.command();
    // Like a machine that sleeps: it neither renews nor reacts.
    runner.signal(Signal::STOP);
    process::signal(command, Signal::STOP);
    project.tenure(&format!("force {key}")).exits(0);
    let said = project.tenure("tasks next --as b --json").exits(0);
    assert_eq!(said.json()["data"]["id"], task);
    project
        .tenure("tasks update one --status review --as b")
        .exits(0);
    runner.signal(Signal::CONT);
    let said = runner.ended().exits(7);
    assert!(said.err.contains("was lost"), "{said:?}");
    assert!(!process::alive(command), "its command was not stopped");
    let shown = project.tenure("tasks show one --json").exits(0).json();
    assert_eq!(shown["data"]["status"], "review");
    assert_eq!(shown["data"]["holder"], "b");
    assert_eq!(shown["data"]["attempts"], 0);
}
