//! The group `indirection`: the figures of [Indirection §5.1, §6] for indexes of row ids beside
//! indexes of record ids (`rid`), the paper's base method.
//!
//! Of Table 1 it shows the accesses of an operation by tier, of Fig. 5, 7 and 9 to 15 the time of
//! one. One client works on emulated devices (`devices`). The goals: with 16 indexes an update
//! takes at most 0.1 of `rid`'s time; with LIDBlocks of 32 entries an insertion takes at most 0.1
//! (sparse) and 0.25 (dense); a point query at most 1.05, a range 1.2.
//!
//! Fig. 14 and 15 have TPC-H's form and not its queries, for which the paper asks DB2's advisor: a
//! query reads the rows of one value of `lineitem`, by the index of its attribute or, before that
//! is there, by a scan; each attribute is asked and updated equally often.
//!
//! Fig. 6 is Table 1 in other words. Not measured: Fig. 8, which compares places on the disk with
//! places on the SSD.

mod devices;
mod experiment;

use super::Bench;
use crate::Result;
use crate::plots::point;
use crate::report::{Figure, Goal, Report, config};
use devices::Spent;
use experiment::{Image, Memory, Operation, Shape, Side, blocks};
use serde_json::{Value, json};
use strandline_index::BlockKind;

/// Rows, and with --quick.
const ROWS: [u64; 2] = [1_000_000, 200_000];
/// Operations of a point, and with --quick.
const OPERATIONS: [u64; 2] = [2_000, 500];
/// Insertions of a point of Fig. 12 and 13, and with --quick. As many as in the paper: with few,
/// most meet a leaf that has no LIDBlock yet, and none meets a full one.
const INSERTIONS: [u64; 2] = [100_000, 10_000];
/// The paper's most indexes.
const INDEXES: usize = 16;
/// Rows with the same value, as of `lineitem.suppkey`.
const SAME: u64 = 36;
/// Values of a dense index, as of `lineitem.quantity`.
const DENSE_VALUES: u64 = 50;
/// Entries of a LIDBlock, where the figure does not vary them.
const BLOCK: usize = 32;

/// What the goal of a figure is measured with.
#[derive(Clone, Copy)]
struct Case<'a> {
    name: &'a str,
    /// the value on a plot's x axis
    x: f64,
    goal: Option<Goal>,
    /// what the paper says of it
    paper: &'a str,
}

/// Both sides loaded with the same rows.
struct Tables {
    ours: Image,
    rid: Image,
    shape: Shape,
    operations: u64,
    seed: u64,
}

impl Tables {
    fn load(bench: &Bench, side: Side, shape: Shape) -> Result<Self> {
        Ok(Self {
            ours: Image::load(side, shape)?,
            rid: Image::load(Side::Rid, shape)?,
            shape,
            operations: OPERATIONS[usize::from(bench.is_quick)],
            seed: bench.seed,
        })
    }

    /// What an operation takes on each side, ours first.
    fn measure(&self, operation: Operation, memory: Memory, indexes: usize) -> Result<[Spent; 2]> {
        self.measure_so_often(self.operations, operation, memory, indexes)
    }

    /// As [`Tables::measure`], of so many operations.
    fn measure_so_often(
        &self,
        operations: u64,
        operation: Operation,
        memory: Memory,
        indexes: usize,
    ) -> Result<[Spent; 2]> {
        let of = |image: &Image| {
            let mut table = image.open(memory, indexes)?;
            table.measure(operation, operations, self.seed)
        };
        Ok([of(&self.ours)?, of(&self.rid)?])
    }

    fn config(&self, [ours, rid]: [Spent; 2], case: &Case<'_>) -> serde_json::Map<String, Value> {
        config([
            ("rows", json!(self.shape.rows)),
            ("values", json!(self.shape.values)),
            ("operations", json!(ours.operations)),
            ("devices", json!(devices::label())),
            ("ours", of_side(ours)),
            ("rid", of_side(rid)),
            ("paper", json!(case.paper)),
        ])
    }

    /// Adds the time of an operation.
    fn time(
        &self,
        report: &mut Report,
        plot: &str,
        case: Case<'_>,
        spent: [Spent; 2],
    ) -> Result<()> {
        let mut config = self.config(spent, &case);
        let curves = [("row ids", spent[0].ms), ("record ids", spent[1].ms)];
        let plots = json!([point(plot, case.x, &curves)]);
        config.insert("plots".into(), plots);
        report.add(Figure {
            case: case.name.to_string(),
            unit: "ms",
            ours: spent[0].ms.into(),
            peer: "strandline, record ids".into(),
            theirs: Some(spent[1].ms.into()),
            goal: case.goal,
            config,
        })
    }

