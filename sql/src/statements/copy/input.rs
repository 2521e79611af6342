//! The input of COPY … FROM: a file of the server, or a client.

use crate::runtime::copy_client::SharedCopyClient;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use strandline_base::{Error, Result, SqlState};

/// Bytes read from a file at a time.
const READ_BYTES: usize = 1 << 20;

/// The origin of the data.
#[derive(Clone)]
pub(super) enum Origin {
    /// a file
    File(PathBuf),
    /// a client that has been asked for the data
    Client(SharedCopyClient),
}

impl Origin {
    /// Opens the input; returns the number of bytes if it is known.
    pub fn open(&self) -> Result<(Input, Option<u64>)> {
        match self {
            Self::File(path) => {
                let (file, bytes) = open(path)?;
                Ok((Input::File(file, path.clone()), Some(bytes)))
            }
            Self::Client(client) => Ok((Input::Client(client.clone()), None)),
        }
    }
}

/// An open input.
pub(super) enum Input {
    /// a file and its name
    File(File, PathBuf),
    /// a sending client
    Client(SharedCopyClient),
}

impl Input {
    /// Appends the next piece; false at the end.
    pub fn read(&mut self, into: &mut Vec<u8>) -> Result<bool> {
        let (file, path) = match self {
            Self::Client(client) => return client.lock().read(into),
            Self::File(file, path) => (file, path),
        };
        let start = into.len();
        into.resize(start + READ_BYTES, 0);
        let read = loop {
            match file.read(&mut into[start..]) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        into.truncate(start + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(bytes) => Ok(bytes > 0),
            Err(e) => Err(Error::io(format!("reading \"{}\"", path.display()), &e)),
        }
    }
}

impl Input {
    /// Throws away what a client still sends; of a file nothing more is read.
    pub fn drain(&mut self) -> Result<()> {
        let Self::Client(client) = self else {
            return Ok(());
        };
        let mut thrown_away = Vec::new();
        while client.lock().read(&mut thrown_away)? {
            thrown_away.clear();
        }
        Ok(())
    }
}

/// Opens a file to read; the errors say what is wrong with the path.
pub(super) fn open(path: &Path) -> Result<(File, u64)> {
    let shown = format!("could not open file \"{}\" for reading", path.display());
    let metadata = std::fs::metadata(path).map_err(|e| Error::io(&shown, &e))?;
    if metadata.is_dir() {
        return Err(Error::invalid(
            SqlState::WRONG_OBJECT_TYPE,
            format!("\"{}\" is a directory", path.display()),
        ));
    }
    let file = File::open(path).map_err(|e| Error::io(&shown, &e))?;
    Ok((file, metadata.len()))
}
