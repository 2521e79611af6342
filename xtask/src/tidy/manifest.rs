//! Reads the few entries of Cargo.toml files that tidy needs: members and dependencies.
//!
//! The workspace's manifests have one plain style (a dependency per line, tables by header), so a
//! line reader is enough. It ignores lines that are not dependencies; Cargo itself rejects text
//! that is not TOML.

/// A dependency as it stands in a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The package's name.
    pub name: String,
    /// Line in the manifest, from 1.
    pub line: usize,
    /// Whether it is a dependency of tests only.
    pub dev: bool,
}

/// The folders in `[workspace] members`.
pub fn members(manifest: &str) -> Vec<String> {
    let after = manifest
        .split_once("\nmembers")
        .map_or("", |(_, after)| after);
    let list = after.split_once(']').map_or("", |(list, _)| list);
    list.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_string)
        .collect()
}

/// Every dependency of every kind, target-specific ones included.
pub fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut section = "";
    for (i, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            // [dependencies.name]
            if let Some((table, name)) = section.rsplit_once('.')
                && is_dependency_table(table)
            {
                found.push(dependency(name, i, table));
            }
        } else if is_dependency_table(section)
            && let Some((key, value)) = line.split_once('=')
            && !line.starts_with('#')
        {
            let key = key.trim().split('.').next().unwrap_or_default();
            found.push(dependency(renamed(value).unwrap_or(key), i, section));
        }
    }
    found
}

fn dependency(name: &str, index: usize, table: &str) -> Dependency {
    let name = name.trim_matches('"').to_string();
    Dependency {
        name,
        line: index + 1,
        dev: table.ends_with("dev-dependencies"),
    }
}

fn is_dependency_table(section: &str) -> bool {
    section.rsplit('.').next().is_some_and(|table| {
        matches!(
            table,
            "dependencies" | "dev-dependencies" | "build-dependencies"
        )
    }) && !section.starts_with("workspace")
}

/// The package in `{ package = "…", … }`.
fn renamed(value: &str) -> Option<&str> {
    let (_, after) = value.split_once("package")?;
    after.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_over_several_lines() {
        let manifest =
            "[workspace]\nmembers = [\n  \"base\", \"a/b\",\n]\ndefault-members = [\"x\"]";
        assert_eq!(members(manifest), ["base", "a/b"]);
        assert_eq!(members("[package]\n"), Vec::<String>::new());
    }

    #[test]
    fn every_form_of_dependency() {
        let manifest = "[package]\nname = \"p\"\n[dependencies]\na.workspace = true\nb = \"1\"\n\
                        # c = \"1\"\nd = { package = \"e\", version = \"1\" }\n\
                        [dev-dependencies]\nf = \"1\"\n[dependencies.g]\nversion = \"1\"\n\
                        [target.'cfg(shuttle)'.dependencies]\nh.workspace = true\n\
                        [features]\ni = []\n";
        let found: Vec<(String, usize, bool)> = dependencies(manifest)
            .into_iter()
            .map(|d| (d.name, d.line, d.dev))
            .collect();
        let expected = [
            ("a", 4, false),
            ("b", 5, false),
            ("e", 7, false),
            ("f", 9, true),
        ];
        let more = [("g", 10, false), ("h", 13, false)];
        let expected: Vec<_> = expected
            .iter()
            .chain(&more)
            .map(|&(name, line, dev)| (name.to_string(), line, dev))
            .collect();
        assert_eq!(found, expected);
    }
}
