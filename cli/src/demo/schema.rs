//! The demo's tables, queries and checks as SQL.

/// One TPC-H table.
pub struct Table {
    pub name: &'static str,
    pub ddl: &'static str,
}

/// The eight tables of TPC-H, in loading order.
pub const TABLES: [Table; 8] = [
    Table {
        name: "region",
        ddl: "CREATE TABLE region (
            r_regionkey bigint PRIMARY KEY,
            r_name varchar(25) NOT NULL,
            r_comment varchar(152))",
    },
    Table {
        name: "nation",
        ddl: "CREATE TABLE nation (
            n_nationkey bigint PRIMARY KEY,
            n_name varchar(25) NOT NULL,
            n_regionkey bigint NOT NULL,
            n_comment varchar(152))",
    },
    Table {
        name: "supplier",
        ddl: "CREATE TABLE supplier (
            s_suppkey bigint PRIMARY KEY,
            s_name varchar(25) NOT NULL,
            s_address varchar(40) NOT NULL,
            s_nationkey bigint NOT NULL,
            s_phone varchar(15) NOT NULL,
            s_acctbal numeric(15,2) NOT NULL,
            s_comment varchar(101) NOT NULL)",
    },
    Table {
        name: "part",
        ddl: "CREATE TABLE part (
            p_partkey bigint PRIMARY KEY,
            p_name varchar(55) NOT NULL,
            p_mfgr varchar(25) NOT NULL,
            p_brand varchar(10) NOT NULL,
            p_type varchar(25) NOT NULL,
            p_size integer NOT NULL,
            p_container varchar(10) NOT NULL,
            p_retailprice numeric(15,2) NOT NULL,
            p_comment varchar(23) NOT NULL)",
    },
    Table {
        name: "partsupp",
        ddl: "CREATE TABLE partsupp (
            ps_partkey bigint NOT NULL,
            ps_suppkey bigint NOT NULL,
            ps_availqty integer NOT NULL,
            ps_supplycost numeric(15,2) NOT NULL,
            ps_comment varchar(199) NOT NULL,
            PRIMARY KEY (ps_partkey, ps_suppkey))",
    },
    Table {
        name: "customer",
        ddl: "CREATE TABLE customer (
            c_custkey bigint PRIMARY KEY,
            c_name varchar(25) NOT NULL,
            c_address varchar(40) NOT NULL,
            c_nationkey bigint NOT NULL,
            c_phone varchar(15) NOT NULL,
            c_acctbal numeric(15,2) NOT NULL,
            c_mktsegment varchar(10) NOT NULL,
            c_comment varchar(117) NOT NULL)",
    },
    Table {
        name: "orders",
        ddl: "CREATE TABLE orders (
            o_orderkey bigint PRIMARY KEY,
            o_custkey bigint NOT NULL,
            o_orderstatus char(1) NOT NULL,
            o_totalprice numeric(15,2) NOT NULL,
            o_orderdate date NOT NULL,
            o_orderpriority varchar(15) NOT NULL,
            o_clerk varchar(15) NOT NULL,
            o_shippriority integer NOT NULL,
            o_comment varchar(79) NOT NULL)",
    },
    Table {
        name: "lineitem",
        ddl: "CREATE TABLE lineitem (
            l_orderkey bigint NOT NULL,
            l_partkey bigint NOT NULL,
            l_suppkey bigint NOT NULL,
            l_linenumber integer NOT NULL,
            l_quantity numeric(15,2) NOT NULL,
            l_extendedprice numeric(15,2) NOT NULL,
            l_discount numeric(15,2) NOT NULL,
            l_tax numeric(15,2) NOT NULL,
            l_returnflag char(1) NOT NULL,
            l_linestatus char(1) NOT NULL,
            l_shipdate date NOT NULL,
            l_commitdate date NOT NULL,
            l_receiptdate date NOT NULL,
            l_shipinstruct varchar(25) NOT NULL,
            l_shipmode varchar(10) NOT NULL,
            l_comment varchar(44) NOT NULL,
            PRIMARY KEY (l_orderkey, l_linenumber))",
    },
];

/// The table with one row that every transaction of the demo updates. The row holds the number of
/// transactions, the number of orders and lines there must be, and the time of the newest
/// transaction. A query reads it in its own snapshot, to know how fresh its answer is and which
/// sums it must match.
pub const LEDGER_DDL: &str = "CREATE TABLE demo_ledger (
    id integer PRIMARY KEY,
    transactions bigint NOT NULL,
    orders bigint NOT NULL,
    lines bigint NOT NULL,
    entered_at timestamptz NOT NULL)";

