use super::*;
use crate::page_memory::PageAccount;
use crate::tail_pages::locate;
use strandline_base::{ColumnId, CommitTs, SqlType, Value};

#[test]
fn pages_grow_and_old_ones_go() {
    let bytes = PageBytes::default();
    let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
    let tail = Tail::new(&bytes);
    let spec = schema.column(ColumnId(0));
    let columns = ColumnSet::from_iter([ColumnId(0)]);
    for n in 0..2000u32 {
        let claimed = tail.claim((&tail.pages(), &schema), &columns);
        let (page, i) = claimed.expect("claimed");
        page.put(i, ColumnId(0), spec, &Value::BigInt(i64::from(n)))
            .expect("put");
        page.set_link(i, 3, RecordKind::Update, u64::from(n));
        page.set_start(i, StartWord::committed(CommitTs(u64::from(n) + 1)));
        let seq = page.first() + u64::from(i);
        assert_eq!(seq, u64::from(n), "sequence numbers are dense");
    }
    let pages = tail.pages();
    let (page, i) = locate(&pages, 1234).expect("live");
    assert_eq!(
        page.value(i, ColumnId(0), spec).expect("value"),
        Value::BigInt(1234)
    );
    drop(pages);
    tail.drop_pages_before(1500);
    let pages = tail.pages();
    assert!(locate(&pages, 100).is_none());
    assert!(locate(&pages, 1500).is_some());
    drop(pages);
    tail.drop_pages_before(u64::MAX);
    assert_eq!(tail.pages().len(), 1, "the page being appended to stays");
    drop(tail);
    assert_eq!(bytes.used(), 0);
}

#[test]
fn a_new_column_closes_the_last_page() {
    let bytes = PageBytes::default();
    let schema = StorageSchema::new([const { (SqlType::BigInt, Value::Null) }; 5]);
    let tail = Tail::new(&bytes);
    let claim = |columns: &[u32]| {
        let columns = columns.iter().map(|&column| ColumnId(column)).collect();
        let claimed = tail.claim((&tail.pages(), &schema), &columns);
        let (page, i) = claimed.expect("claimed");
        page.first() + u64::from(i)
    };
    assert_eq!([claim(&[0]), claim(&[]), claim(&[0])], [0, 1, 2]);
    assert_eq!(claim(&[1]), 3, "in a page of its own");
    assert_eq!(claim(&[0, 1]), 4, "which has places for both");
    let list = tail.pages();
    let pages: Vec<_> = list.iter().collect();
    assert_eq!((pages.len(), pages[0].claimed(), pages[0].end()), (2, 3, 3));
    for seq in 0..5 {
        let (page, i) = locate(&list, seq).expect("claimed");
        assert_eq!(page.first() + u64::from(i), seq);
        assert!(i < page.claimed());
    }
    assert!(pages[0].is_full() && !pages[1].is_full());
    assert_eq!(pages[0].claim(&ColumnSet::default()), None, "closed");
    assert_eq!(
        pages[1].capacity(),
        FIRST_PAGE_RECORDS,
        "the first was not used up"
    );
    assert!(!pages[0].has_cells(ColumnId(1)) && pages[1].has_cells(ColumnId(1)));
    assert_eq!(tail.pending(), 5);
    // A small table's records have places for all columns from the first on.
    let small = StorageSchema::new([const { (SqlType::BigInt, Value::Null) }; 4]);
    let tail = Tail::new(&bytes);
    for column in 0..4 {
        let columns = ColumnSet::from_iter([ColumnId(column)]);
        let claimed = tail.claim((&tail.pages(), &small), &columns);
        claimed.expect("claimed");
    }
    assert_eq!(tail.pages().len(), 1);
}

