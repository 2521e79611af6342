//! The group `indirection` without building the other benchmarks: I/Os and time of each operation.
//!
//! `cargo run --release -p strandline-index --example indirection -- [rows] [operations] [indexes]`

mod devices;
mod experiment;

use experiment::{Image, Memory, Operation, Shape, Side, blocks};
use std::io::Write as _;
use strandline_base::Result;
use strandline_index::BlockKind;

const MEMORIES: [Memory; 5] = [
    Memory::Small,
    Memory::Inner,
    Memory::Indexes,
    Memory::Rows,
    Memory::All,
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default| {
        let text = arguments.get(at).and_then(|text| text.parse().ok());
        text.unwrap_or(default)
    };
    let (rows, count, indexes) = (number(1, 200_000), number(2, 500), number(3, 4));
    let shape = Shape {
        rows,
        indexes: indexes as usize,
        has_key: true,
        values: rows / 36,
    };
    let one_index = Shape {
        indexes: 1,
        has_key: false,
        ..shape
    };
    let sides = [
        ("rid", Side::Rid),
        ("lid", Side::Lid(None)),
        (
            "lid, sparse 32",
            Side::Lid(Some(blocks(BlockKind::Sparse, 32))),
        ),
    ];
    let operations = [
        Operation::KeyUpdate,
        Operation::Insert,
        Operation::Delete,
        Operation::Search,
        Operation::Range(rows / 400),
        Operation::AnyUpdate(indexes as usize),
        Operation::Query(indexes as usize),
    ];
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", devices::label()).ok();
    let title =
        "side | operation | memory | operations | ms | fast reads, writes | capacity reads, writes";
    writeln!(out, "{title}").ok();
    let mut measure = |name, image: &Image, (operation, memory), indexes| {
        let spent = image.open(memory, indexes)?.measure(operation, count, 1)?;
        let [a, b, c, d] = spent.accesses;
        let counts = format!("{a:.2}, {b:.2} | {c:.2}, {d:.2}");
        let (ms, of) = (spent.ms, spent.operations);
        let line = format!("{name} | {operation:?} | {memory:?} | {of} | {ms:.2} | {counts}");
        writeln!(out, "{line}").ok();
        Result::Ok(())
    };
    for (name, side) in sides {
        let image = Image::load(side, shape)?;
        for memory in MEMORIES {
            measure(name, &image, (Operation::Update, memory), shape.indexes)?;
        }
        for operation in operations {
            measure(name, &image, (operation, Memory::Small), shape.indexes)?;
        }
        let image = Image::load(side, one_index)?;
        measure(name, &image, (Operation::BlindInsert, Memory::Small), 1)?;
    }
    Ok(())
}