/// The ledger's row, the time as microseconds since the epoch.
pub const LEDGER_READ: &str = "SELECT transactions, orders, lines,
        CAST(extract(epoch FROM entered_at) * 1000000 AS bigint) AS entered_us
    FROM demo_ledger WHERE id = 1";

/// A TPC-H query. `{orders}` and the like stand for the tables.
pub struct Query {
    pub name: &'static str,
    template: &'static str,
}

/// The four queries of the demo with TPC-H's validation parameters.
pub const QUERIES: [Query; 4] = [
    Query {
        name: "Q1",
        template: "SELECT l_returnflag, l_linestatus,
            sum(l_quantity) AS sum_qty,
            sum(l_extendedprice) AS sum_base_price,
            sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
            avg(l_quantity) AS avg_qty,
            avg(l_extendedprice) AS avg_price,
            avg(l_discount) AS avg_disc,
            count(*) AS count_order
        FROM {lineitem}
        WHERE l_shipdate <= date '1998-12-01' - interval '90' day
        GROUP BY l_returnflag, l_linestatus
        ORDER BY l_returnflag, l_linestatus",
    },
    Query {
        name: "Q3",
        template: "SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue,
            o_orderdate, o_shippriority
        FROM {customer}, {orders}, {lineitem}
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
            AND o_orderdate < date '1995-03-15' AND l_shipdate > date '1995-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        ORDER BY revenue DESC, o_orderdate, l_orderkey
        LIMIT 10",
    },
    Query {
        name: "Q6",
        template: "SELECT sum(l_extendedprice * l_discount) AS revenue
        FROM {lineitem}
        WHERE l_shipdate >= date '1994-01-01'
            AND l_shipdate < date '1994-01-01' + interval '1' year
            AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    },
    Query {
        name: "Q18",
        template: "SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice,
            sum(l_quantity) AS quantity
        FROM {customer}, {orders}, {lineitem}
        WHERE o_orderkey IN (
                SELECT l_orderkey FROM {lineitem} GROUP BY l_orderkey HAVING sum(l_quantity) > 300)
            AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        ORDER BY o_totalprice DESC, o_orderdate, o_orderkey
        LIMIT 100",
    },
];

impl Query {
    /// The query over the present.
    pub fn now(&self) -> String {
        self.over("")
    }

    /// The query over the past; `moment` is a timestamptz as text.
    pub fn as_of(&self, moment: &str) -> String {
        self.over(&format!(" FOR SYSTEM_TIME AS OF TIMESTAMPTZ '{moment}'"))
    }

    fn over(&self, period: &str) -> String {
        let mut sql = self.template.to_string();
        for table in ["customer", "orders", "lineitem"] {
            sql = sql.replace(&format!("{{{table}}}"), &format!("{table}{period}"));
        }
        sql
    }
}

/// Counts the orders, the lines and the violations, in one snapshot. A violation is an order
/// without lines, lines without an order, or a total that is not the sum of its lines. Line prices
/// are TPC-H's: cents, truncated after the discount and again after the tax.
pub const AUDIT: &str = "SELECT
    (SELECT count(*) FROM orders) AS orders,
    (SELECT count(*) FROM lineitem) AS lines,
    (SELECT count(*)
        FROM orders FULL JOIN (
            SELECT l_orderkey, sum(
                CAST(l_extendedprice * 100 AS bigint) * (100 - CAST(l_discount * 100 AS bigint))
                    / 100 * (100 + CAST(l_tax * 100 AS bigint)) / 100) AS cents
            FROM lineitem GROUP BY l_orderkey) AS totals
        ON l_orderkey = o_orderkey
        WHERE o_orderkey IS NULL OR l_orderkey IS NULL
            OR CAST(o_totalprice * 100 AS bigint) <> cents) AS wrong";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_gets_its_moment() {
        for query in &QUERIES {
            assert!(!query.now().contains('{') && !query.now().contains("SYSTEM_TIME"));
            let past = query.as_of("2026-01-01 00:00:00+00");
            let tables = query.template.matches('{').count();
            assert_eq!(
                past.matches("AS OF TIMESTAMPTZ '2026").count(),
                tables,
                "{past}"
            );
        }
    }
}
