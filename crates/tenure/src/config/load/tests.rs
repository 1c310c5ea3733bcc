//! All layers together: precedence, provenance and messages.

use std::fs;
use std::time::Duration;

use super::super::*;
use super::*;
use crate::text::duration;

/// A home and a project, each of which may have a configuration file.
struct Layers {
    folder: tempfile::TempDir,
}

impl Layers {
    fn new(home: Option<&str>, project: Option<&str>) -> Self {
        let layers = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for (path, text) in [(layers.home_file(), home), (layers.project_file(), project)] {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if let Some(text) = text {
                fs::write(path, text).unwrap();
            }
        }
        layers
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project/.tenure")
    }

    fn home_file(&self) -> PathBuf {
        self.home().join(".tenure/config.yaml")
    }

    fn project_file(&self) -> PathBuf {
        self.project().join("config.yaml")
    }

    fn load(&self, env: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::load_with(Some(&self.home()), Some(&self.project()), variables(env))
    }
}

fn variables(env: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    env.iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .collect()
}

fn from_env(env: &[(&str, &str)]) -> Result<Config, ConfigError> {
    Config::load_with(None, None, variables(env))
}

fn setting(config: &Config, key: &str) -> Setting {
    let mut settings = config.settings().into_iter();
    settings.find(|s| s.key == key).unwrap()
}

fn fields(
    config: &Config,
) -> (
    &LockingSettings,
    &HistorySettings,
    &RunSettings,
    &DaemonSettings,
    &SyncSettings,
    &GuardSettings,
    &AgentsSettings,
) {
    (
        &config.locking,
        &config.history,
        &config.run,
        &config.daemon,
        &config.sync,
        &config.guard,
        &config.agents,
    )
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let config = Config::default();
    let minutes = |count: u64| Duration::from_secs(60 * count);
    assert_eq!(
        config.locking,
        LockingSettings {
            task_timeout: minutes(60),
            section_timeout: minutes(120),
            wait_timeout: minutes(30),
            poll_interval: Duration::from_secs(5),
            run_timeout: minutes(5),
            queue_grace: minutes(10),
        }
    );
    assert_eq!(config.history.max_age, minutes(90 * 24 * 60));
    assert_eq!(config.history.max_events, 200_000);
    assert_eq!(config.run.kill_grace, Duration::from_secs(10));
    assert_eq!(
        config.daemon,
        DaemonSettings {
            interval: minutes(1),
            log_max_size: 1_000_000,
            autostart: false,
        }
    );
    assert!(config.sync.enabled);
    assert_eq!(config.sync.remote, "auto");
    assert_eq!(config.sync.reference, "refs/tenure/tasks");
    assert!(!config.guard.strict);
    assert!(!config.guard.require);
    assert_eq!(config.agents.destructive, Reaction::Refuse);
}

#[test]
fn without_any_layer_everything_is_the_default() {
    let config = Config::load_with(None, None, []).unwrap();
    assert_eq!(config, Config::default());
    for setting in config.settings() {
        assert_eq!(setting.value, setting.default);
        assert_eq!(setting.source, Source::Default);
        assert!(!setting.description.is_empty());
    }
}

#[test]
fn files_that_do_not_exist_are_skipped() {
    let layers = Layers::new(None, None);
    assert_eq!(layers.load(&[]).unwrap(), Config::default());
}

#[test]
fn the_project_wins_over_the_home_and_the_environment_over_both() {
    let layers = Layers::new(
        Some("locking: {taskTimeout: 1m, sectionTimeout: 1m, waitTimeout: 1m}"),
        Some("locking: {sectionTimeout: 2m, waitTimeout: 2m}"),
    );
    let config = layers
        .load(&[("TENURE_LOCKING_WAIT_TIMEOUT", "3m")])
        .unwrap();

    assert_eq!(config.locking.task_timeout, Duration::from_secs(60));
    assert_eq!(config.locking.section_timeout, Duration::from_secs(120));
    assert_eq!(config.locking.wait_timeout, Duration::from_secs(180));
    assert_eq!(config.locking.poll_interval, Duration::from_secs(5));

    for (key, value, source) in [
        (
            "locking.taskTimeout",
            "1m",
            Source::File(layers.home_file()),
        ),
        (
            "locking.sectionTimeout",
            "2m",
            Source::File(layers.project_file()),
        ),
        (
            "locking.waitTimeout",
            "3m",
            Source::Environment("TENURE_LOCKING_WAIT_TIMEOUT".to_owned()),
        ),
        ("locking.pollInterval", "5s", Source::Default),
    ] {
        let setting = setting(&config, key);
        assert_eq!(setting.value, value);
        assert_eq!(setting.source, source);
    }
}

