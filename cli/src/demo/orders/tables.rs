//! The tables and columns that the order desk works on, and reads of an order.

use super::rows::{Line, line_key};
use crate::session::{Connection, Error, Result, SqlState, TableHandle, Transaction, Value};
use strandline_base::ColumnId;

/// The state of an order. `None` in its place means that there is no such order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderState {
    pub total_cents: i64,
    pub lines: u64,
}

/// The tables the desk works on, and the columns it reads or sets.
pub struct Tables {
    pub orders: TableHandle,
    pub order_total: ColumnId,
    pub order_status: ColumnId,
    pub lines: TableHandle,
    pub line_part: ColumnId,
    pub line_quantity: ColumnId,
    pub line_discount: ColumnId,
    pub line_tax: ColumnId,
    pub line_price: ColumnId,
    pub line_status: ColumnId,
    pub line_flag: ColumnId,
    pub parts: TableHandle,
    pub part_price: ColumnId,
    pub ledger: TableHandle,
    pub ledger_columns: [ColumnId; 4],
}

impl Tables {
    /// Finds the tables and columns in the catalog.
    pub fn find(connection: &Connection) -> Result<Self> {
        let orders = connection.table("orders")?;
        let lines = connection.table("lineitem")?;
        let parts = connection.table("part")?;
        let ledger = connection.table("demo_ledger")?;
        Ok(Self {
            order_total: orders.column("o_totalprice")?,
            order_status: orders.column("o_orderstatus")?,
            orders,
            line_part: lines.column("l_partkey")?,
            line_quantity: lines.column("l_quantity")?,
            line_discount: lines.column("l_discount")?,
            line_tax: lines.column("l_tax")?,
            line_price: lines.column("l_extendedprice")?,
            line_status: lines.column("l_linestatus")?,
            line_flag: lines.column("l_returnflag")?,
            lines,
            part_price: parts.column("p_retailprice")?,
            parts,
            ledger_columns: [
                ledger.column("transactions")?,
                ledger.column("orders")?,
                ledger.column("lines")?,
                ledger.column("entered_at")?,
            ],
            ledger,
        })
    }
}

/// The lines of an order; they are numbered from 1 without a gap.
pub fn read_lines(
    transaction: &mut Transaction<'_>,
    tables: &Tables,
    order: i64,
) -> Result<Vec<Line>> {
    let columns = [
        tables.line_part,
        tables.line_quantity,
        tables.line_discount,
        tables.line_tax,
        tables.line_price,
    ];
    let mut lines = Vec::new();
    loop {
        let key = line_key(order, lines.len() as i32 + 1);
        match transaction.get(&tables.lines, &key, &columns)?.as_deref() {
            Some(
                [
                    Value::BigInt(part),
                    Value::Numeric(quantity),
                    Value::Numeric(discount),
                    Value::Numeric(tax),
                    Value::Numeric(extended),
                ],
            ) => lines.push(Line {
                part: *part,
                quantity: (*quantity / 100) as i64,
                discount_percent: *discount as i64,
                tax_percent: *tax as i64,
                extended_cents: *extended as i64,
            }),
            None => return Ok(lines),
            other => return Err(wrong_row("lineitem", order, other)),
        }
    }
}

/// The state of an order in the database.
pub fn read_order(
    connection: &mut Connection,
    tables: &Tables,
    order: i64,
) -> Result<Option<OrderState>> {
    let mut transaction = connection.transaction()?;
    let key = [Value::BigInt(order)];
    let row = transaction.get(&tables.orders, &key, &[tables.order_total])?;
    let lines = read_lines(&mut transaction, tables, order)?;
    transaction.commit()?;
    let found = state_of(&lines);
    match row.as_deref() {
        None if lines.is_empty() => Ok(None),
        None => Err(inconsistent(format!(
            "order {order} is gone, {} of its lines are not",
            found.lines
        ))),
        Some([Value::Numeric(total)]) if *total == i128::from(found.total_cents) => Ok(Some(found)),
        Some(other) => Err(inconsistent(format!(
            "order {order} says {other:?}, its {} lines add up to {} cents",
            found.lines, found.total_cents
        ))),
    }
}

pub fn state_of(lines: &[Line]) -> OrderState {
    OrderState {
        total_cents: lines.iter().map(Line::price_cents).sum(),
        lines: lines.len() as u64,
    }
}

fn inconsistent(message: String) -> Error {
    Error::invalid(SqlState::DATA_CORRUPTED, message)
}

pub fn wrong_row(table: &str, key: i64, row: Option<&[Value]>) -> Error {
    inconsistent(format!("row {key} of table {table} reads {row:?}"))
}

pub fn expect_found(found: bool) -> Result<()> {
    if found {
        return Ok(());
    }
    Err(inconsistent(
        "a row that this transaction has read cannot be written".to_string(),
    ))
}
