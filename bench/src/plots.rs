//! Draws the figures of a run of the suites `lineage`, `soak`, `tiers` and `index`, each as SVG and
//! PNG. A figure has our curves, the rivals' curves and the paper's numbers, where the paper gives
//! any.
//!
//! A result's `config.plots` lists its points by figure. The titles of figures and the labels of
//! axes are in this file.

use crate::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Options of `plots`.
#[derive(clap::Args)]
pub struct Options {
    /// The JSON lines of a run of `lineage`.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "bench/results/lineage.jsonl"
    )]
    json: PathBuf,
    /// Where the pictures go.
    #[arg(long, value_name = "DIRECTORY", default_value = "bench/results")]
    directory: PathBuf,
}

const SIZE: (u32, u32) = (800, 500);
/// The top of the y axis as a multiple of the highest point, so that the legend has room.
const HEADROOM: f64 = 1.4;

/// The looks of a figure.
struct Chart {
    figure: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    /// Names of x = 0, 1, …; empty: x is a number and points are joined.
    names: &'static [&'static str],
}

const fn curves(
    figure: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
) -> Chart {
    Chart {
        figure,
        title,
        x,
        y,
        names: &[],
    }
}

const RATIO: &str = "Strandline / rival";
const THREADS: &str = "update threads";
const SHARE: &str = "updates among 10 statements";
const READERS: &str = "reading threads of 17";

const MINUTES: &str = "minutes";
const INDEXES: &str = "indexes";
const BLOCK: &str = "entries of a LIDBlock (0: none)";
const LOOKUPS: &str = "lookups among 100 requests";
const IN_MEMORY: [&str; 5] = ["ways", "inner nodes", "indexes", "rows", "all"];

