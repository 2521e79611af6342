//! Results of the demo's queries, which are small enough to keep.

use crate::session::{Connection, Error, Result, Row};

/// The rows of a query as text; NULL is `NULL`.
pub fn rows(connection: &mut Connection, sql: &str) -> Result<Vec<Vec<String>>> {
    let result = connection.query(sql, ())?;
    let cell = |row: &Row<'_>, i| Ok(row.text(i)?.unwrap_or_else(|| "NULL".to_string()));
    result
        .rows()
        .map(|row| (0..row.len()).map(|i| cell(&row, i)).collect())
        .collect()
}

/// The one row of a query over integers.
pub fn integers<const N: usize>(connection: &mut Connection, sql: &str) -> Result<[i64; N]> {
    let result = connection.query(sql, ())?;
    let mut rows = result.rows();
    let (Some(row), None) = (rows.next(), rows.next()) else {
        return Err(Error::internal(format!(
            "{} rows, not one, from {sql}",
            result.row_count()
        )));
    };
    let mut numbers = [0; N];
    for (i, number) in numbers.iter_mut().enumerate() {
        *number = row.get(i)?;
    }
    Ok(numbers)
}

/// The median of measured values; 0 if there are none.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The smallest value that at least `share` of the values do not exceed; 0 if there are none.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.0);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred, 0.99), 99.0);
        assert_eq!(percentile(&hundred, 1.0), 100.0);
    }
}
