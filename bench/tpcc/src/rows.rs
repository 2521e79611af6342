//! Rows of the nine tables [TPC-C 1.3] as fields and as bytes. A table's rows have one length:
//! texts are padded, so that an update never moves a row.
//!
//! Money is in cents, rates are in ten-thousandths, dates are microseconds and 0 is NULL.

use strandline_base::bytes::{ByteReader, PutBytes};

/// A table with rows in a heap. NEW-ORDER is an index alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Warehouse,
    District,
    Customer,
    History,
    Order,
    OrderLine,
    Item,
    Stock,
}

impl Table {
    /// Every table, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Warehouse,
        Self::District,
        Self::Customer,
        Self::History,
        Self::Order,
        Self::OrderLine,
        Self::Item,
        Self::Stock,
    ];

    /// Bytes of a row.
    pub fn row_bytes(self) -> usize {
        match self {
            Self::Warehouse => Warehouse::BYTES,
            Self::District => District::BYTES,
            Self::Customer => Customer::BYTES,
            Self::History => History::BYTES,
            Self::Order => Order::BYTES,
            Self::OrderLine => OrderLine::BYTES,
            Self::Item => Item::BYTES,
            Self::Stock => Stock::BYTES,
        }
    }
}

/// A field of fixed length.
trait Field: Sized {
    const BYTES: usize;
    fn put(&self, out: &mut Vec<u8>);
    fn get(reader: &mut ByteReader<'_>) -> Option<Self>;
}

impl Field for u8 {
    const BYTES: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(*self);
    }
    fn get(reader: &mut ByteReader<'_>) -> Option<Self> {
        reader.u8()
    }
}

impl Field for u32 {
    const BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u32(*self);
    }
    fn get(reader: &mut ByteReader<'_>) -> Option<Self> {
        reader.u32()
    }
}

impl Field for i64 {
    const BYTES: usize = 8;
    fn put(&self, out: &mut Vec<u8>) {
        out.put_u64(*self as u64);
    }
    fn get(reader: &mut ByteReader<'_>) -> Option<Self> {
        reader.u64().map(|bits| bits as i64)
    }
}

impl<const N: usize> Field for [u8; N] {
    const BYTES: usize = N;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn get(reader: &mut ByteReader<'_>) -> Option<Self> {
        reader.take(N)?.first_chunk().copied()
    }
}

/// A row of one table.
pub trait Row: Sized {
    const TABLE: Table;
    /// bytes of every row
    const BYTES: usize;

    /// The row's bytes.
    fn encode(&self) -> Vec<u8>;
    /// None if the bytes are too few.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

macro_rules! row {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $(pub $field: $type,)* }

        impl Row for $name {
            const TABLE: Table = Table::$name;
            const BYTES: usize = 0 $(+ <$type as Field>::BYTES)*;

            fn encode(&self) -> Vec<u8> {
                let mut out = Vec::with_capacity(Self::BYTES);
                $(Field::put(&self.$field, &mut out);)*
                out
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                let mut reader = ByteReader::new(bytes);
                Some(Self { $($field: Field::get(&mut reader)?,)* })
            }
        }
    };
}

row! {
    /// WAREHOUSE; `address` is streets, city, state and zip.
    Warehouse {
        id: u32,
        name: [u8; 10],
        address: [u8; 71],
        tax: u32,
        ytd: i64,
    }
}

row! {
    /// DISTRICT
    District {
        warehouse: u32,
        id: u32,
        name: [u8; 10],
        address: [u8; 71],
        tax: u32,
        ytd: i64,
        next_order: u32,
    }
}

row! {
    /// CUSTOMER
    Customer {
        warehouse: u32,
        district: u32,
        id: u32,
        first: [u8; 16],
        middle: [u8; 2],
        last: [u8; 16],
        address: [u8; 71],
        phone: [u8; 16],
        since: i64,
        credit: [u8; 2],
        credit_limit: i64,
        discount: u32,
        balance: i64,
        ytd_payment: i64,
        payments: u32,
        deliveries: u32,
        data: [u8; 500],
    }
}

row! {
    /// HISTORY
    History {
        customer_warehouse: u32,
        customer_district: u32,
        customer: u32,
        warehouse: u32,
        district: u32,
        date: i64,
        amount: i64,
        data: [u8; 24],
    }
}

row! {
    /// ORDER; carrier 0 is NULL.
    Order {
        warehouse: u32,
        district: u32,
        id: u32,
        customer: u32,
        entry: i64,
        carrier: u8,
        lines: u8,
        is_local: u8,
    }
}

row! {
    /// ORDER-LINE
    OrderLine {
        warehouse: u32,
        district: u32,
        order: u32,
        number: u8,
        item: u32,
        supply_warehouse: u32,
        delivery: i64,
        quantity: u8,
        amount: i64,
        dist_info: [u8; 24],
    }
}

row! {
    /// ITEM
    Item {
        id: u32,
        image: u32,
        name: [u8; 24],
        price: i64,
        data: [u8; 50],
    }
}

row! {
    /// STOCK; `dist` has the texts of ten districts.
    Stock {
        warehouse: u32,
        item: u32,
        quantity: u32,
        dist: [u8; 240],
        ytd: u32,
        orders: u32,
        remote: u32,
        data: [u8; 50],
    }
}

impl Stock {
    /// The text of district `district`, from 1 on.
    pub fn dist_info(&self, district: u32) -> [u8; 24] {
        let start = (district as usize - 1) * 24;
        let text = self.dist.get(start..).and_then(<[u8]>::first_chunk);
        text.copied().unwrap_or([b' '; 24])
    }
}

/// A text padded with spaces, or cut.
pub fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut bytes = [b' '; N];
    for (byte, of_text) in bytes.iter_mut().zip(text) {
        *byte = *of_text;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_what_its_bytes_say() {
        let line = OrderLine {
            warehouse: 1,
            district: 10,
            order: 3_001,
            number: 15,
            item: 100_000,
            supply_warehouse: 5,
            delivery: -7,
            quantity: 5,
            amount: 999_999,
            dist_info: padded(b"info"),
        };
        let bytes = line.encode();
        assert_eq!(bytes.len(), Table::OrderLine.row_bytes());
        assert_eq!(OrderLine::decode(&bytes), Some(line));
        assert_eq!(OrderLine::decode(&bytes[1..]), None);
    }

    #[test]
    fn a_stock_has_a_text_for_each_district() {
        let mut dist = [b'.'; 240];
        dist[9 * 24..].fill(b'x');
        let stock = Stock {
            warehouse: 1,
            item: 1,
            quantity: 10,
            dist,
            ytd: 0,
            orders: 0,
            remote: 0,
            data: padded(b""),
        };
        assert_eq!(stock.dist_info(9), [b'.'; 24]);
        assert_eq!(stock.dist_info(10), [b'x'; 24]);
    }
}
