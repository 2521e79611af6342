//! The memory-bounded cache of decoded frames. (Owner: table.)
