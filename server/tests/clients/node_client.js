// node-postgres: a pool, parameters, transactions, errors.
const assert = require('assert');
const { Pool, Client } = require('pg');

async function main() {
  const pool = new Pool({ max: 5 });
  await pool.query('CREATE TABLE t (a int PRIMARY KEY, b text, c timestamptz, d boolean, e json)');
  const insert = 'INSERT INTO t VALUES ($1, $2, $3, $4, $5) RETURNING a';
  const moment = new Date('2024-02-29T01:02:03.004Z');
  const inserts = [...Array(50).keys()].map((i) =>
    pool.query(insert, [i, i % 2 ? null : `row ${i}`, moment, i % 3 === 0, { i }]));
  const results = await Promise.all(inserts);
  assert.deepStrictEqual(results.map((r) => r.rows[0].a), [...Array(50).keys()]);
  assert.strictEqual(results[0].command, 'INSERT');

  const { rows, fields } = await pool.query('SELECT * FROM t WHERE a IN ($1, $2) ORDER BY a', [0, 1]);
  assert.deepStrictEqual(rows, [
    { a: 0, b: 'row 0', c: moment, d: true, e: { i: 0 } },
    { a: 1, b: null, c: moment, d: false, e: { i: 1 } },
  ]);
  assert.deepStrictEqual(fields.map((f) => f.dataTypeID), [23, 25, 1184, 16, 114]);

  const named = { name: 'one', text: 'SELECT b FROM t WHERE a = $1' };
  for (let i = 0; i < 10; i += 2) {
    const answer = await pool.query({ ...named, values: [i] });
    assert.strictEqual(answer.rows[0].b, `row ${i}`);
  }

  const client = new Client();
  await client.connect();
  await client.query('BEGIN');
  await client.query('DELETE FROM t');
  await assert.rejects(client.query('SELECT nothing'), { code: '42703', severity: 'ERROR' });
  await assert.rejects(client.query('SELECT 1'), { code: '25P02' });
  await client.query('ROLLBACK');
  const several = await client.query('SELECT count(*)::int AS n FROM t; SELECT 2 AS n');
  assert.deepStrictEqual(several.map((r) => r.rows[0].n), [50, 2]);
  await client.end();
  await pool.end();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
