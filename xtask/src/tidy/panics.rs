//! Code that panics where it should report an error. `unwrap` is banned everywhere outside tests.
//! An index or a slice is banned in code that decodes bytes from a device or a client, where damage
//! decides the index.

use super::Violation;
use crate::source::{SourceFile, words};

/// Files that decode bytes from outside. Damaged bytes must give an error there, never a panic.
const DECODERS: &[&str] = &[
    "base/src/bytes.rs",
    "column/src/chunk/floats.rs",
    "engine/src/redo/",
    "index/src/search_tree/node.rs",
    "index/src/fd_tree/block.rs",
    "index/src/fd_tree/image.rs",
    "index/src/fd_tree/partition.rs",
    "index/src/lid_block/layout.rs",
    "index/src/r_tree/node.rs",
    "semantics/src/wire_format/array.rs",
    "semantics/src/wire_format/read.rs",
    "server/src/message.rs",
    "storage/src/frame.rs",
    "storage/src/level_blocks/file_blocks.rs",
    "storage/src/manifest.rs",
    "storage/src/manifest/",
    "storage/src/ssd_cache/directory.rs",
    "storage/src/ssd_cache/marker.rs",
    "storage/src/ssd_cache/slots.rs",
    "storage/src/pages/header.rs",
    "storage/src/pages/record.rs",
    "storage/src/pages/recovery.rs",
    "storage/src/pages/space.rs",
    "storage/src/tiers.rs",
    "storage/src/version.rs",
    "table/src/update_run/group.rs",
    "table/src/update_run/values.rs",
];

/// Checks a file outside its tests.
pub fn check(file: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut report = |at, message: &str| {
        violations.push(Violation::new(&file.path, file.line(at), "panics", message));
    };
    for (at, word) in words(&file.code) {
        let is_call =
            file.code[..at].ends_with('.') && file.code[at + word.len()..].starts_with('(');
        if matches!(word, "unwrap" | "unwrap_err") && is_call && !file.in_test(at) {
            report(
                at,
                "return the error, or say with `expect` why there is none",
            );
        }
    }
    if DECODERS
        .iter()
        .any(|decoder| file.path.starts_with(decoder))
    {
        for at in indexed(&file.code) {
            if !file.in_test(at) {
                report(
                    at,
                    "bytes decide this index: use `get`, `split_at_checked` or a reader",
                );
            }
        }
    }
    violations
}

/// The offsets of index and slice expressions: a bracket right behind a name, a call or an index.
fn indexed(code: &str) -> impl Iterator<Item = usize> {
    code.match_indices('[').filter_map(|(at, _)| {
        let before = code[..at].chars().next_back()?;
        let is_value =
            before == '_' || before.is_alphanumeric() || matches!(before, ')' | ']' | '?');
        is_value.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = SourceFile::new(path, text);
        check(&file).iter().map(|v| v.line).collect()
    }

    const TESTS: &str = "#[cfg(test)]\nmod tests { fn f() { x.unwrap(); y[1]; } }\n";

    #[test]
    fn unwrap_is_for_tests() {
        let text = format!("fn f() {{\n x.unwrap();\n x.unwrap_or(1); unwrap(x) }}\n{TESTS}");
        assert_eq!(lines("sql/src/a.rs", &text), [2]);
        assert!(lines("sql/src/a/tests.rs", "fn f() { x.unwrap() }").is_empty());
    }

    #[test]
    fn decoders_take_no_index_from_bytes() {
        let text = format!(
            "#[inline]\nfn f(x: &[u8; 2], y: Vec<[u8; 2]>) {{\n x[1];\n g()[..2];\n y[0][1];\n \
             let z = [vec![1], matches![x]];\n for a in [1] {{}}\n}}\n{TESTS}"
        );
        assert_eq!(lines("storage/src/frame.rs", &text), [3, 4, 5, 5]);
        assert!(lines("storage/src/cache.rs", &text).is_empty());
    }
}
