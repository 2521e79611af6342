//! A drawing of the workspace: crates as boxes by layer, the highest at the top, with their modules
//! as rooms and imports as lines. A module stands above the modules that it imports. Modules that
//! import each other are red, and so are their lines.

use crate::modules::Modules;
use crate::source::SourceFile;
use crate::tidy;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::io;
use std::path::Path;

/// All lengths are in pixels.
const ROOM_HEIGHT: usize = 34;
const LETTER_WIDTH: usize = 7;
const GAP: usize = 14;
/// The space between two rows of rooms, for the lines.
const ROW_GAP: usize = 46;
const WIDTH: usize = 1500;
const TITLE_HEIGHT: usize = 28;

/// Draws the workspace at `root` into `file`. Returns the rooms with their lines, and the cycles.
pub fn draw(root: &Path, file: &Path) -> io::Result<String> {
    let (layers, files) = tidy::sources(root)?;
    let (mut text, mut svg, mut y) = (String::new(), String::new(), GAP);
    for folder in layers.iter().rev().flatten() {
        let modules = Modules::of(folder, &files);
        if modules.lines.is_empty() {
            continue;
        }
        text.push_str(&listed(folder, &modules));
        text.push_str(&inner_cycles(folder, &files));
        let (drawing, height) = drawn(folder, &modules, y);
        svg.push_str(&drawing);
        y += height + GAP;
    }
    let style = "text { font: 12px monospace } .cycle { stroke: #c00; fill: none }\n\
                 .line { stroke: #8aa; fill: none } .room { fill: #fff; stroke: #456 }\n\
                 .knot { fill: #fdd; stroke: #c00 } .crate { fill: #f4f6f8; stroke: #123 }";
    let whole = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{y}\">\n\
         <style>\n{style}\n</style>\n{svg}</svg>\n"
    );
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, whole)?;
    Ok(text)
}

/// A crate's rooms with their numbers of lines and imports, and its import cycles.
fn listed(folder: &str, modules: &Modules) -> String {
    let total: usize = modules.lines.values().sum();
    let mut text = format!("{folder}: {total} lines\n");
    for (name, lines) in &modules.lines {
        let imports = modules.imported_by(name).join(", ");
        let _ = writeln!(text, "  {lines:>6} {name}{}", prefixed(" -> ", &imports));
    }
    for cycle in modules.cycles() {
        let _ = writeln!(text, "  cycle: {}", cycle.join(", "));
    }
    text
}

/// The cycles between modules below the top of a crate.
fn inner_cycles(folder: &str, files: &[SourceFile]) -> String {
    let mut text = String::new();
    for parent in Modules::parents(folder, files) {
        for cycle in Modules::below(folder, &parent, files).cycles() {
            let _ = writeln!(
                text,
                "  cycle in {}: {}",
                parent.join("/"),
                cycle.join(", ")
            );
        }
    }
    text
}

fn prefixed(prefix: &str, text: &str) -> String {
    match text.is_empty() {
        true => String::new(),
        false => format!("{prefix}{text}"),
    }
}

/// The crate's box with its top at `y`, and its height.
fn drawn(folder: &str, modules: &Modules, y: usize) -> (String, usize) {
    let knots: BTreeSet<String> = modules.cycles().into_iter().flatten().collect();
    let (places, height) = placed(modules, y + TITLE_HEIGHT);
    let height = TITLE_HEIGHT + height;
    let total: usize = modules.lines.values().sum();
    let mut svg = format!(
        "<rect class=\"crate\" x=\"{GAP}\" y=\"{y}\" width=\"{}\" height=\"{height}\"/>\n\
         <text x=\"{}\" y=\"{}\" font-weight=\"bold\">{folder} {total}</text>\n",
        WIDTH - 2 * GAP,
        2 * GAP,
        y + 19,
    );
    for (from, to) in modules.imports.keys() {
        let (start, end) = (places[from], places[to]);
        let class = match knots.contains(from) && knots.contains(to) {
            true => "cycle",
            false => "line",
        };
        let (x1, y1) = (start.x + start.width / 2, start.y + ROOM_HEIGHT);
        let (x2, y2) = (end.x + end.width / 2, end.y);
        let _ = writeln!(
            svg,
            "<path class=\"{class}\" d=\"M{x1} {y1} C{x1} {} {x2} {} {x2} {y2}\"/>",
            y1 + ROW_GAP / 2,
            y2.saturating_sub(ROW_GAP / 2),
        );
    }
    for (name, place) in &places {
        let class = if knots.contains(name) { "knot" } else { "room" };
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{ROOM_HEIGHT}\"/>\n\
             <text x=\"{}\" y=\"{}\">{}</text>",
            place.x,
            place.y,
            place.width,
            place.x + LETTER_WIDTH,
            place.y + 21,
            label(name, modules.lines[name]),
        );
    }
    (svg, height)
}

