//! Timestamps, the transaction table, snapshots, waiting writers \[L-Store §5.1.1\].
//!
//! # The protocol
//!
//! A transaction claims a slot of the transaction table and writes its
//! [word](StartWord) into the start-time column of every record it adds. To commit, it draws a
//! timestamp under the log's lock ([`TxnManager::tick`]) and joins the
//! commit queue under the same lock, so commit order is log order. When its log
//! record is durable (or need not be), [`TxnManager::finish_through`] marks it committed and moves
//! the *stable* timestamp. It then stamps its records with the timestamp and gives the slot back
//! ([`TxnSlot::stamped`]); the next owner gets a new generation.
//!
//! ```text
//!              enqueue_commit                 finish_through           stamped
//! in progress ----------------> pre-committed ----------------> committed ------> free
//!      |        abort              | abort (failed log)                          ^
//!      +------------> aborted <----+ --------------------------------------------+
//! ```
//!
//! # Invariants
//!
//! 1. Timestamps grow strictly in log order; entries of the commit queue grow in timestamp and log
//!    position.
//! 2. A transaction is marked committed, with its timestamp, before stable reaches the timestamp.
//! 3. A slot's generation moves on only after every record that carries its word has its final
//!    start word.
//! 4. Stable never moves back.
//! 5. [`TxnManager::oldest_snapshot`] never exceeds the timestamp of a registered snapshot that was
//!    not older than stable when it was registered.
//! 6. The wait-for graph has no cycle.
//!
//! # Why a reader may treat "in progress" as "invisible"
//!
//! Let a reader have snapshot s and meet a word of transaction T whose commit timestamp is c ≤ s.
//! The snapshot was taken by loading stable (acquire) with value ≥ s, or by waiting in the commit
//! queue until everything ≤ s had finished (of speculative snapshots see below). By 2 T's mark
//! precedes, in the finisher's program order, the release store of stable (or the unlock of the
//! queue) that the snapshot observed; so T's mark happens before the reader's load of the slot's
//! state, which therefore yields `Committed(c)`, or a later generation. It can not yield
//! `InProgress`: a record that is seen as in progress belongs to a transaction that aborts or
//! commits after s. A later generation is reported as [`TxnStatus::Stale`]: by 3 the record has its
//! final start word by then, and the chain stamp → push on the free list (release) → pop
//! (acquire) → new generation (release) → status (acquire) makes that word visible to the load
//! that follows.
//!
//! The same holds for pre-committed transactions: a word seen as `PreCommitted(c)` has c > s. So
//! "visible if c ≤ s" is right for both phases, and costs other readers nothing.
//!
//! # Speculative reads
//!
//! A speculative snapshot is taken at the newest *queued* timestamp instead of stable, and thus
//! sees pre-committed transactions: these were marked before the timestamp was published. Its
//! owner depends on everything it can see. If it writes, its own log record comes after theirs:
//! it can only become durable, and finish, after them. If it does not, it waits for stable before
//! it ends. Pre-committed transactions abort only when the log has failed for good, and then
//! neither can succeed: the abort cascades.
//!
//! # Lock order
//!
//! the log's lock → commit queue; snapshot stripe; wait-for graph. The last three are never held
//! together.
//!
//! # Differences from the paper
//!
//! * The paper's commit time is drawn before validation and log write; ours under the log's lock,
//!   which makes commit order, log order and the order of becoming visible one order.
//! * "Pre-commit" is being in the commit queue. Commit dependencies are not counted per
//!   transaction: a speculative reader depends on all that its snapshot can see.
//! * The committer stamps its records itself, at once, instead of leaving it to future readers, so
//!   slots can be reused soon and the table stays small: an array instead of a hash table.
//! * A writer that meets a competing uncommitted record waits instead of aborting.
//!
//! # Structure
//!
//! Rooms, lowest first; a room imports only from rooms above it in this table:
//!
//! | room | what is in it |
//! |---|---|
//! | `clock`, `snapshots`, `start_word` | timestamps; registered snapshots; words of records |
//! | `transaction_table` | the states of transactions |
//! | `waits` | waiting writers |
//! | `commit_queue` | commits in the log's order |
//! | `manager` | [`TxnManager`], which joins them |
//! | `snapshot_guard` | snapshots as their owners have them |

mod clock;
mod commit_queue;
mod manager;
mod snapshot_guard;
mod snapshots;
mod start_word;
mod transaction_table;
mod waits;

pub use commit_queue::Durability;
pub use manager::{TxnManager, TxnSlot};
pub use snapshot_guard::{HistoryHold, SnapshotGuard};
pub use start_word::{Isolation, StartWord, TxnStatus, Visibility};
pub use waits::{Looks, WaitLimits, lock_timeout, query_cancelled};
