//! Roman numerals.

/// A number from 1 to 3999 in Roman numerals; `###############` for other numbers, as in
/// PostgreSQL.
pub fn roman(value: i32) -> String {
    const NUMERALS: [(i32, &str); 13] = [
        (1_000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..4_000).contains(&value) {
        return "#".repeat(15);
    }
    let mut rest = value;
    let mut out = String::new();
    for (worth, numeral) in NUMERALS {
        while rest >= worth {
            out.push_str(numeral);
            rest -= worth;
        }
    }
    out
}
