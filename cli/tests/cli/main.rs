//! The binary as its users run it: scripts, formats, errors, exit codes, commands, the shell on a
//! pseudo-terminal. One test program, so that the binary is linked to once.

mod backup;
mod commands;
mod crash;
mod docs;
mod errors;
mod formats;
mod scripts;
mod serve;
mod shell;
mod support;
