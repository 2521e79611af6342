//! Framed messages over a transport.
//!
//! Input is read into one buffer as it arrives, so that a pipeline needs one system call. A
//! message's length is checked before the buffer grows, and the buffer grows with the received
//! bytes, never to the announced length. Output is gathered. It is written before a wait for the
//! client, at Flush, and at [`WRITE_BYTES`]. If a client does not read, the write fails after the
//! transport's time limit.

use crate::polling::Pace;
use crate::transport::Transport;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The least bytes of one read from the transport.
const READ_BYTES: usize = 8 << 10;
/// Bytes of gathered output that trigger a write.
const WRITE_BYTES: usize = 64 << 10;
/// A buffer that grew beyond this for one message is freed afterwards.
const KEEP_BYTES: usize = 256 << 10;
/// The longest message of a type without long fields, as in PostgreSQL.
const SMALL_MESSAGE_BYTES: usize = 10_000;
/// The longest startup packet, as in PostgreSQL.
const STARTUP_BYTES: usize = 10_000;

/// The reason why there is no next message.
#[derive(Debug)]
pub(crate) enum WireError {
    /// the client has closed the connection between two messages
    Closed,
    /// the time for the next message has passed
    TimedOut,
    /// the input is not a message (08P01); the connection must end
    Malformed(String),
    /// the connection is broken
    Io(io::Error),
}

impl From<io::Error> for WireError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::TimedOut,
            _ => Self::Io(error),
        }
    }
}

/// The placeholder of a transport whose handshake has failed.
struct Gone;

impl Read for Gone {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Ok(0)
    }
}

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::BrokenPipe.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Transport for Gone {
    fn set_read_timeout(&mut self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }
    fn has_input(&self) -> bool {
        true
    }
}

/// One connection's buffers and transport.
pub(crate) struct Wire {
    transport: Box<dyn Transport>,
    input: Vec<u8>,
    /// `input[start..end]` is received and unread
    start: usize,
    end: usize,
    /// the body of the present message
    body: std::ops::Range<usize>,
    /// the unsent output
    pub output: Vec<u8>,
    pace: Pace,
    read_timeout: Option<Duration>,
    /// the deadline of the authentication
    deadline: Option<Instant>,
    max_message_bytes: usize,
}

impl Wire {
    /// A connection over `transport`. Until [`Wire::end_startup`] messages are short, and all reads
    /// must finish before `deadline`.
    pub fn new(transport: Box<dyn Transport>, deadline: Instant, pace: Pace) -> Self {
        Self {
            transport,
            input: Vec::new(),
            start: 0,
            end: 0,
            body: 0..0,
            output: Vec::new(),
            pace,
            read_timeout: None,
            deadline: Some(deadline),
            max_message_bytes: SMALL_MESSAGE_BYTES,
        }
    }

    /// Ends the startup: messages may come at any time and have up to `bytes`.
    pub fn end_startup(&mut self, bytes: usize) {
        self.deadline = None;
        self.max_message_bytes = bytes;
    }

