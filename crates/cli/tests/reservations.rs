//! Reservations of paths: `reserve`, `reservations`, `check`.

use crate::project;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use project::{Project, Running, until};

/// A project in a git repository with some files.
fn repository() -> Project {
    let project = Project::new();
    project
        .shell(
            "git init -q . && mkdir -p src/api docs && touch src/api/mod.rs src/lib.rs docs/a.md && git add -A && \
             git -c user.name=a -c user.email=a@example.org commit -qm one",
        )
        .end()
        .exits(0);
    project
}

/// The patterns that are reserved, with their holders.
fn reserved(project: &Project) -> Vec<String> {
    let all = project.tenure("reservations --json").exits(0).json();
    let all = all["data"]["reservations"].as_array().unwrap().clone();
    let mut all: Vec<String> = all
        .iter()
        .map(|it| {
            let paths: Vec<&str> = it["paths"]
                .as_array()
                .unwrap()
                .iter()
                .map(|path| path.as_str().unwrap())
                .collect();
            format!("{} {}", it["holder"].as_str().unwrap(), paths.join(" "))
        })
        .collect();
    all.sort_unstable();
    all
}

#[track_caller]
fn ends_well(running: Running) {
    let said = running.ended();
    assert_eq!(said.code, 0, "{}", said.err);
}

#[test]
fn a_reservation_that_has_a_path_in_common_is_refused_with_the_holder_and_the_reason() {
    let project = repository();
    project
        .call("reserve src/api/** Cargo.toml --as one --for 30m --why")
        .arg("new endpoints")
        .end()
        .exits(0);
    for conflicting in ["src/api/mod.rs", "src", "**/*.rs", "{x,Cargo}.toml", "."] {
        let call = project.call("reserve --no-wait --as two").arg(conflicting);
        call.end().fails(
            6,
            &[
                "is reserved by one",
                "what for: new endpoints",
                "until 2",
                "tenure reservations",
            ],
        );
    }
    project
        .tenure("reserve src/lib.rs docs src/api2 --no-wait --as two")
        .exits(0);
    assert_eq!(
        reserved(&project),
        ["one Cargo.toml src/api/**", "two docs src/api2 src/lib.rs"]
    );
    // All or nothing: README is free.
    project
        .tenure("reserve README docs/a.md --no-wait --as one")
        .exits(6);
    project
        .tenure("reserve README --no-wait --as three")
        .exits(0);
    let shown = project.tenure("reservations").exits(0).out;
    assert!(
        shown.contains("new endpoints") && shown.contains("src/api/**"),
        "{shown}"
    );
}

#[test]
fn a_file_may_be_written_if_no_other_holder_has_reserved_it_and_a_check_changes_nothing() {
    let project = Project::uninitialised();
    project
        .shell("git init -q . && mkdir .tenure src")
        .end()
        .exits(0);
    // Not even a database.
    project.tenure("check src/a.rs --as one").exits(0);
    project.tenure("reservations").exits(0);
    assert_eq!(fs::read_dir(project.path(".tenure")).unwrap().count(), 0);

    project.tenure("reserve src --as one").exits(0);
    project.tenure("reserve docs --shared --as one").exits(0);
    let before = fs::read(project.database()).unwrap();
    project.tenure("check src/a.rs docs/a.md --as one").exits(0);
    let refused = project
        .tenure("check src/a.rs README --as two --json")
        .exits(6)
        .json();
    let refused = &refused["error"]["details"]["refused"];
    assert_eq!(refused[0]["path"], "src/a.rs", "{refused}");
    assert_eq!(refused[0]["holder"], "one", "{refused}");
    assert_eq!(refused.as_array().unwrap().len(), 1, "{refused}");
    project
        .tenure("check docs/a.md --as two")
        .fails(6, &["docs/a.md (by docs (shared)) is reserved by one"]);
    assert!(
        before == fs::read(project.database()).unwrap(),
        "a check wrote something"
    );

    let many: Vec<String> = (0..1000).map(|n| format!("lib/{n}\0")).collect();
    project.write("list", &format!("{}src/x\0", many.concat()));
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let script = format!("{tenure} check --stdin -z --as two --json < list");
    let said = project.shell(&script).end().exits(6).json();
    let details = &said["error"]["details"];
    assert_eq!(details["checked"], 1001);
    assert_eq!(details["refused"].as_array().unwrap().len(), 1);
}

