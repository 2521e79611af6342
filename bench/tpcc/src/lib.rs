//! TPC-C (revision 5.11) on slotted heap pages and the product's B+tree, through the product's log,
//! page store, SSD cache and checkpoints: the workload of the SSD-DB thesis \[SSD-DB §2.7\].
//!
//! [`Workload`] is the interface of the five transactions and [`Contents`] that of the consistency
//! check, so that another database can run the same inputs. [`Database`] implements both on pages.
//! [`experiment`] has the devices of the thesis' settings and the runs that its figures consist of.
//!
//! Differences from the benchmark's specification: keying and think times are one exponential wait
//! that is scaled down; a Delivery runs in its terminal, one district a transaction (2.7.2.2
//! allows both); NEW-ORDER has no column beside its key, so the index of the key is the table;
//! there is no screen input or output.
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | what is in it |
//! |---|---|
//! | `rows` | rows as fields and as bytes |
//! | `random` | the random numbers and texts of clause 4.3.2 |
//! | `input` | inputs of the transactions and their mix |
//! | `workload` | the transactions and the scan of all rows as traits |
//! | `consistency` | the conditions of clause 3.3.2 |
//! | `terminals` | threads that run the mix, and their rate over time |
//! | `database` | the implementation on pages |
//! | `experiment` | devices, warm-up, measured windows, crashes |

mod consistency;
mod database;
pub mod experiment;

mod input;
mod random;
mod rows;
mod terminals;
mod workload;

pub use consistency::{Summary, check};
pub use database::{Database, DatabaseSettings};
pub use input::{Inputs, Scale};
pub use terminals::{Terminals, Timeline};
pub use workload::{Contents, Outcome, Workload};
