//! The direction of dependencies between the workspace's crates.
//!
//! The order is read from ARCHITECTURE.md, so that picture and check cannot differ. One line begins
//! `Direction:` (`a ← b ← {c, d} ← e`): later crates may depend on earlier ones, and crates in
//! braces never on each other. The other line, in the picture of the house, ends with `nothing sees
//! them`.

use super::Violation;
use super::manifest::dependencies;

/// Third-party libraries that only some layers may use, with the reason.
const CONFINED: &[(&str, &[&str], &str)] = &[
    (
        "datafusion",
        &["semantics", "sql"],
        "the planner stays above the engine",
    ),
    (
        "arrow",
        &[
            "column",
            "table",
            "engine",
            "semantics",
            "sql",
            "server",
            "python",
            "cli",
        ],
        "below scans, data is pages and bytes",
    ),
    (
        "tracing",
        &["engine", "sql", "server", "python", "cli"],
        "below the engine, return what happened: the engine tells it",
    ),
    (
        "tokio",
        &["object", "semantics", "sql", "server", "cli"],
        "the engine has no async code",
    ),
];

/// Crates of this workspace that only the engine and the crates below it see. Other crates use the
/// engine's public names instead.
const BEHIND_THE_ENGINE: &[&str] = &["storage", "txn", "index", "tail", "table"];

/// The allowed order.
#[derive(Debug, PartialEq, Eq)]
pub struct Order {
    /// Layers, lowest first; crates of one layer do not see each other.
    layers: Vec<Vec<String>>,
    /// Crates that may see everything and that nothing may see.
    satellites: Vec<String>,
}

impl Order {
    /// Reads the order from the text of ARCHITECTURE.md.
    pub fn parse(architecture: &str) -> Result<Self, String> {
        let direction = architecture
            .lines()
            .find_map(|line| line.strip_prefix("Direction:"))
            .ok_or("ARCHITECTURE.md: no line begins with `Direction:`")?;
        let chain = direction.split('.').next().unwrap_or_default();
        let layers = chain
            .split('\u{2190}')
            .map(|layer| {
                let names = layer.trim().trim_matches(['{', '}']).split(',');
                names
                    .map(|name| name.trim().trim_matches('`').to_string())
                    .collect()
            })
            .collect();
        let satellites = architecture
            .lines()
            .find_map(|line| line.split_once("(may see all"))
            .ok_or("ARCHITECTURE.md: no line says which crates `(may see all; …)`")?
            .0
            .split_whitespace()
            .map(str::to_string)
            .collect();
        Ok(Self { layers, satellites })
    }

    /// All crates, lowest first; the crates that see everything come last.
    pub fn all(&self) -> Vec<Vec<String>> {
        let mut all = self.layers.clone();
        all.push(self.satellites.clone());
        all
    }

    fn rank(&self, name: &str) -> Option<usize> {
        self.layers
            .iter()
            .position(|layer| layer.iter().any(|n| n == name))
    }

    fn is_satellite(&self, folder: &str) -> bool {
        self.satellites
            .iter()
            .any(|s| folder == s || folder.starts_with(&format!("{s}/")))
    }

    /// Checks the manifest (at `path`) of the crate in `folder`.
    pub fn check(&self, folder: &str, path: &str, manifest: &str) -> Vec<Violation> {
        if self.is_satellite(folder) {
            return Vec::new();
        }
        let Some(rank) = self.rank(folder) else {
            let message = format!("`{folder}` is in no layer: add it to ARCHITECTURE.md's order");
            return vec![Violation::new(path, 1, "layers", message)];
        };
        let mut violations = Vec::new();
        for dependency in dependencies(manifest) {
            let problem = match folder_of_package(&dependency.name) {
                Some(other) => self.forbidden(folder, rank, other, dependency.dev),
                None => confined(folder, &dependency.name),
            };
            if let Some(message) = problem {
                violations.push(Violation::new(path, dependency.line, "layers", message));
            }
        }
        violations
    }