const CHARTS: [Chart; 45] = [
    curves(
        "tiers-cache-size",
        "SSD-DB Fig. 2.3: TPC-C, emulated disk",
        "cache in % of the database",
        "tpmC",
    ),
    curves(
        "tiers-checkpoints",
        "SSD-DB Fig. 2.1: TPC-C with checkpoints, emulated disk",
        "seconds",
        "tpmC",
    ),
    Chart {
        figure: "tiers-tpch",
        title: "TPC-H, cache 10 % of the data",
        x: "",
        y: "seconds, Strandline / DuckDB",
        names: &["Q1", "Q6", "Q3", "Q18"],
    },
    curves(
        "fdtree-fig6-requests-random",
        "FD+ Fig. 6: requests, random keys, throttled device",
        LOOKUPS,
        "requests/s",
    ),
    curves(
        "fdtree-fig6-worst-random",
        "FD+ Fig. 6: worst modification, random keys, throttled device",
        LOOKUPS,
        "ms",
    ),
    curves(
        "fdtree-fig6-requests-ascending",
        "FD+ Fig. 6: requests, ascending keys, throttled device",
        LOOKUPS,
        "requests/s",
    ),
    curves(
        "fdtree-fig6-worst-ascending",
        "FD+ Fig. 6: worst modification, ascending keys, throttled device",
        LOOKUPS,
        "ms",
    ),
    curves(
        "fdtree-fig7-worst",
        "FD+ Fig. 7: worst modification by size, throttled device",
        "entries",
        "ms",
    ),
    curves(
        "indirection-fig5",
        "Indirection Fig. 5: point query, emulated devices",
        INDEXES,
        "ms",
    ),
    curves(
        "indirection-fig7",
        "Indirection Fig. 7: range, emulated devices",
        "% of the rows",
        "ms",
    ),
    curves(
        "indirection-fig10",
        "Indirection Fig. 10: update, emulated devices",
        INDEXES,
        "ms",
    ),
    Chart {
        figure: "indirection-fig11a",
        title: "Indirection Fig. 11a: update, 1 index, emulated devices",
        x: "in memory",
        y: "ms",
        names: &IN_MEMORY,
    },
    Chart {
        figure: "indirection-fig11b",
        title: "Indirection Fig. 11b: update, 16 indexes, emulated devices",
        x: "in memory",
        y: "ms",
        names: &IN_MEMORY,
    },
    curves(
        "indirection-fig12",
        "Indirection Fig. 12: insertion, sparse, emulated devices",
        BLOCK,
        "ms",
    ),
    curves(
        "indirection-fig13",
        "Indirection Fig. 13: insertion, dense, emulated devices",
        BLOCK,
        "ms",
    ),
    curves(
        "indirection-fig14-query",
        "Indirection Fig. 14: queries, emulated devices",
        INDEXES,
        "ms",
    ),
    curves(
        "indirection-fig14-update",
        "Indirection Fig. 14: updates of any attribute, emulated devices",
        INDEXES,
        "ms",
    ),
    curves(
        "indirection-fig15",
        "Indirection Fig. 15: queries by updates, emulated devices",
        "relative update time",
        "relative query time",
    ),
    curves("soak-memory", "Soak: resident memory", MINUTES, "bytes"),
    curves("soak-files", "Soak: files", MINUTES, "bytes"),
    curves(
        "soak-latency",
        "Soak: p99 of a counter's update",
        MINUTES,
        "ms",
    ),
    curves("fig7a", "Fig. 7a: low contention", THREADS, "tx/s"),
    curves(
        "fig7a-ratio",
        "Fig. 7a: ratios, low contention",
        THREADS,
        RATIO,
    ),
    curves("fig7b", "Fig. 7b: medium contention", THREADS, "tx/s"),
    curves(
        "fig7b-ratio",
        "Fig. 7b: ratios, medium contention",
        THREADS,
        RATIO,
    ),
    curves("fig7c", "Fig. 7c: high contention", THREADS, "tx/s"),
    curves(
        "fig7c-ratio",
        "Fig. 7c: ratios, high contention",
        THREADS,
        RATIO,
    ),
    curves(
        "fig8",
        "Fig. 8: scan by size of merges",
        "records that make a merge due",
        "CPU s",
    ),
    curves(
        "fig9a",
        "Fig. 9a: share of updates, low contention",
        SHARE,
        "tx/s",
    ),
    curves(
        "fig9a-ratio",
        "Fig. 9a: ratios, low contention",
        SHARE,
        RATIO,
    ),
    curves(
        "fig9b",
        "Fig. 9b: share of updates, medium contention",
        SHARE,
        "tx/s",
    ),
    curves(
        "fig9b-ratio",
        "Fig. 9b: ratios, medium contention",
        SHARE,
        RATIO,
    ),
    curves(
        "fig10a",
        "Fig. 10a: transactions, low contention",
        READERS,
        "tx/s",
    ),
    curves(
        "fig10a-ratio",
        "Fig. 10a: ratios of transactions, low contention",
        READERS,
        RATIO,
    ),
    curves(
        "fig10b",
        "Fig. 10b: scans, low contention",
        READERS,
        "scans/s",
    ),
    curves(
        "fig10b-ratio",
        "Fig. 10b: ratios of scans, low contention",
        READERS,
        RATIO,
    ),
    curves(
        "fig10c",
        "Fig. 10c: transactions, medium contention",
        READERS,
        "tx/s",
    ),
    curves(
        "fig10c-ratio",
        "Fig. 10c: ratios of transactions, medium contention",
        READERS,
        RATIO,
    ),
    curves(
        "fig10d",
        "Fig. 10d: scans, medium contention",
        READERS,
        "scans/s",
    ),
    curves(
        "fig10d-ratio",
        "Fig. 10d: ratios of scans, medium contention",
        READERS,
        RATIO,
    ),
    Chart {
        figure: "table7",
        title: "Table 7: SUM beside 16 writers",
        x: "",
        y: "seconds",
        names: &["Strandline", "IUH", "DBM"],
    },
    Chart {
        figure: "table8",
        title: "Table 8: SUM by layout",
        x: "",
        y: "seconds",
        names: &["without updates", "with 16 writers"],
    },
    curves(
        "table9",
        "Table 9: 10 point reads",
        "% of the columns",
        "tx/s",
    ),
    curves(
        "held-memory",
        "One snapshot held: memory",
        "part of the time",
        "bytes",
    ),
    curves(
        "held-read",
        "One snapshot held: read of a hot row",
        "part of the time",
        "µs",
    ),
];