#[test]
fn every_spelling_of_a_file_is_one_file() {
    let project = repository();
    symlink("src", project.path("link")).unwrap();
    symlink("src/lib.rs", project.path("alias.rs")).unwrap();
    project.tenure("reserve src/lib.rs --as one").exits(0);
    let absolute = project.path("src/lib.rs");
    let absolute = absolute.to_str().unwrap();
    let spellings = [
        "src/lib.rs",
        "./src//lib.rs",
        "docs/../src/lib.rs",
        "link/lib.rs",
        "alias.rs",
        absolute,
    ];
    for spelling in spellings {
        project
            .call("check --as two")
            .arg(spelling)
            .end()
            .fails(6, &["src/lib.rs is reserved by one"]);
        project
            .call("reserve -n --as two")
            .arg(spelling)
            .end()
            .exits(6);
    }
    project
        .call("check ../lib.rs --as two")
        .within(project.path("src/api"))
        .end()
        .exits(6);
    project
        .call("reserve *.rs -n --as two")
        .within(project.path("src"))
        .end()
        .exits(6);
    project
        .call("reserve *.rs -n --as two")
        .within(project.path("docs"))
        .end()
        .exits(0);

    // Where git found that the file system ignores case, also another case of what exists.
    project
        .shell("git config core.ignorecase true")
        .end()
        .exits(0);
    for spelling in ["SRC/lib.rs", "src/LIB.RS", "Src/*.rs", "SRC"] {
        project
            .call("reserve -n --as two")
            .arg(spelling)
            .end()
            .fails(6, &["src/lib.rs is reserved by one"]);
    }
    project.tenure("check src/LIB.rs --as two").exits(6);
    project
        .shell("git config core.ignorecase false")
        .end()
        .exits(0);
    project.tenure("check src/LIB.rs --as two").exits(0);

    // A linked worktree has the same paths, also one that is inside the main one.
    let script =
        "git worktree add -q ../linked && git worktree add -q -b inner .inner && git worktree list";
    project.shell(script).end().exits(0);
    for linked in ["../linked", ".inner"] {
        project
            .call("check src/lib.rs --as two")
            .within(project.path(linked))
            .end()
            .exits(6);
        let from_outside = format!("{linked}/src/lib.rs");
        project
            .call("check --as two")
            .arg(&from_outside)
            .end()
            .fails(6, &["src/lib.rs is reserved"]);
    }
    project
        .call("reserve x --as three")
        .within(project.path("../linked"))
        .end()
        .exits(0);
    assert!(reserved(&project).contains(&"three x".to_owned()));
}

#[test]
fn what_is_no_pattern_or_lies_outside_is_refused_and_nothing_is_reserved() {
    let project = repository();
    fs::create_dir_all(project.path("app/[id]")).unwrap();
    project.write("app/[id]/page.tsx", "");
    symlink("/etc", project.path("away")).unwrap();
    for (pattern, said) in [
        ("../x", "is outside of"),
        ("/etc/passwd", "is outside of"),
        ("away/passwd", "is outside of"),
        ("!src", "begins with !"),
        ("src/[z", "is not closed"),
        ("src/{a", "is not closed"),
        ("src/[z-a]", "a range ends"),
        ("*/../x", "after a wildcard"),
        ("", "is empty"),
        ("src/[[:word:]]", "it names no class"),
        (
            "a\tb",
            "\"a\\tb\": the pattern has a control character at byte 1",
        ),
        (&"x".repeat(600), "at most 500"),
        (&"{a,b}".repeat(60), "too many alternatives"),
    ] {
        project
            .call("reserve --as one")
            .arg(pattern)
            .end()
            .fails(2, &[said]);
    }
    let huge = "reserve --as one \"$(head -c 100000 /dev/zero | tr '\\0' x)\"";
    project
        .shell(&format!("{} {huge}", env!("CARGO_BIN_EXE_tenure")))
        .end()
        .fails(2, &["at most 500"]);
    project
        .tenure("reserve --as one")
        .fails(2, &["there is no pattern"]);
    assert_eq!(reserved(&project), Vec::<String>::new());

    // Bounded, however it is written.
    let blow_up = "**/a/".repeat(90);
    project
        .call("reserve --as one")
        .arg(&blow_up)
        .end()
        .exits(0);
    project
        .call("reserve -n --as two")
        .arg("*a".repeat(200))
        .end()
        .exits(6);
    project.tenure("unreserve --as one").exits(0);
    // A name that exists is that file, whatever its characters mean in a pattern.
    project
        .tenure("reserve app/[id]/page.tsx --as one")
        .exits(0);
    project
        .tenure("reserve app/i/page.tsx -n --as two")
        .exits(0);
    project
        .call("check --as two")
        .arg("app/[id]/page.tsx")
        .end()
        .exits(6);
    // A name that is not UTF-8.
    let odd = OsStr::from_bytes(b"src/\xff.rs");
    project.call("reserve --as one").arg(odd).end().exits(0);
    project.call("check --as two").arg(odd).end().exits(6);
}

