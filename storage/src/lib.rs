//! What makes bytes durable and keeps them at hand: the write-ahead log with group commit, the
//! manifest, the files of blocks, sorted runs, and the pool of frames that blocks are read into.
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | what is in it |
//! |---|---|
//! | `pool`, `file` | frames of blocks in memory; files of blocks |
//! | `run` | sorted runs of records |
//! | `frame`, `version` | the frame around a record of a stream; the version of a file |
//! | `stream` | streams of frames, read back |
//! | `manifest`, `wal` | what the database consists of; the write-ahead log |

pub mod file;
mod frame;
pub mod manifest;
pub mod pool;
pub mod run;
mod stream;
mod version;
pub mod wal;