/// The point of a figure at `x`, for a result's `config.plots`: curves' names and values.
pub fn point(figure: &str, x: f64, curves: &[(&str, f64)]) -> Value {
    let points = curves.iter().map(|(name, y)| (name.to_string(), json!(y)));
    json!({ "figure": figure, "x": x, "points": points.collect::<Map<String, Value>>() })
}

/// Points by the name of their curve.
type Curves = BTreeMap<String, Vec<(f64, f64)>>;

/// Draws every figure for which the run has points.
pub fn draw(options: &Options) -> Result<()> {
    register_font("sans-serif", FontStyle::Normal, dejavu::sans::regular())
        .map_err(|_| "the font is not readable")?;
    let text = std::fs::read_to_string(&options.json)
        .map_err(|error| format!("{}: {error}", options.json.display()))?;
    let figures = read(&text)?;
    std::fs::create_dir_all(&options.directory)?;
    for chart in &CHARTS {
        let Some(curves) = figures.get(chart.figure) else {
            eprintln!("{} is not in {}", chart.figure, options.json.display());
            continue;
        };
        let path = options.directory.join(chart.figure);
        chart.draw_both(curves, &path)?;
        println!("{}.{{svg,png}}", path.display());
    }
    Ok(())
}

/// Reads the curves of every figure from a run's lines, in order of x.
fn read(text: &str) -> Result<BTreeMap<String, Curves>> {
    let mut figures: BTreeMap<String, Curves> = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        for plot in line["config"]["plots"].as_array().into_iter().flatten() {
            let figure = plot["figure"].as_str().ok_or("a plot without a figure")?;
            let x = plot["x"].as_f64().ok_or("a plot without an x")?;
            for (name, y) in plot["points"].as_object().into_iter().flatten() {
                let curves = figures.entry(figure.to_string()).or_default();
                let points = curves.entry(name.clone()).or_default();
                points.extend(y.as_f64().map(|y| (x, y)));
            }
        }
    }
    for points in figures.values_mut().flat_map(Curves::values_mut) {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Our point is on the line of every rival; keep one.
        points.dedup_by(|a, b| a.0 == b.0);
    }
    Ok(figures)
}

impl Chart {
    fn draw_both(&self, curves: &Curves, path: &Path) -> Result<()> {
        let (svg, png) = (path.with_extension("svg"), path.with_extension("png"));
        let failed = |error: String| format!("{}: {error}", path.display());
        let area = SVGBackend::new(&svg, SIZE).into_drawing_area();
        self.draw(curves, &area)
            .map_err(|error| failed(error.to_string()))?;
        let mut pixels = vec![0; SIZE.0 as usize * SIZE.1 as usize * 3];
        let area = BitMapBackend::with_buffer(&mut pixels, SIZE).into_drawing_area();
        self.draw(curves, &area)
            .map_err(|error| failed(error.to_string()))?;
        drop(area);
        Ok(std::fs::write(png, encode(&pixels))?)
    }

    fn draw<B: DrawingBackend>(
        &self,
        curves: &Curves,
        area: &DrawingArea<B, Shift>,
    ) -> std::result::Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        area.fill(&WHITE)?;
        let points = || curves.values().flatten();
        let highest = points().map(|point| point.1).fold(0.0, f64::max);
        let (left, right) = if self.names.is_empty() {
            let xs = || points().map(|point| point.0);
            (xs().fold(f64::INFINITY, f64::min), xs().fold(1.0, f64::max))
        } else {
            (-0.5, self.names.len() as f64 - 0.5)
        };
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, ("sans-serif", 22))
            .margin(12)
            .x_label_area_size(45)
            .y_label_area_size(90)
            .build_cartesian_2d(left..right, 0.0..highest * HEADROOM)?;
        let name = |x: &f64| match self.names.get(x.round().max(0.0) as usize) {
            Some(name) if (x - x.round()).abs() < 0.01 => (*name).to_string(),
            Some(_) => String::new(),
            None if self.names.is_empty() => short(*x),
            None => String::new(),
        };
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_label_formatter(&name)
            .y_label_formatter(&|y| short(*y))
            .label_style(("sans-serif", 14))
            .light_line_style(WHITE)
            .draw()?;
        let width = 0.8 / curves.len() as f64;
        for (n, (name, points)) in curves.iter().enumerate() {
            let color = Palette99::pick(n).to_rgba();
            let line = color.stroke_width(2);
            let series = if self.names.is_empty() {
                let dots = points
                    .iter()
                    .map(|&point| Circle::new(point, 4, color.filled()));
                chart.draw_series(dots)?;
                chart.draw_series(LineSeries::new(points.iter().copied(), line))?
            } else {
                chart.draw_series(points.iter().map(|&(x, y)| {
                    let from = x - 0.4 + width * n as f64;
                    Rectangle::new([(from, 0.0), (from + width * 0.9, y)], color.filled())
                }))?
            };
            let sample =
                move |(x, y)| Rectangle::new([(x, y - 4), (x + 16, y + 4)], color.filled());
            series.label(name.as_str()).legend(sample);
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .label_font(("sans-serif", 14))
            .draw()?;
        area.present()
    }
}

