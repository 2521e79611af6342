//! Whole workspaces in a folder, good and bad.

use super::*;

/// A workspace in a temporary folder, removed on drop.
struct Fixture(std::path::PathBuf);

impl Fixture {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("tidy-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a file in a folder")).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self(root)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the fixture can be removed");
    }
}

const GOOD: &[(&str, &str)] = &[
    (
        "ARCHITECTURE.md",
        "xtask (may see all; nothing sees them)\nDirection: base \u{2190} sql.\n",
    ),
    ("Cargo.toml", "[workspace]\nmembers = [\"base\", \"sql\"]\n"),
    ("GLOSSARY.md", "| code |\n|---|\n| `model` |\n"),
    ("base/Cargo.toml", "[package]\nname = \"strandline-base\"\n"),
    ("base/src/lib.rs", "//! Base.\n#[cfg(test)]\nmod model;\n"),
    (
        "base/src/model.rs",
        "//! A model.\nfn f() { std::thread::spawn(g); }\n",
    ),
    (
        "sql/Cargo.toml",
        "[dependencies]\nstrandline-base.workspace = true\n",
    ),
    ("sql/src/lib.rs", "//! SQL.\n"),
    ("sql/target/debug/x.rs", "not ours"),
    ("xtask/ratchet.txt", "# none\n"),
];

#[test]
fn a_clean_workspace_passes() {
    let fixture = Fixture::new("good", GOOD);
    let report = check_with(&fixture.0, &[]).unwrap();
    assert_eq!((report.files, report.violations), (3, vec![]));
}

#[test]
fn violations_of_manifests_and_sources_are_reported_together() {
    let mut files = GOOD.to_vec();
    files.push((
        "base/Cargo.toml",
        "[dependencies]\nstrandline.workspace = true\n",
    ));
    files.push(("sql/src/lib.rs", "fn f() { todo!() }\n"));
    let fixture = Fixture::new("bad", &files);
    let report = check_with(&fixture.0, &[]).unwrap();
    let rules: Vec<_> = report
        .violations
        .iter()
        .map(|v| (v.path.as_str(), v.rule))
        .collect();
    let expected = [
        ("base/Cargo.toml", "layers"),
        ("sql/src/lib.rs", "header"),
        ("sql/src/lib.rs", "unfinished"),
    ];
    assert_eq!(rules, expected);
}

#[test]
fn a_missing_file_is_named() {
    let fixture = Fixture::new("missing", &GOOD[1..]);
    let error = check_with(&fixture.0, &[]).unwrap_err();
    assert!(
        error.to_string().starts_with("ARCHITECTURE.md: "),
        "{error}"
    );
}

#[test]
fn this_workspace_is_readable() {
    let report = check_workspace(&crate::workspace_root()).unwrap();
    assert!(report.files > 10);
}
