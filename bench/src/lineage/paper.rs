//! The paper's results, where it gives numbers rather than curves [L-Store §6.2]. Its machine had
//! 24 hardware threads and its prototype was written in Java, so only ratios can be compared.

/// Fig. 7: the best ratios over IUH and DBM. The paper gives none for low contention.
pub const CONTENTION: [Option<[f64; 2]>; 3] = [None, Some([5.09, 8.54]), Some([40.56, 14.51])];
/// Fig. 9: the best ratios by share of updates under low and medium contention.
pub const MIX: [[f64; 2]; 2] = [[1.45, 5.78], [4.19, 6.34]];
/// Fig. 10: the best ratios of short transactions over IUH and DBM under medium contention.
pub const READERS_UPDATES: [f64; 2] = [5.37, 7.91];
/// Fig. 10: the best ratios of scans over DBM under low and medium contention.
pub const READERS_SCANS: [f64; 2] = [1.97, 2.37];
/// Table 7: seconds of a scan beside 16 writers: L-Store, IUH, DBM.
pub const SCANS: [f64; 3] = [0.24, 0.28, 0.38];
/// Fig. 8: the best number of tail records per merge, as a part of a range.
pub const MERGE_PART: f64 = 0.5;
/// Table 8: seconds of a scan by columns and by rows, without and with updates.
pub const LAYOUT_SCANS: [[f64; 2]; 2] = [[0.043, 0.196], [0.24, 0.66]];
/// Table 9: columns read, millions of transactions per second by columns and by rows.
pub const LAYOUT_READS: [(usize, f64, f64); 5] = [
    (1, 1.46, 1.45),
    (2, 1.35, 1.45),
    (4, 1.17, 1.45),
    (8, 1.08, 1.45),
    (10, 0.98, 1.45),
];