#[test]
fn a_setting_without_a_value_leaves_the_layer_below_in_effect() {
    let layers = Layers::new(
        Some("run: {killGrace: 3s}"),
        Some("run: {killGrace: {_default: 10s}}"),
    );
    let config = layers.load(&[]).unwrap();
    assert_eq!(config.run.kill_grace, Duration::from_secs(3));
    let source = &setting(&config, "run.killGrace").source;
    assert_eq!(*source, Source::File(layers.home_file()));
}

#[test]
fn every_setting_can_be_set_in_a_file_and_by_its_variable() {
    let default = Config::default();
    for defined in default.settings() {
        let (section, name) = defined.key.split_once('.').unwrap();
        let value = match defined.key {
            "store.url" => "etcd://ci@10.0.0.1:2379/team",
            "history.maxEvents" => "101",
            "history.maxAge" => "2h",
            "daemon.logMaxSize" => "512KB",
            "daemon.autostart" | "guard.strict" | "guard.require" => "true",
            "sync.enabled" => "false",
            "sync.remote" => "origin, backup",
            "sync.ref" => "refs/heads/tenure",
            "guard.release" => "commit, 30m",
            "agents.destructive" => "warn",
            _ => "59m 59s",
        };
        let layers = Layers::new(None, Some(&format!("{section}:\n  {name}: {value}\n")));
        let in_file = layers.load(&[]).unwrap();
        let in_env = from_env(&[(&defined.env, value)]).unwrap();
        if defined.key == "store.url" {
            // The command reads that variable itself; here it is only shown, without the user.
            let shown = "etcd://10.0.0.1:2379/team";
            assert_eq!(setting(&in_env, defined.key).value, shown);
            assert_eq!(setting(&in_file, defined.key).value, shown);
            assert_eq!(in_env.store, default.store);
            let url = in_file.store_url();
            assert_eq!(url.map(|url| url.to_string()).as_deref(), Some(shown));
            continue;
        }
        assert_eq!(setting(&in_file, defined.key).value, value);
        assert_eq!(fields(&in_file), fields(&in_env));
        assert_ne!(fields(&in_file), fields(&default), "{}", defined.key);
    }
}

#[test]
fn a_source_is_shown_by_its_path_or_variable() {
    assert_eq!(Source::Default.to_string(), "default");
    let path = PathBuf::from("a/config.yaml");
    assert_eq!(Source::File(path).to_string(), "a/config.yaml");
    assert_eq!(
        Source::Environment("TENURE_RUN_KILL_GRACE".to_owned()).to_string(),
        "environment TENURE_RUN_KILL_GRACE"
    );
}

#[test]
fn a_bad_value_in_a_file_names_the_location_the_key_and_what_is_accepted() {
    let layers = Layers::new(None, Some("locking:\n  taskTimeout: soon\n"));
    let error = layers.load(&[]).unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "{}:2:16: locking.taskTimeout: \"soon\" is not a duration: write a number and a \
             unit, for example 30s, 5m or 1h30m; accepted is a duration from 100ms to 30d",
            layers.project_file().display()
        )
    );
}

#[test]
fn a_bad_value_in_a_variable_names_the_variable_and_the_key() {
    let error = from_env(&[("TENURE_LOCKING_TASK_TIMEOUT", "31d")]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "environment variable TENURE_LOCKING_TASK_TIMEOUT: locking.taskTimeout: \"31d\" is too \
         large; accepted is a duration from 100ms to 30d"
    );
    assert!(matches!(
        error.problem,
        ConfigProblem::BadValue { key: "locking.taskTimeout", value, .. } if value == "31d"
    ));
}

#[test]
fn a_bad_value_is_an_error_even_where_a_later_layer_overrides_it() {
    let layers = Layers::new(Some("run: {killGrace: 30}"), Some("run: {killGrace: 3s}"));
    let error = layers.load(&[]).unwrap_err().to_string();
    assert!(error.contains("30 what? write 30s, 30m or 30h"), "{error}");
}

#[test]
fn a_count_is_a_whole_number_in_either_form() {
    for text in [
        "maxEvents: 1000",
        "maxEvents: \"1000\"",
        "maxEvents: {value: 1000}",
        "maxEvents: {value: \"1000\"}",
    ] {
        let layers = Layers::new(None, Some(&format!("history:\n  {text}\n")));
        assert_eq!(layers.load(&[]).unwrap().history.max_events, 1000, "{text}");
    }
    for bad in [
        "1000.0",
        "1e4",
        "many",
        "-5",
        "10m",
        "true",
        "99999999999999999999999",
    ] {
        let layers = Layers::new(None, Some(&format!("history:\n  maxEvents: {bad}\n")));
        let error = layers.load(&[]).unwrap_err().to_string();
        assert!(error.contains("history.maxEvents"), "{error}");
        assert!(
            error.contains("a whole number from 100 to 100000000"),
            "{error}"
        );
    }
}

