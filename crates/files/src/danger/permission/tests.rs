use std::os::unix::fs::symlink;

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn place() -> (tempfile::TempDir, Permissions) {
    let dir = tempfile::tempdir().unwrap();
    let permissions = Permissions::in_folder(dir.path());
    (dir, permissions)
}

fn session(name: &str) -> HolderId {
    HolderId::parse(name).unwrap()
}

fn request(line: &str) -> Request {
    Request::new(session("one"), "one", Path::new("/work"), line, "why")
}

fn take(permissions: &Permissions, line: &str) -> bool {
    let folder = Path::new("/work");
    permissions.take(&session("one"), folder, line).unwrap()
}

#[test]
fn a_command_runs_once_after_a_person_allowed_it() {
    let (_dir, permissions) = place();
    assert!(!take(&permissions, "git stash"));
    let code = permissions.ask(request("git stash")).unwrap();
    assert!(!take(&permissions, "git stash"), "asked is not allowed");
    let typed = code.to_uppercase().replace('-', "");
    let allowed = permissions.allow(&typed, MINUTE).unwrap();
    assert!(matches!(allowed, Allowed::Once(it) if it.line == "git stash"));
    assert!(permissions.waiting().unwrap().is_empty());
    assert!(!take(&permissions, "git stash -u"), "another line");
    let other = session("two");
    assert!(
        !permissions
            .take(&other, Path::new("/work"), "git stash")
            .unwrap()
    );
    let one = session("one");
    assert!(!permissions.take(&one, Path::new("/"), "git stash").unwrap());
    assert!(take(&permissions, "git stash"));
    assert!(!take(&permissions, "git stash"), "it is used up");
    assert_eq!(permissions.allow(&code, MINUTE).unwrap(), Allowed::Unknown);
}

#[test]
fn of_many_that_use_a_permission_at_once_one_succeeds() {
    let (_dir, permissions) = place();
    for _ in 0..20 {
        let code = permissions.ask(request("git stash")).unwrap();
        let _ = permissions.allow(&code, MINUTE).unwrap();
        let start = std::sync::Barrier::new(8);
        let used = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        take(&permissions, "git stash")
                    })
                })
                .collect();
            let used = all.into_iter().map(|it| it.join().unwrap());
            used.filter(|used| *used).count()
        });
        assert_eq!(used, 1);
    }
}

#[test]
fn the_same_command_keeps_its_code_and_old_requests_are_dropped() {
    let (_dir, permissions) = place();
    let code = permissions.ask(request("git stash")).unwrap();
    assert_eq!(permissions.ask(request("git stash")).unwrap(), code);
    assert_ne!(permissions.ask(request("git clean -f")).unwrap(), code);
    let mut old = request("git reset --hard");
    old.asked = now() - WAITS - MINUTE;
    let old = permissions.ask(old).unwrap();
    assert_eq!(permissions.waiting().unwrap().len(), 2);
    assert_eq!(permissions.allow(&old, MINUTE).unwrap(), Allowed::Unknown);
    for number in 0..2 * MOST {
        permissions
            .ask(request(&format!("git stash {number}")))
            .unwrap();
    }
    assert!(permissions.waiting().unwrap().len() <= MOST);
}

#[test]
fn a_permission_ends_with_its_time() {
    let (_dir, permissions) = place();
    let code = permissions.ask(request("git stash")).unwrap();
    let _ = permissions.allow(&code, Duration::from_millis(1)).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    assert!(!take(&permissions, "git stash"));
}

#[test]
fn what_others_could_have_planted_counts_for_nothing() {
    let (dir, permissions) = place();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let code = permissions.ask(request("git stash")).unwrap();
    let _ = permissions.allow(&code, MINUTE).unwrap();
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o777;
    let file = permissions.path(&code);
    assert_eq!((mode(&permissions.0), mode(&file)), (0o700, 0o600));
    // A file that others may write, a link, a second name, a folder that others may write.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!take(&permissions, "git stash"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let real = dir.path().join("real");
    fs::rename(&file, &real).unwrap();
    symlink(&real, &file).unwrap();
    assert!(!take(&permissions, "git stash"));
    fs::remove_file(&file).unwrap();
    fs::rename(&real, &file).unwrap();
    fs::set_permissions(&permissions.0, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(!take(&permissions, "git stash"));
    let moved = dir.path().join("moved");
    fs::rename(&permissions.0, &moved).unwrap();
    fs::set_permissions(&moved, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&moved, &permissions.0).unwrap();
    assert!(permissions.ask(request("git stash")).is_err());
    assert!(
        permissions
            .take(&session("one"), Path::new("/work"), "git stash")
            .is_err()
    );
    assert!(moved.join(format!("{code}.json")).exists());
}
