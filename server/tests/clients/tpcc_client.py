"""TPC-C with all its keys: a small database, the five transactions by several sessions at once, and
the consistency conditions of the specification's clause 3.3.2 over what they leave.

Random choices come from STRANDLINE_TPCC_SEED; without it from a new seed, which a failure prints.
"""

import os
import random
import threading

import psycopg

WAREHOUSES, DISTRICTS, CUSTOMERS, ITEMS, ORDERS = 2, 4, 30, 60, 30
# Orders of the initial database that are delivered, per district.
DELIVERED = 21
SESSIONS, TRANSACTIONS = 4, 15
SYLLABLES = "BAR OUGHT ABLE PRI PRES ESE ANTI CALLY ATION EING".split()
SEED = int(os.environ.get("STRANDLINE_TPCC_SEED") or random.randrange(2**32))

SCHEMA = """
CREATE TABLE warehouse (
    w_id smallint PRIMARY KEY, w_name varchar(10), w_street_1 varchar(20), w_street_2 varchar(20),
    w_city varchar(20), w_state char(2), w_zip char(9), w_tax numeric(4,4), w_ytd numeric(12,2));
CREATE TABLE district (
    d_id smallint, d_w_id smallint REFERENCES warehouse, d_name varchar(10), d_city varchar(20),
    d_state char(2), d_zip char(9), d_tax numeric(4,4), d_ytd numeric(12,2), d_next_o_id int,
    PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer (
    c_id int, c_d_id smallint, c_w_id smallint, c_first varchar(16), c_middle char(2),
    c_last varchar(16), c_phone char(16), c_since timestamptz, c_credit char(2),
    c_credit_lim numeric(12,2), c_discount numeric(4,4), c_balance numeric(12,2),
    c_ytd_payment numeric(12,2), c_payment_cnt smallint, c_delivery_cnt smallint, c_data varchar(500),
    PRIMARY KEY (c_w_id, c_d_id, c_id),
    FOREIGN KEY (c_w_id, c_d_id) REFERENCES district (d_w_id, d_id));
CREATE TABLE history (
    h_c_id int, h_c_d_id smallint, h_c_w_id smallint, h_d_id smallint, h_w_id smallint,
    h_date timestamptz, h_amount numeric(6,2), h_data varchar(24),
    FOREIGN KEY (h_c_w_id, h_c_d_id, h_c_id) REFERENCES customer (c_w_id, c_d_id, c_id),
    FOREIGN KEY (h_w_id, h_d_id) REFERENCES district (d_w_id, d_id));
CREATE TABLE orders (
    o_id int, o_d_id smallint, o_w_id smallint, o_c_id int, o_entry_d timestamptz,
    o_carrier_id smallint, o_ol_cnt smallint, o_all_local smallint,
    PRIMARY KEY (o_w_id, o_d_id, o_id));
CREATE TABLE new_order (
    no_o_id int, no_d_id smallint, no_w_id smallint, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE item (
    i_id int PRIMARY KEY, i_im_id int, i_name varchar(24), i_price numeric(5,2), i_data varchar(50));
CREATE TABLE stock (
    s_i_id int, s_w_id smallint, s_quantity smallint, s_dist char(24), s_ytd numeric(8,0),
    s_order_cnt smallint, s_remote_cnt smallint, s_data varchar(50), PRIMARY KEY (s_w_id, s_i_id));
CREATE TABLE order_line (
    ol_o_id int, ol_d_id smallint, ol_w_id smallint, ol_number smallint, ol_i_id int,
    ol_supply_w_id smallint, ol_delivery_d timestamptz, ol_quantity smallint, ol_amount numeric(6,2),
    ol_dist_info char(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
"""

# Made after the load, as HammerDB does.
KEYS = """
CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first);
CREATE UNIQUE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
ALTER TABLE orders ADD FOREIGN KEY (o_w_id, o_d_id, o_c_id) REFERENCES customer (c_w_id, c_d_id, c_id);
ALTER TABLE new_order ADD FOREIGN KEY (no_w_id, no_d_id, no_o_id) REFERENCES orders (o_w_id, o_d_id, o_id);
ALTER TABLE stock ADD FOREIGN KEY (s_w_id) REFERENCES warehouse, ADD FOREIGN KEY (s_i_id) REFERENCES item;
ALTER TABLE order_line
    ADD FOREIGN KEY (ol_w_id, ol_d_id, ol_o_id) REFERENCES orders (o_w_id, o_d_id, o_id),
    ADD FOREIGN KEY (ol_supply_w_id, ol_i_id) REFERENCES stock (s_w_id, s_i_id);
"""

