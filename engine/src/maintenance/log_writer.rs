//! The thread that makes relaxed commits durable (`synchronous_commit = off`), independent of
//! maintenance and before the waiting commits need much memory. It also prepares the log's next
//! file.
//!
//! Commits that wait for durability write the log themselves and leave nothing for this thread.

use crate::events;
use std::time::Duration;
use strandline_storage::wal::Wal;

/// How long a relaxed commit waits at most for a sync to begin, unless one is at work.
const PATIENCE: Duration = Duration::from_millis(200);

/// The thread: it ends when the log is closed or has failed.
pub(crate) fn run(wal: &Wal) {
    let mut failure = None;
    while wal.wait_for_records(PATIENCE) {
        // A failed sync ends the log, whose users get the error. Without a next file the commit
        // that needs one tries again, and gets that error.
        let done = wal.sync_all().and_then(|()| wal.prepare_next_segment());
        let (before, now) = (failure.as_ref(), done.as_ref().err());
        events::background_work("preparations of the log", before, now);
        failure = done.err();
    }
}

#[cfg(test)]
mod tests {
    use crate::db::Db;
    use crate::settings::{DbOptions, Settings, TxnOptions};
    use std::sync::Arc;
    use std::thread::yield_now;
    use strandline_base::SystemClock;
    use strandline_device::MemoryDevice;

    fn open() -> Arc<Db> {
        Db::open(DbOptions {
            device: Arc::new(MemoryDevice::new()),
            clock: Arc::new(SystemClock),
            settings: Settings::default(),
        })
        .expect("opens")
    }

    #[test]
    fn relaxed_commits_become_durable_though_a_checkpoint_is_at_work() {
        let db = open();
        let _checkpoint = db.checkpoint.lock();
        let options = TxnOptions {
            synchronous_commit: false,
            ..TxnOptions::default()
        };
        let transaction = db.begin(options).expect("begins");
        transaction
            .change_catalog(&mut |_| Ok(()))
            .expect("a change");
        transaction.commit().expect("commits");
        while db.wal.durable_lsn() < db.wal.end_lsn() {
            yield_now();
        }
    }

    #[test]
    fn the_thread_ends_with_the_database() {
        for orderly in [true, false] {
            let db = open();
            let wal = Arc::downgrade(&db.wal);
            if orderly {
                db.close().expect("closes");
            }
            drop(db);
            assert_eq!(wal.strong_count(), 0);
        }
    }
}