#[test]
fn a_flag_and_a_size_are_refused_with_what_is_accepted() {
    let layers = Layers::new(None, Some("sync:\n  enabled: sometimes\n"));
    let error = layers.load(&[]).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "sync.enabled: \"sometimes\" is neither true nor false; accepted is true or false"
        ),
        "{error}"
    );
    let error = from_env(&[("TENURE_DAEMON_LOG_MAX_SIZE", "1 furlong")]).unwrap_err();
    let error = error.to_string();
    assert!(
        error.ends_with(
            "daemon.logMaxSize: \"1 furlong\" is not a size: write a number of bytes, or one with a \
             unit, for example 512KB or 1MB; accepted is a size from 1KB to 1GB"
        ),
        "{error}"
    );
}

#[test]
fn every_default_is_accepted() {
    for definition in DEFINITIONS {
        let mut config = Config::default();
        assert_eq!(definition.store(definition.default, &mut config), Ok(()));
        assert_eq!(config, Config::default(), "{}", definition.key);
    }
}

#[test]
fn every_bound_is_accepted_and_nothing_beyond_it() {
    for definition in DEFINITIONS {
        let accepted = definition.accepted();
        let bounds = accepted
            .split_once(" from ")
            .and_then(|(kind, rest)| Some((kind, rest.split_once(" to ")?)));
        let (inside, outside) = match bounds {
            Some(("a duration", (least, most))) => {
                let tick = Duration::from_millis(1);
                let exact = |d: Duration| format!("{}ms", d.as_millis());
                let [low, high] = [least, most].map(|text| duration::parse(text).unwrap());
                let below = low.checked_sub(tick).map(exact);
                (
                    vec![least.to_owned(), most.to_owned()],
                    vec![below.unwrap_or("-1ms".to_owned()), exact(high + tick)],
                )
            }
            Some(("a whole number" | "a size", (least, most))) => {
                let [low, high] = [least, most].map(|text| size::parse(text).unwrap());
                (
                    vec![least.to_owned(), most.to_owned()],
                    vec![(low - 1).to_string(), (high + 1).to_string()],
                )
            }
            _ if accepted == "true or false" => (
                vec!["true".to_owned(), "false".to_owned()],
                vec!["maybe".to_owned(), "2".to_owned()],
            ),
            _ => (
                vec![definition.default.to_owned()],
                vec!["a..b".to_owned(), "a b".to_owned(), "/".to_owned()],
            ),
        };
        for text in inside {
            let stored = definition.store(&text, &mut Config::default());
            assert_eq!(stored, Ok(()), "{} = {text}", definition.key);
        }
        for text in outside {
            let refused = definition.store(&text, &mut Config::default());
            let why = refused.unwrap_err();
            assert!(why.contains(&text), "{why}");
            assert!(why.contains(&accepted), "{why}");
        }
    }
}

#[test]
fn a_very_long_value_is_refused_without_repeating_it() {
    for definition in DEFINITIONS {
        let text = "9".repeat(60_000);
        let why = definition.store(&text, &mut Config::default()).unwrap_err();
        assert!(
            why.starts_with("60000 bytes are too long; accepted is"),
            "{why}"
        );
    }
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let config = from_env(&[
        ("TENURE_LOCKING_TASK_TIMEOUT", ""),
        ("TENURE_LOCKING_NO_SUCH_KEY", ""),
    ]);
    assert_eq!(config.unwrap(), Config::default());
}

#[test]
fn a_variable_that_looks_like_a_slip_is_named_and_any_other_ignored() {
    let slips = |names: &[&str]| -> Vec<String> {
        let env: Vec<_> = names.iter().map(|name| (*name, "5m")).collect();
        // It is no reason to fail.
        assert_eq!(from_env(&env).unwrap(), Config::default());
        let env = env.iter().map(|(name, value)| (name.into(), value.into()));
        near_misses(env).iter().map(ToString::to_string).collect()
    };
    for (name, meant) in [
        ("TENURE_LOCKING_TASK_TIMEOT", "TENURE_LOCKING_TASK_TIMEOUT"),
        ("TENURE_LOCKING_TASKTIMEOUT", "TENURE_LOCKING_TASK_TIMEOUT"),
        ("TENURE_HISTORY_MAX_EVENT", "TENURE_HISTORY_MAX_EVENTS"),
        ("TENURE_RUN_KILLGRACE", "TENURE_RUN_KILL_GRACE"),
        ("TENURE_RUN_TIMEOUT", "TENURE_LOCKING_RUN_TIMEOUT"),
        ("TENURE_LOCKING_MAX_AGE", "TENURE_HISTORY_MAX_AGE"),
        ("TENURE_WAIT", "TENURE_LOCKING_WAIT_TIMEOUT"),
        ("TENURE_HOLDR", "TENURE_HOLDER"),
    ] {
        let problem = "no setting has this name: did you mean";
        let expected = format!("environment variable {name}: {problem} {meant}?");
        assert_eq!(slips(&[name]), [expected]);
    }
    let others = ["VERSION", "RUNNER", "HOME", "RUN_COLOUR", "BIN_DIR", ""];
    for other in others.map(|rest| format!("TENURE_{rest}")) {
        assert_eq!(slips(&[&other]), [""; 0], "{other}");
    }
    let ours = [
        "TENURE_HOLDER",
        "TENURE_TASK_TITLE",
        "TENURE_BENCH_X",
        "WAIT",
    ];
    assert_eq!(slips(&ours), [""; 0]);
}

