//! The state of the generator: its random numbers, names it has given, WITH queries in reach.

use super::scope::{Column, Kind};
use strandline_base::rng::Rng;

/// Makes one unit.
pub(super) struct Generator {
    pub rng: Rng,
    /// FROM items named so far
    aliases: u32,
    /// WITH queries by name, innermost last
    pub with: Vec<(String, Vec<Kind>)>,
}

impl Generator {
    pub fn new(rng: Rng) -> Self {
        Self {
            rng,
            aliases: 0,
            with: Vec::new(),
        }
    }

    /// A name that no other FROM item of the unit has.
    pub fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("r{}", self.aliases)
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.rng.below(items.len() as u64) as usize]
    }

    pub fn kind(&mut self) -> Kind {
        *self.pick(&Kind::ALL)
    }
}

/// The columns `c1`, `c2`, … of the item `alias`.
pub(super) fn numbered(alias: &str, kinds: &[Kind]) -> Vec<Column> {
    let columns = kinds.iter().enumerate().map(|(i, kind)| Column {
        sql: format!("{alias}.c{}", i + 1),
        kind: *kind,
    });
    columns.collect()
}
