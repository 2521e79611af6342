//! The client of COPY … FROM STDIN and TO STDOUT, which sends and receives data while the statement
//! runs.

use parking_lot::Mutex;
use std::sync::Arc;
use strandline_base::Result;
use strandline_semantics::wire_format::Format;

/// A client that exchanges data with a COPY. Its methods block. They are called from one thread at
/// a time, not necessarily the connection's.
pub trait CopyClient: Send {
    /// Asks for data of `columns` columns.
    fn begin_in(&mut self, format: Format, columns: usize) -> Result<()>;
    /// Appends the next piece of data, cut anywhere; false: the data is complete.
    fn read(&mut self, into: &mut Vec<u8>) -> Result<bool>;
    /// Announces data of `columns` columns.
    fn begin_out(&mut self, format: Format, columns: usize) -> Result<()>;
    /// Takes a row, a header or a trailer.
    fn write(&mut self, data: &[u8]) -> Result<()>;
    /// Ends the data.
    fn end_out(&mut self) -> Result<()>;
}

/// A client as the threads of one COPY share it.
pub type SharedCopyClient = Arc<Mutex<dyn CopyClient>>;

/// Makes the client of a COPY when the statement begins. A thread of a cancelled COPY may call its
/// client when another statement runs: each COPY has a client of its own, which knows its end.
pub type CopyClients = Arc<dyn Fn() -> SharedCopyClient + Send + Sync>;
