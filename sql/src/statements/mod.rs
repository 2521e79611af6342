//! The statements by kind ([`work`]): definitions, roles and privileges, COPY, EXPLAIN, backup, and
//! the kept plans of repeated statements ([`plan_cache`]).

pub(crate) mod backup;
pub(crate) mod copy;
pub(crate) mod data_statement;
pub(crate) mod ddl;
pub(crate) mod explain;
mod explain_options;
pub(crate) mod plan_cache;
pub(crate) mod roles;
pub(crate) mod with_changes;
pub(crate) mod work;
