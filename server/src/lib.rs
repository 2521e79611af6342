//! The PostgreSQL wire protocol in front of the engine.