fn label(name: &str, lines: usize) -> String {
    format!("{name} {lines}")
}

/// The position of a room.
#[derive(Clone, Copy, Debug)]
struct Place {
    x: usize,
    y: usize,
    width: usize,
}

/// The rooms' positions from `top` on, the highest level first, and their total height.
fn placed(modules: &Modules, top: usize) -> (BTreeMap<String, Place>, usize) {
    let levels = levels(modules);
    let highest = levels.values().max().copied().unwrap_or_default();
    let mut places = BTreeMap::new();
    let mut y = top;
    for level in (0..=highest).rev() {
        let mut x = 2 * GAP;
        for (name, _) in levels.iter().filter(|(_, of)| **of == level) {
            let letters = label(name, modules.lines[name]).len();
            let width = (letters + 2) * LETTER_WIDTH;
            if x + width > WIDTH - 2 * GAP {
                (x, y) = (2 * GAP, y + ROOM_HEIGHT + GAP);
            }
            places.insert(name.clone(), Place { x, y, width });
            x += width + GAP;
        }
        y += ROOM_HEIGHT + ROW_GAP;
    }
    (places, y - ROW_GAP + GAP - top)
}

/// For each module, the number of rows of rooms below it. Modules of a cycle share a row.
fn levels(modules: &Modules) -> BTreeMap<String, usize> {
    let mut groups = modules.cycles();
    let single = modules.lines.keys();
    let single = single.filter(|name| !groups.iter().flatten().any(|other| other == *name));
    let single: Vec<Vec<String>> = single.map(|name| vec![name.clone()]).collect();
    groups.extend(single);
    let mut levels: BTreeMap<String, usize> = BTreeMap::new();
    while !groups.is_empty() {
        groups.retain(|group| {
            let below = group.iter().flat_map(|name| modules.imported_by(name));
            let below = below.filter(|name| !group.iter().any(|own| own == name));
            let known: Option<Vec<usize>> = below.map(|name| levels.get(name).copied()).collect();
            let Some(known) = known else { return true };
            let level = known.into_iter().max().map_or(0, |level| level + 1);
            levels.extend(group.iter().map(|name| (name.clone(), level)));
            false
        });
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> Modules {
        let files: Vec<SourceFile> = files
            .iter()
            .map(|(name, text)| SourceFile::new(&format!("x/src/{name}.rs"), text))
            .collect();
        Modules::of("x", &files)
    }

    #[test]
    fn a_room_stands_above_those_it_imports() {
        let modules = modules(&[
            ("a", "use crate::{b, c};"),
            ("b", "use crate::c; use crate::d;"),
            ("c", "use crate::b;"),
            ("d", ""),
        ]);
        let levels = levels(&modules);
        assert_eq!(levels["d"], 0);
        assert_eq!((levels["b"], levels["c"]), (1, 1), "of one cycle");
        assert_eq!(levels["a"], 2);
        let (places, _) = placed(&modules, 0);
        assert!(places["a"].y < places["b"].y && places["b"].y < places["d"].y);
        assert!(places["b"].x + places["b"].width < places["c"].x);
    }

    #[test]
    fn the_list_names_cycles() {
        let modules = modules(&[("a", "use crate::b;\n"), ("b", "use crate::a;\n\n")]);
        assert_eq!(
            listed("x", &modules),
            "x: 3 lines\n       1 a -> b\n       2 b -> a\n  cycle: a, b\n"
        );
    }
}
