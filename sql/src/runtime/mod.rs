//! Threads, stack and memory of running work: waiting for futures, stack growth, the memory of
//! queries, and the client of COPY.

pub(crate) mod blocking;
pub(crate) mod copy_client;
pub(crate) mod query_memory;
pub(crate) mod stack_growth;