    /// Adds the accesses of the capacity tier of an operation.
    fn accesses(&self, report: &mut Report, case: Case<'_>, spent: [Spent; 2]) -> Result<()> {
        let [ours, rid] = spent.map(|Spent { accesses, .. }| accesses[2] + accesses[3]);
        report.add(Figure {
            case: case.name.to_string(),
            unit: "accesses",
            ours: ours.into(),
            peer: "strandline, record ids".into(),
            theirs: Some(rid.into()),
            goal: case.goal,
            config: self.config(spent, &case),
        })
    }
}

/// One side's accesses of an operation by tier.
fn of_side(spent: Spent) -> Value {
    let [fast_reads, fast_writes, capacity_reads, capacity_writes] =
        spent.accesses.map(|count| (count * 1e3).round() / 1e3);
    json!({
        "ms": spent.ms,
        "fast_reads": fast_reads,
        "fast_writes": fast_writes,
        "capacity_reads": capacity_reads,
        "capacity_writes": capacity_writes,
    })
}

/// The figures.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let rows = ROWS[usize::from(bench.is_quick)];
    let shape = Shape {
        rows,
        indexes: INDEXES,
        has_key: true,
        values: rows / SAME,
    };
    let side = Side::Lid(Some(blocks(BlockKind::Sparse, BLOCK)));
    let tables = Tables::load(bench, side, shape)?;
    table_1(&tables, report)?;
    of_indexes(&tables, report)?;
    of_ranges(&tables, report)?;
    of_memory(&tables, report)?;
    of_trade_off(&tables, report)?;
    drop(tables);
    of_blocks(bench, report, BlockKind::Sparse, rows / SAME)?;
    of_blocks(bench, report, BlockKind::Dense, DENSE_VALUES)
}

/// Table 1: accesses of the capacity tier, immediate and deferred.
fn table_1(tables: &Tables, report: &mut Report) -> Result<()> {
    let operations = [
        (
            Operation::KeyUpdate,
            "update of a key",
            "k indexes, b entries a block: 3 + <= 2 against 3 + k + <= 2 + k",
        ),
        (
            Operation::Insert,
            "insertion",
            "1 + <= 1 + (2k - 1)/b against 1 + k + <= 1 + k",
        ),
        (
            Operation::Delete,
            "deletion",
            "2 + <= 1 + k against 2 + k + <= 1 + k",
        ),
        (Operation::Search, "unique search", "2 against 2"),
    ];
    for indexes in [4, INDEXES] {
        for (operation, name, paper) in operations {
            let spent = tables.measure(operation, Memory::Inner, indexes)?;
            let case = Case {
                name: &format!("Table 1: {name}, {indexes} indexes, blocks of {BLOCK}"),
                x: 0.0,
                goal: None,
                paper,
            };
            tables.accesses(report, case, spent)?;
        }
    }
    Ok(())
}

/// Fig. 5, 9 and 10: updates of an attribute without an index, insertions and point queries over
/// the number of indexes.
fn of_indexes(tables: &Tables, report: &mut Report) -> Result<()> {
    for indexes in [1, 2, 4, 8, INDEXES] {
        let x = indexes as f64;
        let is_most = indexes == INDEXES;
        let spent = tables.measure(Operation::Update, Memory::Small, indexes)?;
        let case = Case {
            name: &format!("Fig. 10: update, {indexes} indexes"),
            x,
            goal: is_most.then_some(Goal::AtMost(0.1)),
            paper: "nearly 20x with 16 indexes; Fig. 5: 3.6x with a warm buffer pool",
        };
        tables.time(report, "indirection-fig10", case, spent)?;
        let spent = tables.measure(Operation::Search, Memory::Small, indexes)?;
        let case = Case {
            name: &format!("Fig. 5: point query, {indexes} indexes"),
            x,
            goal: is_most.then_some(Goal::AtMost(1.05)),
            paper: "the overhead is negligible",
        };
        tables.time(report, "indirection-fig5", case, spent)?;
    }
    let spent = tables.measure(Operation::Insert, Memory::Small, 1)?;
    let case = Case {
        name: "Fig. 9: insertion, 1 index",
        x: 1.0,
        goal: None,
        paper: "virtually the same without LIDBlocks",
    };
    tables.time(report, "indirection-fig9", case, spent)
}

/// Fig. 7: ranges of the first index, whose order is that of the rows.
fn of_ranges(tables: &Tables, report: &mut Report) -> Result<()> {
    for percent in [0.05, 0.1, 0.2, 0.5, 1.0] {
        let rows = (tables.shape.rows as f64 * percent / 100.0) as u64;
        let few = Tables::operations(tables.operations, rows);
        let spent = tables.measure_so_often(few, Operation::Range(rows), Memory::Inner, 1)?;
        let case = Case {
            name: &format!("Fig. 7: range of {percent} % of the rows"),
            x: percent,
            goal: Some(Goal::AtMost(1.2)),
            paper: "under 20 % on average",
        };
        tables.time(report, "indirection-fig7", case, spent)?;
    }
    Ok(())
}

impl Tables {
    /// Ranges of so many rows read about as many rows in all.
    fn operations(operations: u64, rows: u64) -> u64 {
        (operations * 100 / rows.max(1)).clamp(20, operations)
    }
}

