//! Rows of a result as DataRow messages.

use super::statement::{Formats, columns_of};
use super::{Answer, Held};
use crate::reply;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use strandline::wire_format::{ColumnWriter, storable_form};
use strandline::{Connection, Portal, QueryResult, Result};

/// Rows that are sent portion by portion.
pub(super) struct RowSource {
    source: Source,
    schema: SchemaRef,
    formats: Formats,
    /// the columns of the present batch, and its first unsent row
    batch: Vec<ArrayRef>,
    row_count: usize,
    next_row: usize,
}

enum Source {
    Query(Portal),
    Batches(std::vec::IntoIter<RecordBatch>),
}

/// The number of sent rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Portion {
    /// all rows are sent
    All(u64),
    /// the requested number is sent, more rows may follow
    Part(u64),
}

impl RowSource {
    /// The rows of a query, computed as they are sent.
    pub fn of_query(query: Portal, formats: Formats) -> Self {
        let schema = query.schema().clone();
        Self::new(Source::Query(query), schema, formats)
    }

    /// Rows of a finished result.
    pub fn of_result(result: QueryResult, formats: Formats) -> Self {
        let schema = result.schema().clone();
        let batches = result.into_batches().into_iter();
        Self::new(Source::Batches(batches), schema, formats)
    }

    fn new(source: Source, schema: SchemaRef, formats: Formats) -> Self {
        Self {
            source,
            schema,
            formats,
            batch: Vec::new(),
            row_count: 0,
            next_row: 0,
        }
    }

    /// The client asks for more: a query has its time limit anew.
    pub fn restart_timeout(&mut self, connection: &Connection) {
        if let Source::Query(query) = &mut self.source {
            connection.restart_timeout(query);
        }
    }

    /// Appends RowDescription.
    pub fn describe(&self, out: &mut Vec<u8>) {
        reply::columns(out, columns_of(&self.schema, &self.formats));
    }

    /// Sends up to `most` rows; 0: all.
    pub fn send(
        &mut self,
        connection: &mut Connection,
        wire: &mut Held<'_>,
        most: u64,
    ) -> Answer<Portion> {
        let mut sent = 0;
        loop {
            if self.next_row == self.row_count && !self.advance(connection)? {
                return Ok(Portion::All(sent));
            }
            let mut end = self.row_count;
            if most > 0 {
                let wanted = usize::try_from(most - sent).unwrap_or(usize::MAX);
                end = end.min(self.next_row.saturating_add(wanted));
            }
            sent += (end - self.next_row) as u64;
            self.send_rows(wire, end)?;
            if sent == most && most > 0 {
                return Ok(Portion::Part(sent));
            }
        }
    }

    /// Takes the next batch; false at the end.
    fn advance(&mut self, connection: &mut Connection) -> Result<bool> {
        let batch = match &mut self.source {
            Source::Query(query) => connection.next_batch(query)?,
            Source::Batches(batches) => batches.next(),
        };
        let Some(batch) = batch else {
            return Ok(false);
        };
        self.row_count = batch.num_rows();
        self.next_row = 0;
        self.batch = batch
            .columns()
            .iter()
            .map(storable_form)
            .collect::<Result<_>>()?;
        Ok(true)
    }

    fn send_rows(&mut self, wire: &mut Held<'_>, end: usize) -> Answer {
        let columns = self.batch.iter().enumerate();
        let writers = columns.map(|(i, column)| ColumnWriter::new(column, self.formats.at(i)));
        let writers: Vec<ColumnWriter<'_>> = writers.collect::<Result<_>>()?;
        for row in self.next_row..end {
            write_row(&writers, row, &mut wire.output)?;
            wire.flush_if_much()?;
        }
        self.next_row = end;
        Ok(())
    }
}

/// Appends a DataRow, or nothing if a value cannot be written.
fn write_row(writers: &[ColumnWriter<'_>], row: usize, out: &mut Vec<u8>) -> Result<()> {
    let begin = out.len();
    out.push(b'D');
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(writers.len() as u16).to_be_bytes());
    for writer in writers {
        let written = writer.write_with_length(row, out);
        let written = written.and_then(|()| reply::require_length(out.len() - start - 4));
        if let Err(error) = written {
            out.truncate(begin);
            return Err(error);
        }
    }
    reply::end_message(out, start);
    Ok(())
}