#[test]
fn a_tail_without_numbers_left_says_so() {
    let bytes = Arc::new(PageAccount::with_first_record(RECORDS_MAX - 20));
    let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
    let tail = Tail::new(&bytes);
    let columns = ColumnSet::from_iter([ColumnId(0)]);
    let append = |n: u64| {
        let latch = tail.row_map().latch(3).expect("free");
        let header = RecordHeader {
            slot: 3,
            kind: RecordKind::Update,
            back: tail.pages().head(latch.entry()),
            statement: 0,
            word: StartWord::committed(CommitTs(n)),
        };
        let place = (&**tail.pages(), &schema);
        let (page, i) = tail.append(place, &header, &columns, |_, _| Ok(()))?;
        latch.publish(page.first() + u64::from(i));
        Ok::<(), Error>(())
    };
    (1..=20).for_each(|n| append(n).expect("a number"));
    for _ in 0..2 {
        let error = append(21).expect_err("no number is left");
        assert_eq!(error.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }
    let (entry, pages) = (tail.row_map().entry(3), tail.pages());
    let mut next = pages.head(entry);
    assert_eq!(next, RECORDS_MAX, "the last one");
    for n in (1..=20).rev() {
        let (page, i) = locate(&pages, next - 1).expect("live");
        assert_eq!(page.start(i), StartWord::committed(CommitTs(n)));
        next = page.back(i);
    }
    assert_eq!(next, 0);
}

fn update(tail: &Tail, schema: &Arc<StorageSchema>, slot: u16) -> Result<u64> {
    let latch = tail.row_map().latch(slot.into()).expect("free");
    let header = RecordHeader {
        slot,
        kind: RecordKind::Update,
        back: tail.pages().head(latch.entry()),
        statement: 0,
        word: StartWord::committed(CommitTs(1)),
    };
    let columns = ColumnSet::from_iter([ColumnId(0)]);
    let place = (&**tail.pages(), schema);
    let (page, i) = tail.append(place, &header, &columns, |_, _| Ok(()))?;
    let seq = page.first() + u64::from(i);
    latch.publish(seq);
    Ok(seq)
}

fn head(tail: &Tail, slot: usize) -> u64 {
    let entry = tail.row_map().entry(slot);
    tail.pages().head(entry)
}

/// Rows that are updated now and then among one that always is, while pages go: an entry never
/// leads to another row's record, though numbers come round more than ten times.
#[test]
fn entries_come_round() {
    let bytes = Arc::new(PageAccount::with_first_record((1 << 31) - 5_000));
    let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
    let tail = Tail::new(&bytes);
    let mut newest = [0; 5];
    for n in 0..12 * ENTRIES {
        let slot = match n {
            0 => 0,
            n if n % (2 * ENTRIES + 1) == 0 => 1,
            n if n % 3_000 == 0 => 2,
            n if n % 100 == 0 => 3,
            _ => 4,
        };
        newest[slot] = update(&tail, &schema, slot as u16).expect("a number") + 1;
        if n % 50 == 0 {
            tail.drop_pages_before(newest[4].saturating_sub(500));
            let pages = tail.pages();
            for (slot, newest) in newest.into_iter().enumerate() {
                let head = head(&tail, slot);
                let is_live = newest > pages.first_seq();
                assert_eq!(
                    head,
                    if is_live { newest } else { 0 },
                    "row {slot}, update {n}"
                );
            }
        }
    }
}

#[test]
fn entries_that_cannot_be_cleared_keep_the_pages() {
    let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
    let tail = Tail::new(&PageBytes::default());
    update(&tail, &schema, 3).expect("a number");
    let latch = tail.row_map().latch(3).expect("free");
    let mut last = 0;
    let error = loop {
        match update(&tail, &schema, 4) {
            Ok(seq) => last = seq,
            Err(error) => break error,
        }
        if last % 100 == 0 {
            tail.drop_pages_before(last);
        }
    };
    assert_eq!(error.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    assert!(last > LAG_MAX && head(&tail, 4) == last + 1);
    drop(latch);
    assert_eq!(head(&tail, 3), 0);
    tail.drop_pages_before(last);
    assert_eq!(tail.row_map().entry(3), Entry::NONE);
    assert_eq!(update(&tail, &schema, 3).expect("a number"), last + 1);
    assert_eq!([head(&tail, 3), head(&tail, 4)], [last + 2, last + 1]);
}

#[test]
fn a_writer_that_panics_leaves_a_tombstone_and_no_latch() {
    let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
    let tail = Tail::new(&PageBytes::default());
    let columns = ColumnSet::from_iter([ColumnId(0)]);
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _entered = tail.enter().expect("open");
        let _latch = tail.row_map().latch(3).expect("free");
        let header = RecordHeader {
            slot: 3,
            kind: RecordKind::Update,
            back: 0,
            statement: 0,
            word: StartWord::committed(CommitTs(1)),
        };
        let place = (&**tail.pages(), &schema);
        tail.append(place, &header, &columns, |_, _| {
            panic!("while it is filled")
        })
    }));
    assert!(caught.is_err());
    let pages = tail.pages();
    let page = pages.last().expect("a page");
    assert_eq!((page.claimed(), page.start(0)), (1, StartWord::ABORTED));
    assert_eq!(tail.row_map().entry(3), Entry::NONE);
    assert!(tail.row_map().latch(3).is_some() && tail.seal());
}

#[test]
fn sealing_excludes_appenders() {
    let tail = Tail::new(&PageBytes::default());
    let guard = tail.enter().expect("open");
    assert!(!tail.seal());
    drop(guard);
    assert!(tail.seal());
    assert!(tail.enter().is_none());
    tail.unseal();
    assert!(tail.enter().is_some());
}
