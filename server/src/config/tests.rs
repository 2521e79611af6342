//! Precedence, places of errors, suggestions.

use super::*;

fn load(text: &str, environment: &[(&str, &str)]) -> (tempfile::TempDir, Result<Configuration>) {
    let home = tempfile::tempdir().expect("directory");
    std::fs::write(home.path().join(FILE_NAME), text).expect("written");
    let pairs = environment
        .iter()
        .map(|(n, v)| (n.to_string(), v.to_string()));
    let sources = Sources {
        directory: Some(home.path().to_path_buf()),
        environment: pairs.collect(),
        flags: vec![("--memory", "memory_bytes", "3GiB".to_string())],
        file: None,
    };
    let configuration = Configuration::load(&sources);
    (home, configuration)
}

const FILE: &str = "\
# Our shop.
memory_bytes = \"1GiB\"
statement_timeout = 30_000
synchronous_commit = false
listen = [\"127.0.0.1:5433\", \"[::1]:5433\"]
max_connections = 20

[strandline]
max_staleness = \"2s\"
";

#[test]
fn flags_come_before_the_environment_and_that_before_the_file() {
    let variables = [
        ("STRANDLINE_MEMORY_BYTES", "2GiB"),
        ("STRANDLINE_STATEMENT_TIMEOUT", "5s"),
        ("STRANDLINE_PORT_5432_TCP", "tcp://10.0.0.1"),
        ("HOME", "/root"),
    ];
    let (home, configuration) = load(FILE, &variables);
    let configuration = configuration.expect("loaded");
    let given = |name| configuration.given(name).expect(name);
    assert_eq!(given("memory_bytes").value, "3GiB");
    assert_eq!(given("memory_bytes").origin.to_string(), "flag --memory");
    assert_eq!(given("statement_timeout").value, "5s");
    let line = format!("{}:4", home.path().join(FILE_NAME).display());
    assert_eq!(given("synchronous_commit").value, "off");
    assert_eq!(given("synchronous_commit").origin.to_string(), line);
    assert_eq!(given("strandline.max_staleness").value, "2s");
    assert_eq!(configuration.warnings.len(), 1);
    assert!(configuration.warnings[0].contains("STRANDLINE_PORT_5432_TCP"));
    let options = configuration.server_options().expect("options");
    assert_eq!((options.listen.len(), options.max_connections), (2, 20));
    assert_eq!(configuration.metrics_address().expect("none"), None);

    let database = configuration.configure(strandline::Database::builder(home.path()));
    let database = database.expect("configured").build().expect("opens");
    let mut connection = database.connect();
    let refused = connection.execute("SET Max_connections = 5", ());
    assert_eq!(
        refused.expect_err("only at the start").to_string(),
        "parameter \"max_connections\" cannot be changed without restarting the server"
    );
    let shown = |name| connection.parameter(name).expect(name);
    assert_eq!(shown("statement_timeout"), "5s");
    assert_eq!(shown("synchronous_commit"), "off");
    assert_eq!(shown("max_connections"), "20");
    assert_eq!(shown("shutdown_grace"), "30s");
}

#[test]
fn the_capacity_directory_is_a_parameter_like_others() {
    let capacity = tempfile::tempdir().expect("directory");
    let path = capacity.path().canonicalize().expect("canonical");
    let text = format!("capacity_dir = \"{}\"\n", path.display());
    let (home, configuration) = load(&text, &[]);
    let builder = strandline::Database::builder(home.path());
    let builder = configuration.expect("loaded").configure(builder);
    let database = builder.expect("configured").build().expect("opens");
    let shown = database.connect().parameter("capacity_dir");
    assert_eq!(shown.expect("shown"), path.display().to_string());
    assert!(path.join("tier").exists());
}

#[test]
fn a_capacity_url_is_a_parameter_too_and_excludes_the_directory() {
    let url = "memory://server-config/db";
    let text = format!("capacity_url = \"{url}\"\n");
    let configure = |home: &tempfile::TempDir, configuration: Result<Configuration>| {
        let builder = strandline::Database::builder(home.path().join("db"));
        configuration.expect("loaded").configure(builder)
    };
    let (home, configuration) = load(&text, &[]);
    let database = configure(&home, configuration).expect("configured").build();
    let database = database.expect("opens");
    let shown = |name| database.connect().parameter(name).expect(name);
    assert_eq!(shown("capacity_url"), url);
    assert_eq!(shown("capacity_dir"), "");
    let (home, configuration) = load("\ncapacity_url = \"gs://b/p\"\n", &[]);
    let error = configure(&home, configuration)
        .err()
        .expect("no such scheme");
    let expected = "strandline.toml:2: capacity_url \"gs://b/p\": the scheme \"gs\" is unknown";
    assert!(error.message().contains(expected), "{error}");
    assert_eq!(error.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
    assert!(error.hint().is_some_and(|hint| hint.contains("s3://")));
    let (home, configuration) = load(&text, &[("STRANDLINE_CAPACITY_DIR", "/mnt/big")]);
    let both = configure(&home, configuration).expect("configured").build();
    let error = both.err().expect("both");
    assert!(error.message().contains("are both set"), "{error}");
    assert!(!home.path().join("db").exists());
}

#[test]
fn errors_name_the_line_and_what_may_be_meant() {
    let cases = [
        (
            "\nstatment_timeout = 1\n",
            ":2: unrecognized",
            Some("statement_timeout"),
        ),
        ("[strandline]\nmax_stale = 1", ":2: unrecognized", None),
        ("listen = ", ":1: ", None),
        (
            "a = 1979-05-27",
            "takes a text, a number or a boolean",
            None,
        ),
    ];
    for (text, expected, suggestion) in cases {
        let (_home, configuration) = load(text, &[]);
        let error = configuration.expect_err(text);
        assert!(error.message().contains(expected), "{error}");
        assert!(error.message().contains(FILE_NAME), "{error}");
        if let Some(suggestion) = suggestion {
            assert!(
                error.hint().is_some_and(|h| h.contains(suggestion)),
                "{error:?}"
            );
        }
    }
}

#[test]
fn wrong_values_are_named_with_their_place() {
    let (_home, configuration) = load("\nmax_connections = 0\n", &[]);
    let error = configuration
        .expect("loaded")
        .server_options()
        .expect_err("0");
    assert!(
        error.message().contains("strandline.toml:2: invalid value"),
        "{error}"
    );
    let (home, configuration) = load("lock_timeout = \"soon\"", &[]);
    let builder = strandline::Database::builder(home.path());
    let error = configuration
        .expect("loaded")
        .configure(builder)
        .err()
        .expect("soon");
    assert!(
        error.message().contains("strandline.toml:1: invalid value"),
        "{error}"
    );
    for text in [
        "tls_key = \"a.pem\"",
        "require_tls = true",
        "max_connections = 3\nsuperuser_reserved_connections = 3",
    ] {
        let (_home, configuration) = load(text, &[]);
        configuration
            .expect("loaded")
            .server_options()
            .expect_err(text);
    }
    let missing = Sources {
        file: Some("/nowhere/s.toml".into()),
        ..Sources::default()
    };
    let error = Configuration::load(&missing).expect_err("not there");
    assert_eq!(error.sqlstate(), SqlState::UNDEFINED_FILE);
}

#[test]
fn the_defaults_shown_are_those_that_hold() {
    let mut options = ServerOptions::default();
    for parameter in SERVER_PARAMETERS {
        (parameter.assign)(&mut options, parameter.name, parameter.default).expect(parameter.name);
    }
    assert_eq!(
        format!("{options:?}"),
        format!("{:?}", ServerOptions::default())
    );
}
