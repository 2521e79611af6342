//! The lock of a storage: its holders and the transactions that wait for them. It lets a definition
//! change wait for the writers of its table.
//!
//! Order: a definition change that waits for the writers lets no further writer in, so that a
//! stream of writers cannot starve it. Transactions that hold the storage already continue. A
//! newcomer waits for the change's transaction until that ends or gives up its claim (at its
//! `lock_timeout`, say). It waits in the wait-for graph like every transaction, so a cycle through
//! it is a deadlock.
//!
//! Lock order: the wait-for graph → `holders`, which is held only to look and to register, never
//! while waiting.

use super::Store;
use std::time::Duration;
use strandline_base::Result;
use strandline_txn::{Looks, StartWord, TxnManager, WaitLimits};

/// How a transaction holds a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// beside other writers
    Writer,
    /// alone, to change the definition of its table or because it has made the storage
    Alone,
}

#[derive(Default)]
pub(super) struct Holders {
    writers: Vec<StartWord>,
    exclusive: Option<StartWord>,
    /// the transaction that waits for exclusive access; no new writer enters meanwhile
    claimant: Option<StartWord>,
}

impl Holders {
    /// Of a storage that `holder` makes, if any transaction does.
    pub fn held_by(holder: Option<StartWord>) -> Self {
        Self {
            exclusive: holder,
            ..Self::default()
        }
    }
    /// The transaction that keeps `word` from becoming a writer.
    fn before_writer(&self, word: StartWord) -> Option<StartWord> {
        if self.writers.contains(&word) {
            return None;
        }
        let first = self.exclusive.or(self.claimant);
        first.filter(|holder| *holder != word)
    }
    /// The transaction that keeps `word` from holding the storage exclusively.
    fn before_exclusive(&self, word: StartWord) -> Option<StartWord> {
        let others = self.exclusive.iter().chain(&self.claimant);
        let mut others = others.chain(&self.writers);
        others.find(|holder| **holder != word).copied()
    }
}

impl Store {
    /// Registers `word` as a writer until [`Store::release`]; waits for a definition change, and
    /// for one that waits itself.
    pub fn lock_shared(&self, word: StartWord, waiting: &Waiting<'_>) -> Result<()> {
        let mut looks = Looks::default();
        loop {
            let holder = {
                let mut holders = self.holders.lock();
                let Some(holder) = holders.before_writer(word) else {
                    if !holders.writers.contains(&word) {
                        holders.writers.push(word);
                    }
                    return Ok(());
                };
                holder
            };
            let is_in_the_way = || self.holders.lock().before_writer(word) == Some(holder);
            waiting.wait_for_release(word, holder, &is_in_the_way, &mut looks)?;
        }
    }

    /// Takes the storage for a definition change: waits until no other transaction writes it.
    pub fn lock_exclusive(&self, word: StartWord, waiting: &Waiting<'_>) -> Result<()> {
        let mut looks = Looks::default();
        loop {
            let holder = {
                let mut holders = self.holders.lock();
                let Some(holder) = holders.before_exclusive(word) else {
                    holders.exclusive = Some(word);
                    holders.claimant = None;
                    return Ok(());
                };
                holders.claimant.get_or_insert(word);
                holder
            };
            let is_in_the_way = || self.holders.lock().before_exclusive(word) == Some(holder);
            if let Err(error) = waiting.wait_for_release(word, holder, &is_in_the_way, &mut looks) {
                self.give_up_claim(word);
                return Err(error);
            }
        }
    }

    fn give_up_claim(&self, word: StartWord) {
        let mut holders = self.holders.lock();
        holders.claimant.take_if(|claimant| *claimant == word);
    }

    /// Ends the holds of `word`. The caller's transaction has finished, so its waiters wake.
    pub fn release(&self, word: StartWord) {
        let mut holders = self.holders.lock();
        holders.writers.retain(|w| *w != word);
        holders.exclusive.take_if(|holder| *holder == word);
        holders.claimant.take_if(|claimant| *claimant == word);
    }

    /// Ends one hold of `word`, which goes on and keeps its others.
    pub fn release_hold(&self, word: StartWord, hold: Hold) {
        let mut holders = self.holders.lock();
        match hold {
            Hold::Writer => holders.writers.retain(|w| *w != word),
            Hold::Alone => drop(holders.exclusive.take_if(|holder| *holder == word)),
        }
    }

    /// Whether a transaction is registered.
    pub fn is_held(&self) -> bool {
        let holders = self.holders.lock();
        holders.exclusive.is_some() || !holders.writers.is_empty()
    }

    /// Whether a transaction holds the storage alone.
    pub fn is_held_alone(&self) -> bool {
        self.holders.lock().exclusive.is_some()
    }

    /// Whether `word` has changed the definition, or has made the storage.
    pub fn is_exclusive_to(&self, word: StartWord) -> bool {
        self.holders.lock().exclusive == Some(word)
    }

    /// Whether a definition change waits for the writers.
    #[cfg(test)]
    pub fn is_claimed(&self) -> bool {
        self.holders.lock().claimant.is_some()
    }
}

/// How a transaction waits for another one.
pub struct Waiting<'a> {
    /// who knows when it ends
    pub txns: &'a TxnManager,
    /// the longest wait
    pub timeout: Option<Duration>,
    /// whether the statement has been cancelled
    pub cancelled: &'a dyn Fn() -> bool,
}

impl Waiting<'_> {
    /// Waits until `holder` has finished, is not `in_the_way` any more, or may have let go of what
    /// is wanted: called in a loop that looks, with the same `looks`.
    pub fn wait_while(
        &self,
        waiter: StartWord,
        holder: StartWord,
        in_the_way: &dyn Fn() -> bool,
        looks: &mut Looks,
    ) -> Result<()> {
        let limits = WaitLimits {
            timeout: self.timeout,
            cancelled: self.cancelled,
            in_the_way,
        };
        self.txns.wait_while(waiter, holder, &limits, looks)
    }

    /// As [`Waiting::wait_while`], and if `holder` has finished, until it is not `in_the_way` any
    /// more: it lets go of what it holds after its end.
    pub fn wait_for_release(
        &self,
        waiter: StartWord,
        holder: StartWord,
        in_the_way: &dyn Fn() -> bool,
        looks: &mut Looks,
    ) -> Result<()> {
        self.wait_while(waiter, holder, in_the_way, looks)?;
        if self.txns.is_unfinished(holder) {
            return Ok(());
        }
        self.txns.wait_for_release(&WaitLimits {
            timeout: self.timeout,
            cancelled: self.cancelled,
            in_the_way,
        })
    }
}