# Clause 3.3.2: each query lists what contradicts its condition. 11 holds of the load only.
CONDITIONS = {
    1: "SELECT w_id FROM warehouse WHERE w_ytd <> (SELECT sum(d_ytd) FROM district WHERE d_w_id = w_id)",
    2: """SELECT d_w_id, d_id FROM district WHERE d_next_o_id - 1
        <> (SELECT max(o_id) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)
        OR d_next_o_id - 1 <> (SELECT max(no_o_id) FROM new_order WHERE no_w_id = d_w_id AND no_d_id = d_id)""",
    3: """SELECT no_w_id, no_d_id FROM new_order GROUP BY no_w_id, no_d_id
        HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)""",
    4: """SELECT d_w_id, d_id FROM district
        WHERE (SELECT sum(o_ol_cnt) FROM orders WHERE o_w_id = d_w_id AND o_d_id = d_id)
        <> (SELECT count(*) FROM order_line WHERE ol_w_id = d_w_id AND ol_d_id = d_id)""",
    5: """SELECT o_w_id, o_d_id, o_id FROM orders LEFT JOIN new_order
        ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
        WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)""",
    6: """SELECT o_w_id, o_d_id, o_id FROM orders LEFT JOIN order_line
        ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
        GROUP BY o_w_id, o_d_id, o_id, o_ol_cnt HAVING count(ol_number) <> o_ol_cnt""",
    7: """SELECT ol_w_id, ol_d_id, ol_o_id FROM order_line JOIN orders
        ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
        WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)""",
    8: "SELECT w_id FROM warehouse WHERE w_ytd <> (SELECT sum(h_amount) FROM history WHERE h_w_id = w_id)",
    9: """SELECT d_w_id, d_id FROM district WHERE d_ytd
        <> (SELECT sum(h_amount) FROM history WHERE h_w_id = d_w_id AND h_d_id = d_id)""",
    10: """SELECT c_w_id, c_d_id, c_id FROM customer WHERE c_balance
        <> (SELECT coalesce(sum(ol_amount), 0) FROM order_line JOIN orders
            ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
            WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL)
        - (SELECT coalesce(sum(h_amount), 0) FROM history
            WHERE h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id)""",
    12: """SELECT c_w_id, c_d_id, c_id FROM customer WHERE c_balance + c_ytd_payment
        <> (SELECT coalesce(sum(ol_amount), 0) FROM order_line JOIN orders
            ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
            WHERE o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id AND ol_delivery_d IS NOT NULL)""",
}

# No row without its parent: asked of the data, not of the constraints.
ORPHANS = """
SELECT 'order_line', count(*) FROM order_line WHERE NOT EXISTS (SELECT 1 FROM orders
    WHERE o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id)
UNION ALL SELECT 'new_order', count(*) FROM new_order WHERE NOT EXISTS (SELECT 1 FROM orders
    WHERE o_w_id = no_w_id AND o_d_id = no_d_id AND o_id = no_o_id)
UNION ALL SELECT 'history', count(*) FROM history WHERE NOT EXISTS (SELECT 1 FROM customer
    WHERE c_w_id = h_c_w_id AND c_d_id = h_c_d_id AND c_id = h_c_id)
"""


def last_name(number):
    return "".join(SYLLABLES[int(d)] for d in f"{number:03}")


def load(connection, chance):
    moment = "2024-01-01 00:00:00+00"
    customers = WAREHOUSES * DISTRICTS * CUSTOMERS

    def copy(table, rows):
        with connection.cursor().copy(f"COPY {table} FROM STDIN") as into:
            for row in rows:
                into.write_row(row)

    warehouses = range(1, WAREHOUSES + 1)
    districts = [(w, d) for w in warehouses for d in range(1, DISTRICTS + 1)]
    ytd = 10 * CUSTOMERS
    copy("warehouse", [
        (w, f"w{w}", "street", "", "city", "st", "123456789", 0.1, ytd * DISTRICTS) for w in warehouses
    ])  # fmt: skip
    copy("district", [
        (d, w, f"d{d}", "city", "st", "123456789", 0.05, ytd, ORDERS + 1) for w, d in districts
    ])  # fmt: skip
    people = [(w, d, c) for w, d in districts for c in range(1, CUSTOMERS + 1)]
    copy("customer", [
        (c, d, w, f"first {c}", "OE", last_name(c % 10), "0", moment, "GC", 50000, 0.1, -10, 10, 1, 0, "x")
        for w, d, c in people
    ])  # fmt: skip
    copy("history", [(c, d, w, d, w, moment, 10, "h") for w, d, c in people])
    assert len(people) == customers
    copy("item", [(i, i, f"item {i}", chance.randrange(100, 9999) / 100, "x") for i in range(1, ITEMS + 1)])
    copy("stock", [(i, w, 50, "dist", 0, 0, 0, "x") for w in warehouses for i in range(1, ITEMS + 1)])
    orders, lines = [], []
    for w, d in districts:
        buyers = chance.sample(range(1, CUSTOMERS + 1), ORDERS)
        for o, c in enumerate(buyers, 1):
            carrier = chance.randint(1, 10) if o <= DELIVERED else None
            count = chance.randint(5, 15)
            orders.append((o, d, w, c, moment, carrier, count, 1))
            for n in range(1, count + 1):
                amount = 0 if carrier else chance.randint(1, 999999) / 100
                item = chance.randint(1, ITEMS)
                lines.append((o, d, w, n, item, w, moment if carrier else None, 5, amount, "dist"))
    copy("orders", orders)
    copy("new_order", [(o, d, w) for o, d, w, _, _, carrier, _, _ in orders if carrier is None])
    copy("order_line", lines)


