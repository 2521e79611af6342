//! From a parsed statement to a physical plan. Names become tables ([`catalog`], [`references`],
//! [`provider`]), subqueries become joins or calls ([`scalar_subqueries`], [`subplan`]), and
//! locking clauses become nodes ([`locking`]). [`context`] has the catalog, snapshot and settings
//! of one running statement; [`template`] is DataFusion's state from which a statement starts.
//! [`expressions`] plans expressions that stand outside any query; [`query_facts`] says which steps
//! a query needs.

pub(crate) mod catalog;
pub(crate) mod context;
pub(crate) mod expressions;
pub(crate) mod locking;
pub(crate) mod one_input;
pub(crate) mod owner;
pub(crate) mod parallelism;
pub(crate) mod planner;
pub(crate) mod provider;
pub(crate) mod query_facts;
pub(crate) mod references;
pub(crate) mod scalar_subqueries;
pub(crate) mod subplan;
pub(crate) mod template;