    /// The reason why `folder` (of `rank`) may not depend on the workspace crate in `other`.
    fn forbidden(&self, folder: &str, rank: usize, other: &str, dev: bool) -> Option<String> {
        if self.is_satellite(other) {
            let allowed = dev && other == "sim";
            return (!allowed).then(|| {
                format!("`{folder}` sees `{other}`, which nothing may see: move the test there")
            });
        }
        let is_above_engine = self.rank("engine").is_some_and(|engine| rank > engine);
        if is_above_engine && BEHIND_THE_ENGINE.contains(&other) {
            return Some(format!(
                "`{folder}` reaches past the engine to `{other}`: use `strandline_engine`, or give \
                 it what is missing"
            ));
        }
        match self.rank(other) {
            Some(r) if r < rank => None,
            _ => Some(format!(
                "`{folder}` depends on `{other}`, which is not below it: pass a trait or a value \
                 down instead (ARCHITECTURE.md, Direction)"
            )),
        }
    }
}

/// The folder of a package of this workspace; None for third-party packages.
fn folder_of_package(name: &str) -> Option<&str> {
    if name == "strandline" {
        return Some("sql");
    }
    name.strip_prefix("strandline-")
}

fn confined(folder: &str, package: &str) -> Option<String> {
    let (name, places, reason) = CONFINED
        .iter()
        .find(|(name, ..)| package == *name || package.starts_with(&format!("{name}-")))?;
    (!places.contains(&folder)).then(|| {
        format!(
            "`{package}` ({}) is for {} only: {reason}",
            name,
            places.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCHITECTURE: &str = "tests  bench   (may see all; nothing sees them)\n\
                                Direction: base \u{2190} {index, table} \u{2190} engine \
                                \u{2190} sql. More.\n";

    fn check(folder: &str, dependency: &str) -> Vec<String> {
        let order = Order::parse(ARCHITECTURE).unwrap();
        let manifest = format!("[dependencies]\n{dependency}.workspace = true\n");
        let path = format!("{folder}/Cargo.toml");
        order
            .check(folder, &path, &manifest)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn downwards_is_allowed_everything_else_is_not() {
        assert!(check("table", "strandline-base").is_empty());
        assert!(check("engine", "strandline-index").is_empty());
        assert!(check("sql", "strandline-engine").is_empty());
        assert!(check("sql", "strandline-base").is_empty());
        assert!(check("base", "strandline-table")[0].starts_with("base/Cargo.toml:2: [layers]"));
        assert_eq!(check("index", "strandline-table").len(), 1, "siblings");
        assert_eq!(
            check("index", "strandline").len(),
            1,
            "crate `strandline` is sql/"
        );
    }

    #[test]
    fn what_is_behind_the_engine_is_seen_by_the_engine_only() {
        for hidden in ["strandline-index", "strandline-table"] {
            let violations = check("sql", hidden);
            assert_eq!(violations.len(), 1, "{hidden}");
            assert!(violations[0].contains("past the engine"), "{violations:?}");
        }
    }

    #[test]
    fn satellites_see_all_and_nothing_sees_them() {
        assert!(check("tests", "strandline").is_empty());
        assert!(check("bench/rivals", "rusqlite").is_empty());
        assert_eq!(check("sql", "strandline-tests").len(), 1);
    }

    #[test]
    fn heavy_libraries_stay_in_their_layer() {
        assert!(check("sql", "datafusion").is_empty());
        assert_eq!(check("table", "datafusion-common").len(), 1);
        assert_eq!(check("index", "arrow-array").len(), 1);
        assert!(check("base", "serde").is_empty());
    }

    #[test]
    fn a_crate_without_a_layer_is_reported() {
        assert!(check("extra", "serde")[0].contains("in no layer"));
    }

    #[test]
    fn a_document_without_the_order_is_an_error() {
        assert!(Order::parse("Direction: a\n").is_err());
        assert!(Order::parse("x (may see all; y)\n").is_err());
    }
}