class Rollback(Exception):
    pass


class Terminal:
    """One session with its random choices."""

    def __init__(self, number):
        self.chance = random.Random(SEED + number)
        self.home = 1 + number % WAREHOUSES
        self.connection = psycopg.connect(autocommit=True)
        self.done = {}

    def run(self):
        kinds = [self.new_order, self.payment, self.order_status, self.delivery, self.stock_level]
        for _ in range(TRANSACTIONS):
            kind = self.chance.choices(kinds, [45, 43, 4, 4, 4])[0]
            try:
                with self.connection.transaction():
                    kind(self.connection.execute)
                self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1
            except Rollback:
                pass
            except psycopg.errors.DeadlockDetected:
                self.done["deadlock"] = self.done.get("deadlock", 0) + 1
        self.connection.close()

    def customer(self, execute, w, d):
        """By number, or by last name: the middle one of those who have it."""
        if self.chance.random() < 0.4:
            return self.chance.randint(1, CUSTOMERS)
        query = """SELECT c_id FROM customer WHERE c_w_id = %s AND c_d_id = %s AND c_last = %s
            ORDER BY c_first"""
        named = execute(query, (w, d, last_name(self.chance.randrange(10)))).fetchall()
        return named[len(named) // 2][0]

    def new_order(self, execute):
        w, d, c = self.home, self.chance.randint(1, DISTRICTS), self.chance.randint(1, CUSTOMERS)
        query = """SELECT c_discount, w_tax FROM warehouse, customer
            WHERE w_id = %s AND c_w_id = w_id AND c_d_id = %s AND c_id = %s"""
        discount, w_tax = execute(query, (w, d, c)).fetchone()
        query = "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = %s AND d_id = %s FOR UPDATE"
        o, d_tax = execute(query, (w, d)).fetchone()
        execute("UPDATE district SET d_next_o_id = %s WHERE d_w_id = %s AND d_id = %s", (o + 1, w, d))
        items = sorted(self.chance.sample(range(1, ITEMS + 1), self.chance.randint(5, 15)))
        if self.chance.random() < 0.05:
            items[-1] = 999_999
        remote = self.chance.randint(1, WAREHOUSES) if self.chance.random() < 0.1 else w
        local = int(remote == w)
        execute(
            "INSERT INTO orders VALUES (%s, %s, %s, %s, now(), NULL, %s, %s)",
            (o, d, w, c, len(items), local),
        )
        execute("INSERT INTO new_order VALUES (%s, %s, %s)", (o, d, w))
        for number, item in enumerate(items, 1):
            found = execute("SELECT i_price FROM item WHERE i_id = %s", (item,)).fetchone()
            if found is None:
                raise Rollback
            query = """SELECT s_quantity, s_dist FROM stock WHERE s_i_id = %s AND s_w_id = %s FOR UPDATE"""
            quantity, info = execute(query, (item, remote)).fetchone()
            wanted = self.chance.randint(1, 10)
            left = quantity - wanted if quantity >= wanted + 10 else quantity - wanted + 91
            execute(
                """UPDATE stock SET s_quantity = %s, s_ytd = s_ytd + %s, s_order_cnt = s_order_cnt + 1,
                s_remote_cnt = s_remote_cnt + %s WHERE s_i_id = %s AND s_w_id = %s""",
                (left, wanted, 1 - local, item, remote),
            )
            amount = wanted * found[0] * (1 + w_tax + d_tax) * (1 - discount)
            execute(
                "INSERT INTO order_line VALUES (%s, %s, %s, %s, %s, %s, NULL, %s, %s, %s)",
                (o, d, w, number, item, remote, wanted, round(amount, 2), info),
            )

    def payment(self, execute):
        w, d = self.home, self.chance.randint(1, DISTRICTS)
        c_w = self.chance.randint(1, WAREHOUSES) if self.chance.random() < 0.15 else w
        c = self.customer(execute, c_w, d)
        amount = self.chance.randrange(100, 500_000) / 100
        query = "UPDATE warehouse SET w_ytd = w_ytd + %s WHERE w_id = %s RETURNING w_name"
        (w_name,) = execute(query, (amount, w)).fetchone()
        query = """UPDATE district SET d_ytd = d_ytd + %s WHERE d_w_id = %s AND d_id = %s
            RETURNING d_name"""
        (d_name,) = execute(query, (amount, w, d)).fetchone()
        query = """UPDATE customer SET c_balance = c_balance - %s, c_ytd_payment = c_ytd_payment + %s,
            c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s"""
        assert execute(query, (amount, amount, c_w, d, c)).rowcount == 1
        execute(
            "INSERT INTO history VALUES (%s, %s, %s, %s, %s, now(), %s, %s)",
            (c, d, c_w, d, w, amount, f"{w_name}    {d_name}"),
        )

    def order_status(self, execute):
        w, d = self.home, self.chance.randint(1, DISTRICTS)
        c = self.customer(execute, w, d)
        query = """SELECT o_id, o_ol_cnt FROM orders WHERE o_w_id = %s AND o_d_id = %s AND o_c_id = %s
            ORDER BY o_id DESC LIMIT 1"""
        order = execute(query, (w, d, c)).fetchone()
        if order is not None:
            query = """SELECT ol_i_id, ol_quantity, ol_amount FROM order_line
                WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s"""
            lines = execute(query, (w, d, order[0])).fetchall()
            assert len(lines) == order[1], (w, d, order, lines)

    def delivery(self, execute):
        w, carrier = self.home, self.chance.randint(1, 10)
        for d in range(1, DISTRICTS + 1):
            query = """SELECT no_o_id FROM new_order WHERE no_w_id = %s AND no_d_id = %s
                ORDER BY no_o_id LIMIT 1 FOR UPDATE"""
            oldest = execute(query, (w, d)).fetchone()
            # Another delivery took it meanwhile: the specification lets a district be passed over.
            if oldest is None:
                continue
            (o,) = oldest
            query = "DELETE FROM new_order WHERE no_w_id = %s AND no_d_id = %s AND no_o_id = %s"
            if execute(query, (w, d, o)).rowcount == 0:
                continue
            query = """UPDATE orders SET o_carrier_id = %s
                WHERE o_w_id = %s AND o_d_id = %s AND o_id = %s RETURNING o_c_id"""
            (c,) = execute(query, (carrier, w, d, o)).fetchone()
            query = """UPDATE order_line SET ol_delivery_d = now()
                WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s"""
            execute(query, (w, d, o))
            query = """SELECT sum(ol_amount) FROM order_line
                WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id = %s"""
            (total,) = execute(query, (w, d, o)).fetchone()
            query = """UPDATE customer SET c_balance = c_balance + %s,
                c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = %s AND c_d_id = %s AND c_id = %s"""
            assert execute(query, (total, w, d, c)).rowcount == 1

    def stock_level(self, execute):
        w, d = self.home, self.chance.randint(1, DISTRICTS)
        query = "SELECT d_next_o_id FROM district WHERE d_w_id = %s AND d_id = %s"
        (following,) = execute(query, (w, d)).fetchone()
        query = """SELECT count(DISTINCT s_i_id) FROM order_line, stock
            WHERE ol_w_id = %s AND ol_d_id = %s AND ol_o_id < %s AND ol_o_id >= %s
            AND s_w_id = %s AND s_i_id = ol_i_id AND s_quantity < %s"""
        values = (w, d, following, following - 20, w, self.chance.randint(10, 20))
        assert execute(query, values).fetchone()[0] <= ITEMS


def consistent(connection, when):
    for number, query in CONDITIONS.items():
        found = connection.execute(query).fetchall()
        assert found == [], f"{when}, condition {number}: {found} (STRANDLINE_TPCC_SEED={SEED})"
    for table, count in connection.execute(ORPHANS).fetchall():
        assert count == 0, f"{count} rows of {table} without parent (STRANDLINE_TPCC_SEED={SEED})"


def main():
    connection = psycopg.connect(autocommit=True)
    connection.execute("SET client_min_messages TO warning")
    connection.execute(SCHEMA)
    load(connection, random.Random(SEED))
    connection.execute(KEYS)
    consistent(connection, "after the load")

    terminals = [Terminal(n) for n in range(SESSIONS)]
    failures = []

    def work(terminal):
        try:
            terminal.run()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(t,)) for t in terminals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure
    consistent(connection, "after the run")
    kinds = {kind for t in terminals for kind in t.done}
    assert {"new_order", "payment"} <= kinds, kinds

    # Parents that have children stay, whatever the conditions above say.
    for parent in ["warehouse", "district", "customer", "orders", "item", "stock"]:
        try:
            connection.execute(f"DELETE FROM {parent}")
            raise AssertionError(f"{parent} lost its rows")
        except psycopg.errors.ForeignKeyViolation as error:
            assert error.diag.table_name and error.diag.constraint_name.endswith("_fkey"), error


if __name__ == "__main__":
    main()
