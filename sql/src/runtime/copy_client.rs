//! The other end of COPY … FROM STDIN and TO STDOUT: a client that sends and takes data while the
//! statement runs.

use parking_lot::Mutex;
use std::sync::Arc;
use strandline_base::Result;
use strandline_semantics::wire_format::Format;

/// A client that a COPY exchanges data with. Its calls come from one thread at a time, not
/// necessarily that of the connection, and block.
pub trait CopyClient: Send {
    /// Data for `columns` columns is to be sent from now on.
    fn begin_in(&mut self, format: Format, columns: usize) -> Result<()>;
    /// Appends the next piece of data, which may end anywhere; false: there is no more.
    fn read(&mut self, into: &mut Vec<u8>) -> Result<bool>;
    /// Data of `columns` columns follows.
    fn begin_out(&mut self, format: Format, columns: usize) -> Result<()>;
    /// Takes a row (or a header or trailer).
    fn write(&mut self, data: &[u8]) -> Result<()>;
    /// The data is complete.
    fn end_out(&mut self) -> Result<()>;
}

/// A client as the threads of one COPY share it.
pub type SharedCopyClient = Arc<Mutex<dyn CopyClient>>;

/// Makes the client of a COPY when the statement begins. A thread of a cancelled COPY may call its
/// client when another statement runs: each COPY has a client of its own, which knows its end.
pub type CopyClients = Arc<dyn Fn() -> SharedCopyClient + Send + Sync>;
