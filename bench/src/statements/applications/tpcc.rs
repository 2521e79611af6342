//! The statements of TPC-C's transactions New-Order, Payment and Order-Status.

use super::case::{Statement, statement};
use super::tables::{Sizes, WAREHOUSES};
use crate::script::Draw::{self, Between, Cents, Moment, Run, RunTimes, Text};

fn warehouse() -> Draw {
    Between(1, WAREHOUSES + 1)
}

fn district() -> Draw {
    Between(1, 11)
}

/// New-Order.
pub fn new_order(sizes: Sizes) -> Vec<Statement> {
    vec![
        statement(
            "TPC-C New-Order: customer and warehouse",
            "SELECT c_discount, c_last, c_credit, w_tax FROM customer, warehouse \
             WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3",
            vec![warehouse(), district(), sizes.district_customer()],
            1,
        ),
        statement(
            "TPC-C New-Order: district FOR UPDATE",
            "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE",
            vec![warehouse(), district()],
            1,
        )
        .not_sqlite(),
        statement(
            "TPC-C New-Order: UPDATE district",
            "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2",
            vec![warehouse(), district()],
            0,
        ),
        statement(
            "TPC-C New-Order: INSERT order",
            "INSERT INTO oorder (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
             VALUES ($1, $2, $3, $4, $5, $6, 1)",
            vec![
                RunTimes(1, 1_000_000),
                district(),
                warehouse(),
                sizes.district_customer(),
                Moment(0, 1_000_000),
                Between(5, 16),
            ],
            0,
        ),
        statement(
            "TPC-C New-Order: INSERT new order",
            "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)",
            vec![RunTimes(1, 1_000_000), district(), warehouse()],
            0,
        ),
    ]
}

/// What New-Order does for each line.
pub fn new_order_lines(sizes: Sizes) -> Vec<Statement> {
    let item = || Between(1, sizes.items() + 1);
    vec![
        statement(
            "TPC-C New-Order: item",
            "SELECT i_price, i_name, i_data FROM item WHERE i_id = $1",
            vec![item()],
            1,
        ),
        statement(
            "TPC-C New-Order: stock FOR UPDATE",
            "SELECT s_quantity, s_data, s_dist_01 FROM stock \
             WHERE s_i_id = $1 AND s_w_id = $2 FOR UPDATE",
            vec![item(), warehouse()],
            1,
        )
        .not_sqlite(),
        statement(
            "TPC-C New-Order: UPDATE stock",
            "UPDATE stock SET s_quantity = $1, s_ytd = s_ytd + $2, s_order_cnt = s_order_cnt + 1, \
             s_remote_cnt = s_remote_cnt + $3 WHERE s_i_id = $4 AND s_w_id = $5",
            vec![
                Between(10, 100),
                Between(1, 11),
                Between(0, 2),
                item(),
                warehouse(),
            ],
            0,
        ),
        statement(
            "TPC-C New-Order: INSERT line",
            "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, \
             ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'dist')",
            vec![
                sizes.district_customer(),
                district(),
                warehouse(),
                RunTimes(1, 100),
                item(),
                warehouse(),
                Between(1, 11),
                Cents(100, 10_000),
            ],
            0,
        ),
    ]
}

/// Payment.
pub fn payment(sizes: Sizes) -> Vec<Statement> {
    let last = || {
        Text(
            "name ".into(),
            0,
            sizes.district_customers / 10,
            String::new(),
        )
    };
    vec![
        statement(
            "TPC-C Payment: UPDATE warehouse",
            "UPDATE warehouse SET w_ytd = w_ytd + $1 WHERE w_id = $2 \
             RETURNING w_name, w_street_1, w_city, w_state, w_zip",
            vec![Cents(100, 500_000), warehouse()],
            1,
        ),
        statement(
            "TPC-C Payment: UPDATE district",
            "UPDATE district SET d_ytd = d_ytd + $1 WHERE d_w_id = $2 AND d_id = $3 \
             RETURNING d_name, d_street_1, d_city",
            vec![Cents(100, 500_000), warehouse(), district()],
            1,
        ),
        statement(
            "TPC-C Payment: count by name",
            "SELECT count(c_id) FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3",
            vec![warehouse(), district(), last()],
            1,
        ),
        statement(
            "TPC-C Payment: customers by name",
            "SELECT c_id, c_first, c_middle, c_balance, c_credit FROM customer \
             WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first",
            vec![warehouse(), district(), last()],
            10,
        ),
        statement(
            "TPC-C Payment: UPDATE customer",
            "UPDATE customer SET c_balance = c_balance - $1, c_ytd_payment = c_ytd_payment + $2, \
             c_payment_cnt = c_payment_cnt + 1 WHERE c_w_id = $3 AND c_d_id = $4 AND c_id = $5",
            vec![
                Cents(100, 5_000),
                Cents(100, 5_000),
                warehouse(),
                district(),
                sizes.district_customer(),
            ],
            0,
        ),
        statement(
            "TPC-C Payment: INSERT history",
            "INSERT INTO history VALUES ($1, $2, $3, $4, $5, CURRENT_TIMESTAMP, $6, 'paid')",
            vec![
                Run,
                district(),
                warehouse(),
                district(),
                warehouse(),
                Cents(100, 500_000),
            ],
            0,
        ),
    ]
}

/// Order-Status.
pub fn order_status(sizes: Sizes) -> Vec<Statement> {
    vec![
        statement(
            "TPC-C Order-Status: customer",
            "SELECT c_first, c_middle, c_last, c_balance FROM customer \
             WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
            vec![warehouse(), district(), sizes.district_customer()],
            1,
        ),
        statement(
            "TPC-C Order-Status: latest order",
            "SELECT o_id, o_entry_d, o_carrier_id FROM oorder \
             WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3 ORDER BY o_id DESC LIMIT 1",
            vec![warehouse(), district(), sizes.district_customer()],
            1,
        ),
        statement(
            "TPC-C Order-Status: lines",
            "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line \
             WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3",
            vec![warehouse(), district(), sizes.district_customer()],
            None,
        ),
    ]
}