/// Fig. 11: updates over the size of memory, with one and 16 indexes.
fn of_memory(tables: &Tables, report: &mut Report) -> Result<()> {
    let sizes = [
        (Memory::Small, "the way to a leaf"),
        (Memory::Inner, "inner nodes"),
        (Memory::Indexes, "the indexes"),
        (Memory::Rows, "indexes and rows"),
        (Memory::All, "everything"),
    ];
    for (indexes, plot) in [(1, "indirection-fig11a"), (INDEXES, "indirection-fig11b")] {
        for (x, (memory, name)) in sizes.into_iter().enumerate() {
            let spent = tables.measure(Operation::Update, memory, indexes)?;
            let case = Case {
                name: &format!("Fig. 11: update, {indexes} indexes, memory for {name}"),
                x: x as f64,
                goal: None,
                paper: "slower only with one index if rows are in memory and places are not; an \
                        order of magnitude faster with 16",
            };
            tables.time(report, plot, case, spent)?;
        }
    }
    Ok(())
}

/// Fig. 14 and 15: the time of queries and of updates over the number of indexes; each relative to
/// the most that record ids take.
fn of_trade_off(tables: &Tables, report: &mut Report) -> Result<()> {
    const PAPER: &str = "queries 3x as fast with all indexes; Indirection takes more than 40 % off \
                         the updates";
    let attributes = INDEXES - 1;
    // Scans read the whole table.
    let few = (tables.operations / 20).max(attributes as u64);
    let mut times = Vec::new();
    for indexes in [1, 2, 4, 8, 12, INDEXES] {
        let case = |name| Case {
            name,
            x: indexes as f64,
            goal: None,
            paper: PAPER,
        };
        let query = Operation::Query(attributes);
        let queries = tables.measure_so_often(few, query, Memory::Inner, indexes)?;
        let name = format!("Fig. 14: query, {indexes} indexes");
        tables.time(report, "indirection-fig14-query", case(&name), queries)?;
        let operation = Operation::AnyUpdate(attributes);
        let updates = tables.measure(operation, Memory::Inner, indexes)?;
        let name = format!("Fig. 14: update of any attribute, {indexes} indexes");
        tables.time(report, "indirection-fig14-update", case(&name), updates)?;
        times.push([0, 1].map(|side| (updates[side].ms, queries[side].ms)));
    }
    let most =
        |of: fn(&(f64, f64)) -> f64| times.iter().map(|[_, rid]| of(rid)).fold(0.0, f64::max);
    let (most_update, most_query) = (most(|rid| rid.0), most(|rid| rid.1));
    let mut plots = Vec::new();
    let mut least = [f64::INFINITY; 2];
    for sides in &times {
        for (side, name) in ["row ids", "record ids"].into_iter().enumerate() {
            let (update, query) = sides[side];
            let (update, query) = (update / most_update, query / most_query);
            plots.push(point("indirection-fig15", update, &[(name, query)]));
            least[side] = least[side].min(update + query);
        }
    }
    report.add(Figure {
        case: "Fig. 15: least sum of relative query and update time".into(),
        unit: "of record ids' most",
        ours: least[0].into(),
        peer: "strandline, record ids".into(),
        theirs: Some(least[1].into()),
        goal: Some(Goal::AtMost(1.0)),
        config: config([
            ("devices", json!(devices::label())),
            ("paper", json!("0.87 against 1.15")),
            ("plots", json!(plots)),
        ]),
    })
}

/// Fig. 12 and 13: insertions into a table with one index over the size of its LIDBlocks.
fn of_blocks(bench: &Bench, report: &mut Report, kind: BlockKind, values: u64) -> Result<()> {
    let (figure, plot, goal, paper, most) = match kind {
        BlockKind::Sparse => (
            "Fig. 12: insertion, sparse",
            "indirection-fig12",
            0.1,
            "up to 15.2x",
            // More do not fit into a page.
            240,
        ),
        BlockKind::Dense => (
            "Fig. 13: insertion, dense",
            "indirection-fig13",
            0.25,
            "up to 4.9x",
            256,
        ),
    };
    let shape = Shape {
        rows: ROWS[usize::from(bench.is_quick)],
        indexes: 1,
        has_key: false,
        values,
    };
    for entries in [0, 8, 16, 32, 64, 128, most] {
        let form = (entries > 0).then(|| blocks(kind, entries));
        let tables = Tables::load(bench, Side::Lid(form), shape)?;
        let insertions = INSERTIONS[usize::from(bench.is_quick)];
        let insertion = Operation::BlindInsert;
        let spent = tables.measure_so_often(insertions, insertion, Memory::Small, 1)?;
        let case = Case {
            name: &format!("{figure}, blocks of {entries}"),
            x: entries as f64,
            goal: (entries == BLOCK).then_some(Goal::AtMost(goal)),
            paper,
        };
        tables.time(report, plot, case, spent)?;
    }
    Ok(())
}