#[test]
fn a_pattern_of_files_is_in_the_way_of_such_files_only() {
    let project = repository();
    project.write("Cargo.toml", "");
    project.tenure("reserve **/*.rs --as one").exits(0);
    // Any path could be a folder with such a file in it; but these are files, or have an extension.
    project
        .tenure("reserve Cargo.toml docs/new.md **/*.md lib/**/*.[ch] -n --as two")
        .exits(0);
    for (conflicting, said) in [
        ("src/lib.rs", "is reserved by one"),
        ("lib/new.rs", "is reserved by one"),
        ("src", "src includes src/.rs, for example"),
        ("conf.d/", "conf.d includes conf.d/.rs"),
    ] {
        project
            .call("reserve -n --as three")
            .arg(conflicting)
            .end()
            .fails(6, &[said]);
    }
    // What is not there any more is given back by its name.
    fs::remove_file(project.path("Cargo.toml")).unwrap();
    project
        .tenure("unreserve Cargo.toml docs/new.md --as two")
        .exits(0);
    let expected = ["one **/*.rs", "two **/*.md lib/**/*.[ch]"];
    assert_eq!(reserved(&project), expected);
    // With a slash it is a folder, and all below. A name without an extension may be one.
    project.tenure("unreserve --as one").exits(0);
    project.tenure("unreserve --as two").exits(0);
    project.tenure("reserve *.app/ pkg-* --as one -n").exits(0);
    project.tenure("check x.app pkg/x --as two").exits(0);
    for below in ["x.app/a/b", "pkg-a/x", "pkg-a"] {
        project
            .call("check --as two")
            .arg(below)
            .end()
            .fails(6, &["is reserved by one"]);
    }
    // A file may have a longer path than a pattern.
    let deep = format!("{}/f", "a".repeat(250)).repeat(4);
    fs::create_dir_all(project.path(&deep)).unwrap();
    let file = format!("{deep}/file");
    project.write(&file, "");
    project.call("reserve --as one").arg(&file).end().exits(0);
    project
        .call("reserve -n --as two")
        .arg(&file)
        .end()
        .exits(6);
}

#[test]
fn a_folder_may_be_written_if_nothing_in_it_is_reserved() {
    let project = repository();
    project
        .tenure("reserve src/lib.rs new/x docs/*.md --as one")
        .exits(0);
    for folder in ["src", "src/", ".", "docs", "new/"] {
        project
            .call("check --as two")
            .arg(folder)
            .end()
            .fails(6, &["is reserved by one"]);
        project.call("check --as one").arg(folder).end().exits(0);
    }
    project
        .tenure("check src/api docs/img.png --as two")
        .exits(0);
    project.call("check").arg("").end().fails(2, &["is empty"]);
    let why = project.tenure("why src --as two").exits(0).out;
    assert!(
        why.contains("src (by docs/*.md new/x src/lib.rs) is reserved by one"),
        "{why}"
    );
    project.tenure("ask src --as two").exits(0);
}