/// Encodes red, green and blue bytes as a PNG of [`SIZE`].
fn encode(pixels: &[u8]) -> Vec<u8> {
    const NO_FILTER: u8 = 0;
    const EIGHT_BITS_RGB: [u8; 5] = [8, 2, 0, 0, 0];
    let rows = pixels.chunks_exact(SIZE.0 as usize * 3);
    let filtered: Vec<u8> = rows.flat_map(|row| [&[NO_FILTER], row].concat()).collect();
    let header = [
        &SIZE.0.to_be_bytes()[..],
        &SIZE.1.to_be_bytes(),
        &EIGHT_BITS_RGB,
    ]
    .concat();
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let chunks: [(&[u8], Vec<u8>); 3] = [
        (b"IHDR", header),
        (
            b"IDAT",
            miniz_oxide::deflate::compress_to_vec_zlib(&filtered, 9),
        ),
        (b"IEND", Vec::new()),
    ];
    for (kind, data) in chunks {
        let checked = [kind, &data].concat();
        png.extend((data.len() as u32).to_be_bytes());
        png.extend(&checked);
        png.extend(crc32fast::hash(&checked).to_be_bytes());
    }
    png
}

/// A number for an axis.
fn short(number: f64) -> String {
    let (scaled, unit) = match number.abs() {
        size if size >= 1e9 => (number / 1e9, " G"),
        size if size >= 1e6 => (number / 1e6, " M"),
        size if size >= 1e4 => (number / 1e3, " K"),
        _ => (number, ""),
    };
    let text = format!("{scaled:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(
        r#"{"case":"a","config":{"plots":[{"figure":"fig7a","x":2,"points":{"A":5,"B":3}}]}}"#,
        "\n",
        r#"{"case":"b","config":{"plots":[{"figure":"fig7a","x":1,"points":{"A":4}}]}}"#,
        "\n",
        r#"{"case":"c","verdict":"holds"}"#,
        "\n",
        r#"{"case":"d","config":{"plots":[{"figure":"table7","x":0,"points":{"A":4}}]}}"#,
    );

    #[test]
    fn points_are_joined_in_order() {
        let figures = read(LINES).unwrap();
        assert_eq!(figures["fig7a"]["A"], [(1.0, 4.0), (2.0, 5.0)]);
        assert_eq!(figures["fig7a"]["B"], [(2.0, 3.0)]);
    }

    #[test]
    fn both_kinds_of_files_are_written() {
        let directory = tempfile::tempdir().unwrap();
        let json = directory.path().join("run.json");
        std::fs::write(&json, LINES).unwrap();
        draw(&Options {
            json,
            directory: directory.path().to_path_buf(),
        })
        .unwrap();
        for name in ["fig7a.svg", "table7.svg"] {
            let svg = std::fs::read_to_string(directory.path().join(name)).unwrap();
            assert!(
                svg.contains("Strandline") || svg.contains("contention"),
                "{svg}"
            );
        }
        let png = std::fs::read(directory.path().join("fig7a.png")).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
    }

    #[test]
    fn numbers_on_axes_are_short() {
        let numbers = [0.0, 0.25, 9_000.0, 150_000.0, 2_500_000.0];
        assert_eq!(numbers.map(short), ["0", "0.25", "9000", "150 K", "2.5 M"]);
    }
}
