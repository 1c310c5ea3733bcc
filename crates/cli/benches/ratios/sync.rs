//! Sync: one changed task of 100,000, and of a hundred, with a real git and a bare repository beside it.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tenure::store::call_deadline;
use tenure::tasks::{Edit, TaskQuery};
use tenure::{Project, Tenure};
use tenure_sync::{Direction, SyncOutcome};

use crate::Line;
use crate::stopwatch::{millis, percentile, ratio, time};
use crate::tasks::{Size, prepare};

const ROUNDS: usize = 15;

pub(crate) fn measure() -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    let few = Clone::new(dir.path(), "few", 100);
    let many = Clone::new(dir.path(), "many", 100_000);
    let (mut few_own, mut few_all) = few.times();
    let (mut many_own, mut many_all) = many.times();
    [
        (
            "sync one change, our own CPU: 100k tasks / 100",
            &mut many_own,
            &mut few_own,
            "at most 50 ms",
        ),
        (
            "sync one change, with git: 100k tasks / 100",
            &mut many_all,
            &mut few_all,
            "about 1x",
        ),
    ]
    .map(|(what, many, few, aim)| {
        let (many, few) = (percentile(many, 50), percentile(few, 50));
        Line {
            what,
            ours: millis(many),
            theirs: millis(few),
            ratio: ratio(many, few),
            aim,
        }
    })
    .into()
}

struct Clone {
    project: Project,
    tenure: Tenure,
    id: String,
}

impl Clone {
    /// A clone with so many tasks, all of them shared.
    fn new(dir: &Path, name: &str, tasks: u32) -> Self {
        let hub = format!("{name}.git");
        git(dir, &["init", "-q", "--bare", &hub]);
        git(dir, &["clone", "-q", &hub, name]);
        let (project, _) = Project::init(&dir.join(name)).unwrap();
        let tenure = prepare(
            &project.state().join("tenure.db"),
            &Size {
                pending: tasks,
                completed: 0,
                sections: 20,
            },
        );
        let query = TaskQuery {
            limit: Some(1),
            ..TaskQuery::default()
        };
        let id = tenure
            .tasks()
            .unwrap()
            .tasks(&query, call_deadline())
            .unwrap()[0]
            .id
            .clone();
        let clone = Self {
            project,
            tenure,
            id,
        };
        // In a process of its own: starting a git from one that has held all tasks would cost more.
        let first = Command::new(env!("CARGO_BIN_EXE_tenure"))
            .args(["sync", "--quiet"])
            .current_dir(clone.project.root())
            .status();
        assert!(first.unwrap().success());
        clone
    }

    fn sync(&self) {
        let outcome = tenure_sync::sync(
            &self.project,
            &self.tenure,
            Direction::Both,
            &|| false,
            &mut |_| {},
        );
        assert!(matches!(outcome, SyncOutcome::Synced(_)), "{outcome}");
    }

    /// The CPU time of this process, and all of the time.
    fn times(&self) -> (Vec<Duration>, Vec<Duration>) {
        let one = |round: usize| {
            let edit = Edit {
                title: Some(format!("Round {round}")),
                ..Edit::default()
            };
            self.tenure
                .tasks()
                .unwrap()
                .edit_task(&self.id, &edit, call_deadline())
                .unwrap();
            let began = cpu();
            let all = time(|| self.sync());
            (cpu().saturating_sub(began), all)
        };
        (0..ROUNDS).map(one).unzip()
    }
}

fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap()
}

fn git(dir: &Path, args: &[&str]) {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success());
}