    /// Switches to TLS; `shake_hands` performs the handshake on the socket.
    pub fn encrypt<T: Transport + 'static>(
        &mut self,
        shake_hands: impl FnOnce(TcpStream) -> Result<T, WireError>,
    ) -> Result<(), WireError> {
        let transport = std::mem::replace(&mut self.transport, Box::new(Gone));
        let socket = transport.into_tcp().ok_or(WireError::Closed)?;
        self.transport = Box::new(shake_hands(socket)?);
        self.read_timeout = None;
        Ok(())
    }

    /// Sets the timeout of the next reads; a system call only if it changes.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Result<(), WireError> {
        if self.read_timeout != timeout {
            self.transport.set_read_timeout(timeout)?;
            self.read_timeout = timeout;
        }
        Ok(())
    }

    /// Limits the next read to the deadline, if there is one.
    fn keep_deadline(&mut self) -> Result<(), WireError> {
        let Some(deadline) = self.deadline else {
            return Ok(());
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(WireError::TimedOut);
        }
        self.set_read_timeout(Some(left))
    }

    /// Whether all received input has been read.
    pub fn is_drained(&self) -> bool {
        self.start == self.end
    }

    /// The type of the next message if the whole message has been received.
    pub fn peek(&self) -> Option<u8> {
        let unread = &self.input[self.start..self.end];
        let (kind, rest) = unread.split_first()?;
        let length = usize::try_from(i32::from_be_bytes(*rest.first_chunk()?)).ok()?;
        (rest.len() >= length).then_some(*kind)
    }

    /// Reads the next message and returns its type. Writes the gathered output before waiting.
    pub fn next(&mut self) -> Result<u8, WireError> {
        self.need(1, true)?;
        let kind = self.input[self.start];
        self.need(5, false)?;
        let length = self.length_at(self.start + 1);
        let most = match kind {
            b'Q' | b'P' | b'B' | b'd' | b'F' | b'p' => self.max_message_bytes,
            _ => SMALL_MESSAGE_BYTES,
        };
        let length = length.filter(|n| (4..=most).contains(n));
        let length = length.ok_or_else(|| invalid_length(kind))?;
        self.need(1 + length, false)?;
        self.body = self.start + 5..self.start + 1 + length;
        self.start += 1 + length;
        Ok(kind)
    }

    /// Reads a packet without a type, the form of a connection's first packets.
    pub fn next_startup(&mut self) -> Result<(), WireError> {
        self.need(4, true)?;
        let length = self.length_at(self.start);
        let length = length.filter(|n| (8..=STARTUP_BYTES).contains(n));
        let length = length
            .ok_or_else(|| WireError::Malformed("invalid length of startup packet".into()))?;
        self.need(length, false)?;
        self.body = self.start + 4..self.start + length;
        self.start += length;
        Ok(())
    }

    /// The body of the message last read by [`Wire::next`].
    pub fn body(&self) -> &[u8] {
        &self.input[self.body.clone()]
    }

    fn length_at(&self, at: usize) -> Option<usize> {
        let bytes: [u8; 4] = *self.input[at..].first_chunk()?;
        usize::try_from(i32::from_be_bytes(bytes)).ok()
    }

    /// Waits until `wanted` bytes are unread.
    fn need(&mut self, wanted: usize, between_messages: bool) -> Result<(), WireError> {
        if self.end - self.start >= wanted {
            return Ok(());
        }
        self.flush()?;
        self.make_room();
        while self.end - self.start < wanted {
            if self.input.len() - self.end < READ_BYTES {
                // Double the buffer, so that it follows the bytes received.
                let grown = (self.input.len() * 2).max(2 * READ_BYTES);
                self.input.resize(grown, 0);
            }
            self.keep_deadline()?;
            if between_messages && self.start == self.end {
                self.pace.poll(&*self.transport);
            }
            match self.transport.read(&mut self.input[self.end..]) {
                Ok(0) if between_messages && self.start == self.end => {
                    return Err(WireError::Closed);
                }
                Ok(0) => return Err(WireError::Io(ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    self.pace.arrived();
                    self.end += n;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Moves the unread input to the buffer's start.
    fn make_room(&mut self) {
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        self.body = 0..0;
        if self.end == 0 && self.input.len() > KEEP_BYTES {
            self.input = Vec::new();
        }
    }

    /// Writes the gathered output if it is large.
    pub fn flush_if_much(&mut self) -> Result<(), WireError> {
        match self.output.len() >= WRITE_BYTES {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes the gathered output.
    pub fn flush(&mut self) -> Result<(), WireError> {
        if self.output.is_empty() {
            return Ok(());
        }
        let written = self.transport.write_all(&self.output);
        self.output.clear();
        if self.output.capacity() > KEEP_BYTES {
            self.output = Vec::new();
        }
        written.map_err(|e| match e.kind() {
            // The client does not read, which is not a pause between two messages.
            ErrorKind::WouldBlock => WireError::Io(ErrorKind::TimedOut.into()),
            _ => WireError::Io(e),
        })?;
        self.transport.flush().map_err(WireError::Io)
    }
}

fn invalid_length(kind: u8) -> WireError {
    WireError::Malformed(match kind {
        b'Q' | b'P' | b'B' | b'd' | b'F' | b'p' => "invalid message length".to_string(),
        other if KINDS.contains(&other) => "invalid message length".to_string(),
        other => format!("invalid frontend message type {other}"),
    })
}

/// The types of messages that clients send.
pub(crate) const KINDS: &[u8] = b"QPBDECHSXdcfpF";