#[test]
fn variables_of_the_command_and_of_others_are_no_settings() {
    let config = from_env(&[
        ("TENURE_HOLDER", "agent-1"),
        ("TENURE_TASK_TITLE", "x"),
        ("TENURE_GENERATED_HOLDER", "x"),
        ("TENURE_WAIT", ""),
        ("LOCKING_TASK_TIMEOUT", "x"),
        ("tenure_locking_task_timeout", "x"),
        ("PATH", "x"),
    ]);
    assert_eq!(config.unwrap(), Config::default());
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_text_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = OsString::from_vec(b"5\xffs".to_vec());
    let env = [(OsString::from("TENURE_RUN_KILL_GRACE"), bytes)];
    let error = Config::load_with(None, None, env).unwrap_err().to_string();
    assert!(error.contains("TENURE_RUN_KILL_GRACE"), "{error}");
    assert!(error.contains("is not a duration"), "{error}");
}

#[test]
fn blanks_around_a_value_do_not_count() {
    let config = from_env(&[("TENURE_RUN_KILL_GRACE", " 3s ")]).unwrap();
    assert_eq!(config.run.kill_grace, Duration::from_secs(3));
    assert_eq!(setting(&config, "run.killGrace").value, "3s");
}

#[test]
fn the_paths_are_listed_in_the_order_they_are_read() {
    let (home, project) = (Path::new("home"), Path::new("project/.tenure"));
    assert_eq!(
        paths(Some(home), Some(project)),
        [
            Path::new("home/.tenure/config.yaml"),
            Path::new("project/.tenure/config.yaml"),
        ]
    );
    assert_eq!(paths(None, None), Vec::<PathBuf>::new());
}

#[test]
fn an_empty_home_is_no_home() {
    assert_eq!(paths(Some(Path::new("")), None), Vec::<PathBuf>::new());
}

#[test]
fn a_project_in_the_home_folder_is_read_once() {
    let (home, project) = (Path::new("home"), Path::new("home/.tenure"));
    assert_eq!(paths(Some(home), Some(project)).len(), 1);
}

#[test]
fn a_section_is_listed_once() {
    assert_eq!(
        sections(),
        [
            "store", "locking", "history", "run", "daemon", "sync", "guard", "agents"
        ]
    );
}

#[test]
fn a_store_of_another_program_adds_a_layer_below_all_files() {
    let layers = Layers::new(Some("locking:\n  taskTimeout: 7m\n"), None);
    let file = layers.home().join(".steroids/config.yaml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "locking:\n  taskTimeout: 20m\n  waitTimeout: 9m\n").unwrap();
    let theirs = StoreUrl::Steroids("steroids.db".into());
    let load = |store: &StoreUrl| {
        layers
            .load(&[])
            .unwrap()
            .for_store(store, Some(&layers.home()))
    };
    let config = load(&theirs).unwrap();
    assert_eq!(config.locking.task_timeout.as_secs(), 7 * 60);
    assert_eq!(config.locking.wait_timeout.as_secs(), 9 * 60);
    let source = setting(&config, "locking.waitTimeout").source;
    assert_eq!(source, Source::File(file.clone()));
    // No other store has it, and neither has a user without a home.
    let own = StoreUrl::Sqlite("tenure.db".into());
    assert_eq!(load(&own).unwrap(), layers.load(&[]).unwrap());
    let homeless = layers
        .load(&[])
        .unwrap()
        .for_store(&theirs, Some(Path::new("")));
    assert_eq!(homeless.unwrap(), layers.load(&[]).unwrap());
    // A mistake is one although a layer above replaces the setting.
    fs::write(&file, "locking:\n  taskTimeout: 20\n").unwrap();
    let error = load(&theirs).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{}:2:16: locking.taskTimeout", file.display())),
        "{error}"
    );
}