#[test]
fn a_check_needs_no_permission_to_write() {
    let project = repository();
    project.tenure("reserve src --as one").exits(0);
    let set = |mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        for path in [".tenure/tenure.db", ".tenure", "."] {
            let mode = if path.ends_with("db") {
                mode & 0o666
            } else {
                mode
            };
            let mode = fs::Permissions::from_mode(mode);
            fs::set_permissions(project.path(path), mode).unwrap();
        }
    };
    let files = || {
        let mut all: Vec<_> = fs::read_dir(project.path(".tenure"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        all.sort();
        all
    };
    let (tenure, before) = (env!("CARGO_BIN_EXE_tenure"), files());
    set(0o555);
    // Root may write everywhere, so another user asks.
    let as_user = if project.shell("test $(id -u) = 0").end().code == 0 {
        "setpriv --reuid=65534 --regid=65534 --clear-groups "
    } else {
        ""
    };
    let check = |path: &str| {
        let script = format!("{as_user}{tenure} check {path} --as two");
        project.shell(&script).end()
    };
    let (refused, free) = (check("src/lib.rs"), check("README"));
    set(0o755);
    refused.fails(6, &["is reserved by one"]);
    free.exits(0);
    assert_eq!(files(), before);
}

#[test]
fn a_waiter_for_a_folder_is_not_starved_by_its_files_and_does_not_hold_up_others() {
    let project = repository();
    project.tenure("reserve src/lib.rs --as one").exits(0);
    let folder = project.queue("paths", "reserve src/** --as folder");
    project
        .tenure("reserve src/new.rs -n --as late")
        .fails(6, &["about to be granted to folder"]);
    project.tenure("reserve docs -n --as other").exits(0);
    // What the holder has is waited for anyway, so it may have more of it.
    project.tenure("reserve src/more.rs -n --as one").exits(0);
    let late = project.queue("paths", "reserve src/new.rs --as late");
    project.tenure("unreserve --as one").exits(0);
    ends_well(folder);
    assert_eq!(project.waiting("paths"), ["late"]);
    project.tenure("unreserve --as folder").exits(0);
    ends_well(late);
    assert_eq!(reserved(&project), ["late src/new.rs", "other docs"]);
}

#[test]
fn a_part_of_a_reservation_can_be_given_back_and_the_rest_extended() {
    let project = repository();
    project
        .call("reserve a b c --as one --for 10m --why")
        .arg("the reason")
        .end()
        .exits(0);
    project
        .tenure("unreserve x --as one")
        .fails(4, &["has not reserved x"]);
    project.tenure("unreserve b --as one").exits(0);
    assert_eq!(reserved(&project), ["one a c"]);
    let left = |project: &Project| {
        let all = project.tenure("reservations --json").json();
        let it = &all["data"]["reservations"][0];
        assert_eq!(it["why"], "the reason", "{it}");
        it["remainingSeconds"].as_u64().unwrap()
    };
    assert!(left(&project) <= 600);
    project
        .tenure("reserve --extend a --for 2h --as one")
        .exits(0);
    assert!(left(&project) > 7000);
    project.tenure("reserve --extend --as two").exits(4);
    project.tenure("unreserve --as one").exits(0);
    assert_eq!(reserved(&project), Vec::<String>::new());
}

#[test]
fn two_readers_that_both_want_to_write_are_a_cycle() {
    let project = repository();
    project.tenure("reserve docs --shared --as one").exits(0);
    project
        .tenure("reserve docs/a.md --shared --as two")
        .exits(0);
    let one = project.queue("paths", "reserve docs --as one");
    project
        .tenure("reserve docs/a.md --as two")
        .fails(6, &["two", "one"]);
    project.tenure("unreserve --as two").exits(0);
    ends_well(one);
    project.tenure("check docs/a.md --as two").exits(6);
}

#[test]
fn a_reservation_ends_with_its_process_or_its_time() {
    let project = repository();
    let mut held = project.hold("run other");
    let tied = format!("reserve a --as one --pid {}", held.pid());
    project.tenure(&tied).exits(0);
    project.tenure("reserve b --as one --for 200ms").exits(0);
    project.tenure("reserve a -n --as two").exits(6);
    until("b is free", || project.tenure("check b --as two").code == 0);
    project.tenure("reserve b -n --as two").exits(0);
    held.let_go();
    ends_well(held);
    project.tenure("reserve a -n --as two").exits(0);
}

#[test]
fn a_holder_of_paths_is_asked_for_one_of_its_files() {
    let project = repository();
    project.tenure("reserve src --as one").exits(0);
    project
        .call("ask src/lib.rs --as two --note")
        .arg("need it for the hotfix")
        .end()
        .exits(0);
    let shown = project.tenure("reservations").exits(0).out;
    assert!(
        shown.contains("two asks one for src: need it for the hotfix"),
        "{shown}"
    );
    let listed = project.tenure("reservations --json").json();
    assert_eq!(listed["data"]["asked"][0]["by"], "two", "{listed}");
    let extended = project.tenure("reserve --extend --as one").exits(0);
    assert!(
        extended.out.contains("two asks one for src: need it"),
        "{extended:?}"
    );
    let bad = project.call("ask src/lib.rs --as two --note");
    bad.arg("red\u{1b}[31m")
        .end()
        .fails(2, &["control character"]);
    let why = project.tenure("why src/lib.rs --as two").exits(0).out;
    for said in [
        "src/lib.rs (by src) is reserved by one",
        "tenure ask src/lib.rs",
    ] {
        assert!(why.contains(said), "{why}");
    }
    // The answer is the release.
    project.tenure("unreserve --as one").exits(0);
    let why = project.tenure("why src/lib.rs --as two").exits(0).out;
    assert!(why.contains("no holder has reserved it"), "{why}");
    let shown = project.tenure("reservations").exits(0).out;
    assert!(!shown.contains("asks"), "{shown}");
    project.tenure("ask src/lib.rs --as two").exits(4);
}

#[test]
fn a_link_and_what_it_leads_to_are_reserved_together() {
    let project = repository();
    symlink("lib.rs", project.path("src/link")).unwrap();
    symlink("missing.rs", project.path("src/dangling")).unwrap();
    symlink("dangling", project.path("src/second")).unwrap();
    symlink("loop", project.path("src/loop")).unwrap();
    for (link, target) in [
        ("src/link", "src/lib.rs"),
        ("src/dangling", "src/missing.rs"),
        ("src/second", "src/missing.rs"),
    ] {
        for (first, second) in [(link, target), (target, link)] {
            project
                .tenure(&format!("reserve {first} --as one"))
                .exits(0);
            let call = project.tenure(&format!("reserve {second} --no-wait --as two"));
            call.fails(6, &["one"]);
            project.tenure("unreserve --as one").exits(0);
        }
    }
    // Where a link leads is reserved, too.
    project.tenure("reserve src/second --as one").exits(0);
    assert_eq!(
        reserved(&project),
        ["one src/dangling src/missing.rs src/second"]
    );
    project.tenure("unreserve src/second --as one").exits(0);
    assert!(reserved(&project).is_empty());
    project
        .tenure("reserve src/loop --as one")
        .fails(1, &["Too many levels of symbolic links"]);
}

#[test]
fn a_check_says_what_the_guard_would_say_if_reservations_are_required() {
    let project = repository();
    let check = |path: &str| project.tenure(&format!("check {path} --as one"));
    check("src/lib.rs").exits(0);
    project.write(".tenure/config.yaml", "guard:\n  require: true\n");
    for path in ["src/lib.rs", "src", "."] {
        check(path).fails(5, &["not reserved by you", "guard.require"]);
    }
    project.tenure("reserve src/lib.rs --as one").exits(0);
    check("src/lib.rs").exits(0);
    check("src").exits(5);
    project.tenure("reserve src --as one").exits(0);
    check("src").exits(0);
    let json = project
        .tenure("check docs src --as one --json")
        .exits(5)
        .json();
    assert_eq!(json["error"]["details"]["unreserved"][0], "docs");
    project.tenure("reserve docs --as two").exits(0);
    check("docs").exits(6);
}

#[test]
fn a_lock_is_not_called_as_the_reservations_are() {
    let project = repository();
    for command in [
        "acquire paths --as one",
        "run paths -- true",
        "run build paths -- true",
    ] {
        let said = project.tenure(command);
        assert_ne!(said.code, 0, "{command}");
        assert!(said.err.contains("choose another name"), "{said:?}");
    }
    assert!(reserved(&project).is_empty());
}

#[test]
fn several_reservations_are_given_back_in_one_step() {
    let project = repository();
    project.tenure("reserve a b --as one").exits(0);
    project.tenure("reserve c d --as one").exits(0);
    let said = project.tenure("unreserve b d --as one").exits(0);
    assert_eq!(said.out.trim(), "one gave back b, d");
    assert_eq!(reserved(&project), ["one a", "one c"]);
    // A step has one time.
    let history = project.tenure("locks history paths --json").exits(0).json();
    let events = history["data"]["events"].as_array().unwrap();
    let times = events.iter().filter(|event| event["event"] == "released");
    let times: Vec<&str> = times.map(|it| it["at"].as_str().unwrap()).collect();
    assert_eq!(times.len(), 2, "{history}");
    assert_eq!(times[0], times[1], "{history}");
}
