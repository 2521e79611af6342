//! How work runs on threads: waiting for futures, room on the stack, the memory of queries, and the
//! client at the other end of COPY.

pub(crate) mod blocking;
pub(crate) mod copy_client;
pub(crate) mod query_memory;
pub(crate) mod stack_growth;
