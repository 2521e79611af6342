//! The page files of the tables: a heap for each table, and indexes.
//!
//! | index | key | row |
//! |---|---|---|
//! | of a table's name | its primary key | the table's |
//! | `CustomerName` | warehouse, district, last name, first name | CUSTOMER |
//! | `OrderOfCustomer` | warehouse, district, customer, order | ORDER |
//! | `NewOrder` | warehouse, district, order | ORDER; the index is the table NEW-ORDER |

use std::ops::Bound;
use std::sync::Arc;

use strandline_base::{CommitTs, Error, Result, RowId, Value};
use strandline_index::{
    AccessMethod, Direction, KeyBytes, KeyRange, PagedIndex, PagedIndexSettings, PartOrder,
};
use strandline_storage::pages::{PageFileId, PageStore};

use super::heap::Heap;
use crate::rows::{
    Customer, District, History, Item, Order, OrderLine, Row, Stock, Table, Warehouse,
};

/// An index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    Warehouse,
    District,
    Customer,
    CustomerName,
    Order,
    OrderOfCustomer,
    NewOrder,
    OrderLine,
    Item,
    Stock,
}

impl Index {
    /// Every index, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Warehouse,
        Self::District,
        Self::Customer,
        Self::CustomerName,
        Self::Order,
        Self::OrderOfCustomer,
        Self::NewOrder,
        Self::OrderLine,
        Self::Item,
        Self::Stock,
    ];

    fn parts(self) -> usize {
        match self {
            Self::Warehouse | Self::Item => 1,
            Self::District | Self::Stock => 2,
            Self::Customer | Self::Order | Self::NewOrder => 3,
            Self::CustomerName | Self::OrderOfCustomer | Self::OrderLine => 4,
        }
    }
}

/// The number of the first heap's file; indexes follow the heaps.
const FIRST_FILE: u32 = 1;

fn heap_file(table: Table) -> PageFileId {
    PageFileId(FIRST_FILE + table as u32)
}

fn index_file(index: Index) -> PageFileId {
    PageFileId(FIRST_FILE + Table::ALL.len() as u32 + index as u32)
}

/// The heaps and indexes of a database.
pub struct Tables {
    heaps: Vec<Heap>,
    indexes: Vec<PagedIndex>,
}

impl Tables {
    /// Creates empty tables.
    pub fn create(store: &Arc<PageStore>) -> Result<Self> {
        let heap = |table: Table| Heap::create(store.clone(), heap_file(table), table.row_bytes());
        let index = |index| PagedIndex::create(store.clone(), index_file(index), settings(index));
        Self::of(heap, index)
    }

    /// The page files, for the redo of the log.
    pub fn open_files(store: &PageStore) -> Result<()> {
        let heaps = Table::ALL.into_iter().map(heap_file);
        let indexes = Index::ALL.into_iter().map(index_file);
        heaps
            .chain(indexes)
            .try_for_each(|file| store.open_file(file))
    }

    /// The tables of files that are open and redone.
    pub fn open(store: &Arc<PageStore>) -> Result<Self> {
        let heap = |table: Table| {
            Ok(Heap::open(
                store.clone(),
                heap_file(table),
                table.row_bytes(),
            ))
        };
        let index = |index| PagedIndex::open(store.clone(), index_file(index), settings(index));
        Self::of(heap, index)
    }

    fn of(
        heap: impl Fn(Table) -> Result<Heap>,
        index: impl Fn(Index) -> Result<PagedIndex>,
    ) -> Result<Self> {
        Ok(Self {
            heaps: Table::ALL.into_iter().map(heap).collect::<Result<_>>()?,
            indexes: Index::ALL.into_iter().map(index).collect::<Result<_>>()?,
        })
    }

    /// The heap of a table.
    pub fn heap(&self, table: Table) -> &Heap {
        &self.heaps[table as usize]
    }

    /// An index.
    pub fn index(&self, index: Index) -> &PagedIndex {
        &self.indexes[index as usize]
    }

    /// The row with this id.
    pub fn row<R: Row>(&self, row: RowId) -> Result<R> {
        let bytes = self.heap(R::TABLE).read(row)?;
        decoded(&bytes)
    }

    /// The bytes of a key of numbers.
    pub fn key(&self, index: Index, numbers: &[u32]) -> KeyBytes {
        self.index(index).encode(&values(numbers))
    }

    /// The row under a key of numbers; None if there is none.
    pub fn find(&self, index: Index, numbers: &[u32]) -> Result<Option<RowId>> {
        let mut rows = Vec::with_capacity(1);
        let key = self.key(index, numbers);
        self.index(index).lookup(&key, &mut rows)?;
        Ok(rows.first().copied())
    }

    /// A row by its key, which exists.
    ///
    /// # Errors
    /// XX000 with the key if it does not.
    pub fn get<R: Row>(&self, index: Index, numbers: &[u32]) -> Result<(RowId, R)> {
        let row = self.find(index, numbers)?;
        let missing = || Error::internal(format!("no row of {index:?} has the key {numbers:?}"));
        let row = row.ok_or_else(missing)?;
        Ok((row, self.row(row)?))
    }

    /// All rows whose keys begin with these values, in order.
    pub fn rows_below(&self, index: Index, leading: &[Value]) -> Result<Vec<RowId>> {
        let range = self.index(index).keys().prefix(leading);
        self.rows_in(index, &range)
    }

    /// All rows whose keys begin with `leading` and go on with a number in `from..before`.
    pub fn rows_between(
        &self,
        index: Index,
        leading: &[u32],
        (from, before): (u32, u32),
    ) -> Result<Vec<RowId>> {
        let ends = [from, before].map(value);
        let [from, before] = [Bound::Included(&ends[0]), Bound::Excluded(&ends[1])];
        let keys = self.index(index).keys();
        let range = keys.range(&values(leading), from, before);
        self.rows_in(index, &range)
    }

    fn rows_in(&self, index: Index, range: &KeyRange) -> Result<Vec<RowId>> {
        let mut cursor = self.index(index).cursor(range, Direction::Forward)?;
        let mut rows = Vec::new();
        while cursor.next_rows(64, &mut rows)? {}
        Ok(rows)
    }

    /// The first or last entry whose key begins with `leading`.
    pub fn end_below(
        &self,
        index: Index,
        leading: &[u32],
        direction: Direction,
    ) -> Result<Option<(KeyBytes, RowId)>> {
        let range = self.index(index).keys().prefix(&values(leading));
        self.index(index).cursor(&range, direction)?.next()
    }
}

/// A row with entries in indexes.
pub trait Indexed: Row {
    /// The keys of its entries.
    fn keys(&self) -> Vec<(Index, Vec<Value>)>;
}

impl Indexed for Warehouse {
    fn keys(&self) -> Vec<(Index, Vec<Value>)> {
        vec![(Index::Warehouse, values(&[self.id]))]
    }
}

impl Indexed for District {
    fn keys(&self) -> Vec<(Index, Vec<Value>)> {
        vec![(Index::District, values(&[self.warehouse, self.id]))]
    }
}

impl Indexed for Customer {
    fn keys(&self) -> Vec<(Index, Vec<Value>)> {
        let (w, d) = (self.warehouse, self.district);
        let mut name = values(&[w, d]);
        name.extend([text_value(&self.last), text_value(&self.first)]);
        let id = values(&[w, d, self.id]);
        vec![(Index::Customer, id), (Index::CustomerName, name)]
    }
}

impl Indexed for History {
    fn keys(&self) -> Vec<(Index, Vec<Value>)> {
        Vec::new()
    }
}

impl Indexed for Order {
    fn keys(&self) -> Vec<(Index, Vec<Value>)> {
        let (w, d, id) = (self.warehouse, self.district, self.id);
        let of_customer = values(&[w, d, self.customer, id]);
        let mut keys = vec![
            (Index::Order, values(&[w, d, id])),
            (Index::OrderOfCustomer, of_customer),
        ];
        if self.carrier == 0 {
            keys.push((Index::NewOrder, values(&[w, d, id])));
        }
        keys
    }
}

impl Indexed for OrderLine {
    fn keys(&self) -> Vec<(Index, Vec<Value>)> {
        let key = [
            self.warehouse,
            self.district,
            self.order,
            self.number.into(),
        ];
        vec![(Index::OrderLine, values(&key))]
    }
}

impl Indexed for Item {
    fn keys(&self) -> Vec<(Index, Vec<Value>)> {
        vec![(Index::Item, values(&[self.id]))]
    }
}

impl Indexed for Stock {
    fn keys(&self) -> Vec<(Index, Vec<Value>)> {
        vec![(Index::Stock, values(&[self.warehouse, self.item]))]
    }
}

fn settings(index: Index) -> PagedIndexSettings {
    let parts = vec![PartOrder::default(); index.parts()];
    PagedIndexSettings::new(parts, Arc::new(|| CommitTs::ZERO))
}

fn value(number: u32) -> Value {
    Value::Integer(number as i32)
}

/// Numbers as values of a key.
pub fn values(numbers: &[u32]) -> Vec<Value> {
    numbers.iter().map(|&number| value(number)).collect()
}

/// The numbers of a key's bytes: for each a marker, and eight bytes with the sign inverted.
pub fn numbers_of(key: &KeyBytes) -> Vec<u32> {
    let number = |part: &[u8]| part.last_chunk().map(|low| u32::from_be_bytes(*low));
    key.as_slice().chunks(9).filter_map(number).collect()
}

/// A text of a row as value of a key.
pub fn text_value(text: &[u8]) -> Value {
    Value::Text(String::from_utf8_lossy(text).trim_end().into())
}

/// The row with these bytes.
pub fn decoded<R: Row>(bytes: &[u8]) -> Result<R> {
    let damaged = || Error::corrupt(format!("a row of {:?}", R::TABLE), "too short");
    R::decode(bytes).ok_or_else(damaged)
}
